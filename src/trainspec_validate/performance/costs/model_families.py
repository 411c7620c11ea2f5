"""Parameters and operations of models that are not language transformers alone: vision, state space, hybrid, MTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainspec_validate.performance.costs.transformer import Shape


@dataclass(frozen=True, slots=True)
class VisionShape:
    """A vision transformer with a class token, learned positions, biases and a linear classifier."""

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    image_size: int
    patch_size: int
    num_channels: int
    num_classes: int

    @property
    def num_tokens(self) -> int:
        """Patches of an image and the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1


def vision_parameters(shape: VisionShape) -> float:
    """Parameters of a vision transformer: `L (4 h^2 + 2 h f + 9 h + f) + c p^2 h + (n + 2) h + 2 h + (h + 1) classes`.

    A layer has biases and two norms with two vectors each; n tokens have learned positions, and the patches a bias.
    Source: arXiv:2010.11929, section 3.1 and table 1. ViT-B/16 at 224 pixels and 1,000 classes has 86,567,656
    (pytorch/vision:torchvision/models/vision_transformer.py):

    >>> vision_parameters(VisionShape(12, 768, 3072, 224, 16, 3, 1000))
    86567656.0
    """
    h, f = shape.hidden_size, shape.ffn_hidden_size
    layer = 4 * h * h + 2 * h * f + 9 * h + f
    patches = shape.num_channels * shape.patch_size**2 * h + h
    tokens = h + shape.num_tokens * h
    return float(shape.num_layers * layer + patches + tokens + 2 * h + classifier_parameters(shape))


def classifier_parameters(shape: VisionShape) -> float:
    """Parameters of the linear classifier, which counts of makers leave out: arXiv:2302.05442, table 1."""
    return float((shape.hidden_size + 1) * shape.num_classes)


def vision_flops_per_sample(shape: VisionShape) -> float:
    """Model operations of one image, forward and backward: three times two operations for each multiply-add.

    Multiply-adds: `n L (4 h^2 + 2 h f) + 2 n^2 h L` of the layers, `c p^2 h (n - 1)` of the patches, and those of the
    classifier. Source: arXiv:2010.11929, section 3.1, by the count of arXiv:2204.02311, appendix B. ViT-B/16 at 224
    pixels has 17.56 billion multiply-adds (pytorch/vision:torchvision/models/vision_transformer.py, `_ops`):

    >>> round(vision_flops_per_sample(VisionShape(12, 768, 3072, 224, 16, 3, 1000)) / 6e9, 2)
    17.56
    """
    h, n = shape.hidden_size, shape.num_tokens
    layers = shape.num_layers * (n * (4 * h * h + 2 * h * shape.ffn_hidden_size) + 2 * n * n * h)
    patches = shape.num_channels * shape.patch_size**2 * h * (n - 1)
    return 6.0 * (layers + patches + h * shape.num_classes)


@dataclass(frozen=True, slots=True)
class StateSpaceShape:
    """One state-space layer; `num_heads` and `num_groups` are not of Mamba, `time_step_rank` is of Mamba alone."""

    kind: Literal["mamba", "mamba-2", "gated-delta-net"]
    inner_size: int
    state_size: int
    convolution_width: int = 4
    num_heads: int = 0
    num_groups: int = 1
    time_step_rank: int = 0


def state_space_parameters(hidden_size: int, shape: StateSpaceShape) -> float:
    """Parameters of one layer of Mamba, Mamba-2 or a gated delta net, its norm included.

    With inner width d, state n and convolution w, Mamba (arXiv:2312.00752, section 3.4) has `2 h d + (w + 1) d +
    d (r + 2 n) + (r + 1) d + d n + d + d h`, where r is the rank of the time step; Mamba-2 (arXiv:2405.21060, section
    7) has `h (2 d + 2 g n + H) + (w + 1) (d + 2 g n) + 3 H + d + d h` with H heads in g groups. A gated delta net
    (arXiv:2412.06464) with H value heads and g key heads has `h (2 d + 2 g n + 2 H) + w (d + 2 g n) + 2 H + d / H +
    d h` (huggingface/transformers:src/transformers/models/qwen3_next/modeling_qwen3_next.py). Mamba 2.8B, 64 layers:

    >>> layer = StateSpaceShape("mamba", inner_size=5120, state_size=16, time_step_rank=160)
    >>> 64 * state_space_parameters(2560, layer) + 2560 + 50280 * 2560
    2768345600.0
    """
    h, d, n = hidden_size, shape.inner_size, shape.state_size
    convolution = shape.convolution_width + 1
    if shape.kind == "mamba":
        rank = shape.time_step_rank
        return float(h + 2 * h * d + convolution * d + d * (rank + 2 * n) + (rank + 1) * d + d * n + d + d * h)
    wide, heads = d + 2 * shape.num_groups * n, shape.num_heads
    if shape.kind == "mamba-2":
        return float(h + h * (d + wide + heads) + convolution * wide + 3 * heads + d + d * h)
    return float(h + h * (d + wide + 2 * heads) + shape.convolution_width * wide + 2 * heads + d / heads + d * h)


