"""Counts parameters and operations of a transformer, in each published convention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a decoder-only transformer; every field is a plain number without a unit.

    `num_heads * head_size` is the width of attention, which need not be the hidden size.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    head_size: int
    ffn_hidden_size: int
    vocabulary_size: int
    gated_ffn: bool = False
    tied_embeddings: bool = False
    num_experts: int = 0
    num_active_experts: int = 0
    num_shared_experts: int = 0
    expert_hidden_size: int = 0
    num_expert_layers: int = 0
    latent_parameters: float = 0.0
    """Parameters of latent attention in one layer; 0 where attention projects from the hidden size directly."""
    relative_positions: bool = False
    """True where each layer projects relative positions, as Transformer-XL does (arXiv:1901.02860, section 3.3)."""

    @property
    def attention_width(self) -> int:
        """Width of the queries of one layer, all heads together."""
        return self.num_heads * self.head_size

    @property
    def position_parameters(self) -> int:
        """Parameters of the projection of relative positions in one layer; 0 where there is none."""
        return self.hidden_size * self.attention_width if self.relative_positions else 0

    @property
    def embedding_parameters(self) -> int:
        """Parameters of one table of vocabulary size times hidden size."""
        return self.vocabulary_size * self.hidden_size


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by part of the network."""

    attention: float
    feed_forward: float
    active_feed_forward: float
    """The part of `feed_forward` that one token visits; less than all of it where there are experts."""
    normalization: float
    embeddings: float
    """Input table, and output table where it is not shared."""

    @property
    def total(self) -> float:
        """All parameters."""
        return self.attention + self.feed_forward + self.normalization + self.embeddings

    @property
    def active(self) -> float:
        """Parameters that one token uses, embeddings included."""
        return self.attention + self.active_feed_forward + self.normalization + self.embeddings


@lru_cache(maxsize=4096)
def parameters(shape: Shape) -> Parameters:
    """Parameters that a shape implies; biases and learned positions are left out.

    Per layer: queries and output `2 h a`, keys and values `2 h k`, feed-forward `2 h f` or, gated, `3 h f`,
    and in layers with experts the router `h E`; h is the hidden size, a the attention width, k that of keys. Relative
    positions are projected by `h a` more (arXiv:1901.02860, section 3.3).
    Source: arXiv:2104.04473 equation 2, extended to grouped queries, gates and experts as
    NVIDIA/Megatron-LM@d98e8a64:megatron/training/theoretical_memory_usage.py counts them.

    >>> llama_70b = Shape(80, 8192, 64, 8, 128, 28672, 128256, gated_ffn=True)
    >>> round(parameters(llama_70b).total / 1e9, 2)
    70.55
    >>> gopher = Shape(80, 16384, 128, 128, 128, 65536, 32000, tied_embeddings=True, relative_positions=True)
    >>> round(parameters(gopher).total / 1e9, 1)  # 280 billion in arXiv:2112.11446, table 1
    279.7

    Raises:
        ValueError: more layers have experts than there are layers.
    """
    if shape.num_expert_layers > shape.num_layers:
        raise ValueError(f"{shape.num_expert_layers} layers with experts, but {shape.num_layers} layers")
    h, layers, moe_layers = shape.hidden_size, shape.num_layers, shape.num_expert_layers
    key_width = shape.num_key_value_heads * shape.head_size
    matrices = 3 if shape.gated_ffn else 2
    dense = (layers - moe_layers) * matrices * h * shape.ffn_hidden_size
    expert = matrices * h * shape.expert_hidden_size
    router = h * shape.num_experts
    every_token = moe_layers * (shape.num_shared_experts * expert + router)
    projections = shape.latent_parameters or 2 * h * (shape.attention_width + key_width)
    return Parameters(
        attention=layers * (projections + shape.position_parameters),
        feed_forward=dense + every_token + moe_layers * shape.num_experts * expert,
        active_feed_forward=dense + every_token + moe_layers * shape.num_active_experts * expert,
        normalization=(2 * layers + 1) * h,
        embeddings=shape.embedding_parameters * (1 if shape.tied_embeddings else 2),
    )


