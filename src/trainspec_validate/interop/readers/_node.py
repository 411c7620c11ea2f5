"""Writes the devices of one node into a draft: counts, slots, interfaces and how near they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._draft import GROUP, MAX_DEVICES, NODE, Draft, shown
from trainspec_validate.interop.readers._products import count_accelerators

PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
"""Path classes, nearest first, as the schema orders them."""
MAX_NICS = 256
_SHARED_KEYS = ("numa_node", "link_generation", "link_num_lanes", "upstream_generation", "rate_bytes_per_second")


Nearest = Mapping[int, tuple[str, frozenset[int]]]
"""Per accelerator the best path class and the interfaces that offer it."""


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator or network interface of one node; None is not known."""

    name: str
    """Unique among its kind on the node, and a name of the schema."""
    named: bool = True
    """False where the name is a label of ours and not the operating system's."""
    numa_node: int | None = None
    link_generation: int | None = None
    link_num_lanes: int | None = None
    upstream_generation: int | None = None
    rate_bytes_per_second: float | None = None
    technology: str | None = None
    generation: str | None = None
    """Generation of its network, for example `ndr`."""
    bonded: bool = False
    gpu_direct: bool | None = None
    num_ports: int | None = None
    line: int | None = None

    @property
    def kind(self) -> tuple[str | None, str | None, float | None, bool]:
        """Facts that interfaces of one entry share."""
        return (self.technology, self.generation, self.rate_bytes_per_second, self.bonded)


@dataclass(frozen=True, slots=True)
class Node:
    """Devices of one node and the path class from each accelerator to each interface, by positions."""

    accelerators: tuple[Device, ...]
    nics: tuple[Device, ...]
    paths: Mapping[tuple[int, int], str] = field(default_factory=dict)
    path_source: str = "from the tree of bridges"
    """How path classes were found."""


def describe(draft: Draft, node: Node, *, num_dies: int = 1) -> None:
    """Writes counts, host link, interfaces and, for an irregular node, the explicit devices.

    Raises:
        ForeignFormatError: there are more devices than a node can have.
    """
    check_size(len(node.accelerators), len(node.nics))
    count_accelerators(draft, len(node.accelerators), num_dies)
    _slot(draft, ("host_link",), node.accelerators, "accelerators")
    nearest = _nearest(node)
    _interfaces(draft, node, nearest, num_dies)
    _irregular(draft, node, nearest, num_dies)


def check_size(num_accelerators: int, num_nics: int) -> None:
    """Refuses more devices than a node can have, before anything is done for every pair of them.

    Raises:
        ForeignFormatError: there are more.
    """
    if num_accelerators > MAX_DEVICES or num_nics > MAX_NICS:
        raise ForeignFormatError(
            f"lists {num_accelerators:,} accelerators and {num_nics:,} network interfaces for one node",
            help=f"at most {MAX_DEVICES:,} and {MAX_NICS} are read",
        )


def _slot(draft: Draft, path: tuple[str | int, ...], devices: Sequence[Device], what: str) -> None:
    """PCIe generation and lanes of devices; the lowest where they differ."""
    for key, shared in (("generation", "link_generation"), ("num_lanes", "link_num_lanes")):
        values = [getattr(device, shared) for device in devices]
        known = Counter(value for value in values if value is not None)
        if not devices:
            continue
        if not known or None in values:
            draft.group_unknown(*path, key, reason=f"the source does not state the link of every one of the {what}")
            continue
        draft.group(*path, "technology", value="pcie")
        lowest = min(known)
        how = None if len(known) == 1 else f"the lowest of {', '.join(map(str, sorted(known)))}"
        draft.group(*path, key, value=lowest, how=how)
        if how is not None:
            slow = [device for device in devices if getattr(device, shared) == lowest]
            draft.remark(f"{what} differ in {shared}: {_names(slow)} at {lowest}, others at {max(known)}", slow[0].line)
    for device in devices:
        above, own = device.upstream_generation, device.link_generation
        if above is not None and own is not None and above < own:
            told = f"the bridge above is PCIe generation {above}, the device {own}"
            draft.remark(told, device.line, about=device.name)


