"""Walks the tree of an NCCL or RCCL topology file and turns its elements into devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from trainspec_validate.interop.readers import _pci
from trainspec_validate.interop.readers._accelerators import Match, by_device
from trainspec_validate.interop.readers._draft import Draft, as_name, plain_int
from trainspec_validate.interop.readers._node import Device, Node, check_size
from trainspec_validate.interop.readers._query import unread
from trainspec_validate.model.catalog import links
from trainspec_validate.system.xml import Element

_SLIP_MEGABITS = 4_000_000
_SLOW_MEGABITS = 10_000
_BROADCOM = "1000"
_FLATTENED = frozenset({"c010", "c012", "c030"})


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator with the links that the file lists for it."""

    device: Device
    place: _pci.Place
    busid: str | None
    identity: tuple[str | None, str | None]
    """PCI vendor and device."""
    match: Match | None
    gpu: Element | None
    """Element with rank and links; None in a file that lists PCI devices alone."""
    top: Element | None
    """Bridge below the processor that it hangs under."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface."""

    device: Device
    place: _pci.Place
    top: Element | None
    card: int
    """Line of its PCI device, which the ports of one card share."""


@dataclass(slots=True)
class Survey:
    """Everything found in one file."""

    accelerators: list[Accelerator] = field(default_factory=list)
    interfaces: list[Interface] = field(default_factory=list)
    num_unclassed: int = 0
    """PCI devices without a class, which may be anything."""
    num_switches: int = 0
    numa_nodes: set[int] = field(default_factory=set)
    coherent: bool = False
    """True when an accelerator has a coherent link to the host, or the host is not an x86 one."""

    def node(self) -> Node:
        """The devices with the path class of every pair."""
        paths = {}
        for a, accelerator in enumerate(self.accelerators):
            for n, interface in enumerate(self.interfaces):
                found = _pci.path_class(accelerator.place, interface.place, switch_levels=0)
                if found is not None:
                    paths[a, n] = found
        accelerators = tuple(item.device for item in self.accelerators)
        return Node(accelerators, tuple(item.device for item in self.interfaces), paths)


@dataclass(frozen=True, slots=True)
class _Above:
    """What stands above an element on the way down."""

    host: str
    numa_node: int | None
    bridges: tuple[str, ...] = ()
    top: Element | None = None
    parent: Element | None = None
    generation: int | None = None

    @property
    def place(self) -> _pci.Place:
        return _pci.Place(self.bridges, self.host, self.numa_node)


def survey(root: Element, draft: Draft) -> Survey:
    """Devices below every processor of a file; oddities go to the draft.

    Raises:
        ForeignFormatError: there are more devices than a node can have.
    """
    found = Survey()
    for position, cpu in enumerate(item for item in root.children if item.tag == "cpu"):
        numa = plain_int(cpu.get("numaid"), 0, 1024)
        if numa is not None:
            found.numa_nodes.add(numa)
        found.coherent = found.coherent or (cpu.get("arch") or "x86_64") != "x86_64"
        for child in cpu.children:
            _visit(child, _Above(f"cpu-{position}", numa), found, draft)
    check_size(len(found.accelerators), len(found.interfaces))
    _unique(found, draft)
    return found


def _visit(item: Element, above: _Above, found: Survey, draft: Draft) -> None:
    if item.tag == "nic":
        for net in (child for child in item.children if child.tag == "net"):
            found.interfaces.append(Interface(_net(net, None, above, draft), above.place, above.top, net.line))
    elif item.tag == "pci":
        _visit_pci(item, above, found, draft)
    elif item.tag == "nvswitch":
        found.num_switches += 1


def _visit_pci(item: Element, above: _Above, found: Survey, draft: Draft) -> None:
    gpu = next((child for child in item.children if child.tag == "gpu"), None)
    nets = [net for child in item.children if child.tag == "nic" for net in child.children if net.tag == "net"]
    device_class, vendor = _pci.identifier(item.get("class")), _pci.identifier(item.get("vendor"))
    if gpu is not None or _pci.is_accelerator(device_class, vendor):
        found.accelerators.append(_accelerator(item, gpu, above, len(found.accelerators), draft))
        found.coherent = found.coherent or (gpu is not None and any(child.tag == "c2c" for child in gpu.children))
    elif nets:
        found.interfaces.extend(
            Interface(_net(net, item, above, draft), above.place, above.top, item.line) for net in nets
        )
    elif _pci.is_nic(device_class):
        found.interfaces.append(Interface(_nic(item, above, len(found.interfaces)), above.place, above.top, item.line))
    elif device_class is None:
        found.num_unclassed += 1
    if any(child.tag in {"pci", "nvswitch"} for child in item.children):
        below = _below(item, above)
        for child in item.children:
            if child.tag in {"pci", "nvswitch"}:
                _visit(child, below, found, draft)


def _below(item: Element, above: _Above) -> _Above:
    """One step down; the library takes a Broadcom switch behind its own twin for one switch."""
    own = (_pci.identifier(item.get("vendor")), _pci.identifier(item.get("device")))
    parent = above.parent
    twin = parent is not None and own[0] == _BROADCOM and own[1] in _FLATTENED
    if twin and parent is not None and own == tuple(_pci.identifier(parent.get(key)) for key in ("vendor", "device")):
        bridges = above.bridges
    else:
        bridges = (f"bridge-{item.line}-{item.get('busid')}", *above.bridges)
    slot = _pci.generation(item.get("link_speed"))
    return replace(above, bridges=bridges, top=above.top or item, parent=item, generation=slot)


