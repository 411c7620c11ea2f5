"""Derives the nodes, domains and fabric that a plan's ranks are placed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isclose, prod
from typing import Generic, TypeVar

from trainspec_validate.documents.types import ClusterProfile, Document, TrainingPlan, changed
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.hardware import Nic, NodeGroup
from trainspec_validate.documents.types.parallelism import Axis
from trainspec_validate.performance.costs.placement import Span, span

DocumentT = TypeVar("DocumentT", bound=Document)
PLANE_TOLERANCE = 0.01
"""How far the rate of a NIC into its planes is from its own rate, by rounding."""
AXES: tuple[Axis, ...] = ("tensor", "context", "expert", "data", "pipeline")


class Same(Generic[DocumentT]):
    """A document as the key of a cache: compared by identity, since a comparison of values reads all of them."""

    __slots__ = ("document",)

    def __init__(self, document: DocumentT) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.document is other.document

    def __hash__(self) -> int:
        return id(self.document)


@dataclass(frozen=True, slots=True)
class AttachedNic:
    """A kind of interface that is plugged into a fabric, with its place in the document."""

    group: NodeGroup
    group_index: int
    nic: Nic
    nic_index: int

    @property
    def num_interfaces(self) -> int:
        """Interfaces of this kind on all nodes of the group."""
        return self.group.num_nodes * self.nic.num_per_node

    @property
    def pointer(self) -> tuple[str | int, ...]:
        """Path of this kind of interface."""
        return ("node_groups", self.group_index, "nics", self.nic_index)


@dataclass(frozen=True, slots=True)
class JobNodes:
    """The node group that a job runs on, counted in ranks."""

    group: NodeGroup
    index: int

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one node."""
        return self.group.num_accelerators_per_node * self.group.accelerator.num_ranks_per_accelerator

    @property
    def num_ranks(self) -> int:
        """Ranks that all nodes of the group have room for."""
        return self.group.num_nodes * self.ranks_per_node

    @property
    def domain_num_ranks(self) -> int:
        """Ranks of the used part of one scale-up domain; 0 without one."""
        scale_up = self.group.scale_up
        if scale_up is None:
            return 0
        used = scale_up.used_num_accelerators or scale_up.domain_num_accelerators
        return used * self.group.accelerator.num_ranks_per_accelerator


def attached(cluster: ClusterProfile, fabric: Fabric) -> list[AttachedNic]:
    """Every kind of interface that names this fabric."""
    return list(_attached(Same(cluster)).get(fabric.name, ()))


@lru_cache(maxsize=8)
def _attached(same: Same[ClusterProfile]) -> Mapping[str, list[AttachedNic]]:
    found: dict[str, list[AttachedNic]] = {}
    for group_index, group in enumerate(same.document.node_groups):
        for nic_index, nic in enumerate(group.nics):
            if nic.fabric is not None:
                found.setdefault(nic.fabric, []).append(AttachedNic(group, group_index, nic, nic_index))
    return found


def attached_compute(cluster: ClusterProfile, fabric: Fabric) -> list[AttachedNic]:
    """Every kind of compute interface that names this fabric."""
    return [item for item in attached(cluster, fabric) if item.nic.role == "compute"]


def num_planes_of(fabric: Fabric, nic: Nic) -> int:
    """Planes that one interface reaches: one where its whole rate leads into a plane, else all of the fabric."""
    rate = fabric.plane_bandwidth_bytes_per_second
    whole = rate is not None and isclose(rate, nic.rate_bytes_per_second, rel_tol=PLANE_TOLERANCE)
    return 1 if whole else fabric.num_planes


def fabric_num_nodes(cluster: ClusterProfile, fabric: Fabric) -> int:
    """Nodes with a compute interface on this fabric."""
    nodes = {item.group_index: item.group.num_nodes for item in attached_compute(cluster, fabric)}
    return sum(nodes.values())


def find_job_nodes(plan: TrainingPlan, cluster: ClusterProfile) -> JobNodes | None:
    """The node group that the plan names, or the only one there is; None when that is undecided."""
    groups = cluster.node_groups
    if plan.node_group is None:
        return JobNodes(groups[0], 0) if len(groups) == 1 else None
    return nodes_by_name(Same(cluster)).get(plan.node_group)


