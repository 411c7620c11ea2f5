"""Judges kernel floors and the shapes that suit matrix units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.precision import KernelFloor
from trainspec_validate.model.units import number, percent
from trainspec_validate.rules import NotApplicable, Violation, at, at_key, require, rule
from trainspec_validate.rules.par_shape import EQUAL_SLICES

FLOORS: Mapping[str, tuple[float, str]] = {
    "matmul": (0.70, "same-run-matmul"),
    "attention": (0.25, "same-run-matmul"),
    "normalization": (0.45, "same-run-device-copy"),
    "activation": (0.45, "same-run-device-copy"),
    "host-to-device-copy": (0.70, "negotiated-link-rate"),
    "step": (0.35, "same-run-matmul"),
}
"""Least share and its roofline, by operation: the table of the chapter."""
LONG_SEQUENCE = 4096
NUM_WARMUP, NUM_TIMED = 50, 100
SHARD_MULTIPLE = 64
SOFTMAX_ATTENTION = (None, "full", "grouped-query", "multi-query", "latent", "sliding-window")


def _kernels(plan: TrainingPlan) -> tuple[KernelFloor, ...]:
    if not plan.kernels:
        raise NotApplicable("the plan sets no kernel floors")
    return plan.kernels


def _is_transformer(plan: TrainingPlan) -> bool:
    return plan.model.family in ("dense-transformer", "moe-transformer")


@rule("TS-PRC-016")
def kernel_operations(plan: TrainingPlan) -> Iterator[Violation]:
    """The floors of a transformer cover what its step is made of."""
    kernels = _kernels(plan)
    if not _is_transformer(plan):
        raise NotApplicable("the model is not a transformer")
    wanted = ["matmul", "normalization", "host-to-device-copy"]
    wanted += ["attention"] if plan.model.attention != "none" else []
    lacking = [operation for operation in wanted if all(k.operation != operation for k in kernels)]
    if lacking:
        yield Violation(
            at_key(plan, "kernels"),
            f"no floor is set for {', '.join(lacking)}",
            f"add an entry for {', '.join(lacking)} with the floor of the table",
        )


def _judged_floor(plan: TrainingPlan, kernel: KernelFloor) -> float:
    model = plan.model
    if kernel.operation == "step":
        dense = model.family == "dense-transformer" and model.num_parameters >= 7e9
        if not dense or (model.sequence_length or 0) > 8192:
            return 0.0
    return FLOORS[kernel.operation][0]


@rule("TS-PRC-017")
def kernel_floor(plan: TrainingPlan) -> Iterator[Violation]:
    """A floor on the roofline of the table is not below the table's, unless a note says why."""
    for index, kernel in enumerate(_kernels(plan)):
        least, right = _judged_floor(plan, kernel), FLOORS[kernel.operation][1]
        if kernel.denominator == right and kernel.floor < least and not kernel.note:
            yield Violation(
                at(plan, "kernels", index, "floor"),
                f"the floor of {kernel.operation} is {percent(kernel.floor)} of {right}, below {percent(least)}",
                f"raise it to {number(least)}, or say in note why this kernel cannot reach it",
            )


@rule("TS-PRC-027")
def kernel_roofline(plan: TrainingPlan) -> Iterator[Violation]:
    """A floor is a share of the roofline of its operation."""
    for index, kernel in enumerate(_kernels(plan)):
        right = FLOORS[kernel.operation][1]
        if kernel.denominator != right:
            yield Violation(
                at(plan, "kernels", index, "denominator"),
                f"the floor of {kernel.operation} is a share of {kernel.denominator}",
                f"measure {right} in the same run and refer to it",
            )


@rule("TS-PRC-018")
def kernel_timing(plan: TrainingPlan) -> Iterator[Violation]:
    """A kernel is warm and timed often enough."""
    for index, kernel in enumerate(_kernels(plan)):
        for key, least in (("num_warmup_runs", NUM_WARMUP), ("num_timed_runs", NUM_TIMED)):
            value = getattr(kernel, key)
            if value is None or value < least:
                stated = value is not None
                yield Violation(
                    at(plan, "kernels", index, key) if stated else at(plan, "kernels", index),
                    f"{key} is {value}, below {least}" if stated else f"{kernel.operation} states no {key}",
                    f"set {key} to {least} or more",
                )