@dataclass(frozen=True, slots=True)
class HybridShape:
    """Layers of several kinds in one model, each with a norm: state space, attention, feed-forward, experts."""

    transformer: Shape
    """Widths of attention, feed-forward and tables, and the layers with experts; all its layers are not used."""
    state_space: StateSpaceShape
    num_state_space_layers: int
    num_attention_layers: int
    num_ffn_layers: int


def hybrid_parameters(shape: HybridShape, *, only_active: bool = False) -> float:
    """Parameters of a hybrid, all or those that a token visits: each kind of layer by its formula, tables, last norm.

    Sources as for `state_space_parameters` and `transformer.parameters`. Nemotron-H 8B (arXiv:2504.03624, table 1) has
    24 layers of Mamba-2, 4 of attention and 24 feed-forward:

    >>> widths = Shape(52, 4096, 32, 8, 128, 21504, 131072)
    >>> mamba_2 = StateSpaceShape("mamba-2", 8192, 128, num_heads=128, num_groups=8)
    >>> round(hybrid_parameters(HybridShape(widths, mamba_2, 24, 4, 24)) / 1e9, 2)
    8.1
    """
    widths, h = shape.transformer, shape.transformer.hidden_size
    matrices = (3 if widths.gated_ffn else 2) * h
    ffn = matrices * widths.ffn_hidden_size + h
    visited = widths.num_active_experts if only_active else widths.num_experts
    experts = matrices * widths.expert_hidden_size * (visited + widths.num_shared_experts) + h * widths.num_experts + h
    layers = attention_parameters(shape) + shape.num_ffn_layers * ffn + widths.num_expert_layers * experts
    mixing = shape.num_state_space_layers * state_space_parameters(h, shape.state_space)
    return float(layers + mixing + widths.embedding_parameters * (1 if widths.tied_embeddings else 2) + h)


def attention_parameters(shape: HybridShape) -> float:
    """Parameters of all attention layers of a hybrid, norms included."""
    widths, h = shape.transformer, shape.transformer.hidden_size
    width = widths.attention_width + widths.num_key_value_heads * widths.head_size
    return float(shape.num_attention_layers * (2 * h * width + h))


def mtp_parameters(shape: Shape) -> float:
    """Parameters of one layer for multi-token prediction: `2 h^2` of its projection, three norms, and a layer.

    The layer has experts where the model has some; embeddings and output layer are shared with the model. Source:
    arXiv:2412.19437, section 2.2. DeepSeek-V3 states 11.5 billion (deepseek-ai/DeepSeek-V3:README_WEIGHTS.md); its
    latent attention is smaller than the full one that is counted here:

    >>> deepseek = Shape(61, 7168, 128, 128, 128, 18432, 129280, True, False, 256, 8, 1, 2048, 58)
    >>> round(mtp_parameters(deepseek) / 1e9, 1)
    11.9
    """
    h = shape.hidden_size
    attention = 2 * h * (shape.attention_width + shape.num_key_value_heads * shape.head_size)
    each = (3 if shape.gated_ffn else 2) * h
    if shape.num_expert_layers:
        experts = shape.num_experts + shape.num_shared_experts
        ffn = each * shape.expert_hidden_size * experts + h * shape.num_experts
    else:
        ffn = each * shape.ffn_hidden_size
    return float(2 * h * h + 5 * h + attention + ffn)
