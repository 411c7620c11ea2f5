"""Compares devices of one kind with each other: limits, links and modes in which one is behind the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.documents.types.observation import DeviceObservation, NodeObservation
from trainspec_validate.model import units
from trainspec_validate.rules import Violation, at

Placed = tuple[int, NodeObservation, NodeGroup | None]
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class _Compared:
    """A value of which all devices of one kind should have the same."""

    key: str
    words: str
    """With the value of the device and that of the others."""
    remedy: str
    shown: Callable[[float], str] = "{:.0f}".format
    is_declared: Callable[[NodeGroup], bool] = lambda _: False
    """Whether the profile has the value, so that each device is compared with it."""


def _megahertz(hertz: float) -> str:
    return f"{hertz / 1e6:.0f} MHz"


_COMPARED = (
    _Compared(
        "clock_limit_hertz",
        "clocks up to {own}, others up to {usual}",
        "reset the clocks that are set, such as by nvidia-smi -rgc",
        _megahertz,
    ),
    _Compared(
        "application_clock_hertz",
        "has an application clock of {own}, others of {usual}",
        "reset the clocks that are set, such as by nvidia-smi -rac",
        _megahertz,
    ),
    _Compared(
        "power_limit_watts",
        "has a power limit of {own}, others of {usual}",
        "set the limit that the others have, such as by nvidia-smi -pl",
        "{:.0f} W".format,
    ),
    _Compared(
        "host_link_num_lanes",
        "{own} lanes of the host link, others have {usual}",
        "reseat the board, or replace its riser",
        is_declared=lambda group: group.host_link is not None and group.host_link.num_lanes is not None,
    ),
    _Compared(
        "host_link_generation",
        "generation {own} of the host link, others have {usual}",
        "reseat the board, and compare settings of the firmware",
        is_declared=lambda group: group.host_link is not None and group.host_link.generation is not None,
    ),
    _Compared(
        "num_active_links",
        "{own} scale-up links are up, of others {usual}",
        "reset the device; replace it where they stay down",
        is_declared=lambda group: group.scale_up is not None and group.scale_up.num_links is not None,
    ),
    _Compared(
        "least_link_bytes_per_second",
        "a scale-up link runs at {own}, those of others at {usual}",
        "reset the device; replace it where the link stays slow",
        units.bytes_per_second,
        is_declared=lambda group: (
            group.scale_up is not None and group.scale_up.link_bandwidth_bytes_per_second is not None
        ),
    ),
    _Compared("ecc_enabled", "ECC is off, and on for others", "switch it on, such as by nvidia-smi -e 1"),
)


def behind_others(cluster: ClusterProfile, nodes: Sequence[Placed]) -> Iterator[Violation]:
    """Devices with less than most devices of their model in their group have."""
    for compared in _COMPARED:
        kinds: dict[tuple[str, str | None], list[tuple[float, int, int]]] = defaultdict(list)
        for i, node, group in nodes:
            if group is not None and compared.is_declared(group):
                continue
            for j, one in enumerate(node.devices):
                value = getattr(one, compared.key)
                if value is not None:
                    kinds[group.name if group is not None else "", one.model].append((float(value), i, j))
        for found in kinds.values():
            counts = Counter(value for value, _, _ in found)
            usual = max(counts, key=lambda value: (counts[value], value))
            for value, i, j in found:
                if value < usual * (1 - _TOLERANCE):
                    node = cluster.observed_nodes[i]
                    own, others = compared.shown(value), compared.shown(usual)
                    words = compared.words.format(own=own, usual=others)
                    place = at(cluster, "observed_nodes", i, "devices", j, compared.key)
                    yield Violation(place, f"{node.name}/{node.devices[j].name}: {words}", compared.remedy)


def below_declared(cluster: ClusterProfile, found: tuple[int, int], group: NodeGroup | None) -> Iterator[Violation]:
    """A host link with fewer lanes, or of a lower generation, than the profile declares."""
    i, j = found
    node = cluster.observed_nodes[i]
    one: DeviceObservation = node.devices[j]
    link = group.host_link if group is not None else None
    place = ("observed_nodes", i, "devices", j)
    lanes, generation = one.host_link_num_lanes, one.host_link_generation
    if link is not None and link.num_lanes and lanes and lanes < link.num_lanes:
        message = f"{node.name}/{one.name}: {lanes} of {link.num_lanes} lanes of the host link"
        yield Violation(at(cluster, *place, "host_link_num_lanes"), message, "reseat the board, or replace its riser")
    if link is not None and link.generation and generation and generation < link.generation:
        message = f"{node.name}/{one.name}: generation {generation} of the host link, declared is {link.generation}"
        remedy = "reseat the board, and compare settings of the firmware"
        yield Violation(at(cluster, *place, "host_link_generation"), message, remedy)
