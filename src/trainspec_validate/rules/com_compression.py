"""Rules on lossy compression of gradients."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, TrainingPlan, is_given
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.model.units import percent
from trainspec_validate.performance.costs.compression import (
    least_index_bits,
    low_rank_ratio,
    most_speedup,
    quantised_ratio,
    sparse_ratio,
)
from trainspec_validate.rules import NotApplicable, Violation, at, at_key, require, rule
from trainspec_validate.rules.com import FORMAT_BYTES, communication

BIASED = frozenset({"power-sgd", "top-k", "one-bit", "sign"})
"""Compressors whose expectation is not their input, whatever their parameters."""
CASTS = frozenset({"fp16", "bf16"})
IN_NETWORK = ("in-network", "in-network-tree")
WIRE_BITS = {"fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4, "one-bit": 1, "sign": 1}
LOW_RANK_START = frozenset({"power-sgd", "one-bit"})
"""Compressors that learn from the first dense steps."""
TOLERANCE = 0.02
LEAST_SEEDS = 3
BASE = ("communication", "compression")


def _compression(plan: TrainingPlan) -> Compression:
    found = communication(plan).compression
    if found is None or found.method == "none":
        raise NotApplicable("the plan compresses no traffic")
    return found


@rule("TS-COM-015")
def compressor_parameters(plan: TrainingPlan) -> Iterator[Violation]:
    """A compressor has its own parameters, and no other's."""
    found = require(communication(plan).compression, "the plan declares no compression")
    owners = {"rank": {"power-sgd"}, "density": {"top-k", "random-k"}}
    for key, methods in owners.items():
        value = getattr(found, key)
        if is_given(value) and found.method not in methods | {"other"}:
            message = f"{found.method} has no {key}"
            yield Violation(at(plan, *BASE, key), message, f"{key} belongs to {' and '.join(sorted(methods))}")
        if value is None and found.method in methods:
            yield Violation(at_key(plan, *BASE), f"{found.method} lacks its {key}", f"add {key}")
    if found.method == "none":
        extra = [key for key in ("wire_ratio", "expected_speedup", "start_step") if is_given(getattr(found, key))]
        for key in extra:
            message = f"nothing is compressed, but {key} is given"
            yield Violation(at(plan, *BASE, key), message, "name the method, or leave the key out")


@rule("TS-COM-016")
def error_feedback(plan: TrainingPlan) -> Iterator[Violation]:
    """Biased compressors feed back what they did not send."""
    found = _compression(plan)
    biased = found.method in BIASED or (found.unbiased is False and found.method not in CASTS)
    if biased and not found.error_feedback:
        yield Violation(
            at(plan, *BASE, "method"),
            f"{found.method} is biased, and what it does not send is lost",
            "set error_feedback: true",
        )


@rule("TS-COM-034")
def compressor_bias(plan: TrainingPlan) -> Iterator[Violation]:
    """A biased compressor is not called unbiased."""
    found = _compression(plan)
    if found.unbiased is None:
        raise NotApplicable("the plan does not state whether the compressor is biased")
    if found.method in BIASED and found.unbiased:
        message = f"{found.method} is biased, whatever its parameters"
        yield Violation(at(plan, *BASE, "unbiased"), message, "leave the key out, or set unbiased: false")


@rule("TS-COM-017")
def residual_state(plan: TrainingPlan) -> Iterator[Violation]:
    """A plan says what becomes of residuals on restart and resize."""
    found = _compression(plan)
    if not found.error_feedback:
        raise NotApplicable("the compressor keeps no residuals")
    if not found.residual_checkpointed:
        stated = found.residual_checkpointed is False
        yield Violation(
            at(plan, *BASE, "residual_checkpointed") if stated else at_key(plan, *BASE),
            "residuals are not part of the checkpoint" if stated else "nothing says that residuals are checkpointed",
            "set residual_checkpointed: true, and save them",
        )
    if plan.batch.elastic is None:
        return
    if found.residual_on_resize is None:
        message = "nothing says what becomes of residuals when the job changes its size"
        yield Violation(at_key(plan, *BASE), message, "add residual_on_resize: reset or redistribute")
    elif found.residual_on_resize == "refuse":
        message = "residuals refuse a change of size that batch.elastic allows"
        yield Violation(at(plan, *BASE, "residual_on_resize"), message, "set reset or redistribute")


@rule("TS-COM-018")
def residual_saved(plan: TrainingPlan, policy: CheckpointPolicy) -> Iterator[Violation]:
    """The policy saves residuals exactly when the plan says so."""
    found = communication(plan).compression
    wanted = bool(found and found.method != "none" and found.error_feedback and found.residual_checkpointed)
    saved = "compression-residuals" in policy.state.items
    if not wanted and not saved:
        raise NotApplicable("no residuals are kept or saved")
    place = at(policy, "state", "items")
    if wanted and not saved:
        message = "the plan counts on residuals in the checkpoint, but the policy does not save them"
        related = ((at(plan, *BASE), "error feedback"),)
        yield Violation(place, message, "add compression-residuals", related=related)
    if saved and not (found and found.error_feedback):
        message = "the policy saves compression residuals, but the plan has none"
        yield Violation(place, message, "leave compression-residuals out, or declare error_feedback in the plan")


