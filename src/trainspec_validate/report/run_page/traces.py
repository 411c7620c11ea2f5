"""Thins the series of a run to the resolution of a chart, and keeps spikes and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.telemetry.view.run_view import JobSeries, Lockstep, Windows

NUM_COLUMNS = 500
"""Columns of a chart: each is at most one point of a line and two of a band."""
_MAX_BREAKS = 100
"""With more breaks than these a column can hold values of both sides of one."""
_HOLE = 5.0
"""A line is broken where values are further apart than this many times their usual distance."""


class Column(NamedTuple):
    """Content of one column of a chart."""

    time_us: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Trace:
    """A series as columns, in stretches that are drawn without a break."""

    name: str
    stretches: tuple[tuple[Column, ...], ...]
    middle_name: str = ""
    """Statistic of several values of a column that the line shows; empty where a column has one, or the name says
    it."""
    has_band: bool = False
    """Whether low and high mean something other than thinning: ends of an interval, or of all subjects."""

    def within(self, first_us: float, last_us: float) -> Trace:
        """The columns between two moments."""
        kept = (tuple(c for c in stretch if first_us <= c.time_us <= last_us) for stretch in self.stretches)
        return Trace(self.name, tuple(stretch for stretch in kept if stretch), self.middle_name, self.has_band)

    @property
    def is_wide(self) -> bool:
        """Whether a column shows more than one value."""
        return any(column.high > column.low for column in self.columns())

    def columns(self) -> list[Column]:
        """All columns."""
        return [column for stretch in self.stretches for column in stretch]


@dataclass(frozen=True, slots=True)
class Points:
    """The finite values of a job series in order of time: arrays of one length."""

    name: str
    time_us: Any
    value: Any
    step: Any
    attempt: Any
    weight: Any
    warmup: Any
    low: Any
    high: Any
    num_not_finite: int
    thinned: int

    def __len__(self) -> int:
        return len(self.value)


def points(series: JobSeries) -> Points:
    """The finite values of a series in order of time."""
    values = np.asarray(series.value, dtype=np.float64)
    times = np.asarray(series.time_us, dtype=np.int64)
    order = np.argsort(times, kind="stable")
    order = order[np.isfinite(values[order])]
    return Points(
        str(series.key),
        times[order],
        values[order],
        np.asarray(series.step)[order],
        np.asarray(series.attempt)[order],
        np.asarray(series.weight, dtype=np.float64)[order],
        np.asarray(series.warmup, dtype=bool)[order],
        None if series.low is None else np.asarray(series.low)[order],
        None if series.high is None else np.asarray(series.high)[order],
        int(len(values) - len(order)),
        series.thinned,
    )


def trace_of_points(found: Points, name: str, span: tuple[int, int], num_columns: int = NUM_COLUMNS) -> Trace:
    """A job series on a time axis; a band is the interval of the records, or all values of a column."""
    kept = np.flatnonzero((found.time_us >= span[0]) & (found.time_us <= span[1]))
    time_us, value = found.time_us[kept], found.value[kept]
    has_band = found.low is not None and bool(np.isfinite(found.low[kept]).any())
    low, high = (_ends(each[kept], value) for each in (found.low, found.high)) if has_band else (value, value)
    breaks = _breaks(time_us, found.attempt[kept])
    if len(kept) <= num_columns:
        columns = list(map(Column, time_us.tolist(), low.tolist(), value.tolist(), high.tolist()))
        return Trace(name, _stretches(columns, breaks), has_band=has_band)
    starts = _starts(time_us, span, num_columns)
    if breaks.sum() <= _MAX_BREAKS:
        starts = np.union1d(starts, np.flatnonzero(breaks))
    places = np.stack([starts, np.append(starts[1:], len(kept))], axis=1)
    columns = list(
        map(
            Column,
            time_us[starts].tolist(),
            np.minimum.reduceat(low, starts).tolist(),
            [float(np.median(value[start:end])) for start, end in places],
            np.maximum.reduceat(high, starts).tolist(),
        )
    )
    return Trace(name, _stretches(columns, breaks[starts]), "median of each column", has_band)


def trace_of_windows(windows: Sequence[Windows], name: str, num_columns: int = NUM_COLUMNS) -> Trace:
    """Keys of one metric together: the mean of all subjects, in a band from the lowest to the highest of them."""
    seen: dict[int, list[float]] = {}
    width = max(each.width_us for each in windows)
    num = max(len(each.count) * each.width_us for each in windows) // width
    width *= max(1, -(-num // num_columns))
    for each in windows:
        counts = np.asarray(each.count)
        for index in np.flatnonzero(counts).tolist():
            low, high = float(each.minimum[index]), float(each.maximum[index])
            start = (each.start_us + index * each.width_us) // width
            num_values, total = int(counts[index]), float(each.total[index])
            before = seen.setdefault(start, [0, 0.0, low, high])
            seen[start] = [before[0] + num_values, before[1] + total, min(before[2], low), max(before[3], high)]
    numbers = sorted(seen)
    columns = [
        Column((number + 0.5) * width, seen[number][2], seen[number][1] / seen[number][0], seen[number][3])
        for number in numbers
    ]
    breaks = np.diff(np.array(numbers, dtype=np.int64), prepend=numbers[:1]) > 2
    return Trace(name, _stretches(columns, breaks), has_band=True)


def trace_of_spread(lockstep: Sequence[Lockstep], name: str, num_columns: int = NUM_COLUMNS) -> Trace:
    """How far apart the ranks are: the distance in each window, the largest one where windows share a column."""
    stretches: list[tuple[Column, ...]] = []
    is_thinned = False
    for each in lockstep:
        filled = np.flatnonzero(np.asarray(each.num))
        if not len(filled):
            continue
        spread = (np.asarray(each.high, dtype=np.float64) - np.asarray(each.low, dtype=np.float64))[filled]
        times = each.start_us + (filled.astype(np.float64) + 0.5) * each.width_us
        most = max(1, num_columns // len(lockstep))
        is_thinned |= len(filled) > most
        starts = np.unique(np.arange(len(filled)) * most // max(len(filled), most), return_index=True)[1]
        high = np.maximum.reduceat(spread, starts)
        columns = [Column(time, far, far, far) for time, far in zip(times[starts].tolist(), high.tolist(), strict=True)]
        stretches += _stretches(columns, np.diff(filled[starts], prepend=filled[0]) > 2 * max(1, len(filled) // most))
    return Trace(name, tuple(stretches), "largest of each column" if is_thinned else "")


def quantile(values: Any, weights: Any, share: float) -> float:
    """The smallest value that at least this share of the weight does not exceed.

    >>> quantile([3.0, 1.0, 2.0], [1, 1, 2], 0.5)
    2.0
    """
    values, weights = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    place = int(np.searchsorted(below, share * below[-1] * (1 - 1e-12)))
    return float(values[order][min(place, len(values) - 1)])


def _ends(given: Any, value: Any) -> Any:
    """Ends of intervals; a value without one is its own end."""
    return np.where(np.isfinite(given), given, value)


def _breaks(time_us: Any, attempt: Any) -> Any:
    """Before which values a line is broken: at a new attempt, and after a hole."""
    if len(time_us) < 2:
        return np.zeros(len(time_us), dtype=bool)
    intervals = np.diff(time_us)
    usual = float(np.median(intervals[intervals > 0])) if (intervals > 0).any() else 0.0
    broken = (intervals > _HOLE * usual) | (np.diff(attempt) != 0)
    return np.concatenate([[False], broken])


def _starts(time_us: Any, span: tuple[int, int], num_columns: int) -> Any:
    """Index of the first value of each column."""
    width = max((span[1] - span[0]) / num_columns, 1.0)
    columns = np.clip((time_us - span[0]) // width, 0, num_columns - 1)
    return np.unique(columns, return_index=True)[1]


def _stretches(columns: list[Column], breaks: Any) -> tuple[tuple[Column, ...], ...]:
    found: list[list[Column]] = []
    for column, broken in zip(columns, np.asarray(breaks, dtype=bool).tolist(), strict=True):
        if broken or not found:
            found.append([])
        found[-1].append(column)
    return tuple(tuple(stretch) for stretch in found)
