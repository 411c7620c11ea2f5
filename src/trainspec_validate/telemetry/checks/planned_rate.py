"""Checks the learning rate of a run against the peak of the schedule in its plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.optimizer import LearningRateSchedule
from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.units import counted
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.view.run_view import JobSeries

RATE = "train.learning_rate"
TOLERANCE = 0.05
"""For rounded values and reports between two steps; a slipped or forgotten factor is larger."""
NEAR_PEAK = 0.02
"""Share of the steps after warm-up in which the slowest decay of a form below, a line, keeps 0.98 of the peak."""
_SLOW = frozenset({"constant", "linear", "cosine", "warmup-stable-decay"})
"""Forms that stay near the peak right after warm-up."""


@check("TS-TEL-089")
def peak_rate_as_planned(run: RunView, plan: TrainingPlan) -> Iterator[Violation]:
    """The largest learning rate is the peak of the plan; a rate below it shows only right after warm-up."""
    schedule = _schedule(plan)
    found = [series for series in run.job.values() if series.key.metric == RATE]
    if len(found) != 1:
        raise NotApplicable(f"{RATE} of several groups of parameters" if found else f"no {RATE} in the run")
    (series,) = found
    values, steps = np.asarray(series.value), np.asarray(series.step)
    above = np.flatnonzero(np.isfinite(values) & (values > schedule.peak * (1 + TOLERANCE)))
    if len(above):
        yield _differs(series, above, f"at most {schedule.peak:g}", "")
        return
    near = np.flatnonzero(np.isfinite(values) & _is_near_peak(plan, schedule, steps))
    if not len(near):
        raise NotApplicable("no report right after the warm-up of the plan, and none above its peak")
    if values[near].max() < schedule.peak * (1 - TOLERANCE):
        yield _differs(series, near, f"{schedule.peak:g}", f" after the warm-up of {schedule.warmup_steps:,} steps")


def _schedule(plan: TrainingPlan) -> LearningRateSchedule:
    optimizer = plan.optimizer
    if optimizer is None or optimizer.learning_rate is None:
        raise NotApplicable("the plan states no schedule of the learning rate")
    if optimizer.auxiliary is not None:
        raise NotApplicable("the plan has two optimizers, and one schedule")
    if len(plan.batch.ramp) > 1 or plan.batch.controller is not None:
        raise NotApplicable("the batch changes, and may change the learning rate with it")
    return optimizer.learning_rate


def _is_near_peak(plan: TrainingPlan, schedule: LearningRateSchedule, steps: np.ndarray) -> np.ndarray:
    """The reports at which the schedule has its peak; none where the plan does not state these steps."""
    begin = schedule.warmup_steps
    total = schedule.total_steps or (plan.job.num_steps if plan.job else None)
    if begin is None or total is None or schedule.kind not in _SLOW:
        return np.zeros(len(steps), bool)
    return np.asarray((steps > begin) & (steps <= begin + NEAR_PEAK * (total - begin)))


def _differs(series: JobSeries, places: np.ndarray, planned: str, where: str) -> Violation:
    first = int(places[0])
    value, step = float(series.value[first]), int(np.asarray(series.step)[first])
    at = f" of step {step:,}" if step >= 0 else ""
    more = f", and in {counted(len(places) - 1, 'more report')}" if len(places) > 1 else ""
    message = f"{series.key}{at} is {value:g}{where}, but the plan says {planned}{more}"
    samples = tuple(f"{float(series.value[int(place)]):g}" for place in places[:5])
    return Violation(
        series.location(first),
        message,
        "set the rate of the plan, or correct the plan",
        Evidence(str(series.key), samples=samples),
    )
