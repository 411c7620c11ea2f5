"""Checks the network interfaces of a cluster profile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import Nic, NodeGroup
from trainspec_validate.model import units
from trainspec_validate.model.catalog import links
from trainspec_validate.model.suggest import did_you_mean, hint, meant
from trainspec_validate.performance.derived.cluster import (
    all_nics,
    compute_nics,
    domain_rate,
    host_link_rate,
    used_domain,
    within,
)
from trainspec_validate.rules import NotApplicable, Violation, at, rule

_RATE_TOLERANCE = 0.01
_FASTEST_BYTES_PER_SECOND = 100e9
"""Of any NIC that a node was built with by 2026: 800 Gb/s, of all its ports together."""
_MAX_NICS_PER_ACCELERATOR = 4
_WITHOUT_RAILS = frozenset({"dragonfly", "torus", "direct"})
"""Topologies in which no interface belongs to one accelerator of its node."""
_NO_STANDARD = frozenset({"dcn", "ici", "other"})
_SLOWEST_LISTED = frozenset({"infiniband", "slingshot", "omni-path"})
"""Link layers whose slowest generation on nodes with accelerators is in the table of links."""
_OF_OLDER_NODES = (5e9, 6.25e9)
"""40 and 50 Gb/s: a tenth, and an eighth, of 400 Gb/s."""
_JOINED_BYTES_PER_SECOND = 300e9
"""Scale-up rate of an accelerator from 2020 on, NVLink 3 or more: none was published with such an interface."""
_SIGNALLED = frozenset({"infiniband", "slingshot"})
"""Link layers whose generations are named after the rate of their lanes."""
_TRANSPORTS: Mapping[str, frozenset[str]] = {
    "infiniband": frozenset({"infiniband", "tcp"}),
    "ethernet": frozenset({"rocev2", "mrc", "uet", "tcp", "tcpx", "tcpxo", "dcn"}),
    "efa": frozenset({"efa-srd", "tcp"}),
    "slingshot": frozenset({"slingshot", "tcp"}),
    "omni-path": frozenset({"omni-path", "tcp"}),
    "ici": frozenset({"ici"}),
    "dcn": frozenset({"dcn", "tcp"}),
}
"""Transports that a link layer can carry; `other` on either side fits everything."""
_OF_INFINIBAND = re.compile(r"(?:[sdqfehnxg]dr)(?:-?[0-9]+)?")
"""Rates of a lane in the roadmap of InfiniBand, with the rate of the port or without."""
_NAMED_RATE = re.compile(
    r"(?:(?P<count>[1-9][0-9]?) ?x ?)?(?P<rate>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[gt])"
    r"(?:b?e|b|bit|bps|b/s|bit/s|base-?[a-z0-9]*)?"
)
"""Generations that say the rate of a port in bits, such as `400gbe` and `2x200g`."""
_BITS = {"g": 1e9, "t": 1e12}
_OF_ETHERNET = re.compile(r"rocev?[12]?|[0-9]+ ?g(?:b?e|base-?.*)|ethernet")


@rule("TS-CLU-020")
def compute_network(cluster: ClusterProfile) -> Iterator[Violation]:
    """Nodes that scale-up links do not join have compute NICs and a fabric."""
    if cluster.num_nodes == 1:
        raise NotApplicable("one node needs no network")
    first = cluster.node_groups[0]
    if len(cluster.node_groups) == 1 and first.scale_up and used_domain(first.scale_up) >= cluster.num_accelerators:
        raise NotApplicable("one scale-up domain joins all nodes")
    without = [i for i, group in enumerate(cluster.node_groups) if not compute_nics(group)]
    for i in without:
        yield Violation(
            at(cluster, "node_groups", i, "name"),
            f"{cluster.num_nodes:,} nodes, but those of {cluster.node_groups[i].name!r} have no compute NIC",
            "add an entry with role: compute to nics",
        )
    if not without and not cluster.fabrics:
        yield Violation(at(cluster, "num_nodes"), f"{cluster.num_nodes:,} nodes, but no fabric", "add one to fabrics")


@rule("TS-CLU-021")
def nic_fabric(cluster: ClusterProfile) -> Iterator[Violation]:
    """A NIC's fabric is declared, and its link layer carries the fabric's transport."""
    fabrics = {fabric.name: fabric for fabric in cluster.fabrics}
    judged = False
    for i, j, nic in all_nics(cluster):
        place = ("node_groups", i, "nics", j)
        if nic.fabric is None:
            if nic.role == "compute" and fabrics:
                judged = True
                message = f"compute NIC {nic.name!r} names no fabric"
                yield Violation(at(cluster, *place, "name"), message, f"one of: {', '.join(fabrics)}")
            continue
        judged = True
        fabric = fabrics.get(nic.fabric)
        if fabric is None:
            told = hint(nic.fabric, fabrics) or "declare it in fabrics"
            yield Violation(at(cluster, *place, "fabric"), f"no fabric is named {nic.fabric!r}", told)
            continue
        allowed = _TRANSPORTS.get(nic.technology)
        if allowed is not None and fabric.transport != "other" and fabric.transport not in allowed:
            position = cluster.fabrics.index(fabric)
            yield Violation(
                at(cluster, *place, "technology"),
                f"{nic.technology} NICs cannot carry {fabric.transport}, the transport of {fabric.name!r}",
                f"{nic.technology} carries {' or '.join(sorted(allowed))}",
                related=((at(cluster, "fabrics", position, "transport"), "the fabric's transport"),),
            )
    if not judged:
        raise NotApplicable("no NIC names a fabric and there is none to name")


@rule("TS-CLU-022")
def one_link_layer(cluster: ClusterProfile) -> Iterator[Violation]:
    """Compute NICs of a node share a link layer."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        nics = compute_nics(group)
        for j, nic in nics[1:]:
            judged = True
            first_at, first = nics[0]
            if nic.technology != first.technology:
                yield Violation(
                    at(cluster, "node_groups", i, "nics", j, "technology"),
                    f"compute NICs are {first.technology} and {nic.technology}; one communicator uses one of them",
                    "give the others role: storage or role: management",
                    related=((at(cluster, "node_groups", i, "nics", first_at, "technology"), "the first kind"),),
                )
    if not judged:
        raise NotApplicable("no group has two kinds of compute NIC")


