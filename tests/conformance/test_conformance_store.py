"""The store of a stack is read by the names that checkpoints really have."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from trainspec_conformance.damage import damage
from trainspec_conformance.observing import judge_checkpoint
from trainspec_conformance.store import CheckpointStore

from tests.bundles_made import bundle, pointer, training
from tests.trees import build
from trainspec_validate.documents.types.conformance import Store


@pytest.mark.parametrize(
    ("names", "steps", "following"),
    [
        (["step-00000010", "step-00000020"], [10, 20], "step-00000030"),
        (["step-5", "step-10"], [5, 10], "step-30"),
        (["step-0090", "step-0100"], [90, 100], "step-0030"),
        ([], [], "step-30"),
        (["step-", "step-x", "other-1", "step-1.tmp"], [], "step-30"),
    ],
)
def test_names_follow_those_that_are_there(tmp_path: Path, names: list[str], steps: list[int], following: str) -> None:
    store = CheckpointStore(tmp_path, Store(name="step-{step}"))
    for name in names:
        (store.directory / name).mkdir(parents=True)
    assert [one.step for one in store.checkpoints()] == steps
    assert store.name_of(30) == following


LINES = Store(
    directory="run",
    name="ckpt-{step}.data-00000-of-00001",
    pointer="checkpoint",
    pointer_line='model_checkpoint_path: "ckpt-{step}"',
)


@pytest.fixture
def lines(tmp_path: Path) -> CheckpointStore:
    """A store of two checkpoints of TensorFlow, and its pointer of several lines."""
    for step in (10, 20):
        bundle(tmp_path / "run", f"ckpt-{step}", training(step))
    pointer(tmp_path / "run", "ckpt-10", "ckpt-20")
    return CheckpointStore(tmp_path, LINES)


def test_a_pointer_of_several_lines_names_a_checkpoint(lines: CheckpointStore) -> None:
    assert lines.pointed() == "ckpt-20.data-00000-of-00001" == lines.checkpoints()[-1].name
    (lines.directory / "checkpoint").write_text("nothing of the sort\n", encoding="utf-8")
    assert lines.pointed() == "nothing of the sort"


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("pointer-dangling", "ckpt-9.data-00000-of-00001"),
        ("pointer-ahead", "ckpt-41.data-00000-of-00001"),
        ("pointer-incomplete", "ckpt-41.data-00000-of-00001"),
        ("pointer-empty", ""),
    ],
)
def test_one_line_of_a_pointer_is_damaged(lines: CheckpointStore, kind: str, named: str) -> None:
    before = (lines.directory / "checkpoint").read_text(encoding="utf-8").splitlines()
    damage(kind, "newest", lines, random.Random(1), 10)
    after = (lines.directory / "checkpoint").read_text(encoding="utf-8").splitlines()
    assert lines.pointed() == named
    assert after[1:] == (before[1:] if named else [])
    assert (lines.directory / "ckpt-41.data-00000-of-00001").is_file() == (kind == "pointer-incomplete")


def test_a_pointer_may_hold_a_step_alone(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Store(directory=".", name="iter_{step}", pointer="newest", pointer_line="{step}"))
    for step in (10, 20):
        (tmp_path / f"iter_{step:07}").mkdir()
    (tmp_path / "newest").write_text("20\n", encoding="utf-8")
    assert store.pointed() == "iter_0000020"
    (done,) = damage("pointer-ahead", "newest", store, random.Random(1), 10)
    assert (done.checkpoint, (tmp_path / "newest").read_text(encoding="utf-8")) == ("newest", "41\n")
    assert store.pointed() == "iter_0000041"


def test_a_line_that_is_not_there_is_put_first(lines: CheckpointStore) -> None:
    (lines.directory / "checkpoint").write_text("other: 1\n", encoding="utf-8")
    assert lines.pointing("ckpt-30.data-00000-of-00001") == b'model_checkpoint_path: "ckpt-30"\nother: 1\n'


def test_a_part_of_a_checkpoint_is_left_where_checkpoints_are_files(lines: CheckpointStore) -> None:
    (done,) = damage("partial-directory", "newest", lines, random.Random(1), 10)
    assert done.checkpoint == "ckpt-30.data-00000-of-00001"
    assert (lines.directory / done.checkpoint).is_file()


def test_a_part_is_of_the_step_at_the_next_interval(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Store(directory="."))
    for step in (1, 20):  # some stacks save after the first step too
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "state.bin").write_bytes(b"1234")
    (done,) = damage("partial-directory", "next", store, random.Random(1), 20)
    assert done.checkpoint == "step-40"
    assert (tmp_path / "step-40" / "state.bin").read_bytes() == b"12"


def test_files_beside_each_other_are_judged_as_one_checkpoint(lines: CheckpointStore) -> None:
    path = lines.checkpoints()[-1].path
    assert [told.split(":")[0] for told in judge_checkpoint(path)] == ["warning TS-CKP-070"]
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(bytes(content))
    assert [told.split(":")[0] for told in judge_checkpoint(path)] == ["warning TS-CKP-070", "error TS-CKP-084"]
    assert [told.split(":")[0] for told in judge_checkpoint(lines.checkpoints()[0].path)] == ["warning TS-CKP-070"]


def test_copies_that_workers_keep_below_are_not_the_checkpoint(lines: CheckpointStore) -> None:
    bundle(lines.directory / "workertemp_1", "ckpt-20", training(20))
    (lines.directory / "workertemp_1" / "ckpt-20.index").unlink()
    told = judge_checkpoint(lines.checkpoints()[-1].path)
    assert [one.split(":")[0] for one in told] == ["warning TS-CKP-070"]


def test_a_format_that_is_not_known_is_named(tmp_path: Path) -> None:
    build(tmp_path, "step-1/state.msgpack  text abc\nstate-2.msgpack  text abc\nempty  folder\n")
    words = "holds no file of a format that the validator knows; it holds"
    assert judge_checkpoint(tmp_path / "step-1") == (f"error unknown-format: step-1 {words} state.msgpack",)
    assert judge_checkpoint(tmp_path / "empty") == (f"error unknown-format: empty {words} no file",)
    told = "state-2.msgpack has no format that the validator knows; it begins with b'abc'"
    assert judge_checkpoint(tmp_path / "state-2.msgpack") == (f"error unknown-format: {told}",)


@pytest.mark.parametrize(("num_kept", "wanted"), [(1, ["30"]), (2, ["30"]), (3, ["20", "30"])])
def test_the_two_newest_are_damaged_where_a_third_one_is_left(num_kept: int, wanted: list[str], tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Store(directory=".", name="{step}"))
    for step in (10, 20, 30)[-num_kept:]:
        (tmp_path / str(step)).mkdir()
        (tmp_path / str(step) / "state").write_bytes(bytes([step]) * 100)
    done = damage("flip-bit", "newest-two", store, random.Random(1), 10)
    assert [one.checkpoint for one in done] == wanted


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_is_all_that_differs(seed: int, tmp_path: Path) -> None:
    """In each of the two newest checkpoints; times, modes, names, the manifest and the pointer stay as they were."""
    store = CheckpointStore(tmp_path, Store(directory="run", pointer="run/latest"))
    for step in (10, 20, 30):
        for rank in range(2):
            path = store.directory / f"step-{step}" / f"rank-{rank}" / "state.bin"
            path.parent.mkdir(parents=True)
            path.write_bytes(random.Random(step + rank).randbytes(1000 * (rank + 1)))
        (store.directory / f"step-{step}" / "trainspec-manifest.json").write_text("{}", encoding="utf-8")
    (store.directory / "latest").write_text("step-30", encoding="utf-8")
    (store.directory / "log.txt").write_text("of the stack", encoding="utf-8")
    before = all_of(tmp_path)
    done = damage("flip-bit", "newest-two", store, random.Random(seed), 10)
    after = all_of(tmp_path)
    assert before.keys() == after.keys()
    assert [one.checkpoint for one in done] == ["step-20", "step-30"]
    damaged = {f"run/{one.checkpoint}/{one.file}": one.place for one in done}
    assert {name for name in before if before[name] != after[name]} == damaged.keys()
    for name, place in damaged.items():
        (old, *old_facts), (new, *new_facts) = before[name], after[name]
        differing = [number for number, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
        assert differing == [place]
        assert (old[place] ^ new[place]).bit_count() == 1
        assert old_facts == new_facts
        assert Path(name).name == "state.bin"


def all_of(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, mode and time of modification of everything below a directory."""
    found = {}
    for path in directory.rglob("*"):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[path.relative_to(directory).as_posix()] = (content, status.st_mode, status.st_mtime_ns)
    return found
