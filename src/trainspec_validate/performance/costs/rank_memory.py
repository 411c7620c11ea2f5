"""Adds up the device memory of one rank at its peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainspec_validate.performance.costs.activations import (
    ActivationPolicy,
    boundary_bytes,
    embedding_bytes,
    gathered_sequence_bytes,
    gradient_bytes,
    layer_and_recomputed_bytes,
    logits_bytes,
)
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.memory_overheads import GIB, LEAST_FRAGMENTATION, Overheads
from trainspec_validate.performance.costs.rank_state import RankState, rank_state
from trainspec_validate.performance.costs.stage_memory import (
    RankParameters,
    Stage,
    fullest_candidates,
    in_flight,
    rank_parameters,
    stages,
)
from trainspec_validate.performance.costs.transformer import Shape

__all__ = ["GIB", "Activations", "Overheads", "RankMemory", "activations", "peak", "rank_memory", "stage_peaks"]


LOW_FACTOR, HIGH_FACTOR = 0.96, 1.1
"""10th and 90th percentile of measured over predicted memory, each table predicted from the others:
benchmarks/score_memory.py. Dense models alone; none with experts was measured."""


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one rank by class, at the moment when all of them together are largest."""

    weights: float
    """Weights with their low-precision copies, and what is gathered of other ranks' weights."""
    gradients: float
    optimizer: float
    """Master copy and moments."""
    activations: float
    """Activations of the micro-batches in flight, one gathered sequence, and the memory of one layer's backward if
    alive then."""
    logits: float
    """The loss and its inputs; 0 where another moment is fuller."""
    communication: float
    context: float
    fragmentation: float

    @property
    def allocator(self) -> float:
        """Memory that the framework's allocator reserves: all but the context and the buffers of the collectives."""
        tensors = self.weights + self.gradients + self.optimizer + self.activations + self.logits
        return tensors + self.fragmentation

    @property
    def total(self) -> float:
        """All bytes that the device must have."""
        return self.allocator + self.communication + self.context

    def with_reserve(self, reserve_bytes: float) -> float:
        """Bytes that the device must have to keep so many free of the framework's allocator.

        The reserve is for the context and the buffers of the collectives, which are not counted a second time.
        """
        return self.allocator + max(reserve_bytes, self.communication + self.context)

    @property
    def least_total(self) -> float:
        """Memory that the device must have at the least, when the allocator keeps little beyond its tensors."""
        kept = min(self.fragmentation, LEAST_FRAGMENTATION * (self.allocator - self.fragmentation))
        return self.total - self.fragmentation + kept

    @property
    def low_total(self) -> float:
        """One published run in ten needed less, relative to its prediction."""
        return self.total * LOW_FACTOR

    @property
    def high_total(self) -> float:
        """One published run in ten needed more, relative to its prediction."""
        return self.total * HIGH_FACTOR


@dataclass(frozen=True, slots=True)
class Activations:
    """Activations of one micro-batch, of one layer of each kind and around the layers."""

    dense: float
    expert: float
    backward: float
    """Needed by one layer's backward for itself: what it recomputes, and its gradients."""
    embedding: float
    logits: float
    boundary: float
    gathered_sequence: float
    outputs: float
    """The logits themselves, as the last stage puts them out."""


