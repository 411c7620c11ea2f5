"""Judges number formats: loss scaling, FP32 master weights, sums, and tensors kept in FP32."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, is_given
from trainspec_validate.documents.types.parallelism import Parallelism
from trainspec_validate.documents.types.precision import LossScaling
from trainspec_validate.model.units import base, number, percent
from trainspec_validate.performance.costs.memory import FORMAT_BYTES
from trainspec_validate.performance.derived.plan import FORMATS_OF_RECIPE
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, at_key, require, rule
from trainspec_validate.rules._machine import at_machine, machine_of

WIDE = ("fp32", "fp64")
HALF = frozenset({"bf16", "fp16"})
EIGHT_BITS = frozenset({"fp8", "int8"})
SIGNIFICAND_BITS = {"fp64": 53, "fp32": 24, "fp16": 11, "bf16": 8, "int8": 7, "fp8": 4}
FEW_TERMS = 8
GROWTH_STEPS = (100, 10_000)
SCALING = ("precision", "loss_scaling")


def _in_fp16(plan: TrainingPlan) -> list[str]:
    return [key for key in ("compute", "gradients") if getattr(plan.precision, key) == "fp16"]


def _scaling(plan: TrainingPlan) -> LossScaling:
    return require(plan.precision.loss_scaling, "the plan has no loss scaling")


@rule("TS-PRC-001")
def loss_scaling(plan: TrainingPlan) -> Iterator[Violation]:
    """Gradients in fp16 are scaled."""
    keys = require(_in_fp16(plan), "neither compute nor gradients are fp16")
    scaling = plan.precision.loss_scaling
    if scaling is None or scaling.mode == "none":
        where = ("precision", keys[0]) if scaling is None else ("precision", "loss_scaling", "mode")
        yield Violation(
            at(plan, *where),
            f"{keys[0]} is fp16, whose smallest number is 6e-8, and the loss is not scaled",
            "set loss_scaling.mode to dynamic with initial_scale 65536, or to static",
        )


@rule("TS-PRC-002")
def loss_scale_unneeded(plan: TrainingPlan) -> Iterator[Violation]:
    """Formats with the range of fp32 are not scaled."""
    scaling = _scaling(plan)
    if _in_fp16(plan):
        raise NotApplicable("the plan computes in fp16")
    if scaling.mode != "none":
        yield Violation(
            at(plan, *SCALING, "mode"),
            f"loss scaling is {scaling.mode}, but compute is {plan.precision.compute} and gradients are "
            f"{plan.precision.gradients}: both have the range of fp32",
            "leave loss_scaling out, or set mode to none",
        )


@rule("TS-PRC-003")
def loss_scale_complete(plan: TrainingPlan) -> Iterator[Violation]:
    """The keys of loss scaling are those of its mode."""
    scaling = _scaling(plan)
    controller = ("growth_factor", "backoff_factor", "growth_interval_steps")
    idle = [key for key in controller if scaling.mode != "dynamic" and is_given(getattr(scaling, key))]
    for key in idle:
        yield Violation(
            at(plan, *SCALING, key),
            f"{key} has no meaning when loss scaling is {scaling.mode}",
            f"leave {key} out, or set mode to dynamic",
        )
    wanted: tuple[str, ...] = () if scaling.mode == "none" else ("initial_scale",)
    wanted += ("growth_interval_steps",) if scaling.mode == "dynamic" else ()
    lacking = [key for key in wanted if getattr(scaling, key) is None]
    if lacking:
        raise Unresolved(
            at_key(plan, *SCALING),
            f"has {scaling.mode} loss scaling and does not give {' and '.join(lacking)}",
            "PyTorch starts at 65536 and grows every 2000 steps; DeepSpeed has initial_scale_power and "
            "loss_scale_window, Megatron-LM initial_loss_scale and loss_scale_window",
        )


@rule("TS-PRC-004")
def loss_scale_values(plan: TrainingPlan) -> Iterator[Violation]:
    """Scales and their factors are powers of two."""
    scaling = _scaling(plan)
    keys = ("initial_scale", "growth_factor", "backoff_factor")  # the smallest scale is a bound and scales nothing
    values = {key: value for key in keys if (value := getattr(scaling, key)) is not None}
    if not values:
        raise NotApplicable("loss scaling has no numbers")
    for key, value in values.items():
        if math.frexp(value)[0] != 0.5:
            yield Violation(
                at(plan, *SCALING, key),
                f"{key} is {number(value)}, which is not a power of two",
                f"the nearest power of two is {base(2.0 ** round(math.log2(value)))}",
            )


@rule("TS-PRC-024")
def initial_loss_scale(plan: TrainingPlan) -> Iterator[Violation]:
    """A scale begins within its own bounds."""
    scaling = _scaling(plan)
    first = require(scaling.initial_scale, "loss scaling has no initial scale")
    least = require(scaling.min_scale, "loss scaling has no smallest scale")
    if first < least:
        yield Violation(
            at(plan, *SCALING, "initial_scale"),
            f"initial_scale {number(first)} is below min_scale {number(least)}",
            f"start at {number(least)} or above",
        )


@rule("TS-PRC-025")
def loss_scale_backoff(plan: TrainingPlan) -> Iterator[Violation]:
    """An overflow takes back at least one growth."""
    scaling = _scaling(plan)
    growth = require(scaling.growth_factor, "loss scaling has no growth factor")
    backoff = require(scaling.backoff_factor, "loss scaling has no backoff factor")
    if growth * backoff > 1:
        yield Violation(
            at(plan, *SCALING, "backoff_factor"),
            f"growth {number(growth)} times backoff {number(backoff)} is {number(growth * backoff)}: an "
            "overflow takes back less than one growth added",
            f"set backoff_factor to {number(1 / growth)} or below",
        )


@rule("TS-PRC-026")
def loss_scale_hysteresis(plan: TrainingPlan) -> Iterator[Violation]:
    """A scale falls after fewer overflows than it takes steps to grow."""
    scaling = _scaling(plan)
    interval = require(scaling.growth_interval_steps, "loss scaling has no growth interval")
    hysteresis = require(scaling.hysteresis_steps, "loss scaling has no hysteresis")
    if hysteresis >= interval:
        yield Violation(
            at(plan, *SCALING, "hysteresis_steps"),
            f"{hysteresis} overflows are tolerated, but the scale grows every {interval} steps",
            "tolerate fewer overflows; 1 or 2 is usual",
        )


@rule("TS-PRC-022")
def growth_interval(plan: TrainingPlan) -> Iterator[Violation]:
    """A dynamic scale grows now and then."""
    interval = require(_scaling(plan).growth_interval_steps, "loss scaling has no growth interval")
    least, most = GROWTH_STEPS
    if not least <= interval <= most:
        yield Violation(
            at(plan, *SCALING, "growth_interval_steps"),
            f"the scale grows after {number(interval)} steps without overflow",
            "choose 100 to 10,000 steps; 1000 and 2000 are usual",
        )


@rule("TS-PRC-005")
def master_parameters(plan: TrainingPlan) -> Iterator[Violation]:
    """Small updates are not rounded away."""
    p = plan.precision
    if p.parameters in WIDE:
        raise NotApplicable("parameters are kept in fp32 or wider")
    if p.master_parameters in WIDE or p.parameter_rounding == "stochastic":
        return
    what = f"the master copy is {p.master_parameters}" if p.master_parameters else "there is no master copy"
    yield Violation(
        at(plan, "precision", "master_parameters" if p.master_parameters else "parameters"),
        f"parameters are {p.parameters}, {what}, and optimizer steps are rounded to nearest",
        "set master_parameters to fp32, or parameter_rounding to stochastic",
    )


@rule("TS-PRC-023")
def gradient_scaling(plan: TrainingPlan) -> Iterator[Violation]:
    """Gradients of 8 bits have scale factors."""
    p = plan.precision
    if p.gradients not in EIGHT_BITS:
        raise NotApplicable("gradients have more than 8 bits")
    if p.recipe is None:
        yield Violation(
            at(plan, "precision", "gradients"),
            f"gradients are {p.gradients}, and no recipe says where their scale factors come from",
            "write bf16 or fp32, the formats that products in fp8 give their gradients in, or add recipe with scaling",
        )


@rule("TS-PRC-006")
def format_widths(plan: TrainingPlan) -> Iterator[Violation]:
    """A master copy or a sum is no narrower than what goes into it."""
    pairs = [("master_parameters", "parameters"), ("accumulation", "gradients")]
    judged = [(w, n) for w, n in pairs if getattr(plan.precision, w) is not None]
    if not judged:
        raise NotApplicable("there is neither a master copy nor an accumulation format")
    for wide, narrow in judged:
        outer, inner = getattr(plan.precision, wide), getattr(plan.precision, narrow)
        if outer != inner and FORMAT_BYTES[outer] <= FORMAT_BYTES[inner]:
            yield Violation(
                at(plan, "precision", wide),
                f"{wide} is {outer}, which does not hold every {inner} number of {narrow}",
                f"set {wide} to {inner} or wider",
            )


@rule("TS-PRC-007")
def reduction_format(plan: TrainingPlan) -> Iterator[Violation]:
    """Sums of many gradients are taken in fp32, or their error is known."""
    p, degrees = plan.precision, plan.parallelism
    steps, replicas = plan.batch.accumulation_steps, degrees.data * degrees.context
    sums = [("gradients" if p.accumulation is None else "accumulation", p.accumulation or p.gradients)]
    sums = [*(sums if steps > 1 else []), *([("reduction", p.reduction)] if replicas > 1 else [])]
    if steps * replicas <= FEW_TERMS:
        raise NotApplicable(f"a gradient is the sum of at most {FEW_TERMS} terms")
    if p.reduction_error is not None:
        narrow = min((kind for _, kind in sums), key=SIGNIFICAND_BITS.__getitem__)
        bound = 2.0 ** -SIGNIFICAND_BITS[narrow] * math.sqrt(steps * replicas)
        if p.reduction_error > bound:
            yield Violation(
                at(plan, "precision", "reduction_error"),
                f"the reduction error is {percent(p.reduction_error)}, but rounding "
                f"{number(steps * replicas)} terms to {narrow} explains {percent(bound)} at most",
                "look for another cause, or sum in a wider format",
            )
        return
    for key, kind in sums:
        if kind not in WIDE:
            sums_of = f", sums of {steps} micro-batches each," if steps > 1 else ""
            terms = f"{sums_of} of {_replicas(degrees)}" if key == "reduction" else f" of {steps} micro-batches"
            remedy = "sum in fp32, or state the measured reduction_error"
            yield Violation(at(plan, "precision", key), f"gradients{terms} are added in {kind}", remedy)


def _replicas(degrees: Parallelism) -> str:
    """The ranks whose gradients are summed, in words."""
    counts = {"data": degrees.data, "context": degrees.context}
    parts = [f"{count} {kind} ranks" for kind, count in counts.items() if count > 1]
    return " x ".join(parts) or "1 data rank"


@rule("TS-PRC-008")
def high_precision_operations(plan: TrainingPlan) -> Iterator[Violation]:
    """Operations that overflow or cancel first stay in fp32."""
    p = plan.precision
    if p.compute in ("fp64", "fp32"):
        raise NotApplicable("everything is computed in fp32 or wider")
    wanted = ["softmax"] if "transformer" in plan.model.family else []
    wanted += ["normalization", "loss"]
    lacking = [operation for operation in wanted if operation not in p.high_precision_operations]
    if lacking and not p.high_precision_operations:
        yield Violation(
            at_key(plan, "precision"),
            f"compute is {p.compute}, and high_precision_operations is absent or empty",
            f"write high_precision_operations: [{', '.join(lacking)}]",
        )
    elif lacking:
        yield Violation(
            at(plan, "precision", "high_precision_operations"),
            f"compute is {p.compute}, and {', '.join(lacking)} is not among the operations that stay in fp32",
            f"add {', '.join(lacking)} to high_precision_operations",
        )


@rule("TS-PRC-009")
def router_precision(plan: TrainingPlan) -> Iterator[Violation]:
    """The router of a mixture of experts stays in fp32."""
    p = plan.precision
    if plan.model.family != "moe-transformer" or p.compute in ("fp64", "fp32"):
        raise NotApplicable("no router is computed below fp32")
    if "router" not in p.high_precision_operations:
        named = bool(p.high_precision_operations)
        why = "" if named else ", since high_precision_operations is absent or empty"
        yield Violation(
            at(plan, "precision", "high_precision_operations") if named else at_key(plan, "precision"),
            f"the router of {plan.model.name} computes in {p.compute}{why}",
            "add router to high_precision_operations",
        )


@rule("TS-PRC-010")
def nonfinite_action(plan: TrainingPlan) -> Iterator[Violation]:
    """A plan says what happens to a step whose gradients are not finite."""
    p = plan.precision
    dynamic = p.loss_scaling is not None and p.loss_scaling.mode == "dynamic"
    if p.nonfinite_action is None:
        message = "the plan does not say what happens when a gradient is not finite"
        yield Violation(at_key(plan, "precision"), message, "set nonfinite_action, for example to skip-step")
    elif p.nonfinite_action == "ignore" or (dynamic and p.nonfinite_action != "skip-step"):
        why = "a dynamic loss scale overflows by design" if dynamic else "one such step spoils the model"
        yield Violation(
            at(plan, "precision", "nonfinite_action"),
            f"nonfinite_action is {p.nonfinite_action}, but {why}",
            "set it to skip-step" if dynamic else "set it to skip-step, rollback or stop",
        )


@rule("TS-PRC-011")
def format_supported(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The accelerator multiplies in the formats of the plan."""
    machine = machine_of(plan, cluster)
    recipe = plan.precision.recipe
    asked: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = []
    if plan.precision.compute not in ("fp32", "fp64"):
        asked.append((("precision", "compute"), plan.precision.compute, (plan.precision.compute,)))
    if recipe and (recipe.format != "int8" or "int8" in machine.peak_rates):
        asked.append((("precision", "recipe", "format"), recipe.format, FORMATS_OF_RECIPE[recipe.format]))
    if not asked:
        raise NotApplicable("no format below fp32 is asked for")
    if not machine.peak_rates:
        reason = f"does not give a peak rate of {machine.group.accelerator.model}, which the catalog does not list"
        raise Unresolved(at_machine(machine, "accelerator"), reason, "state accelerator.peak_rates")
    of_16_bits_known = not HALF.isdisjoint(machine.peak_rates)
    for place, name, formats in asked:
        if name in HALF and not of_16_bits_known:
            continue
        if not any(one in machine.peak_rates for one in formats):
            yield Violation(
                at(plan, *place),
                f"{machine.group.accelerator.model} has no peak rate for {name}, only for "
                f"{', '.join(sorted(machine.peak_rates))}",
                "choose one of these formats, or declare the rate in the cluster's peak_rates",
                related=((at_machine(machine, "accelerator", "model"), "the accelerator"),),
            )
    if plan.precision.compute in HALF and not of_16_bits_known:
        reason = f"does not give a 16-bit peak rate of {machine.group.accelerator.model}, and the catalog has none"
        raise Unresolved(at_machine(machine, "accelerator"), reason, "state accelerator.peak_rates")
