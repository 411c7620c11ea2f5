"""Counts the messages of one rank in an optimizer step, by parallelism dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import Shape, parameters

Overlap = Literal["none", "backward", "forward", "compute"]
AXES = ("tensor", "context", "expert", "pipeline", "data", "replica", "expert-data")
"""Axes of transfers. `replica` joins the ranks that hold the same shard where several groups shard a copy each,
`expert-data` those that hold the same experts; the others are named as in a training plan."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One kind of message of one rank in one optimizer step."""

    axis: str
    """One of `AXES`; the data axis includes context ranks, which hold the same weights."""
    operation: str
    """As `bandwidth.bus_bandwidth_factor` names it."""
    message_bytes: float
    """Whole buffer of a rank: for all-gather and reduce-scatter the number of ranks times the shard."""
    count: float
    """Messages of one rank in one optimizer step."""
    overlappable: Overlap
    """Computation that it can hide behind: nothing, backward passes, forward passes, or either."""


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters of one rank before sharding over data ranks, with layers spread evenly over pipeline stages."""

    dense: float
    experts: float


@lru_cache(maxsize=65536)
def rank_parameters(shape: Shape, layout: Layout) -> RankParameters:
    """Parameters that a rank computes with: dense ones over t p, experts over their own ranks and p.

    Source: arXiv:2104.04473 section 2; NVIDIA/Megatron-LM@d98e8a64:megatron/core/transformer/moe/README.md.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200, tied_embeddings=True)
    >>> round(rank_parameters(gpt3, Layout(tensor=8, pipeline=8)).dense / 1e9, 2)
    2.73
    """
    matrices = 3 if shape.gated_ffn else 2
    expert = matrices * shape.hidden_size * shape.expert_hidden_size
    experts = float(shape.num_expert_layers * shape.num_experts * expert)
    dense = parameters(shape).total - experts
    return RankParameters(
        dense / (layout.tensor * layout.pipeline),
        experts / (layout.expert * layout.expert_tensor_degree * layout.pipeline),
    )


@lru_cache(maxsize=65536)
def transfers(
    shape: Shape,
    layout: Layout,
    bytes_per_number: float = 2,
    gradient_bytes: float = 4,
    parameter_bytes: float = 2,
) -> tuple[Transfer, ...]:
    """Messages of one rank in one optimizer step, without those of recomputation (see `recomputed`).

    `bytes_per_number` is the width of activations, `gradient_bytes` that of gradients as they are reduced,
    `parameter_bytes` that of weights as they are gathered. Sources: `_tensor`, `_context`, `_expert`, `_pipeline` and
    `_data`. Example: GPT-3 on 8 tensor ranks and 8 stages sends 4 all-reduces of 2048 x 12288 numbers for each of the
    12 layers of a stage and 64 micro-batches:

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> layout = Layout(tensor=8, pipeline=8, num_micro_batches=64, sequence_length=2048)
    >>> transfers(gpt3, layout)[0]
    Transfer(axis='tensor', operation='all-reduce', message_bytes=50331648.0, count=3072.0, overlappable='none')

    Raises:
        ValueError: more layers have experts than there are layers.
    """
    activations = float(layout.micro_batch_tokens * shape.hidden_size * bytes_per_number)
    passes, found = layout.num_micro_batches / layout.pipeline, list[Transfer]()
    if layout.tensor > 1:
        found += _tensor(activations, shape.num_layers * passes, layout)
    if layout.context > 1:
        found += _context(shape, layout, bytes_per_number)
    if layout.expert > 1:
        split = layout.tensor if layout.sequence_parallel else 1
        found.append(_expert(activations * shape.num_active_experts / split, shape.num_expert_layers * passes))
    if layout.pipeline > 1:
        found.append(_pipeline(activations / layout.tensor, layout))
    held = rank_parameters(shape, layout)
    buckets = max(1.0, shape.num_layers / layout.pipeline)
    gradients, weights = gradient_bytes / buckets, parameter_bytes / buckets
    found += _data(held.dense * gradients, held.dense * weights, buckets, layout)
    if layout.num_expert_copies > 1 and held.experts:
        found += _sharded("expert-data", held.experts * gradients, held.experts * weights, buckets, layout)
    return tuple(found)


def recomputed(sent: tuple[Transfer, ...], share: float) -> tuple[Transfer, ...]:
    """The same messages when `share` of the forward pass runs, and communicates, a second time.

    Half of the messages of tensor and expert ranks, and half of the gathers of context ranks, belong to the forward
    pass. Source: arXiv:2205.05198, section 5 (full recomputation is one more forward pass); the count is ours.

    >>> once = Transfer("tensor", "all-reduce", 1e6, 4, "none")
    >>> recomputed((once,), 1.0)[0].count
    6.0
    """
    if not share:
        return sent
    factor = 1 + share / 2
    return tuple(replace(one, count=one.count * factor) if _in_forward(one) else one for one in sent)


def _in_forward(sent: Transfer) -> bool:
    return sent.axis in {"tensor", "expert"} or (sent.axis == "context" and sent.operation == "all-gather")


def _tensor(message: float, layers: float, layout: Layout) -> Iterator[Transfer]:
    """Two all-reduces of the activations forward and two backward: arXiv:1909.08053, section 3.

    Under sequence parallelism each is an all-gather and a reduce-scatter: arXiv:2205.05198, section 4.2.2.
    """
    if not layout.sequence_parallel:
        yield Transfer("tensor", "all-reduce", message, 4 * layers, "none")
        return
    yield Transfer("tensor", "all-gather", message, 4 * layers, "none")
    yield Transfer("tensor", "reduce-scatter", message, 4 * layers, "none")


def _context(shape: Shape, layout: Layout, width: float) -> Iterator[Transfer]:
    """Keys and values of the whole sequence gathered, their gradients scattered: arXiv:2407.21783, section 3.3.2."""
    heads = max(1.0, shape.num_key_value_heads / layout.tensor)
    message = 2.0 * layout.micro_sequences * layout.sequence_length * heads * shape.head_size * width
    layers = shape.num_layers * layout.num_micro_batches / layout.pipeline
    yield Transfer("context", "all-gather", message, 2 * layers, "none")
    yield Transfer("context", "reduce-scatter", message, layers, "none")


def _expert(message: float, layers: float) -> Transfer:
    """Tokens sent to their experts and back, forward and backward: arXiv:2006.16668, section 3."""
    return Transfer("expert", "all-to-all", message, 4 * layers, "none")


def _pipeline(message: float, layout: Layout) -> Transfer:
    """One activation forward and one gradient backward for each micro-batch and chunk: arXiv:2104.04473, section 2.2.

    Tensor ranks send 1/t of it each (section 4.1).
    """
    count = 2.0 * layout.num_micro_batches * layout.num_virtual_stages
    return Transfer("pipeline", "send-receive", message, count, "compute")


def _data(gradients: float, weights: float, buckets: float, layout: Layout) -> Iterator[Transfer]:
    """Gradients reduced, weights gathered: arXiv:1910.02054, section 7; several groups of shards: arXiv:2304.11277."""
    ranks = layout.data * layout.context
    if layout.sharding_stage == 0:
        if ranks > 1:
            yield Transfer("data", "all-reduce", gradients, buckets, "backward")
        return
    if layout.num_shards > 1:
        yield from _sharded("data", gradients, weights, buckets, layout)
    if ranks > layout.num_shards:
        yield Transfer("replica", "all-reduce", gradients / layout.num_shards, buckets, "backward")


def _sharded(axis: str, gradients: float, weights: float, buckets: float, layout: Layout) -> Iterator[Transfer]:
    """Stage 1 reduces and gathers once, stage 2 reduces more often, stage 3 also gathers twice for each micro-batch."""
    every = buckets * layout.num_micro_batches
    if layout.sharding_stage == 0:
        yield Transfer(axis, "all-reduce", gradients, buckets, "backward")
        return
    yield Transfer(axis, "reduce-scatter", gradients, buckets * gradient_reductions(layout), "backward")
    yield Transfer(axis, "all-gather", weights, every if layout.sharding_stage == 3 else buckets, "forward")
    if layout.sharding_stage == 3:
        yield Transfer(axis, "all-gather", weights, every, "backward")


def gradient_reductions(layout: Layout) -> int:
    """How often a step reduces each gradient: at its end, or as soon as a rank may not keep it whole any longer.

    Where gradients are sharded, that is after every micro-batch. But the interleaved schedule takes as many
    micro-batches as there are stages through a chunk before it turns to the next (arXiv:2104.04473, section 2.2.2), so
    that a chunk adds up those first. Llama 3 405B sharded gradients so (arXiv:2407.21783, section 3.3.2); reduced
    after each of 16 micro-batches, its step would have taken half as long again as it did.

    >>> layout = Layout(pipeline=16, num_micro_batches=32, sharding_stage=2)
    >>> gradient_reductions(layout)
    32
    >>> gradient_reductions(replace(layout, schedule="interleaved-1f1b", num_virtual_stages=8))
    2
    """
    if layout.sharding_stage < 2:
        return 1
    grouped = layout.sharding_stage == 2 and layout.schedule == "interleaved-1f1b" and layout.num_virtual_stages > 1
    return -(-layout.num_micro_batches // (layout.pipeline if grouped else 1))
