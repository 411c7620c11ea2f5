"""Checks hosts, host links and peer-to-peer settings of a cluster profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import Host, HostLink, NodeGroup
from trainspec_validate.model import units
from trainspec_validate.model.catalog import links
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.derived.cluster import (
    all_nics,
    compute_nics,
    host_link_rate,
    listed,
    memory_bytes,
    own_pcie_rate,
    within,
)
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule

_LANES = (1, 2, 4, 8, 12, 16, 32)
_LINK_SHARE = (0.7, 1.1)
_COHERENT_LINK_SHARE = (0.4, 1.1)
_UNNAMED_LINKS = frozenset({"coherent", "other"})
_FEED_TOLERANCE = 0.05
_PORTS_OF_ACCELERATORS = frozenset({"gaudi-roce", "ici"})
"""Scale-up links of accelerators that have network ports of their own: the traffic does not cross the host link."""
_MEMORY_SHARE = (0.7, 9.0)
_MOST_MEMORY_BYTES = 100e12
"""The most that a document can give; no remedy is above it."""
_SHARED_HOST = 4
"""Accelerators per node from which host memory grows with device memory."""
_CORES_PER_SOCKET = (2, 300)
_BITS_TOLERANCE = 0.1
"""For a rate before or after the coding of the link, which is 1.5 to 6 % of it."""
_CORES_PER_ACCELERATOR = 2
_MOST_SOCKETS, _SOCKETS_PER_ACCELERATOR = 8, 2
"""Of one host, at most: four times those of MLPerf systems, which have one or two."""
_NUMA_NODES_PER_SOCKET = 32
"""Linux lists 34 NUMA nodes for two Grace processors with four GPUs, the memory of the GPUs among them."""
_MEMORY_RATE_PER_SOCKET = (50e9, 1.5e12)


def _host_links(cluster: ClusterProfile) -> Iterator[tuple[Pointer, HostLink]]:
    for i, group in enumerate(cluster.node_groups):
        if group.host_link is not None:
            yield ("node_groups", i, "host_link"), group.host_link
    for i, j, nic in all_nics(cluster):
        if nic.host_link is not None:
            yield ("node_groups", i, "nics", j, "host_link"), nic.host_link


def _of_links(
    cluster: ClusterProfile, first_wrong: Callable[[HostLink], tuple[str, str, str] | None]
) -> Iterator[Violation]:
    """A violation for each host link of which a function finds something wrong: key, message and help."""
    found = require(list(_host_links(cluster)), "no host link is described")
    for pointer, link in found:
        wrong = first_wrong(link)
        if wrong is not None:
            key, message, told = wrong
            yield Violation(at(cluster, *pointer, key), message, told)


@rule("TS-CLU-016")
def host_link_figures(cluster: ClusterProfile) -> Iterator[Violation]:
    """A host link's rate, generation and lanes fit together."""
    yield from _of_links(cluster, _host_link)
    for pointer, link in _host_links(cluster):
        stated = link.bandwidth_bytes_per_second or (link.generation and link.num_lanes)
        if link.technology == "pcie" and not stated:
            reason = "gives a PCIe link without a rate, or without a generation and lanes"
            told = "give generation and num_lanes, or bandwidth_bytes_per_second"
            raise Unresolved(at(cluster, *pointer), reason, told)


def _host_link(link: HostLink) -> tuple[str, str, str] | None:
    """Key, message and help of the first thing that is wrong with one link."""
    own, nominal = link.bandwidth_bytes_per_second, host_link_rate(link)
    pcie = link.technology == "pcie"
    if pcie and link.num_lanes is not None and link.num_lanes not in _LANES:
        return "num_lanes", f"no PCIe device has {link.num_lanes} lanes", "1, 2, 4, 8, 12, 16 or 32"
    if pcie and own is not None and nominal is not None and own > _LINK_SHARE[1] * nominal:
        return _link_rate(link, own, nominal)
    return None


