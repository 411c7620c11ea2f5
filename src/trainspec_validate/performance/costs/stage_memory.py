"""Computes which layers, tables and micro-batches one pipeline rank holds at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import Shape

RELATIVE_ACTIVATIONS = {
    "zero-bubble": 1.0,
    "zero-bubble-2p": 2.0,
    "zero-bubble-v": 1.0,
    "v-half": 1 / 2,
    "v-min": 1 / 3,
}
"""Activations relative to the first stage of 1F1B, on every stage: sail-sg/zero-bubble-pipeline-parallelism, README."""
FOLDED = frozenset({"zero-bubble-v", "v-half", "v-min"})
"""Schedules whose second chunk runs back along the ranks, so that the first rank holds both ends of the model."""


MAX_CHUNKS = 2048
"""Chunks of all ranks together beyond which no model has layers; a slip of a digit must not cost minutes."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Parameters that one pipeline rank holds; layers are counted over all its chunks."""

    num_dense_layers: int
    num_expert_layers: int
    input_tables: int
    output_tables: int
    num_tables: int
    """Tables of the vocabulary; one where the same serves for input and output."""


def _chunk_layers(num_layers: int, num_chunks: int, stage_layers: tuple[int, ...]) -> tuple[int, ...]:
    if not stage_layers:
        even, rest = divmod(num_layers, num_chunks)
        return tuple(even + (index < rest) for index in range(num_chunks))
    if len(stage_layers) != num_chunks or sum(stage_layers) != num_layers or min(stage_layers) < 0:
        raise ValueError(f"stage layers {stage_layers} are not {num_chunks} counts that add up to {num_layers} layers")
    return stage_layers


def _chunks_of_rank(rank: int, num_ranks: int, num_virtual: int, schedule: str) -> tuple[int, ...]:
    if schedule == "dual-pipe":
        return (rank, num_ranks - 1 - rank)
    if schedule in FOLDED:
        return (rank, 2 * num_ranks - 1 - rank)
    return tuple(range(rank, num_ranks * num_virtual, num_ranks))


@lru_cache(maxsize=4096)
def stages(
    shape: Shape,
    num_ranks: int,
    num_virtual_stages: int = 1,
    stage_layers: tuple[int, ...] = (),
    schedule: str = "1f1b",
) -> tuple[Stage, ...]:
    """Layers and tables of each pipeline rank.

    An even split gives the layers that remain to the first chunks. Layers without experts come first, as in
    DeepSeek-V3 (arXiv:2412.19437, section 4.2). Dual-pipe ranks hold two stages (deepseek-ai/DualPipe, README).

    >>> shape = Shape(10, 1024, 8, 8, 128, 4096, 32000)
    >>> [stage.num_dense_layers for stage in stages(shape, 4)]
    [3, 3, 2, 2]
    >>> [stage.num_dense_layers for stage in stages(shape, 4, stage_layers=(2, 3, 3, 2))]
    [2, 3, 3, 2]

    Raises:
        ValueError: the declared layers do not fit the chunks or the model, or there are thousands of chunks.
    """
    if schedule in FOLDED:
        num_virtual_stages = 2
    num_chunks = num_ranks * (1 if schedule == "dual-pipe" else num_virtual_stages)
    if num_chunks > MAX_CHUNKS:
        raise ValueError(f"{num_chunks} chunks are more than the {MAX_CHUNKS} that are laid out one by one")
    layers = _chunk_layers(shape.num_layers, num_chunks, stage_layers)
    starts = (0, *accumulate(layers))
    num_dense = shape.num_layers - shape.num_expert_layers
    held = []
    for rank in range(num_ranks):
        chunks = _chunks_of_rank(rank, num_ranks, num_virtual_stages, schedule)
        count = sum(layers[chunk] for chunk in chunks)
        dense = sum(min(layers[chunk], max(0, num_dense - starts[chunk])) for chunk in chunks)
        first, last = chunks.count(0), chunks.count(num_chunks - 1)
        num_tables = 1 if shape.tied_embeddings and first and last else first + last
        held.append(Stage(dense, count - dense, first, last, num_tables))
    return tuple(held)


@lru_cache(maxsize=4096)
def fullest_candidates(held: tuple[Stage, ...]) -> tuple[int, ...]:
    """Ranks of which one is the fullest: of equal stages the first, which holds most micro-batches.

    >>> fullest_candidates(stages(Shape(32, 1024, 8, 8, 128, 4096, 32000), 8))
    (0, 1, 7)
    """
    first: dict[Stage, int] = {}
    for rank, stage in enumerate(held):
        first.setdefault(stage, rank)
    return tuple(first.values())


