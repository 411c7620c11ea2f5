"""Lays out a job without knowledge of its machine, and counts the bytes that cross the slowest links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.catalog import models
from trainspec_validate.performance.costs import collectives
from trainspec_validate.performance.costs.collective_algorithms import traffic
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.step_time import step_time
from trainspec_validate.performance.costs.step_traffic import recomputed, transfers
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.forecast.outlook import (
    DEFAULT_ORDER,
    Settings,
    memory_of_stage,
    networks_of,
    seconds_of,
    work_of,
)
from trainspec_validate.performance.forecast.spans import axis_spans
from trainspec_validate.performance.topology.networks import Crossing, Pattern, Traffic, crossed
from trainspec_validate.planner.request import Request, Wishes, request
from trainspec_validate.planner.space import Choice, Goal, divisors

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "clusters"
CLUSTERS = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
MODELS = ((8, "llama3-8b"), (64, "llama3-70b"), (4096, "llama3-405b"))
"""The model of a job by the least number of its ranks."""
EXPERT_MODELS = {("coreweave-gb200", 64): "qwen3-30b-a3b", ("dgx-superpod-b200", 512): "qwen3-235b-a22b"}
"""Jobs that train a mixture of experts instead."""
_RING_OPERATIONS = frozenset({"all-reduce", "all-gather", "reduce-scatter"})
_DATA_AXES = frozenset({"data", "replica", "expert-data"})


def models_of(name: str, num_ranks: int) -> tuple[str, ...]:
    """Models for a job of so many ranks, the one of its size first and smaller ones after it."""
    dense = tuple(model for least, model in reversed(MODELS) if least <= num_ranks)
    return (EXPERT_MODELS[name, num_ranks],) if (name, num_ranks) in EXPERT_MODELS else dense


def job(name: str, model_name: str, num_ranks: int, global_sequences: int | None = None) -> Request | None:
    """A job of so many ranks on an example cluster, or None where it has too few. Without a batch the planner chooses.

    Raises:
        Impossible: the profile does not allow for a plan.
        Unpredictable: a figure is not known.
    """
    cluster = read("ClusterProfile", load_file(FOLDER / f"{name}.yaml").data)
    if not isinstance(cluster, ClusterProfile):
        raise TypeError(f"{name} is no cluster profile")
    nodes = JobNodes(cluster.node_groups[0], 0)
    if num_ranks > nodes.num_ranks:
        return None
    model = msgspec.convert({"name": model_name, **models()[model_name].model}, Model)
    wishes = Wishes(num_ranks=num_ranks, node_group=nodes.group.name, global_sequences=global_sequences)
    return request(cluster, model, wishes)


def default_choice(goal: Goal, ranks_per_node: int) -> Choice | None:
    """The customary recipe: the first of its layouts that fits into memory, or None."""
    for layout in _recipes(goal, ranks_per_node):
        memory = memory_of_stage(goal.model, layout, Settings(recompute="full"))[1]
        if goal.holds(memory):
            return Choice(layout, "full", DEFAULT_ORDER)
    return None


def _recipes(goal: Goal, ranks_per_node: int) -> Iterator[Layout]:
    shape = goal.model.shape
    parts = (goal.num_ranks, shape.num_heads, shape.num_key_value_heads, shape.ffn_hidden_size)
    tensor = max(degree for degree in divisors(ranks_per_node) if not any(part % degree for part in parts))
    for expert in _experts(goal, ranks_per_node):
        for pipeline in divisors(goal.num_ranks // tensor):
            data = goal.num_ranks // (tensor * pipeline)
            if pipeline > shape.num_layers or goal.global_sequences % data or tensor * data % expert:
                continue
            for sharding in (0, 1):
                yield Layout(
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    expert=expert,
                    expert_tensor=1 if shape.num_experts else None,
                    schedule="1f1b" if pipeline > 1 else "none",
                    sharding_stage=sharding,
                    num_micro_batches=goal.global_sequences // data,
                    sequence_length=goal.sequence_length,
                )


def _experts(goal: Goal, ranks_per_node: int) -> tuple[int, ...]:
    """Experts over the ranks of a node, or of more nodes where no number of stages makes them fit."""
    experts = goal.model.shape.num_experts
    return tuple(degree for degree in divisors(experts) if degree >= min(experts, ranks_per_node)) if experts else (1,)


def default_seconds(goal: Goal, layout: Layout, settings: Settings) -> float:
    """Step time with a flat ring for data groups, and what a well-tuned library picks for the others."""
    networks = networks_of(goal.machine, layout, settings)
    rings = {network for axis, network in networks.items() if axis in _DATA_AXES}

    def seconds(operation: str, message_bytes: float, network: Network) -> float:
        if network in rings and operation in _RING_OPERATIONS:
            return collectives.estimate(operation, message_bytes, network, "ring").seconds
        return seconds_of(operation, message_bytes, network)

    return step_time(work_of(goal.model, goal.machine, layout, settings), networks, seconds).seconds


def slow_bytes(goal: Goal, layout: Layout, settings: Settings, *, flat: bool) -> tuple[float, str]:
    """Bytes that one rank sends over the slowest links in a step, and which links these are.

    They are the exits of the blocks of the tier that leaves a rank least, where a tier is oversubscribed; else those
    of the scale-up domain. A rank's bytes out of its domain are those of the algorithm, times the share that leaves it.
    """
    work, topology = work_of(goal.model, goal.machine, layout, settings), goal.machine.topology
    networks, spans = networks_of(goal.machine, layout, settings), axis_spans(layout, settings.order)
    sent = transfers(goal.model.shape, layout, 2, work.gradient_bytes, work.parameter_bytes)
    total, narrow = 0.0, _narrowest(goal)
    for one in recomputed(sent, work.repeated_share):
        axis = "data" if one.axis == "expert-data" and "expert-data" not in networks else one.axis
        network = networks.get(axis)
        if network is None or network.num_domains == 1:
            continue
        ring = flat and axis in _DATA_AXES
        algorithm = "ring" if ring else collectives.best(one.operation, one.message_bytes, network).algorithm
        leaving = one.count * one.message_bytes * traffic(one.operation, algorithm, network).fabric_share
        pattern: Pattern = "all-pairs" if axis == "expert" else "neighbours"
        crossings = crossed(topology, Traffic(spans[axis], settings.rank_order, pattern))
        total += leaving * (1.0 if narrow is None else _share(crossings, narrow))
    return total, narrow or "domain"


def _narrowest(goal: Goal) -> str | None:
    fabric = goal.machine.topology.fabric
    rates = {
        block.name: block.leave_bytes_per_second
        for block in goal.machine.topology.blocks
        if block.kind == "tier" and block.leave_bytes_per_second
    }
    if fabric is None or not rates or min(rates.values()) >= fabric.bandwidth_bytes_per_second:
        return None
    return min(rates, key=lambda name: rates[name])


def _share(crossings: tuple[Crossing, ...], name: str) -> float:
    return next((crossing.share for crossing in crossings if crossing.block.name == name), 0.0)
