"""Compares what was found on each node with what a cluster profile declares."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from trainspec_validate.documents.types import ClusterProfile, changed
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.documents.types.observation import (
    BusBandwidth,
    DeviceObservation,
    NodeObservation,
    PortObservation,
)
from trainspec_validate.model import units
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.xids import xid
from trainspec_validate.performance.costs.collectives import best
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.derived.cluster import compute_nics, domain_rate
from trainspec_validate.performance.topology.graph import domain_latency_seconds
from trainspec_validate.rules import NotApplicable, Uncovered, Violation, _described, at, rule
from trainspec_validate.rules._device_peers import behind_others, below_declared
from trainspec_validate.rules._node_rates import rates, refuse_unpublished
from trainspec_validate.rules._same_machine import other_hosts, same_machines
from trainspec_validate.system.digits import is_digits

_KEY = "observed_nodes"
_SHOWN = 8
_RATE_TOLERANCE = 0.02
_LARGE_BYTES = 2**28
"""Messages from here on are bound by bandwidth, on every machine that the models were compared with."""
_STRAGGLER = 0.9
"""Share of the median of equal nodes; runs of one node repeat within less."""
_LEAST_NODES = 3
_LINK_LAYERS = frozenset({"infiniband", "ethernet"})
_WORKFLOWS = frozenset({"WORKFLOW_XID_48", "WORKFLOW_NVLINK_ERR"})
"""Actions of the table of Xids that end in a reset."""

_FAULTS = {
    "row-remap:pending": "reset the GPU to replace rows of its memory",
    "row-remap:failure": "a row of its memory could not be replaced; NVIDIA exchanges the board",
    "page-retirement:pending": "restart the node, or reset the GPU, to take pages of its memory out of use",
    "sram:threshold-exceeded": "uncorrected errors of its SRAM exceed the threshold of the field diagnostic of NVIDIA",
    "reset:required": "the GPU needs a reset before it can be used",
    "reset:recommended": "finish what runs on the GPU, then reset it",
    "fabric:in-progress": "not registered with the NVLink fabric, so that no program starts; see the Fabric Manager",
    "fabric:not-started": "not registered with the NVLink fabric, so that no program starts; see the Fabric Manager",
    "fabric:unhealthy": "the NVLink fabric is degraded",
    "mig:enabled": "divided into instances (MIG), which have no NVLink",
    "nvlink:recovery": "the link lost its connection and recovered; reseat the board, and run its diagnostics",
    "nvlink:recovery-failed": "the link did not recover; reset the GPU, and exchange the board where it stays so",
    "ras:uncorrectable": "errors that the GPU could not correct since its driver was loaded; reset it, and test it",
    "throttle:prochot": "the board slows the GPU down; look at its power supply and its cooling",
    "driver:unknown-error": "the driver cannot read values of the GPU",
    "driver:gpu-is-lost": "the GPU does not answer the driver",
    "pcie:fatal": "a fatal error of its PCIe link; reseat it, and compare settings of the firmware",
    "mlx5:health": "the firmware of the adapter stopped, or reported a fatal error",
    "memory:uncorrected": "memory of the host lost data; replace the module that the kernel names",
    "processor:uncorrected": "a machine check that was not corrected; see the log of the firmware",
    "firmware:fatal": "the firmware reported a fatal error of the hardware; see its log",
}
"""What a fault of `nvidia-smi`, `amd-smi` or of the kernel means, by its first word."""

Placed = tuple[int, NodeObservation, NodeGroup | None]


def _nodes(cluster: ClusterProfile) -> list[Placed]:
    """The nodes that answered, each with its place and its group."""
    if not cluster.observed_nodes:
        raise NotApplicable("no node was observed")
    groups = {group.name: group for group in cluster.node_groups}
    listed = {node.name: node.group for node in cluster.layout.nodes} if cluster.layout is not None else {}
    found = []
    for i, node in enumerate(cluster.observed_nodes):
        name = node.group if node.group is not None else listed.get(node.name)
        if node.answered:
            found.append((i, node, groups.get(name) if name is not None else _only(cluster, node)))
    return found


def _only(cluster: ClusterProfile, node: NodeObservation) -> NodeGroup | None:
    """The only group, or the only one with the accelerators that the node has; groups that differ in size are one."""
    groups = cluster.node_groups
    models = {device.model for device in node.devices if device.model is not None}
    if len(groups) > 1 and models:
        groups = tuple(group for group in groups if {group.accelerator.model} == models)
    if len(groups) == 1:  # compared with no other, so that what is unknown of it leaves the rest to be judged
        return groups[0]
    is_one = len({changed(group, name="", num_nodes=1) for group in groups}) == 1
    return groups[0] if is_one else None


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@rule("TS-CLU-054")
def observed_machine(cluster: ClusterProfile) -> Iterator[Violation]:
    """Every node answers, with the accelerators, interfaces and driver that are declared."""
    yield from _absent(cluster)
    yield from same_machines(cluster)
    yield from other_hosts(cluster)
    nodes = _nodes(cluster)
    for i, node, group in nodes:
        if group is None:
            message = f"{node.name} is of no node group of the profile"
            yield Violation(at(cluster, _KEY, i), message, "name its group, where the profile has several")
            continue
        if node.num_accelerators is not None and node.num_accelerators != group.num_accelerators_per_node:
            wanted, found = group.num_accelerators_per_node, node.num_accelerators
            told, remedy = f"{found} of {wanted} accelerators", "find the one that is missing by its slot, or "
            if found > wanted:
                told, remedy = f"{found} accelerators, declared are {wanted}", ""
            place = at(cluster, _KEY, i, "num_accelerators")
            yield Violation(place, f"{node.name}: {told}", f"{remedy}correct num_accelerators_per_node")
        yield from _driver(cluster, i, node)
    grouped = [(i, node, group) for i, node, group in nodes if group is not None]
    parts = [_described.machine(cluster, i, group) for i, _, group in grouped]
    yield from _described.each(parts + [_interfaces(cluster, *one) for one in grouped if one[1].ports])


def _absent(cluster: ClusterProfile) -> Iterator[Violation]:
    """Nodes without an answer, and nodes that the profile does not have."""
    for i, node in enumerate(cluster.observed_nodes):
        if not node.answered:
            message = f"{node.name} did not answer: no file of it can be read"
            if node.num_nodes > 1:
                message = (
                    f"{node.num_nodes:,} of {cluster.num_nodes:,} nodes are absent: no files were gathered from them"
                )
            yield Violation(at(cluster, _KEY, i), message, "gather the files of every node, and repair those that fail")
    num_found = sum(node.num_nodes for node in cluster.observed_nodes)
    if num_found > cluster.num_nodes:
        message = f"{num_found:,} nodes were observed, and the profile has {cluster.num_nodes:,}"
        yield Violation(at(cluster, _KEY), message, "gather the files of the nodes of the profile, and of no other")


def _interfaces(cluster: ClusterProfile, i: int, node: NodeObservation, group: NodeGroup) -> Iterator[Violation]:
    nics = [nic for _, nic in compute_nics(group)]
    found = {port.device for port in node.ports}
    if not nics:
        return
    place = at(cluster, _KEY, i, "ports")
    if all(nic.devices for nic in nics):
        missing = [device for nic in nics for device in nic.devices if device not in found]
        if missing:
            yield Violation(place, f"{node.name}: no {_named(missing)}", f"it has {_named(sorted(found))}")
    elif len(found) < (wanted := sum(nic.num_per_node for nic in nics)):
        message = f"{node.name}: {len(found)} network interfaces, declared are {wanted} compute NICs"
        yield Violation(place, message, "find the one that is missing by its slot")


def _driver(cluster: ClusterProfile, i: int, node: NodeObservation) -> Iterator[Violation]:
    declared = cluster.software.driver if cluster.software is not None else None
    if declared is not None and declared.version and node.driver and node.driver != str(declared.version):
        message = f"{node.name}: driver {node.driver}, declared is {declared.version}"
        yield Violation(at(cluster, _KEY, i, "driver"), message, f"install {declared.name} {declared.version}")


@rule("TS-CLU-080")
def observed_firmware(cluster: ClusterProfile) -> Iterator[Violation]:
    """Nodes of one group have the same firmware, and the same driver where none is declared."""
    declares = cluster.software is not None and cluster.software.driver is not None and cluster.software.driver.version
    by_kind: dict[tuple[str, str], dict[str, list[tuple[Pointer, str]]]] = defaultdict(lambda: defaultdict(list))
    for i, node, group in _nodes(cluster):
        name = group.name if group is not None else ""
        if node.driver and not declares:
            by_kind["driver", name][node.driver].append(((_KEY, i, "driver"), node.name))
        for board in _boards(node):
            (j, first), *others = board
            model, several = first.model or "accelerators", f" on boards of {len(board)}" if others else ""
            versions_of_board = ", ".join(sorted({one.firmware for _, one in board if one.firmware}))
            by_kind[f"firmware of {model}{several}", name][versions_of_board].append(
                ((_KEY, i, "devices", j, "firmware"), f"{node.name}/{first.name}")
            )
        compute = _compute_ports(node, group)
        for j, port in enumerate(node.ports):
            if port.firmware and j in compute:
                place = (_KEY, i, "ports", j, "firmware")
                by_kind["firmware of compute NICs", name][port.firmware].append((place, f"{node.name}/{port.device}"))
    if not by_kind:
        raise NotApplicable("no observed node states the firmware of a device")
    for (kind, _), versions in by_kind.items():
        usual = max(versions, key=lambda version: (len(versions[version]), version))
        for version, places in versions.items():
            by_node: dict[str | int, list[tuple[Pointer, str]]] = defaultdict(list)
            for where, name in places if version != usual else ():
                by_node[where[1]].append((where, name))
            for own in by_node.values():
                names = _named([name for _, name in own])
                message = f"{kind} is {version} on {names}, and {usual} on {len(versions[usual])} others"
                yield Violation(at(cluster, *own[0][0]), message, "one version on all nodes of a group")


def _boards(node: NodeObservation) -> list[list[tuple[int, DeviceObservation]]]:
    """The devices that state their firmware, by the board that they share: its devices have versions of their own."""
    found: dict[str | int, list[tuple[int, DeviceObservation]]] = defaultdict(list)
    for j, one in enumerate(node.devices):
        if one.firmware:
            found[one.serial_number if one.serial_number is not None else j].append((j, one))
    return list(found.values())


def _compute_ports(node: NodeObservation, group: NodeGroup | None) -> set[int]:
    """Ports that may be of compute NICs: by the names of devices, or else by rates, and all where none is declared."""
    if group is None or not compute_nics(group):
        return set(range(len(node.ports)))
    if any(nic.devices for _, nic in compute_nics(group)):
        return set(_named_ports(node, group))
    matched, unfilled = _matched(node, group)
    return {
        j for j, port in enumerate(node.ports) if matched.get(j, bool(unfilled) or port.rate_bytes_per_second is None)
    }


@rule("TS-CLU-073")
def observed_condition(cluster: ClusterProfile) -> Iterator[Violation]:
    """Links are up at their full width and rate, and no device reports what takes it out of use."""
    judged, nodes = False, _nodes(cluster)
    for i, node, group in nodes:
        judged |= bool(node.devices or node.ports or node.failed_checks or _described.has_condition(node))
        for j, check in enumerate(node.failed_checks):
            yield Violation(at(cluster, _KEY, i, "failed_checks", j), f"{node.name}: {check}", "every check passes")
        for j, one in enumerate(node.devices):
            yield from _device(cluster, (_KEY, i, "devices", j), (node, one, group))
    yield from behind_others(cluster, nodes)
    parts = []
    for i, node, group in nodes:
        parts.append(_links(cluster, i, node, group))
        parts += [_described.condition(cluster, i, group)] if group is not None else []
        parts += [_ports(cluster, i, node, group)] if node.ports else []
    yield from _described.each(parts)  # last: a discovered profile often lacks links and interfaces
    if not judged:
        raise NotApplicable("no file of a node states links, errors or checks")
    _known_faults(cluster)


def _known_faults(cluster: ClusterProfile) -> None:
    """Leave open whether an Xid that the table of its maker lacks takes a device out of use."""
    for i, node, _ in _nodes(cluster):
        for j, one in enumerate(node.devices):
            for k, fault in enumerate(one.faults):
                if xid(fault) is None and not _counts(fault):
                    place = at(cluster, _KEY, i, "devices", j, "faults", k)
                    reason = f"has {fault} of {node.name}/{one.name}, which the table of NVIDIA does not have"
                    raise Uncovered(place, reason, "look it up in the notes of the driver")


def _device(
    cluster: ClusterProfile, place: Pointer, found: tuple[NodeObservation, DeviceObservation, NodeGroup | None]
) -> Iterator[Violation]:
    node, one, group = found
    name = f"{node.name}/{one.name}"
    yield from below_declared(cluster, (int(place[1]), int(place[3])), group)
    if one.num_uncorrected_errors:
        message = f"{name}: {one.num_uncorrected_errors} uncorrected memory errors"
        yield Violation(
            at(cluster, *place, "num_uncorrected_errors"), message, "reset the device, and run its diagnostics"
        )
    for k, fault in enumerate(one.faults):
        known = xid(fault)
        if _counts(fault):
            told = f" ({known.title}; NVIDIA: {known.words or 'no action is named'})" if known is not None else ""
            words = _FAULTS.get(fault.partition(" ")[0])
            told = told or (f" ({words})" if words is not None else "")
            yield Violation(at(cluster, *place, "faults", k), f"{name}: {fault}{told}", "a device without faults")


def _links(cluster: ClusterProfile, i: int, node: NodeObservation, group: NodeGroup | None) -> Iterator[Violation]:
    for j, one in enumerate(node.devices):
        if group is None or one.num_active_links is None:
            continue
        wanted = group.scale_up.num_links if group.scale_up is not None else None
        if wanted and one.num_active_links < wanted:
            message = f"{node.name}/{one.name}: {one.num_active_links} of {wanted} scale-up links are up"
            place = at(cluster, _KEY, i, "devices", j, "num_active_links")
            yield Violation(place, message, "reset the device; replace it where they stay down")


def _counts(fault: str) -> bool:
    """Whether a fault takes the device out of use; of Xids that the table lacks nothing is known."""
    known = xid(fault)
    if known is not None:
        return known.reset or known.action in _WORKFLOWS
    return not is_digits(fault.removeprefix("xid:"))


def _ports(cluster: ClusterProfile, i: int, node: NodeObservation, group: NodeGroup | None) -> Iterator[Violation]:
    nics = [nic for _, nic in compute_nics(group)] if group is not None else []
    yield from _link_layers(cluster, i, node, group)
    if group is None or not group.nics or any(nic.devices for nic in nics):
        wanted = _named_ports(node, group)
    else:
        matched, unfilled = _matched(node, group)
        rest = [j for j, port in enumerate(node.ports) if j not in matched and not _is_of_any_rate(port)]
        wanted = dict.fromkeys(rest, unfilled) if unfilled else {}
    for j, declared in wanted.items():
        port = node.ports[j]
        name = f"{node.name}/{port.device}" + (f" port {port.port}" if port.port > 1 else "")
        rate = port.rate_bytes_per_second
        if not port.active:
            words, remedy = "the link is down", "check the cable"
            if port.awaits_subnet_manager:
                words, remedy = "the cable is up, and no subnet manager has set up the port", "start a subnet manager"
            yield Violation(at(cluster, _KEY, i, "ports", j, "active"), f"{name}: {words}", remedy)
        elif rate is not None and rate < declared * (1 - _RATE_TOLERANCE):
            message = f"{name}: {units.bytes_per_second(rate)}, declared are {units.bytes_per_second(declared)}"
            place = at(cluster, _KEY, i, "ports", j, "rate_bytes_per_second")
            yield Violation(place, message, "check cable, transceiver and port of the switch")


def _link_layers(
    cluster: ClusterProfile, i: int, node: NodeObservation, group: NodeGroup | None
) -> Iterator[Violation]:
    """Ports of compute NICs with another link layer than the profile declares; of no other technology there is one."""
    nics = [nic for _, nic in compute_nics(group)] if group is not None else []
    layers = {nic.technology for nic in nics}
    judged = _compute_ports(node, group) if nics and layers <= _LINK_LAYERS else set()
    for j in sorted(judged):
        port = node.ports[j]
        own = {nic.technology for nic in nics if port.device in nic.devices} or layers
        if port.link_layer is not None and port.link_layer not in own:
            declared = " or ".join(sorted(own))
            message = f"{node.name}/{port.device}: the link layer is {port.link_layer}, declared is {declared}"
            place = at(cluster, _KEY, i, "ports", j, "link_layer")
            yield Violation(place, message, "set the type of the port, such as LINK_TYPE_P1 by mlxconfig")


def _named_ports(node: NodeObservation, group: NodeGroup | None) -> dict[int, float]:
    """Least declared rate of each port of a device that a compute NIC names; of all ports, where none is declared."""
    nics = [nic for _, nic in compute_nics(group)] if group is not None else []
    found: dict[int, float] = {}
    for j, port in enumerate(node.ports):
        own = [nic.rate_bytes_per_second / (nic.num_ports or 1) for nic in nics if port.device in nic.devices]
        if own or not nics:
            found[j] = min(own, default=0.0)
    return found


def _is_of_any_rate(port: PortObservation) -> bool:
    return port.active and port.rate_bytes_per_second is None


def _matched(node: NodeObservation, group: NodeGroup) -> tuple[dict[int, bool], float]:
    """Which declared ports those of a node can be by their rates: for each, whether it can be one of a compute NIC.

    Also the highest rate of a declared port that none can be, 0 where there is none. A port with the declared link
    layer is taken before one without it, then one of exactly a declared rate before a faster one, and a port of unknown
    rate can be any.
    """
    wanted: Counter[tuple[float, str]] = Counter()
    for nic in group.nics:
        num_ports = nic.num_ports or 1
        wanted[nic.rate_bytes_per_second / num_ports, nic.technology] += nic.num_per_node * num_ports
    compute = {nic.rate_bytes_per_second / (nic.num_ports or 1) for _, nic in compute_nics(group)}
    left = {j: rate for j, port in enumerate(node.ports) if port.active and (rate := port.rate_bytes_per_second)}
    found: dict[int, bool] = {}
    for any_layer, most in itertools.product((False, True), (1 + _RATE_TOLERANCE, math.inf)):
        for rate, layer in sorted(wanted, reverse=True):
            able = [
                j
                for j, own in left.items()
                if rate * (1 - _RATE_TOLERANCE) <= own <= rate * most and (any_layer or _may_have(node.ports[j], layer))
            ]
            nearest = sorted(able, key=left.__getitem__)[: wanted[rate, layer]]
            wanted[rate, layer] -= len(nearest)
            found |= dict.fromkeys(nearest, rate in compute)
            left = {j: own for j, own in left.items() if j not in found}
    num_unknown = sum(map(_is_of_any_rate, node.ports))
    for rate, layer in sorted(wanted, reverse=True):
        if wanted[rate, layer] > num_unknown:
            return found, rate
        num_unknown -= wanted[rate, layer]
    return found, 0.0


def _may_have(port: PortObservation, technology: str) -> bool:
    """Whether the link layer of a port, where it is known, is that of a technology that has one of these."""
    return port.link_layer is None or technology not in _LINK_LAYERS or port.link_layer == technology


@rule("TS-CLU-074")
def observed_bandwidth(cluster: ClusterProfile) -> Iterator[Violation]:
    """The rates of benchmarks on a node are in their bands, and bus bandwidths near those of its peers."""
    nodes = _nodes(cluster)
    judged = any(node.copies or node.linpack_runs for _, node, _ in nodes)
    is_bound = set[int]()
    yield from rates(cluster, nodes)
    peers: dict[tuple[str, str, int, float], list[tuple[float, Pointer, str]]] = defaultdict(list)
    for i, node, group in nodes:
        for j, own in enumerate(node.bus_bandwidths):
            place: Pointer = (_KEY, i, "bus_bandwidths", j)
            key = (group.name if group is not None else "", own.operation, own.num_ranks, own.message_bytes)
            peers[key].append((own.bus_bandwidth_bytes_per_second, place, node.name))
            least = _least(group, own) if group is not None else None
            if least is None:
                continue
            is_bound.add(i)
            if own.bus_bandwidth_bytes_per_second < least:
                yield _slow(cluster, place, (node.name, own), f"predicted is at least {units.bytes_per_second(least)}")
    for found in (found for found in peers.values() if len(found) >= _LEAST_NODES):
        is_bound.update(int(place[1]) for _, place, _ in found)
        median = statistics.median(rate for rate, _, _ in found)
        for rate, place, _ in found:
            if rate < _STRAGGLER * median:
                node = cluster.observed_nodes[int(place[1])]
                told = f"{units.percent(rate / median)} of the median of {len(found)} nodes"
                yield _slow(cluster, place, (node.name, node.bus_bandwidths[int(place[3])]), told)
    if not judged and not peers:
        raise NotApplicable("no rate of a benchmark on one node")
    refuse_unpublished(cluster, nodes, is_bound)


def _slow(cluster: ClusterProfile, place: Pointer, found: tuple[str, BusBandwidth], told: str) -> Violation:
    name, own = found
    rate = units.bytes_per_second(own.bus_bandwidth_bytes_per_second)
    message = f"{name}: {own.operation} of {own.num_ranks} ranks has a bus bandwidth of {rate}, {told}"
    return Violation(at(cluster, *place), message, "compare links, clocks and settings with those of a fast node")


@lru_cache(maxsize=1_024)
def _least(group: NodeGroup, own: BusBandwidth) -> float | None:
    """The lowest bus bandwidth of the predicted band; None where it is not predicted."""
    rate, scale_up = domain_rate(group), group.scale_up
    if rate is None or scale_up is None or own.message_bytes < _LARGE_BYTES:
        return None
    if own.num_ranks > min(scale_up.domain_num_accelerators, group.num_accelerators_per_node):
        return None
    latency = scale_up.latency_seconds or domain_latency_seconds(scale_up.technology)
    network = Network(
        own.num_ranks,
        domain=Link(rate, latency),
        domain_shape=scale_up.topology,
        domain_num_ranks=scale_up.domain_num_accelerators,
        domain_reduces=False,
    )
    try:
        found = best(own.operation, own.message_bytes, network)
    except ValueError:
        return None
    return found.bus_bandwidth_bytes_per_second * found.seconds / found.high_seconds if found.high_seconds else None
