"""Rules on the learning-rate schedule and on gradient clipping."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from trainspec_validate.documents.types import TrainingPlan, is_given
from trainspec_validate.documents.types.optimizer import LearningRateSchedule
from trainspec_validate.model.units import base, billions, number
from trainspec_validate.performance.derived.plan import (
    job_steps,
    job_tokens,
    stage_tokens,
    steps_of_tokens,
    tokens_per_step,
)
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule

LENGTH_TOLERANCE = 0.01
"""Relative difference of two lengths that agree, as for the tokens of a job."""
MOST_OF_JOB = 1.3
"""Published schedules are up to 1.28 times as long as the training; from 1.25 on it costs: arXiv:2203.15556."""
WITHOUT_DECAY = frozenset({"constant", "inverse-square-root"})
"""Forms that have no end: the first stays, the second falls for ever."""
NORMALISED = frozenset({"adam", "adamw", "lion"})
"""Optimizers whose update of each weight is about as large as the learning rate, whatever the gradient."""
MAX_NORMALISED_RATE = 0.1
RATE_OF_A_BILLION = 0.02
"""Largest plausible peak for a billion parameters; it falls with the root of their number, as published ones do."""
LEAST_RATE, LEAST_LONG_RATE, LONG_JOB_TOKENS = 1e-8, 5e-7, 100e9
"""About a tenth of the lowest published peaks: of any job, and of one of so many tokens that generates none of them."""
LONG_JOB_STEPS, LEAST_WARMUP_STEPS = 10_000, 10
THRESHOLDS = (1e-3, 1e3)
UNITS = ("steps", "tokens")
_SAME = 1e-9
"""Relative difference of two counts of steps that were computed."""
_TOKEN_TOLERANCE = 1.01


def _schedule(plan: TrainingPlan) -> LearningRateSchedule:
    return require(plan.optimizer.learning_rate if plan.optimizer else None, "the plan has no learning-rate schedule")


@rule("TS-BAT-033")
def schedule_length(plan: TrainingPlan) -> Iterator[Violation]:
    """The schedule is about as long as the job."""
    schedule = _schedule(plan)
    lengths = {
        "total_steps": (schedule.total_steps, job_steps(plan)),
        "total_tokens": (schedule.total_tokens, job_tokens(plan)),
    }
    judged = [(key, own, job) for key, (own, job) in lengths.items() if own and job]
    if not judged and _unit_without_total(schedule) is None:
        raise NotApplicable("the schedule states no length, or that of the job is not known")
    for key, own, job in judged:
        # A rate that has fallen to nothing trains nothing; one above it may last a while, as for GPT-3.
        least = job / MOST_OF_JOB if schedule.final else job * (1 - LENGTH_TOLERANCE)
        if not min(least, job - 1) <= own <= max(job * MOST_OF_JOB, job + 1):
            unit = key.removeprefix("total_")
            effect = "the job ends before the decay does" if own > job else "the last steps run at the final rate"
            yield Violation(
                at(plan, "optimizer", "learning_rate", key),
                f"the schedule has {number(own)} {unit}, but the job has {number(round(job))}: {effect}",
                f"set {key} to {base(round(job))}, or correct the length of the job",
                related=((at(plan, "job"), "the job"),),
            )
    yield from _in_the_job(plan, schedule)
    if schedule.kind not in {*WITHOUT_DECAY, "warmup-stable-decay"}:
        yield from _ends_early(plan, schedule)


def _ends_early(plan: TrainingPlan, schedule: LearningRateSchedule) -> Iterator[Violation]:
    """A decay right after the warm-up that is over long before the job."""
    for unit, whole in zip(UNITS, (job_steps(plan), job_tokens(plan)), strict=True):
        (warmup, decay), (other,) = (
            [getattr(schedule, f"{part}_{unit}") for part in ("warmup", "decay")],
            [getattr(schedule, f"warmup_{each}") for each in UNITS if each != unit],
        )
        if not decay or not whole or (other and not warmup):
            continue
        end = (warmup or 0) + decay
        if end < whole / MOST_OF_JOB - 1:
            yield Violation(
                at(plan, "optimizer", "learning_rate", f"decay_{unit}"),
                f"the decay is over after {number(end)} of {number(round(whole))} {unit}: "
                "the rest runs at the final rate",
                f"set decay_{unit} to {base(round(whole - (warmup or 0)))}, or name the form with a stable phase",
                related=((at(plan, "job"), "the job"),),
            )


@rule("TS-BAT-042")
def schedule_peak(plan: TrainingPlan) -> Iterator[Violation]:
    """The peak of an optimizer whose step is as long as the learning rate is far below the weights, and moves them."""
    schedule, optimizer = _schedule(plan), plan.optimizer
    if optimizer is None or optimizer.name not in NORMALISED:
        raise NotApplicable("the length of a step does not follow from the learning rate alone")
    size = min(num_trained(plan), plan.model.num_active_parameters or plan.model.num_parameters)
    most = min(MAX_NORMALISED_RATE, RATE_OF_A_BILLION * sqrt(1e9 / size))
    if schedule.peak > most:
        yield Violation(
            at(plan, "optimizer", "learning_rate", "peak"),
            f"the peak is {number(schedule.peak)}, and a step of {optimizer.name} moves each of {billions(size)} "
            "parameters by about as much",
            f"write the rate of one step; published ones run from 1e-5 to 1e-2, {most:.2g} is the most that passes "
            "for this size",
        )
    is_long = plan.rollout is None and (job_tokens(plan) or 0) >= LONG_JOB_TOKENS
    least = LEAST_LONG_RATE if is_long else LEAST_RATE
    if schedule.peak < least:
        of_job = f" in a job of {number(LONG_JOB_TOKENS)} tokens or more" if is_long else ""
        yield Violation(
            at(plan, "optimizer", "learning_rate", "peak"),
            f"the peak is {schedule.peak:.3g}, and a step of {optimizer.name} moves each parameter by about as much",
            f"write the rate of one step; published ones are {10 * least:.0e} or more{of_job}",
        )


@rule("TS-BAT-043")
def warmup_length(plan: TrainingPlan) -> Iterator[Violation]:
    """The warm-up ends before the job, and takes more than a handful of steps of a long one."""
    schedule = _schedule(plan)
    steps: float | None = schedule.warmup_steps
    key = "warmup_steps" if steps else "warmup_tokens"
    if schedule.warmup_tokens and not steps:
        steps = steps_of_tokens(plan, schedule.warmup_tokens)
    whole = max(schedule.total_steps or 0, job_steps(plan) or 0)
    if not steps or not whole:
        raise NotApplicable("no warm-up in a job whose steps are known")
    place = at(plan, "optimizer", "learning_rate", key)
    total = getattr(schedule, key.replace("warmup", "total"))
    is_told = total is not None and getattr(schedule, key) > total  # by TS-BAT-034
    if steps >= whole * (1 - _SAME) and not is_told:
        lengths = f"the warm-up takes {number(round(steps))} steps, and the job {number(round(whole))}"
        message = f"{lengths}: {'the peak is never reached' if steps > whole else 'no step follows at the peak'}"
        yield Violation(place, message, f"let the warm-up end before the job: correct {key} or the length of the job")
    elif steps < LEAST_WARMUP_STEPS and whole >= LONG_JOB_STEPS:
        yield Violation(
            place,
            f"the rate reaches its peak after {steps:.3g} of {number(round(whole))} steps",
            f"published warm-ups of such jobs take {LEAST_WARMUP_STEPS} steps or more: correct {key}, or leave it out",
        )


@rule("TS-BAT-034")
def schedule_parts(plan: TrainingPlan) -> Iterator[Violation]:
    """Warm-up and decay fit into the schedule, and the rate does not rise in its decay."""
    schedule = _schedule(plan)
    for unit in UNITS:
        warmup, decay = getattr(schedule, f"warmup_{unit}"), getattr(schedule, f"decay_{unit}")
        total = getattr(schedule, f"total_{unit}")
        parts = (warmup or 0) + (decay or 0)
        if total is not None and parts > total:
            yield Violation(
                at(plan, "optimizer", "learning_rate", f"decay_{unit}" if decay else f"warmup_{unit}"),
                f"warm-up of {number(warmup or 0)} and decay of {number(decay or 0)} {unit} are longer than the "
                f"schedule of {number(total)}",
                _room(unit, warmup or 0, decay or 0, total),
            )
    yield from _lengths(plan, schedule)
    if schedule.final is not None and schedule.final > schedule.peak:
        yield Violation(
            at(plan, "optimizer", "learning_rate", "final"),
            f"the final rate {number(schedule.final)} is above the peak {number(schedule.peak)}",
            "let the peak be the largest rate",
        )
    yield from _decay(plan, schedule)
    yield from _in_the_schedule(plan, schedule)


def _room(unit: str, warmup: float, decay: float, total: float) -> str:
    """How warm-up and decay can fit into a schedule."""
    if not decay or warmup >= total:
        return f"let both end within {number(total)} {unit}"
    counts = f"a decay counts from the end of the warm-up, so decay_{unit} is {number(total - warmup)} at most"
    return f"{counts}; lr_decay_iters of Megatron-LM counts from the first step" if decay <= total else counts


def _lengths(plan: TrainingPlan, schedule: LearningRateSchedule) -> Iterator[Violation]:
    """A length in tokens that its steps do not reach with the largest batch, or exceed with the smallest one."""
    least, most = _batch_tokens(plan)
    for part in ("warmup", "decay", "total"):
        steps, tokens = getattr(schedule, f"{part}_steps"), getattr(schedule, f"{part}_tokens")
        if steps is None or tokens is None:
            continue
        bound = ""
        if most is not None and tokens > (steps + 1) * most * _TOKEN_TOLERANCE:
            bound = f"at most {billions(steps * most)}"
        elif least is not None and tokens < (steps - 1) * least / _TOKEN_TOLERANCE:
            bound = f"at least {billions(steps * least)}"
        if bound:
            yield Violation(
                at(plan, "optimizer", "learning_rate", f"{part}_tokens"),
                f"{number(steps)} steps are {bound} tokens, not {billions(tokens)}",
                f"give one of {part}_steps and {part}_tokens, or correct the other",
            )


def _batch_tokens(plan: TrainingPlan) -> tuple[float | None, float | None]:
    """Tokens of the smallest and of the largest step of the job; None where they are not known."""
    sizes = [tokens_per_step(plan), *(stage_tokens(plan, stage) for stage in plan.batch.ramp)]
    known = [size for size in sizes if size is not None]
    if not known or plan.batch.controller or plan.batch.elastic:
        return None, None
    return min(known) if len(known) == len(sizes) else None, max(known)


def _in_the_schedule(plan: TrainingPlan, schedule: LearningRateSchedule) -> Iterator[Violation]:
    """A warm-up and a decay that are longer than a total in the other unit."""
    unit = _unit_without_total(schedule)
    least, _ = _batch_tokens(plan)
    whole = _most_steps(schedule.total_steps, schedule.total_tokens, least)
    if unit is not None and whole is not None:
        yield from _longer(plan, schedule, unit, whole, "the schedule")


def _in_the_job(plan: TrainingPlan, schedule: LearningRateSchedule) -> Iterator[Violation]:
    """A warm-up and a decay without a total that are longer than all that is known of the length of the job.

    Raises:
        Unresolved: nothing says how long the job is.
    """
    unit = _unit_without_total(schedule)
    if unit is None or schedule.total_steps or schedule.total_tokens:
        return
    least, _ = _batch_tokens(plan)
    lengths = (plan.job.num_steps, plan.job.num_tokens) if plan.job else (None, None)
    whole = _most_steps(*lengths, least)
    if whole is None:
        lacking = "no tokens of a step" if any(lengths) else "no length of the schedule or of the job"
        reason = f"gives decay_{unit}, and {lacking} to compare the decay with"
        raise Unresolved(at(plan, "optimizer", "learning_rate", f"decay_{unit}"), reason, f"add total_{unit}")
    yield from _longer(plan, schedule, unit, whole, "the job")


def _unit_without_total(schedule: LearningRateSchedule) -> str | None:
    """The unit of a decay that has no total in the same unit."""
    unit = next((unit for unit in UNITS if getattr(schedule, f"decay_{unit}") is not None), None)
    return unit if unit and getattr(schedule, f"total_{unit}") is None else None


def _longer(
    plan: TrainingPlan, schedule: LearningRateSchedule, unit: str, whole: float, of: str
) -> Iterator[Violation]:
    _, most = _batch_tokens(plan)
    parts = [_least_steps(schedule, part, most) for part in ("warmup", "decay")]
    steps = sum(part for part in parts if part is not None)
    # A job may end before its decay does; after a stable phase the decay begins where it fits before the end.
    may_outlast = of == "the job" and schedule.kind != "warmup-stable-decay"
    if steps > whole * (MOST_OF_JOB if may_outlast else 1 + LENGTH_TOLERANCE) + 1:
        yield Violation(
            at(plan, "optimizer", "learning_rate", f"decay_{unit}"),
            f"warm-up and decay take {number(round(steps))} steps one after the other, and {of} {number(round(whole))}",
            f"let both end with {of}: correct their lengths, or that of {of}; a decay that a framework counts from the "
            "first step is given without the warm-up",
        )


def _most_steps(steps: float | None, tokens: float | None, least: float | None) -> float | None:
    return steps or (tokens / least if tokens and least else None)


def _least_steps(schedule: LearningRateSchedule, part: str, most: float | None) -> float | None:
    steps, tokens = getattr(schedule, f"{part}_steps"), getattr(schedule, f"{part}_tokens")
    return steps if steps is not None else tokens / most if tokens is not None and most else None


def _decay(plan: TrainingPlan, schedule: LearningRateSchedule) -> Iterator[Violation]:
    declared = [f"decay_{unit}" for unit in UNITS if getattr(schedule, f"decay_{unit}") is not None]
    kind = at(plan, "optimizer", "learning_rate", "kind")
    given = [key for key in declared if is_given(getattr(schedule, key))]
    if schedule.kind in WITHOUT_DECAY and given:
        yield Violation(kind, f"the form is {schedule.kind}, but {given[0]} is given", f"remove {given[0]}")
    if schedule.kind == "constant" and schedule.final not in {None, schedule.peak}:
        message = (
            f"the form is constant, but the rate falls from {number(schedule.peak)} to {number(schedule.final or 0)}"
        )
        yield Violation(at(plan, "optimizer", "learning_rate", "final"), message, "remove final, or name the form")
    if schedule.kind == "warmup-stable-decay" and not declared:
        message = "the rate is constant until the decay begins, but the length of the decay is not given"
        yield Violation(kind, message, "give decay_steps or decay_tokens")


@rule("TS-BAT-035")
def clipping_scope(plan: TrainingPlan) -> Iterator[Violation]:
    """A norm that bounds gradients is that of all parameters where ranks hold parts of them."""
    clipping = plan.optimizer.clipping if plan.optimizer else None
    if clipping is None or clipping.kind == "value":
        raise NotApplicable("no norm of gradients is bounded")
    p = plan.parallelism
    parts = [
        name
        for name, split in (
            *(("tensor ranks", p.tensor > 1), ("pipeline stages", p.pipeline > 1), ("expert ranks", p.expert > 1)),
            ("shards", p.sharding in {"gradients", "parameters"}),
        )
        if split
    ]
    if clipping.kind == "local-norm" and parts:
        yield Violation(
            at(plan, "optimizer", "clipping", "kind"),
            f"each rank bounds the norm of its own part, but {' and '.join(parts)} hold different parameters",
            "set kind: global-norm, with squares summed over the ranks before the root",
        )


@rule("TS-BAT-044")
def clipping_threshold(plan: TrainingPlan) -> Iterator[Violation]:
    """A threshold clips some gradients, and not all of them to nothing."""
    clipping, (low, high) = plan.optimizer.clipping if plan.optimizer else None, THRESHOLDS
    if clipping is None:
        raise NotApplicable("the plan bounds no gradients")
    if not low <= clipping.threshold <= high:
        effect = "nothing is clipped" if clipping.threshold > high else "every gradient is clipped"
        yield Violation(
            at(plan, "optimizer", "clipping", "threshold"),
            f"at a threshold of {number(clipping.threshold)} {effect}",
            f"published thresholds run from 0.01 to 1,000, and 1.0 is usual; {low:g} to {high:g} passes"
            + ("; to clip nothing, leave clipping out" if clipping.threshold > high else ""),
        )
