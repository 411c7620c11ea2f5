"""Too little memory while a checkpoint is read fails the run: it is no damage, and no reason to resume older state."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trees import build
from trainspec_validate.checkpoints import blocks, pickle_code
from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.formats import safetensors
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system import threads
from trainspec_validate.system.boundary import OutOfMemoryError, refusal_of
from trainspec_validate.system.process import lacks_memory

LINE = "gives too little memory; raise the limit"
LIMITS_KIB = (130_000, 160_000, 200_000, 240_000, 320_000, 500_000)
NUM_SHARDS, SHARD_BYTES = 6, 6 << 20
LACKS: list[Exception] = [
    *(MemoryError(), RuntimeError("can't start new thread"), OSError(12, "Cannot allocate memory")),
    *(RuntimeError("can't allocate lock"), RuntimeError("can't allocate read lock")),
    *(zlib.error("Error -4 while decompressing data"), ImportError("a.so: failed to map segment from shared object")),
]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v holds on Linux")


@pytest.fixture
def _limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainspec_validate.system.process.has_limit_of_memory", lambda: True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sealed checkpoints of 36 MiB each."""
    directory = tmp_path_factory.mktemp("run")
    tensor = {"w": {"dtype": "F32", "shape": [SHARD_BYTES // 4], "data_offsets": [0, SHARD_BYTES]}}
    header = json.dumps(tensor).encode()
    for step in (10, 20):
        (directory / f"step-{step}").mkdir()
        for number in range(NUM_SHARDS):
            with (directory / f"step-{step}" / f"model-{number}.safetensors").open("wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
                file.truncate(8 + len(header) + SHARD_BYTES)
        assert _limited_run("unlimited", "toolbox", "checkpoint", "seal", directory / f"step-{step}").returncode == 0
    return directory


def _limited_run(limit: int | str, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = f"from trainspec_validate.cli.{program} import main; main()"
    shell = f'ulimit -v {limit}; exec "$0" -c "$@"'
    command = ["sh", "-c", shell, sys.executable, words, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@linux_only
@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS_KIB)
def test_newest_good_names_the_newest_or_nothing(run: Path, limit: int) -> None:
    done = _limited_run(limit, "toolbox", "checkpoint", "newest-good", run)
    if done.returncode == 0:
        assert done.stdout == f"{run / 'step-20'}\n"
    else:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert LINE in done.stderr


@linux_only
@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS_KIB[::2])
@pytest.mark.parametrize("arguments", [("toolbox", "checkpoint", "verify"), ("validate",)], ids=["verify", "validate"])
def test_a_sound_checkpoint_is_never_damaged(run: Path, arguments: tuple[str, ...], limit: int) -> None:
    done = _limited_run(limit, *arguments, run / "step-20")
    assert done.returncode in {0, 2}, done.stdout + done.stderr
    assert done.returncode == 0 or LINE in done.stderr
    assert "cannot be read" not in done.stdout + done.stderr


@linux_only
@pytest.mark.slow
@pytest.mark.parametrize("limit", [240_000, 1_200_000, 4_000_000])
def test_enough_memory_below_a_limit_names_the_newest(run: Path, limit: int) -> None:
    """The smallest has room for no thread, the next for those that read one file."""
    done = _limited_run(limit, "toolbox", "checkpoint", "newest-good", run)
    assert (done.returncode, done.stdout) == (0, f"{run / 'step-20'}\n")


def test_no_thread_is_started_without_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that finds no memory while it begins lets the one that starts it wait forever."""
    room = threads._RESERVE_BYTES + 2 * threads.THREAD_BYTES
    monkeypatch.setattr(threads, "_used_bytes", lambda: {"VmSize": 1 << 30})
    found = {}
    for limit in (room - 1, room, 100 * room):
        monkeypatch.setattr(threads, "_limits", lambda limit=limit: {"VmSize": (1 << 30) + limit})
        with threads.pool(4) as pool:
            found[limit] = threads.num_affordable(4)
            assert isinstance(pool.submit(int, "x").exception(), ValueError)
    assert [*found.values()] == [1, 2, 4]
    monkeypatch.setattr(threads, "_limits", lambda: {"VmSize": 1 << 30})
    with threads.pool(4) as pool:
        assert {*pool.map(lambda _: get_ident(), range(40))} == {get_ident()}


@linux_only
def test_what_is_in_use_is_what_the_system_tells() -> None:
    assert {name for name, number in threads._used_bytes().items() if number > 1 << 20} == {"VmSize", "VmData"}


@pytest.mark.usefixtures("_limited")
@pytest.mark.parametrize("error", LACKS, ids=lambda error: type(error).__name__)
def test_a_lack_of_memory_below_a_limit_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    build(tmp_path / "step-1", "model.safetensors  safetensors weight=F32[4]\n")

    def fail(*_: object) -> object:
        raise error

    monkeypatch.setattr(safetensors, "header", fail)
    for read in (lambda: read_checkpoint(tmp_path / "step-1"), lambda: validate([tmp_path])):
        with pytest.raises(OutOfMemoryError) as raised:
            read()
        assert raised.value.__cause__ is error
        assert lacks_memory(raised.value)
        assert refusal_of(raised.value) is None


def test_what_content_asks_for_without_a_limit_is_a_failure_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainspec_validate.system.process.has_limit_of_memory", lambda: False)
    assert failure(MemoryError()) == ("limits", "asks for more memory than there is")


@pytest.mark.usefixtures("_limited")
def test_only_a_short_header_of_an_array_blames_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> object:
        raise MemoryError

    monkeypatch.setattr(pickle_code.ast, "literal_eval", fail)
    with pytest.raises(MemoryError):
        pickle_code._says_objects(b"{'descr': '<f4', 'fortran_order': False, 'shape': (8,), 'note': 'O'}")
    assert pickle_code._says_objects(b"-" * 5_000 + b"O")


@pytest.mark.usefixtures("_limited")
@pytest.mark.parametrize("what", ["buffer", "thread"])
def test_reading_ahead_without_memory_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Every file wants more blocks than there is memory for, and none waits for one that does not come."""
    for number in range(24):
        with (tmp_path / f"{number}.bin").open("wb") as file:
            file.truncate(5 * blocks.BLOCK_BYTES)

    def refuse(*_: object, **__: Any) -> Any:
        raise (OSError(12, "Cannot allocate memory") if what == "buffer" else RuntimeError("can't start new thread"))

    if what == "buffer":
        monkeypatch.setattr(blocks, "_pages", refuse)
    else:

        class Pool(ThreadPoolExecutor):
            submit = refuse

        monkeypatch.setattr(blocks, "threads", SimpleNamespace(pool=Pool))
    with pytest.raises(OutOfMemoryError):
        digests(tmp_path, [f"{number}.bin" for number in range(24)])