def _nearest(node: Node) -> Nearest:
    """The nearest interfaces of each accelerator; only where no unknown path could be nearer."""
    found: dict[int, tuple[str, frozenset[int]]] = {}
    for a in range(len(node.accelerators)):
        paths = {n: node.paths.get((a, n)) for n in range(len(node.nics))}
        known = {n: path for n, path in paths.items() if path is not None}
        best = min(known.values(), key=PATHS.index, default=None)
        # A path that is not known crosses the host at least, so that it cannot be nearer than one switch.
        if best is None or (len(known) < len(paths) and best not in {"PIX", "PXB"}):
            continue
        found[a] = (best, frozenset(n for n, path in known.items() if path == best))
    return found


def _interfaces(draft: Draft, node: Node, nearest: Nearest, num_dies: int) -> None:
    if not node.nics:
        draft.group_unknown("nics", reason="the source shows no network interface")
        return
    used = frozenset[int]().union(*(nics for best, nics in nearest.values() if best != "SYS"))
    if len(nearest) < len(node.accelerators):
        used = frozenset()
    entries: dict[tuple[Any, bool], list[int]] = {}
    for n, nic in enumerate(node.nics):
        entries.setdefault((nic.kind, not used or n in used), []).append(n)
    ordered = sorted(entries.items(), key=lambda item: (not item[0][1], item[0][0][3], item[1][0]))
    for position, ((_, near), members) in enumerate(ordered):
        _interface(draft, position, [node.nics[n] for n in members])
        if near:
            _distance(draft, position, node, nearest)
            _share(draft, position, nearest, frozenset(members), num_dies)
        else:
            away = _names([node.nics[n] for n in members])
            draft.remark(f"no accelerator is nearest to {away}: perhaps for storage or management")


def _interface(draft: Draft, position: int, nics: Sequence[Device]) -> None:
    path = ("nics", position)
    draft.group(*path, "name", value="nics" if position == 0 else f"nics-{position + 1}", how="a label for the entry")
    draft.group(*path, "num_per_node", value=len(nics))
    one = nics[0]
    if one.technology is not None:
        draft.group(*path, "technology", value=one.technology)
    else:
        draft.group_unknown(*path, "technology", reason="the source does not state the link layer; see ibstat")
    if one.rate_bytes_per_second is not None:
        draft.group(*path, "rate_bytes_per_second", value=one.rate_bytes_per_second)
    else:
        draft.group_unknown(*path, "rate_bytes_per_second", reason="the source states no usable rate; see ibstat")
    draft.group_unknown(
        *path, "role", reason="the source does not distinguish compute from storage; `compute` is the default"
    )
    draft.group_unknown(*path, "fabric", reason="the source ends at the node")
    if one.bonded:
        draft.group(*path, "bonded", value=True, how=f"the name {one.name}")
    if all(nic.named for nic in nics):
        draft.group(*path, "devices", value=[nic.name for nic in nics])
    for key in ("generation", "gpu_direct", "num_ports"):
        values = {getattr(nic, key) for nic in nics}
        if len(values) == 1 and None not in values:
            draft.group(*path, key, value=values.pop())
    if any(nic.link_generation or nic.link_num_lanes for nic in nics):
        _slot(draft, (*path, "host_link"), nics, "network interfaces")


