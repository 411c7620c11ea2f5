"""What is worth one line has one: sizes that only logs change, code of a file, programs, and absent weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.trees import build
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate


def reasons(root: Path) -> list[str]:
    return [one.reason for one in validate([root]).unjudged if "without a" not in one.reason]


def told(root: Path, requirement: str) -> list[str]:
    return [one.message for one in validate([root]).findings if one.requirement == requirement]


def test_a_log_that_grows_is_no_change_of_size(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for step in (10, 1_000, 100_000):
        root = tmp_path / f"checkpoint-{step}"
        build(root, "model.safetensors  safetensors weight=F32[8]\nrng_state.pth  torch\n")
        momentum = {"step": torch.tensor(float(step)), "exp_avg": torch.ones(8)}
        torch.save(
            {"state": {0: momentum}, "param_groups": [{"step": step, "lrs": [0.1] * step}]}, root / "optimizer.pt"
        )
        log = [{"step": one} for one in range(step)]
        (root / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": log}))
    assert not told(tmp_path, "TS-CKP-096")
    build(tmp_path, "checkpoint-100000/model.safetensors  safetensors weight=F32[4]\n")
    assert len(told(tmp_path, "TS-CKP-096")) == 1


def test_names_of_code_of_a_file_are_one_finding(tmp_path: Path) -> None:
    build(tmp_path, "model.pt  torch call=mine.A call=mine.B call=mine.C call=mine.D call=mine.E call=posix.system\n")
    words = (
        "loading it would run posix.system, mine.A, mine.B, mine.C, mine.D and 1 more, which are not among the names"
    )
    programs = "what mine.A and 4 more of other programs do is not judged"
    assert told(tmp_path, "TS-SEC-001") == [f"{words} that plain state needs; {programs}"]
    assert next(judged_newest_first(tmp_path)).faults


@pytest.mark.parametrize("command", ["seal", "verify", "newest-good"])
def test_a_file_in_place_of_a_directory(command: str, tmp_path: Path) -> None:
    build(tmp_path, "last.ckpt  torch w=F32[4]\n")
    found = CliRunner().invoke(toolbox, ["checkpoint", command, str(tmp_path / "last.ckpt")])
    words = (
        "name the directory that holds" if command == "newest-good" else "so move it into one of its own, and name that"
    )
    assert found.exit_code == 2
    assert words in " ".join(found.stderr.split())


def test_settings_without_weights_are_named(tmp_path: Path) -> None:
    build(tmp_path, 'training_args.bin  torch\nconfig.json  json {"model_type": "llama"}\n')
    assert reasons(tmp_path) == ["holds settings of the Trainer, and no file with weights is next to it"]
    assert next(judged_newest_first(tmp_path)).faults


def test_programs_next_to_weights_are_named_once(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[8]\nzero_to_fp32.py  text pass\nplot.py  text pass\n")
    assert reasons(tmp_path) == []
    build(tmp_path, "modeling_a.py  text pass\nmodeling_b.py  text pass\ntools/modeling_c.py  text pass\n")
    assert reasons(tmp_path) == [
        "holds code next to weights that loaders of models run where they are asked to; 1 more like it"
    ]


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ('run: !!python/object/apply:os.system ["true"]', True),
        ("run: !<tag:yaml.org,2002:python/name:os.system> ''", True),
        ("run: !!python/tuple [1, 2]", False),
        ("run: python", False),
    ],
)
def test_objects_in_yaml_are_named_once(text: str, is_named: bool, tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[8]\n")
    (tmp_path / ".hydra").mkdir()
    for path in (".hydra/config.yaml", ".hydra/hydra.yaml"):
        (tmp_path / path).write_text(text)
    wanted = "holds code that yaml.unsafe_load runs, and other loaders of YAML where they are asked to (!!python/…)"
    wanted += "; 1 more like it"
    assert reasons(tmp_path) == ([wanted] if is_named else [])
