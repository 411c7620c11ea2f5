"""Compares the hardware that files describe of a node with what its node group declares: products, links, NICs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile, UnknownValueError, is_given
from trainspec_validate.documents.types.hardware import Nic, NodeGroup
from trainspec_validate.documents.types.observation import (
    DescribedAccelerators,
    DescribedNics,
    DeviceObservation,
    NodeDescription,
    NodeObservation,
)
from trainspec_validate.model import units
from trainspec_validate.model.accelerator_names import is_same_product
from trainspec_validate.model.catalog import accelerators
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.derived.cluster import compute_nics
from trainspec_validate.rules import Violation, at

_MEMORY_TOLERANCE = 0.12
"""A driver shows up to 9 % less than the size on the data sheet in GiB: what ECC and the driver take."""
_RATE_TOLERANCE = 0.02
_LINK_TOLERANCE = 0.05
"""NVLink of a P100 has 20 GB/s on the data sheet, and 19.53 in `nvidia-smi nvlink --status`."""
_LAYERS = frozenset({"infiniband", "ethernet"})
_SHOWN = 8
_MACHINE = "the accelerator that is declared"


@dataclass(frozen=True, slots=True)
class Described:
    """Accelerators of a node as one source shows them, for one comparison of all sources."""

    place: Pointer
    words: str
    """Node and accelerators."""
    file: str
    model: str | None
    memory_bytes: float | None
    num_links: int | None
    partitioned: bool | None = None


def machine(cluster: ClusterProfile, i: int, group: NodeGroup) -> Iterator[Violation]:
    """Accelerators, links and NICs of a node that are not those of its group, whatever file states them."""
    files = [(("observed_nodes", i, "descriptions", j), file) for j, file in enumerate(_node(cluster, i).descriptions)]
    parts: list[Iterator[Violation]] = [
        _once(_product(cluster, one, group) for one in _all(cluster, i)),
        _once(_links(cluster, one, group) for one in _all(cluster, i)),
    ]
    for place, file in files:
        parts += [part(cluster, place, file, group) for part in (_number, _link_kind, _nics)]
    yield from each(parts)


def each(parts: Iterable[Iterator[Violation]]) -> Iterator[Violation]:
    """Violations of all parts of a rule.

    Raises:
        UnknownValueError: a part needs a value that the profile does not give; those of the others are yielded before.
    """
    open_: UnknownValueError | None = None
    for part in parts:
        try:
            yield from part
        except UnknownValueError as error:
            open_ = open_ or error
    if open_ is not None:
        raise open_


def _once(found: Iterable[tuple[object, Violation] | None]) -> Iterator[Violation]:
    """Violations that several files of a node show, once."""
    seen: set[object] = set()
    for one in found:
        if one is not None and one[0] not in seen:
            seen.add(one[0])
            yield one[1]


def _node(cluster: ClusterProfile, i: int) -> NodeObservation:
    return cluster.observed_nodes[i]


def has_condition(node: NodeObservation) -> bool:
    """Whether a file describes links of a node, or whether its accelerators are divided."""
    return any(
        one.host_link_generation
        or one.host_link_num_lanes
        or one.link_bytes_per_second
        or any(kind.partitioned is not None for kind in one.accelerators)
        for one in node.descriptions
    )


def condition(cluster: ClusterProfile, i: int, group: NodeGroup) -> Iterator[Violation]:
    """Links below what is declared, and accelerators that are divided, as files describe them."""
    yield from each([_divided(cluster, i, group), _host_links(cluster, i, group), _slow_links(cluster, i, group)])


def _divided(cluster: ClusterProfile, i: int, group: NodeGroup) -> Iterator[Violation]:
    for one in _all(cluster, i):
        if one.partitioned and group.accelerator.num_ranks_per_accelerator == 1:
            message = f"{one.words}: divided into instances or partitions{one.file}"
            yield Violation(at(cluster, *one.place, "partitioned"), message, "a device as a whole")


def _host_links(cluster: ClusterProfile, i: int, group: NodeGroup) -> Iterator[Violation]:
    for j, file in enumerate(_node(cluster, i).descriptions):
        words, place = f"{_node(cluster, i).name} ({file.file})", ("observed_nodes", i, "descriptions", j)
        lanes, generation = file.host_link_num_lanes, file.host_link_generation
        link = group.host_link if lanes or generation else None
        if link is not None and lanes and link.num_lanes and lanes < link.num_lanes:
            message = f"{words}: {lanes} of {link.num_lanes} lanes of the host link of an accelerator"
            remedy = "reseat the board, or replace its riser"
            yield Violation(at(cluster, *place, "host_link_num_lanes"), message, remedy)
        if link is not None and generation and link.generation and generation < link.generation:
            message = f"{words}: generation {generation} of the host link of an accelerator"
            remedy, wanted = "reseat the board, and compare settings of the firmware", link.generation
            yield Violation(at(cluster, *place, "host_link_generation"), f"{message}, declared is {wanted}", remedy)


def _slow_links(cluster: ClusterProfile, i: int, group: NodeGroup) -> Iterator[Violation]:
    node = _node(cluster, i)
    found: list[tuple[Pointer, str, float | None]] = [
        (("devices", j, "least_link_bytes_per_second"), f"{node.name}/{one.name}", one.least_link_bytes_per_second)
        for j, one in enumerate(node.devices)
    ]
    found += [
        (("descriptions", j, "link_bytes_per_second"), f"{node.name} ({one.file})", one.link_bytes_per_second)
        for j, one in enumerate(node.descriptions)
    ]
    for place, words, rate in found:
        wanted = group.scale_up.link_bandwidth_bytes_per_second if rate and group.scale_up is not None else None
        if rate and wanted and rate < wanted * (1 - _LINK_TOLERANCE):
            own, declared = units.bytes_per_second(rate), units.bytes_per_second(wanted)
            message = f"{words}: a scale-up link runs at {own}, declared are {declared}"
            remedy = "reset the device; replace it where the link stays slow"
            yield Violation(at(cluster, "observed_nodes", i, *place), message, remedy)


def _all(cluster: ClusterProfile, i: int) -> Iterator[Described]:
    """The accelerators of a node by every source; devices of one product in one entry."""
    node = cluster.observed_nodes[i]
    devices: dict[tuple[object, ...], list[tuple[int, DeviceObservation]]] = {}
    for j, device in enumerate(node.devices):
        devices.setdefault((device.model, device.memory_bytes), []).append((j, device))
    for members in devices.values():
        j, first = members[0]
        several = f" and {len(members) - 1} more" if len(members) > 1 else ""
        place: Pointer = ("observed_nodes", i, "devices", j)
        words = f"{node.name}: {first.name}{several}"
        yield Described(place, words, "", first.model, first.memory_bytes, None)
    for j, file in enumerate(node.descriptions):
        for k, kind in enumerate(file.accelerators):
            place = ("observed_nodes", i, "descriptions", j, "accelerators", k)
            yield Described(
                place,
                f"{node.name}: {_who(kind)}",
                f" ({file.file})",
                kind.model,
                kind.memory_bytes,
                kind.num_links,
                partitioned=kind.partitioned,
            )


def _who(kind: DescribedAccelerators) -> str:
    """The accelerators of one kind in words: the first by its name, or their number."""
    if kind.names:
        return kind.names[0] + (f" and {kind.num - 1} more" if kind.num > 1 else "")
    return f"each of {kind.num} accelerators" if kind.num > 1 else "the accelerator"


def _product(cluster: ClusterProfile, one: Described, group: NodeGroup) -> tuple[object, Violation] | None:
    declared = group.accelerator.model
    is_other = one.model is not None and is_same_product(declared, one.model) is False
    wanted = _memory(group, needed=not is_other) if one.memory_bytes is not None else None
    is_less = one.memory_bytes is not None and wanted is not None and not _fits(one.memory_bytes, wanted, group)
    if not is_other and not is_less:
        return None
    has, usual = "", ""
    if one.memory_bytes and wanted:
        has, usual = f" with {units.bytes_(one.memory_bytes)}", f" with {units.bytes_(wanted)}"
    message = f"{one.words} is {one.model or 'an accelerator'}{has}, declared is {declared}{usual}{one.file}"
    place = at(cluster, *one.place, "model" if is_other else "memory_bytes")
    return (one.model, None if is_other else one.memory_bytes), Violation(place, message, _MACHINE)


def _memory(group: NodeGroup, *, needed: bool) -> float | None:
    """Memory of an accelerator as declared, or else of the catalog.

    Raises:
        UnknownValueError: it is needed, and the profile lists it as unknown.
    """
    entry, own = accelerators().get(group.accelerator.model), group.accelerator.memory_bytes
    if is_given(own):
        return own
    if entry is not None:
        return entry.memory_bytes
    return own if needed else None


def _fits(memory_bytes: float, wanted: float, group: NodeGroup) -> bool:
    """Whether a device, or one of several in an accelerator, has the memory; host and device may share theirs."""
    accelerator, entry = group.accelerator, accelerators().get(group.accelerator.model)
    if is_given(accelerator.unified_memory) and accelerator.unified_memory:
        return True
    parts = {1, accelerator.num_ranks_per_accelerator, entry.num_dies if entry is not None else 1}
    return any(abs(memory_bytes / (wanted / num) - 1) <= _MEMORY_TOLERANCE for num in parts)


def _links(cluster: ClusterProfile, one: Described, group: NodeGroup) -> tuple[object, Violation] | None:
    if one.num_links is None:
        return None
    declared = group.scale_up
    if declared is None or declared.domain_num_accelerators == 1:
        return None
    if one.num_links == 0 and declared.technology in {"nvlink", "xgmi"} and not declared.num_links:
        message = f"{one.words}: no scale-up link, declared are those of {declared.technology}{one.file}"
    elif declared.num_links and one.num_links != declared.num_links:
        message = f"{one.words}: {one.num_links} scale-up links, declared are {declared.num_links}{one.file}"
    else:
        return None
    place = at(cluster, *one.place, "num_links")
    return one.num_links, Violation(place, message, "reset the device; replace it where links are down")


def _number(cluster: ClusterProfile, place: Pointer, file: NodeDescription, group: NodeGroup) -> Iterator[Violation]:
    """More accelerators than declared in a file that may show a part of them; of other files the node has their sum."""
    num = sum(kind.num for kind in file.accelerators)
    if file.partial and num > group.num_accelerators_per_node:
        name = cluster.observed_nodes[int(place[1])].name
        message = f"{name}: {num} of {group.num_accelerators_per_node} accelerators ({file.file})"
        yield Violation(at(cluster, *place, "accelerators"), message, "correct num_accelerators_per_node")


def _link_kind(cluster: ClusterProfile, place: Pointer, file: NodeDescription, group: NodeGroup) -> Iterator[Violation]:
    if file.link_technology is None:
        return
    declared = group.scale_up.technology if group.scale_up is not None else "other"
    if "other" not in {declared, file.link_technology} != {declared}:
        name = cluster.observed_nodes[int(place[1])].name
        message = f"{name}: scale-up links are {file.link_technology}, declared is {declared} ({file.file})"
        yield Violation(at(cluster, *place, "link_technology"), message, _MACHINE)


def _nics(cluster: ClusterProfile, place: Pointer, file: NodeDescription, group: NodeGroup) -> Iterator[Violation]:
    """Fewer NICs than declared: of their names, of their link layer, or of their rate."""
    if file.partial or not file.nics:
        return
    nics = [nic for _, nic in compute_nics(group)]
    name = cluster.observed_nodes[int(place[1])].name
    names = {one for kind in file.nics for one in kind.names}
    missing = [device for nic in nics for device in nic.devices if device not in names]
    has_names = all(len(kind.names) == kind.num for kind in file.nics)
    if not nics:
        return
    if missing and has_names and any(device in names for nic in nics for device in nic.devices):
        told = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
        message = f"{name}: no {told} ({file.file})"
        yield Violation(at(cluster, *place, "nics"), message, f"it has {', '.join(sorted(names)[:_SHOWN])}")
        return
    for technology in sorted({nic.technology for nic in nics}):
        found = _fewer([nic for nic in nics if nic.technology == technology], file.nics, technology)
        if found is not None:
            message = f"{name}: {found} ({file.file})"
            yield Violation(at(cluster, *place, "nics"), message, "find the one that is missing by its slot")


def _fewer(declared: Sequence[Nic], found: Sequence[DescribedNics], technology: str) -> str | None:
    """How many interfaces of a technology are missing, in words; None where none is, or the list leaves it open."""
    if any(kind.bonded for kind in found):
        return None
    if technology not in _LAYERS and all(kind.technology != technology for kind in found):
        return None
    able = [kind for kind in found if kind.technology in {None, technology}]
    num, wanted = sum(kind.num for kind in able), sum(nic.num_per_node for nic in declared)
    total = sum(kind.num for kind in found)
    if num < wanted:
        own = f"{num} of {total} network interfaces are {technology}" if num < total else f"{num} network interfaces"
        return f"{own}, declared are {wanted} compute NICs"
    rates = [
        (nic.rate_bytes_per_second / (nic.num_ports or 1), nic.num_per_node) for nic in declared if not nic.virtual
    ]
    for rate, _ in sorted(rates):
        fast = sum(kind.num for kind in able if _is_fast(kind, rate))
        wanted = sum(number for own, number in rates if own >= rate)
        if fast < wanted:
            return (
                f"{fast} of {num} network interfaces run at {units.bytes_per_second(rate)}, "
                f"declared are {wanted} compute NICs"
            )
    return None


def _is_fast(kind: DescribedNics, rate: float) -> bool:
    return kind.rate_bytes_per_second is None or kind.rate_bytes_per_second >= rate * (1 - _RATE_TOLERANCE)
