"""Defines the goal of a search, and enumerates what a planner can choose for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from trainspec_validate.documents.types.base import SoftwareComponent
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.rank_memory import RankMemory
from trainspec_validate.performance.costs.transformer import Shape, parameters
from trainspec_validate.performance.forecast.facts import MachineFacts, ModelFacts, is_tpu
from trainspec_validate.performance.forecast.outlook import Recompute
from trainspec_validate.planner.constraints import FREE, Constraints
from trainspec_validate.planner.frameworks import Abilities, abilities_of


@dataclass(frozen=True, slots=True)
class Goal:
    """A job to be planned.

    Raises:
        ValueError: there is no rank, no sequence or no token, or the reserve is negative.
    """

    model: ModelFacts
    machine: MachineFacts
    num_ranks: int
    global_sequences: int
    sequence_length: int
    reserve_bytes: float
    """Device memory of a rank that the framework's allocator leaves to the context and to collectives."""
    host_bytes_per_rank: float | None = None
    """Memory of its host that a rank may offload to; None where the profile states none."""
    framework: SoftwareComponent | None = None
    """Whose kernels and overlap predictions take, and which has to run the plan; None means any."""
    constraints: Constraints = FREE

    def __post_init__(self) -> None:
        if min(self.num_ranks, self.global_sequences, self.sequence_length) < 1:
            raise ValueError("a job has a rank, and a step has a sequence of a token")
        if self.reserve_bytes < 0:
            raise ValueError(f"a reserve of {self.reserve_bytes} bytes")

    @property
    def memory_budget_bytes(self) -> float:
        """Memory of a rank's device that the framework's allocator may take."""
        return self.machine.memory_bytes - self.reserve_bytes

    def holds(self, memory: RankMemory) -> bool:
        """Whether a rank's device has the memory, and the reserve."""
        return planned_bytes(memory, self.machine.accelerator, self.reserve_bytes) <= self.machine.memory_bytes

    @property
    def abilities(self) -> Abilities:
        """Abilities of the framework of the job."""
        return abilities_of(self.framework.name if self.framework else None)


def planned_bytes(memory: RankMemory, accelerator: str, reserve_bytes: float) -> float:
    """Bytes that a rank's device must have for a plan to be recommended.

    The band of the prediction has to fit, as one measured run in ten needs more than its upper end. The band was not
    measured on TPUs, where the compiler lays out the memory before the job runs.
    """
    upper = 0.0 if is_tpu(accelerator) else memory.high_total
    return max(memory.with_reserve(reserve_bytes), upper)


ORDERS = (
    ("tensor", "context", "expert", "data", "pipeline"),
    ("tensor", "context", "expert", "pipeline", "data"),
)
"""Stages outermost keep gradients of a stage on near ranks, data outermost keeps stages near."""
MAX_MICRO_SEQUENCES = 16
MAX_VIRTUAL_STAGES = 16
MIN_CONTEXT_TOKENS = 4096
"""Fewest tokens of a sequence on one context rank: half of what a published run had, whose sequences of 131,072 tokens
lay on 16 ranks (arXiv:2407.21783, table 4)."""
TILE = 64
"""Columns of a rank's matrices come in multiples of it (TS-PRC-021)."""
MAX_IDLE_RATIO = 0.5
"""Idle over busy time of a pipeline that is still considered: the specification's own limit (TS-PAR-012)."""
VOCABULARY_TILE = 8
"""The same for the rows of the vocabulary."""
MAX_IMBALANCE = 1.25
"""Work of the fullest rank over the mean beyond which a split is not considered; all others wait for it. Eight
billion parameters on four stages, with a vocabulary that is worth more than two layers, are at 1.21."""
MIN_EXPERT_COLUMNS = 256
"""Fewest columns of an expert on one rank; narrower products keep matrix units idle."""
RECOMPUTATIONS: tuple[Recompute, ...] = ("none", "selective", "full")
Offload = Literal["none", "optimizer", "state"]
OFFLOADED: Mapping[Offload, tuple[str, ...]] = {
    "none": (),
    "optimizer": ("optimizer",),
    "state": ("parameters", "gradients", "optimizer"),
}
"""Classes of tensor that wait in the memory of the host, least first; frameworks move these together."""


