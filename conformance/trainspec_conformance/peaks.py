"""Measures the peak memory of a process and its children."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")
_PEAK = "VmHWM:"
_PRIVATE = ("Private_Clean:", "Private_Dirty:")
_BYTES_OF_UNIT = 1024
_MAX_CHILDREN = 1000
_COPY_SECONDS = 0.5
"""A fork that is about to run another program has all memory of its parent, and has it for less long than that."""


class PeakMemory:
    """Peak of the resident memory of a process tree, as Linux counts it; 0 where it does not."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, float] = {}
        self.num_bytes = 0

    def look(self) -> None:
        """See how much the processes that run now have taken at most, each; of a fork only what it does not share."""
        now = time.monotonic()
        taken = 0
        for pid, is_copy in _tree(self._pid):
            first = self._seen.setdefault(pid, now)
            if not is_copy:
                taken += _kilobytes(pid, "status", (_PEAK,))
            elif now - first >= _COPY_SECONDS:
                taken += _kilobytes(pid, "smaps_rollup", _PRIVATE)
        self.num_bytes = max(self.num_bytes, taken * _BYTES_OF_UNIT)


def _tree(pid: int) -> Iterator[tuple[int, bool]]:
    """A process and all below it, each with whether it is a fork of its parent that runs no other program."""
    waiting, num_seen = [(pid, "")], 0
    while waiting and num_seen < _MAX_CHILDREN:
        one, above = waiting.pop()
        num_seen += 1
        command = _text(_PROCESSES / str(one) / "cmdline")
        yield one, command == above != ""
        children = _text(_PROCESSES / str(one) / "task" / str(one) / "children").split()
        waiting += [(int(word), command) for word in children]


def _kilobytes(pid: int, file: str, names: tuple[str, ...]) -> int:
    """Sum of the lines of a file of a process that have these names."""
    lines = (line.split() for line in _text(_PROCESSES / str(pid) / file).splitlines())
    return sum(int(words[1]) for words in lines if words and words[0] in names)


def _text(path: Path) -> str:
    """The text of a file of a process; none where it has ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
