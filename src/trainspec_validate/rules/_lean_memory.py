"""Predicts the least memory that a rank of a plan can need, for rules that speak only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.performance.costs.activations import ActivationPolicy
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory_overheads import Overheads
from trainspec_validate.performance.costs.rank_memory import RankMemory, peak
from trainspec_validate.performance.forecast.facts import ModelFacts
from trainspec_validate.performance.forecast.outlook import GATHERED_GRADIENT_BYTES, Settings

ERROR = 0.12
"""Excess of the model at the most, against 24 measured peaks; the largest was 10 % (benchmarks/
score_memory.py)."""
UNMEASURED = "has experts, and no measured peak backs the memory that is predicted of mixtures of experts"
"""Why a mixture of experts is not judged beyond its least memory."""
MEASURE = "measure one step; its least memory is judged without"
MOST_KEPT = 2.0
"""Activations that code keeps over the formula at the most: 1.59 to 1.96 in eager code of six models."""


def lean_memory(model: ModelFacts, layout: Layout, settings: Settings) -> tuple[int, RankMemory]:
    """The fullest stage and its bytes when code keeps no more than the formulas.

    `selective` names two things: recomputing attention scores (arXiv:2205.05198), and keeping every second matrix
    product (pytorch/torchtitan@9dec370a). The second keeps less and is taken here. With experts it names further ways
    that keep still less, so whole layers are taken to be recomputed, and routed tokens count nothing: the fullest rank
    may have dropped them. All 107 published runs of mixtures of experts fit by this reading, at 0.90 of the memory even
    if nothing was recomputed (benchmarks/published/training_runs.csv).

    Raises:
        ValueError: the layers do not fit the stages, or the schedule has no formula.
    """
    recompute: Literal["none", "selective", "alternate", "full"] = settings.recompute
    if recompute == "selective":
        recompute = "full" if model.shape.num_expert_layers else "alternate"
    if model.trained_share < 1:
        # Without a gradient of its weights a matrix product keeps nothing; what a layer takes in is kept in any case.
        recompute = "full"
    policy = ActivationPolicy(
        recompute,
        fused_attention=settings.fused_attention,
        loss_bytes_per_logit=settings.overheads.loss_bytes_per_logit,
        expert_imbalance=0.0,
    )
    return peak(model.shape, layout, model.state, policy, _overheads(settings, model))


def leanest(plan: TrainingPlan, layout: Layout) -> Layout:
    """The layout, with tokens divided over the tensor ranks where the plan does not say whether they are.

    Published degrees seldom say so; GSPMD divides them over the model axis (PaLM, arXiv:2204.02311, section 4).
    """
    if plan.parallelism.sequence is None and layout.tensor > 1:
        return replace(layout, sequence_parallel=True)
    return layout


def generous_memory(model: ModelFacts, layout: Layout, settings: Settings) -> tuple[int, RankMemory]:
    """The fullest stage and its bytes when code keeps twice the formulas, and a stage its weights and outputs.

    Raises:
        ValueError: as `lean_memory`.
    """
    policy = ActivationPolicy(
        settings.recompute, fused_attention=settings.fused_attention, implementation_factor=MOST_KEPT
    )
    stays = layout.pipeline > 1
    overheads = replace(_overheads(settings, model), stage_stays_gathered=stays, keeps_stage_outputs=stays)
    return peak(model.shape, layout, model.state, policy, overheads)


def _overheads(settings: Settings, model: ModelFacts) -> Overheads:
    return replace(
        settings.overheads,
        gathered_gradient_bytes=GATHERED_GRADIENT_BYTES * model.trained_share,
        offloaded_parameters=settings.offloaded_parameters,
        offloaded_gradients=settings.offloaded_gradients,
        offloaded_optimizer=settings.offloaded_optimizer,
        offloaded_activations=settings.offloaded_activations,
    )


def needed_bytes(memory: RankMemory, reserve_bytes: float) -> float:
    """Bytes of a rank whose code keeps no more than the formulas and computes the loss in pieces.

    The reserve replaces contexts, buffers and fragmentation, where it is larger than these.
    """
    overheads = memory.fragmentation + memory.communication + memory.context
    tensors = memory.total - overheads - memory.logits
    return tensors / (1 + ERROR) + max(reserve_bytes, overheads / (1 + ERROR))
