"""Compares the reports of collective libraries with the declarations of a cluster profile."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import Nic, NodeGroup
from trainspec_validate.documents.types.observation import CollectiveObservation
from trainspec_validate.model import units
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import hint
from trainspec_validate.performance.derived.cluster import compute_nics
from trainspec_validate.rules import NotApplicable, Violation, at, rule

Indexed = list[tuple[int, CollectiveObservation]]


def _observations(cluster: ClusterProfile) -> Indexed:
    if not cluster.observations:
        raise NotApplicable("nothing was observed")
    return list(enumerate(cluster.observations))


def _groups(cluster: ClusterProfile, own: CollectiveObservation) -> list[tuple[int, NodeGroup]]:
    """The node groups that an observation speaks of, with their positions."""
    return [(i, group) for i, group in enumerate(cluster.node_groups) if own.group in (None, group.name)]


def _compute(cluster: ClusterProfile, own: CollectiveObservation) -> list[tuple[Pointer, Nic]]:
    """The compute NICs that an observation speaks of, with their places."""
    groups = _groups(cluster, own)
    return [(("node_groups", i, "nics", j), nic) for i, group in groups for j, nic in compute_nics(group)]


_ONE_BY_ONE = 2
"""Interfaces with findings of their own; more have one cause and one finding."""
_LISTED = 12


@rule("TS-CLU-057")
def observed_transport(cluster: ClusterProfile) -> Iterator[Violation]:
    """The observed transport is that of a fabric of the compute NICs, and the observed group is declared."""
    judged = False
    for i, own in _observations(cluster):
        if not _groups(cluster, own):
            judged = True
            told = hint(own.group or "", [group.name for group in cluster.node_groups])
            message = f"no node group is named {own.group!r}"
            yield Violation(at(cluster, "observations", i, "group"), message, told)
        names = {nic.fabric for _, nic in _compute(cluster, own)}
        plugged = [(j, fabric) for j, fabric in enumerate(cluster.fabrics) if fabric.name in names]
        wanted = {fabric.transport for _, fabric in plugged}
        if own.transport is None or not wanted or "other" in (*wanted, own.transport):
            continue
        judged = True
        if own.transport not in wanted:
            declared = " or ".join(sorted(wanted))
            yield Violation(
                at(cluster, "observations", i, "transport"),
                f"the library used {own.transport}, but the compute NICs are declared on {declared}",
                "find why the library left the declared transport: plug-in, devices in the container, settings",
                related=tuple((at(cluster, "fabrics", j, "transport"), "declared here") for j, _ in plugged),
            )
    if not judged:
        raise NotApplicable("no observation names a transport, or no compute NIC a fabric to compare it with")


@rule("TS-CLU-058")
def observed_interfaces(cluster: ClusterProfile) -> Iterator[Violation]:
    """The interfaces in use are the compute NICs of a node."""
    judged = False
    for i, own in _observations(cluster):
        compute = [nic for _, nic in _compute(cluster, own)]
        if not own.interfaces or not compute:
            continue
        judged = True
        other = {
            device: nic
            for _, group in _groups(cluster, own)
            for nic in group.nics
            if nic.role != "compute"
            for device in nic.devices
        }
        strays = [(j, name) for j, name in enumerate(own.interfaces) if name in other]
        for j, name in strays:
            yield Violation(
                at(cluster, "observations", i, "interfaces", j),
                f"{name!r} carries collectives, but is declared as a {other[name].role} NIC",
                "leave it out of the list that the library is given (NCCL_IB_HCA)",
            )
        if not strays:
            yield from _odd_interfaces(cluster, i, own, compute)
    if not judged:
        raise NotApplicable("no observation lists interfaces, or no compute NIC is declared")


def _odd_interfaces(
    cluster: ClusterProfile, position: int, own: CollectiveObservation, compute: list[Nic]
) -> Iterator[Violation]:
    """Names that are not declared; where none are declared, a number that is not that of one node."""
    devices = [device for nic in compute for device in nic.devices]
    if devices and all(nic.devices for nic in compute):
        unknown = [(j, name) for j, name in enumerate(own.interfaces) if name not in devices]
        if len(unknown) > _ONE_BY_ONE:
            names = ", ".join(repr(name) for _, name in unknown[:_LISTED])
            message = f"{len(unknown)} interfaces carry collectives, but are no devices of a compute NIC: {names}"
            place = at(cluster, "observations", position, "interfaces")
            yield Violation(place, message, f"declared are {', '.join(devices[:_LISTED])}")
            return
        for j, name in unknown:
            place = at(cluster, "observations", position, "interfaces", j)
            message = f"{name!r} carries collectives, but is no device of a compute NIC"
            yield Violation(place, message, hint(name, devices) or f"declared are {', '.join(devices[:_LISTED])}")
        return
    # A NIC of several ports is listed by its ports, or as one where the library merges them.
    groups = [group for _, group in _groups(cluster, own)]
    fitting = set()
    for group in groups:
        nics = [nic for _, nic in compute_nics(group)]
        fitting |= {
            sum(nic.num_per_node for nic in nics),
            sum(nic.num_per_node * (nic.num_ports or 1) for nic in nics),
        }
    if len(own.interfaces) not in fitting:
        yield Violation(
            at(cluster, "observations", position, "interfaces"),
            f"{len(own.interfaces)} interfaces carry collectives, but a node has "
            f"{' or '.join(map(str, sorted(fitting)))} compute NICs",
            "declare every interface with its role, or correct the list that the library is given (NCCL_IB_HCA)",
        )


@rule("TS-CLU-059")
def observed_link_layer(cluster: ClusterProfile) -> Iterator[Violation]:
    """One job uses one link layer, that of its compute NICs."""
    judged = False
    for i, own in _observations(cluster):
        if not own.link_layers:
            continue
        judged = True
        layers = sorted(set(own.link_layers))
        if len(layers) > 1:
            message = f"one job uses interfaces of {' and '.join(layers)}"
            yield Violation(at(cluster, "observations", i, "link_layers"), message, "select interfaces of one of them")
            continue
        declared = {nic.technology for _, nic in _compute(cluster, own)} & {"infiniband", "ethernet"}
        if declared and layers[0] not in declared:
            message = (
                f"the interfaces in use are {layers[0]}, but the compute NICs are {' and '.join(sorted(declared))}"
            )
            yield Violation(at(cluster, "observations", i, "link_layers"), message, "correct technology of the NICs")
    if not judged:
        raise NotApplicable("no observation names link layers")


@rule("TS-CLU-060")
def observed_direct_path(cluster: ClusterProfile) -> Iterator[Violation]:
    """Where direct access is declared, every connection uses it."""
    judged = False
    for i, own in _observations(cluster):
        declared = [place for place, nic in _compute(cluster, own) if nic.gpu_direct]
        if own.gpu_direct_share is None or not declared:
            continue
        judged = True
        if own.gpu_direct_share < 1:
            yield Violation(
                at(cluster, "observations", i, "gpu_direct_share"),
                f"{units.percent(own.gpu_direct_share)} of the connections use direct access, "
                "but the compute NICs declare it",
                "expected 1; look for a peer-memory module that is not loaded, and for accelerators far from their NIC",
                related=tuple((at(cluster, *place, "gpu_direct"), "declared here") for place in declared),
            )
    if not judged:
        raise NotApplicable("no observation counts direct connections, or no compute NIC declares them")


@rule("TS-CLU-061")
def observed_library(cluster: ClusterProfile) -> Iterator[Violation]:
    """The library that ran is the one that is declared."""
    declared = cluster.software.collective_library if cluster.software else None
    judged = False
    for i, own in _observations(cluster):
        if own.library is None or declared is None:
            continue
        judged = True
        place = ("observations", i, "library")
        if own.library.name.casefold() != declared.name.casefold():
            message = f"the job ran {own.library.name}, but {declared.name} is declared"
            yield Violation(at(cluster, *place, "name"), message, "declare the library that figures come from")
        elif own.library.version and declared.version and _core(own.library.version) != _core(declared.version):
            message = f"the job ran version {own.library.version}, but {declared.version} is declared"
            yield Violation(
                at(cluster, *place, "version"), message, f"declare {own.library.version}, or run the job anew"
            )
    if not judged:
        raise NotApplicable("no observation names its library, or none is declared")


def _core(version: str) -> str:
    """A version without the letter before it and what its build added: v2.27.3+cuda12.9 is 2.27.3."""
    return version.removeprefix("v").partition("+")[0].partition("-")[0]
