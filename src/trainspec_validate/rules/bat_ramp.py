"""Rules on batch ramps and the learning rate that follows them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import sqrt

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.batch import BatchStage
from trainspec_validate.model.units import number
from trainspec_validate.performance.derived.plan import stage_tokens
from trainspec_validate.rules import NotApplicable, Violation, at, rule

FACTOR_TOLERANCE = 1e-6


def _ramp(plan: TrainingPlan) -> tuple[BatchStage, ...]:
    if not plan.batch.ramp:
        raise NotApplicable("the batch has no ramp")
    return plan.batch.ramp


@rule("TS-BAT-007")
def ramp_order(plan: TrainingPlan) -> Iterator[Violation]:
    """A ramp begins at the first token and goes forward to a point inside the job."""
    ramp = _ramp(plan)
    if ramp[0].from_tokens != 0:
        yield Violation(
            at(plan, "batch", "ramp", 0, "from_tokens"),
            f"the first stage begins at {number(ramp[0].from_tokens)} tokens; what comes before is undefined",
            "let the first stage begin at 0",
        )
    for position, (before, stage) in enumerate(pairwise(ramp), start=1):
        if stage.from_tokens <= before.from_tokens:
            yield Violation(
                at(plan, "batch", "ramp", position, "from_tokens"),
                f"this stage begins at {number(stage.from_tokens)} tokens, "
                f"the one before it at {number(before.from_tokens)}",
                "order the stages by from_tokens",
            )
            continue
        step = stage_tokens(plan, before)
        if step and stage.from_tokens - before.from_tokens < step:
            yield Violation(
                at(plan, "batch", "ramp", position, "from_tokens"),
                f"the stage before lasts {number(stage.from_tokens - before.from_tokens)} tokens, "
                f"less than its step of {number(step)}",
                f"let this stage begin at {number(before.from_tokens + step)} tokens or later",
            )
    total = plan.job.num_tokens if plan.job else None
    if total and ramp[-1].from_tokens >= total:
        yield Violation(
            at(plan, "batch", "ramp", len(ramp) - 1, "from_tokens"),
            f"the last stage begins at {number(ramp[-1].from_tokens)} tokens, but the job ends at {number(total)}",
            "drop the stages that are never reached, or correct the boundary",
        )


@rule("TS-BAT-008")
def ramp_growth(plan: TrainingPlan) -> Iterator[Violation]:
    """A ramp grows."""
    ramp = _ramp(plan)
    if len(ramp) < 2:
        raise NotApplicable("the ramp has one stage")
    for position, (before, stage) in enumerate(pairwise(ramp), start=1):
        small, large = stage_tokens(plan, before), stage_tokens(plan, stage)
        if small and large and large < small:
            yield Violation(
                at(plan, "batch", "ramp", position, "global_sequences"),
                f"the batch shrinks from {number(small)} to {number(large)} tokens",
                "order the stages so that the batch grows",
            )


@rule("TS-BAT-009")
def ramp_end(plan: TrainingPlan) -> Iterator[Violation]:
    """The last stage of a ramp is the batch of the plan."""
    ramp, b = _ramp(plan), plan.batch
    last, position = ramp[-1], len(ramp) - 1
    if last.global_sequences != b.global_sequences:
        yield Violation(
            at(plan, "batch", "ramp", position, "global_sequences"),
            f"the ramp ends at {number(last.global_sequences)} sequences, "
            f"but the batch has {number(b.global_sequences)}",
            f"end at {b.global_sequences}",
        )
    if last.sequence_length and plan.model.sequence_length and last.sequence_length != plan.model.sequence_length:
        yield Violation(
            at(plan, "batch", "ramp", position, "sequence_length"),
            f"the ramp ends at sequences of {number(last.sequence_length)} tokens, "
            f"but the model's have {number(plan.model.sequence_length)}",
            f"end at {plan.model.sequence_length}",
        )
    if last.transition == "linear":
        message = "the last stage grows linearly, but there is no next stage"
        remedy = "set transition: step"
        if position:
            remedy += f"; to grow up to this stage, write transition: linear in stage {position}, before it"
        yield Violation(at(plan, "batch", "ramp", position, "transition"), message, remedy)


@rule("TS-BAT-010")
def ramp_tokens(plan: TrainingPlan) -> Iterator[Violation]:
    """Tokens of a stage are its sequences times their length."""
    ramp, variable = _ramp(plan), plan.batch.variable_length
    judged = False
    for position, stage in enumerate(ramp):
        length = stage.sequence_length or plan.model.sequence_length
        if stage.global_tokens is None or length is None:
            continue
        judged = True
        product = stage.global_sequences * length
        if stage.global_tokens > product or (stage.global_tokens < product and not variable):
            yield Violation(
                at(plan, "batch", "ramp", position, "global_tokens"),
                f"{number(stage.global_sequences)} sequences of {number(length)} have {number(product)} "
                f"tokens, but the stage has {number(stage.global_tokens)}",
                f"set global_tokens to {product}",
            )
    if not judged:
        raise NotApplicable("no stage gives its tokens")


@rule("TS-BAT-011")
def ramp_split(plan: TrainingPlan) -> Iterator[Violation]:
    """The batch of each stage divides over the data ranks."""
    ramp, data = _ramp(plan), plan.parallelism.data
    if plan.batch.worker_shares:
        raise NotApplicable("the batch is shared unevenly")
    for position, stage in enumerate(ramp):
        if stage.global_sequences % data:
            yield Violation(
                at(plan, "batch", "ramp", position, "global_sequences"),
                f"{number(stage.global_sequences)} sequences do not divide over {data} data ranks",
                f"use a multiple of {data}, for example {-(-stage.global_sequences // data) * data}",
            )


@rule("TS-BAT-012")
def learning_rate_factors(plan: TrainingPlan) -> Iterator[Violation]:
    """The factors of the learning rate are those of the declared rule."""
    ramp, learning_rate = _ramp(plan), plan.batch.learning_rate
    given = [stage.learning_rate_factor for stage in ramp]
    if learning_rate is None and all(factor in {None, 1} for factor in given):
        raise NotApplicable("no rule for the learning rate and no factors are given")
    rule_name = learning_rate.rule if learning_rate else "none"
    first = stage_tokens(plan, ramp[0]) or ramp[0].global_sequences
    for position, stage in enumerate(ramp):
        growth = (stage_tokens(plan, stage) or stage.global_sequences) / first
        low, high = _factor_bounds(rule_name, growth, stage.learning_rate_factor)
        factor = stage.learning_rate_factor
        place = at(plan, "batch", "ramp", position)
        if factor is None:
            if low > 1 + FACTOR_TOLERANCE or (rule_name in {"declared", "adascale", "adam-square-root"} and position):
                message = f"the rule is {rule_name}, but this stage has no learning_rate_factor"
                yield Violation(place, message, f"give it; the batch has grown {growth:.6g} times")
        elif not low * (1 - FACTOR_TOLERANCE) <= factor <= high * (1 + FACTOR_TOLERANCE):
            wanted = f"{low:.9g}" if low == high else f"between {low:.6g} and {high:.6g}"
            yield Violation(
                at(plan, "batch", "ramp", position, "learning_rate_factor"),
                f"the batch has grown {growth:.6g} times, for which {rule_name} gives {wanted}, not {factor:g}",
                f"set {wanted}, or name the rule that the factors follow",
            )


def _factor_bounds(rule_name: str, growth: float, factor: float | None) -> tuple[float, float]:
    """Least and most factor after a growth of the batch; gains that depend on the gradient have a range."""
    match rule_name:
        case "linear":
            return growth, growth
        case "square-root":
            return sqrt(growth), sqrt(growth)
        case "adascale":
            return min(1.0, growth), max(1.0, growth)
        case "adam-square-root":
            return min(1.0, sqrt(growth)), max(1.0, sqrt(growth))
        case "declared":
            return factor or 1.0, factor or 1.0
        case _:
            return 1.0, 1.0


@rule("TS-BAT-013")
def learning_rate_base(plan: TrainingPlan) -> Iterator[Violation]:
    """A rule that scales from a batch names that batch."""
    b = plan.batch
    if b.learning_rate is None or b.learning_rate.rule in {"none", "declared"}:
        raise NotApplicable("no rule scales the learning rate")
    base = b.learning_rate.base_global_sequences
    if base is None and not b.ramp:
        message = f"the learning rate follows the batch ({b.learning_rate.rule}), but from which batch is not given"
        yield Violation(at(plan, "batch", "learning_rate", "rule"), message, "give base_global_sequences")
    if base is not None and b.ramp and base != b.ramp[0].global_sequences:
        yield Violation(
            at(plan, "batch", "learning_rate", "base_global_sequences"),
            f"the rule scales from {number(base)} sequences, but the factors of the ramp "
            f"count from its first stage of {number(b.ramp[0].global_sequences)}",
            f"set {b.ramp[0].global_sequences}",
        )
