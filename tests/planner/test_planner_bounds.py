"""The space is what its definition says: against a plain enumeration of every product of degrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from tests.planner_makers import make
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.topology.graph import Topology
from trainspec_validate.planner.search import search
from trainspec_validate.planner.space import Choice, Goal, even_split, imbalance, layouts, shardings

CASES: list[tuple[str, str, dict[str, object]]] = [
    ("gcp-a3-ultra-h200", "llama3-8b", {"num_ranks": 16, "global_sequences": 48}),
    ("gcp-a3-ultra-h200", "llama3-8b", {"num_ranks": 24, "global_sequences": 24, "sequence_length": 16384}),
    ("coreweave-gb200", "qwen3-30b-a3b", {"num_ranks": 16, "global_sequences": 16}),
    ("clemson-a100-pcie", "mixtral-8x7b", {"num_ranks": 8, "global_sequences": 64}),
]
Key = tuple[object, ...]


def key(layout: Layout) -> Key:
    degrees = (layout.tensor, layout.context, layout.pipeline, layout.data, layout.expert, layout.expert_tensor)
    return (*degrees, layout.micro_sequences, layout.num_micro_batches, layout.num_virtual_stages)


def plain(goal: Goal) -> Iterator[Key]:
    """Every division of the ranks that the rules of the space allow, by trying all."""
    count, batch = range(1, goal.num_ranks + 1), goal.global_sequences
    for tensor, context, pipeline in product(count, count, count):
        data, rest = divmod(goal.num_ranks, tensor * context * pipeline)
        if rest or batch % data or not splits_model(goal, tensor, context) or pipeline > goal.model.shape.num_layers:
            continue
        for (expert, inner), micro in product(experts(goal, tensor, tensor * context * data), range(1, 17)):
            steps, left = divmod(batch // data, micro)
            for chunks in () if left else stages(goal, pipeline, steps):
                yield (tensor, context, pipeline, data, expert, inner, micro, steps, chunks)


def splits_model(goal: Goal, tensor: int, context: int) -> bool:
    shape, topology, length = goal.model.shape, goal.machine.topology, goal.sequence_length
    domain = topology.domain_num_ranks if topology.has_scale_up else 1
    whole = (domain, shape.num_heads, shape.vocabulary_size, shape.ffn_hidden_size)
    if any(part % tensor for part in whole) or length % (tensor * context):
        return False
    keys = shape.num_key_value_heads
    if keys % tensor and tensor % keys:
        return False
    if tensor > 1 and (shape.ffn_hidden_size % (64 * tensor) or shape.vocabulary_size % (8 * tensor)):
        return False
    return context in {1, 2, 4, 8, 16} and (context == 1 or length >= 4096 * context)


def experts(goal: Goal, tensor: int, stage: int) -> Iterator[tuple[int, int | None]]:
    shape = goal.model.shape
    if not shape.num_experts:
        yield 1, None
        return
    for inner, expert in product({1, tensor}, range(1, shape.num_experts + 1)):
        narrow = inner > 1 and shape.expert_hidden_size < 256 * inner
        if not (narrow or shape.expert_hidden_size % inner or shape.num_experts % expert or stage % (expert * inner)):
            yield expert, inner


def stages(goal: Goal, pipeline: int, steps: int) -> Iterator[int]:
    layers = goal.model.shape.num_layers
    for chunks in range(1, 17) if pipeline > 1 else (1,):
        if pipeline * chunks > layers + 2 or (chunks > 1 and steps % pipeline):
            continue
        split = even_split(layers, pipeline * chunks)
        if 2 * (pipeline - 1) <= steps * chunks and (
            pipeline == 1 or imbalance(goal.model.shape, split, pipeline) <= 1.25
        ):
            yield chunks


@pytest.mark.parametrize(("cluster", "name", "wishes"), CASES)
def test_the_space_is_its_definition(cluster: str, name: str, wishes: dict[str, object]) -> None:
    goal = make(cluster, name, **wishes).goal
    found = [key(layout) for layout in layouts(goal)]
    wanted = set(plain(goal))
    assert len(wanted) > 20
    assert len(found) == len(set(found))
    assert set(found) == wanted


def sizes(topology: Topology) -> set[int]:
    return {topology.domain_num_ranks, *(block.num_ranks for block in topology.blocks)}


def test_copies_are_shared_inside_domains_and_blocks() -> None:
    goal = make("meta-llama3-24k", "llama3-8b", num_ranks=72, global_sequences=72).goal
    seen = set()
    for layout in layouts(goal):
        near = {size // (layout.tensor * layout.context) for size in sizes(goal.machine.topology)}
        wanted = {degree for degree in near if 1 < degree < layout.data and layout.data % degree == 0}
        groups = list(shardings(goal, layout))
        assert groups[0] == (layout,)
        if layout.data * layout.context == 1:
            assert len(groups) == 1
            continue
        assert [group[0].sharding_degree for group in groups[1:]] == [None, *sorted(wanted)]
        assert all(len(group) == (3 if layout.pipeline == 1 else 2) for group in groups[1:])
        seen |= wanted
    assert {2, 4, 8} <= seen
    assert 16 not in seen


def test_a_total_order_keeps_every_two_choices_apart() -> None:
    goal = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16, global_sequences=16).goal
    choices = [
        Choice(form, recompute)
        for layout in layouts(goal)
        for group in shardings(goal, layout)
        for form in group
        for recompute in ("none", "selective", "full")
    ]
    # A degree of all data ranks is the same as none.
    distinct = {
        replace(choice.layout, sharding_degree=choice.layout.num_shards)
        if choice.layout.sharding_stage
        else choice.layout
        for choice in choices
    }
    assert len({choice.key for choice in choices}) == len(distinct) * 3


@pytest.mark.slow
def test_a_choice_that_fills_the_memory_fits() -> None:
    goal = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8).goal
    best = search(goal, 1).best[0]
    machine = replace(goal.machine, memory_bytes=best.memory.high_total)
    assert search(replace(goal, machine=machine, reserve_bytes=0), 1).best == (best,)
    reserve = best.memory.high_total - best.memory.allocator
    assert search(replace(goal, machine=machine, reserve_bytes=reserve), 1).best == (best,)
    less = search(replace(goal, machine=machine, reserve_bytes=reserve + 1e6), 1).best[0]
    assert less.memory.total <= best.memory.total - 1e6


def test_at_least_one_choice_is_asked_for() -> None:
    goal = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8).goal
    with pytest.raises(ValueError, match="0 choices are asked for"):
        search(goal, 0)
    calls: list[tuple[int, int]] = []
    ranking = search(goal, 3, lambda done, total: calls.append((done, total)))
    assert calls == [(done, ranking.num_layouts) for done in range(ranking.num_layouts)]
    assert len(ranking.best) == 3
