"""Writes the graph of a machine and the roles of its ranks as words and plain values."""

from __future__ import annotations

from typing import Any

from trainspec_validate.cli.commands import tables
from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.model.units import bytes_per_second, number
from trainspec_validate.performance.derived.groups import choose
from trainspec_validate.performance.derived.job import JobNodes, job_network
from trainspec_validate.performance.forecast.facts import Unpredictable, layout_of
from trainspec_validate.performance.forecast.spans import axis_networks, axis_spans
from trainspec_validate.performance.topology.bottlenecks import bisection_bytes_per_second, narrowings, unlike_nodes
from trainspec_validate.performance.topology.graph import Topology, topology_of
from trainspec_validate.performance.topology.roles import double_tree, group_of, ring, stage_edges
from trainspec_validate.system.neutral import printable

Told = dict[str, Any]


def told(cluster: ClusterProfile, plan: TrainingPlan | None, rank: int | None, node_group: str | None) -> Told:
    """Everything that is shown, in plain values and base units.

    Raises:
        ValueError: the node group is unknown, the plan does not fit the machine, or the rank does not exist.
    """
    nodes, graph, note = _graph(cluster, plan, node_group)
    found: Told = {"cluster": cluster.metadata.name, "node_group": nodes.group.name, **_machine(cluster, graph)}
    found["assumptions"] = [note] if note else []
    if plan is None:
        return found
    try:
        layout = layout_of(plan)
    except Unpredictable as error:
        raise ValueError(str(error)) from error
    if layout.num_ranks != plan.parallelism.num_accelerators:
        degrees = f"the degrees of the plan multiply to {number(layout.num_ranks)}"
        raise ValueError(f"{degrees}, its ranks are {number(plan.parallelism.num_accelerators)}")
    order, host_order = plan.parallelism.order, plan.parallelism.rank_order or "topology"
    spans = axis_spans(layout, order)
    networks = axis_networks(graph, layout, order, host_order)
    found["groups"] = [
        {
            "axis": axis,
            "num_ranks": network.num_ranks,
            "stride": spans[axis].stride,
            "num_domains": network.num_domains,
            "fabric_bytes_per_second": network.fabric.bandwidth_bytes_per_second if network.fabric else None,
            "num_crossed_tiers": network.num_crossed_tiers,
        }
        for axis, network in networks.items()
    ]
    if rank is not None:
        if rank >= layout.num_ranks:
            raise ValueError(f"rank {rank} is asked for, the plan has ranks 0 to {layout.num_ranks - 1}")
        found["rank"] = rank
        found["roles"] = [_role(axis, where, rank) for axis, where in spans.items()]
    return found


def _graph(
    cluster: ClusterProfile, plan: TrainingPlan | None, node_group: str | None
) -> tuple[JobNodes, Topology, str]:
    named = plan.node_group if plan else None
    if named is not None and node_group not in (None, named):
        raise ValueError(f"the plan runs in node group {named!r}; leave --node-group out")
    nodes, note = choose(cluster, named or node_group)
    if plan is not None and plan.parallelism.num_accelerators > nodes.num_ranks:
        have = f"{nodes.group.name} has {number(nodes.num_ranks)}"
        raise ValueError(f"the plan has {number(plan.parallelism.num_accelerators)} ranks, {have}")
    plugged, network = job_network(plan, cluster, nodes)
    graph = topology_of(cluster, plugged, network, plan.parallelism.num_accelerators if plan else None)
    return nodes, graph, note


def _machine(cluster: ClusterProfile, graph: Topology) -> Told:
    return {
        "num_ranks": graph.num_ranks,
        "has_scale_up": graph.has_scale_up,
        "domain_bytes_per_second": graph.domain.bandwidth_bytes_per_second if graph.domain else None,
        "domain_num_ranks": graph.domain_num_ranks,
        "domain_shape": graph.domain_shape,
        "fabric": graph.fabric_name,
        "fabric_bytes_per_second": graph.fabric.bandwidth_bytes_per_second if graph.fabric else None,
        "bisection_bytes_per_second": bisection_bytes_per_second(graph),
        "blocks": [
            {
                "name": block.name,
                "kind": block.kind,
                "num_ranks": block.num_ranks,
                "num_blocks": block.num_blocks,
                "leave_bytes_per_second": block.leave_bytes_per_second,
            }
            for block in graph.blocks
        ],
        "narrowings": [{"block": item.block.name, "factor": item.factor} for item in narrowings(graph)],
        "unlike_nodes": [node.name for node in unlike_nodes(cluster)],
    }


