"""Compares the speed that a plan states with the one that is predicted on its cluster."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.plan import Performance
from trainspec_validate.model.units import percent, seconds
from trainspec_validate.performance.derived.speed import StepTime, step_times
from trainspec_validate.performance.forecast.outlook import Outlook
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule
from trainspec_validate.rules._forecast import FASTEST, SLOWEST, timed_prediction_of

CONTRADICTION = 0.1
"""Difference of two figures of speed from which neither is held against a prediction."""


def _stated(plan: TrainingPlan, performance: Performance) -> StepTime:
    """The step that a plan states, by whichever figure of speed.

    Raises:
        NotApplicable: it states none, took it from a publication, or contradicts itself.
    """
    times = list(step_times(plan))
    if not times or performance.kind == "published":
        raise NotApplicable("no predicted or measured time of a step is stated")
    first = times[0]
    if any(first.apart(other, CONTRADICTION) for other in times):
        raise NotApplicable(f"the time of a step by {first.key} contradicts another figure of speed")
    return first


@rule("TS-PAR-035")
def predicted_step(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A step that was predicted or measured takes about as long as the model says."""
    performance = require(plan.performance, "the plan gives no performance figures")
    step = _stated(plan, performance)
    outlook = timed_prediction_of(plan, cluster).outlook
    low, high = outlook.step.seconds * FASTEST, outlook.step.seconds * SLOWEST
    if not low <= step.high or not step.low <= high:
        told = seconds(step.low) if step.seconds else f"{seconds(step.low)} to {seconds(step.high)}"
        yield Violation(
            at(plan, "performance", step.key),
            f"a step of {told} is {performance.kind}, but {seconds(outlook.step.seconds)} is what the models "
            f"expect: {_parts(outlook)}",
            f"expected {seconds(low)} to {seconds(high)}; {_advice(outlook, slow=step.low > high)}",
        )


def _times(outlook: Outlook) -> dict[str, float]:
    step = outlook.step
    times = {"computation": step.compute_seconds, "idle stages": step.bubble_seconds}
    times |= {f"waiting for {axis} ranks": part for axis, part in step.exposed_seconds.items()}
    return times | {"optimizer": step.optimizer_seconds, "input": step.data_stall_seconds}


def _parts(outlook: Outlook) -> str:
    return ", ".join(f"{what} {seconds(time)}" for what, time in _times(outlook).items() if time > 0)


def _advice(outlook: Outlook, *, slow: bool) -> str:
    if not slow:
        return f"a utilisation of {percent(outlook.utilisation)} is predicted, so check units and degrees"
    beside = {what: time for what, time in _times(outlook).items() if what != "computation"}
    worst = max(beside, key=lambda what: beside[what])
    return f"profile one step; after computation {worst} takes most"
