"""Gives each start of a stack nothing to resume from but its store: empty shared memory and temporary directory."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from trainspec_conformance import guard
from trainspec_conformance.store import CANARY

_SECONDS = 20
STREAMS = "stream"
"""Directory of metric streams, below that of everything that a stack writes."""
LEAST_AGE_SECONDS, MOST_AGE_SECONDS = 3_600, 3 * 86_400
"""By which files of a moved store are dated back: a checkpoint that a run resumes from is seldom a minute old."""


@cache
def memory_words() -> tuple[str, ...]:
    """Words before a command that give it an empty /dev/shm and segments of System V of its own.

    There are none where the machine does not allow that.

    Programs are named by their paths, as the stack may have another PATH than the suite.
    """
    unshare, shell, mount = (shutil.which(name) for name in ("unshare", "sh", "mount"))
    if unshare is None or shell is None or mount is None:
        return ()
    words = (unshare, "--mount", "--ipc", "--propagation", "slave", shell, "-c")
    empty = f"{mount} -t tmpfs -o mode=1777 tmpfs /dev/shm"
    try:
        done = subprocess.run([*words, empty], capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if done.returncode else (*words, f'{empty} && exec "$@"', shell)


class TemporaryDirectories:
    """A temporary directory for each start of one trial."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def new(self) -> Path:
        """An empty one; its path is short, as some stacks put sockets below it."""
        self._made.append(Path(tempfile.mkdtemp(prefix="t")))
        guard.taken(self._made[-1])
        return self._made[-1]

    def close(self) -> None:
        """Remove them."""
        for path in self._made:
            shutil.rmtree(path, ignore_errors=True)
            guard.returned(path)


def move_store(before: Path, after: Path, chance: random.Random) -> None:
    """Copy a store to a new place, date its files back by one drawn time, and remove the old one."""
    shutil.copytree(before, after, symlinks=True)
    shutil.rmtree(before)
    age_ns = int(chance.uniform(LEAST_AGE_SECONDS, MOST_AGE_SECONDS) * 1e9)
    for path in (*after.rglob("*"), after):
        status = path.lstat()
        times = (status.st_atime_ns - age_ns, status.st_mtime_ns - age_ns)
        os.utime(path, ns=times, follow_symlinks=False)


def put_aside(out: Path, trace: Path, into: Path) -> None:
    """Move all files that a stack left in its known directories, except streams and traces.

    Args:
        out: where its store was.
        trace: the directory of traces, next to which streams are.
        into: a new directory for the moved files, unknown to the stack.
    """
    into.mkdir()
    kept = {trace, trace.parent / STREAMS, trace.parent / CANARY, out / CANARY}
    for folder in {trace, trace.parent, out}:
        for path in [one for one in folder.iterdir() if one not in kept]:
            is_trace = folder == trace and path.suffix == ".jsonl" and path.is_file() and not path.is_symlink()
            if not is_trace:
                path.rename(into / f"{folder.name}-{path.name}")
