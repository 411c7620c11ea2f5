"""Turns surveyed switch ports into fabric tiers, and reports missing uplinks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.readers._sheet import Sheet
from trainspec_validate.interop.readers._switch_tree import tier_name
from trainspec_validate.model.finding import Pointer

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class SurveyedSwitch:
    """One switch with its cabled ports counted by where they lead."""

    name: str
    level: int
    """Layer, 0 at the nodes."""
    num_down: int
    num_up: int
    num_ports: int | None = None
    """Ports of the housing, cabled or not."""
    rate_bytes_per_second: float | None = None
    """Commonest rate of its ports in one direction."""


def levels(switches: Iterable[str], leaves: Iterable[str], neighbours: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Layer of every switch: 0 for those that carry nodes, else the fewest hops to one of these.

    Switches that no leaf reaches are absent.

    >>> levels(["a", "b"], ["a"], {"a": ["b"], "b": ["a"]})
    {'a': 0, 'b': 1}
    """
    known = set(switches)
    found = dict.fromkeys(leaves, 0)
    edge = list(found)
    while edge:
        following = []
        for name in edge:
            for other in neighbours.get(name, ()):
                if other in known and other not in found:
                    found[other] = found[name] + 1
                    following.append(other)
        edge = following
    return found


def put_survey(sheet: Sheet, switches: Sequence[SurveyedSwitch]) -> None:
    """Record the tiers of the first fabric and remark on switches with fewer uplinks than most of their tier."""
    tiers: dict[int, list[SurveyedSwitch]] = defaultdict(list)
    for switch in switches:
        tiers[switch.level].append(switch)
    for position, level in enumerate(sorted(tiers)):
        top = position == len(tiers) - 1
        _put_tier(sheet, position, tier_name(position, len(tiers)), tiers[level], top=top)


def _put_tier(sheet: Sheet, position: int, name: str, members: Sequence[SurveyedSwitch], *, top: bool) -> None:
    place: Pointer = ("fabrics", 0, "tiers", position)
    sheet.put((*place, "name"), name, "a label by the position of the layer")
    sheet.put((*place, "num_switches"), len(members), "switches of the layer counted")
    _put_equal(sheet, (*place, "num_ports"), [m.num_ports for m in members], f"ports of {name} switches")
    _put_equal(sheet, (*place, "num_down_ports"), [m.num_down for m in members], f"downward cables of {name} switches")
    rates = [m.rate_bytes_per_second for m in members]
    _put_equal(sheet, (*place, "port_bandwidth_bytes_per_second"), rates, f"port rates of {name} switches")
    if top:
        sheet.put((*place, "num_up_ports"), 0, "no layer is above")
        return
    ups = [member.num_up for member in members]
    wanted = _commonest(ups)
    sheet.put((*place, "num_up_ports"), wanted, "commonest number of upward cables in the layer")
    sheet.put((*place, "uplinks_found"), ups, "upward cables counted on each switch, in the order of the source")
    short = sorted((m.num_up, m.name) for m in members if m.num_up < wanted)
    if short:
        told = ", ".join(f"{switch} has {count}" for count, switch in short[:_SHOWN])
        more = f", and {len(short) - _SHOWN} more" if len(short) > _SHOWN else ""
        sheet.remark(
            f"{len(short)} of {len(members)} {name} switches have fewer than {wanted} uplinks, "
            f"{sum(wanted - count for count, _ in short)} links in all: {told}{more}"
        )


def _commonest(counts: Sequence[int]) -> int:
    seen = Counter(counts)
    return max(seen, key=lambda count: (seen[count], count))


def _put_equal(sheet: Sheet, pointer: Pointer, values: Sequence[float | None], what: str) -> None:
    """Record a figure that all switches share; tell the spread of one that they do not."""
    seen = Counter(value for value in values if value is not None)
    if len(seen) == 1 and len(values) == seen.total():
        sheet.put(pointer, next(iter(seen)), "equal on all switches of the layer")
    elif seen:
        sheet.unknown(pointer, f"{what} differ: {spread(seen)}")
    else:
        sheet.unknown(pointer, f"the source does not state {what}")


def spread(counts: Mapping[float, int]) -> str:
    """Values with the number of switches that have each, commonest first.

    >>> spread({16: 7, 18: 19})
    '18 on 19, 16 on 7'
    """
    ordered = sorted(counts, key=lambda value: -counts[value])
    more = f" and {len(ordered) - _SHOWN} other values" if len(ordered) > _SHOWN else ""
    return ", ".join(f"{value:g} on {counts[value]}" for value in ordered[:_SHOWN]) + more
