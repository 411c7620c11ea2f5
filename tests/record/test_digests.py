"""Hashing in a process of low priority: its digests, its priority, its end, and what takes its place."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trainspec_record import checkpoints
from trainspec_record.checkpoints import MANIFEST, newest_good, seal_in_background
from trainspec_record.digests import BLOCK_BYTES, Hasher

SECONDS = 60
LARGE_BYTES = 1 << 32
"""Of a file without content on the disk, which takes seconds to hash."""


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(LARGE_BYTES)
    return path


@pytest.mark.parametrize("name", ["weights.pt", "two\nlines", "täglich", " "])
def test_the_process_gives_the_digest_of_each_file(tmp_path: Path, name: str) -> None:
    contents = [b"", b"x" * (2 * BLOCK_BYTES + 1), b"y"]
    paths = [tmp_path / f"{name}{number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    found, seconds = Hasher().digests(paths)
    assert found == [hashlib.sha256(content).hexdigest() for content in contents]
    assert seconds > 0


def test_the_process_stops_at_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    found, _ = Hasher().digests([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    assert found == [hashlib.sha256(b"x").hexdigest()]
    assert Hasher().digests([tmp_path / "c"])[0] == []


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the policy is one of Linux")
def test_the_process_works_where_no_other_wants_the_core_and_can_be_ended(tmp_path: Path) -> None:
    hasher, ended = Hasher(), []
    thread = threading.Thread(target=lambda: ended.append(hasher.digests([sparse(tmp_path / "large")])[0]))
    thread.start()

    def is_idle() -> bool:
        child = hasher._child
        return child is not None and os.sched_getscheduler(child.pid) == os.SCHED_IDLE

    assert eventually(is_idle)
    assert os.sched_getscheduler(0) != os.SCHED_IDLE
    hasher.stop()
    thread.join(SECONDS)
    assert ended == [[]]


@pytest.mark.parametrize("executable", ["", "/absent/python", "/bin/false"])
def test_without_a_process_this_one_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(checkpoints, "_SMALL_BYTES", 0)
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "state.pt").write_bytes(b"x" * 100)
    seal = seal_in_background(tmp_path / "step-1")
    assert seal.wait(SECONDS), seal.problem
    assert newest_good(tmp_path) == tmp_path / "step-1"


STUCK = """
import sys, time
from pathlib import Path
from trainspec_record import digests
digests.Hasher.digests = lambda self, paths, **_: time.sleep(3600)
from trainspec_record import checkpoints
from trainspec_record.checkpoints import seal_in_background
checkpoints._SMALL_BYTES = 0
seal_in_background(Path(sys.argv[1]))
seal_in_background(Path(sys.argv[2]))
"""


def test_what_a_program_leaves_is_sealed_at_its_end(tmp_path: Path) -> None:
    folders = [tmp_path / f"step-{number}" for number in range(2)]
    for folder in folders:
        folder.mkdir()
        (folder / "state.pt").write_bytes(b"x")
    subprocess.run([sys.executable, "-c", STUCK, *map(str, folders)], check=True, timeout=SECONDS)
    assert all((folder / MANIFEST).is_file() for folder in folders)


KILLED = """
import os, sys, threading, time
from pathlib import Path
from trainspec_record.digests import Hasher
hasher = Hasher()
threading.Thread(target=hasher.digests, args=([Path(sys.argv[1])],)).start()
while hasher._child is None:
    time.sleep(0.01)
time.sleep(1)
print(hasher._child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(sparse(tmp_path / "large"))]
    told = subprocess.run(command, check=False, timeout=SECONDS, stdout=subprocess.PIPE).stdout
    place = Path("/proc", told.decode().strip(), "cmdline")
    assert eventually(lambda: not place.exists() or b"digests" not in place.read_bytes())


def test_a_small_checkpoint_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Sequence[Path]] = []
    monkeypatch.setattr(Hasher, "digests", lambda _, paths, **_more: (started.append(paths) or [], 0.0))
    for step, size in enumerate((checkpoints._SMALL_BYTES, checkpoints._SMALL_BYTES + 1)):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        (folder / "state.pt").write_bytes(bytes(size))
        seal = seal_in_background(folder)
        assert eventually(lambda seal=seal: seal.manifest is not None)  # type: ignore[misc]
    assert started == [[tmp_path / "step-1" / "state.pt"]]


@pytest.fixture
def may_start(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """A process that never answers, so that only the thread can hash: events of its request and of its start."""
    asked, starts = threading.Event(), threading.Event()

    def stuck() -> subprocess.Popen[bytes]:
        asked.set()
        starts.wait(SECONDS)
        command = [sys.executable, "-c", "import time; time.sleep(3600)"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(Hasher, "_started", staticmethod(stuck))
    monkeypatch.setattr(checkpoints, "_SMALL_BYTES", 0)
    monkeypatch.setattr(checkpoints._SEALER._hasher, "_child", None)
    return asked, starts


def saved(folder: Path) -> Path:
    folder.mkdir()
    (folder / "state.pt").write_bytes(b"x")
    return folder


@pytest.mark.parametrize("is_started", [True, False], ids=["during", "before"])
@pytest.mark.parametrize("has_next", [True, False], ids=["next save", "wait"])
def test_training_and_the_next_save_wait_for_no_process_of_low_priority(
    tmp_path: Path, may_start: tuple[threading.Event, threading.Event], is_started: bool, has_next: bool
) -> None:
    asked, starts = may_start
    seals = [seal_in_background(saved(tmp_path / "step-1"))]
    assert asked.wait(SECONDS)
    if is_started:
        starts.set()
        assert eventually(lambda: checkpoints._SEALER._hasher._child is not None)
    else:
        threading.Timer(0.2, starts.set).start()
    if has_next:
        seals.append(seal_in_background(saved(tmp_path / "step-2")))
        assert eventually(lambda: seals[0].manifest is not None)
    assert seals[-1].wait(SECONDS)