def _sizes(plan: TrainingPlan) -> set[int]:
    """Dimensions that a product of a dense model can have on one rank; empty when that is not known."""
    model, degrees = plan.model, plan.parallelism
    head, heads = _head_size(plan), model.num_attention_heads
    hidden, ffn = model.hidden_size, model.ffn_hidden_size
    if not (head and heads and hidden and ffn and model.sequence_length) or model.experts:
        return set()
    key_value = 2 * (model.num_key_value_heads or heads)
    split = [ffn, 2 * ffn, model.vocabulary_size or ffn]
    split += [head * count for count in (heads, heads + key_value, key_value, key_value // 2)]
    tokens = plan.batch.micro_sequences * model.sequence_length // degrees.context
    return {hidden, tokens, tokens // degrees.tensor, *(size // degrees.tensor for size in split)}


def _shape_fault(plan: TrainingPlan, kernel: KernelFloor) -> str | None:
    """What is wrong with the measured shape, or None."""
    model, shape = plan.model, kernel.dimensions
    if kernel.operation == "matmul":
        if len(shape) != 3:
            return f"a matrix product has 3 dimensions, not {len(shape)}"
        sizes = _sizes(plan)
        strange = [size for size in shape if sizes and size not in sizes]
        return f"no product of {model.name} has the dimension {strange[0]} on one rank" if strange else None
    if len(shape) != 4:
        return f"attention has 4 dimensions, not {len(shape)}"
    for size, limit, words in (
        (shape[1], model.num_attention_heads, "heads are"),
        (shape[2], model.sequence_length, "sequence is"),
        (shape[3], _head_size(plan), "head size is"),
    ):
        if limit and (size > limit or (words.startswith("head size") and size != limit)):
            return f"the measured {words} {size}, in {model.name} {limit}"
    return None


def _head_size(plan: TrainingPlan) -> int | None:
    model = plan.model
    width, heads = model.hidden_size, model.num_attention_heads
    if model.head_size or model.attention == "latent" or not width or not heads:
        return model.head_size
    return width // heads


@rule("TS-PRC-019")
def kernel_shape(plan: TrainingPlan) -> Iterator[Violation]:
    """The measured shape is one that the model has."""
    shaped = [(i, k) for i, k in enumerate(_kernels(plan)) if k.dimensions]
    judged = [(i, k) for i, k in shaped if k.operation in ("matmul", "attention") and not k.note]
    if not judged:
        raise NotApplicable("no shape is stated without a note")
    for index, kernel in judged:
        fault = _shape_fault(plan, kernel)
        if fault:
            yield Violation(
                at(plan, "kernels", index, "dimensions"),
                fault,
                "rows, inner, columns for a product; batch, heads, sequence, head size for attention",
            )


@rule("TS-PRC-020")
def fused_attention(plan: TrainingPlan) -> Iterator[Violation]:
    """Long sequences use a fused attention kernel."""
    entries = [(i, k) for i, k in enumerate(plan.kernels) if k.operation == "attention"]
    sequence = plan.model.sequence_length or 0
    if not entries or sequence < LONG_SEQUENCE or plan.model.attention not in SOFTMAX_ATTENTION:
        raise NotApplicable(f"no attention kernel over {LONG_SEQUENCE} tokens or more is stated")
    for index, kernel in entries:
        if not kernel.fused:
            place = ("kernels", index) if kernel.fused is None else ("kernels", index, "fused")
            yield Violation(
                at(plan, *place),
                f"attention over {number(sequence)} tokens is not said to run as one kernel",
                "use a fused kernel and set fused to true",
            )


def _shards(plan: TrainingPlan) -> Iterator[tuple[tuple[str, ...], str, int, int, int]]:
    """Key, words, size, ranks that split it, and the multiple that its shard is held against."""
    model, tensor = plan.model, plan.parallelism.tensor
    if model.hidden_size:
        yield ("hidden_size",), "the hidden size", model.hidden_size, 1, SHARD_MULTIPLE
    if model.ffn_hidden_size:
        yield ("ffn_hidden_size",), "the feed-forward width", model.ffn_hidden_size, tensor, SHARD_MULTIPLE
    if model.experts and model.experts.ffn_hidden_size:
        split = plan.parallelism.expert_tensor or tensor
        width = model.experts.ffn_hidden_size
        yield ("experts", "ffn_hidden_size"), "the expert width", width, split, SHARD_MULTIPLE
    if model.vocabulary_size:
        multiple = 16 if plan.precision.recipe else 8
        yield ("vocabulary_size",), "the vocabulary", model.vocabulary_size, tensor, multiple


def _splits_equally(plan: TrainingPlan) -> bool:
    """Whether the framework refuses a vocabulary that does not divide over the TP ranks."""
    return plan.framework is not None and plan.framework.name.casefold() in EQUAL_SLICES


@rule("TS-PRC-021")
def aligned_shards(plan: TrainingPlan) -> Iterator[Violation]:
    """Shards of matrices fill the tiles of matrix units."""
    if not _is_transformer(plan):
        raise NotApplicable("the model is not a transformer")
    shards = require(list(_shards(plan)), "the model states no widths")
    for key, words, size, ranks, multiple in shards:
        is_uneven = size % ranks != 0
        if is_uneven and (key != ("vocabulary_size",) or _splits_equally(plan)):
            continue  # TS-PAR-016 judges it
        if is_uneven or size // ranks % multiple:
            split = f", {number(size / ranks)} on each of {ranks} ranks," if ranks > 1 else ""
            split = f", which does not divide over {ranks} ranks," if is_uneven else split
            padded = -(-size // (ranks * multiple)) * ranks * multiple
            yield Violation(
                at(plan, "model", *key),
                f"{words} {size}{split} is not a multiple of {multiple}",
                f"pad it to {padded}, or choose another tensor degree",
            )
    for index, kernel in enumerate(plan.kernels):
        odd = [d for d in kernel.dimensions if d % SHARD_MULTIPLE] if kernel.operation == "matmul" else []
        if odd:
            yield Violation(
                at(plan, "kernels", index, "dimensions"),
                f"the measured product has the dimension {odd[0]}, not a multiple of {SHARD_MULTIPLE}",
                f"pad it to {-(-odd[0] // SHARD_MULTIPLE) * SHARD_MULTIPLE}",
            )