@lru_cache(maxsize=8)
def nodes_by_name(same: Same[ClusterProfile]) -> Mapping[str, JobNodes]:
    """The node groups of a cluster, the first of each name."""
    found: dict[str, JobNodes] = {}
    for index, group in enumerate(same.document.node_groups):
        found.setdefault(group.name, JobNodes(group, index))
    return found


def job_fabric(plan: TrainingPlan, cluster: ClusterProfile, nodes: JobNodes) -> tuple[int, Fabric] | None:
    """The fabric that the plan names, or the only one that compute NICs of its nodes are plugged into."""
    found = job_fabrics(plan, cluster, nodes)
    return found[0] if len(found) == 1 else None


def job_fabrics(plan: TrainingPlan | None, cluster: ClusterProfile, nodes: JobNodes) -> list[tuple[int, Fabric]]:
    """The fabrics that collectives use: the one that the plan names, else all that compute NICs are plugged into."""
    if plan is not None and plan.communication is not None and plan.communication.fabric is not None:
        wanted = {plan.communication.fabric}
    else:
        wanted = {nic.fabric for nic in nodes.group.nics if nic.role == "compute" and nic.fabric}
    return [(index, fabric) for index, fabric in enumerate(cluster.fabrics) if fabric.name in wanted]


def job_network(plan: TrainingPlan | None, cluster: ClusterProfile, nodes: JobNodes) -> tuple[JobNodes, Fabric | None]:
    """The fabrics that collectives use as one network, with the nodes plugged into it.

    A library spreads a collective over all interfaces, so rates add up, the slowest fabric gives the latency, and the
    one that narrows traffic most gives the tiers. The network is None where there is no fabric.

    Raises:
        ValueError: the fabrics differ in their transport, and one communicator uses one of them.
    """
    fabrics = [fabric for _, fabric in job_fabrics(plan, cluster, nodes)]
    if len(fabrics) < 2:
        return nodes, fabrics[0] if fabrics else None
    names = [fabric.name for fabric in fabrics]
    if len({fabric.transport for fabric in fabrics}) > 1:
        raise ValueError(f"{nodes.group.name} is on fabrics of several transports: {', '.join(names)}; name one")
    latencies = [fabric.latency_seconds for fabric in fabrics]
    network = changed(
        max(fabrics, key=lambda fabric: prod(tier.oversubscription or 1 for tier in fabric.tiers)),
        name=" and ".join(names),
        latency_seconds=None if None in latencies else max(latency or 0 for latency in latencies),
        in_network_reduction=all(fabric.in_network_reduction for fabric in fabrics),
        num_rails=sum(fabric.num_rails or 0 for fabric in fabrics) or None,
    )
    nics = tuple(changed(nic, fabric=network.name) if nic.fabric in names else nic for nic in nodes.group.nics)
    return JobNodes(changed(nodes.group, nics=nics), nodes.index), network


def degree(plan: TrainingPlan, axis: Axis) -> int:
    """Degree of an axis."""
    degrees: dict[Axis, int] = {
        "tensor": plan.parallelism.tensor,
        "context": plan.parallelism.context,
        "expert": plan.parallelism.expert,
        "data": plan.parallelism.data,
        "pipeline": plan.parallelism.pipeline,
    }
    return degrees[axis]


def used_axes(plan: TrainingPlan) -> Iterator[Axis]:
    """The axes with a degree above 1."""
    return (axis for axis in AXES if degree(plan, axis) > 1)


def axis_span(plan: TrainingPlan, axis: Axis) -> Span | None:
    """Where the members of a group of this axis are; None when the order does not place it.

    Expert groups are laid over the data, context and tensor ranks of a stage; the order then holds with the
    ranks of one expert in the place of the tensor ranks and its copies in the place of the data ranks.
    """
    p = plan.parallelism
    if any(name not in p.order for name in used_axes(plan)):
        return None
    degrees: dict[str, int] = {name: degree(plan, name) for name in AXES if name != "expert"}
    if axis == "expert":
        expert_tensor = p.expert_tensor or p.tensor
        copies, rest = divmod(p.tensor * p.context * p.data, expert_tensor * p.expert)
        if rest or not copies:
            return None
        degrees |= {"tensor": expert_tensor, "context": 1, "expert": p.expert, "data": copies}
    return span(p.order, degrees, axis)
