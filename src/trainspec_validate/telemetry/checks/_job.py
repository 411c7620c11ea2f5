"""Cuts and aligns series of the whole job for checks that compare them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.view.run_view import JobSeries, RunView

CHANGES_OF_WORK = (
    *("train.batch_size.changed", "train.topology.changed", "train.hyperparameter.changed"),
    *("train.step.warmup_reset", "train.rank.lost", "train.rank.joined"),
)
"""Events after which optimizer steps may take another time."""


def segments(run: RunView, series: JobSeries) -> Iterator[Any]:
    """Indices of the values of each attempt, cut at events that change the work."""
    changes = run.events_named(*CHANGES_OF_WORK)
    for attempt in np.unique(series.attempt):
        mine = np.flatnonzero(series.attempt == attempt)
        moments = [event.time_us for event in changes if event.attempt == attempt]
        cuts = np.searchsorted(series.time_us[mine], np.array(moments, dtype=np.int64))
        yield from (part for part in np.split(mine, cuts) if len(part))


def at_times(series: JobSeries, attempt: int, times_us: Any) -> Any:
    """Values of a series at some moments of an attempt, interpolated; not a number outside of its values."""
    mine = np.flatnonzero((series.attempt == attempt) & np.isfinite(series.value))
    if len(mine) < 1:
        return np.full(len(times_us), np.nan)
    order = mine[np.argsort(series.time_us[mine], kind="stable")]
    return np.interp(times_us, series.time_us[order], series.value[order], left=np.nan, right=np.nan)


def held_at(series: JobSeries, attempt: int, times_us: Any) -> Any:
    """Newest value of a series at some moments of an attempt; not a number before its first value."""
    mine = np.flatnonzero((series.attempt == attempt) & np.isfinite(series.value))
    order = mine[np.argsort(series.time_us[mine], kind="stable")]
    place = np.searchsorted(series.time_us[order], times_us, side="right") - 1
    values = np.concatenate([series.value[order], [np.nan]])
    return values[np.where(place >= 0, place, len(order))]


def report_interval(run: RunView, attempt: int) -> int:
    """Optimizer steps from one report of an attempt to the next, as its heads say."""
    return max((head.record.report_interval_steps for head in run.heads if head.record.att == attempt), default=1)


def updates_of(run: RunView, series: JobSeries, mine: slice) -> Any:
    """Steps that each report of an attempt represents: by the steps between reports, else by its histogram."""
    steps, weight = series.step[mine], np.array(series.weight[mine], dtype=np.float64)
    if not len(steps):
        return weight
    weight[0] = _updates_of_first(run, series, mine.start)
    known = (steps[1:] >= 0) & (steps[:-1] >= 0)
    return np.concatenate([weight[:1], np.where(known, np.diff(steps), weight[1:])])


def _updates_of_first(run: RunView, series: JobSeries, first: int) -> float:
    """Optimizer steps of the first report of an attempt: since the count before it, else those that a report covers."""
    step, attempt, weight = int(series.step[first]), int(series.attempt[first]), float(series.weight[first])
    if step < 1:
        return weight
    counts = run.job.get("train.step.count")
    if counts is not None:
        before = (counts.attempt == attempt) & (counts.time_us < series.time_us[first]) & (counts.value < step)
        if before.any():
            return step - float(counts.value[before].max())
    return max(weight, min(report_interval(run, attempt), step))


def stretches(wrong: Any, least: int) -> Iterator[tuple[int, int]]:
    """First index and end of each run of at least some true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(wrong, dtype=np.int8), [0]])))
    yield from (
        (int(begin), int(end)) for begin, end in zip(edges[::2], edges[1::2], strict=True) if end - begin >= least
    )
