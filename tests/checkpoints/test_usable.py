"""Checkpoints whose state is older than their name, or that have no model."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.hdf5_made import container
from tests.torch_saves import save as state
from tests.trees import build
from trainspec_validate.checkpoints.newest import judged_newest_first


def reason(directory: Path) -> str:
    """Why the first checkpoint of a directory that is looked at is refused; empty where it is not."""
    return "".join(next(judged_newest_first(directory)).faults[:1])


def newest(directory: Path) -> str | None:
    """Path of the newest whole checkpoint, relative to the directory."""
    whole = (one for one in judged_newest_first(directory) if not one.faults)
    return next((Path(one.path).relative_to(directory).as_posix() for one in whole), None)


HINTED: list[dict[str, object]] = [
    {"step": 10, "epoch": 1},
    {"iteration": 10},
    {"iter_num": 10},
    {"current_step": 10},
    {"train_state": {"step": 10}},
    {"model": {}, "current_step": 10},
    {"model": {}, "trainer": {"global_step": 10}},
]


@pytest.mark.parametrize("value", HINTED)
@pytest.mark.parametrize("name", ["step_{}.pt", "ckpt_{}.pt"])
def test_a_step_that_may_count_something_else_is_one_where_an_older_name_agrees(
    value: dict[str, object], name: str, tmp_path: Path
) -> None:
    state(tmp_path / name.format(10), {"step": 10})
    state(tmp_path / name.format(30), value)
    assert reason(tmp_path).endswith("is 10, older than 30 of the name")
    assert newest(tmp_path) == name.format(10)


@pytest.mark.parametrize("value", HINTED)
def test_a_step_that_may_count_something_else_is_none_where_no_older_name_agrees(
    value: dict[str, object], tmp_path: Path
) -> None:
    state(tmp_path / "step_10.pt", {"step": 4})
    state(tmp_path / "step_30.pt", value)
    assert reason(tmp_path) == ""


@pytest.mark.parametrize(
    "value",
    [
        {"epoch": 1},
        {"train_state": {"epoch": 1}},
        {"optimizer": {"step": 10}},
        {"step": 30, "iteration": 10},
        {"train_state": {"step": 30}, "iteration": 10},
    ],
)
def test_counts_next_to_the_step_of_the_name_are_not_the_step(value: dict[str, object], tmp_path: Path) -> None:
    state(tmp_path / "step_10.pt", {"step": 10})
    state(tmp_path / "step_30.pt", value)
    assert reason(tmp_path) == ""


def with_metadata(path: Path, step: str) -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    path.parent.mkdir(parents=True)
    header = json.dumps({"__metadata__": {"format": "pt", "step": step}, "w": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(4)))


@pytest.mark.parametrize("step", ["30", "29", "31", "\uff13\uff10", "late", ""])
def test_the_metadata_of_safetensors_that_agrees_is_not_refused(step: str, tmp_path: Path) -> None:
    with_metadata(tmp_path / "step-30/model.safetensors", step)
    assert reason(tmp_path) == ""


def test_the_metadata_of_safetensors_has_the_step(tmp_path: Path) -> None:
    with_metadata(tmp_path / "step-30/model.safetensors", "10")
    assert reason(tmp_path).endswith("(step) is 10, older than 30 of the name")


def test_digits_of_other_scripts_are_no_step(tmp_path: Path) -> None:
    build(tmp_path, "step-10/model.safetensors  safetensors w=F32[8]\n")
    build(tmp_path, "step-\uff13\uff10/model.safetensors  safetensors w=F32[8]\n")
    assert newest(tmp_path) == "step-10"


def test_a_model_without_a_tensor_is_refused(tmp_path: Path) -> None:
    build(tmp_path, "step-10/model.safetensors  safetensors w=F32[8]\nstep-30/model.safetensors  safetensors\n")
    assert newest(tmp_path) == "step-10"


def test_a_part_of_a_state_without_a_tensor_is_not_refused(tmp_path: Path) -> None:
    build(tmp_path, "step-30/optimizer.safetensors  safetensors\nstep-30/model.pt  torch model=F32[8] step:30\n")
    assert reason(tmp_path) == ""


@pytest.mark.parametrize("content", ["", '{"a"', "{]"])
def test_settings_of_a_part_that_are_no_json_are_refused(content: str, tmp_path: Path) -> None:
    for step in (10, 30):
        part = f"checkpoint-{step}/unet"
        build(tmp_path, f"{part}/model.safetensors  safetensors w=F32[{step}]\n{part}/config.json  json {{}}\n")
    assert newest(tmp_path) == "checkpoint-30"
    (tmp_path / "checkpoint-30/unet/config.json").write_text(content)
    assert newest(tmp_path) == "checkpoint-10"


@pytest.mark.parametrize("name", ["model", "weights", "checkpoint"])
def test_a_state_without_an_end_of_its_name_is_one_of_its_step(name: str, tmp_path: Path) -> None:
    for step in (10, 30):
        build(tmp_path, f"step-{step}/model.pt  torch model=F32[8] step:{step}\n")
        (tmp_path / f"step-{step}/model.pt").rename(tmp_path / f"step-{step}/{name}")
    assert newest(tmp_path) == "step-30"


def test_a_model_of_keras_in_hdf5_is_one_of_its_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2):
        (tmp_path / f"epoch_{epoch}").mkdir()
        (tmp_path / f"epoch_{epoch}/model.h5").write_bytes(container(400, fill=bytes([epoch])))
    assert newest(tmp_path) == "epoch_2"
    (tmp_path / "epoch_2/model.h5").write_bytes(container(400)[:350])
    assert newest(tmp_path) == "epoch_1"


LOOPS = {
    "log": "model.pt  torch w=F32[4]\noptimizer.pt  torch m=F32[4]\n",
    "schedule": "model_0.pth  torch w=F32[4]\noptimizer.pt  torch m=F32[4]\nscheduler.pt  torch\n",
    "safetensors": "model.safetensors  safetensors w=F32[4]\noptimizer.pt  torch m=F32[4]\n",
}


def loop(directory: Path, files: str, *, with_log: bool = True) -> None:
    """Three saves of the loop of a program, with names of which some are those of the Trainer of Hugging Face."""
    for step in (10, 20, 30):
        log = f'trainer_state.json  json {{"global_step": {step}}}\n' if with_log else ""
        build(directory.with_name(f"{directory.name}{step}"), files + log)


@pytest.mark.parametrize("files", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("form", ["step-", "checkpoint-"])
@pytest.mark.parametrize("with_log", [True, False])
def test_a_loop_of_its_own_writes_less_than_the_trainer(
    files: str, form: str, tmp_path: Path, *, with_log: bool
) -> None:
    loop(tmp_path / form, files, with_log=with_log)
    assert newest(tmp_path) == f"{form}30"
    next((tmp_path / f"{form}30").glob("model*")).unlink()
    assert newest(tmp_path) == f"{form}20"


@pytest.mark.parametrize("content", ['json {"global_step": 20}', "cut 3"])
def test_the_log_of_a_loop_is_of_its_step(content: str, tmp_path: Path) -> None:
    loop(tmp_path / "step-", LOOPS["log"])
    build(tmp_path, f"step-30/trainer_state.json  {content}\n")
    assert newest(tmp_path) == "step-20"


@pytest.mark.parametrize("name", ["training_args.bin", "rng_state.pth"])
def test_what_the_trainer_alone_writes_shows_that_it_was_interrupted(name: str, tmp_path: Path) -> None:
    loop(tmp_path / "checkpoint-", LOOPS["safetensors"], with_log=False)
    build(tmp_path, f"checkpoint-30/{name}  torch s=F32[4]\n")
    assert "trainer_state.json, which the Trainer writes after the state, is missing" in reason(tmp_path)
