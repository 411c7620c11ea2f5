"""Rules on the tiers of a fabric: ports, cables, groups and capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isclose

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import Fabric, FabricTier
from trainspec_validate.model.units import bits_per_second, number
from trainspec_validate.performance.costs.fabric import Layer, interfaces_by_layer, most_interfaces, oversubscription
from trainspec_validate.performance.derived.job import attached, attached_compute, fabric_num_nodes, num_planes_of
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._machine import with_nics

TREES = frozenset({"fat-tree", "rail-optimised"})
"""Topologies whose tiers are stacked."""
TOLERANCE = 0.01
GROUP_FACTOR = 100
"""A machine may fill a part of a group, but not less than a hundredth."""
_SPLITS = frozenset({2.0, 4.0})
"""Ports into which one port of a switch is split where tiers have ports of different rates."""
RATIO_TOLERANCE = 0.02
"""Published ratios carry two or three digits."""


Row = tuple[int, Fabric, int, FabricTier]
"""A tier: the index of its fabric, the fabric, the index of the tier, and the tier."""


def _tiers(cluster: ClusterProfile, *, trees: bool = False) -> list[Row]:
    found = [
        (index, fabric, level, tier)
        for index, fabric in enumerate(cluster.fabrics)
        if fabric.topology in TREES or not trees
        for level, tier in enumerate(fabric.tiers)
    ]
    if not found:
        raise NotApplicable("no fabric declares tiers")
    return found


def _trees(cluster: ClusterProfile, *, every: bool = False) -> list[tuple[int, Fabric]]:
    found = [(index, f) for index, f in enumerate(cluster.fabrics) if f.tiers and (every or f.topology in TREES)]
    if not found:
        raise NotApplicable("no fabric declares a tree of tiers")
    return found


def _down(tier: FabricTier) -> float | None:
    """Downward capacity of one switch."""
    if tier.num_down_ports is None or tier.port_bandwidth_bytes_per_second is None:
        return None
    others = sum(kind.num_ports * kind.bandwidth_bytes_per_second for kind in tier.other_down_ports)
    return tier.num_down_ports * tier.port_bandwidth_bytes_per_second + others


def _num_down(tier: FabricTier) -> int:
    """Ports of one switch towards the nodes, of all rates."""
    return (tier.num_down_ports or 0) + sum(kind.num_ports for kind in tier.other_down_ports)


def _mean_down_rate(tier: FabricTier) -> float | None:
    """Mean rate of the ports of one switch towards the nodes."""
    down = _down(tier)
    return None if down is None else down / _num_down(tier)


def _up_rate(tier: FabricTier) -> float | None:
    return tier.up_port_bandwidth_bytes_per_second or tier.port_bandwidth_bytes_per_second


def _up(tier: FabricTier) -> float | None:
    """Upward capacity of one switch."""
    rate = _up_rate(tier)
    return None if tier.num_up_ports is None or rate is None else tier.num_up_ports * rate


@rule("TS-TOP-009")
def tier_ports(cluster: ClusterProfile) -> Iterator[Violation]:
    """A switch has as many ports as its tier uses, and the top has none upwards."""
    for index, fabric, level, tier in _tiers(cluster):
        place = ("fabrics", index, "tiers", level)
        down, up = _num_down(tier), tier.num_up_ports or 0
        if tier.num_ports is not None and down + up > tier.num_ports:
            yield Violation(
                at(cluster, *place, "num_ports"),
                f"{down} ports down and {up} up are {down + up}; a {tier.name} switch has {tier.num_ports}",
                f"at most {tier.num_ports} can be cabled",
            )
        if fabric.topology in TREES and level == len(fabric.tiers) - 1 and up:
            yield Violation(
                at(cluster, *place, "num_up_ports"),
                f"{tier.name} is the top tier of {fabric.name}, but has {up} ports towards a next one",
                "add the tier above, or set num_up_ports: 0",
            )


@rule("TS-TOP-010")
def tier_links(cluster: ClusterProfile) -> Iterator[Violation]:
    """Bandwidth that goes up from one tier arrives at the next; without rates, cables are counted."""
    found = [
        (index, level, *pair)
        for index, fabric in _trees(cluster)
        for level, pair in enumerate(pairwise(fabric.tiers), 1)
    ]
    if not found:
        raise NotApplicable("no tree has two tiers")
    unjudged: Unresolved | None = None
    for index, level, lower, upper in found:
        place = at(cluster, "fabrics", index, "tiers", level, "num_switches")
        if absent := _absent(lower, upper):
            reason = f"does not state {absent}, so the links between {lower.name} and {upper.name} are not counted"
            remedy = f"add {absent}"
            unjudged = unjudged or Unresolved(at(cluster, "fabrics", index, "tiers", level), reason, remedy)
            continue
        links = _links(lower, upper)
        if isclose(links.rising, links.arriving, rel_tol=TOLERANCE):
            continue
        if links.may_be_split:
            sides = f"{links.words(links.rising)} of {lower.name} and {links.words(links.arriving)} of {upper.name}"
            remedy = "add port_bandwidth_bytes_per_second to both tiers"
            unjudged = unjudged or Unresolved(place, f"does not state the rates of {sides}", remedy)
            continue
        yield Violation(
            place,
            f"{number(lower.num_switches or 0)} {lower.name} switches send {links.words(links.rising)} up, "
            f"but {number(upper.num_switches or 0)} {upper.name} ones take {links.words(links.arriving)}",
            f"{upper.name} needs {links.rising / links.each_down:g} switches with {upper.num_down_ports} ports down"
            if links.rising
            else f"give {lower.name} ports up, or leave {upper.name} out",
            related=((at(cluster, "fabrics", index, "tiers", level - 1), links.words(links.rising)),),
        )
    if unjudged is not None:
        raise unjudged


@dataclass(frozen=True, slots=True)
class _Links:
    """What goes up from one tier and arrives at the next: bytes per second, or cables where a rate is not stated."""

    rising: float
    arriving: float
    each_down: float
    """Of one switch of the upper tier."""
    are_cables: bool

    @property
    def may_be_split(self) -> bool:
        """Whether ports of another rate, which nobody stated, would explain the difference."""
        least = min(self.rising, self.arriving)
        return self.are_cables and least > 0 and max(self.rising, self.arriving) / least in _SPLITS

    def words(self, value: float) -> str:
        """A value of one side, with its unit."""
        return f"{number(value)} cables" if self.are_cables else bits_per_second(value)


def _links(lower: FabricTier, upper: FabricTier) -> _Links:
    up, down = _up(lower), _down(upper)
    are_cables = not (up and down)
    if are_cables:
        up, down = float(lower.num_up_ports or 0), float(_num_down(upper))
    each_up, each_down = up or 0.0, down or 0.0
    return _Links(each_up * (lower.num_switches or 0), each_down * (upper.num_switches or 0), each_down, are_cables)


def _absent(lower: FabricTier, upper: FabricTier) -> str:
    """All counts that two tiers lack for a comparison of their cables, by key and tier; empty where none is absent."""
    if lower.num_up_ports == 0:
        return "" if upper.num_down_ports else f"num_down_ports of {upper.name}"
    return _lacking(
        (lower, {"num_switches": lower.num_switches, "num_up_ports": lower.num_up_ports}),
        (upper, {"num_switches": upper.num_switches, "num_down_ports": upper.num_down_ports}),
    )


def _lacking(*wanted: tuple[FabricTier, Mapping[str, float | None]]) -> str:
    """The keys of tiers that have no value, in words; empty where all have one."""
    keys = ((tier.name, [key for key, value in values.items() if not value]) for tier, values in wanted)
    return ", ".join(f"{' and '.join(absent)} of {name}" for name, absent in keys if absent)


@rule("TS-TOP-011")
def leaf_ports(cluster: ClusterProfile) -> Iterator[Violation]:
    """The first tier has room for every interface, at its rate."""
    judged = False
    for index, fabric in _trees(cluster, every=True):
        leaf, nics = fabric.tiers[0], attached(cluster, fabric)
        place = ("fabrics", index, "tiers", 0)
        others = [kind.bandwidth_bytes_per_second for kind in leaf.other_down_ports]
        rate = max((own for own in (leaf.port_bandwidth_bytes_per_second, *others) if own), default=None)
        judged = judged or bool(rate and nics)
        for item in nics:
            port = item.nic.rate_bytes_per_second / max(num_planes_of(fabric, item.nic), item.nic.num_ports or 1)
            if rate and port > rate * (1 + TOLERANCE):
                yield Violation(
                    at(cluster, *place, "port_bandwidth_bytes_per_second"),
                    f"a {leaf.name} port has {bits_per_second(rate)}, but a port of NIC {item.nic.name} has "
                    f"{bits_per_second(port)}",
                    f"state the faster port, or the {port / rate:g} planes or ports that share a NIC's rate",
                    related=((at(cluster, *item.pointer), bits_per_second(port)),),
                )
        down = _down(leaf)
        if down is None or leaf.num_switches is None or not nics or fabric.topology not in TREES:
            continue
        wanted = sum(item.num_interfaces * item.nic.rate_bytes_per_second for item in nics)
        if down * leaf.num_switches < wanted * (1 - TOLERANCE):
            count = sum(item.num_interfaces for item in nics)
            yield Violation(
                at(cluster, *place, "num_switches"),
                f"{number(leaf.num_switches)} {leaf.name} switches take "
                f"{bits_per_second(down * leaf.num_switches)} from nodes, but {number(count)} NICs send "
                f"{bits_per_second(wanted)}",
                f"{ceil(wanted / down)} switches with {leaf.num_down_ports} ports down hold them",
            )
    if not judged:
        plugged = [(index, fabric) for index, fabric in _trees(cluster, every=True) if attached(cluster, fabric)]
        index, fabric = require(plugged, "no interface names a fabric with tiers")[0]
        absent = f"port_bandwidth_bytes_per_second of {fabric.tiers[0].name}"
        raise Unresolved(at(cluster, "fabrics", index, "tiers", 0), f"does not state {absent}", f"add {absent}")


@rule("TS-TOP-012")
def leaf_count(cluster: ClusterProfile) -> Iterator[Violation]:
    """The first tier has a switch for each group, and no more switches than its groups can be cabled to."""
    judged = False
    for index, fabric in _trees(cluster, every=True):
        leaf = fabric.tiers[0]
        items = attached_compute(cluster, fabric)
        if not leaf.num_switches or not items:
            continue
        judged = True
        cables: Counter[int] = Counter()
        for item in items:
            ports = max(num_planes_of(fabric, item.nic), item.nic.num_ports or 1)
            cables[item.group_index] += item.nic.num_per_node * ports
        per_node = max(cables.values())
        size = leaf.group_num_nodes or 1
        groups = ceil(fabric_num_nodes(cluster, fabric) / size)
        most = groups * per_node
        if leaf.group_num_nodes and leaf.num_switches < groups:
            yield Violation(
                at(cluster, "fabrics", index, "tiers", 0, "num_switches"),
                f"{number(groups)} groups of {number(size)} nodes meet at {number(leaf.num_switches)} {leaf.name} "
                "switches, and nodes of several groups share none",
                f"at least {number(groups)} switches, or the number of nodes that one holds in group_num_nodes",
            )
        if leaf.num_switches > most:
            yield Violation(
                at(cluster, "fabrics", index, "tiers", 0, "num_switches"),
                f"{number(leaf.num_switches)} {leaf.name} switches for {number(groups)} groups of "
                f"{number(size)} nodes: a node has cables to {per_node} at most",
                f"at most {number(most)} can be in use",
            )
    if not judged:
        raise NotApplicable("no first tier of attached interfaces states its switches")


@rule("TS-TOP-013")
def tier_oversubscription(cluster: ClusterProfile) -> Iterator[Violation]:
    """The stated oversubscription is that of the ports."""
    judged = False
    for index, _, level, tier in _tiers(cluster):
        rate, up_rate = _mean_down_rate(tier), _up_rate(tier)
        if tier.oversubscription is None or tier.num_up_ports is None or not tier.num_down_ports:
            continue
        judged = True
        place = at(cluster, "fabrics", index, "tiers", level, "oversubscription")
        if tier.num_up_ports == 0:
            message = f"{tier.name} has no ports up, so {tier.oversubscription:g} divides by nothing"
            yield Violation(place, message, "leave the ratio out at the top")
            continue
        same_rate = tier.up_port_bandwidth_bytes_per_second is None and not tier.other_down_ports
        down, up = (1.0, 1.0) if same_rate or not rate or not up_rate else (rate, up_rate)
        actual = oversubscription(_num_down(tier), down, tier.num_up_ports, up)
        if not isclose(actual, tier.oversubscription, rel_tol=RATIO_TOLERANCE):
            yield Violation(
                place,
                f"{tier.oversubscription:g} is stated, but {_num_down(tier)} ports down over "
                f"{tier.num_up_ports} up give {actual:.4g}",
                f"set it to {actual:.4g}, or correct the ports",
            )
    if not judged:
        raise NotApplicable("no tier states oversubscription and ports")


@rule("TS-TOP-028")
def oversubscription_inverse(cluster: ClusterProfile) -> Iterator[Violation]:
    """A ratio that no ports show is not that of upward to downward capacity."""
    judged = False
    for index, _, level, tier in _tiers(cluster):
        stated = tier.oversubscription
        if stated is None or (tier.num_up_ports is not None and tier.num_down_ports):
            continue
        judged = True
        if stated < 1 - RATIO_TOLERANCE:
            yield Violation(
                at(cluster, "fabrics", index, "tiers", level, "oversubscription"),
                f"{stated:g} means that {tier.name} has {1 / stated:.4g} times as much capacity up as down",
                f"write {1 / stated:.4g} for {1 / stated:.4g}:1, or num_down_ports and num_up_ports, which show it",
            )
    if not judged:
        raise NotApplicable("no tier states oversubscription without ports")


@rule("TS-TOP-014")
def tier_groups(cluster: ClusterProfile) -> Iterator[Violation]:
    """Groups of a tier hold whole groups of the tier below, and no more nodes than a leaf has ports."""
    found = [row for row in _tiers(cluster, trees=True) if row[3].group_num_nodes]
    if not found:
        raise NotApplicable("no tier states the nodes of a group")
    below: dict[int, int] = {}
    judged = False
    totals = [fabric_num_nodes(cluster, fabric) for fabric in cluster.fabrics]
    room = [_most_nodes(cluster, fabric) for fabric in cluster.fabrics]
    for index, _, level, tier in found:
        size, inner = tier.group_num_nodes or 0, below.get(index, 1)
        below[index] = size
        total = totals[index]
        # A group of all nodes need hold no whole ones; without NICs, nothing says how many all are.
        judged = judged or (inner > 1 and bool(total or size < inner or size % inner == 0))
        place = at(cluster, "fabrics", index, "tiers", level, "group_num_nodes")
        if size < inner or (size % inner and size < total):
            yield Violation(
                place,
                f"{size} nodes below {tier.name} are no multiple of the {inner} nodes below the tier before",
                f"use a multiple of {inner}, or all {number(total)} nodes",
            )
        most = room[index][level] if level < len(room[index]) else None
        judged = judged or most is not None
        if most is not None and size > most:
            yield Violation(
                place,
                f"{number(size)} nodes are to meet below {tier.name}, whose ports hold {number(most)} NICs",
                f"at most {number(most)} nodes can meet there",
            )
    parted = _parted(cluster, found, totals)
    yield from parted
    if not judged and not parted:
        index, fabric, level, _ = require(
            [row for row in found if attached_compute(cluster, row[1])], "no compute NIC names the fabric"
        )[0]
        absent = _absent_ports(fabric.tiers[: level + 1])
        if not absent:
            raise NotApplicable("no group has a group below it")
        raise Unresolved(at(cluster, "fabrics", index, "tiers", level), f"does not state {absent}", f"add {absent}")


def _parted(cluster: ClusterProfile, found: Sequence[Row], totals: Sequence[int]) -> list[Violation]:
    """Last tiers without ports up whose groups do not hold all nodes of the fabric.

    Raises:
        Unresolved: there are none, but a profile does not say whether such a tier is the last.
    """
    parted, unsaid = [], None
    for index, fabric, level, tier in found:
        size, total = tier.group_num_nodes or 0, totals[index]
        if level < len(fabric.tiers) - 1 or size >= total:
            continue
        place = at(cluster, "fabrics", index, "tiers", level, "group_num_nodes")
        groups = f"groups of {number(size)} nodes, of {number(total)}"
        if tier.num_up_ports == 0:
            message = f"{groups}, have no path to each other: {tier.name} is the last tier and has no ports up"
            parted.append(Violation(place, message, f"write {total}, or add the tier above"))
        elif tier.num_up_ports is None and tier.oversubscription is None:
            remedy = "add the tier above, or num_up_ports: 0 where there is none"
            unsaid = unsaid or Unresolved(place, f"does not say whether {groups}, meet above {tier.name}", remedy)
    if unsaid and not parted:
        raise unsaid
    return parted


@rule("TS-TOP-027")
def tier_group_share(cluster: ClusterProfile) -> Iterator[Violation]:
    """Groups of a tier are about as large as the fabric."""
    found = [row for row in _tiers(cluster, trees=True) if row[3].group_num_nodes]
    if not found:
        raise NotApplicable("no tier states the nodes of a group")
    with_nics(cluster, [(index, fabric) for index, fabric, _, _ in found])
    totals = [fabric_num_nodes(cluster, fabric) for fabric in cluster.fabrics]
    for index, _, level, tier in found:
        size, total = tier.group_num_nodes or 0, totals[index]
        if total and size > GROUP_FACTOR * total:
            place = at(cluster, "fabrics", index, "tiers", level, "group_num_nodes")
            message = f"{number(size)} nodes are to meet below {tier.name}, but the fabric has {number(total)}"
            yield Violation(place, message, f"write {total} or less, or what the tier holds when it is full")


def _most_nodes(cluster: ClusterProfile, fabric: Fabric) -> list[int]:
    """Nodes that one switch of each tier has below it at the most: one for each NIC port that it reaches.

    The list ends before the first tier that lacks its ports or their rates.
    """
    layers, items = _lower_layers(fabric.tiers), attached_compute(cluster, fabric)
    if not items:
        return []
    ports = (max(num_planes_of(fabric, item.nic), item.nic.num_ports or 1) for item in items)
    rates = (item.nic.rate_bytes_per_second / count for item, count in zip(items, ports, strict=True))
    return list(interfaces_by_layer(layers, min(rates) / (1 + TOLERANCE)))


@rule("TS-TOP-015")
def fabric_size(cluster: ClusterProfile) -> Iterator[Violation]:
    """The most NICs that a fabric claims to hold cover those attached and fit under its tiers."""
    found = [(i, f) for i, f in enumerate(cluster.fabrics) if f.max_num_nics is not None]
    if not found:
        raise NotApplicable("no fabric states how many NICs it can hold")
    unjudged: Unresolved | None = None
    for index, fabric in with_nics(cluster, found):
        place, claimed = at(cluster, "fabrics", index, "max_num_nics"), fabric.max_num_nics or 0
        items = attached_compute(cluster, fabric)
        present = sum(item.num_interfaces for item in items)
        if present > claimed:
            message = f"{fabric.name} can hold {number(claimed)} NICs, but {number(present)} are attached"
            yield Violation(place, message, f"state at least {present}")
        layers = _layers(fabric.tiers) if fabric.topology in TREES else None
        if fabric.topology in TREES and not layers and (absent := _absent_ports(fabric.tiers)):
            reason = f"does not state {absent}, so the NICs that the tiers hold are not counted"
            unjudged = unjudged or Unresolved(place, reason, f"add {absent}")
        if layers:
            reached = [num_planes_of(fabric, item.nic) for item in items]
            rate = min(item.nic.rate_bytes_per_second / count for item, count in zip(items, reached, strict=True))
            separate = fabric.num_rails or 1 if fabric.rails_joined is False else 1
            separate = max(separate, fabric.num_planes // max(reached))
            most = most_interfaces(layers, rate) * separate
            if claimed > most:
                yield Violation(
                    place,
                    f"{fabric.name} claims room for {number(claimed)} NICs, but {len(layers)} tiers of its "
                    f"switches hold {number(most)}",
                    f"state at most {most}, or the tier that is missing",
                )
    if unjudged is not None:
        raise unjudged


def _absent_ports(tiers: Sequence[FabricTier]) -> str:
    """The keys that tiers lack for a count of the interfaces below them; empty where none is absent."""
    return _lacking(
        *(
            (
                tier,
                {
                    "num_down_ports": tier.num_down_ports,
                    "port_bandwidth_bytes_per_second": tier.port_bandwidth_bytes_per_second,
                },
            )
            for tier in tiers
        )
    )


def _layers(tiers: Sequence[FabricTier]) -> list[Layer] | None:
    layers = _lower_layers(tiers)
    return layers if len(layers) == len(tiers) else None


def _lower_layers(tiers: Sequence[FabricTier]) -> list[Layer]:
    """The layers of a tree up to the first tier that lacks its ports or their rates."""
    layers = list[Layer]()
    for tier in tiers:
        down, up = tier.port_bandwidth_bytes_per_second, _up_rate(tier)
        if not tier.num_down_ports or not down or not up or tier.other_down_ports:
            break
        layers.append(Layer(tier.num_down_ports, down, up))
    return layers


@rule("TS-TOP-016")
def uplinks_found(cluster: ClusterProfile) -> Iterator[Violation]:
    """A survey finds the uplinks that its tier has on every switch."""
    found = require([row for row in _tiers(cluster) if row[3].uplinks_found], "no tier was surveyed")
    for index, _, level, tier in found:
        place = at(cluster, "fabrics", index, "tiers", level, "uplinks_found")
        counts = Counter(tier.uplinks_found)
        commonest = max(counts, key=lambda links: (counts[links], links))
        wanted = tier.num_up_ports or commonest
        short = [links for links in tier.uplinks_found if links < wanted]
        if short:
            yield Violation(
                place,
                f"{len(short)} of {len(tier.uplinks_found)} {tier.name} switches have fewer than {wanted} "
                f"uplinks; the worst has {min(short)}",
                f"find the {sum(wanted - links for links in short)} links that are down or were never cabled",
            )
        if tier.num_switches and tier.num_switches != len(tier.uplinks_found):
            message = f"{len(tier.uplinks_found)} of {tier.num_switches} {tier.name} switches were surveyed"
            yield Violation(place, message, "list every switch of the tier")
