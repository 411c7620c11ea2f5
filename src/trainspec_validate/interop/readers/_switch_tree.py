"""Turns a tree of switches with nodes below into the tiers of a fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._sheet import Sheet
from trainspec_validate.model.finding import Pointer

TIER_NAMES = ("leaf", "spine", "core")
_MAX_TIERS = 16
_MAX_BELOW = 5_000_000
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch as a scheduler's file lists it."""

    name: str
    children: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    line: int | None = None


def tier_name(level: int, num_tiers: int) -> str:
    """Name of a layer counted from 0 at the nodes.

    >>> [tier_name(level, 3) for level in range(3)], tier_name(3, 4)
    (['leaf', 'spine', 'core'], 'tier-4')
    """
    return TIER_NAMES[level] if num_tiers <= len(TIER_NAMES) else f"tier-{level + 1}"


def put_tree(sheet: Sheet, switches: Sequence[Switch], source: str) -> None:
    """Record nodes and tiers of a tree in the first fabric; irregular layers get a remark and no figure.

    Raises:
        ForeignFormatError: a switch is listed twice, contains itself, or is above too many layers.
    """
    by_name = _by_name(switches)
    levels = _levels(by_name)
    below = _nodes_below(by_name, levels)
    names = Counter(node for switch in switches for node in switch.nodes)
    put_nodes(sheet, names)
    twice = sorted(node for node, count in names.items() if count > 1)
    if twice:
        sheet.remark(f"{len(twice):,} nodes are on several switches, for example {_some(twice)}")
    _remark_orphans(sheet, by_name)
    num_tiers = max(levels.values(), default=-1) + 1
    for level in range(num_tiers):
        members = [name for name, own in levels.items() if own == level]
        _put_tier(sheet, level, tier_name(level, num_tiers), {name: len(below[name]) for name in members}, source)
    put_fabric_unknowns(sheet, source)


def put_nodes(sheet: Sheet, names: Collection[str]) -> None:
    """Record the number of nodes."""
    if names:
        sheet.put(("num_nodes",), len(names), "node names counted, each once")
    sheet.unknown(("node_groups",), "the file lists names of nodes, not what they are made of")
    sheet.unknown(("num_accelerators",), "the file does not say how many accelerators a node has")


def put_fabric_unknowns(sheet: Sheet, source: str) -> None:
    """Record what no scheduler's file can say of a fabric."""
    sheet.put(("fabrics", 0, "name"), "fabric", "a label; the file gives the network no name")
    sheet.unknown(("fabrics", 0, "transport"), f"{source} does not name the protocol; see the NIC settings")
    if "topology" not in sheet.facts["fabrics"][0]:
        reason = (
            f"{source} does not say whether the network is a fat tree, rail-optimised or other; see the cabling plan"
        )
        sheet.unknown(("fabrics", 0, "topology"), reason)


def put_domains(sheet: Sheet, domains: Mapping[str, Sequence[str]], what: str) -> None:
    """Record explicit nodes with the scale-up domain of each."""
    position = 0
    for domain, nodes in domains.items():
        for node in nodes:
            place: Pointer = ("layout", "nodes", position)
            sheet.put((*place, "name"), node)
            sheet.put((*place, "scale_up_domain"), domain)
            position += 1
    if position:
        sheet.put(("layout", "nodes", 0, "scale_up_domain"), next(iter(domains)), what)


def _by_name(switches: Sequence[Switch]) -> dict[str, Switch]:
    found: dict[str, Switch] = {}
    for switch in switches:
        if switch.name in found:
            raise ForeignFormatError(f"switch {switch.name!r} is listed twice", switch.line, "list each switch once")
        found[switch.name] = switch
    return found


def _levels(switches: Mapping[str, Switch]) -> dict[str, int]:
    """Layer of every switch: 0 where no switch is below, else one above the highest below."""
    levels: dict[str, int] = {}
    waiting = dict(switches)
    for level in range(_MAX_TIERS + 1):
        ready = [
            name
            for name, switch in waiting.items()
            if all(child in levels or child not in switches for child in switch.children)
        ]
        for name in ready:
            levels[name] = level
        for name in ready:
            del waiting[name]
        if not waiting:
            return levels
        if not ready:
            stuck = min(waiting.values(), key=lambda switch: switch.line or 0)
            raise ForeignFormatError(f"switch {stuck.name!r} is in a circle of switches", stuck.line)
    raise ForeignFormatError(f"more than {_MAX_TIERS} layers of switches", None, "fabrics have two to four layers")


def _nodes_below(switches: Mapping[str, Switch], levels: Mapping[str, int]) -> dict[str, frozenset[str]]:
    below: dict[str, frozenset[str]] = {}
    left = _MAX_BELOW
    for name in sorted(switches, key=lambda name: levels[name]):
        switch = switches[name]
        parts = [below[child] for child in switch.children if child in below]
        left -= len(switch.nodes) + sum(map(len, parts))
        if left < 0:
            message = f"switch {name!r} and those before have more than {_MAX_BELOW:,} nodes below, most several times"
            raise ForeignFormatError(message, switch.line, "list each switch below one parent")
        below[name] = frozenset(switch.nodes).union(*parts)
    return below


def _remark_orphans(sheet: Sheet, switches: Mapping[str, Switch]) -> None:
    named = Counter(child for switch in switches.values() for child in switch.children)
    absent = sorted(set(named) - set(switches))
    if absent:
        sheet.remark(f"{len(absent):,} switches are named below others but not listed, for example {_some(absent)}")
    shared = sorted(name for name, count in named.items() if count > 1)
    if shared:
        sheet.remark(f"{len(shared):,} switches have several parents, for example {_some(shared)}")
    roots = sorted(name for name in switches if name not in named)
    if len(roots) > 1:
        sheet.remark(f"{len(roots):,} switches have no parent, so parts of the machine do not meet: {_some(roots)}")
    empty = sorted(name for name, switch in switches.items() if not switch.children and not switch.nodes)
    if empty:
        sheet.remark(f"{len(empty):,} switches have nothing below, for example {_some(empty)}")


def _put_tier(sheet: Sheet, level: int, name: str, sizes: Mapping[str, int], source: str) -> None:
    place: Pointer = ("fabrics", 0, "tiers", level)
    sheet.put((*place, "name"), name, "a label by the position of the layer")
    sheet.put((*place, "num_switches"), len(sizes), "switches of the layer counted")
    for key in ("num_ports", "num_down_ports", "num_up_ports", "port_bandwidth_bytes_per_second"):
        sheet.unknown((*place, key), f"{source} has no ports; ask the switches")
    counts = Counter(sizes.values())
    if len(counts) == 1 and 0 not in counts:
        sheet.put((*place, "group_num_nodes"), next(iter(counts)), "nodes below each switch of the layer, all equal")
        return
    told = ", ".join(f"{number} with {size}" for size, number in counts.most_common(_SHOWN))
    sheet.remark(f"switches of layer {name} differ in the nodes below them: {told}")
    sheet.unknown((*place, "group_num_nodes"), f"the switches differ in the nodes below them: {told}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
