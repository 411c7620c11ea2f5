"""Rules on ceilings, data stalls and the length of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.model.units import billions, flops_per_second, number, percent, seconds
from trainspec_validate.performance.derived.plan import stage_tokens, tokens_per_step
from trainspec_validate.rules import NotApplicable, Violation, at, rule

TOKENS_TOLERANCE = 0.01
FORWARD_FLOPS, FULL_FLOPS = 2, 6
"""Operations of one token and parameter in the forward pass, and in both."""
LEAST_FLOPS, MOST_FLOPS = 1e12, 2e16
"""Operations per second of one rank: a hundredth of an accelerator of 2017, and above any dense peak of 2026."""
MAX_DURATION_FACTOR = 1.25
"""Planned time over bare steps; validation, saves and start-up take the rest."""


@rule("TS-PAR-030")
def matmul_ceiling(plan: TrainingPlan) -> Iterator[Violation]:
    """No job uses more of the peak than the best matrix product measured on it."""
    performance = plan.performance
    if performance is None or performance.matmul_fraction is None:
        raise NotApplicable("the plan gives no measured matrix product")
    for key in ("model_flops_utilisation", "hardware_flops_utilisation"):
        value = getattr(performance, key)
        if value is not None and value > performance.matmul_fraction:
            yield Violation(
                at(plan, "performance", key),
                f"{key} is {percent(value)}, but the best matrix product reached "
                f"{percent(performance.matmul_fraction)} of the peak",
                "measure both in the same run, against the same peak",
            )


@rule("TS-PAR-031")
def data_stall_method(plan: TrainingPlan) -> Iterator[Violation]:
    """A data stall is found by comparison with synthetic input."""
    performance = plan.performance
    if performance is None or performance.data_stall_fraction is None:
        raise NotApplicable("the plan gives no data stall")
    if performance.data_stall_method != "differential":
        found = performance.data_stall_method or "a method that is not given"
        yield Violation(
            at(plan, "performance", "data_stall_fraction"),
            f"the data stall of {percent(performance.data_stall_fraction)} was found by {found}",
            "compare step times with real and synthetic input: data_stall_method: differential",
        )


@rule("TS-PAR-034")
def possible_speed(plan: TrainingPlan) -> Iterator[Violation]:
    """The forward pass of the tokens of a second takes no more operations than the peak."""
    speed, performance = _speed(plan), plan.performance
    peak = performance.peak_flops_per_second if performance else None
    if peak is None:
        raise NotApplicable("the plan states no peak")
    if speed.forward_flops > peak:
        yield speed.wrong(plan, f"at most {flops_per_second(peak)} for the forward pass is possible")


@rule("TS-PAR-041")
def plausible_speed(plan: TrainingPlan) -> Iterator[Violation]:
    """The operations that the tokens of a second take are those of an accelerator that trains."""
    speed, performance = _speed(plan), plan.performance
    stated = performance.peak_flops_per_second if performance else None
    if FULL_FLOPS / FORWARD_FLOPS * speed.forward_flops < LEAST_FLOPS or (
        stated is None and speed.forward_flops > MOST_FLOPS
    ):
        told = (
            f"{flops_per_second(LEAST_FLOPS)} in all to {flops_per_second(stated or MOST_FLOPS)} forward is plausible"
        )
        yield speed.wrong(plan, told)


@dataclass(frozen=True, slots=True)
class _Speed:
    """Tokens per second and rank of a transformer, under the key that states them."""

    key: str
    tokens_per_second: float
    active: float

    @property
    def forward_flops(self) -> float:
        return FORWARD_FLOPS * self.active * self.tokens_per_second

    def wrong(self, plan: TrainingPlan, told: str) -> Violation:
        whole = FULL_FLOPS / FORWARD_FLOPS * self.forward_flops
        return Violation(
            at(plan, "performance", self.key),
            f"{number(self.tokens_per_second)} tokens/s and rank in a model of {billions(self.active)} parameters are "
            f"{flops_per_second(self.forward_flops)} for the forward pass alone, {flops_per_second(whole)} in all",
            told,
        )


def _speed(plan: TrainingPlan) -> _Speed:
    performance, model = plan.performance, plan.model
    if performance is None or model.family not in {"dense-transformer", "moe-transformer"}:
        raise NotApplicable("the plan gives no speed of a transformer")
    active = model.num_active_parameters or model.num_parameters
    if performance.tokens_per_second_per_accelerator is not None:
        return _Speed("tokens_per_second_per_accelerator", performance.tokens_per_second_per_accelerator, active)
    if performance.tokens_per_second is None:
        raise NotApplicable("the plan gives no tokens per second")
    each = performance.tokens_per_second / plan.parallelism.num_accelerators
    return _Speed("tokens_per_second", each, active)


@rule("TS-PAR-032")
def job_tokens(plan: TrainingPlan) -> Iterator[Violation]:
    """Steps times tokens per step are the tokens of the job."""
    job, step = plan.job, tokens_per_step(plan)
    if job is None or not job.num_steps or not job.num_tokens or step is None:
        raise NotApplicable("the plan does not give both steps and tokens of the job")
    sizes = [step, *(tokens for stage in plan.batch.ramp if (tokens := stage_tokens(plan, stage)))]
    if plan.batch.controller:
        each = step / plan.batch.global_sequences
        sizes += [each * plan.batch.controller.min_global_sequences]
        sizes += [each * plan.batch.controller.max_global_sequences]
    low, high = job.num_steps * min(sizes), job.num_steps * max(sizes)
    slack = max(step, TOKENS_TOLERANCE * job.num_tokens)
    if low - slack <= job.num_tokens <= high + slack:
        return
    wanted = number(low) if low == high else f"{number(low)} to {number(high)}"
    yield Violation(
        at(plan, "job", "num_tokens"),
        f"{number(job.num_steps)} steps are {wanted} tokens, but the job has {number(job.num_tokens)}",
        f"{number(job.num_tokens)} tokens take {number(job.num_tokens // step)} steps of {number(step)}",
    )


@rule("TS-PAR-033")
def job_duration(plan: TrainingPlan) -> Iterator[Violation]:
    """The planned time is that of the steps, with a margin for what else the job does."""
    job, performance = plan.job, plan.performance
    step = performance.step_seconds if performance else None
    if job is None or not job.num_steps or not job.planned_seconds or step is None:
        raise NotApplicable("the plan does not give steps, step time and planned time")
    bare = job.num_steps * step
    if not 0.99 * bare <= job.planned_seconds <= MAX_DURATION_FACTOR * bare:
        yield Violation(
            at(plan, "job", "planned_seconds"),
            f"{number(job.num_steps)} steps of {seconds(step)} take {seconds(bare)}, "
            f"but {seconds(job.planned_seconds)} are planned",
            f"plan {seconds(bare)} to {seconds(MAX_DURATION_FACTOR * bare)}",
        )
