"""Counts the bytes that the kernels of a training step move through device memory."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import Shape

_PRODUCT_BYTES = 2
"""Width of the gradient of a weight as a product of 16-bit numbers leaves it."""

LOSS_BYTES_PER_ENTRY = 30
"""Bytes of one token and vocabulary entry when logits of 16 bits are made fp32 for the loss.

Forward: write 2, widen 2 + 4, logarithm of softmax 4 + 4; backward: softmax 4 + 4, narrow 4 + 2.
"""
SEPARATE_LOSS_BYTES_PER_ENTRY = 54
"""The same where each step of the loss is a kernel of its own, as in Megatron-LM unless it is set to fuse them.

Forward: write 2, widen 2 + 4, greatest 4, subtract it 4 + 4, exponentials 4 + 4, their sum 4, divide by it 4 + 4;
backward: scale 4 + 4, narrow 4 + 2. Source: NVIDIA/Megatron-LM@de7dc40f:megatron/mpu/cross_entropy.py, and
@bc000690:megatron/core/tensor_parallel/cross_entropy.py.
"""


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """Bytes that one rank reads and writes for one token and one layer on average."""

    forward: float
    backward: float


def layer_traffic(
    shape: Shape, tensor: int = 1, *, sequence_parallel: bool = False, bytes_per_number: int = 2
) -> LayerTraffic:
    """Bytes of one token and layer when every kernel reads its inputs and writes its outputs once.

    With hidden size h, attention width a, widths of queries, keys and values together q, feed-forward width f, and g
    matrices into it (2 when gated), a layer moves these numbers. Forward: norms 4h, residual sums 6h, query product
    h + q, attention q + a, output product a + h, product into the feed-forward h + gf, activation gf + f, product out
    of it f + h. Backward: norms 6h, residual sums 6h, each product twice its forward, attention 2q + 2a, activation
    2gf + f. Of t tensor ranks each has 1/t of what is between the products; norms, sums and the inputs and outputs
    of a layer stay whole, but for norms and sums under sequence parallelism (arXiv:2205.05198, section 4.2).
    Weights are left out: they are read once for all tokens of a micro-batch. The counts follow from the operations of
    arXiv:2205.05198, section 4.1. Example: GPT with h = 4096, all heads and f = 4h moves 38h and 64h numbers.

    >>> gpt = Shape(32, 4096, 32, 32, 128, 16384, 50368)
    >>> layer_traffic(gpt).forward / 2 / 4096, layer_traffic(gpt).backward / 2 / 4096
    (38.0, 64.0)

    Raises:
        ValueError: the number of tensor ranks is below 1.
    """
    if tensor < 1:
        raise ValueError("tensor ranks are at least 1")
    h, a = shape.hidden_size, shape.attention_width
    q = a + 2 * shape.num_key_value_heads * shape.head_size
    f = _mean_ffn_width(shape)
    into = (2 if shape.gated_ffn else 1) * f
    stream_split = tensor if sequence_parallel else 1
    forward = 10 * h / stream_split + 4 * h + (2 * q + 2 * a + 2 * into + 2 * f) / tensor
    backward = 12 * h / stream_split + 8 * h + (4 * q + 4 * a + 4 * into + 3 * f) / tensor
    return LayerTraffic(forward * bytes_per_number, backward * bytes_per_number)


def fused_layer_traffic(
    shape: Shape, tensor: int = 1, *, sequence_parallel: bool = False, bytes_per_number: int = 2
) -> LayerTraffic:
    """Bytes of one token and layer that XLA still moves on a TPU while no product and no attention runs.

    XLA fuses element-wise operations into those that make or take their operands (openxla/xla@28ac9d32:
    docs/architecture.md), so that activations read and write nothing of their own; and a product loads and stores
    while it computes, so that the slower of both counts (jax-ml/scaling-book@0296c23d:roofline.md). Only norms and
    residual sums remain, which need a whole token first: 10h numbers forward and 12h backward, as in `layer_traffic`;
    the count is ours.

    >>> gpt = Shape(32, 4096, 32, 32, 128, 16384, 50368)
    >>> fused_layer_traffic(gpt).forward / 2 / 4096, fused_layer_traffic(gpt).backward / 2 / 4096
    (10.0, 12.0)

    Raises:
        ValueError: the number of tensor ranks is below 1.
    """
    if tensor < 1:
        raise ValueError("tensor ranks are at least 1")
    numbers = shape.hidden_size * bytes_per_number / (tensor if sequence_parallel else 1)
    return LayerTraffic(10 * numbers, 12 * numbers)


def expert_traffic(shape: Shape, split: int = 1, bytes_per_number: int = 2) -> LayerTraffic:
    """Bytes of one token and layer on average for the copies of the token that its experts read and write.

    Each of the k copies of a token is written in the order of the ranks, written in the order of the experts, read and
    written by the products, and added up: 8 k h numbers forward. Backward the same moves are made once, and the
    products read and write twice as much: 12 k h. Of `split` ranks that share the sequence each moves its part.
    Source: NVIDIA/Megatron-LM@d98e8a64:megatron/core/transformer/moe/token_dispatcher.py; the count is ours.

    >>> moe = Shape(1, 4096, 32, 4, 128, 0, 50368, num_experts=8, num_active_experts=2, num_expert_layers=1)
    >>> expert_traffic(moe).forward / 2 / 4096
    16.0
    """
    if not shape.num_experts:
        return LayerTraffic(0.0, 0.0)
    copies = shape.num_active_experts * shape.num_expert_layers / shape.num_layers
    numbers = copies * shape.hidden_size * bytes_per_number / split
    return LayerTraffic(8 * numbers, 12 * numbers)


def narrowing_traffic(shape: Shape, tensor: int = 1) -> LayerTraffic:
    """Bytes of one token and layer to make the inputs of products narrower than 16 bits.

    A kernel reads each input in 16 bits, and writes it in 8 or fewer, by rows and by columns: four bytes. Forward
    these are the inputs of the four products, backward the gradients of what they put out. Source:
    NVIDIA/TransformerEngine, transformer_engine/pytorch/module; the count is ours.

    >>> narrowing_traffic(Shape(1, 4096, 32, 32, 128, 16384, 50368)).forward / 4 / 4096
    7.0
    """
    h, a = shape.hidden_size, shape.attention_width
    q = a + 2 * shape.num_key_value_heads * shape.head_size
    f = _mean_ffn_width(shape)
    into = (2 if shape.gated_ffn else 1) * f
    return LayerTraffic(4 * (2 * h + (a + f) / tensor), 4 * (2 * h + (q + into) / tensor))


@dataclass(frozen=True, slots=True)
class WeightTraffic:
    """Bytes that one rank reads and writes for one of its weights and one micro-batch."""

    forward: float
    backward: float


def weight_traffic(
    layout: Layout,
    gradient_bytes: float = 4,
    parameter_bytes: float = 2,
    *,
    fused_accumulation: bool = True,
    trained_share: float = 1.0,
) -> WeightTraffic:
    """Bytes of one weight and micro-batch that its products do not move while they compute.

    Where weights are sharded, each pass writes what it gathered, and the reduction reads the gradient: the unsharded
    parameters and gradients of arXiv:2304.11277, section 3.2. Elsewhere the gradients of several micro-batches add up.
    Software either lets the product do that (`--no-gradient-accumulation-fusion` of Megatron-LM turns it off), or a
    kernel reads the gradient of the product, and reads and writes the sum: NVIDIA/Megatron-LM@de7dc40f:
    megatron/model/distributed.py, `main_grad.add_`. Such bytes do not shrink with the micro-batch, so that small ones
    cost more for each token. Frozen weights have no gradients. Example: gradients of 16 bits that a kernel of its own
    adds up.

    >>> weight_traffic(Layout(num_micro_batches=8), 2, fused_accumulation=False)
    WeightTraffic(forward=0.0, backward=6.0)
    """
    if layout.sharding_stage == 3 and layout.num_shards > 1:
        return WeightTraffic(float(parameter_bytes), float(parameter_bytes + trained_share * gradient_bytes))
    if fused_accumulation or layout.num_micro_batches == 1:
        return WeightTraffic(0.0, 0.0)
    return WeightTraffic(0.0, float(trained_share * (_PRODUCT_BYTES + 2 * gradient_bytes)))


def _mean_ffn_width(shape: Shape) -> float:
    """Feed-forward width that one token visits, as a mean over the layers."""
    if not shape.num_expert_layers:
        return shape.ffn_hidden_size
    visited = (shape.num_active_experts + shape.num_shared_experts) * shape.expert_hidden_size
    dense = shape.num_layers - shape.num_expert_layers
    return (dense * shape.ffn_hidden_size + shape.num_expert_layers * visited) / shape.num_layers
