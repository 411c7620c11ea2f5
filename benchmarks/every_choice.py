"""Enumerates every choice for a small job, whether the planner would look at it or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.step_time import step_time
from trainspec_validate.performance.forecast.outlook import (
    DEFAULT_ORDER,
    Settings,
    memory_of_stage,
    networks_of,
    seconds_of,
    work_of,
)
from trainspec_validate.performance.topology.networks import NotJoined
from trainspec_validate.planner.space import (
    MAX_IDLE_RATIO,
    MAX_IMBALANCE,
    MAX_MICRO_SEQUENCES,
    MAX_VIRTUAL_STAGES,
    MIN_CONTEXT_TOKENS,
    MIN_EXPERT_COLUMNS,
    RECOMPUTATIONS,
    TILE,
    VOCABULARY_TILE,
    Choice,
    Goal,
    divisors,
    even_split,
    imbalance,
)

Placement = tuple[tuple[str, ...], Mapping[str, Network]]
"""An order of axes with the networks that it gives."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The fastest choice of an enumeration."""

    choice: Choice
    seconds: float


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The fastest choices, and how many steps were predicted."""

    within: Optimum | None
    """Of the choices within the limits of the planner."""
    everything: Optimum | None
    num_evaluated: int


def enumerate_all(goal: Goal) -> Enumeration:
    """Predict every choice that fits into memory.

    Orders of axes that give every group the same network are predicted once: nothing else depends on the order.
    """
    within: Optimum | None = None
    everything: Optimum | None = None
    count, known = 0, dict[tuple[object, ...], list[Placement]]()
    for layout in every_layout(goal):
        limited = within_limits(goal, layout)
        for sharded, recompute in product(every_sharding(layout), RECOMPUTATIONS):
            settings = Settings(recompute=recompute)
            if not goal.holds(memory_of_stage(goal.model, sharded, settings)[1]):
                continue
            work = work_of(goal.model, goal.machine, sharded, settings)
            conforms = limited and (sharded.sharding_stage < 3 or sharded.pipeline == 1)
            for order, networks in _placements(goal, sharded, known):
                count += 1
                seconds = step_time(work, networks, seconds_of).seconds
                if everything is None or seconds < everything.seconds:
                    everything = Optimum(Choice(sharded, recompute, order), seconds)
                if conforms and (within is None or seconds < within.seconds):
                    within = Optimum(Choice(sharded, recompute, order), seconds)
    return Enumeration(within, everything, count)


def _placements(goal: Goal, layout: Layout, known: dict[tuple[object, ...], list[Placement]]) -> list[Placement]:
    degrees = (layout.data, layout.tensor, layout.pipeline, layout.context, layout.expert, layout.expert_tensor)
    shards = layout.sharding_degree if layout.sharding_stage else None
    key = (*degrees, shards)
    if key not in known:
        found: dict[frozenset[tuple[str, Network]], Placement] = {}
        for order in permutations(DEFAULT_ORDER):
            try:
                networks = networks_of(goal.machine, layout, Settings(order=order))
            except NotJoined:
                continue
            found.setdefault(frozenset(networks.items()), (order, networks))
        known[key] = list(found.values())
    return known[key]


def every_layout(goal: Goal) -> Iterator[Layout]:
    """Every layout that can run: all degrees, chunks, micro-batches, and sequence parallelism; unsharded."""
    shape, ranks = goal.model.shape, goal.num_ranks
    for tensor in divisors(ranks):
        keys = shape.num_key_value_heads
        if shape.num_heads % tensor or shape.ffn_hidden_size % tensor or (keys % tensor and tensor % keys):
            continue
        for context in divisors(ranks // tensor):
            if goal.sequence_length % (context * tensor):
                continue
            for pipeline in divisors(ranks // (tensor * context)):
                data = ranks // (tensor * context * pipeline)
                if goal.global_sequences % data or pipeline > shape.num_layers:
                    continue
                for expert, inner in _experts(goal, tensor, tensor * context * data):
                    base = Layout(
                        data=data,
                        tensor=tensor,
                        pipeline=pipeline,
                        context=context,
                        expert=expert,
                        expert_tensor=inner,
                        sequence_length=goal.sequence_length,
                    )
                    yield from _schedules(goal, base)


def _experts(goal: Goal, tensor: int, stage_ranks: int) -> Iterator[tuple[int, int | None]]:
    """Degrees of experts; the model counts no messages of one expert on more ranks than a tensor group has."""
    shape = goal.model.shape
    if not shape.num_experts:
        yield 1, None
        return
    for expert, inner in product(divisors(shape.num_experts), divisors(tensor)):
        if stage_ranks % (expert * inner) == 0 and shape.expert_hidden_size % inner == 0:
            yield expert, inner


def _schedules(goal: Goal, base: Layout) -> Iterator[Layout]:
    per_rank, layers = goal.global_sequences // base.data, goal.model.shape.num_layers
    for micro, parallel in product(divisors(per_rank), (False, True) if base.tensor > 1 else (False,)):
        count = per_rank // micro
        plain = replace(base, micro_sequences=micro, num_micro_batches=count, sequence_parallel=parallel)
        if base.pipeline == 1:
            yield replace(plain, schedule="none")
            continue
        yield replace(plain, schedule="1f1b", stage_layers=even_split(layers, base.pipeline))
        for chunks in range(2, layers // base.pipeline + 1) if count % base.pipeline == 0 else ():
            split = even_split(layers, base.pipeline * chunks)
            yield replace(plain, schedule="interleaved-1f1b", num_virtual_stages=chunks, stage_layers=split)


def every_sharding(layout: Layout) -> Iterator[Layout]:
    """The layout with everything that copies can share, among every number of data ranks."""
    yield layout
    if layout.data * layout.context == 1:
        return
    for stage, degree in product((1, 2, 3), divisors(layout.data)):
        yield replace(layout, sharding_stage=stage, sharding_degree=None if degree == layout.data else degree)


def within_limits(goal: Goal, layout: Layout) -> bool:
    """Whether a layout keeps the limits of the planner: see `planner.space`."""
    shape, w, domain = goal.model.shape, layout, max(1, goal.machine.topology.domain_num_ranks)
    if shape.num_experts and w.expert_tensor_degree not in {1, w.tensor}:
        return False
    narrow = w.tensor > 1 and shape.ffn_hidden_size // w.tensor % TILE != 0
    narrow |= w.tensor > 1 and shape.vocabulary_size // w.tensor % VOCABULARY_TILE != 0
    inner = w.expert_tensor_degree if shape.num_experts else 1
    narrow |= inner > 1 and shape.expert_hidden_size // inner < MIN_EXPERT_COLUMNS
    if narrow or domain % w.tensor or shape.vocabulary_size % w.tensor:
        return False
    tokens = goal.sequence_length // w.context
    if w.context > 1 and (w.context & (w.context - 1) or tokens < MIN_CONTEXT_TOKENS):
        return False
    if w.micro_sequences > MAX_MICRO_SEQUENCES or w.num_virtual_stages > MAX_VIRTUAL_STAGES:
        return False
    idle = (w.pipeline - 1) / (w.num_micro_batches * w.num_virtual_stages)
    uneven = w.pipeline > 1 and imbalance(shape, w.stage_layers, w.pipeline) > MAX_IMBALANCE
    return idle <= MAX_IDLE_RATIO and not uneven
