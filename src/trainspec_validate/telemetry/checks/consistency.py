"""Compares rates of a run with its counts, and utilisation with rates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check, require
from trainspec_validate.telemetry.checks._job import at_times, held_at, report_interval, stretches
from trainspec_validate.telemetry.checks._members import num_devices_per_rank
from trainspec_validate.telemetry.checks._pauses import Pauses, evaluations, of_attempt
from trainspec_validate.telemetry.checks._rows import finite, has_times, refuse_snapshot
from trainspec_validate.telemetry.checks._words import damaged, few, number, seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, JobSeries, RunView

RATE, TOKENS = "train.token.rate", "train.token.count"
SAMPLE_RATE, DURATION = "train.sample.rate", "train.step.duration"
SAMPLES, BATCH = "train.sample.count", "train.batch.size"
MODEL, HARDWARE = "train.flops.utilization", "train.flops.hardware_utilization"
TOLERANCE = 0.02
"""Of rates, counts and utilisation; slips of units are a factor of 1.024 or more."""
UNIT_DIGITS = 2.0
"""Powers of ten by which the work of a step changes where a unit does: no ramp of the batch has so many."""
RATE_FACTOR = 1.5
"""Between rates and counts of samples in logs of other programs, which leave out different parts of the time."""
FEWEST_RATES = 3
ROUNDING = 5e-4
"""Utilisation that is rounded to a tenth of a per cent."""


@check("TS-TEL-038")
def rate_consistency(run: RunView) -> Iterator[Violation]:
    """The token rate is the growth of the token count, and the sample count grows by the batch size in each update."""
    refuse_snapshot(run)
    yield from damaged(run, "TS-TEL-038")
    rate, tokens = (run.job.get(RATE), _tokens(run)) if has_times(run) else (None, None)
    samples, batch = run.job.get(SAMPLES), run.job.get(BATCH)
    judged = False
    for span in run.attempts:
        for answer in _work_of_an_update(run, span):
            judged = True
            yield from answer
        if rate is not None and tokens is not None:
            for answer in _rate_against_count(span, rate, tokens, evaluations(run)):
                judged = True
                yield from answer
        for answer in _sample_rate(run, span) if has_times(run) else ():
            judged = True
            yield from answer
        if samples is not None and batch is not None:
            for answer in _samples_against_batch(span, samples, batch, report_interval(run, span.number)):
                judged = True
                yield from answer
    if not judged:
        raise NotApplicable(
            f"neither {RATE} with {TOKENS} or {DURATION}, nor {SAMPLES} with {BATCH}, over three reports"
        )


def _work_of_an_update(run: RunView, span: AttemptSpan) -> Iterator[list[Violation]]:
    """Rates times the time of a step, which change by a unit within an attempt; nothing where there are too few."""
    duration = run.job.get(DURATION)
    for series in filter(None, (run.job.get(RATE), run.job.get(SAMPLE_RATE))):
        mine = of_attempt(series, span.number)
        if duration is not None and series.key.metric == RATE:
            theirs = of_attempt(duration, span.number)
            _, here, there = np.intersect1d(series.time_us[mine], duration.time_us[theirs], return_indices=True)
            seconds, what = np.asarray(duration.value[theirs])[there], DURATION
        elif has_times(run) and duration is None:
            here, what = np.arange(1, len(series.time_us[mine])), "the time of a step"
            steps = np.asarray(series.step[mine])
            updates = np.where((steps[:-1] >= 0) & (np.diff(steps) > 0), np.diff(steps), np.nan)
            seconds = np.diff(series.time_us[mine]) / 1e6 / updates
        else:
            continue
        work = np.asarray(series.value[mine])[here] * seconds
        usable = np.isfinite(work) & (work > 0)
        here, work = here[usable], work[usable]
        if len(work) >= 2 * FEWEST_RATES:
            yield list(_other_units(series, mine.start + here, work, what))


def _other_units(series: JobSeries, places: Any, work: Any, what: str) -> Iterator[Violation]:
    """The first reports in a row in which the work of a step is another by a unit than in most of an attempt."""
    usual = float(np.median(work))
    apart = np.abs(np.log10(work / usual)) >= UNIT_DIGITS
    for begin, end in stretches(apart, FEWEST_RATES):
        first, last = int(places[begin]), int(places[end - 1])
        unit = series.key.metric.split(".")[1]
        step = int(series.step[first])
        where = f" from step {step:,} on" if step >= 0 else ""
        message = (
            f"{series.key} times {what} is {number(float(work[begin]))} {unit}s in {end - begin:,} reports{where}, "
            f"and {number(usual)} in most others"
        )
        times = int(series.time_us[first]), int(series.time_us[last])
        help_text = "write rates per second and times in seconds in every report"
        yield Violation(series.location(first), message, help_text, Evidence(str(series.key), "", *times, end - begin))
        return


def _tokens(run: RunView) -> JobSeries | None:
    """The count with padding, which the rate is of."""
    return run.job.get(f"{TOKENS}{{train.token.kind=all}}") or run.job.get(TOKENS)


def _rate_against_count(
    span: AttemptSpan, rate: JobSeries, tokens: JobSeries, pauses: Pauses
) -> Iterator[list[Violation]]:
    """What the rates add up to over their windows against the growth of the count; nothing where there are too few."""
    mine = of_attempt(rate, span.number)
    times = rate.time_us[mine]
    grown = np.diff(at_times(tokens, span.number, times))
    claimed = rate.value[mine][1:] * np.diff(times) / 1e6
    usable = np.isfinite(grown) & np.isfinite(claimed) & (pauses.covered_us(times[:-1], times[1:]) == 0)
    if usable.sum() < 2:
        return
    total, counted = float(claimed[usable].sum()), float(grown[usable].sum())
    if abs(total - counted) <= TOLERANCE * max(total, counted):
        yield []
        return
    worst = int(np.argmax(np.where(usable, np.abs(claimed - grown), -1)))
    ratio = number(total / counted) if counted else "without bound"
    yield [
        Violation(
            rate.location(mine.start + worst + 1),
            f"{RATE} adds up to {number(total)} tokens, and {TOKENS} grows by {number(counted)}: a ratio of {ratio}",
            "the rate is tokens of all ranks, padding included, over the wall-clock time of its window",
            Evidence(RATE, "", int(times[0]), int(times[-1]), int(usable.sum())),
        )
    ]


def _sample_rate(run: RunView, span: AttemptSpan) -> Iterator[list[Violation]]:
    """What rates of samples add up to against the growth of their count; some programs train while they evaluate."""
    rate, samples = run.job.get(SAMPLE_RATE), run.job.get(SAMPLES)
    if rate is None or samples is None:
        return
    mine = of_attempt(rate, span.number)
    times = rate.time_us[mine]
    grown = np.diff(at_times(samples, span.number, times))
    seconds = np.diff(times) / 1e6
    trained = evaluations(run).left_us(times[:-1], times[1:]) / 1e6
    usable = np.isfinite(grown) & np.isfinite(rate.value[mine][1:]) & (grown > 0) & (trained > 0)
    if usable.sum() < FEWEST_RATES:
        return
    rates = rate.value[mine][1:][usable]
    least, most = (float(np.median(rates * time[usable] / grown[usable])) for time in (trained, seconds))
    if least <= RATE_FACTOR and most >= 1 / RATE_FACTOR:
        yield []
        return
    first = int(np.flatnonzero(usable)[0])
    yield [
        Violation(
            rate.location(mine.start + first + 1),
            f"{SAMPLE_RATE} is {number(float(rates[0]))}, and {SAMPLES} grows by {number(float(grown[first]))} in "
            f"{seconds_in_words(float(seconds[first]))}, {seconds_in_words(float(trained[first]))} of it without "
            f"evaluations: a ratio of {number(least if least > RATE_FACTOR else most)} in {usable.sum():,} reports",
            "the rate is samples of the whole job per second of training",
            Evidence(SAMPLE_RATE, "", int(times[0]), int(times[-1]), int(usable.sum())),
        )
    ]


def _samples_against_batch(
    span: AttemptSpan, samples: JobSeries, batch: JobSeries, interval: int
) -> Iterator[list[Violation]]:
    """The growth of the sample count against batch size times optimizer steps; nothing where there are too few."""
    mine = of_attempt(samples, span.number)
    times, steps = samples.time_us[mine], samples.step[mine]
    size = held_at(batch, span.number, times)
    updates = np.diff(steps)
    constant = (size[1:] == size[:-1]) & (updates > 0) & (updates <= interval) & (steps[:-1] >= 0)
    if constant.sum() < 2:
        return
    grown, claimed = np.diff(finite(samples.value[mine])), updates * size[1:]
    wrong = np.flatnonzero(constant & (np.abs(grown - claimed) > TOLERANCE * np.maximum(np.abs(claimed), size[1:])))
    if not len(wrong):
        yield []
        return
    first = int(wrong[0])
    yield [
        Violation(
            samples.location(mine.start + first + 1),
            f"{SAMPLES} grows by {number(float(grown[first]))} in {int(updates[first]):,} optimizer steps of "
            f"{number(float(size[first]))} samples, which are {number(float(claimed[first]))}",
            "count the samples of completed steps over all data ranks, and write a new batch size before its first",
            Evidence(SAMPLES, "", int(times[first]), int(times[int(wrong[-1]) + 1]), len(wrong)),
        )
    ]


# --- utilisation --------------------------------------------------------------------------------------------


@check("TS-TEL-039")
def utilisation_consistency(run: RunView) -> Iterator[Violation]:
    """Model utilisation follows from token rate, operations per token and peak, and hardware utilisation is no less."""
    model = require(run.job.get(MODEL), f"no {MODEL}")
    found: list[Violation] = []
    judged = False
    for span in run.attempts:
        for answer in (*_against_rate(run, span, model), *_against_hardware(run, span, model)):
            judged = True
            found += answer
    if not judged:
        raise NotApplicable(f"no {RATE} with declared peak, operations per token and world size, and no {HARDWARE}")
    yield from few(found)


def _declared(run: RunView, span: AttemptSpan, attribute: str) -> float | None:
    for value, head in run.declared(attribute):
        if head.record.att == span.number and isinstance(value, (int, float)) and value > 0:
            return float(value)
    return None


def _num_accelerators(run: RunView, span: AttemptSpan) -> list[int]:
    """What the accelerators of an attempt can be: devices of its ranks, or those that ranks name if there are fewer."""
    size = (span.world_size or 0) * num_devices_per_rank(run, span.number)
    devices = {p.device for p in run.placements if p.attempt == span.number and p.device is not None}
    named = [len(devices)] if 0 < len(devices) < (span.world_size or 0) else []
    return [size, *named] if size else []


def _against_rate(run: RunView, span: AttemptSpan, model: JobSeries) -> Iterator[list[Violation]]:
    rate = run.job.get(RATE)
    peak, cost = (_declared(run, span, f"train.flops.{name}") for name in ("peak", "per_token"))
    mine = of_attempt(model, span.number)
    if rate is None or peak is None or cost is None or mine.start == mine.stop:
        return
    _, here, there = np.intersect1d(
        model.time_us[mine], rate.time_us[of_attempt(rate, span.number)], return_indices=True
    )
    values = model.value[mine][here]
    work = rate.value[of_attempt(rate, span.number)][there] * cost / peak
    known = np.isfinite(values) & np.isfinite(work)
    sizes = _num_accelerators(run, span)
    if not known.any() or not sizes:
        return
    wrong = [np.flatnonzero(known & ~_agree(values, work / size)) for size in sizes]
    if any(not len(places) for places in wrong):
        yield []
        return
    first = int(wrong[0][0])
    yield [
        Violation(
            model.location(mine.start + int(here[first])),
            f"{MODEL} is {number(float(values[first]))}, and {RATE} with the declared operations and peak gives "
            f"{number(float(work[first] / sizes[0]))} on {sizes[0]:,} accelerators",
            "use the rate of the whole job, the dense peak of one accelerator, and all accelerators, idle ones too",
            Evidence(MODEL, "", int(model.time_us[mine][here[first]]), None, len(wrong[0])),
        )
    ]


def _agree(one: Any, other: Any) -> Any:
    return np.abs(one - other) <= np.maximum(TOLERANCE * np.maximum(one, other), ROUNDING)


def _against_hardware(run: RunView, span: AttemptSpan, model: JobSeries) -> Iterator[list[Violation]]:
    hardware = run.job.get(HARDWARE)
    if hardware is None:
        return
    mine, other = of_attempt(model, span.number), of_attempt(hardware, span.number)
    _, here, there = np.intersect1d(model.time_us[mine], hardware.time_us[other], return_indices=True)
    if not len(here):
        return
    values, counted = model.value[mine][here], hardware.value[other][there]
    wrong = np.flatnonzero((counted < values) & ~_agree(values, counted))
    if not len(wrong):
        yield []
        return
    first = int(wrong[0])
    yield [
        Violation(
            hardware.location(other.start + int(there[first])),
            f"{HARDWARE} is {number(float(counted[first]))}, below the model utilisation of "
            f"{number(float(values[first]))}",
            "operations that recomputation repeats come on top of those of the model",
            Evidence(HARDWARE, count=len(wrong)),
        )
    ]
