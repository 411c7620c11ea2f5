"""The only place that sees how much memory a process and its children have taken at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")
_PEAK = "VmHWM:"
_BYTES_OF_UNIT = 1024
_MAX_CHILDREN = 1000


class PeakMemory:
    """Peak of the resident memory of a process tree, as Linux counts it; 0 where it does not."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.num_bytes = 0

    def look(self) -> None:
        """See how much the processes that run now have taken at most, each."""
        self.num_bytes = max(self.num_bytes, sum(_peak(pid) for pid in _tree(self._pid)))


def _tree(pid: int) -> Iterator[int]:
    waiting, num_seen = [pid], 0
    while waiting and num_seen < _MAX_CHILDREN:
        one = waiting.pop()
        num_seen += 1
        yield one
        waiting += [int(word) for word in _text(_PROCESSES / str(one) / "task" / str(one) / "children").split()]


def _peak(pid: int) -> int:
    for line in _text(_PROCESSES / str(pid) / "status").splitlines():
        if line.startswith(_PEAK):
            return int(line.split()[1]) * _BYTES_OF_UNIT
    return 0


def _text(path: Path) -> str:
    """The text of a file of a process; none where it has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
