"""Computes the placement of the groups of each parallelism dimension, and the network that each uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.placement import Span, span
from trainspec_validate.performance.topology.graph import Topology
from trainspec_validate.performance.topology.networks import Pattern, RankOrder, Traffic, group_network

_PATTERNS: Mapping[str, Pattern] = {"expert": "all-pairs"}


def axis_spans(layout: Layout, order: Sequence[str]) -> dict[str, Span]:
    """Where the groups of every axis with several ranks are, when `order` names the axes from adjacent ranks outwards.

    The axes are those of `costs.step_traffic`: data groups hold context ranks too, since these share the weights;
    where fewer data ranks than all share a copy, the ranks of a shard are the nearest ones and `replica` joins their
    equals. Expert groups extend over data, context and tensor ranks of a stage; data ranks that the order leaves out,
    as it may where there is one, are taken to be inside the stages.

    >>> axis_spans(Layout(data=4, tensor=8, pipeline=2), ("tensor", "context", "data", "pipeline"))["data"]
    Span(stride=8, degree=4)

    Raises:
        ValueError: the order leaves out an axis that has several ranks.
    """
    degrees = {"tensor": layout.tensor, "context": layout.context, "data": layout.data, "pipeline": layout.pipeline}
    counts = degrees | {"expert": layout.expert}
    missing = [axis for axis, degree in counts.items() if degree > 1 and axis not in order]
    if missing:
        raise ValueError(f"the order {', '.join(order)} leaves out {', '.join(missing)}")
    found = {axis: span(order, degrees, axis) for axis in ("tensor", "context", "pipeline") if degrees[axis] > 1}
    found |= _data_spans(layout, span(order, degrees, "data") if layout.data > 1 else None, found.get("context"))
    if layout.expert > 1 or layout.expert_tensor is not None:
        inner = layout.expert_tensor_degree
        ranks = {"tensor": inner, "context": 1, "expert": layout.expert, "data": layout.num_expert_copies}
        stage_end = order.index("pipeline") if "pipeline" in order else len(order)
        absent = (axis for axis in ("expert", "data") if axis not in order)
        where = [*order[:stage_end], *absent, *order[stage_end:]]
        for name, axis in (("expert", "expert"), ("expert-data", "data")):
            found[name] = span(where, ranks | {"pipeline": layout.pipeline}, axis)
    return {axis: where for axis, where in found.items() if where.degree > 1}


def _data_spans(layout: Layout, data: Span | None, context: Span | None) -> dict[str, Span]:
    """Groups of equal weights: all of them, or the near ones that share a copy and their equals in other copies."""
    if data is None:
        return {"data": context} if context else {}
    shard = layout.sharding_degree if layout.sharding_stage else None
    near = layout.data if shard is None else min(shard, layout.data)
    # From the first to the last of them, whichever axis lies inside; where a third one lies between, strides differ
    # and this is their mean.
    stretch = max(data.stride * near, context.num_ranks if context else 1)
    found = {"data": Span(stretch // (near * layout.context), near * layout.context)}
    if near < layout.data:
        found["replica"] = Span(data.stride * near, layout.data // near)
    return found


def axis_networks(
    topology: Topology, layout: Layout, order: tuple[str, ...], rank_order: RankOrder = "topology"
) -> Mapping[str, Network]:
    """The network of the groups of every axis with several ranks.

    Raises:
        ValueError: an axis is not in the order, or members are in several domains that no fabric joins.
    """
    w = layout
    placed = (w.data, w.tensor, w.pipeline, w.context, w.expert, w.expert_tensor, min(w.sharding_stage, 1))
    return _axis_networks(topology, (*placed, w.sharding_degree), order, rank_order)


@lru_cache(maxsize=65536)
def _axis_networks(
    topology: Topology, placed: tuple[int | None, ...], order: tuple[str, ...], rank_order: RankOrder
) -> Mapping[str, Network]:
    """The same of a layout by the counts that place its groups."""
    names = ("data", "tensor", "pipeline", "context", "expert", "expert_tensor", "sharding_stage", "sharding_degree")
    layout = Layout(**dict(zip(names, placed, strict=True)))  # type: ignore[arg-type]
    networks = {}
    for axis, where in axis_spans(layout, order).items():
        network = group_network(topology, Traffic(where, rank_order, _PATTERNS.get(axis, "neighbours")))
        if network is not None:
            networks[axis] = network
    return networks
