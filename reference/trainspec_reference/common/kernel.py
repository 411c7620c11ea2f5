"""Asks the kernel whether it has killed processes that ran out of memory."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = Path("/proc/vmstat")


class MemoryKills:
    """Counts processes of this machine that the kernel has ended for want of memory: the signal alone says nothing."""

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._num_seen = self._num()

    def _num(self) -> int:
        """How many there were; 0 where the kernel does not tell."""
        try:
            lines = self._counters.read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def there_was_one(self) -> bool:
        """Whether one was ended since the last time that this was asked."""
        before, self._num_seen = self._num_seen, self._num()
        return self._num_seen > before
