"""Makes the kernel kill processes of a trial that run out of memory, by a control group of their own."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.processes import is_gone

MOST_BYTES = 4096
"""Memory limit of the group. Pages of a process stay with its old group, so that the next page exceeds the limit."""
_PREFIX = "trainspec-"
_CLOSE_SECONDS = 5.0
_NUM_TRIES = 100
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class _Tree:
    """Where groups with a limit of memory can be made."""

    root: Path
    limit: str
    """File of a group that holds the limit."""
    usage: str
    """File of a group that holds what its processes have taken since they came."""


# https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html beside it
_TREES = (
    _Tree(Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    _Tree(Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class MemoryGroup:
    """A group in which there is no memory left. Its name has the number of the process that made it."""

    def __init__(self) -> None:
        """Make it, and remove groups of processes that were ended before they could.

        Raises:
            NotAllowedError: this process may not, or the kernel has no such groups.
        """
        reasons = []
        for tree in _TREES:
            _sweep(tree.root)
            self._directory = tree.root / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
            try:
                self._directory.mkdir()
            except OSError as error:
                reasons.append(str(error))
                continue
            self._limit = self._directory / tree.limit
            self._usage = self._directory / tree.usage
            if self._limit.exists():
                return
            self._directory.rmdir()
            reasons.append(f"{tree.root} has no groups with a limit of memory")
        raise NotAllowedError(f"a control group with a limit of memory cannot be made: {'; '.join(reasons)}")

    def take(self, pids: Sequence[int]) -> None:
        """Move processes into it: each is ended by the kernel as soon as it takes more memory.

        Raises:
            OSError: one has ended, or may not be moved.
        """
        for pid in pids:
            (self._directory / "cgroup.procs").write_text(f"{pid}\n", encoding="ascii")
        held = (self._directory / "cgroup.procs").read_text(encoding="ascii").split()
        if left_out := [pid for pid in pids if str(pid) not in held and not is_gone(pid)]:
            raise RuntimeError(f"process {left_out[0]}: kill-at-memory-limit has not arrived")
        self._forbid_more()

    def _forbid_more(self) -> None:
        """Set the limit. The first version of control groups refuses one below what the processes have by now."""
        most_bytes = MOST_BYTES
        for _ in range(_NUM_TRIES):
            try:
                self._limit.write_text(f"{most_bytes}\n", encoding="ascii")
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                most_bytes = int(self._usage.read_text(encoding="ascii"))
            else:
                return
        raise OSError(errno.EBUSY, "its processes take memory faster than it can be limited", str(self._limit))

    def close(self) -> None:
        """Remove it once no process is in it, which the kernel may notice a moment late."""
        end = time.monotonic() + _CLOSE_SECONDS
        while self._directory.exists() and time.monotonic() < end:
            with contextlib.suppress(OSError):
                self._directory.rmdir()
                return
            time.sleep(0.02)


def sweep_groups() -> None:
    """Remove groups of processes that were ended before they could."""
    for tree in _TREES:
        _sweep(tree.root)


def _sweep(root: Path) -> None:
    for left in root.glob(f"{_PREFIX}*"):
        number = left.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdecimal() and is_gone(int(number)):
            with contextlib.suppress(OSError):
                left.rmdir()
