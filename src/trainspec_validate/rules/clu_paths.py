"""Checks how accelerators reach their network interfaces."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import Nic
from trainspec_validate.performance.derived.cluster import PATHS, all_nics
from trainspec_validate.rules import NotApplicable, Violation, at, rule

_LINK_LOCAL = (0, 1)
_DIRECT_LIMIT = "PXB"
_COHERENT_LIMIT = "PXN"
_COHERENT = frozenset({"nvlink-c2c", "infinity-fabric", "coherent"})


def _compute(cluster: ClusterProfile) -> list[tuple[int, int, Nic]]:
    return list(all_nics(cluster, compute=True))


@rule("TS-CLU-027")
def nic_path(cluster: ClusterProfile) -> Iterator[Violation]:
    """An accelerator uses a NIC as near as the node offers."""
    judged = False
    for i, j, nic in _compute(cluster):
        own, nearest = nic.accelerator_path, nic.nearest_path
        if own is None or nearest is None:
            continue
        judged = True
        place = ("node_groups", i, "nics", j)
        if PATHS.index(own) < PATHS.index(nearest):
            message = f"nearest_path is {nearest}, but an accelerator's own interface is nearer: {own}"
            yield Violation(at(cluster, *place, "nearest_path"), message, f"write {own}")
        elif PATHS.index(own) > max(PATHS.index(nearest), PATHS.index(_DIRECT_LIMIT)):
            message = f"accelerators reach their interface by {own}, although the node offers {nearest}"
            yield Violation(at(cluster, *place, "accelerator_path"), message, "assign interfaces by affinity")
    if not judged:
        raise NotApplicable("no compute NIC states accelerator_path and nearest_path")


@rule("TS-CLU-028")
def nic_numa(cluster: ClusterProfile) -> Iterator[Violation]:
    """An accelerator and its NIC hang on one NUMA node."""
    judged = False
    for i, j, nic in _compute(cluster):
        if nic.same_numa_node is None and nic.accelerator_path is None:
            continue
        judged = True
        crosses = nic.accelerator_path == "SYS"
        place = ("node_groups", i, "nics", j)
        if nic.same_numa_node is False:
            message = f"accelerators and their interface {nic.name!r} hang on different NUMA nodes"
            yield Violation(at(cluster, *place, "same_numa_node"), message, "assign interfaces of the same NUMA node")
        elif crosses:
            message = "path class SYS crosses the link between NUMA nodes"
            yield Violation(at(cluster, *place, "accelerator_path"), message, "assign interfaces of the same NUMA node")
    if not judged:
        raise NotApplicable("no compute NIC states its NUMA node or path")


@rule("TS-CLU-029")
def nic_bond(cluster: ClusterProfile) -> Iterator[Violation]:
    """Compute NICs are not bonds."""
    judged = False
    for i, j, nic in _compute(cluster):
        if nic.bonded is None:
            continue
        judged = True
        if nic.bonded:
            yield Violation(
                at(cluster, "node_groups", i, "nics", j, "bonded"),
                f"compute NIC {nic.name!r} is a bond; a queue pair uses one of its ports",
                "give each port its own address, and count the ports as interfaces",
            )
    if not judged:
        raise NotApplicable("no compute NIC says whether it is a bond")


@rule("TS-CLU-030")
def roce_address(cluster: ClusterProfile) -> Iterator[Violation]:
    """RoCE uses a routable address."""
    transports = {fabric.name: fabric.transport for fabric in cluster.fabrics}
    judged = False
    for i, j, nic in all_nics(cluster):
        if nic.gid_index is None or transports.get(nic.fabric or "") != "rocev2":
            continue
        judged = True
        if nic.gid_index in _LINK_LOCAL:
            yield Violation(
                at(cluster, "node_groups", i, "nics", j, "gid_index"),
                f"GID index {nic.gid_index} is a link-local address",
                "write the index of the RoCEv2 address that is routed, often 3",
            )
    if not judged:
        raise NotApplicable("no RoCE NIC states a GID index")


@rule("TS-CLU-031")
def direct_path(cluster: ClusterProfile) -> Iterator[Violation]:
    """The reach of direct access covers an accelerator's own NIC and ends at the PCIe switches."""
    judged = False
    for i, j, nic in _compute(cluster):
        if nic.gpu_direct_level is None:
            continue
        judged = True
        level = PATHS.index(nic.gpu_direct_level)
        link = cluster.node_groups[i].host_link
        limit = _COHERENT_LIMIT if link is not None and link.technology in _COHERENT else _DIRECT_LIMIT
        place = at(cluster, "node_groups", i, "nics", j, "gpu_direct_level")
        if nic.gpu_direct is False:
            yield Violation(place, f"a level of {nic.gpu_direct_level}, but gpu_direct is false", "leave the key out")
        elif level > PATHS.index(limit):
            message = f"direct access reaches as far as {nic.gpu_direct_level}, through the host"
            yield Violation(place, message, f"{limit} at most")
        elif nic.accelerator_path is not None and level < PATHS.index(nic.accelerator_path):
            message = (
                f"direct access ends at {nic.gpu_direct_level}, nearer than the interface at {nic.accelerator_path}"
            )
            yield Violation(place, message, f"it is never used so; use interfaces within {limit}, or widen the level")
    if not judged:
        raise NotApplicable("no compute NIC states gpu_direct_level")
