"""Checks the course of the loss: finite values, no explosion, no spikes, and an end below the start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._job import stretches
from trainspec_validate.telemetry.checks._rows import refuse_snapshot
from trainspec_validate.telemetry.checks._words import counted, few, number
from trainspec_validate.telemetry.view.run_view import JobSeries, RunView

LOSS, SKIPPED = "train.loss.mean", "train.step.skipped"
FEWEST = 6
"""Reports of a loss from which its course is judged."""
EXPLOSION = 10.0
"""Times the median of the reports before that make an explosion, where it lasts."""
EXPLOSION_REPORTS = 3
SPIKE = 5.0
"""Times the larger of the medians before and after that make a single report a spike."""
WINDOW = 50
"""Reports before one that it is compared with."""
NEIGHBOURS = 5
LEAST_SHARE = 0.05
"""Share of the first losses that a later one is at least taken for: ratios of tiny losses say nothing."""
FEWEST_OF_COURSE = 12
"""Reports from which the end is compared with the start."""
EDGE_SHARE = 0.1
RISEN = 2.0
"""Times the least smoothed loss from which an end counts as risen."""
HELP = "find what changed there: data, learning rate, precision, a restored state or a faulty device"


@check("TS-TEL-055")
def loss_course(run: RunView) -> Iterator[Violation]:
    """The loss stays finite, within ten times what it was, and ends below its start."""
    refuse_snapshot(run)
    judged = [series for series in run.job.values() if series.key.metric == LOSS and len(series) >= FEWEST]
    if not judged:
        raise NotApplicable(f"fewer than {FEWEST} reports of {LOSS}")
    counts_skips = any(series.key.metric == SKIPPED for series in run.job.values())
    yield from few(
        found
        for series in judged
        for attempt in np.unique(series.attempt).tolist()
        for found in _course(series, np.flatnonzero(series.attempt == attempt), counts_skips=counts_skips)
    )


def _course(series: JobSeries, mine: Any, *, counts_skips: bool) -> Iterator[Violation]:
    """What is wrong with the losses of one attempt, the gravest alone."""
    values = np.asarray(series.value)[mine]
    is_finite = np.isfinite(values)
    bad = np.flatnonzero(~is_finite)
    if len(bad) and (not counts_skips or not is_finite[-EXPLOSION_REPORTS:].any()):
        until = " to the end" if not is_finite[bad[0] :].any() else ""
        yield _violation(series, mine[bad], f"is not finite in {counted(len(bad), 'report')}{until}")
    kept, values = mine[is_finite], values[is_finite]
    if len(values) < FEWEST:
        return
    floor = LEAST_SHARE * float(np.median(np.abs(values[: 2 * NEIGHBOURS])))
    exploded = _exploded(values, floor)
    spikes: Any = np.flatnonzero(_is_spike(values, floor)) if exploded is None else ()
    if exploded is not None:
        begin, before = exploded
        message = f"rises from {number(before)} to {number(float(values[begin]))} and stays above {EXPLOSION:g} times"
        yield _violation(series, kept[begin:], message)
    elif len(spikes):
        largest = float(np.abs(values[spikes]).max())
        message = f"is more than {SPIKE:g} times that of its neighbours in {counted(len(spikes), 'report')}"
        yield _violation(series, kept[spikes], f"{message}, up to {number(largest)}")
    else:
        yield from _end_above(series, kept, values, floor)


def _exploded(values: Any, floor: float) -> tuple[int, float] | None:
    """Where a loss becomes many times the median before it and stays so, and that median."""
    above = np.zeros(len(values), dtype=bool)
    reference = _running_median(values)
    above[NEIGHBOURS - 2 :] = (values > EXPLOSION * np.maximum(reference, floor))[NEIGHBOURS - 2 :]
    for begin, _ in stretches(above, EXPLOSION_REPORTS):
        return begin, float(reference[begin])
    return None


def _running_median(values: Any) -> Any:
    """Median of up to `WINDOW` values before each; that of the first ones is their own."""
    padded = np.concatenate([np.full(WINDOW, np.nan), np.abs(values)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[: len(values)]
    found = np.abs(values).astype(np.float64)
    found[1:] = np.nanmedian(windows[1:], axis=1)
    return found


def _is_spike(values: Any, floor: float) -> Any:
    """Which values are many times the medians of those before and after them."""
    size = np.abs(values)
    padded = np.concatenate([np.full(NEIGHBOURS, np.nan), size, np.full(NEIGHBOURS, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS)
    inner = slice(2, len(size) - 2)
    around = np.full(len(size), np.inf)
    around[inner] = np.fmax(
        np.nanmedian(windows[: len(size)][inner], axis=1), np.nanmedian(windows[NEIGHBOURS + 1 :][inner], axis=1)
    )
    return size > SPIKE * np.maximum(around, floor)


def _end_above(series: JobSeries, kept: Any, values: Any, floor: float) -> Iterator[Violation]:
    """A loss that ends above its first reports, or twice above its least."""
    if len(values) < FEWEST_OF_COURSE:
        return
    edge = max(round(EDGE_SHARE * len(values)), EXPLOSION_REPORTS)
    end, first = float(np.median(values[-edge:])), float(values[:edge].max())
    parts = [float(np.median(part)) for part in np.array_split(values, max(len(values) // edge, 2))]
    least = min(parts)
    if end > first + abs(first) * EDGE_SHARE:
        yield _violation(series, kept[-edge:], f"ends at {number(end)}, above {number(first)} of its first reports")
    elif end > RISEN * max(least, floor):
        yield _violation(series, kept[-edge:], f"ends at {number(end)}, and was {number(least)} before")


def _violation(series: JobSeries, places: Any, message: str) -> Violation:
    first, last = int(places[0]), int(places[-1])
    step = int(series.step[first])
    where = f" from step {step:,} on" if step >= 0 and len(places) > 1 else f" at step {step:,}" if step >= 0 else ""
    evidence = Evidence(str(series.key), "", int(series.time_us[first]), int(series.time_us[last]), len(places))
    return Violation(series.location(first), f"{series.key} {message}{where}", HELP, evidence)
