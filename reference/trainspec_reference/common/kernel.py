"""Asks the kernel how much memory this process holds, and whether it has killed processes that ran out of it."""

from __future__ import annotations

from pathlib import Path

from trainspec_reference.common.probe_parts import UnsupportedError

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


_STATUS = Path("/proc/self/status")
_KEY, _BYTES_OF_UNIT = "VmRSS:", 1024


def resident_bytes() -> int:
    """Memory that this process holds now, with its interpreter and libraries.

    Raises:
        UnsupportedError: this system does not tell.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError as error:
        raise UnsupportedError(f"this system does not tell the memory of a process: {error}") from error
    told = [line.split()[1] for line in lines if line.startswith(_KEY)]
    if not told:
        raise UnsupportedError(f"{_STATUS} tells no {_KEY}")
    return int(told[0]) * _BYTES_OF_UNIT
