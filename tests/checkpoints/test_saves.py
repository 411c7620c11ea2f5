"""States of several steps in one directory are told from parts of one state, and the newest of them is chosen."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.trees import NOW_SECONDS, mapping, number, pickled, short_text, tensor
from trainspec_validate.checkpoints.newest import SeveralSeriesError, judged_newest_first
from trainspec_validate.checkpoints.progress import progress_of
from trainspec_validate.pipeline.validation import validate

MODEL = {"w": "tensor"}


def save(path: Path, state: dict[str, Any], seconds: int = 0) -> None:
    """A container of `torch.save`: mappings, lists, numbers, the word `tensor`, and tensors of one float."""
    path.parent.mkdir(parents=True, exist_ok=True)
    storages: list[bytes] = []
    value = pickled(encoded(state, storages))
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("archive/data.pkl", value)
        for key, content in enumerate(storages):
            container.writestr(f"archive/data/{key}", content)
        container.writestr("archive/version", "3\n")
    os.utime(path, (NOW_SECONDS + seconds, NOW_SECONDS + seconds))


def encoded(value: Any, storages: list[bytes]) -> bytes:
    if isinstance(value, dict):
        return mapping({short_text(str(key)): encoded(one, storages) for key, one in value.items()})
    if isinstance(value, list):
        return b"](" + b"".join(encoded(one, storages) for one in value) + b"e"
    if value == "tensor" or isinstance(value, float):
        shape = (4,) if value == "tensor" else ()
        storages.append(bytes(range(16)) if value == "tensor" else struct.pack("<f", value))
        return tensor("F32", shape, str(len(storages) - 1), 4 if shape else 1)
    return b"N" if value is None else number(value)


def optimizer(step: float) -> dict[str, Any]:
    return {"state": {"0": {"step": step, "exp_avg": "tensor"}}, "param_groups": []}


def full(step: float, /, **counts: Any) -> dict[str, Any]:
    return {"model": MODEL, "optimizer": optimizer(step), **counts}


def newest(directory: Path) -> str | None:
    """Path of the newest whole checkpoint, relative to the directory."""
    whole = (one for one in judged_newest_first(directory) if not one.faults)
    return next((Path(one.path).relative_to(directory).as_posix() for one in whole), None)


def timm(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "state_dict": MODEL, "optimizer": optimizer(float(100 * epoch)), "version": 2}


def fairseq(epoch: int, step: int) -> dict[str, Any]:
    extra = {"train_iterator": {"epoch": epoch, "iterations_in_epoch": 0}}
    last = {"optimizer_history": [{"num_updates": step}], "last_optimizer_state": optimizer(step)}
    return {"model": MODEL, "extra_state": extra, **last}


LAYOUTS: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "timm": (
        {
            **{f"checkpoint-{epoch}.pth.tar": timm(epoch) for epoch in (2, 3, 10)},
            "model_best.pth.tar": timm(3),
            "last.pth.tar": timm(11),
        },
        "last.pth.tar",
    ),
    "ultralytics": (
        {"best.pt": {"ema": None, "epoch": 3, "optimizer": optimizer(300.0)}, "last.pt": timm(9), "epoch5.pt": timm(5)},
        "last.pt",
    ),
    "fairseq": (
        {
            **{f"checkpoint{epoch}.pt": fairseq(epoch, 100 * epoch) for epoch in (1, 2)},
            "checkpoint_best.pt": fairseq(1, 100),
            "checkpoint_last.pt": fairseq(3, 250),
        },
        "checkpoint_last.pt",
    ),
    "fairseq-updates": (
        {f"checkpoint_{epoch}_{step}.pt": fairseq(epoch, step) for epoch, step in ((1, 10), (1, 20), (2, 30))},
        "checkpoint_2_30.pt",
    ),
    "detectron2": (
        {
            **{f"model_{step:07}.pth": full(step, iteration=step) for step in (4_999, 9_999)},
            "model_final.pth": full(12_000, iteration=12_000),
        },
        "model_final.pth",
    ),
    "mmengine": (
        {
            **{f"epoch_{epoch}.pth": {**timm(epoch), "meta": {"epoch": epoch, "iter": epoch}} for epoch in (1, 2, 10)},
            "best_coco_bbox_mAP_epoch_2.pth": {**timm(2), "meta": {"epoch": 2, "iter": 2}},
        },
        "epoch_10.pth",
    ),
    "epochs": ({f"checkpoint_epoch_{epoch}.pth": full(9, it=epoch) for epoch in (3, 4, 10)}, "checkpoint_epoch_10.pth"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_newest_state_of_a_directory_is_chosen(tmp_path: Path, layout: str) -> None:
    states, wanted = LAYOUTS[layout]
    for place, (name, state) in enumerate(states.items()):
        save(tmp_path / name, state, seconds=-place)  # a copy keeps no times
    assert newest(tmp_path) == wanted
    assert {one.requirement for one in validate([tmp_path]).findings} <= {"TS-CKP-070"}


KEYS = [
    *("global_step", "global_steps", "num_updates", "completed_steps", "total_steps", "iter_num"),
    *("steps", "step", "iteration", "iter", "current_step", "updates", "train_step", "epoch"),
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("part", ["", "meta", "trainer_state"])
def test_the_count_in_the_state_decides(tmp_path: Path, key: str, part: str) -> None:
    for name, count, seconds in (("model_a.pt", 30, 0), ("model_b.pt", 20, 9)):
        counts = {part: {key: count}} if part else {key: count}
        save(tmp_path / name, {"model": MODEL, **counts}, seconds)
    assert newest(tmp_path) == "model_a.pt"


@pytest.mark.parametrize("form", [int, float])
def test_the_step_of_the_optimizer_decides_where_nothing_else_does(tmp_path: Path, form: Any) -> None:
    save(tmp_path / "model_a.pt", full(form(30)), seconds=0)
    save(tmp_path / "model_b.pt", full(form(20)), seconds=9)
    assert newest(tmp_path) == "model_a.pt"


def test_the_time_decides_at_last(tmp_path: Path) -> None:
    save(tmp_path / "best.pt", full(5), seconds=9)
    save(tmp_path / "last.pt", full(5), seconds=0)
    assert newest(tmp_path) == "best.pt"
    os.utime(tmp_path / "best.pt", (NOW_SECONDS, NOW_SECONDS))
    assert newest(tmp_path) == "last.pt"


@pytest.mark.parametrize("key", ["global_step", "num_updates", "epoch"])
def test_none_is_chosen_where_name_and_content_contradict(tmp_path: Path, key: str) -> None:
    for count, step in ((1, 30), (2, 20), (3, 10)):
        save(tmp_path / f"save_{count}.pth", full(5, **{key: step}))
    with pytest.raises(SeveralSeriesError, match=rf"save_2.pth may be newer than save_3.pth: {key} is 10 and 20, and"):
        newest(tmp_path)
    (tmp_path / "save_1.pth").unlink()
    os.truncate(tmp_path / "save_2.pth", 90)
    assert newest(tmp_path) == "save_3.pth", "one that is damaged is not newer"


@pytest.mark.parametrize("key", ["step", "iter", "iteration"])
def test_a_count_that_begins_anew_in_each_epoch_contradicts_nothing(tmp_path: Path, key: str) -> None:
    for epoch, step in ((1, 30), (2, 20), (3, 10)):
        save(tmp_path / f"epoch_{epoch}.pth", full(5, epoch=epoch, **{key: step}))
    assert newest(tmp_path) == "epoch_3.pth"


@pytest.mark.parametrize("form", ["step_{}.pt", "model_{}.pt", "step_{}/state.pt", "checkpoint-{}/state.pt"])
@pytest.mark.parametrize("key", ["step", "iteration", ""])
def test_none_is_chosen_where_an_older_name_holds_a_higher_step(tmp_path: Path, form: str, key: str) -> None:
    for name, step in ((100, 500), (200, 200)):
        (tmp_path / form.format(name)).parent.mkdir(exist_ok=True)
        save(tmp_path / form.format(name), {**full(step), **({key: step} if key else {})})
    older, newer = (form.format(name).partition("/")[0] for name in (100, 200))
    with pytest.raises(SeveralSeriesError, match=rf"{older} may be newer than {newer}: .* 200 and 500, and"):
        newest(tmp_path)


@pytest.mark.parametrize("form", ["step_{}.pt", "step_{}/state.pt"])
def test_a_step_within_an_epoch_contradicts_no_name(tmp_path: Path, form: str) -> None:
    for name, step in ((900, 450), (1000, 90), (1100, 30)):
        (tmp_path / form.format(name)).parent.mkdir(exist_ok=True)
        save(tmp_path / form.format(name), {**full(name), "iteration": step})
    assert newest(tmp_path) == form.format(1100).partition("/")[0]


def test_a_model_without_the_optimizer_that_others_have_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "best.pt", {"model": MODEL, "epoch": 9, "optimizer": None}, seconds=9)
    save(tmp_path / "last.pt", full(5, epoch=5))
    judged = list(judged_newest_first(tmp_path))
    assert "best.pt: it holds no state of an optimizer, and last.pt next to it does" in judged[0].faults[0]
    assert newest(tmp_path) == "last.pt"


def test_a_damaged_state_does_not_hide_the_other(tmp_path: Path) -> None:
    save(tmp_path / "best.pt", full(5, epoch=5))
    save(tmp_path / "last.pt", full(9, epoch=9))
    os.truncate(tmp_path / "last.pt", 90)
    assert [bool(one.faults) for one in judged_newest_first(tmp_path)] == [True, False]
    assert newest(tmp_path) == "best.pt"


PARTS: list[dict[str, dict[str, Any]]] = [
    {"model.pt": {"model": MODEL, "step": 5}, "ema.pt": {"model": MODEL, "step": 5}, "optim.pt": {"optimizer": {}}},
    {"actor.pt": {**full(3, updates=3), "model": {"a": "tensor"}}, "critic.pt": full(9, updates=9)},
    {"rank_0.pt": full(3, step=3), "rank_1.pt": full(4, step=4)},
    {"best_model.pt": MODEL, "best_optimizer.pt": optimizer(3), "last_model.pt": MODEL},
    {"model_1.pt": full(3, step=3), "model_2.pt": full(3, step=3)},
]


@pytest.mark.parametrize("files", PARTS, ids=" ".join)
def test_parts_of_one_state_are_one_checkpoint(tmp_path: Path, files: dict[str, dict[str, Any]]) -> None:
    for name, state in files.items():
        save(tmp_path / name, state)
    assert newest(tmp_path) == "."


@pytest.mark.parametrize("name", ["trainspec-manifest.json", "model.safetensors.index.json", "latest"])
def test_a_file_that_says_what_belongs_together_makes_one_checkpoint(tmp_path: Path, name: str) -> None:
    save(tmp_path / "best.pt", full(5, epoch=5))
    save(tmp_path / "last.pt", full(9, epoch=9))
    (tmp_path / name).write_text("{}")
    assert {one.path for one in judged_newest_first(tmp_path)} == {tmp_path.as_posix()}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("G_{}.pth", "D_{}.pth"),
        ("netG_epoch_{}.pth", "netD_epoch_{}.pth"),
        ("encoder_{}.pt", "decoder_{}.pt"),
        ("one_step_{}.pt", "two_step_{}.pt"),
    ],
)
@pytest.mark.parametrize("damaged", ["first", "second"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_two_networks_of_a_step_are_one_save(
    tmp_path: Path, first: str, second: str, damaged: str, *, is_missing: bool
) -> None:
    for step in (10, 20, 30):
        save(tmp_path / first.format(step), {"model": {"g": "tensor"}, "iteration": step})
        save(tmp_path / second.format(step), {"model": {"d": "tensor"}, "iteration": step})
    names = {form.format(30) for form in (first, second)}
    assert newest(tmp_path) in names
    path = tmp_path / {"first": first, "second": second}[damaged].format(30)
    if is_missing:
        path.unlink()
    else:
        os.truncate(path, 90)
    assert newest(tmp_path) in {form.format(20) for form in (first, second)}


def test_files_of_two_runs_are_no_parts_of_one_save(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        for name in ("low_step_{}.pt", "high_step_{}.pt"):
            save(tmp_path / name.format(step), full(step, step=step))
    os.truncate(tmp_path / "low_step_30.pt", 90)
    assert newest(tmp_path) == "high_step_30.pt"


def test_files_of_layers_are_no_saves(tmp_path: Path) -> None:
    for layer in (10, 11, 12):
        save(tmp_path / f"layer_{layer}_actor.pt", {"g": "tensor"})
        save(tmp_path / f"layer_{layer}_critic.pt", {"d": "tensor"})
    assert newest(tmp_path) == "."


def test_what_is_no_whole_number_is_no_count(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    save(path, {"model": MODEL, "step": 2.5, "epoch": None, "iter": "tensor", "optimizer": optimizer(1.5)})
    found = progress_of(path)
    assert found is not None
    assert (found.counts, found.optimizer_step, found.tensors) == ({}, None, {"model.w", "iter", "step"})
    path.write_bytes(b"PK\x03\x04 no container")
    assert progress_of(path) is None


def test_old_files_of_one_pickle_or_several_are_read(tmp_path: Path) -> None:
    state = pickled(mapping({short_text("epoch"): number(7), short_text("model"): mapping({})}))
    magic = pickled(b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little"))
    for name, content in (("one.pt", state), ("old.pt", magic + pickled(number(1001)) + pickled(mapping({})) + state)):
        (tmp_path / name).write_bytes(content)
        found = progress_of(tmp_path / name)
        assert found is not None
        assert found.counts == {"epoch": 7}


@pytest.mark.parametrize("form", ["model_{}.pth", "{}.pt", "weights_ep{}.pth"])
def test_models_of_gapped_numbers_are_saves(tmp_path: Path, form: str) -> None:
    for epoch in (2, 9, 10):
        save(tmp_path / form.format(epoch), MODEL)
    assert newest(tmp_path) == form.format(10)
    os.truncate(tmp_path / form.format(10), 90)
    assert newest(tmp_path) == form.format(9)


def test_models_with_words_in_place_of_steps_are_saves(tmp_path: Path) -> None:
    save(tmp_path / "best.pt", MODEL, seconds=0)
    save(tmp_path / "last.pt", MODEL, seconds=9)
    assert newest(tmp_path) == "last.pt"
    os.truncate(tmp_path / "last.pt", 90)
    assert newest(tmp_path) == "best.pt"


@pytest.mark.parametrize("numbers", [(0, 1, 2), (1, 2, 3), (0, 1, 3), (0, 2)])
@pytest.mark.parametrize("form", ["model_{}.pt", "{}.pt", "weights_ep{}.pth"])
def test_shards_of_a_model_are_no_saves(tmp_path: Path, form: str, numbers: tuple[int, ...]) -> None:
    for rank in numbers:
        save(tmp_path / form.format(rank), MODEL)
    assert newest(tmp_path) == "."


@pytest.mark.parametrize("form", ["model_{}.pth", "{}.pt"])
def test_models_that_were_written_one_after_the_other_are_saves(tmp_path: Path, form: str) -> None:
    for epoch in (1, 2, 3):
        save(tmp_path / form.format(epoch), MODEL, seconds=epoch)
    assert newest(tmp_path) == form.format(3)
    os.truncate(tmp_path / form.format(3), 90)
    assert newest(tmp_path) == form.format(2)


@pytest.mark.parametrize("first", [1, 10])
@pytest.mark.parametrize("at_once", [(13, 14), (4, 5)])
def test_damaged_models_that_were_written_at_once_hide_none(
    tmp_path: Path, first: int, at_once: tuple[int, int]
) -> None:
    """A clock that ticks coarsely gives neighbours one time; what is nearly empty names no tensors."""
    for place in range(15):
        path = tmp_path / f"model_{first + place}.pt"
        save(path, MODEL, seconds=at_once[0] if place in at_once else place)
        if place > 3:
            path.write_bytes(path.read_bytes()[: 30 * (place % 2)])
            os.utime(path, (NOW_SECONDS + 9, NOW_SECONDS + (at_once[0] if place in at_once else place)))
    assert newest(tmp_path) == f"model_{first + 3}.pt"


def test_models_that_were_copied_at_once_count_from_more_than_one(tmp_path: Path) -> None:
    for epoch in range(2, 9):
        save(tmp_path / f"model_{epoch}.pt", MODEL)
    os.truncate(tmp_path / "model_8.pt", 30)
    assert newest(tmp_path) == "model_7.pt"


@pytest.mark.parametrize(
    ("form", "numbers", "seconds"),
    [
        ("model_{}.pt", (0, 1, 2), (1, 2, 3)),
        ("model_{}.pt", (1, 2, 3), (1, 3, 2)),
        ("layer_{}.pt", (1, 2, 3), (1, 2, 3)),
        ("model_{}_of_3.pt", (1, 2, 3), (1, 2, 3)),
        ("model_rank{}.pt", (1, 2, 3), (1, 2, 3)),
    ],
)
def test_shards_that_were_written_one_after_the_other_are_no_saves(
    tmp_path: Path, form: str, numbers: tuple[int, ...], seconds: tuple[int, ...]
) -> None:
    for rank, second in zip(numbers, seconds, strict=True):
        save(tmp_path / form.format(rank), MODEL, seconds=second)
    assert newest(tmp_path) == "."