def _link_rate(link: HostLink, own: float, nominal: float) -> tuple[str, str, str]:
    name = f"PCIe {link.generation} x{link.num_lanes}" if link.technology == "pcie" else link.technology
    message = f"{name} carries {units.bytes_per_second(nominal)} one way, not {units.bytes_per_second(own)}"
    right = f"write {units.base(nominal)}, or what was measured"
    if within(own, 8 * nominal, _BITS_TOLERANCE):
        right = f"write {units.base(nominal)}: {units.base(own)} is its rate in bits"
    elif within(own, nominal / 8, _BITS_TOLERANCE):
        right = (
            f"write {units.base(nominal)}: {units.base(own)} is an eighth of it, as if bits were divided twice; "
            "where it was measured, the link negotiated fewer lanes, so correct num_lanes or the slot"
        )
    return "bandwidth_bytes_per_second", message, right


@rule("TS-CLU-064")
def host_link_share(cluster: ClusterProfile) -> Iterator[Violation]:
    """A host link is about as fast as such links are, and as fast as what it feeds."""
    return _of_links(cluster, _share)


def _share(link: HostLink) -> tuple[str, str, str] | None:
    """Key, message and help of the first figure of one link that is not plausible."""
    own, nominal = link.bandwidth_bytes_per_second, host_link_rate(link)
    pcie, generations = link.technology == "pcie", links().pcie_bandwidth_bytes_per_second
    if pcie and link.generation is not None and link.generation not in generations:
        message = f"the table of links has no PCIe generation {link.generation}"
        return "generation", message, f"{min(generations)} to {max(generations)}"
    if own is not None and nominal is not None:
        low, high = _LINK_SHARE if pcie else _COHERENT_LINK_SHARE
        if own < low * nominal or (not pcie and own > high * nominal):
            return _link_rate(link, own, nominal)
    upstream, one = link.upstream_bandwidth_bytes_per_second, own or nominal
    if upstream is not None and one is not None and upstream < one * (1 - 0.05):
        message = (
            f"the upstream link carries {units.bytes_per_second(upstream)}, less than one device below it "
            f"with {units.bytes_per_second(one)}"
        )
        return "upstream_bandwidth_bytes_per_second", message, f"at least {units.base(one)}"
    return None


_OF_A_MODULE = "nvlink-c2c"
"""A link that leads no further than the module of host and accelerator."""


@rule("TS-CLU-071")
def host_link_kind(cluster: ClusterProfile) -> Iterator[Violation]:
    """An accelerator that shares a module with its host has the link of that module."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        known, link = listed(group), group.host_link
        if known is None or link is None:
            continue
        if not known.host_link:
            if link.technology == _OF_A_MODULE:
                judged = True
                yield Violation(
                    at(cluster, "node_groups", i, "host_link", "technology"),
                    f"the host link is {_OF_A_MODULE}, but {known.title} shares no module with its host",
                    "write technology: pcie with generation and lanes, or correct the accelerator",
                    related=((at(cluster, "node_groups", i, "accelerator", "model"), "the accelerator"),),
                )
            continue
        judged = True
        if link.technology not in {known.host_link, *_UNNAMED_LINKS}:
            yield Violation(
                at(cluster, "node_groups", i, "host_link", "technology"),
                f"the host link is {link.technology}, but {known.title} is joined to its host by {known.host_link}",
                f"write technology: {known.host_link} without generation and lanes, or correct the accelerator",
                related=((at(cluster, "node_groups", i, "accelerator", "model"), "the accelerator"),),
            )
    if not judged:
        raise NotApplicable("no accelerator with a coherent host link in the catalog states its host link")


@rule("TS-CLU-072")
def host_link_device(cluster: ClusterProfile) -> Iterator[Violation]:
    """The PCIe link of an accelerator is no more than its own interface."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        known, link, most = listed(group), group.host_link, own_pcie_rate(group)
        if known is None or link is None or most is None or link.technology != "pcie":
            continue
        judged = True
        wrong = _beyond_device(link, known.pcie, most)
        if wrong is not None:
            key, figure = wrong
            limit = f"PCIe {known.pcie['generation']} x{known.pcie['num_lanes']}"
            yield Violation(
                at(cluster, "node_groups", i, "host_link", key),
                f"the host link is {figure}, but {known.title} has {limit}",
                f"write what was negotiated, at most {limit} ({units.bytes_per_second(most)}), or another accelerator",
                related=((at(cluster, "node_groups", i, "accelerator", "model"), "the accelerator"),),
            )
    if not judged:
        raise NotApplicable("no PCIe host link of an accelerator whose PCIe link the catalog has")