@rule("TS-COM-019")
def wire_ratio(plan: TrainingPlan) -> Iterator[Violation]:
    """The ratio on the wire is stated, and is one that the method can reach."""
    found = _compression(plan)
    if found.wire_ratio is None:
        message = f"{found.method} is declared without the bytes that it leaves on the wire"
        yield Violation(at_key(plan, *BASE), message, "add wire_ratio: dense bytes over sent bytes")
        return
    most = _most_ratio(plan, found)
    if most is not None and found.wire_ratio > most * (1 + TOLERANCE):
        extra = " once indices are counted" if found.method == "top-k" else ""
        yield Violation(
            at(plan, *BASE, "wire_ratio"),
            f"{found.wire_ratio:g} is claimed, but {found.method} cannot exceed {most:.4g}{extra}",
            f"count payload, indices and scales: at most {most:.4g}",
        )


def _most_ratio(plan: TrainingPlan, found: Compression) -> float | None:
    dense_bits = 8 * FORMAT_BYTES[plan.precision.accumulation or plan.precision.gradients]
    if found.method in WIRE_BITS:
        return quantised_ratio(dense_bits, WIRE_BITS[found.method])
    if found.method == "top-k" and found.density:
        return sparse_ratio(found.density, dense_bits, least_index_bits(found.density))
    if found.method == "random-k" and found.density:
        return sparse_ratio(found.density, dense_bits, 0)
    model = plan.model
    if found.method == "power-sgd" and found.rank and model.hidden_size:
        widest = max(model.hidden_size, model.ffn_hidden_size or 0, model.vocabulary_size or 0)
        return low_rank_ratio(model.hidden_size, widest, found.rank)
    return None


@rule("TS-COM-020")
def compressed_reduction(plan: TrainingPlan) -> Iterator[Violation]:
    """Gradients that are cast for the wire are summed in that format, but for an exchange or switches that add."""
    found = _compression(plan)
    if found.method not in CASTS or found.axis != "data":
        raise NotApplicable("gradients are not cast to a format that the network sums")
    rows = [row for row in communication(plan).collectives if row.axis == "data"]
    sums_at_once = any(row.operation == "all-to-all" or row.algorithm in IN_NETWORK for row in rows)
    if plan.precision.reduction != found.method and not sums_at_once:
        yield Violation(
            at(plan, *BASE, "method"),
            f"gradients travel as {found.method}, but are said to be summed in {plan.precision.reduction}",
            f"set precision.reduction: {found.method}, or list the all-to-all that exchanges them first, or the "
            f"algorithm of the switches that add them: {' or '.join(IN_NETWORK)}",
            related=((at(plan, "precision", "reduction"), plan.precision.reduction),),
        )


@rule("TS-COM-021")
def dense_start(plan: TrainingPlan) -> Iterator[Violation]:
    """Compressors that learn from dense steps start after some."""
    found = _compression(plan)
    steps = plan.job.num_steps if plan.job else None
    if found.method in LOW_RANK_START and (found.start_step is None or found.start_step < 2):
        stated = found.start_step is not None
        yield Violation(
            at(plan, *BASE, "start_step") if stated else at_key(plan, *BASE),
            f"{found.method} compresses from the first step",
            "set start_step: 2 at the least; a tenth of the steps is usual",
        )
    elif found.start_step is None:
        raise NotApplicable("the compressor needs no dense steps, and none are declared")
    elif steps is not None and found.start_step > steps:
        message = f"compression starts at step {found.start_step}, but the job has {steps}"
        yield Violation(at(plan, *BASE, "start_step"), message, f"start before step {steps}, or do without")


@rule("TS-COM-022")
def exposed_fraction(plan: TrainingPlan) -> Iterator[Violation]:
    """A plan that compresses records what a step waits for its traffic, with and without."""
    found = _compression(plan)
    before, after = found.exposed_fraction_before, found.exposed_fraction_after
    if before is None or after is None:
        missing = [key for key in ("before", "after") if getattr(found, f"exposed_fraction_{key}") is None]
        message = f"{found.method} is declared without the share of a step that waits, {' and '.join(missing)}"
        yield Violation(at_key(plan, *BASE), message, "measure a dense and a compressed run, overlap switched on")
    elif after >= before:
        message = f"a step waits {percent(after)} of its time with compression and {percent(before)} without"
        yield Violation(at(plan, *BASE, "exposed_fraction_after"), message, "do without compression")


@rule("TS-COM-023")
def speedup_cap(plan: TrainingPlan) -> Iterator[Violation]:
    """No speed-up exceeds what the exposed traffic leaves."""
    found = _compression(plan)
    before, after, claim = found.exposed_fraction_before, found.exposed_fraction_after, found.expected_speedup
    if claim is None or before is None or before == 1 or after == 1:
        raise NotApplicable("no speed-up with an exposed share is claimed")
    cap = most_speedup(before, after or 0.0)
    if claim > cap * (1 + TOLERANCE):
        rest = f" and {percent(after)} after" if after is not None else ""
        yield Violation(
            at(plan, *BASE, "expected_speedup"),
            f"{claim:g} is claimed; a step that waits {percent(before)} before{rest} gains {cap:.3g} at most",
            f"state at most {cap:.3g}",
        )


@rule("TS-COM-024")
def loss_seeds(plan: TrainingPlan) -> Iterator[Violation]:
    """A claim of unharmed loss rests on several seeds."""
    found = _compression(plan)
    if found.loss_tolerance is None:
        raise NotApplicable("the plan makes no claim about the loss")
    seeds = found.num_seeds or 0
    if seeds < LEAST_SEEDS:
        yield Violation(
            at(plan, *BASE, "loss_tolerance"),
            f"a change of at most {found.loss_tolerance:g} nats is claimed from "
            f"{seeds or 'an unknown number of'} {'seed' if seeds == 1 else 'seeds'}",
            f"run at least {LEAST_SEEDS} seeds of each and state num_seeds",
        )