Complexity = tuple[int, int]
"""How much there is to a choice: lists of the same length, compared in order."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to lay out the job; `None` knobs of the machine are left to the library."""

    layout: Layout
    recompute: Recompute
    order: tuple[str, ...] = ORDERS[0]
    offload: Offload = "none"

    @property
    def key(self) -> tuple[object, ...]:
        """A total order of choices, so that equal times are always resolved alike: fewer splits first."""
        w = self.layout
        degrees = (w.tensor, w.pipeline, w.context, w.expert, w.num_virtual_stages, w.sharding_stage)
        return (
            *degrees,
            w.sharding_degree or w.data,
            -w.micro_sequences,
            RECOMPUTATIONS.index(self.recompute),
            self.order,
        )

    @property
    def kind(self) -> Hashable:
        """Dimensions in which choices differ for a person who runs them: degrees, sharding and recomputation."""
        w = self.layout
        return w.tensor, w.context, w.pipeline, w.expert, w.expert_tensor, w.sharding_stage, self.recompute

    @property
    def complexity(self) -> Complexity:
        """Parallelism dimensions and special forms that are in use, then the chunks of a pipeline stage.

        Chunks that differ between both ends are one more form than chunks of which only the ends are smaller.
        """
        w = self.layout
        used = sum(degree > 1 for degree in (w.tensor, w.context, w.pipeline, w.expert, w.num_virtual_stages))
        forms = bool(w.stage_layers) + (len(set(w.stage_layers[1:-1])) > 1) + (w.sharding_degree is not None)
        return used + forms, w.num_virtual_stages


def dimensions(choice: Choice) -> dict[str, Hashable]:
    """Values that were chosen, by the name of each dimension of the space."""
    layout = choice.layout
    return {
        "tensor": layout.tensor,
        "context": layout.context,
        "pipeline": layout.pipeline,
        "expert": layout.expert,
        "num_virtual_stages": layout.num_virtual_stages,
        "micro_sequences": layout.micro_sequences,
        "sharding": layout.sharding_stage,
        "sharding_degree": layout.num_shards,
        "activation_policy": choice.recompute,
        "order": choice.order,
    }