def in_flight(layout: Layout, stage: int) -> float:
    """Micro-batches whose activations live at once on a pipeline rank, all its layers counted as one.

    1F1B holds min(m, p - i) (arXiv:2104.04473, section 2.2); the interleaved schedule starts with (v - 1) p +
    2 (p - i) - 1 chunks, which on the first rank is `1 + (p - 1)/(p v)` times 1F1B (arXiv:2205.05198, section
    4.2.3); dual-pipe holds p + 1 stages' worth on a rank of two stages (deepseek-ai/DualPipe, README).

    >>> in_flight(Layout(pipeline=8, num_micro_batches=32), 0), in_flight(Layout(pipeline=8, num_micro_batches=32), 7)
    (8.0, 1.0)
    >>> layout = Layout(pipeline=35, num_virtual_stages=3, schedule="interleaved-1f1b", num_micro_batches=70)
    >>> round(in_flight(layout, 0) / 35, 3)
    1.324

    Raises:
        ValueError: the stage does not exist, or the schedule has no published formula.
    """
    num_ranks, num_micro_batches = layout.pipeline, layout.num_micro_batches
    if not 0 <= stage < num_ranks:
        raise ValueError(f"stage {stage} is not one of 0 to {num_ranks - 1}")
    if num_ranks == 1:
        return 1.0
    schedule = layout.schedule
    if schedule == "1f1b":
        return float(min(num_micro_batches, num_ranks - stage))
    if schedule == "gpipe":
        return float(num_micro_batches)
    if schedule == "interleaved-1f1b":
        chunks = layout.num_virtual_stages
        return min(chunks * num_micro_batches, (chunks - 1) * num_ranks + 2 * (num_ranks - stage) - 1) / chunks
    if schedule == "dual-pipe":
        return min(num_micro_batches, num_ranks + 1) / 2
    relative = RELATIVE_ACTIVATIONS.get(schedule)
    if relative is None:
        known = ", ".join(["gpipe", "1f1b", "interleaved-1f1b", "dual-pipe", *RELATIVE_ACTIVATIONS])
        raise ValueError(f"schedule {schedule!r} has no formula for its activations; those with one: {known}")
    return min(num_micro_batches, relative * num_ranks)


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters of one model-parallel rank, by part of the model."""

    dense_layer: float
    expert_layer: float
    """Parameters that every token visits in a layer with experts: attention, norms, router, shared experts."""
    experts: float
    """The experts of one layer that this rank holds."""
    table: float
    """One table of vocabulary size times hidden size."""
    final_norm: float
    dense_matrix: float = 0.0
    """The largest matrix of a layer without experts."""
    expert_matrix: float = 0.0
    """That of a layer with experts, which holds one matrix of all of them."""


@lru_cache(maxsize=4096)
def rank_parameters(shape: Shape, tensor: int, expert: int, expert_tensor: int) -> RankParameters:
    """Parameters that one rank holds of each part, before data ranks shard them.

    Norms and the router are on every tensor rank; so are keys and values once there are fewer heads than ranks
    (NVIDIA/Megatron-LM@d98e8a64:megatron/training/theoretical_memory_usage.py, with experts added). Latent attention
    is taken to be split whole; its narrow projections, a tenth of it in DeepSeek-V3, are on every tensor rank.

    >>> llama_8b = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
    >>> part = rank_parameters(llama_8b, 1, 1, 1)
    >>> round((32 * part.dense_layer + 2 * part.table + part.final_norm) / 1e9, 2)
    8.03
    """
    hidden = shape.hidden_size
    matrices = 3 if shape.gated_ffn else 2
    key_width = max(shape.num_key_value_heads / tensor, 1) * shape.head_size
    projections = shape.latent_parameters / tensor or 2 * hidden * (shape.attention_width / tensor + key_width)
    attention = projections + shape.position_parameters / tensor + 2 * hidden
    one_expert = matrices * hidden * shape.expert_hidden_size
    shared = shape.num_shared_experts * one_expert / tensor
    experts = shape.num_experts / expert * one_expert / expert_tensor
    projection = hidden * shape.attention_width / tensor
    return RankParameters(
        dense_layer=attention + matrices * hidden * shape.ffn_hidden_size / tensor,
        expert_layer=attention + hidden * shape.num_experts + shared,
        experts=experts,
        table=shape.embedding_parameters / tensor,
        final_norm=float(hidden),
        dense_matrix=max(projection, hidden * shape.ffn_hidden_size / tensor),
        expert_matrix=max(projection, experts / matrices),
    )
