"""Compares times of steps in a log of MLPerf with the clock, where the log states no position for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.mllog.units import STEP_TIMES

_MOST = 1.5
"""Of the time between two reports: each is of one step at least. In 884 public logs the ratio is 1.00003 at most."""
_FEWEST = 8
_MAX_KEPT = 10_000


class Durations:
    """The times of steps of one log, and the time between their reports."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[int, list[tuple[float, float]]]] = {}
        self._first = -1

    def take(self, offset: int, time_us: int, statistic: Mapping[str, Any]) -> Iterator[Refusal]:
        """Take the time of a step, whose position is unknown; the refusal of one below 0."""
        name = next((name for name in STEP_TIMES if name in statistic), "")
        seconds = fit.number(statistic.get(name))
        if not isinstance(seconds, float):
            return
        if seconds < 0:
            yield Refusal(f"{name} is {seconds:g} s, below 0", "write the time that the step took", "range")
        self._first = offset if self._first < 0 else self._first
        names = tuple(sorted(statistic))
        before, pairs = self._seen.get(names, (time_us, []))
        if time_us > before and len(pairs) < _MAX_KEPT:
            pairs.append((seconds, (time_us - before) / 1e6))
        self._seen[names] = time_us, pairs

    def end(self) -> Iterator[Found]:
        """The refusal of steps that take longer than from one report to the next."""
        for _, pairs in self._seen.values():
            if len(pairs) >= _FEWEST and median(seconds / between for seconds, between in pairs) > _MOST:
                taken, between = (median(pair[place] for pair in pairs) for place in (0, 1))
                message = f"an optimizer step takes {taken:.6g} s, and its reports come every {between:.6g} s"
                yield self._first, Refusal(message, "write the time of a step in seconds", "duration")