@rule("TS-CLU-023")
def nic_count(cluster: ClusterProfile) -> Iterator[Violation]:
    """Compute NICs spread evenly over the accelerators of a node."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        nics = compute_nics(group)
        if not nics:
            continue
        judged = True
        count, size = sum(nic.num_per_node for _, nic in nics), group.num_accelerators_per_node
        place = ("node_groups", i, "nics")
        if count % size and size % count:
            if _shared_by_socket(cluster, group) or _bundles_ports(group):
                continue
            yield Violation(
                at(cluster, *place, nics[0][0], "num_per_node"),
                f"{count} compute NICs do not spread evenly over {size} accelerators",
                "give interfaces that carry no collectives role: storage or management; where all of them do, correct "
                f"num_per_node or num_accelerators_per_node, or accept that some of the {size} get more than others",
            )
        elif count > _MAX_NICS_PER_ACCELERATOR * size and not all(
            (nic.num_per_accelerator or 1) > 1 for _, nic in nics
        ):
            yield Violation(
                at(cluster, *place, nics[0][0], "num_per_node"),
                f"{count} compute NICs for {size} accelerators",
                f"at most {_MAX_NICS_PER_ACCELERATOR * size}, four per accelerator, or state num_per_accelerator",
            )
        else:
            yield from _shares(cluster, i, group, count)
    if not judged:
        raise NotApplicable("no group has compute NICs")


def _shared_by_socket(cluster: ClusterProfile, group: NodeGroup) -> bool:
    """Whether compute NICs of one kind are in a fabric without rails: the accelerators of a socket share its NICs."""
    kinds = compute_nics(group)
    shapes = {fabric.name: fabric.topology for fabric in cluster.fabrics}
    sockets = (group.host.num_sockets if group.host else None) or 1
    return (
        len(kinds) == 1
        and shapes.get(kinds[0][1].fabric or "") in _WITHOUT_RAILS
        and kinds[0][1].num_per_node % sockets == group.num_accelerators_per_node % sockets == 0
    )


def _bundles_ports(group: NodeGroup) -> bool:
    """Whether compute NICs of one kind are cables that bundle ports of the accelerators, such as 6 for 8 Gaudi 3."""
    scale_up = group.scale_up
    return scale_up is not None and scale_up.technology == "gaudi-roce" and len(compute_nics(group)) == 1


def _shares(cluster: ClusterProfile, i: int, group: NodeGroup, count: int) -> Iterator[Violation]:
    size = group.num_accelerators_per_node
    for j, nic in compute_nics(group):
        shares = {max(1, size // count), max(1, size // nic.num_per_node)}
        if nic.num_accelerators_served is not None and nic.num_accelerators_served not in shares:
            yield Violation(
                at(cluster, "node_groups", i, "nics", j, "num_accelerators_served"),
                f"{count} compute NICs for {size} accelerators serve {max(1, size // count)} each, "
                f"not {nic.num_accelerators_served}",
                f"write {max(1, size // count)}",
            )
        stated = nic.num_per_accelerator
        if stated is None:
            continue
        if nic.num_per_node > size * stated or (stated > 1 and nic.num_per_node < size * stated):
            fitting = max(1, nic.num_per_node // size)
            yield Violation(
                at(cluster, "node_groups", i, "nics", j, "num_per_node"),
                f"{nic.num_per_node} interfaces {nic.name!r} for {size} accelerators, but num_per_accelerator "
                f"is {stated}",
                f"write num_per_accelerator: {fitting}, or correct the number of interfaces",
            )


def _num_own(group: NodeGroup, nic: Nic) -> int:
    """Interfaces of this kind that one accelerator has: as stated, else those of the node over its accelerators."""
    return nic.num_per_accelerator or max(1, nic.num_per_node // group.num_accelerators_per_node)


@rule("TS-CLU-056")
def management_rate(cluster: ClusterProfile) -> Iterator[Violation]:
    """Interfaces for management are no faster than what an accelerator has for collectives."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        rates = [nic.rate_bytes_per_second * _num_own(group, nic) for _, nic in compute_nics(group)]
        for j, nic in enumerate(group.nics):
            if nic.role != "management" or not rates:
                continue
            judged = True
            own, fastest = nic.rate_bytes_per_second, max(rates)
            if own > fastest * (1 + _RATE_TOLERANCE):
                yield Violation(
                    at(cluster, "node_groups", i, "nics", j, "rate_bytes_per_second"),
                    f"{nic.name!r} manages the node at {units.bits_per_second(own)}, while an accelerator has "
                    f"{units.bits_per_second(fastest)} for collectives",
                    f"correct the rate, in bytes per second: {units.bits_per_second(own / 8)} is {units.base(own / 8)}",
                )
    if not judged:
        raise NotApplicable("no group has interfaces for management next to compute NICs")