@cache
def divisors(value: int) -> tuple[int, ...]:
    """All divisors, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return tuple(sorted({*small, *(value // d for d in small)}))


def even_split(num_layers: int, num_chunks: int) -> tuple[int, ...]:
    """Layers of each chunk in pipeline order; empty where they divide evenly.

    Where they do not, the chunks at both ends are the smaller ones, since they carry the embedding and the output: each
    counts as a layer where that makes an even split, as in Llama 3 405B (arXiv:2407.21783, section 3.3.2).

    >>> even_split(126, 16)
    (7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7)
    >>> even_split(80, 8), even_split(6, 8)
    ((), (0, 1, 1, 1, 1, 1, 1, 0))

    Raises:
        ValueError: there are more chunks than layers and both ends together.
    """
    if num_chunks > num_layers + 2:
        raise ValueError(f"{num_layers} layers cannot fill {num_chunks} chunks")
    least, rest = divmod(num_layers, num_chunks)
    if rest == 0:
        return ()
    # The output layer weighs more than the embedding, so the last chunks are the first to be smaller.
    front = (num_chunks - rest) // 2
    back = num_chunks - rest - front
    return (least,) * front + (least + 1,) * rest + (least,) * back


def layouts(goal: Goal) -> Iterator[Layout]:
    """Every layout that is allowed, that the framework runs in some form, and that fills the ranks; unsharded.

    A pipeline is kept busy.
    """
    allowed = filter(goal.constraints.allow, _layouts(goal))
    return (layout for layout in allowed if next(shardings(goal, layout), None) is not None)


def _layouts(goal: Goal) -> Iterator[Layout]:
    """Every layout that divides the model and the batch."""
    for tensor in _tensor_degrees(goal):
        for context in _context_degrees(goal, tensor):
            for pipeline in _pipeline_degrees(goal, tensor * context):
                data = goal.num_ranks // (tensor * context * pipeline)
                if goal.global_sequences % data:
                    continue
                for expert, expert_tensor in _expert_degrees(goal, tensor, context, data):
                    base = Layout(
                        data=data,
                        tensor=tensor,
                        pipeline=pipeline,
                        context=context,
                        expert=expert,
                        expert_tensor=expert_tensor,
                        sequence_parallel=tensor > 1,
                        schedule="1f1b" if pipeline > 1 else "none",
                        sequence_length=goal.sequence_length,
                    )
                    yield from _schedules(goal, base)


def _tensor_degrees(goal: Goal) -> Iterator[int]:
    shape, topology = goal.model.shape, goal.machine.topology
    limit = max(1, topology.domain_num_ranks) if topology.has_scale_up else 1
    for degree in divisors(goal.num_ranks):
        if degree > limit or limit % degree:
            continue
        parts = (shape.num_heads, shape.vocabulary_size, shape.ffn_hidden_size, goal.sequence_length)
        keys = shape.num_key_value_heads
        if degree > 1 and (shape.ffn_hidden_size // degree % TILE or shape.vocabulary_size // degree % VOCABULARY_TILE):
            continue
        if not any(part % degree for part in parts) and (keys % degree == 0 or degree % keys == 0):
            yield degree


def _context_degrees(goal: Goal, tensor: int) -> Iterator[int]:
    for degree in divisors(goal.num_ranks // tensor):
        tokens = goal.sequence_length // degree
        whole = goal.sequence_length % (degree * tensor) == 0 and (degree == 1 or degree & (degree - 1) == 0)
        if whole and (degree == 1 or tokens >= MIN_CONTEXT_TOKENS):
            yield degree


def _pipeline_degrees(goal: Goal, inner: int) -> Iterator[int]:
    for degree in divisors(goal.num_ranks // inner):
        if degree <= goal.model.shape.num_layers:
            yield degree


def _expert_degrees(goal: Goal, tensor: int, context: int, data: int) -> Iterator[tuple[int, int | None]]:
    shape = goal.model.shape
    if not shape.num_experts:
        yield 1, None
        return
    for inner in sorted({1, tensor}):
        if shape.expert_hidden_size % inner or (inner > 1 and shape.expert_hidden_size // inner < MIN_EXPERT_COLUMNS):
            continue
        stage = tensor * context * data
        for degree in divisors(shape.num_experts):
            if stage % (degree * inner) == 0:
                yield degree, inner


def _schedules(goal: Goal, base: Layout) -> Iterator[Layout]:
    per_rank, layers = goal.global_sequences // base.data, goal.model.shape.num_layers
    for micro in divisors(per_rank):
        if micro > MAX_MICRO_SEQUENCES:
            break
        count = per_rank // micro
        plain = replace(base, micro_sequences=micro, num_micro_batches=count)
        if base.pipeline == 1:
            yield plain
            continue
        for chunks in range(1, min(MAX_VIRTUAL_STAGES, (layers + 2) // base.pipeline) + 1):
            if base.pipeline - 1 > MAX_IDLE_RATIO * count * chunks or (chunks > 1 and count % base.pipeline):
                continue
            split = even_split(layers, base.pipeline * chunks)
            if imbalance(goal.model.shape, split, base.pipeline) > MAX_IMBALANCE:
                continue
            schedule = "interleaved-1f1b" if chunks > 1 else "1f1b"
            yield replace(plain, schedule=schedule, num_virtual_stages=chunks, stage_layers=split)


def imbalance(shape: Shape, stage_layers: Sequence[int], num_stages: int) -> float:
    """Work of the fullest pipeline rank over the mean, when chunks go round the ranks and the last has the output.

    The output layer counts by its parameters, as layers do. An empty list means an even split. GPT-3 on eight
    stages of twelve layers, whose output is a third of a layer:

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> round(imbalance(gpt3, (), 8), 3)
    1.025

    Raises:
        ValueError: there is no stage.
    """
    if num_stages < 1:
        raise ValueError("a pipeline has a stage")
    each = shape.num_layers / num_stages
    loads = [float(sum(stage_layers[rank::num_stages])) if stage_layers else each for rank in range(num_stages)]
    counted = parameters(shape)
    loads[-1] += shape.embedding_parameters * shape.num_layers / (counted.attention + counted.active_feed_forward)
    return max(loads) * num_stages / sum(loads)


def shardings(goal: Goal, layout: Layout) -> Iterator[tuple[Layout, ...]]:
    """The layout with everything that copies of the model can share: one tuple for each group of ranks that share.

    Within a tuple more is shared from one layout to the next, which sends more and needs less memory. Weights are not
    sharded under a pipeline, which would gather them for each micro-batch (TS-PAR-005). A sharding degree below all
    copies keeps the traffic of shards inside one domain, or inside one block of a narrow tier. Only what the framework
    of the goal runs is there.
    """
    for forms in _shardings(goal, layout):
        able = tuple(form for form in forms if goal.abilities.runs(form))
        if able:
            yield able


def _shardings(goal: Goal, layout: Layout) -> Iterator[tuple[Layout, ...]]:
    yield (layout,)
    if layout.data * layout.context == 1:
        return
    stages = (1, 2) if layout.pipeline > 1 else (1, 2, 3)
    for degree in (None, *_shard_degrees(goal, layout)):
        yield tuple(replace(layout, sharding_stage=stage, sharding_degree=degree) for stage in stages)


def _shard_degrees(goal: Goal, layout: Layout) -> Iterator[int]:
    found = set()
    stride = layout.tensor * layout.context
    topology = goal.machine.topology
    for size in (topology.domain_num_ranks, *(block.num_ranks for block in topology.blocks)):
        degree = min(layout.data, size // stride)
        if 1 < degree < layout.data and layout.data % degree == 0:
            found.add(degree)
    yield from sorted(found)
