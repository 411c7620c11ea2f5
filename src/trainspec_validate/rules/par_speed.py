"""Rules on the operations per second that a stated speed takes, against what an accelerator does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.model.units import billions, flops_per_second, number, percent, seconds
from trainspec_validate.performance.derived.groups import spanned
from trainspec_validate.performance.derived.plan import tokens_per_step
from trainspec_validate.performance.derived.speed import (
    BY_PARAMETERS,
    StepTime,
    least_flops_per_second,
    most_flops_per_second,
    most_flops_per_token,
    peak_of_rank,
    stated_flops_per_second,
    step_time,
    visited_parameters,
)
from trainspec_validate.rules import NotApplicable, Place, Uncovered, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._groups import check_group

FORWARD_FLOPS, FULL_FLOPS = 2, 6
"""Operations of one token and parameter in the forward pass, and in both."""
LEAST_FLOPS, MOST_FLOPS = 1e12, 2e16
"""Operations per second of one rank: a hundredth of an accelerator of 2017, and above any dense peak of 2026."""
LEAST_SHARE, MOST_SHARE = 0.02, 0.8
"""Of the peak: a fifth of the slowest and an eighth more than the fastest of published runs, 0.106 and 0.715."""


@rule("TS-PAR-034")
def possible_speed(plan: TrainingPlan) -> Iterator[Violation]:
    """The forward pass of the tokens of a second takes no more operations than the peak."""
    speed, performance = _speed(plan), plan.performance
    peak = require(performance.peak_flops_per_second if performance else None, "the plan states no peak")
    if speed.forward_flops > peak:
        yield speed.wrong(plan, f"at most {flops_per_second(peak)} for the forward pass is possible")


@rule("TS-PAR-041")
def plausible_speed(plan: TrainingPlan) -> Iterator[Violation]:
    """The operations that the tokens of a second take are those of an accelerator that trains."""
    speed, performance = _speed(plan), plan.performance
    stated = performance.peak_flops_per_second if performance else None
    if speed.most_flops < LEAST_FLOPS or (stated is None and speed.forward_flops > MOST_FLOPS):
        told = (
            f"{flops_per_second(LEAST_FLOPS)} in all to {flops_per_second(stated or MOST_FLOPS)} forward is plausible"
        )
        yield speed.wrong(plan, told)


@rule("TS-PAR-042")
def speed_within_peak(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A rank does no more operations than its accelerator can."""
    above = list(_stated_above_peak(plan, cluster))
    if above:
        yield from above
        return
    step, done, peak = _done(plan, cluster)
    if done > peak:
        wanted = step.high * done / peak
        yield Violation(
            at(plan, "performance", step.key),
            f"a step of {_told(step)} takes {flops_per_second(done)} of each rank, "
            f"{percent(done / peak)} of the peak of {flops_per_second(peak)}",
            f"a step takes at least {seconds(wanted)}, more with any loss; check units and counts",
            related=_accelerators(plan, cluster),
        )


