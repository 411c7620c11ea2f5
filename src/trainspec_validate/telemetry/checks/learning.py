"""Checks the course of the loss, the gradient norm and the learning rate: no explosion, and a loss that falls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._job import held_at, stretches
from trainspec_validate.telemetry.checks._rows import is_restored, refuse_snapshot
from trainspec_validate.telemetry.checks._words import counted, damaged, few, number
from trainspec_validate.telemetry.view.run_view import JobSeries, RunView

LOSS, RATE, SKIPPED = "train.loss.mean", "train.learning_rate", "train.step.skipped"
NORM = "train.gradient.norm"
FEWEST = 6
"""Reports of a loss from which its course is judged; that they are finite is judged of any number."""
EXPLOSION = 10.0
"""Times the median of the reports before that make an explosion, where it lasts."""
EXPLOSION_REPORTS = 3
LONG_EXPLOSION, LONG_REPORTS = 5.0, 10
"""The same where it lasts longer."""
SPIKE = 5.0
"""Times the larger of the medians before and after that make a single report a spike."""
WINDOW = 50
"""Reports before one that it is compared with."""
NEIGHBOURS = 5
LEAST_SHARE = 0.05
"""Share of the first losses that a later one is at least taken for: ratios of tiny losses say nothing."""
LEAST_START = 0.05
"""Loss of the first two reports from which a later one can be many times as large: losses of policies begin at 0."""
FEWEST_OF_COURSE = 12
"""Reports from which the end is compared with the start."""
EDGE_SHARE = 0.1
RISEN = 2.0
"""Times the least smoothed loss from which an end counts as risen."""
FEWEST_UPDATES = 40
"""Optimizer steps from which a loss is expected to fall, and not to end above its first reports."""
FALLEN = 0.05
"""Share of the start by which a tenth of the reports has to be below it."""
LOWER = 0.55
"""Share of pairs of a report of the first third and one of the last in which the later one is lower: half by chance."""
FEWEST_NORMS = NEIGHBOURS + EXPLOSION_REPORTS
"""Reports of a gradient norm from which its end is compared with what was before it."""
NORM_EXPLOSION = 1000.0
"""Times the median before it: norms of a hundred times are clipped, and come down."""
FEWEST_RATES = 10
"""Learning rates above 0 that come before one that is compared: the reports of a warm-up are then near each other."""
RATE_JUMP = 100.0
"""Times the largest learning rate before it: a schedule that begins again reaches about what it began with."""
MAIN_LOSSES = ("total", "lm")
"""Names of the loss that a step descends; others are its parts."""
HELP = "find what changed there: data, learning rate, precision, a restored state or a faulty device"


@check("TS-TEL-088")
def finite_end(run: RunView) -> Iterator[Violation]:
    """A loss of the last attempt is finite in one of its last reports, unless their steps were skipped."""
    refuse_snapshot(run)
    losses = [series for series in run.job.values() if series.key.metric == LOSS]
    lost = _lost_losses(run)
    if not lost and not any(len(_of_last_attempt(run, series)) >= EXPLOSION_REPORTS for series in losses):
        raise NotApplicable(f"fewer than {EXPLOSION_REPORTS} reports of {LOSS} in the last attempt")
    yield from few(
        _violation(series, tail, f"{_lost(series, tail)} in {counted(len(tail), 'report')} to the end")
        for series, tail in lost
    )


@check("TS-TEL-055")
def loss_course(run: RunView) -> Iterator[Violation]:
    """The loss stays finite, within ten times what it was, and ends below its start."""
    refuse_snapshot(run)
    yield from damaged(run, "TS-TEL-055")
    losses = [series for series in run.job.values() if series.key.metric == LOSS]
    judged = [each for each in losses if len(each) >= FEWEST or not np.isfinite(np.asarray(each.value)).all()]
    if not judged:
        raise NotApplicable(f"fewer than {FEWEST} reports of {LOSS}")
    counts_skips = any(series.key.metric == SKIPPED for series in run.job.values())
    lost = {str(series.key): tail for series, tail in _lost_losses(run)}
    yield from few(
        found
        for series in judged
        for attempt in np.unique(series.attempt).tolist()
        for found in _course(
            run,
            series,
            np.setdiff1d(np.flatnonzero(series.attempt == attempt), lost.get(str(series.key), ())),
            counts_skips=counts_skips,
        )
    )


@check("TS-TEL-090")
def step_size_course(run: RunView) -> Iterator[Violation]:
    """No gradient norm ends a thousand times as large as before, and no learning rate jumps above all before it."""
    refuse_snapshot(run)
    least = {NORM: FEWEST_NORMS, RATE: FEWEST_RATES + 1}
    judged = [each for each in run.job.values() if len(each) >= least.get(each.key.metric, len(each) + 1)]
    if not judged:
        raise NotApplicable(f"fewer than {FEWEST_NORMS} reports of {NORM}, and {FEWEST_RATES + 1} of {RATE}")
    yield from few(
        found
        for series in judged
        for attempt in np.unique(series.attempt).tolist()
        for found in _step_size(series, np.flatnonzero(series.attempt == attempt))
    )


def _step_size(series: JobSeries, mine: Any) -> Iterator[Violation]:
    """The first place of one attempt from which a gradient norm or a learning rate is out of all proportion."""
    values = np.asarray(series.value)[mine]
    kept = mine[np.isfinite(values) & (values > 0)]
    values = np.asarray(series.value)[kept]
    if series.key.metric == RATE:
        before = np.concatenate([[np.inf], np.maximum.accumulate(values)[:-1]]) if len(values) else values
        wrong = np.flatnonzero(values[FEWEST_RATES:] > RATE_JUMP * before[FEWEST_RATES:]) + FEWEST_RATES
        if len(wrong):
            begin = int(wrong[0])
            words = f"is {number(float(values[begin]))}, and was {number(float(before[begin]))} at most before,"
            yield _violation(series, kept[begin:], words)
    elif len(values) >= FEWEST_NORMS:
        reference, least_after = _running_median(values), np.minimum.accumulate(values[::-1])[::-1]
        last = len(values) - EXPLOSION_REPORTS + 1
        wrong = np.flatnonzero((least_after > NORM_EXPLOSION * reference)[NEIGHBOURS:last]) + NEIGHBOURS
        if len(wrong):
            begin = int(wrong[0])
            words = f"rises from {number(float(reference[begin]))} to {number(float(values[begin]))} and stays above"
            yield _violation(series, kept[begin:], f"{words} {NORM_EXPLOSION:g} times that")


def _lost_losses(run: RunView) -> list[tuple[JobSeries, Any]]:
    """Losses that are not finite from some report of the last attempt to its end, with the places of these reports.

    Where no name is that of the whole loss, parts count only where none of them is finite.
    """
    losses = [series for series in run.job.values() if series.key.metric == LOSS]
    main = [series for series in losses if series.key.attribute("train.loss.name") in MAIN_LOSSES]
    found = [(series, _bad_tail(run, series)) for series in main or losses]
    lost = [(series, tail) for series, tail in found if _holds_last_reports(run, series, tail)]
    if (not main and len(lost) < len(found)) or not lost:
        return []
    return [(series, tail) for series, tail in lost if _num_skipped(run, series, tail) < len(tail)]


def _lost(series: JobSeries, tail: Any) -> str:
    is_finite = np.isfinite(np.asarray(series.value)[tail])
    return f"is 0 where {NORM} is not a number," if is_finite.all() else "is not finite"


def _holds_last_reports(run: RunView, series: JobSeries, tail: Any) -> bool:
    """Whether these are the last three reports of the last attempt, or all that it has."""
    return 0 < min(EXPLOSION_REPORTS, len(_of_last_attempt(run, series))) <= len(tail)


def _of_last_attempt(run: RunView, series: JobSeries) -> Any:
    """Places of the values of a series in the last attempt of the run."""
    last = max((span.number for span in run.attempts), default=0)
    return np.flatnonzero(series.attempt == last)


def _bad_tail(run: RunView, series: JobSeries) -> Any:
    """Places of the last reports that are not finite, up to the last report."""
    mine = _of_last_attempt(run, series)
    good = np.flatnonzero((np.isfinite(np.asarray(series.value)) & ~_is_hidden(run, series))[mine])
    return mine[int(good[-1]) + 1 if len(good) else 0 :]


def _is_hidden(run: RunView, series: JobSeries) -> Any:
    """Which losses are 0 beside a gradient norm that is not a number: they were no numbers either.

    A program that leaves such losses out of its mean reports the mean of none, as that of Hugging Face does by
    default (`logging_nan_inf_filter`, huggingface/transformers, src/transformers/training_args.py).
    """
    hidden = np.zeros(len(series), dtype=bool)
    for norm in (each for each in run.job.values() if each.key.metric == NORM):
        bad = np.isnan(np.asarray(norm.value))
        hidden |= np.isin(series.time_us, norm.time_us[bad])
    return hidden & (np.asarray(series.value) == 0)


def _num_skipped(run: RunView, series: JobSeries, tail: Any) -> float:
    """Optimizer steps that are counted as skipped while a loss was not finite."""
    attempt = int(series.attempt[tail[0]])
    before = series.time_us[max(int(tail[0]) - 1, 0)] if len(tail) < len(series) else 0
    times = np.array([before, series.time_us[tail[-1]]], dtype=np.int64)
    counts = (held_at(each, attempt, times) for each in run.job.values() if each.key.metric == SKIPPED)
    return float(sum(np.nan_to_num(count[1]) - np.nan_to_num(count[0]) for count in counts))


def _course(run: RunView, series: JobSeries, mine: Any, *, counts_skips: bool) -> Iterator[Violation]:
    """What is wrong with the losses of one attempt: values that are not finite, explosions, spikes and the end."""
    values = np.asarray(series.value)[mine]
    is_finite = np.isfinite(values)
    bad = np.flatnonzero(~is_finite)
    if len(bad) and (not counts_skips or not is_finite[-EXPLOSION_REPORTS:].any()):
        until = " to the end" if not is_finite[bad[0] :].any() else ""
        yield _violation(series, mine[bad], f"is not finite in {counted(len(bad), 'report')}{until}")
    kept, values = mine[is_finite], values[is_finite]
    if len(values) < FEWEST:
        return
    floor = _floor(values)
    if place := _falls_below_zero(values):
        words = f"falls from {number(float(values[place - 1]))} to {number(float(values[place]))} and stays below 0"
        yield _violation(series, kept[place:], words)
        return
    explosions = list(_explosions(values, floor))
    for begin, before in explosions:
        times = EXPLOSION if values[begin] > EXPLOSION * max(before, floor) else LONG_EXPLOSION
        message = f"rises from {number(before)} to {number(float(values[begin]))} and stays above {times:g} times"
        yield _violation(series, kept[begin:], message)
    num_before = explosions[0][0] if explosions else len(values)
    spikes: Any = np.flatnonzero(_is_spike(values, floor)[:num_before])
    if len(spikes):
        largest = float(np.abs(values[spikes]).max())
        message = f"is more than {SPIKE:g} times that of its neighbours in {counted(len(spikes), 'report')}"
        yield _violation(series, kept[spikes], f"{message}, up to {number(largest)}")
    if not explosions or not _stays_exploded(values, explosions[-1][1], floor):
        ends_above = list(_end_above(series, kept, values, floor)) if _is_long(series, kept) else []
        yield from ends_above or _stays(run, series, kept, values)


def _falls_below_zero(values: Any) -> int:
    """Place from which a loss above 0 is below it for good, by a larger step than those before; 0 where there is none.

    A loss that may be negative, such as a log-likelihood of densities, comes to 0 by steps of its usual size.
    """
    above = np.flatnonzero(values >= 0)
    place = int(above[-1]) + 1 if len(above) else 0
    if place < FEWEST or len(values) - place < EXPLOSION_REPORTS or len(above) < place:
        return 0
    usual = np.abs(np.diff(values[max(0, place - WINDOW) : place]))
    return place if values[place - 1] - values[place] > SPIKE * usual.max() else 0


def _floor(values: Any) -> float:
    """Least loss that ratios are taken of; a spike in the first reports does not raise it."""
    size = np.abs(values)
    return LEAST_SHARE * float(min(np.median(size[:EXPLOSION_REPORTS]), np.median(size[: 2 * NEIGHBOURS])))


def _edge(values: Any) -> int:
    """Reports that make the start or the end of a course."""
    return max(round(EDGE_SHARE * len(values)), EXPLOSION_REPORTS)


def _explosions(values: Any, floor: float) -> Iterator[tuple[int, float]]:
    """Where a loss becomes many times the median before it and stays so, and that median.

    A loss that has not recovered since is the same explosion.
    """
    above = np.zeros(len(values), dtype=bool)
    reference = _running_median(values)
    above[NEIGHBOURS - 2 :] = (values > EXPLOSION * np.maximum(reference, floor))[NEIGHBOURS - 2 :]
    for place in range(1, NEIGHBOURS - 2):  # a median of so few is one where the loss never returns to them
        least = EXPLOSION * float(np.abs(values[:place]).max())
        if least >= EXPLOSION * LEAST_START and (values[place:] > least).all():
            above[place : place + EXPLOSION_REPORTS] = True
    longer = values > LONG_EXPLOSION * np.maximum(reference, floor)
    longer[: NEIGHBOURS - 2] = False
    for begin, end in stretches(longer, LONG_REPORTS):
        if not any(stretches(above[begin:end], EXPLOSION_REPORTS)):
            above[begin:end] = True
    recovered = 0
    for begin, end in stretches(above, EXPLOSION_REPORTS):
        if begin < recovered:
            continue
        before = float(reference[begin])
        yield begin, before
        below = np.flatnonzero(values[end:] <= EXPLOSION * max(before, floor))
        recovered = end + int(below[0]) if len(below) else len(values)


def _stays_exploded(values: Any, before: float, floor: float) -> bool:
    """Whether the end of a loss is many times what it was before its last explosion."""
    return float(np.median(values[-_edge(values) :])) > EXPLOSION * max(before, floor)


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


def _is_long(series: JobSeries, kept: Any) -> bool:
    """Whether the reports are of as many steps as a loss needs to fall; where steps are unknown, reports count."""
    steps = series.step[kept]
    updates = int(steps.max() - steps.min()) if steps.min() >= 0 else len(kept)
    return updates >= FEWEST_UPDATES


def _end_above(series: JobSeries, kept: Any, values: Any, floor: float) -> Iterator[Violation]:
    """A loss that ends above its first reports, or twice above its least."""
    if len(values) < FEWEST_OF_COURSE or values.min() < 0 < values.max():
        return  # a share of a loss around 0 says nothing
    edge = _edge(values)
    start = values[:edge]
    usual = start[np.abs(start) <= SPIKE * max(float(np.median(np.abs(start))), floor)]
    end, first = float(np.median(values[-edge:])), float((usual if len(usual) else start).max())
    first = _before_jump(values[:edge], values, end) or first
    parts = [float(np.median(part)) for part in np.array_split(values, max(len(values) // edge, 2))]
    least = min(parts)
    if end > first + abs(first) * EDGE_SHARE:
        words = f"ends at a median of {number(end)}, above {number(first)} of its first reports,"
        yield _violation(series, kept[-edge:], words)
    elif end > RISEN * max(least, floor):
        yield _violation(series, kept[-edge:], f"ends at a median of {number(end)}, and was {number(least)} before,")


def _before_jump(start: Any, values: Any, end: float) -> float:
    """Largest of the first reports before they double for good, where they scatter less than the end rose; else 0."""
    scatter = float(np.median(np.abs(np.diff(values))))
    for place in range(2, len(start) - EXPLOSION_REPORTS + 1):
        first = float(start[:place].max())
        if start[:place].min() > LEAST_START and (start[place:] > RISEN * first).all():
            return first if end - first > SPIKE * scatter else 0.0
    return 0.0


def _stays(run: RunView, series: JobSeries, kept: Any, values: Any) -> Iterator[Violation]:
    """A loss that has not fallen after many optimizer steps, of an attempt that holds at least half of its updates."""
    steps = series.step[kept]
    if len(values) < FEWEST_OF_COURSE or series.key.attribute("train.loss.name") not in MAIN_LOSSES:
        return
    updates = int(steps[-1] - steps[0])
    if steps.min() < 0 or updates < max(FEWEST_UPDATES, int(steps[0])) or _rate_rises(run, series, kept):
        return
    if is_restored(run, int(series.attempt[kept[0]])):
        return
    parts = [float(np.median(part)) for part in np.array_split(values, max(len(values) // _edge(values), 2))]
    if 0 < values.min() < values.max() and min(parts) > (1 - FALLEN) * parts[0] and _share_lower(values) <= LOWER:
        first, last = number(parts[0]), number(parts[-1])
        message = f"does not fall in {updates:,} optimizer steps: {first} in its first reports, {last} in its last"
        yield _violation(series, kept, message)


def _share_lower(values: Any) -> float:
    """Share of pairs of a report of the first third and one of the last in which the later is lower; ties are halves.

    >>> _share_lower(np.array([3.0, 2.0, 1.0])), _share_lower(np.array([1.0, 2.0, 1.0]))
    (1.0, 0.5)
    """
    num = len(values) // 3
    first, last = np.sort(values[:num]), values[-num:]
    below = (np.searchsorted(first, last) + np.searchsorted(first, last, side="right")) / 2
    return 1 - float(below.mean()) / num


def _rate_rises(run: RunView, series: JobSeries, places: Any) -> bool:
    """Whether the learning rate still warms up at the end of some reports, so that the loss has yet to fall."""
    attempt, times = int(series.attempt[places[0]]), series.time_us[places[[len(places) // 2, -1]]]
    rates = [each for each in run.job.values() if each.key.metric == RATE]
    return any(middle < end for middle, end in (held_at(each, attempt, times) for each in rates))


def _violation(series: JobSeries, places: Any, message: str) -> Violation:
    first, last = int(places[0]), int(places[-1])
    step = int(series.step[first])
    where = f" from step {step:,} on" if step >= 0 and len(places) > 1 else f" at step {step:,}" if step >= 0 else ""
    evidence = Evidence(str(series.key), "", int(series.time_us[first]), int(series.time_us[last]), len(places))
    return Violation(series.location(first), f"{series.key} {message}{where}", HELP, evidence)