@rule("TS-CLU-024")
def nic_rate(cluster: ClusterProfile) -> Iterator[Violation]:
    """The rate of a NIC is that of its generation, where that names the rate of a lane; of a virtual one no more."""
    judged = False
    for i, j, nic in all_nics(cluster):
        if _row(nic) is None or nic.technology not in _SIGNALLED:
            continue
        judged = True
        yield from _wrong_rate(cluster, i, j, nic)
    if not judged:
        raise NotApplicable("no InfiniBand or Slingshot NIC of a generation that the table of links has")


@rule("TS-CLU-065")
def nic_rate_built(cluster: ClusterProfile) -> Iterator[Violation]:
    """The rate of any other NIC is one that its generation, or an interface, is built for."""
    judged = False
    for i, j, nic in all_nics(cluster):
        host = cluster.node_groups[i].host
        listed = _row(nic) is not None
        virtual = nic.virtual or (nic.virtual is None and host is not None and host.virtualised and not listed)
        named = _named_rate(nic)
        if nic.technology in _NO_STANDARD or (listed and nic.technology in _SIGNALLED):
            continue
        if virtual and named is not None:
            judged = True
            yield from _wrong(cluster, i, j, _virtual_rate(nic, named * (nic.num_ports or 1)))
        if virtual:
            continue
        judged = True
        yield from _wrong(cluster, i, j, _rate(nic) or _slow(cluster.node_groups[i], nic))
    if not judged:
        raise NotApplicable("no other NIC of a kind that has standard rates")


@rule("TS-CLU-079")
def nic_generation(cluster: ClusterProfile) -> Iterator[Violation]:
    """The generation of a NIC is one of its own link layer."""
    judged = False
    for i, j, nic in all_nics(cluster):
        if nic.generation is None or nic.technology == "other":
            continue
        judged = True
        owner = _link_layer(nic)
        if owner is not None:
            yield Violation(
                at(cluster, "node_groups", i, "nics", j, "generation"),
                f"{nic.generation} is a generation of {owner}, but {nic.name!r} is {nic.technology}",
                f"write a generation of {nic.technology} or leave it out, or correct technology to {owner}",
                related=((at(cluster, "node_groups", i, "nics", j, "technology"), "the link layer"),),
            )
    if not judged:
        raise NotApplicable("no NIC states its generation")


