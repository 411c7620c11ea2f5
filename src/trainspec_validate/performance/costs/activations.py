"""Computes the activations that one rank keeps for one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainspec_validate.performance.costs.eager import eager_layer_bytes
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import Shape


@dataclass(frozen=True, slots=True)
class ActivationPolicy:
    """Bytes that are kept between forward and backward, and bytes that the loss needs.

    Raises:
        ValueError: the recomputation has no formula, or a number is negative.
    """

    recompute: Literal["none", "selective", "alternate", "products", "full"] = "none"
    """`selective` recomputes the scores of attention (arXiv:2205.05198, section 5), `full` whole layers.
    `alternate` keeps the input of a layer, the result of attention and of every second matrix product, as
    pytorch/torchtitan@9dec370a:torchtitan/parallelisms/parallelize_llama.py does when it selects by operation.
    `products` keeps the input of a layer and what its matrix products put out, but for the last, which no gradient
    needs: "minimal" of AI-Hypercomputer/maxtext@0042423a:MaxText/layers/models.py, which is
    `checkpoint_dots_with_no_batch_dims`. Layers with experts are counted whole then: theirs have batch dimensions."""
    fused_attention: bool = True
    """Whether the attention kernel keeps no scores."""
    implementation_factor: float = 1.0
    """Factor of the activations that code keeps of a layer over the formula, but for the input that `full` keeps. Eager
    code was measured at 1.6 to 2 times (benchmarks/score_memory.py prints it for each model)."""
    bytes_per_number: float = 2.0
    dropout: bool = False
    """Whether masks of one byte are kept after attention, its projection and the feed-forward part."""
    loss_bytes_per_logit: float = 6.0
    """A 16-bit logit and its fp32 copy (stas00/ml-engineering@744d01e1:training/performance/README.md). A loss
    that is not compiled needs 12 to 16, one that works on chunks less than 4: see benchmarks/score_memory.py."""
    eager_bytes: int = 0
    """Bytes of a number between layers that run operation by operation; 0 where kernels are fused."""
    expert_imbalance: float = 1.0
    """Tokens of the fullest rank over those of the mean one, in layers with experts."""

    def __post_init__(self) -> None:
        if self.recompute not in {"none", "selective", "alternate", "products", "full"}:
            raise ValueError(f"recomputation {self.recompute!r} is not none, selective, alternate, products or full")
        numbers = (self.implementation_factor, self.bytes_per_number, self.loss_bytes_per_logit, self.expert_imbalance)
        if min(numbers) < 0:
            raise ValueError(f"a number of the activation policy is negative: {self}")


def _score_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy) -> float:
    """The softmax, and with dropout its mask and its masked copy; a context rank has its queries against all keys."""
    score = 2 * policy.bytes_per_number + 1 if policy.dropout else policy.bytes_per_number
    return score * layout.micro_batch_tokens * layout.sequence_length * shape.num_heads / layout.tensor


def _attention_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy, tokens: float) -> float:
    """Normalised input, queries, keys, values, input of the projection, mask after it, and scores if kept."""
    split = layout.tensor
    replicated = shape.hidden_size * (2 * policy.bytes_per_number + policy.dropout)
    key_width = max(shape.num_key_value_heads / split, 1) * shape.head_size
    divided = 2 * (shape.attention_width / split + key_width) * policy.bytes_per_number
    kept = tokens * (replicated / (split if layout.sequence_parallel else 1) + divided)
    if policy.fused_attention or policy.recompute == "selective":
        return kept
    return kept + _score_bytes(shape, layout, policy)


def _feed_forward_bytes(
    shape: Shape, layout: Layout, policy: ActivationPolicy, tokens: float, *, expert: bool
) -> float:
    """Normalised input, mask of the result, and the wide tensors: two, or three where there is a gate."""
    split, number, hidden = layout.tensor, policy.bytes_per_number, shape.hidden_size
    wide_tensors = 3 if shape.gated_ffn else 2
    replicated = tokens * hidden * (2 * number + policy.dropout) / (split if layout.sequence_parallel else 1)
    if not expert:
        return replicated + tokens * wide_tensors * shape.ffn_hidden_size / split * number
    shared = tokens * wide_tensors * shape.num_shared_experts * shape.expert_hidden_size / split * number
    visits = tokens * shape.num_active_experts * policy.expert_imbalance / split
    visited = visits * wide_tensors * shape.expert_hidden_size * number
    if shape.num_experts <= 1:
        return replicated + shared + visited
    # A copy of the token for each expert that it visits, and that expert's answer; the router works in fp32.
    dispatched = 2 * visits * layout.expert_tensor_degree * hidden * number
    router = 4 * tokens * shape.num_experts / (split if layout.sequence_parallel else 1)
    return replicated + shared + visited + dispatched + router


def _whole_layer_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy, *, expert: bool) -> float:
    tokens = layout.micro_batch_tokens
    if policy.eager_bytes:
        return tokens * eager_layer_bytes(shape, policy.eager_bytes, layout.tensor)
    attention = _attention_bytes(shape, layout, policy, tokens)
    return policy.implementation_factor * (
        attention + _feed_forward_bytes(shape, layout, policy, tokens, expert=expert)
    )


def _alternate_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy, *, expert: bool) -> float:
    """Input of the layer, result of attention, and of q, k, v, o, gate, up the products 1, 3 and 5.

    The seventh product is kept by its order too, but no gradient needs it: only eager code holds on to it.
    """
    split = layout.tensor
    key_width = max(shape.num_key_value_heads / split, 1) * shape.head_size
    wide = float(shape.ffn_hidden_size)
    if expert:
        visits = shape.num_active_experts * policy.expert_imbalance + shape.num_shared_experts
        wide = shape.expert_hidden_size * visits
    inputs = shape.hidden_size / (split if layout.sequence_parallel else 1)
    # Where tensor ranks share a product, its sum over ranks is kept after attention instead of being summed again.
    sums = inputs if split > 1 else 0.0
    numbers = inputs + sums + (2 * shape.attention_width + wide) / split + key_width
    return policy.implementation_factor * layout.micro_batch_tokens * numbers * policy.bytes_per_number


def _products_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy) -> float:
    """Input of the layer, queries, keys, values, result of attention, and one wide product or, gated, two."""
    split = layout.tensor
    key_width = max(shape.num_key_value_heads / split, 1) * shape.head_size
    replicated = 2 * shape.hidden_size / (split if layout.sequence_parallel else 1)
    wide = (2 if shape.gated_ffn else 1) * shape.ffn_hidden_size
    numbers = replicated + (shape.attention_width + wide) / split + 2 * key_width
    return policy.implementation_factor * layout.micro_batch_tokens * numbers * policy.bytes_per_number


def layer_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy, *, expert_layer: bool = False) -> float:
    """Bytes that one layer keeps from forward to backward, for one micro-batch on one rank.

    Source: arXiv:2205.05198, sections 4.1, 4.2 and 5 (equations 1 to 4 and the case of full recomputation),
    written by tensor so that it also holds for grouped keys, any feed-forward width, a gate (a third wide
    tensor, own extension), context ranks and experts. GPT-3 keeps `s b h (34 + 5 a s / h)` bytes:

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> one_rank = Layout(sequence_length=2048)
    >>> layer_bytes(gpt3, one_rank, ActivationPolicy("none", fused_attention=False, dropout=True)) / (2048 * 12288)
    114.0
    >>> layer_bytes(gpt3, one_rank, ActivationPolicy("full")) / (2048 * 12288)
    2.0
    """
    return layer_and_recomputed_bytes(shape, layout, policy, expert_layer=expert_layer)[0]


def recomputed_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy, *, expert_layer: bool = False) -> float:
    """Bytes that are allocated again for one layer while its backward runs: all of it, less what is kept anyway.

    Source: arXiv:2205.05198, section 5: recomputation needs one layer's working set at a time.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> one_rank = Layout(sequence_length=2048)
    >>> recomputed_bytes(gpt3, one_rank, ActivationPolicy("full", dropout=True)) / (2048 * 12288)
    32.0
    >>> recomputed_bytes(gpt3, one_rank, ActivationPolicy("none"))
    0.0
    """
    return layer_and_recomputed_bytes(shape, layout, policy, expert_layer=expert_layer)[1]


def layer_and_recomputed_bytes(
    shape: Shape, layout: Layout, policy: ActivationPolicy, *, expert_layer: bool = False
) -> tuple[float, float]:
    """`layer_bytes` and `recomputed_bytes` at once, for those who need both often; sources as there.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> policy = ActivationPolicy("full", dropout=True)
    >>> [part / (2048 * 12288) for part in layer_and_recomputed_bytes(gpt3, Layout(sequence_length=2048), policy)]
    [2.0, 32.0]
    """
    whole = _whole_layer_bytes(shape, layout, policy, expert=expert_layer)
    if policy.recompute == "none":
        return whole, 0.0
    if policy.recompute == "selective":
        scores = 0.0 if policy.fused_attention else _score_bytes(shape, layout, policy)
        return whole, policy.implementation_factor * scores
    if policy.recompute == "alternate":
        kept = min(whole, _alternate_bytes(shape, layout, policy, expert=expert_layer))
    elif policy.recompute == "products":
        kept = whole if expert_layer else min(whole, _products_bytes(shape, layout, policy))
    else:
        kept = min(whole, boundary_bytes(shape, layout, policy))
    return kept, whole - kept


def gradient_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy, *, expert_layer: bool = False) -> float:
    """Bytes of the gradients of activations while the feed-forward part of one layer goes backward.

    One gradient for each wide tensor, and that of the normalised input, which tensor ranks hold whole until they
    have summed it. Own count from the shapes of the products; arXiv:2205.05198 leaves it out.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> gradient_bytes(gpt3, Layout(sequence_length=2048), ActivationPolicy()) / (2048 * 12288)
    18.0
    """
    wide = float(shape.ffn_hidden_size)
    if expert_layer:
        visits = shape.num_active_experts * policy.expert_imbalance + shape.num_shared_experts
        wide = shape.expert_hidden_size * visits
    wide_tensors = 3 if shape.gated_ffn else 2
    numbers = wide_tensors * wide / layout.tensor + shape.hidden_size
    return layout.micro_batch_tokens * numbers * policy.bytes_per_number


def logits_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy) -> float:
    """Bytes of the loss and of its two inputs, on the last stage: tokens x vocabulary / tensor ranks x `a`.

    `a` is `loss_bytes_per_logit`. The inputs are those of the last normalisation and of the output matrix:
    arXiv:2205.05198, section 4.3. Llama 3.1 8B with 16,384 tokens needs 12 GB and more:

    >>> llama_8b = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
    >>> round(logits_bytes(llama_8b, Layout(micro_sequences=2, sequence_length=8192), ActivationPolicy()) / 1e9, 2)
    12.88
    """
    tokens = layout.micro_batch_tokens
    inputs = 2 * shape.hidden_size * policy.bytes_per_number
    inputs /= layout.tensor if layout.sequence_parallel else 1
    return tokens * (inputs + policy.loss_bytes_per_logit * shape.vocabulary_size / layout.tensor)


def boundary_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy) -> float:
    """Bytes of the hidden states that one rank passes to the next stage for one micro-batch.

    With sequence parallelism each tensor rank passes its part: arXiv:2205.05198, section 4.2.2.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> boundary_bytes(gpt3, Layout(sequence_length=2048), ActivationPolicy()) / (2048 * 12288)
    2.0
    """
    split = layout.tensor if layout.sequence_parallel else 1
    number = policy.eager_bytes or policy.bytes_per_number
    return layout.micro_batch_tokens * shape.hidden_size * number / split


def gathered_sequence_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy) -> float:
    """Bytes of the whole hidden states of a micro-batch, which sequence-parallel ranks gather before a product.

    They are gathered anew for backward instead of kept (arXiv:2205.05198, section 4.2.2), so one buffer is alive.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> layout = Layout(tensor=8, sequence_parallel=True, sequence_length=2048)
    >>> gathered_sequence_bytes(gpt3, layout, ActivationPolicy()) / (2048 * 12288)
    2.0
    """
    if not layout.sequence_parallel or layout.tensor == 1:
        return 0.0
    return layout.micro_batch_tokens * shape.hidden_size * policy.bytes_per_number


def embedding_bytes(shape: Shape, layout: Layout, policy: ActivationPolicy) -> float:
    """Bytes that the first stage keeps for one micro-batch before its first layer: the mask of its dropout.

    Source: arXiv:2205.05198, section 4.3.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> embedding_bytes(gpt3, Layout(sequence_length=2048), ActivationPolicy(dropout=True)) / (2048 * 12288)
    1.0
    """
    split = layout.tensor if layout.sequence_parallel else 1
    return layout.micro_batch_tokens * shape.hidden_size / split if policy.dropout else 0.0