def _distance(draft: Draft, position: int, node: Node, nearest: Nearest) -> None:
    path = ("nics", position)
    draft.group_unknown(
        *path, "accelerator_path", reason="the collective library assigns interfaces; `nearest_path` is the best"
    )
    if not node.accelerators or len(nearest) < len(node.accelerators):
        draft.group_unknown(*path, "nearest_path", reason="the source does not state every path to the interfaces")
        return
    worst = max((best for best, _ in nearest.values()), key=PATHS.index)
    how = f"the worst over the accelerators of each one's best, {node.path_source}"
    draft.group(*path, "nearest_path", value=worst, how=how)
    same = _same_numa(node, nearest)
    if same is not None:
        draft.group(*path, "same_numa_node", value=same, how="of each accelerator and the interfaces nearest to it")


def _same_numa(node: Node, nearest: Nearest) -> bool | None:
    same: set[bool] = set()
    for a, (best, nics) in nearest.items():
        own = node.accelerators[a].numa_node
        for n in nics:
            other = node.nics[n].numa_node
            if best == "SYS":
                same.add(False)
            elif own is not None and other is not None:
                same.add(own == other)
            else:
                same.add(True)  # every nearer class stays on one NUMA node
    return all(same) if same else None


def _share(draft: Draft, position: int, nearest: Nearest, members: frozenset[int], num_dies: int) -> None:
    """How accelerators and interfaces pair up, when they do so alike everywhere."""
    groups = Counter(nics for _, nics in nearest.values())
    together = frozenset[int]().union(*groups)
    if not groups or sum(map(len, groups)) != len(together) or members != together:
        return
    if any(count % num_dies for count in groups.values()):
        return
    sizes = {(count // num_dies, len(nics)) for nics, count in groups.items()}
    ratios = {(max(1, count // size), max(1, size // count)) for count, size in sizes}
    if len(ratios) != 1 or any(count % size and size % count for count, size in sizes):
        return
    served, owned = ratios.pop()
    how = "accelerators and interfaces that are nearest to each other"
    draft.group("nics", position, "num_accelerators_served", value=served, how=how)
    if owned > 1:
        draft.group("nics", position, "num_per_accelerator", value=owned, how=how)


def _irregular(draft: Draft, node: Node, nearest: Nearest, num_dies: int) -> None:
    """Explicit devices where a summary would hide that devices of the node differ."""
    classes: dict[str, list[Device]] = {}
    for a, (best, _) in nearest.items():
        classes.setdefault(best, []).append(node.accelerators[a])
    if len(classes) > 1:
        told = "; ".join(f"{best}: {_names(classes[best])}" for best in sorted(classes, key=PATHS.index))
        draft.remark(f"accelerators are not equally near to their best interface: {told}")
    uneven = len(set(_per_numa(node.accelerators).values())) > 1
    devices = (*node.accelerators, *node.nics)
    slow = any((device.upstream_generation or 10) < (device.link_generation or 0) for device in devices)
    if not (len(classes) > 1 or uneven or slow or _differ(node.accelerators) or _differ(node.nics)):
        return
    place = ("layout", "nodes", 0)
    draft.fact((*place, "name"), NODE, "a label for the one node")
    draft.fact((*place, "group"), GROUP)
    for key, devices in (("accelerators", node.accelerators), ("nics", node.nics)):
        if key == "accelerators" and num_dies > 1:
            draft.remark("dies are not listed one by one in the layout, which holds packages")
        elif devices:
            draft.fact((*place, key), [_explicit(device) for device in devices])


def _per_numa(devices: Sequence[Device]) -> Counter[int]:
    return Counter(device.numa_node for device in devices if device.numa_node is not None)


def _differ(devices: Sequence[Device]) -> bool:
    keys = ("link_generation", "link_num_lanes", "upstream_generation", "rate_bytes_per_second")
    return any(len({getattr(device, key) for device in devices}) > 1 for key in keys)


def _explicit(device: Device) -> dict[str, Any]:
    known = {key: getattr(device, key) for key in _SHARED_KEYS}
    return {"name": device.name, **{key: value for key, value in known.items() if value is not None}}


def _names(devices: Sequence[Device]) -> str:
    return shown([device.name for device in devices])