def _link_layer(nic: Nic) -> str | None:
    """The other link layer that a generation belongs to; None where it is one of the NIC's own, or of none."""
    generation = (nic.generation or "").strip().casefold()
    if nic.technology != "infiniband":
        return "infiniband" if _OF_INFINIBAND.fullmatch(generation) else None
    if _OF_ETHERNET.fullmatch(generation):
        return "ethernet"
    owners = [technology for technology, name in links().nic_rate_bytes_per_second if name == generation]
    return None if not owners or nic.technology in owners else owners[0]


def _row(nic: Nic) -> float | None:
    """Rate of a NIC of this generation in the table of links."""
    return links().nic_rate_bytes_per_second.get((nic.technology, (nic.generation or "").casefold()))


def _named_rate(nic: Nic) -> float | None:
    """Rate of a NIC whose generation says that of its port, in bytes per second.

    An older interface that was renamed, such as `10gbe`, says it too.
    """
    found = _NAMED_RATE.fullmatch((nic.generation or "").strip().casefold())
    if found is None or _row(nic) is not None:
        return None
    return int(found["count"] or 1) * float(found["rate"]) * _BITS[found["unit"]] / 8


def _wrong_rate(cluster: ClusterProfile, i: int, j: int, nic: Nic) -> Iterator[Violation]:
    yield from _wrong(cluster, i, j, _rate(nic))


def _wrong(cluster: ClusterProfile, i: int, j: int, wrong: tuple[str, str, str] | None) -> Iterator[Violation]:
    if wrong is not None:
        key, message, told = wrong
        yield Violation(at(cluster, "node_groups", i, "nics", j, key), message, told)


def _virtual_rate(nic: Nic, most: float) -> tuple[str, str, str] | None:
    """The same of a virtual interface, of which the provider sets the rate."""
    if nic.rate_bytes_per_second <= most * (1 + _RATE_TOLERANCE):
        return None
    message = (
        f"a virtual interface of {nic.technology} {nic.generation} carries at most {units.bits_per_second(most)}, "
        f"not {units.bits_per_second(nic.rate_bytes_per_second)}"
    )
    return "rate_bytes_per_second", message, f"at most {units.base(most)}, in bytes per second"


def _rate(nic: Nic) -> tuple[str, str, str] | None:
    """Key, message and help of what is wrong with the rate of one interface."""
    own, table = nic.rate_bytes_per_second, links().nic_rate_bytes_per_second
    generation = (nic.generation or "").casefold()
    ports = {1, nic.num_ports or 1}
    row = _row(nic) or _named_rate(nic)
    if row is not None and nic.virtual:
        return _virtual_rate(nic, row * max(ports))
    if row is not None:
        if any(within(own, row * count, _RATE_TOLERANCE) for count in ports):
            return None
        message = (
            f"{nic.technology} {nic.generation} carries {units.bits_per_second(row)}, not {units.bits_per_second(own)}"
        )
        return "rate_bytes_per_second", message, f"write {units.base(row)}, in bytes per second{_slowed(nic, row)}"
    generations = [name for technology, name in table if technology == nic.technology]
    near = did_you_mean(generation, generations) if generation else None
    if near is not None:
        as_fast = [name for name in generations if _carries(own, table[nic.technology, name], ports)]
        best = did_you_mean(generation, as_fast) or next(iter(as_fast), near)
        rate = f"; it carries {units.bits_per_second(table[nic.technology, best])}"
        return "generation", f"{nic.technology} has no generation {nic.generation!r}", meant(generation, best) + rate
    if _is_in_bits(own):
        message = f"no NIC of a node carries {units.bits_per_second(own)}; the fastest are built for 800 Gb/s"
        told = f"{units.base(own)} is a rate in bits: {units.bits_per_second(own / 8)} is {units.base(own / 8)}"
        return "rate_bytes_per_second", message, f"{told} in bytes per second"
    standard = links().standard_rates_bytes_per_second
    if any(within(own / count, rate, _RATE_TOLERANCE) for count in ports for rate in standard):
        return None
    message = f"no interface is built for {units.bits_per_second(own)}"
    nearest = min(standard, key=lambda rate: min(abs(own - rate), abs(own / 8 - rate)))
    told = f"in bytes per second, {units.bits_per_second(nearest)} is {units.base(nearest)}"
    limited = "" if nic.virtual else "; where a provider limits the rate, write virtual: true"
    return "rate_bytes_per_second", message, told + limited