def attention_flops_per_token(shape: Shape, sequence_length: int, *, causal: bool) -> float:
    """Operations of scores and their product with values, forward and backward, for one token.

    Forward 2 x 2 operations per query, key and unit of width; backward twice that: `12 L a s`, or half of it
    when the masked half is left out. Source: arXiv:2204.02311 appendix B; the causal half as in
    NVIDIA/Megatron-LM@d98e8a64:megatron/training/training.py.

    >>> shape = Shape(80, 8192, 64, 8, 128, 28672, 128256, gated_ffn=True)
    >>> attention_flops_per_token(shape, 8192, causal=True) / 1e9
    32.21225472
    """
    full = 12.0 * shape.num_layers * shape.attention_width * sequence_length
    return full / 2 if causal else full


def model_flops_per_token(num_parameters: float, attention_flops: float, input_embedding: float = 0.0) -> float:
    """`6 (N - N_input) + attention`: two operations per parameter forward, four backward.

    With `input_embedding` 0 and full attention this is the convention of mosaicml/llm-foundry@8c8dd48f
    (scripts/train/benchmarking) and of PaLM (arXiv:2204.02311 appendix B); with the input table taken out and
    causal attention it is that of NVIDIA-NeMo/Megatron-Bridge@067f987d (bridge/training/utils/flop_utils.py).

    >>> round(model_flops_per_token(70.55e9, 32.21e9, 128256 * 8192) / 1e9, 1)
    449.2

    Raises:
        ValueError: the input embedding is larger than the model.
    """
    if input_embedding > num_parameters:
        raise ValueError(f"the input embedding of {input_embedding:g} exceeds {num_parameters:g} parameters")
    return 6.0 * (num_parameters - input_embedding) + attention_flops


def _layer_matrices(shape: Shape) -> float:
    counted = parameters(shape)
    return counted.attention + counted.active_feed_forward


def megatron_2022_flops_per_token(shape: Shape, sequence_length: int) -> float:
    """Model operations per token as arXiv:2205.05198 appendix A counts them: `72 L h^2 (1 + s/6h + v/12hL)`.

    Written with the matrices of the shape, so that it also holds where the feed-forward width is not 4h.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> printed = 72 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (12 * 12288 * 96))
    >>> abs(megatron_2022_flops_per_token(gpt3, 2048) / printed - 1) < 1e-12
    True
    """
    attention = attention_flops_per_token(shape, sequence_length, causal=False)
    return 6.0 * (_layer_matrices(shape) + shape.embedding_parameters) + attention


def megatron_2021_flops_per_token(shape: Shape, sequence_length: int) -> float:
    """Hardware operations per token with full recomputation: `96 l h^2 (1 + s/6h + V/16lh)`.

    Layers are counted four times (forward, recomputed forward, backward twice), the output layer three times.
    Source: arXiv:2104.04473 equation 3.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> printed = 96 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 96 * 12288))
    >>> abs(megatron_2021_flops_per_token(gpt3, 2048) / printed - 1) < 1e-12
    True
    """
    attention = attention_flops_per_token(shape, sequence_length, causal=False)
    return 8.0 * _layer_matrices(shape) + 4 / 3 * attention + 6.0 * shape.embedding_parameters


def pipeline_idle_ratio(num_stages: int, num_micro_batches: int, num_chunks: int = 1) -> float:
    """Idle time of a rank over its busy time in a 1F1B pipeline: `(p - 1) / (v m)`, a number without a unit.

    Source: arXiv:2104.04473 section 2.2. Example: 8 stages, 16 micro-batches and one chunk give 7/16.

    >>> pipeline_idle_ratio(8, 16)
    0.4375
    >>> pipeline_idle_ratio(8, 16, num_chunks=4)
    0.109375

    Raises:
        ValueError: an argument is below 1.
    """
    if min(num_stages, num_micro_batches, num_chunks) < 1:
        raise ValueError("stages, micro-batches and chunks are at least 1")
    return (num_stages - 1) / (num_chunks * num_micro_batches)
