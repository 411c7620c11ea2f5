"""What a loader runs besides pickles refuses a checkpoint; what it runs where it is asked to is named."""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.checkpoints.test_keras_files import LAMBDA, PLAIN, archive
from tests.checkpoints.test_loaded_otherwise import of_torch, whole_model
from tests.trees import build
from trainspec_validate.checkpoints.newest import Judgement, judged_newest_first
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.seal import Facts, seal, write

torch = pytest.importorskip("torch")
OWN = "lightning.pytorch.cli.instantiate_module"
LIGHTNING = {"pytorch-lightning_version": "2.5.0", "global_step": 20, "state_dict": {"w": torch.zeros(2)}}


def judged(root: Path, files: dict[str, bytes | str | Any]) -> Judgement:
    """The judgement of a sound checkpoint with more files."""
    build(root, "step-10/model.safetensors  safetensors a=F32[1]\nstep-20/model.safetensors  safetensors a=F32[1]\n")
    for name, content in files.items():
        path = root / "step-20" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return next(judged_newest_first(root))


def keras(settings: Any) -> bytes:
    with TemporaryDirectory() as directory:
        archive(Path(directory, "model"), settings)
        return Path(directory, "model").read_bytes()


PIPELINE = {"_class_name": ["my_pipeline", "Mine"], "unet": ["my_unet", "Net"]}
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "custom.st.Transformer"}]


@pytest.mark.parametrize(
    "files",
    [
        {"model_index.json": PIPELINE, "my_pipeline.py": b""},
        {"model_index.json": PIPELINE, "unet/my_unet.py": b""},
        {"model_index.json": {"_class_name": "FluxPipeline"}, "None.py": b""},
        {"modules.json": MODULES, "custom/st.py": b""},
        {"config.json": LAMBDA, "metadata.json": {}, "model.weights.h5": b""},
        {"model.dat": keras(LAMBDA)},
        {"model.dat": whole_model(LAMBDA)},
        {"x.weights.h5": whole_model(LAMBDA)},
        {"last.ckpt": of_torch({**LIGHTNING, "hyper_parameters": {"_instantiator": "my.run"}})},
        {"last.ckpt": of_torch({**LIGHTNING, "datamodule_hyper_parameters": {"_instantiator": "my.run"}})},
    ],
    ids="-".join,
)
def test_code_that_a_loader_runs_by_default_refuses(tmp_path: Path, files: dict[str, Any]) -> None:
    found = judged(tmp_path, files)
    assert [words for words in found.faults if "loading it would run" in words], found


@pytest.mark.parametrize(
    "files",
    [
        {"model_index.json": {"_class_name": "FluxPipeline", "unet": ["diffusers", "UNet"]}},
        {"modules.json": [{"type": "sentence_transformers.models.Transformer"}]},
        {"config.json": PLAIN, "metadata.json": {}},
        {"model.dat": keras(PLAIN)},
        {
            "last.ckpt": of_torch(
                {**LIGHTNING, "hyper_parameters": {"_instantiator": "lightning.pytorch.cli.instantiate_module"}}
            )
        },
    ],
    ids="-".join,
)
def test_what_runs_nothing_is_taken(tmp_path: Path, files: dict[str, Any]) -> None:
    assert judged(tmp_path, files).faults == ()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": {"auto_map": {"AutoModel": "m.M"}}, "m.py": b""}, "Transformers runs with trust_remote_code"),
        ({"config.json": {"auto_map": {"AutoModel": "a/b--m.M"}}}, "Transformers runs with trust_remote_code"),
        ({"custom_generate/generate.py": b""}, "generate() of Transformers runs with trust_remote_code"),
        ({"hparams.yaml": b"a: !!python/object/apply:os.system [x]\n"}, "yaml.unsafe_load runs"),
        (
            {"c.yaml": b"a:\n  _target_: torch.optim.AdamW\nb:\n  _target_: os.system\n"},
            "hydra.utils.instantiate runs (_target_): os.system and 1 more",
        ),
    ],
    ids=["auto_map", "remote", "generate", "yaml", "hydra"],
)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_code_that_runs_on_request_is_named(
    tmp_path: Path, files: dict[str, Any], words: str, *, is_sealed: bool
) -> None:
    found = judged(tmp_path, files)
    if is_sealed:
        checkpoint = read_checkpoint(tmp_path / "step-20")
        write(checkpoint.root, seal(checkpoint, Facts(("t", "1"))))
        found = next(judged_newest_first(tmp_path))
    assert found.faults == ()
    assert [note for note in found.notes if words in note], found.notes


def test_a_function_of_lightning_is_found_in_old_files(tmp_path: Path) -> None:
    file = io.BytesIO()
    state = {**LIGHTNING, "hyper_parameters": {"_instantiator": "my.run"}}
    torch.save(state, file, _use_new_zipfile_serialization=False)
    assert [words for words in judged(tmp_path, {"last.ckpt": file.getvalue()}).faults if "my.run" in words]