def _accelerator(item: Element, gpu: Element | None, above: _Above, position: int, draft: Draft) -> Accelerator:
    number = plain_int(gpu.get("dev"), 0, 4096) if gpu is not None else None
    device = Device(
        name=f"accelerator-{position if number is None else number}",
        named=False,
        numa_node=above.numa_node,
        link_generation=_pci.generation(item.get("link_speed")),
        link_num_lanes=_pci.lanes(item.get("link_width")),
        upstream_generation=_lowest_above(above),
        line=item.line,
    )
    if item.get("link_width") == "0" or item.attributes.get("link_speed") == "":
        draft.remark("link_width 0 or an empty link_speed: the virtual machine hides the slots", item.line)
    _check_slot(item, device, draft)
    identity = (_pci.identifier(item.get("vendor")), _pci.identifier(item.get("device")))
    return Accelerator(device, above.place, item.get("busid"), identity, by_device(*identity), gpu, above.top)


def _check_slot(item: Element, device: Device, draft: Draft) -> None:
    speed, width = item.get("link_speed") or "Unknown", item.get("link_width")
    values = {
        "link_speed": (speed, device.link_generation or speed.startswith("Unknown")),
        "link_width": (width, device.link_num_lanes or width == "0"),
    }
    for value in unread(values):
        draft.unread(value, item.line, about=device.name)


def _lowest_above(above: _Above) -> int | None:
    known = [above.generation, _pci.generation(above.top.get("link_speed")) if above.top is not None else None]
    return min((value for value in known if value is not None), default=None)


def _nic(item: Element, above: _Above, position: int) -> Device:
    """An interface that the file lists as a PCI device alone."""
    device_class, vendor = _pci.identifier(item.get("class")), _pci.identifier(item.get("vendor"))
    return Device(
        name=as_name(f"pci-{item.get('busid') or position}", f"nic-{position}"),
        named=False,
        numa_node=above.numa_node,
        link_generation=_pci.generation(item.get("link_speed")),
        link_num_lanes=_pci.lanes(item.get("link_width")),
        upstream_generation=_lowest_above(above),
        technology=_pci.nic_technology(device_class, vendor, _pci.identifier(item.get("device"))),
        line=item.line,
    )


def _net(net: Element, item: Element | None, above: _Above, draft: Draft) -> Device:
    """An interface with its name and rate; `item` is its PCI device where the file has one."""
    name = net.get("name")
    label = as_name(name or f"net-{net.get('dev') or net.line}", f"net-{net.line}")
    direct = {"0": False, "1": True}.get(net.get("gdr") or "")
    base = _nic(item, above, 0) if item is not None else Device(label, numa_node=above.numa_node)
    rate = _rate(net, label, draft)
    bonded = name is not None and "bond" in name.lower()
    if net.get("coll") == "1":  # NVIDIA/nccl@5067397c:src/graph/topo.cc, collSupport
        told = "coll is 1: a plug-in offers collectives inside the network; a profile declares that of its fabric"
        draft.remark(told, net.line, about=label)
    return replace(
        base,
        name=label,
        named=name == label,
        rate_bytes_per_second=rate,
        gpu_direct=direct,
        bonded=bonded,
        line=net.line,
    )


def _rate(net: Element, name: str, draft: Draft) -> float | None:
    """Bytes per second from `speed` in Mb/s; a slip of units is said and never mended."""
    text = net.get("speed")
    megabits = plain_int(text, 1, 10**15)
    if megabits is None:
        if text is not None:
            draft.remark(f"speed {text[:32]!r} is no rate in Mb/s", net.line, about=name)
        return None
    if megabits >= _SLIP_MEGABITS:
        told = f"speed {megabits} would be {megabits / 1e6:g} Tb/s, as the unit is Mb/s"
        draft.remark(f"{told}; perhaps {megabits / 1000:.0f} was meant", net.line, about=name)
        return None
    rate = megabits * 1e6 / 8
    if megabits < _SLOW_MEGABITS:
        draft.remark(f"speed {megabits} is only {megabits / 1000:g} Gb/s", net.line, about=name)
    elif rate not in links().standard_rates_bytes_per_second:
        draft.remark(f"speed {megabits}: no interface is built for {megabits / 1000:g} Gb/s", net.line, about=name)
    return rate if 1.25e8 <= rate <= 4e11 else None


def _unique(found: Survey, draft: Draft) -> None:
    """Gives every device a name of its own."""
    for kind in ("accelerators", "interfaces"):
        seen: set[str] = set()
        items = getattr(found, kind)
        for position, item in enumerate(items):
            name = item.device.name
            if name in seen:
                draft.remark(f"two {kind} are called {name}", item.device.line)
                free = next(f"{name[:110]}-again-{k}" for k in _counting() if f"{name[:110]}-again-{k}" not in seen)
                items[position] = replace(item, device=replace(item.device, name=free, named=False))
            seen.add(items[position].device.name)


def _counting() -> Iterator[int]:
    number = 2
    while True:
        yield number
        number += 1