def _beyond_device(link: HostLink, pcie: Mapping[str, int], most: float) -> tuple[str, str] | None:
    """Key and value of the first figure of a link that is beyond the interface of its accelerator."""
    if link.generation is not None and link.generation > pcie["generation"]:
        return "generation", f"PCIe generation {link.generation}"
    if link.num_lanes is not None and link.num_lanes * link.num_links > pcie["num_lanes"]:
        key = "num_links" if link.num_lanes <= pcie["num_lanes"] else "num_lanes"
        return key, f"{link.num_links} x {link.num_lanes} lanes" if link.num_links > 1 else f"{link.num_lanes} lanes"
    own = link.bandwidth_bytes_per_second
    if own is not None and own > _LINK_SHARE[1] * most and host_link_rate(link) is None:
        return "bandwidth_bytes_per_second", units.bytes_per_second(own)
    return None


@rule("TS-CLU-069")
def host_link_feeds(cluster: ClusterProfile) -> Iterator[Violation]:
    """The link of an accelerator to the host carries its share of the node's compute NICs."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        nics = [nic for _, nic in compute_nics(group)]
        own_ports = group.scale_up is not None and group.scale_up.technology in _PORTS_OF_ACCELERATORS
        stated = _stated_rate(group.host_link)
        rate = stated if group.host_link is not None else own_pcie_rate(group)
        if rate is None or not nics or own_ports:
            continue
        judged = True
        needed = max(nic.rate_bytes_per_second * nic.num_per_node for nic in nics) / group.num_accelerators_per_node
        if rate >= needed * (1 - _FEED_TOLERANCE):
            continue
        first, _ = max(compute_nics(group), key=lambda each: each[1].rate_bytes_per_second * each[1].num_per_node)
        link, fastest = ("node_groups", i, "host_link"), ("node_groups", i, "nics", first, "rate_bytes_per_second")
        yield Violation(
            at(cluster, *(fastest if stated is None else link)),
            f"the link between host and accelerator carries {units.bytes_per_second(rate)}"
            f"{' (the catalog)' if stated is None else ''}, and an accelerator's share of the compute NICs is "
            f"{units.bytes_per_second(needed)}",
            "correct generation and num_lanes of the link, or the rate of the NICs in bytes per second; "
            f"{units.base(needed)} each way is needed",
            related=((at(cluster, "node_groups", i, "nics"), "the NICs"),) if stated is not None else (),
        )
    if not judged:
        raise NotApplicable("no host link of known rate in a group with compute NICs on the host")


def _stated_rate(link: HostLink | None) -> float | None:
    return (host_link_rate(link) or link.bandwidth_bytes_per_second) if link is not None else None


@rule("TS-CLU-017")
def host_size(cluster: ClusterProfile) -> Iterator[Violation]:
    """Host memory, sockets and cores are plausible for the accelerators of the node."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        if group.host is None:
            continue
        judged = True
        for key, message, told in _sizes(group, group.host):
            yield Violation(at(cluster, "node_groups", i, "host", key), message, told)
    if not judged:
        raise NotApplicable("no group describes its hosts")


def _sizes(group: NodeGroup, host: Host) -> Iterator[tuple[str, str, str]]:
    for part in (_memory, _sockets, _processors):
        yield from part(group, host)


def _memory(group: NodeGroup, host: Host) -> Iterator[tuple[str, str, str]]:
    one = memory_bytes(group)
    if host.memory_bytes is not None and one is not None:
        devices = one * group.num_accelerators_per_node
        low, high = _MEMORY_SHARE[0] * devices, _MEMORY_SHARE[1] * devices
        shared = group.num_accelerators_per_node >= _SHARED_HOST and one >= 8e9
        if host.memory_bytes < low or (shared and host.memory_bytes > high):
            message = f"{units.bytes_(host.memory_bytes)} of host memory, {units.bytes_(devices)} of device memory"
            slip = units.slipped_prefix(host.memory_bytes, low, min(high, _MOST_MEMORY_BYTES))
            yield "memory_bytes", message, f"between {units.bytes_(low)} and {units.bytes_(high)} is plausible{slip}"
    rate, sockets = host.memory_bandwidth_bytes_per_second, host.num_sockets
    if rate is not None and sockets is not None:
        low, high = (bound * sockets for bound in _MEMORY_RATE_PER_SOCKET)
        if not low <= rate <= high:
            yield (
                "memory_bandwidth_bytes_per_second",
                f"{units.bytes_per_second(rate)} of host memory bandwidth on {sockets} sockets",
                f"between {units.bytes_per_second(low)} and {units.bytes_per_second(high)} is plausible",
            )


