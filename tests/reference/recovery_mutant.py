"""Workers whose writes go wrong, for tests of recovery: `KIND RANK WRITE assignment.json`."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainspec_conformance.testbed.plain.storage import PlainSnapshot
from trainspec_reference.common import worker

Write = Callable[[PlainSnapshot, Path], None]
SLOW_SECONDS = 0.4


def slow(write: Write, snapshot: PlainSnapshot, directory: Path) -> None:
    """Half of the file lies there for a while."""
    write(snapshot, directory)
    for path in directory.glob(f"state-{snapshot.rank}-*"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        time.sleep(SLOW_SECONDS)
        path.write_bytes(content)


def error(write: Write, snapshot: PlainSnapshot, directory: Path) -> None:
    """The storage fails in the middle of the file."""
    slow(write, snapshot, directory)
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def full(write: Write, snapshot: PlainSnapshot, directory: Path) -> None:
    """The file does not fit."""
    sys.dont_write_bytecode = True  # the limit would cut the modules that are imported below it
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        write(snapshot, directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def die(write: Write, snapshot: PlainSnapshot, directory: Path) -> None:
    """The process is killed when its file is written, and nobody knows yet."""
    write(snapshot, directory)
    os.kill(os.getpid(), signal.SIGKILL)


def nothing(write: Write, snapshot: PlainSnapshot, directory: Path) -> None:
    """The file is not there, and the writer says that it is."""


KINDS = {each.__name__: each for each in (slow, error, full, die, nothing)}


def main(kind: str, rank: int, number: int, assignment: str) -> None:
    """Work as any other worker, but for one write of a rank, or of all ranks for -1, or all its writes for 0."""
    write = PlainSnapshot.write
    num_writes = 0

    def written(snapshot: PlainSnapshot, directory: Path) -> None:
        nonlocal num_writes
        num_writes += 1
        if rank in {-1, snapshot.rank} and number in {0, num_writes}:
            KINDS[kind](write, snapshot, directory)
        else:
            write(snapshot, directory)

    PlainSnapshot.write = written  # type: ignore[method-assign]
    worker.main([assignment])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
