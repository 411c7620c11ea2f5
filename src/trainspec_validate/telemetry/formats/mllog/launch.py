"""Judges how the processes of a log of MLPerf start: how far apart, and whether all have started."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low

from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

STARTS = ("init_start", "cache_clear")
"""Entries that each process writes as it starts."""
LARGEST_SPREAD_US = 600_000_000
"""8,192 processes of one job start within 4.4 s; zones and clocks that no one sets are off by more than this."""
_MAX_PROCESSES = 1_000_000


class Launch:
    """Times at which processes start, by key, and the places of the entries."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._seen: dict[str, list[tuple[int, int]]] = {key: [] for key in STARTS}
        self._is_done = self._is_running = False

    def take(self, offset: int, key: str, time_us: int) -> Iterator[Found]:
        """Take an entry."""
        if key in self._seen:
            if len(self._seen[key]) < _MAX_PROCESSES:
                self._seen[key].append((time_us, offset))
        elif key == "run_start":
            self._is_running = True
        elif key == "init_stop":
            self._is_done = True
            if not self._seen["init_start"]:
                yield offset, Refusal("init_stop closes nothing: no init is open", "write init_start", "interval")

    def end(self) -> Iterator[Found]:
        """Processes that start far from the others, and a start that never ends."""
        for key, entries in self._seen.items():
            yield from self._apart(key, entries)
        inits = self._seen["init_start"]
        if inits and self._is_running and not self._is_done:
            yield inits[0][1], Refusal("init_start is never closed", "write init_stop before run_start", "interval")
        if len(inits) > 1:
            spread = (max(inits)[0] - min(inits)[0]) / 1e6
            message = f"{len(inits):,} processes start within {spread:g} s; none says its rank"
            self._transcript.lose("identity", "init_start", message, inits[0][1], len(inits))

    @staticmethod
    def _apart(key: str, entries: list[tuple[int, int]]) -> Iterator[Found]:
        """The entries that are far from the middle one."""
        middle = median_low(time_us for time_us, _ in entries) if entries else 0
        far = [(offset, time_us - middle) for time_us, offset in entries if abs(time_us - middle) > LARGEST_SPREAD_US]
        if far:
            offset, away = min(far)
            side = "before" if away < 0 else "after"
            message = (
                f"{key} is {abs(away) / 60e6:.4g} min {side} that of most processes, and {len(far):,} of "
                f"{len(entries):,} are more than {LARGEST_SPREAD_US / 60e6:g} min away"
            )
            yield offset, Refusal(message, "processes of a job start together; set the clocks, and write UTC", "time")