def _role(axis: str, where: Any, rank: int) -> Told:
    members = group_of(where, rank)
    around, trees = ring(members, rank), double_tree(members, rank)
    role: Told = {
        "axis": axis,
        "place": members.index(rank),
        "members": list(members),
        "ring": {"previous": around.previous, "next": around.next},
        "trees": [{"parent": tree.parent, "children": list(tree.children)} for tree in trees],
    }
    if axis == "pipeline":
        before, after = stage_edges(where, rank)
        role["stages"] = {"previous": before, "next": after}
    return role


def text(found: Told) -> str:
    """The same as lines for a person."""
    lines = [
        f"{found['node_group']} of {found['cluster']}: {number(found['num_ranks'])} ranks",
        *(f"  assumed {words}" for words in found["assumptions"]),
        _domain_line(found),
        f"  into the fabric {found['fabric'] or '(none)'}: {_rate(found['fabric_bytes_per_second'])} for a rank",
        f"  between two halves: {_rate(found['bisection_bytes_per_second'])}",
        *(f"  what leaves a {item['block']} is {item['factor']:.3g} times narrower" for item in found["narrowings"]),
        *(f"  node {name}: its accelerators do not share its NICs evenly" for name in found["unlike_nodes"]),
        "",
    ]
    blocks = [_block(row) for row in found["blocks"]]
    shown = "".join(f"{printable(line)}\n" for line in lines)
    header = ("block", "kind", "ranks", "blocks", "out of it, for a rank")
    shown += tables.plain(header, blocks, frozenset({2, 3, 4}))
    if "groups" in found:
        shown += "\n" + _groups(found["groups"])
    if "roles" in found:
        shown += f"\nrank {found['rank']}\n" + "".join(_role_line(role) for role in found["roles"])
    return shown


def _domain_line(found: Told) -> str:
    rate = f"{_rate(found['domain_bytes_per_second'])} for a rank"
    if found["has_scale_up"]:
        return f"  into a domain of {number(found['domain_num_ranks'])} ({found['domain_shape']}): {rate}"
    if found["domain_bytes_per_second"] is None:
        return "  no scale-up domain"
    return f"  no scale-up domain; over the host link to the other accelerators of a node: {rate}"


def _block(row: Told) -> tuple[str, ...]:
    rate = row["leave_bytes_per_second"]
    counts = (number(row["num_ranks"]), number(row["num_blocks"]))
    return (row["name"], row["kind"], *counts, "the top" if row["num_blocks"] == 1 else _rate(rate))


def _groups(groups: list[Told]) -> str:
    rows = [
        (
            item["axis"],
            number(item["num_ranks"]),
            number(item["stride"]),
            number(item["num_domains"]),
            "stays inside" if item["num_domains"] == 1 else _rate(item["fabric_bytes_per_second"]),
            str(item["num_crossed_tiers"]),
        )
        for item in groups
    ]
    header = ("group", "ranks", "stride", "domains", "over the fabric, for a rank", "tiers crossed")
    return tables.plain(header, rows, frozenset(range(1, 6)))


def _role_line(role: Told) -> str:
    trees = "; ".join(_tree(index, tree) for index, tree in enumerate(role["trees"], 1))
    around = role["ring"]
    line = f"  {role['axis']:12} member {role['place']} of {len(role['members'])}; ring {around['previous']} -> "
    line += f"{role['ring']['next']}; {trees}"
    if "stages" in role:
        before, after = ("none" if rank is None else rank for rank in map(role["stages"].get, ("previous", "next")))
        line += f"; stage before {before}, after {after}"
    return line + "\n"


def _tree(index: int, tree: Told) -> str:
    parent = "none" if tree["parent"] is None else tree["parent"]
    return f"tree {index}: parent {parent}, children {', '.join(map(str, tree['children'])) or 'none'}"


def _rate(value: float | None) -> str:
    return "not stated" if value is None else bytes_per_second(value)
