"""Derives figures of a plan for rules of several chapters: shape, tokens of a step, ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.batch import BatchStage
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.precision import Precision
from trainspec_validate.performance.costs.batch_schedule import Stage, num_steps
from trainspec_validate.performance.costs.transformer import Shape, parameters

FORMATS_OF_RECIPE: Mapping[str, tuple[str, ...]] = {
    "fp8-hybrid": ("fp8", "fp8-e4m3", "fp8-e5m2"),
    "fp8-e4m3": ("fp8", "fp8-e4m3"),
    "fp8-e5m2": ("fp8", "fp8-e5m2"),
    "fp8-block": ("fp8", "fp8-e4m3"),
    "mxfp8": ("mxfp8",),
    "nvfp4": ("nvfp4", "fp4"),
    "mxfp4": ("mxfp4", "fp4"),
    "int8": ("int8",),
}
"""Names under which the peak rate of a recipe's products may be listed, the nearest first."""


_FEWER_HEADS = frozenset({"grouped-query", "multi-query"})
"""Variants of attention whose key and value heads are not as many as query heads, which an absent key means."""


def compute_formats(precision: Precision) -> tuple[str, ...]:
    """Names under which the peak rate of most matrix products may be listed, the nearest first."""
    return FORMATS_OF_RECIPE[precision.recipe.format] if precision.recipe else (precision.compute,)


def is_transformer(model: Model) -> bool:
    """Whether the keys of a shape are those of a transformer, dense or with experts."""
    return model.family in {"dense-transformer", "moe-transformer"}


def shape_of(model: Model) -> Shape | None:
    """The shape of a transformer whose keys are all there; None for other families and incomplete shapes."""
    if not is_transformer(model):
        return None
    if not (model.num_layers and model.hidden_size and model.num_attention_heads and model.vocabulary_size):
        return None
    if model.attention in _FEWER_HEADS and model.num_key_value_heads is None:
        return None
    experts = model.experts
    num_expert_layers = (experts.num_layers or model.num_layers) if experts else 0
    expert_width = (experts.ffn_hidden_size if experts else None) or 0
    lacks_dense = num_expert_layers < model.num_layers and not model.ffn_hidden_size
    if lacks_dense or num_expert_layers > model.num_layers or (experts and not expert_width):
        return None
    return Shape(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        num_heads=model.num_attention_heads,
        num_key_value_heads=model.num_key_value_heads or model.num_attention_heads,
        head_size=model.head_size or model.hidden_size // model.num_attention_heads,
        ffn_hidden_size=model.ffn_hidden_size or 0,
        vocabulary_size=model.vocabulary_size,
        gated_ffn=model.gated_ffn,
        tied_embeddings=model.tied_embeddings,
        relative_positions=model.positions == "relative",
        num_experts=experts.num_experts if experts else 0,
        num_active_experts=experts.num_active_experts if experts else 0,
        num_shared_experts=experts.num_shared_experts if experts else 0,
        expert_hidden_size=expert_width,
        num_expert_layers=num_expert_layers,
    )


def computed_shape_of(model: Model) -> Shape | None:
    """The shape as it is computed with: latent attention has the parameters that all others leave of the stated number.

    The ranks of its projections are no keys of a plan. Where the stated number leaves nothing, or more than a plain
    projection has, the shape stays as it is.
    """
    shape = shape_of(model)
    if shape is None or model.attention != "latent":
        return shape
    counted = parameters(shape)
    left = (model.num_parameters - counted.total + counted.attention) / shape.num_layers
    return replace(shape, latent_parameters=left) if 0 < left * shape.num_layers < counted.attention else shape


def tokens_per_step(plan: TrainingPlan) -> float | None:
    """Tokens of one optimizer step at the full batch; None when the plan does not say."""
    if plan.batch.global_tokens:
        return float(plan.batch.global_tokens)
    if plan.model.sequence_length:
        return float(plan.batch.global_sequences * plan.model.sequence_length)
    return None


def stage_tokens(plan: TrainingPlan, stage: BatchStage) -> float | None:
    """Tokens of one optimizer step in a stage of the ramp; None when the plan does not say."""
    if stage.global_tokens:
        return float(stage.global_tokens)
    length = stage.sequence_length or plan.model.sequence_length
    return float(stage.global_sequences * length) if length else None


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Least and most of an optimizer step along the ramp and by a controller, over those at the full batch."""

    sequences: tuple[float, float]
    tokens: tuple[float, float]
    tokens_per_sequence: tuple[float, float]


def batch_range(plan: TrainingPlan) -> BatchRange:
    """How far batches of the job are from the full one; ones where it never changes."""
    batch, full = plan.batch, tokens_per_step(plan)
    pairs = [(1.0, 1.0)]
    for stage in batch.ramp:
        share, tokens = stage.global_sequences / batch.global_sequences, stage_tokens(plan, stage)
        pairs.append((share, tokens / full if tokens and full else share))
    if batch.controller:
        bounds = (batch.controller.min_global_sequences, batch.controller.max_global_sequences)
        pairs += [(bound / batch.global_sequences,) * 2 for bound in bounds]
    sequences, tokens_ = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    each = [tokens / share for share, tokens in pairs]
    return BatchRange((min(sequences), max(sequences)), (min(tokens_), max(tokens_)), (min(each), max(each)))


def steps_of_tokens(plan: TrainingPlan, tokens: float) -> float | None:
    """Optimizer steps that some tokens take, along the ramp; None where the batch is not known or changes by itself."""
    whole, batch = tokens_per_step(plan), plan.batch
    if whole is None or batch.controller or tokens <= 0:
        return None
    stages = [
        Stage(stage.from_tokens, stage_tokens(plan, stage) or whole, stage.transition == "linear")
        for stage in batch.ramp
    ]
    try:
        return num_steps(stages or [Stage(0, whole)], tokens)
    except ValueError:
        return None


def job_steps(plan: TrainingPlan) -> float | None:
    """Optimizer steps of the job, stated or from its tokens; None where neither is known."""
    job = plan.job
    if job is None or job.num_steps:
        return float(job.num_steps) if job and job.num_steps else None
    return steps_of_tokens(plan, job.num_tokens) if job.num_tokens else None


def job_tokens(plan: TrainingPlan) -> float | None:
    """Tokens of the job, stated or from its steps where the batch is the same in all of them; None otherwise."""
    job, step = plan.job, tokens_per_step(plan)
    if job is None or job.num_tokens:
        return job.num_tokens if job else None
    same = step is not None and not plan.batch.ramp and not plan.batch.controller
    return job.num_steps * step if job.num_steps and step and same else None


def node_groups(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[NodeGroup, ...]:
    """The node groups that a plan can run on: the one that it names, else all; empty for an unknown name."""
    if plan.node_group is None:
        return cluster.node_groups
    return tuple(group for group in cluster.node_groups if group.name == plan.node_group)


def num_ranks(groups: tuple[NodeGroup, ...]) -> int:
    """Ranks that node groups offer."""
    return sum(
        group.num_nodes * group.num_accelerators_per_node * group.accelerator.num_ranks_per_accelerator
        for group in groups
    )
