"""Counts the bytes of layers that PyTorch runs operation by operation, without a compiler or fused kernels.

Layers are those of huggingface/transformers@00227283:src/transformers/models/llama/modeling_llama.py where the
feed-forward part is gated, and of models/gpt2/modeling_gpt2.py where it is not; attention is SDPA, the products are of
16 bits. `wide` is the bytes of a number between layers: 4 under autocast, since the tables are fp32, and 2 where all
weights are of 16 bits. Each operation reads its inputs and writes its output once; what a later gradient reads is kept.
Operations run in fp32 as https://docs.pytorch.org/docs/stable/amp.html lists them, `pow` and normalisation among them.
The counts are ours, and no constant is fitted; `benchmarks/published/plain_training.csv` has what was measured.
"""

from __future__ import annotations

from trainspec_validate.performance.costs.kernel_traffic import LayerTraffic
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.transformer import Shape

EAGER_LOSS_BYTES_PER_ENTRY = 38
"""Bytes read and written for one token and vocabulary entry.

Forward: write 2, widen 2 + 4, logarithm of softmax 4 + 4; backward: zeros 4, of the softmax 4 + 4 + 4, narrow 4 + 2.
"""
EAGER_LOSS_BYTES_PER_LOGIT = 12.0
"""Of fp32 the logarithm of the softmax, its gradient and that of the logits, all alive at once."""


def eager_layer_traffic(shape: Shape, wide: int, tensor: int = 1) -> LayerTraffic:
    """Bytes of one token and layer; under autocast with h = a = 2,048 and f = 5,504 some three times the fused ones.

    >>> llama = Shape(24, 2048, 16, 16, 128, 5504, 32000, gated_ffn=True)
    >>> eager_layer_traffic(llama, 4).forward / 2048, eager_layer_traffic(llama, 4).backward / 2048
    (245.0, 526.625)
    """
    h, a, f = shape.hidden_size, shape.attention_width / tensor, shape.ffn_hidden_size / tensor
    q = a + 2 * shape.num_key_value_heads * shape.head_size / tensor
    into = (2 if shape.gated_ffn else 1) * f
    cast = _cast(wide)
    # Products and attention; residual sums, backward with the gradient of the branch widened and both added up.
    forward = 2 * (4 * h + 2 * q + 2 * a + into + f) + 2 * (2 * wide + 2) * h
    backward = 4 * (4 * h + 2 * q + 2 * a + into + f) + 2 * (cast + 3 * wide) * h
    more_forward, more_backward = _gated(h, (a + q) / 2, f, wide) if shape.gated_ffn else _plain(h, q, f, wide)
    return LayerTraffic(forward + more_forward, backward + more_backward)


def _cast(wide: int) -> int:
    """Bytes to make a wide number one of 16 bits, or the reverse."""
    return wide + 2 if wide > 2 else 0


def _gated(h: float, turned: float, f: float, wide: int) -> tuple[float, float]:
    """Two RMS norms, casts of five inputs of products, rotation of queries and keys, SiLU times the gate's product.

    Norm: square, mean, times its root and times the weight, in fp32. Rotation: two products with tables, a negated and
    joined copy, a sum. Each input of a product is cast by itself, and gradients of those that share one are added up.
    """
    cast = _cast(wide)
    norm = 4 * 7 if wide > 2 else 4 * 5 + 6 + 6
    forward = 2 * norm * h + 5 * cast * h + (10 + 5 * wide + cast) * turned + 10 * f
    norm_back = 68 + 6 * wide + (12 if wide == 2 else 0)
    backward = 2 * norm_back * h + (5 * cast + 9 * wide) * h + (22 + 4 * wide + 3 * cast) * turned + 18 * f
    return forward, backward


def _plain(h: float, q: float, f: float, wide: int) -> tuple[float, float]:
    """Two layer norms, casts of inputs, two dropouts with masks, GELU by tanh in eight operations, biases.

    GELU: cube, scale, add, scale, tanh, add 1, halve the input, multiply.
    """
    cast = _cast(wide)
    gelu, gelu_back = (70, 118) if wide > 2 else (36, 50)
    dropouts = 2 * 5 * h
    forward = 4 * wide * h + 2 * cast * h + cast * f + gelu * f + dropouts
    # Gradients of queries, keys and values are joined; those of biases are sums over what products put out.
    backward = 10 * wide * h + 2 * cast * h + cast * f + gelu_back * f + dropouts + 4 * q + 2 * (q + 2 * h + f)
    return forward, backward


def eager_layer_bytes(shape: Shape, wide: int, tensor: int = 1) -> float:
    """Bytes of one token and layer that are kept from forward to backward.

    Gated: inputs of norms and what they make of them, inputs of products, queries, keys, values, result of attention,
    and four tensors of the feed-forward width. Else inputs of norms and of products, masks, and those of GELU.

    >>> eager_layer_bytes(Shape(24, 1024, 16, 16, 64, 4096, 50257), 4) / 1024
    86.0
    """
    h, a, f = shape.hidden_size, shape.attention_width / tensor, shape.ffn_hidden_size / tensor
    kept = 2 * (2 * a + 2 * shape.num_key_value_heads * shape.head_size / tensor)
    if shape.gated_ffn:
        # Under autocast each of five products keeps its own copy of its input.
        return kept + 2 * (4 + wide) * h + (10 if wide > 2 else 4) * h + 8 * f
    return kept + 2 * wide * h + 4 * h + 2 * h + (16 if wide > 2 else 10) * f


def eager_weight_bytes(wide: int) -> int:
    """Bytes of one weight and pass to cast it, or its gradient back, which autocast alone does.

    >>> eager_weight_bytes(4), eager_weight_bytes(2)
    (6, 0)
    """
    return _cast(wide)


def foreach_bytes_per_parameter(state: ModelState) -> float:
    """Bytes that clipping and AdamW move for one parameter as lists of tensors, each operation by itself.

    Clipping reads the gradient and scales it; then decay of the weight, both moments (two operations on the second),
    root, correction, epsilon and the step: pytorch/pytorch:torch/optim/adamw.py, `_multi_tensor_adam`.

    >>> foreach_bytes_per_parameter(ModelState(weights=4, master=0, gradients=4, moments=8))
    92.0
    """
    weight, moment = state.master or state.weights, state.moments / 2
    copied = state.weights if state.master else 0
    return 5 * state.gradients + 4 * weight + 14 * moment + copied
