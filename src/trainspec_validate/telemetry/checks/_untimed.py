"""Finds slow stretches, and another unit, in logs whose lines have no times, by the durations of their steps."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.telemetry.checks import NotApplicable
from trainspec_validate.telemetry.checks._job import held_at, stretches
from trainspec_validate.telemetry.checks._signs import LEAST_SECONDS, LONGER
from trainspec_validate.telemetry.view.run_view import JobSeries, RunView

BATCH, RESULT = "train.batch.size", "train.evaluation.loss"
STEADY = 0.01
"""Scatter of reports around their median up to which they are a baseline: 0.2 % in the log of a public run."""
MOST_SAMPLED = 1000
STALL = 5.0
"""Times the median that are a stall, as where lines have times: it needs no half hour and no steady pace before it."""
STALL_SECONDS = 60.0
FEWEST_BEFORE = 20
"""Reports before a stall, and before a change of the unit."""
FEWEST_LONG = 5
"""Reports among which one that takes minutes, and several times as long as any other, is a stall."""
UNIT = 0.01
"""Share of the median of a step that no step is faster than: the units of programs are a thousandfold apart."""


class Bounds(NamedTuple):
    """Evidence of a slow stretch: growth of its median, reports, and seconds of it and of what came before."""

    growth: float
    num: int
    seconds: float


class Slowness(NamedTuple):
    """Reports in a row whose optimizer steps take longer than those before."""

    first: int
    """Number of the first value in the series."""
    last: int
    num: int
    seconds: float
    """Median step of them."""
    baseline: float
    """Median step of the reports before."""


def slow_reports(run: RunView, series: JobSeries, part: Any, bounds: Bounds) -> list[Slowness]:
    """Slow stretches among some values of a series, each with as much before it of the same batch size.

    Raises:
        NotApplicable: there are too few values.
    """
    part = _usable(series, part)
    pieces = [piece for piece in _ascending(run, series, part) if len(piece) >= 2 * bounds.num]
    if not pieces:
        raise NotApplicable(
            f"the lines have no times, and fewer than {2 * bounds.num} reports of steps follow each other"
        )
    return [slow for piece in pieces for slow in _slow(series, piece, bounds)]


def long_report(run: RunView, series: JobSeries, part: Any) -> Slowness | None:
    """The report whose step takes several times as long as any other, and minutes, behind the first and unevaluated.

    Steps with an evaluation, and the reports around them, are longer by what it takes.
    """
    for piece in _ascending(run, series, _usable(series, part)):
        if len(piece) < FEWEST_LONG:
            continue
        values = np.asarray(series.value[piece])
        longest = int(np.argmax(values[1:])) + 1
        others = float(np.delete(values, longest).max())
        if values[longest] > max(LONGER * others, LEAST_SECONDS) and not _is_evaluated(run, series, piece, longest):
            place = int(piece[longest])
            return Slowness(place, place, 1, float(values[longest]), others)
    return None


def _is_evaluated(run: RunView, series: JobSeries, piece: Any, place: int) -> bool:
    """Whether an evaluation is reported from the report before to the one after."""
    low, high = (int(series.step[piece[n]]) for n in (place - 1, min(place + 1, len(piece) - 1)))
    results = (each for each in run.job.values() if each.key.metric == RESULT)
    return any(bool(((each.step >= low) & (each.step <= high)).any()) for each in results)


def another_unit(run: RunView, series: JobSeries, part: Any, num: int) -> Slowness | None:
    """The first of so many reports in a row whose steps take a hundredth of what those before take.

    Raises:
        NotApplicable: there are too few values.
    """
    pieces = [piece for piece in _ascending(run, series, _usable(series, part)) if len(piece) >= FEWEST_BEFORE + num]
    if not pieces:
        raise NotApplicable(
            f"the lines have no times, and fewer than {FEWEST_BEFORE + num} reports of steps follow each other"
        )
    for piece in pieces:
        values = np.asarray(series.value[piece])
        for begin, end in stretches(values <= UNIT * np.maximum.accumulate(values), num):
            baseline, seconds = float(np.median(values[:begin])), float(np.median(values[begin:end]))
            if begin >= FEWEST_BEFORE and seconds <= UNIT * baseline:
                return Slowness(int(piece[begin]), int(piece[end - 1]), end - begin, seconds, baseline)
    return None


def _usable(series: JobSeries, part: Any) -> Any:
    """Values that are finite and of no warm-up, with a step."""
    return part[np.isfinite(series.value[part]) & ~np.asarray(series.warmup[part], bool) & (series.step[part] >= 0)]


def _ascending(run: RunView, series: JobSeries, part: Any) -> Iterator[Any]:
    """Values cut where the count of steps falls, as another run in the same file, and where the batch changes."""
    cut = np.diff(series.step[part]) <= 0
    batch = run.job.get(BATCH)
    if batch is not None and len(part):
        sizes = held_at(batch, int(series.attempt[part[0]]), series.time_us[part])
        cut |= (sizes[1:] != sizes[:-1]) & np.isfinite(sizes[1:])
    yield from np.split(part, np.flatnonzero(cut) + 1)


def _slow(series: JobSeries, piece: Any, bounds: Bounds) -> Iterator[Slowness]:
    values = series.value[piece]
    taken = values * np.diff(series.step[piece], prepend=series.step[piece][:1] - 1)
    until = np.concatenate(([0.0], np.cumsum(taken)))
    before = _Median()
    begin = bounds.num
    while begin < len(values):
        before.take(values[before.num : begin].tolist())
        baseline = before.value()
        end = begin
        while end < len(values) and values[end] > (1 + bounds.growth) * baseline:
            end += 1
        median = float(np.median(values[begin:end])) if end > begin else 0.0
        seconds = float(until[end] - until[begin])
        is_stall = median >= STALL * baseline and seconds >= STALL_SECONDS and begin >= FEWEST_BEFORE
        lasting = min(float(until[begin]), seconds) >= bounds.seconds and _is_steady(values[:begin], baseline)
        if end - begin >= bounds.num and (is_stall or lasting):
            yield Slowness(int(piece[begin]), int(piece[end - 1]), end - begin, median, baseline)
        begin = max(end, begin + 1)


def _is_steady(values: Any, baseline: float) -> bool:
    """Whether reports, at most about a thousand spread over all, scatter little: a log may have many stretches."""
    some = values[:: max(1, len(values) // MOST_SAMPLED)]
    return float(np.median(np.abs(some - baseline))) <= STEADY * baseline


class _Median:
    """Median of values that become more, in logarithmic time for each."""

    def __init__(self) -> None:
        self._below: list[float] = []
        """Lower half, negated: its first is the largest."""
        self._above: list[float] = []

    @property
    def num(self) -> int:
        """Number of values so far."""
        return len(self._below) + len(self._above)

    def take(self, values: list[float]) -> None:
        """Take further values."""
        for value in values:
            heapq.heappush(self._above, -heapq.heappushpop(self._below, -value))
            if len(self._above) > len(self._below):
                heapq.heappush(self._below, -heapq.heappop(self._above))

    def value(self) -> float:
        """Median of all values so far."""
        if len(self._below) > len(self._above):
            return -self._below[0]
        return (self._above[0] - self._below[0]) / 2
