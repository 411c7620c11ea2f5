"""Checks a run against its plan: batch, tokens of a step, and learning rate of a ramp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.model.finding import Evidence
from trainspec_validate.performance.costs.learning_rate import factor_bounds
from trainspec_validate.performance.derived.plan import stage_tokens
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._schedule import TOKENS, Positions, positions, schedule_of
from trainspec_validate.telemetry.checks._words import few, number
from trainspec_validate.telemetry.view.run_view import JobSeries

BATCH, RATE = "train.batch.size", "train.learning_rate"
RATE_TOLERANCE = 0.05
"""Share by which warm-up and decay can move the rate between two updates."""
EXACT = 1e-9


@check("TS-TEL-063")
def batch_as_planned(run: RunView, plan: TrainingPlan) -> Iterator[Violation]:
    """The samples of a step are those of the plan at that position, or within what its controller may choose."""
    series = run.job.get(BATCH)
    if series is None or not len(series):
        raise NotApplicable(f"no {BATCH} in the run")
    sizes = np.asarray(series.value)
    low, high = _batch_bounds(run, plan, series)
    found = []
    for index in np.flatnonzero(np.isfinite(sizes) & ((sizes < low) | (sizes > high))).tolist():
        said = number(low[index]) if low[index] == high[index] else f"{number(low[index])} to {number(high[index])}"
        message = f"an optimizer step has {number(sizes[index])} training samples, but the plan says {said}"
        help_text = "the batch is micro-batch times accumulation steps times data ranks"
        found.append(Violation(series.location(index), message, help_text, Evidence(BATCH)))
    yield from few(found)


def _batch_bounds(run: RunView, plan: TrainingPlan, series: JobSeries) -> tuple[Any, Any]:
    """Least and most training samples for each value."""
    controller = plan.batch.controller
    if controller is not None:
        bounds = controller.min_global_sequences, controller.max_global_sequences
        return np.full(len(series), float(bounds[0])), np.full(len(series), float(bounds[1]))
    schedule, read = schedule_of(plan), positions(run)
    low, high = schedule.sequences_near(np.full(len(series), np.nan) if read is None else read.along(series))
    return low * (1 - schedule.slack), high * (1 + schedule.slack)


@check("TS-TEL-064")
def tokens_as_planned(run: RunView, plan: TrainingPlan) -> Iterator[Violation]:
    """An optimizer step reads the tokens that the plan gives it."""
    series, schedule = run.job.get(TOKENS), schedule_of(plan)
    if plan.batch.controller is not None or schedule.tokens is None:
        raise NotApplicable("the plan does not say how many tokens a step has, or leaves it to a controller")
    if series is None or len(series) < 2:
        raise NotApplicable(f"no two values of {TOKENS} in the run")
    steps, values = np.asarray(series.step), np.asarray(series.value)
    with np.errstate(invalid="ignore"):
        grown, moved = np.diff(values), np.diff(steps)
    judged = np.flatnonzero((np.diff(series.attempt) == 0) & (moved > 0) & (steps[:-1] >= 0))
    if not len(judged):
        raise NotApplicable(f"{TOKENS} has no two values with a step in one attempt")
    begin, end = schedule.tokens_at(values[judged]), schedule.tokens_at(values[judged + 1])
    end = np.where(moved[judged] == 1, begin, end)
    each, slack = grown[judged] / moved[judged], max(EXACT, schedule.slack)
    low = np.zeros_like(each) if plan.batch.variable_length else np.minimum(begin, end) * (1 - slack)
    high = np.maximum(begin, end) * (1 + slack)
    wrong = np.flatnonzero(np.isfinite(each) & ((each < low) | (each > high)))
    yield from few(
        Violation(
            series.location(int(judged[index]) + 1),
            f"step {int(steps[judged[index] + 1]):,} reads {number(each[index])} tokens, but the plan says "
            f"{'at most ' if plan.batch.variable_length else ''}{number(begin[index])}",
            "tokens are the training samples of the step times their length, padding included",
            Evidence(TOKENS),
        )
        for index in wrong.tolist()
    )


@check("TS-TEL-065")
def learning_rate_as_planned(run: RunView, plan: TrainingPlan) -> Iterator[Violation]:
    """Where a ramp changes the batch, the learning rate changes by the factor of the plan."""
    ramp, read = plan.batch.ramp, positions(run)
    if len(ramp) < 2:
        raise NotApplicable("the batch of the plan has no ramp; TS-TEL-089 compares the rate with its schedule")
    if read is None:
        raise NotApplicable(f"no {TOKENS} in the run")
    judged, found = False, []
    for index in range(1, len(ramp)):
        low, high = _factors(plan, index)
        if ramp[index - 1].transition == "linear":
            continue
        for series in (series for series in run.job.values() if series.key.metric == RATE):
            for pair in _around(read, series, float(ramp[index].from_tokens)):
                judged = True
                before, after = float(series.value[pair[0]]), float(series.value[pair[1]])
                if not low * (1 - RATE_TOLERANCE) <= after / before <= high * (1 + RATE_TOLERANCE):
                    found.append(_wrong_rate(series, pair, index, low, high))
    if not judged:
        raise NotApplicable(f"no {RATE} before and after the beginning of a stage of the ramp")
    yield from few(found)


def _wrong_rate(series: JobSeries, pair: tuple[int, int], index: int, low: float, high: float) -> Violation:
    before, after = float(series.value[pair[0]]), float(series.value[pair[1]])
    said = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    message = (
        f"{series.key} changes by a factor of {after / before:.4g} where stage {index + 1} of the ramp "
        f"begins, but the plan says {said}"
    )
    evidence = Evidence(str(series.key), samples=(f"{before:g}", f"{after:g}"))
    related = ((series.location(pair[0]), "the rate before"),)
    return Violation(series.location(pair[1]), message, f"the rate after it is {before * low:.4g}", evidence, related)


def _factors(plan: TrainingPlan, index: int) -> tuple[float, float]:
    """Least and most factor of the rate from the stage before to this one."""
    before, stage = plan.batch.ramp[index - 1], plan.batch.ramp[index]
    rule = plan.batch.learning_rate.rule if plan.batch.learning_rate else "none"
    if stage.learning_rate_factor is not None or rule == "declared":
        factor = (stage.learning_rate_factor or 1.0) / (before.learning_rate_factor or 1.0)
        return factor, factor
    sizes = [stage_tokens(plan, each) or each.global_sequences for each in (before, stage)]
    return factor_bounds(rule, sizes[1] / sizes[0])


def _around(read: Positions, series: JobSeries, tokens: float) -> Iterator[tuple[int, int]]:
    """The values of the last step that begins before so many tokens and of the next one, in each attempt."""
    attempts = np.asarray(series.attempt)
    for attempt in np.unique(attempts).tolist():
        start, end = np.searchsorted(attempts, [attempt, attempt + 1]).tolist()
        known = read.after(attempt, np.asarray(series.step)[start:end])
        reached = np.flatnonzero(known >= tokens)
        if len(reached) > 1 and reached[0] > 0 and known[reached[0] - 1] < tokens:
            first = start + int(reached[0])
            if series.value[first]:
                yield first, first + 1