def _stated_above_peak(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A stated rate of operations, which needs no step time."""
    check_group(plan, cluster)
    stated, peak = stated_flops_per_second(plan), peak_of_rank(plan, cluster)
    if stated is None or peak is None:
        return
    key, done = stated
    if done > peak:
        yield Violation(
            at(plan, "performance", key),
            f"{key} takes {flops_per_second(done)} or more of each rank, {percent(done / peak)} of the peak of "
            f"{flops_per_second(peak)}",
            "at most the dense peak; check units, counts and the number format",
            related=_accelerators(plan, cluster),
        )


@rule("TS-PAR-043")
def plausible_utilisation(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A rank does about as much of the peak as in runs that were published."""
    step, done, peak = _done(plan, cluster)
    if step.key.endswith("_utilisation"):
        raise NotApplicable("the speed is a utilisation, which another requirement judges")
    most = max(done, most_flops_per_second(plan) or 0.0)
    # The requirement on the lower bound of throughput reports less.
    told = most < LEAST_FLOPS and plan.model.family in BY_PARAMETERS
    is_slow, is_fast = most < LEAST_SHARE * peak, done > MOST_SHARE * peak
    if told or not (is_slow or is_fast) or done > peak:
        return
    counted, share = ("at most ", most) if is_slow and most > done else ("", done)
    yield Violation(
        at(plan, "performance", step.key),
        f"a step of {_told(step)} takes {counted}{flops_per_second(share)} of each rank, "
        f"{percent(share / peak)} of the peak of {flops_per_second(peak)}",
        f"{percent(LEAST_SHARE)} to {percent(MOST_SHARE)} is plausible: a step of "
        f"{seconds(step.high * done / peak / MOST_SHARE)} to {seconds(step.high * most / peak / LEAST_SHARE)}",
        related=_accelerators(plan, cluster),
    )


@rule("TS-PAR-052")
def utilisation_range(plan: TrainingPlan) -> Iterator[Violation]:
    """A stated utilisation is one that published runs reach."""
    performance, judged = plan.performance, False
    for key in ("model_flops_utilisation", "hardware_flops_utilisation"):
        share = getattr(performance, key, None)
        if share is None:
            continue
        judged = True
        if not LEAST_SHARE <= share <= MOST_SHARE:
            yield Violation(
                at(plan, "performance", key),
                f"a utilisation of {percent(share)}, where published runs reach 10.6 % to 71.5 %",
                f"{percent(LEAST_SHARE)} to {percent(MOST_SHARE)} is plausible: check the peak, units and counts",
            )
    if not judged:
        raise NotApplicable("the plan gives no utilisation")


def _accelerators(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[tuple[Place, str], ...]:
    several = spanned(plan, cluster)
    ranks = ", whose slowest ranks hold up all that do equal work" if len(several) > 1 else ""
    return ((at(cluster, "node_groups"), f"accelerators of the job{ranks}"),)


def _told(step: StepTime) -> str:
    if step.seconds is None:
        return f"{seconds(step.low)} to {seconds(step.high)}, by {step.key},"
    return seconds(step.seconds) + ("" if step.key == "step_seconds" else f", by {step.key},")


def _done(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[StepTime, float, float]:
    """The step, the operations per second of a rank, and its peak.

    Raises:
        NotApplicable: the plan gives no speed.
        Unresolved: operations or peak are not known.
    """
    check_group(plan, cluster)
    step, done, peak = step_time(plan), least_flops_per_second(plan), peak_of_rank(plan, cluster)
    if step is None:
        raise NotApplicable("the plan gives no speed")
    if done is None or peak is None:
        what = "operations of a step are not counted" if done is None else "peak in its format is not known"
        raise Unresolved(at(plan, "performance", step.key), f"gives a speed, but the {what}", "state it")
    return step, done, peak


@dataclass(frozen=True, slots=True)
class _Speed:
    """Tokens per second and rank of a transformer, under the key that states them."""

    key: str
    tokens_per_second: float
    active: float
    most_per_token: float
    """Operations of a token in all, attention counted in full."""

    @property
    def most_flops(self) -> float:
        return max(FULL_FLOPS * self.active, self.most_per_token) * self.tokens_per_second

    @property
    def forward_flops(self) -> float:
        return FORWARD_FLOPS * self.active * self.tokens_per_second

    def wrong(self, plan: TrainingPlan, told: str) -> Violation:
        included = ", attention included" if self.most_per_token > FULL_FLOPS * self.active else ""
        return Violation(
            at(plan, "performance", self.key),
            f"{number(self.tokens_per_second)} tokens/s and rank in a model of {billions(self.active)} parameters are "
            f"{flops_per_second(self.forward_flops)} for the forward pass alone, "
            f"{flops_per_second(self.most_flops)} in all{included}",
            told,
        )


def _speed(plan: TrainingPlan) -> _Speed:
    key, tokens_per_second = _tokens_per_second(plan)
    if plan.model.family not in BY_PARAMETERS:
        family = plan.model.family
        reason = f"gives the speed of a model of the family {family}, whose operations are not counted by parameters"
        raise Uncovered(at(plan, "model", "family"), reason)
    active = visited_parameters(plan.model)
    if active is None:
        reason = "gives a speed, but not the parameters that a token of the mixture of experts visits"
        raise Unresolved(at(plan, "model"), reason, "state model.num_active_parameters")
    return _Speed(key, tokens_per_second, active, most_flops_per_token(plan) or 0.0)


def _tokens_per_second(plan: TrainingPlan) -> tuple[str, float]:
    """Tokens per second and rank, and the key that they follow from."""
    performance, ranks = plan.performance, plan.parallelism.num_accelerators
    if performance is None:
        raise NotApplicable("the plan gives no speed")
    if performance.tokens_per_second_per_accelerator is not None:
        return "tokens_per_second_per_accelerator", performance.tokens_per_second_per_accelerator
    if performance.tokens_per_second is not None:
        return "tokens_per_second", performance.tokens_per_second / ranks
    step, tokens = step_time(plan), tokens_per_step(plan)
    if step is None or step.seconds is None or tokens is None:
        raise NotApplicable("the plan gives no tokens per second")
    return step.key, tokens / step.seconds / ranks
