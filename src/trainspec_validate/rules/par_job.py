"""Rules on ceilings, data stalls and the length of a job."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.model.units import number, percent, seconds
from trainspec_validate.performance.derived.plan import stage_tokens, tokens_per_step
from trainspec_validate.performance.derived.speed import StepTime, step_time
from trainspec_validate.rules import NotApplicable, Violation, at, rule

TOKENS_TOLERANCE = 0.01
MAX_ROUNDING = 0.05
"""Share of a number that its rounding can make up; one digit says less, and no report rounds more."""
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


@rule("TS-PAR-032")
def job_tokens(plan: TrainingPlan) -> Iterator[Violation]:
    """Steps times tokens per step are the tokens of the job."""
    job, step = plan.job, tokens_per_step(plan)
    if job is None or job.num_steps is None or job.num_tokens is None or step is None:
        raise NotApplicable("the plan does not give both steps and tokens of the job")
    sizes = [step, *(tokens for stage in plan.batch.ramp if (tokens := stage_tokens(plan, stage)))]
    if plan.batch.controller:
        each = step / plan.batch.global_sequences
        sizes += [each * plan.batch.controller.min_global_sequences]
        sizes += [each * plan.batch.controller.max_global_sequences]
    low, high = job.num_steps * min(sizes), job.num_steps * max(sizes)
    slack = max(step, TOKENS_TOLERANCE * job.num_tokens, _rounding(job.num_tokens))
    if low - slack <= job.num_tokens <= high + slack:
        return
    wanted = number(low) if low == high else f"{number(low)} to {number(high)}"
    yield Violation(
        at(plan, "job", "num_tokens"),
        f"{number(job.num_steps)} steps are {wanted} tokens, but the job has {number(job.num_tokens)}",
        f"{number(job.num_tokens)} tokens take {number(job.num_tokens // step)} steps of {number(step)}",
    )


def _rounding(value: float) -> float:
    """Half a unit of the last digit of a number that is not zero, which a report may have rounded.

    >>> _rounding(15.6e12), _rounding(1e12), _rounding(83886080000)
    (50000000000.0, 50000000000.0, 5000.0)
    """
    last = Decimal(repr(value)).normalize().as_tuple().exponent
    return min(float(Decimal(10) ** int(last)) / 2, MAX_ROUNDING * value)


@rule("TS-PAR-033")
def job_duration(plan: TrainingPlan) -> Iterator[Violation]:
    """The planned time is that of the steps, with a margin for what else the job does."""
    job, step = plan.job, step_time(plan)
    if job is None or not job.planned_seconds or step is None:
        raise NotApplicable("the plan does not give steps, step time and planned time")
    steps = _steps_at(plan, step)
    low, high = steps * step.low, steps * step.high * MAX_DURATION_FACTOR
    if not 0.99 * low <= job.planned_seconds <= high:
        bare = seconds(low) if step.seconds else f"{seconds(low)} to {seconds(steps * step.high)}"
        each = seconds(step.low) if step.seconds else f"{seconds(step.low)} to {seconds(step.high)}"
        told = "" if step.key == "step_seconds" else f", by {step.key},"
        yield Violation(
            at(plan, "job", "planned_seconds"),
            f"{number(round(steps))} steps of {each}{told} take {bare}, but {seconds(job.planned_seconds)} are planned",
            f"plan {seconds(low)} to {seconds(high)}",
            related=((at(plan, "performance", step.key), "the speed"),),
        )


def _steps_at(plan: TrainingPlan, step: StepTime) -> float:
    """Steps of the job; at a speed in tokens, those of the full batch that its tokens would fill.

    Raises:
        NotApplicable: neither is stated.
    """
    job, tokens = plan.job, tokens_per_step(plan)
    grows = bool(plan.batch.ramp or plan.batch.controller)
    if job is not None and job.num_steps and (step.key == "step_seconds" or not grows):
        return job.num_steps
    if job is not None and job.num_tokens and tokens and step.key != "step_seconds":
        return job.num_tokens / tokens
    raise NotApplicable("the plan does not give steps, step time and planned time")
