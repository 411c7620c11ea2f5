"""Shapes of vision, state-space and hybrid models, and the parameters that the shape of any family implies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainspec_validate.documents.types.model import Experts, Model, StateSpace
from trainspec_validate.performance.costs.model_families import (
    HybridShape,
    StateSpaceShape,
    VisionShape,
    attention_parameters,
    classifier_parameters,
    hybrid_parameters,
    mtp_parameters,
    vision_parameters,
)
from trainspec_validate.performance.costs.transformer import Shape, parameters
from trainspec_validate.performance.derived.plan import shape_of

TRANSFORMERS = frozenset({"dense-transformer", "moe-transformer"})
FAMILIES = {
    "state_space": ("state-space", "hybrid"),
    "num_attention_layers": ("hybrid",),
    "num_ffn_layers": ("hybrid",),
    "shared_layers": ("hybrid",),
    "image": ("vision-transformer", "cnn", "other"),
}
"""Keys of a model that only some families have."""
DENSE_LACKS = ("experts", "num_active_parameters")
"""Keys of a model that a dense transformer has not."""
HEAD_SIZE = 64
"""Channels of a head of Mamba-2 by default: state-spaces/mamba, mamba_ssm/modules/mamba2.py."""


def foreign_keys(family: object) -> frozenset[str]:
    """The keys of a model that one of this family has not."""
    others = {key for key, owners in FAMILIES.items() if family not in owners}
    return frozenset(others.union(DENSE_LACKS if family == "dense-transformer" else ()))


def shape_lacks(model: Model) -> list[str]:
    """The keys that the shape of a transformer needs and does not give."""
    keys = ["num_layers", "hidden_size", "num_attention_heads", "vocabulary_size", "sequence_length"]
    lacking = [key for key in keys if getattr(model, key) is None]
    experts = model.experts
    if model.family == "moe-transformer":
        if experts is None:
            return [*lacking, "experts"]
        if experts.ffn_hidden_size is None:
            lacking.append("experts.ffn_hidden_size")
        if model.num_active_parameters is None:
            lacking.append("num_active_parameters")
    some_dense = experts is None or (experts.num_layers or 0) < (model.num_layers or 0)
    all_experts = experts is not None and experts.num_layers is None
    if some_dense and not all_experts and model.ffn_hidden_size is None:
        lacking.append("ffn_hidden_size")
    return lacking


def vision_shape(model: Model) -> VisionShape | None:
    """The shape of a vision transformer whose keys are all there; None for other families and incomplete shapes."""
    image = model.image
    if model.family != "vision-transformer" or image is None or image.patch_size_pixels is None:
        return None
    if not (model.num_layers and model.hidden_size and model.ffn_hidden_size and image.num_classes):
        return None
    return VisionShape(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        ffn_hidden_size=model.ffn_hidden_size,
        image_size=image.size_pixels,
        patch_size=image.patch_size_pixels,
        num_channels=image.num_channels,
        num_classes=image.num_classes,
    )


def _state_space(hidden_size: int, declared: StateSpace) -> StateSpaceShape | None:
    if declared.kind == "other" or (declared.kind == "gated-delta-net" and not declared.num_heads):
        return None
    inner = declared.inner_size or 2 * hidden_size
    return StateSpaceShape(
        kind=declared.kind,
        inner_size=inner,
        state_size=declared.state_size,
        convolution_width=declared.convolution_width,
        num_heads=declared.num_heads or inner // HEAD_SIZE,
        num_groups=declared.num_groups,
        time_step_rank=declared.time_step_rank or -(-hidden_size // 16),
    )


def hybrid_shape(model: Model) -> HybridShape | None:
    """The shape of a state-space or hybrid model; None for other families, other layers, and incomplete shapes."""
    declared, hidden, layers, experts = model.state_space, model.hidden_size, model.num_layers, model.experts
    if model.family not in {"state-space", "hybrid"} or declared is None:
        return None
    if not (hidden and layers and model.vocabulary_size) or (experts and not experts.ffn_hidden_size):
        return None
    attention, ffn = model.num_attention_layers or 0, model.num_ffn_layers or 0
    heads = model.num_attention_heads or 0
    if (attention and not heads) or (ffn and not model.ffn_hidden_size):
        return None
    if model.family == "hybrid" and (model.num_attention_layers is None or model.num_ffn_layers is None):
        return None
    widths = Shape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_key_value_heads=model.num_key_value_heads or heads,
        head_size=model.head_size or (hidden // heads if heads else 0),
        ffn_hidden_size=model.ffn_hidden_size or 0,
        vocabulary_size=model.vocabulary_size,
        gated_ffn=model.gated_ffn,
        tied_embeddings=model.tied_embeddings,
    )
    space = _state_space(hidden, declared)
    widths = _with_experts(widths, experts)
    return HybridShape(widths, space, declared.num_layers or layers, attention, ffn) if space else None


def _with_experts(shape: Shape, experts: Experts | None) -> Shape:
    """The shape with its layers of experts."""
    if experts is None or not experts.ffn_hidden_size:
        return shape
    return replace(
        shape,
        num_experts=experts.num_experts,
        num_active_experts=experts.num_active_experts,
        num_shared_experts=experts.num_shared_experts,
        expert_hidden_size=experts.ffn_hidden_size,
        num_expert_layers=experts.num_layers or shape.num_layers,
    )


@dataclass(frozen=True, slots=True)
class ShapeCount:
    """Least, likely and most parameters of a shape by one convention of counting, in words that follow the number."""

    low: float
    likely: float
    high: float
    convention: str = ""
    has_mtp: bool = False
    """True where layers for multi-token prediction are counted."""

    def plus(self, more: float, convention: str, *, has_mtp: bool = False) -> ShapeCount:
        """The count of a convention that counts more, or with a negative number fewer."""
        return ShapeCount(self.low + more, self.likely + more, self.high + more, convention, has_mtp)


def published_counts(model: Model) -> list[ShapeCount]:
    """The parameters of a shape by each convention of publications; empty where the shape is not counted.

    Embedding tables and layers for multi-token prediction are counted or left out; files of weights repeat the tables
    in each such layer, as those of DeepSeek-V3 do. The classifier of a vision transformer is counted or left out.
    """
    implied, shape = implied_parameters(model), shape_of(model)
    if implied is None:
        return []
    base = ShapeCount(*implied)
    if vision := vision_shape(model):
        return [base, base.plus(-classifier_parameters(vision), "without the classifier")]
    if shape is None:
        return [base]
    tables, extra = parameters(shape).embeddings, least_mtp_parameters(model)
    counts = [base, base.plus(-tables, "without embeddings")]
    if extra:
        num = model.num_mtp_layers
        layers, those, their = (
            ("its layers", "those layers", "their") if num > 1 else ("its layer", "that layer", "its")
        )
        more = [(extra, f"with {layers} for multi-token prediction")]
        if not shape.tied_embeddings:
            more.append((extra + num * tables, f"with {those} and {their} copies of embeddings"))
        more.append((extra - tables, f"with {those} and without embeddings"))
        counts += [base.plus(number, words, has_mtp=True) for number, words in more]
    return counts


def shared_parameters(model: Model) -> float | None:
    """Least parameters of a hybrid whose attention and feed-forward layers share weights; None where they cannot.

    They come on top of a state space in every layer, as in Zamba2 (arXiv:2411.15242).
    """
    hybrid = hybrid_shape(model)
    if hybrid is None or model.shared_layers is False or hybrid.num_state_space_layers != model.num_layers:
        return None
    shared = hybrid_parameters(_shared(hybrid))
    return shared if shared < hybrid_parameters(hybrid) else None


def implied_parameters(model: Model) -> tuple[float, float, float] | None:
    """Least, likely and most parameters that a shape implies, embeddings counted; None where it is not known.

    Learned positions are allowed for, and the projections of latent attention.
    """
    if shape := shape_of(model):
        if model.attention in {"linear", "none"}:
            return None
        counted = parameters(shape)
        latent = counted.attention if model.attention == "latent" else 0.0
        return counted.total - latent, counted.total, counted.total + _beyond_the_shape(model, shape)
    if vision := vision_shape(model):
        total = vision_parameters(vision)
        return total, total, total
    if hybrid := hybrid_shape(model):
        total = hybrid_parameters(hybrid)
        return total - (attention_parameters(hybrid) if model.attention == "latent" else 0.0), total, total
    return None


def active_hybrid_parameters(model: Model) -> tuple[float, float] | None:
    """Parameters of a hybrid that a token visits, without and with its tables; None where they are not counted."""
    hybrid = hybrid_shape(model)
    if hybrid is None:
        return None
    active, widths = hybrid_parameters(hybrid, only_active=True), hybrid.transformer
    tables = widths.embedding_parameters * (1 if widths.tied_embeddings else 2)
    latent = attention_parameters(hybrid) if model.attention == "latent" else 0.0
    return active - tables - latent, active


def position_parameters(model: Model) -> int:
    """Most parameters of a table of positions; 0 where the plan states another way to encode them."""
    has_table = model.positions in {None, "learned"}
    return (model.sequence_length or 0) * (model.hidden_size or 0) if has_table else 0


def _beyond_the_shape(model: Model, shape: Shape) -> float:
    """Most parameters of a table of positions and, in an encoder, of the pooler and before the output layer.

    Both are a matrix with a bias, the latter with a norm; an encoder also has a table of two segments. Source:
    arXiv:1810.04805, section 3; google-research/bert@eedf5716:modeling.py and run_pretraining.py.
    """
    encoder = 2 * shape.hidden_size * (shape.hidden_size + 4) if model.bidirectional_attention else 0
    return position_parameters(model) + encoder


def _shared(shape: HybridShape) -> HybridShape:
    """The shape where all attention layers share one set of weights, and all feed-forward layers another."""
    attention, ffn = min(shape.num_attention_layers, 1), min(shape.num_ffn_layers, 1)
    return replace(shape, num_attention_layers=attention, num_ffn_layers=ffn)


def least_mtp_parameters(model: Model) -> float:
    """Least parameters of all layers for multi-token prediction; 0 where there is none or the shape is not known."""
    shape = shape_of(model)
    if not model.num_mtp_layers or shape is None:
        return 0.0
    width = shape.attention_width + shape.num_key_value_heads * shape.head_size
    latent = 2 * shape.hidden_size * width if model.attention == "latent" else 0
    return model.num_mtp_layers * (mtp_parameters(shape) - latent)
