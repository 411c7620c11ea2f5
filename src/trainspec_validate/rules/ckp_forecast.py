"""Compares the step time of a checkpoint policy with the time that is predicted for its plan."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.units import base, number, seconds
from trainspec_validate.performance.derived.machine import step_seconds
from trainspec_validate.rules import NotApplicable, Violation, at, rule
from trainspec_validate.rules._forecast import FASTEST, SLOWEST, timed_prediction_of


@rule("TS-CKP-062")
def step_predicted(checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Where the plan states no step time, that of the policy is about the predicted one."""
    step = checkpoint.interval.step_seconds
    if step is None or step_seconds(plan) is not None:
        raise NotApplicable("the policy states no step time, or the plan states one")
    predicted = timed_prediction_of(plan, cluster).outlook.step.seconds
    if not FASTEST * predicted <= step <= SLOWEST * predicted:
        spacing = checkpoint.interval.steps
        real = f": {number(spacing)} steps are {seconds(spacing * predicted)}" if spacing else ""
        yield Violation(
            at(checkpoint, "interval", "step_seconds"),
            f"a step is said to take {seconds(step)}, but {seconds(predicted)} is predicted{real}",
            f"between {base(FASTEST * predicted)} and {base(SLOWEST * predicted)} s",
            related=((at(plan, "parallelism"), "the layout of the plan"),),
        )


@rule("TS-CKP-063")
def first_step_predicted(
    checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile
) -> Iterator[Violation]:
    """Where no step time is stated, the first step after a recovery takes as long as a step is predicted to."""
    if checkpoint.interval.step_seconds is not None:
        raise NotApplicable("the policy states the time of a step")
    if not checkpoint.recovery:
        raise NotApplicable("the policy has no way back")
    predicted = timed_prediction_of(plan, cluster).outlook.step.seconds
    for index, path in enumerate(checkpoint.recovery):
        if path.first_step_seconds < FASTEST * predicted:
            short = predicted - path.first_step_seconds
            yield Violation(
                at(checkpoint, "recovery", index, "first_step_seconds"),
                f"the first step after {path.fault} takes {seconds(path.first_step_seconds)}, but a step is predicted "
                f"to take {seconds(predicted)}",
                f"{seconds(predicted)} or more, compilation included; a budget of {seconds(path.budget_seconds)} then "
                f"grows to {base(path.budget_seconds + short)} s",
            )
