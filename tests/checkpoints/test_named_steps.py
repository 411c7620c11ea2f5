"""A name that counts epochs or saves says no optimizer step."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.trees import build
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate

MODEL = "mp_rank_00_model_states.pt  torch module=F32[4] global_steps:{} dp_world_size:1 mp_world_size:1\n"
SHARD = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt  torch fp32=F32[{}]\n"


def deepspeed(root: Path, form: str, steps: dict[int, int]) -> None:
    for number, step in steps.items():
        build(root / form.format(number), MODEL.format(step) + SHARD.format(step + 1))


def refused(root: Path) -> list[str]:
    """Names that are said to disagree with their content; the same by both commands for the newest."""
    found = [one.path for one in validate([root]).findings if one.requirement == "TS-CKP-088"]
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])
    assert all(f"{path}: " in result.stderr for path in found) or not result.exit_code
    assert bool(result.exit_code) == ("TS-CKP-088" in result.stderr and not result.stdout)
    return sorted({Path(path).relative_to(root).parts[0] for path in found})


@pytest.mark.parametrize("form", ["epoch_{}", "epoch{}", "save_{}", "epoch_{}/pytorch_model"])
@pytest.mark.parametrize("steps", [{2: 300}, {1: 1, 2: 300}, {0: 300, 1: 100}])
def test_a_word_of_epochs_says_no_step(tmp_path: Path, form: str, steps: dict[int, int]) -> None:
    deepspeed(tmp_path, form, steps)
    assert not refused(tmp_path)


@pytest.mark.parametrize("form", ["checkpoint_{}", "{}", "checkpoint_{}/pytorch_model"])
@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ({0: 100, 1: 200, 2: 300}, []),
        ({8: 100, 16: 200}, []),
        ({800: 100, 1600: 200}, []),  # batches of which several make one step
        ({100: 100, 200: 200}, []),
        ({100: 100, 200: 500}, [200]),  # one among those that agree
        ({100: 100, 200: 200, 300: 200}, [300]),
        ({100: 300, 200: 300}, [100, 200]),  # does not grow
        ({100: 50, 200: 300}, [100, 200]),  # on both sides
    ],
)
def test_contents_say_what_other_names_count(
    tmp_path: Path, form: str, steps: dict[int, int], wanted: list[int]
) -> None:
    deepspeed(tmp_path, form, steps)
    assert refused(tmp_path) == [form.format(number).partition("/")[0] for number in wanted]


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("checkpoint_{}/pytorch_model", []),  # the last that automatic names of Accelerate left
        ("checkpoint_{}", ["checkpoint_2"]),
        ("global_step{}", ["global_step2"]),
    ],
)
def test_one_alone(tmp_path: Path, form: str, wanted: list[str]) -> None:
    deepspeed(tmp_path, form, {2: 300})
    assert refused(tmp_path) == wanted


@pytest.mark.parametrize("form", ["global_step{}", "step_{}", "iter_{}"])
def test_a_word_of_steps_says_one(tmp_path: Path, form: str) -> None:
    deepspeed(tmp_path, form, {1: 100, 2: 200})
    assert refused(tmp_path) == [form.format(1), form.format(2)]