def _slow(group: NodeGroup, nic: Nic) -> tuple[str, str, str] | None:
    """The same of a rate that interfaces have, and that is too slow for what this one is."""
    own = nic.rate_bytes_per_second
    if nic.generation is not None:
        return None
    told = f"in bytes per second, {units.bits_per_second(own * 10)} is {units.base(own * 10)}; else name the generation"
    rates = [
        rate for (technology, _), rate in links().nic_rate_bytes_per_second.items() if technology == nic.technology
    ]
    if nic.technology in _SLOWEST_LISTED and own < min(rates) * (1 - _RATE_TOLERANCE):
        slowest = units.bits_per_second(min(rates))
        message = f"{nic.technology} carries {slowest} or more, not {units.bits_per_second(own)}"
        return "rate_bytes_per_second", message, told
    joined = domain_rate(group) or 0.0
    old = any(within(own, rate, _RATE_TOLERANCE) for rate in _OF_OLDER_NODES)
    if nic.technology == "ethernet" and nic.role == "compute" and old and joined >= _JOINED_BYTES_PER_SECOND:
        message = (
            f"{units.bits_per_second(own)} for collectives between accelerators with "
            f"{units.bits_per_second(joined)} in their domain"
        )
        return "rate_bytes_per_second", message, told
    return None


def _carries(own: float, rate: float, ports: set[int]) -> bool:
    return any(within(own, rate * count, _RATE_TOLERANCE) for count in ports)


def _is_in_bits(rate: float) -> bool:
    """Whether a rate is beyond every NIC, and as bits per second that of one."""
    standard = links().standard_rates_bytes_per_second
    is_beyond = rate > _FASTEST_BYTES_PER_SECOND * (1 + _RATE_TOLERANCE)
    return is_beyond and any(within(rate / 8, one, _RATE_TOLERANCE) for one in standard)


def _slowed(nic: Nic, row: float) -> str:
    """What to write where the network lets an interface run no faster than an earlier generation."""
    for (technology, name), rate in links().nic_rate_bytes_per_second.items():
        if technology == nic.technology and rate < row and within(nic.rate_bytes_per_second, rate, _RATE_TOLERANCE):
            return f"; where the network lets it run no faster, write the generation of that rate: {name}"
    return ""


@rule("TS-CLU-025")
def nic_slot(cluster: ClusterProfile) -> Iterator[Violation]:
    """The slot of a NIC is as fast as the NIC."""
    judged = False
    for i, j, nic in all_nics(cluster):
        link = nic.host_link
        slot = (link.bandwidth_bytes_per_second or host_link_rate(link)) if link is not None else None
        if link is None or slot is None:
            continue
        judged = True
        if slot < nic.rate_bytes_per_second:
            pcie = link.technology == "pcie" and link.generation is not None and link.num_lanes is not None
            links_ = f"{link.num_links} x " if link.num_links > 1 else ""
            name = f"{links_}PCIe {link.generation} x{link.num_lanes}" if pcie else "the slot"
            yield Violation(
                at(cluster, "node_groups", i, "nics", j, "host_link"),
                f"{name} carries {units.bytes_per_second(slot)}, less than the NIC's "
                f"{units.bytes_per_second(nic.rate_bytes_per_second)}",
                "400 Gb/s needs PCIe 5 x16, 800 Gb/s needs PCIe 6 x16",
            )
    if not judged:
        raise NotApplicable("no NIC with a slot of known rate")


@rule("TS-CLU-026")
def nic_devices(cluster: ClusterProfile) -> Iterator[Violation]:
    """Device names are as many as interfaces, and each names one interface of the node."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        seen: dict[str, str] = {}
        for j, nic in enumerate(group.nics):
            if not nic.devices:
                continue
            judged = True
            place = ("node_groups", i, "nics", j)
            if len(nic.devices) != nic.num_per_node:
                message = f"{len(nic.devices)} devices are named, but num_per_node is {nic.num_per_node}"
                yield Violation(at(cluster, *place, "devices"), message, f"name {nic.num_per_node}")
            before = set[str]()
            for k, device in enumerate(nic.devices):
                owner = seen.setdefault(device, f"{nic.name!r}")
                if owner != f"{nic.name!r}" or device in before:
                    yield Violation(
                        at(cluster, *place, "devices", k),
                        f"{device} also appears under {owner}",
                        f"one device is one interface; {nic.role} interfaces appear under {nic.name!r} only",
                    )
                before.add(device)
    if not judged:
        raise NotApplicable("no NIC names its devices")
