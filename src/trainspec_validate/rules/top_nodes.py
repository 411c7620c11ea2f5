"""Rules on the resources that the accelerators of a single listed node share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import ExplicitNode
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.model.units import bytes_per_second, number
from trainspec_validate.rules import NotApplicable, Violation, at, rule
from trainspec_validate.rules._records import changed

if TYPE_CHECKING:
    from trainspec_validate.performance.topology.bottlenecks import UnlikeNode


@rule("TS-TOP-025")
def equal_nics(cluster: ClusterProfile) -> Iterator[Violation]:
    """The accelerators of a node have equal shares of its NICs."""
    layout = cluster.layout
    if layout is None or not any(node.nics for node in layout.nodes):
        raise NotApplicable("the profile lists no NICs of single nodes")
    # Few profiles list nodes, and start-up would pay for the graph.
    from trainspec_validate.performance.topology.bottlenecks import unlike_nodes  # noqa: PLC0415

    groups = {group.name: group for group in cluster.node_groups}
    nodes = tuple(_compute_only(node, groups.get(node.group)) for node in layout.nodes)
    for node in unlike_nodes(changed(cluster, layout=changed(layout, nodes=nodes))):
        yield Violation(at(cluster, "layout", "nodes", node.index, "nics"), *_unlike(node))


def _compute_only(node: ExplicitNode, group: NodeGroup | None) -> ExplicitNode:
    """The node without NICs that are not known to carry collectives."""
    kinds = group.nics if group else ()
    if all(nic.role == "compute" for nic in kinds):
        return node
    compute = [nic for nic in kinds if nic.role == "compute"]
    others = {device for nic in kinds if nic.role != "compute" for device in nic.devices}
    left = tuple(nic for nic in node.nics if nic.name not in others)
    if not any(nic.devices for nic in compute) and len(left) == sum(nic.num_per_node for nic in compute):
        return changed(node, nics=left)
    named = {device for nic in compute for device in nic.devices}
    return changed(node, nics=tuple(nic for nic in node.nics if nic.name in named))


def _unlike(node: UnlikeNode) -> tuple[str, str]:
    if node.nic_rates_bytes_per_second:
        rates = " and ".join(bytes_per_second(rate) for rate in node.nic_rates_bytes_per_second)
        slowest, fastest = node.nic_rates_bytes_per_second[0], node.nic_rates_bytes_per_second[-1]
        return (
            f"the NICs of {node.name} carry {rates}; a ring over all of them runs at the slowest",
            f"bring all to {bytes_per_second(fastest)}, or count on {bytes_per_second(slowest)}",
        )
    parts = ", ".join(
        f"{number(num_nics)} for {number(count)} accelerators on NUMA node {numa}"
        for numa, count, num_nics in node.nics_per_numa_node
    )
    total = sum(num_nics for *_, num_nics in node.nics_per_numa_node)
    each = total / sum(count for _, count, _ in node.nics_per_numa_node)
    return (
        f"{node.name} has NICs in unequal shares: {parts}",
        f"spread them: {each:.3g} for each accelerator of every NUMA node",
    )