def activations(shape: Shape, layout: Layout, policy: ActivationPolicy) -> Activations:
    """Activations of a layout, which are the same however its copies share their state."""
    has_dense, has_experts = shape.num_layers > shape.num_expert_layers, shape.num_expert_layers > 0
    kept, backward = [0.0, 0.0], 0.0
    for expert_layer, exists in ((False, has_dense), (True, has_experts)):
        if exists:
            kept[expert_layer], again = layer_and_recomputed_bytes(shape, layout, policy, expert_layer=expert_layer)
            backward = max(backward, again + gradient_bytes(shape, layout, policy, expert_layer=expert_layer))
    logits, embedding = logits_bytes(shape, layout, policy), embedding_bytes(shape, layout, policy)
    return Activations(
        *(kept[0], kept[1], backward, embedding, logits),
        boundary=boundary_bytes(shape, layout, policy),
        gathered_sequence=gathered_sequence_bytes(shape, layout, policy),
        outputs=policy.bytes_per_number * layout.micro_batch_tokens * shape.vocabulary_size / layout.tensor,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """What all stages of a job share, computed once."""

    shape: Shape
    layout: Layout
    state: ModelState
    overheads: Overheads
    kept: Activations
    part: RankParameters
    stages: tuple[Stage, ...]


def _job(
    shape: Shape, layout: Layout, state: ModelState, kept: ActivationPolicy | Activations, overheads: Overheads
) -> _Job:
    chunks = layout.num_virtual_stages if layout.schedule == "interleaved-1f1b" else 1
    schedule = layout.schedule if layout.pipeline > 1 else "1f1b"
    return _Job(
        shape,
        layout,
        state,
        overheads,
        activations(shape, layout, kept) if isinstance(kept, ActivationPolicy) else kept,
        rank_parameters(shape, layout.tensor, layout.expert, layout.expert_tensor_degree),
        stages(shape, layout.pipeline, chunks, layout.stage_layers, schedule),
    )


def _kept_outputs(job: _Job, stage: Stage) -> float:
    """Bytes of what a stage keeps at its boundary for all micro-batches; see `Overheads.keeps_stage_outputs`."""
    if not job.overheads.keeps_stage_outputs or job.layout.pipeline == 1:
        return 0.0
    passing = job.layout.num_virtual_stages - stage.output_tables
    per_micro_batch = 2 * passing * job.kept.boundary + stage.output_tables * job.kept.outputs
    return job.layout.num_micro_batches * per_micro_batch


def _stage_memory(job: _Job, index: int) -> RankMemory:
    stage, kept, overheads = job.stages[index], job.kept, job.overheads
    state = rank_state(job.part, stage, job.layout, job.state, overheads)
    layers = stage.num_dense_layers * kept.dense + stage.num_expert_layers * kept.expert
    waiting = in_flight(job.layout, index) * (layers + (kept.embedding if stage.input_tables else 0.0))
    # What waits elsewhere is fetched for the backward of its layer, one layer at a time.
    at_work = max(kept.dense if stage.num_dense_layers else 0.0, kept.expert if stage.num_expert_layers else 0.0)
    waiting += overheads.offloaded_activations * (min(at_work, waiting) - waiting)
    # The loss is done before the first layer goes backward: what the two need never lives together.
    logits = kept.logits if stage.output_tables and kept.logits >= kept.backward else 0.0
    around = kept.gathered_sequence + _kept_outputs(job, stage)
    moments = [_moment(job, state, waiting + (0.0 if logits else kept.backward) + around, logits)]
    if overheads.gradients_come_late and job.layout.num_micro_batches * job.layout.pipeline == 1:
        first = replace(state, gradients=0.0)
        last = _moment(job, state, min(at_work, waiting) + kept.backward + around, 0.0)
        moments = [_moment(job, first, moments[0].activations, logits), last]
    if overheads.optimizer_copies and job.state.optimizer:
        copies = overheads.optimizer_copies * job.state.moments / 2 / job.state.optimizer
        moments.append(_moment(job, replace(state, optimizer=(1 + copies) * state.optimizer), 0.0, 0.0))
    return max(moments, key=_total)


def _total(memory: RankMemory) -> float:
    return memory.total


def _moment(job: _Job, state: RankState, activations: float, logits: float) -> RankMemory:
    """Bytes by class at one moment of a step."""
    overheads = job.overheads
    return RankMemory(
        state.weights,
        state.gradients,
        state.optimizer,
        activations,
        logits,
        overheads.communication_bytes if job.layout.num_ranks > 1 else 0.0,
        overheads.context_bytes,
        overheads.fragmentation * (state.weights + state.gradients + state.optimizer + activations + logits),
    )


_DEFAULT_OVERHEADS = Overheads()


def rank_memory(  # noqa: PLR0913, PLR0917
    shape: Shape,
    layout: Layout,
    state: ModelState,
    policy: ActivationPolicy,
    overheads: Overheads = _DEFAULT_OVERHEADS,
    stage: int = 0,
) -> RankMemory:
    """Bytes of one rank of a pipeline stage, by class, at the fullest moment of a step.

    Model state as in arXiv:1910.02054, Table 1, with the units that are gathered where weights are sharded
    (arXiv:2304.11277: the sum over units of `psi / F`, and the largest `psi`); activations as in
    arXiv:2205.05198. Two moments count: the loss, and the backward of one layer. The optimizer's own working
    memory is left out. Llama 3.1 8B on 128 ranks that share all state holds 8 / 128 bytes of moments a parameter:

    >>> from trainspec_validate.performance.costs.memory import model_state
    >>> llama_8b = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
    >>> layout = Layout(data=128, sharding_stage=3, micro_sequences=2, sequence_length=8192)
    >>> fp32 = model_state("fp32", None, "fp32", "fp32")
    >>> bytes_by_class = rank_memory(llama_8b, layout, fp32, ActivationPolicy("full"))
    >>> round(bytes_by_class.optimizer / GIB, 3), round(bytes_by_class.activations / GIB, 3)
    (0.467, 4.0)

    Raises:
        ValueError: the stage does not exist, its layers do not fit, or the schedule has no formula.
    """
    if not 0 <= stage < layout.pipeline:
        raise ValueError(f"stage {stage} is not one of 0 to {layout.pipeline - 1}")
    return _stage_memory(_job(shape, layout, state, policy, overheads), stage)


def peak(
    shape: Shape,
    layout: Layout,
    state: ModelState,
    kept: ActivationPolicy | Activations,
    overheads: Overheads = _DEFAULT_OVERHEADS,
) -> tuple[int, RankMemory]:
    """The fullest pipeline stage, counted from 0, and the bytes of one of its ranks.

    `kept` is a policy, or the `activations` of any sharding of the layout. Sources as for `rank_memory`. GPT-3 on 8
    stages: the first is the fullest, since 1F1B leaves eight micro-batches on it and one on the last.

    >>> from trainspec_validate.performance.costs.memory import model_state
    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> layout = Layout(tensor=8, pipeline=8, num_micro_batches=64, sequence_parallel=True, sequence_length=2048)
    >>> stage, fullest = peak(gpt3, layout, model_state("bf16", "fp32", "fp32", "fp32"), ActivationPolicy("none"))
    >>> stage, round(fullest.allocator / GIB, 1)
    (0, 62.7)

    Raises:
        ValueError: the layers of the stages do not fit, or the schedule has no formula.
    """
    return max(stage_peaks(shape, layout, state, kept, overheads), key=lambda candidate: candidate[1].total)


def stage_peaks(
    shape: Shape,
    layout: Layout,
    state: ModelState,
    kept: ActivationPolicy | Activations,
    overheads: Overheads = _DEFAULT_OVERHEADS,
) -> Iterator[tuple[int, RankMemory]]:
    """Pipeline stages of which one is the fullest, with the bytes of one of their ranks.

    Raises:
        ValueError: as `peak`.
    """
    job = _job(shape, layout, state, kept, overheads)
    return ((index, _stage_memory(job, index)) for index in fullest_candidates(job.stages))