def _sockets(group: NodeGroup, host: Host) -> Iterator[tuple[str, str, str]]:
    most = max(_MOST_SOCKETS, _SOCKETS_PER_ACCELERATOR * group.num_accelerators_per_node)
    if (host.num_sockets or 0) > most:
        message = f"{host.num_sockets} sockets in a node of {group.num_accelerators_per_node} accelerators"
        yield "num_sockets", message, f"at most {most} is plausible"


def _processors(group: NodeGroup, host: Host) -> Iterator[tuple[str, str, str]]:
    sockets, cores = host.num_sockets, host.num_cores
    if sockets is not None and host.num_numa_nodes is not None and host.num_numa_nodes < sockets:
        message = f"{host.num_numa_nodes} NUMA nodes on {sockets} sockets"
        yield "num_numa_nodes", message, f"at least {sockets}, one per socket"
    elif sockets is not None and (host.num_numa_nodes or 0) > _NUMA_NODES_PER_SOCKET * sockets:
        message = f"{host.num_numa_nodes} NUMA nodes on {sockets} sockets"
        yield "num_numa_nodes", message, f"at most {_NUMA_NODES_PER_SOCKET * sockets}, or correct num_sockets"
    if cores is None:
        return
    if (host.num_numa_nodes or 0) > cores:
        yield "num_numa_nodes", f"{host.num_numa_nodes} NUMA nodes on {cores} cores", "correct one of them"
    needed = _CORES_PER_ACCELERATOR * group.num_accelerators_per_node
    if cores < needed:
        message = f"{cores} cores feed {group.num_accelerators_per_node} accelerators"
        yield "num_cores", message, f"at least {needed}, two per accelerator"
    elif sockets is not None:
        low, high = (bound * sockets for bound in _CORES_PER_SOCKET)
        if not low <= cores <= high:
            yield (
                "num_cores",
                f"{cores:,} cores on {sockets} sockets",
                f"between {low} and {high} is plausible",
            )


@rule("TS-CLU-018")
def access_control(cluster: ClusterProfile) -> Iterator[Violation]:
    """No peer-to-peer detour through the root complex on bare metal."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        host = group.host
        if host is None or host.acs_enabled is None or host.virtualised:
            continue
        judged = True
        if host.acs_enabled:
            yield Violation(
                at(cluster, "node_groups", i, "host", "acs_enabled"),
                "Access Control Services send peer-to-peer traffic through the root complex",
                "switch ACS off on the bridges above accelerators and NICs, then write false",
            )
    if not judged:
        raise NotApplicable("no bare-metal group says whether ACS is on")


_READ_TOPOLOGY = frozenset({"nvidia", "amd"})
"""Vendors whose collective libraries, NCCL and RCCL, take distances from the PCI tree of the host."""


@rule("TS-CLU-019")
def virtual_topology(cluster: ClusterProfile) -> Iterator[Violation]:
    """A virtual machine translates addresses for peers, or is given its topology."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        host = group.host
        known = listed(group)
        vendor = (known.vendor if known else group.accelerator.vendor or "").casefold()
        if host is None or not host.virtualised or (vendor and not any(each in vendor for each in _READ_TOPOLOGY)):
            continue
        judged = True
        if not host.ats_enabled and host.topology_file is None:
            key = "virtualised" if host.ats_enabled is None else "ats_enabled"
            yield Violation(
                at(cluster, "node_groups", i, "host", key),
                "training runs in virtual machines that state neither address translation services nor a topology file",
                "write ats_enabled: true, or name the topology_file that the collective library is given",
            )
    if not judged:
        raise NotApplicable("no group trains in virtual machines with a library that reads the topology")
