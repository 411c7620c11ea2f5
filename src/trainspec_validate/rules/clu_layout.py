"""Checks the explicit nodes, switches and links of a cluster profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import ExplicitDevice, ExplicitNode, Layout
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.model import units
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import hint
from trainspec_validate.performance.derived.cluster import used_domain
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule


def _layout(cluster: ClusterProfile) -> Layout:
    return require(cluster.layout, "the document has no layout")


def _members(cluster: ClusterProfile) -> Iterator[tuple[int, NodeGroup, list[tuple[int, ExplicitNode]]]]:
    """Groups that the layout lists, with the positions of their nodes."""
    by_group: dict[str, list[tuple[int, ExplicitNode]]] = {}
    for k, node in enumerate(_layout(cluster).nodes):
        by_group.setdefault(node.group, []).append((k, node))
    for i, group in enumerate(cluster.node_groups):
        if group.name in by_group:
            yield i, group, by_group[group.name]


@rule("TS-CLU-049")
def layout_counts(cluster: ClusterProfile) -> Iterator[Violation]:
    """A listed group has all its nodes, and a listed node all its devices."""
    members = require(list(_members(cluster)), "the layout lists no node of a group")
    for i, group, nodes in members:
        if len(nodes) != group.num_nodes:
            yield Violation(
                at(cluster, "layout", "nodes", nodes[0][0], "group"),
                f"the layout lists {len(nodes)} nodes of {group.name!r}, which has {group.num_nodes}",
                "list all nodes of a group or none",
                related=((at(cluster, "node_groups", i, "num_nodes"), "the group's nodes"),),
            )
        counts = {sum(nic.num_per_node for nic in group.nics if nic.role == "compute")}
        counts.add(sum(nic.num_per_node for nic in group.nics))
        for k, node in nodes:
            for key, wanted in (("accelerators", {group.num_accelerators_per_node}), ("nics", counts)):
                listed = len(getattr(node, key))
                if listed and listed not in wanted:
                    numbers = " or ".join(str(number) for number in sorted(wanted))
                    message = f"{node.name} lists {listed} {key}, but nodes of {group.name!r} have {numbers}"
                    yield Violation(at(cluster, "layout", "nodes", k, key), message, f"list {numbers}")
            yield from _numa_nodes(cluster, group, k, node)


def _numa_nodes(cluster: ClusterProfile, group: NodeGroup, k: int, node: ExplicitNode) -> Iterator[Violation]:
    """Devices on more NUMA nodes than the host has; their numbers need not be consecutive."""
    used = {device.numa_node for device in (*node.accelerators, *node.nics)} - {None}
    known = group.host.num_numa_nodes if group.host else None
    if known is not None and len(used) > known:
        yield Violation(
            at(cluster, "layout", "nodes", k, "accelerators" if node.accelerators else "nics"),
            f"the devices of {node.name} are on {len(used)} NUMA nodes, but nodes of {group.name!r} have {known}",
            "correct num_numa_nodes of the host, or numa_node of the devices",
        )


@rule("TS-CLU-050")
def layout_references(cluster: ClusterProfile) -> Iterator[Violation]:
    """Names in the layout are unique, and those that refer to something exist."""
    layout = _layout(cluster)
    yield from _twice(cluster, layout)
    switches = dict.fromkeys(switch.name for switch in layout.switches)
    ends = dict.fromkeys([*(node.name for node in layout.nodes), *switches])
    groups = dict.fromkeys(group.name for group in cluster.node_groups)
    tiers = dict.fromkeys(tier.name for fabric in cluster.fabrics for tier in fabric.tiers)
    for pointer, name, known in (
        *((("nodes", k, "group"), node.group, groups) for k, node in enumerate(layout.nodes)),
        *((("switches", k, "tier"), switch.tier, tiers) for k, switch in enumerate(layout.switches)),
        *((("links", k, "source"), link.source, ends) for k, link in enumerate(layout.links)),
        *((("links", k, "target"), link.target, ends) for k, link in enumerate(layout.links)),
        *(
            ((*place, "leaf"), device.leaf, switches)
            for place, device in _devices(layout.nodes, "accelerators", "nics")
        ),
    ):
        if name is not None and name not in known:
            told = hint(name, known) or "declare it, or correct the name"
            yield Violation(at(cluster, "layout", *pointer), f"nothing is named {name!r}", told)
    for k, link in enumerate(layout.links):
        if link.source == link.target:
            message = f"{link.target!r} is linked to itself"
            yield Violation(at(cluster, "layout", "links", k, "target"), message, "name the other end")


def _devices(nodes: Iterable[ExplicitNode], *keys: str) -> Iterator[tuple[Pointer, ExplicitDevice]]:
    for k, node in enumerate(nodes):
        for key in keys:
            for d, device in enumerate(getattr(node, key)):
                yield ("nodes", k, key, d), device


def _twice(cluster: ClusterProfile, layout: Layout) -> Iterator[Violation]:
    named: list[tuple[str, Pointer, str]] = []
    named.extend(("end", ("nodes", k, "name"), node.name) for k, node in enumerate(layout.nodes))
    named.extend(("end", ("switches", k, "name"), switch.name) for k, switch in enumerate(layout.switches))
    for place, device in _devices(layout.nodes, "accelerators", "nics"):
        named.append((f"device {place[1]}", (*place, "name"), device.name))
        if device.identifier is not None:
            named.append(("identifier", (*place, "identifier"), device.identifier))
    first: dict[tuple[str, str], Pointer] = {}
    for space, pointer, name in named:
        earlier = first.setdefault((space, name), pointer)
        if earlier != pointer:
            related = ((at(cluster, "layout", *earlier), "first here"),)
            yield Violation(
                at(cluster, "layout", *pointer),
                f"{name!r} appears twice",
                "give it a name of its own",
                related=related,
            )


@rule("TS-CLU-051")
def layout_uniform(cluster: ClusterProfile) -> Iterator[Violation]:
    """Nodes of a group have the same NICs, and those that the group declares."""
    judged = False
    for _, group, nodes in _members(cluster):
        rates = {nic.rate_bytes_per_second for nic in group.nics}
        declared = {name for nic in group.nics for name in nic.devices}
        names = Counter(tuple(sorted(nic.name for nic in node.nics)) for _, node in nodes if node.nics)
        for k, node in nodes:
            if not node.nics:
                continue
            judged = True
            usual = names.most_common(1)[0][0]
            own = tuple(sorted(nic.name for nic in node.nics))
            strange = sorted(set(own) - (declared or set(usual))) if declared else sorted(set(own) ^ set(usual))
            if strange:
                message = f"{node.name} differs from the nodes of {group.name!r} in NIC {', '.join(strange)}"
                told = f"name {', '.join(sorted(declared) or usual)}, or put the node in a group of its own"
                yield Violation(at(cluster, "layout", "nodes", k, "nics"), message, told)
            for d, nic in enumerate(node.nics):
                rate = nic.rate_bytes_per_second
                if rate is not None and rates and rate not in rates:
                    wanted = " or ".join(units.bits_per_second(r) for r in sorted(rates))
                    message = (
                        f"{nic.name} of {node.name} carries {units.bits_per_second(rate)}, the group's NICs {wanted}"
                    )
                    place = at(cluster, "layout", "nodes", k, "nics", d, "rate_bytes_per_second")
                    yield Violation(place, message, "put the node in a group of its own, or repair the link")
    if not judged:
        raise NotApplicable("the layout lists no NIC of a group's nodes")


_ONE_BY_ONE = 2
"""Devices with findings of their own; more in one node have one cause and one finding."""
_LISTED = 12
_Slow = list[tuple[int, ExplicitDevice]]
"""Devices of one kind in one node, with their positions."""


@rule("TS-CLU-052")
def layout_slots(cluster: ClusterProfile) -> Iterator[Violation]:
    """Devices of one kind in a node have the same link, and no bridge above is slower."""
    judged = False
    for k, node in enumerate(_layout(cluster).nodes):
        for kind in ("accelerators", "nics"):
            devices = list(enumerate(getattr(node, kind)))
            for key in ("link_generation", "link_num_lanes"):
                held = Counter(getattr(device, key) for _, device in devices if getattr(device, key) is not None)
                judged = judged or bool(held)
                usual = max(held, key=lambda value: (held[value], value), default=0)
                wanted = {d: max(usual, _best_of_alike(device, devices, key, kind)) for d, device in devices}
                slow = [(d, device) for d, device in devices if _below(getattr(device, key), wanted[d])]
                most = max((wanted[d] for d, _ in slow), default=usual)
                yield from _uneven(cluster, ("layout", "nodes", k, kind), key, slow, most)
            slow = [pair for pair in devices if _below(pair[1].upstream_generation, pair[1].link_generation)]
            yield from _bridges(cluster, ("layout", "nodes", k, kind), slow)
    if not judged:
        raise NotApplicable("the layout states no link of a device")


def _best_of_alike(device: ExplicitDevice, devices: _Slow, key: str, kind: str) -> int:
    """The best link of the accelerators of the node, or of its NICs of the same stated rate; 0 where none is known."""
    rate = device.rate_bytes_per_second
    if kind == "nics" and rate is None:
        return 0
    alike = (other for _, other in devices if kind == "accelerators" or other.rate_bytes_per_second == rate)
    return max((getattr(other, key) or 0 for other in alike), default=0)


def _below(value: int | None, wanted: int | None) -> bool:
    return value is not None and wanted is not None and value < wanted


def _uneven(cluster: ClusterProfile, pointer: Pointer, key: str, slow: _Slow, usual: int) -> Iterator[Violation]:
    """Devices of one node whose link is below the link of their neighbours."""
    if len(slow) > _ONE_BY_ONE:
        names = _named_with([(device.name, getattr(device, key)) for _, device in slow])
        message = f"{len(slow)} {pointer[-1]} have {key} below {usual}, which their neighbours have: {names}"
        yield Violation(at(cluster, *pointer), message, "find what they share: a riser, a switch, a setting of slots")
        return
    for d, device in slow:
        message = f"{device.name} has {key} {getattr(device, key)}, its neighbours {usual}"
        place = at(cluster, *pointer, d, key)
        yield Violation(place, message, "reseat or replace the device, then measure again")


def _bridges(cluster: ClusterProfile, pointer: Pointer, slow: _Slow) -> Iterator[Violation]:
    """Devices of one node below a bridge of a lower generation."""
    if len(slow) > _ONE_BY_ONE:
        names = _named_with([(device.name, device.upstream_generation or 0) for _, device in slow])
        held = sorted({device.link_generation or 0 for _, device in slow})
        wanted = " or ".join(map(str, held))
        message = f"the bridges above {len(slow)} {pointer[-1]} of generation {wanted} are of a lower one: {names}"
        yield Violation(at(cluster, *pointer), message, "write the generations of the devices, or correct the bridges")
        return
    for d, device in slow:
        own = device.link_generation
        message = f"the bridge above {device.name} is generation {device.upstream_generation}, the device {own}"
        place = at(cluster, *pointer, d, "upstream_generation")
        yield Violation(place, message, f"write {own}, or correct the bridge's link")


def _named_with(values: list[tuple[str, int]]) -> str:
    told = ", ".join(f"{name} ({value})" for name, value in values[:_LISTED])
    return told if len(values) <= _LISTED else f"{told} and {len(values) - _LISTED} more"


@rule("TS-CLU-053")
def layout_domains(cluster: ClusterProfile) -> Iterator[Violation]:
    """Nodes name their scale-up domain where it spans nodes, and no domain holds too many."""
    judged = False
    for _, group, nodes in _members(cluster):
        size = group.num_accelerators_per_node
        if group.scale_up is None or (used_domain(group.scale_up) <= size and not _named(nodes)):
            continue
        judged = True
        limit = max(1, group.scale_up.domain_num_accelerators // size)
        held: Counter[str] = Counter()
        for k, node in nodes:
            if node.scale_up_domain is None:
                message = f"{node.name} names no scale-up domain, although domains span {limit} nodes"
                yield Violation(at(cluster, "layout", "nodes", k, "name"), message, "add scale_up_domain")
                continue
            held[node.scale_up_domain] += 1
            if held[node.scale_up_domain] == limit + 1:
                message = f"domain {node.scale_up_domain!r} holds more than {limit} nodes of {size} accelerators"
                place = at(cluster, "layout", "nodes", k, "scale_up_domain")
                yield Violation(place, message, f"a domain has {group.scale_up.domain_num_accelerators} accelerators")
    if not judged:
        raise NotApplicable("the layout lists no nodes whose scale-up domain spans nodes")


def _named(nodes: list[tuple[int, ExplicitNode]]) -> bool:
    return any(node.scale_up_domain is not None for _, node in nodes)
