"""Reads PCI devices and RDMA interfaces of the machine from /sys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainspec_validate.interop.discover.machine import Machine
from trainspec_validate.interop.readers import _pci
from trainspec_validate.interop.readers._accelerators import by_device
from trainspec_validate.interop.readers._draft import Draft, as_name, plain_int, shown
from trainspec_validate.interop.readers._node import Device, Node, check_size, describe
from trainspec_validate.interop.readers._products import accelerator_model
from trainspec_validate.system.digits import is_digits

_ROOT = "/sys/devices"
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_RATE = re.compile(r"\s*([0-9]{1,5}(?:\.[0-9])?) Gb/sec(?: \(([0-9]{1,2})X ([A-Z]{3,4})[0-9]*\))?\s*", re.ASCII)
_MAX_DEPTH = 32
_MAX_PCI = 16_384
_GENERATIONS = {(4, "EDR"): "edr", (4, "FDR"): "fdr", (4, "HDR"): "hdr", (2, "HDR"): "hdr100", (4, "NDR"): "ndr"}
_GENERATIONS |= {(2, "NDR"): "ndr200", (4, "XDR"): "xdr"}


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI device that is no bridge."""

    address: str
    path: str
    place: _pci.Place
    device_class: str | None
    vendor: str | None
    device: str | None
    upstream_generation: int | None


@dataclass(frozen=True, slots=True)
class _Bus:
    """A host bridge or bridge with devices behind it."""

    path: str
    host: str
    bridges: tuple[str, ...] = ()
    generation: int | None = None


def pci_devices(machine: Machine) -> Iterator[PciDevice]:
    """Devices of the PCI tree, at most 16,384; virtual functions are left out."""
    num_seen = 0
    buses = [_Bus(f"{_ROOT}/{host}", host) for host in machine.list(_ROOT) if _HOST_BRIDGE.fullmatch(host)]
    while buses:
        bus = buses.pop()
        for name in machine.list(bus.path):
            if not _ADDRESS.fullmatch(name):
                continue
            num_seen += 1
            if num_seen > _MAX_PCI:
                return
            here = f"{bus.path}/{name}"
            if _pci.is_bridge(_pci.identifier(machine.read(f"{here}/class"))):
                slot = _pci.generation(_line(machine, f"{here}/current_link_speed"))
                if len(bus.bridges) < _MAX_DEPTH:
                    buses.append(_Bus(here, bus.host, (name, *bus.bridges), slot))
            elif "physfn" not in machine.list(here):
                yield _device(machine, here, name, bus)


def _device(machine: Machine, path: str, address: str, bus: _Bus) -> PciDevice:
    numa = plain_int(machine.read(f"{path}/numa_node"), 0, 1024)
    return PciDevice(
        address,
        path,
        _pci.Place(bus.bridges, bus.host, numa),
        _pci.identifier(machine.read(f"{path}/class")),
        _pci.identifier(machine.read(f"{path}/vendor")),
        _pci.identifier(machine.read(f"{path}/device")),
        bus.generation,
    )


def _line(machine: Machine, path: str) -> str | None:
    text = machine.read(path)
    return text.strip() if text is not None else None


def describe_devices(machine: Machine, draft: Draft) -> frozenset[str]:
    """Writes accelerators and network interfaces; returns the makers of the accelerators that were seen.

    Raises:
        ForeignFormatError: there are more devices than a node can have.
    """
    devices = sorted(pci_devices(machine), key=lambda item: item.address)
    gpus = [item for item in devices if _pci.is_accelerator(item.device_class, item.vendor)]
    nics = _interfaces(machine, [item for item in devices if _pci.is_nic(item.device_class)], draft)
    check_size(len(gpus), len(nics))
    num_dies = 1
    if gpus:
        identities = {(item.vendor, item.device) for item in gpus}
        matches = [by_device(*identity) for identity in ((item.vendor, item.device) for item in gpus)]
        num_dies = accelerator_model(draft, matches, "PCI vendor and device identifier", identities)
    else:
        draft.group_unknown("accelerator", reason="no accelerator was found on this machine")
        draft.group_unknown("num_accelerators_per_node", reason="no accelerator was found on this machine")
    accelerators = tuple(_accelerator(machine, item, k, draft) for k, item in enumerate(gpus))
    paths = {}
    for a, gpu in enumerate(gpus):
        for n, (place, _) in enumerate(nics):
            found = _pci.path_class(gpu.place, place, switch_levels=1)
            if found is not None:
                paths[a, n] = found
    node = Node(accelerators, tuple(nic for _, nic in nics), paths)
    describe(draft, node, num_dies=num_dies)
    return frozenset(item.vendor for item in gpus if item.vendor is not None)


def _with_slot(machine: Machine, item: PciDevice, device: Device, draft: Draft, *, saves_power: bool) -> Device:
    """A device with generation and lanes that it runs at; an idle accelerator lowers its generation to save power."""
    now = _pci.generation(_line(machine, f"{item.path}/current_link_speed"))
    most = _pci.generation(_line(machine, f"{item.path}/max_link_speed"))
    width = _pci.lanes(_line(machine, f"{item.path}/current_link_width"))
    full = _pci.lanes(_line(machine, f"{item.path}/max_link_width"))
    above = item.upstream_generation
    if width is not None and full is not None and width < full:
        draft.remark(f"the link has {width} of {full} lanes", about=device.name)
    if now is not None and most is not None and now < most:
        hint = "; idle devices save power, so look again under load" if saves_power else ""
        draft.remark(f"the link runs at PCIe generation {now} of {most}{hint}", about=device.name)
        now, above = (None, None) if saves_power else (now, above)
    return replace(
        device,
        numa_node=item.place.numa_node,
        link_generation=now,
        link_num_lanes=width,
        upstream_generation=above,
    )


def _accelerator(machine: Machine, item: PciDevice, position: int, draft: Draft) -> Device:
    device = Device(f"accelerator-{position}", named=False)
    return _with_slot(machine, item, device, draft, saves_power=True)


def _interfaces(machine: Machine, nics: list[PciDevice], draft: Draft) -> list[tuple[_pci.Place, Device]]:
    """RDMA interfaces; those without RDMA where there are none of the others."""
    found: list[tuple[_pci.Place, Device]] = []
    plain: list[PciDevice] = []
    for item in nics:
        names = machine.list(f"{item.path}/infiniband")
        found.extend((item.place, _rdma(machine, item, name, draft)) for name in names[:16])
        if not names:
            plain.append(item)
    if found and plain:
        listed = shown([item.address for item in plain])
        draft.remark(f"network interfaces without RDMA are left out: {listed}")
    known = {device.name for _, device in found}
    virtual = [name for name in machine.list("/sys/class/infiniband") if as_name(name, "rdma") not in known]
    if virtual:
        draft.remark(f"RDMA interfaces without a PCI device are left out: {shown(virtual)}")
    if not found:
        found = [(item.place, device) for item in plain if (device := _ethernet(machine, item, draft)) is not None]
    return found


def _rdma(machine: Machine, item: PciDevice, name: str, draft: Draft) -> Device:
    label = as_name(name, "rdma")
    base = f"{item.path}/infiniband/{name}/ports"
    ports = [port for port in machine.list(base) if is_digits(port)][:16]
    layers = {(_line(machine, f"{base}/{port}/link_layer") or "").lower() for port in ports}
    technology = _pci.nic_technology(item.device_class, item.vendor, item.device)
    if technology not in {"efa", "slingshot"}:
        technology = layers.pop() if len(layers) == 1 and layers <= {"infiniband", "ethernet"} else None
    device = Device(
        label, named=label == name, technology=technology, bonded="bond" in name, num_ports=len(ports) or None
    )
    device = _with_slot(machine, item, device, draft, saves_power=False)
    rates = [_rate(machine, f"{base}/{port}", label, draft) for port in ports]
    known = [rate for rate in rates if rate is not None]
    if known and len(known) == len(rates):
        generations = {generation for _, generation in known}
        total = sum(rate for rate, _ in known)
        device = replace(device, rate_bytes_per_second=total if 1.25e8 <= total <= 4e11 else None)
        if technology == "infiniband" and len(generations) == 1:
            device = replace(device, generation=generations.pop())
    return device


def _rate(machine: Machine, port: str, name: str, draft: Draft) -> tuple[float, str | None] | None:
    """Bytes per second and generation of an active port, from `400 Gb/sec (4X NDR)`."""
    state = _line(machine, f"{port}/state")
    if state is not None and not state.endswith("ACTIVE"):
        draft.remark(f"a port is {state[:32]}, so that its rate says nothing", about=name)
        return None
    found = _RATE.fullmatch(machine.read(f"{port}/rate") or "")
    if not found:
        return None
    generation = _GENERATIONS.get((int(found[2]), found[3])) if found[2] else None
    return float(found[1]) * 1e9 / 8, generation


def _ethernet(machine: Machine, item: PciDevice, draft: Draft) -> Device | None:
    names = machine.list(f"{item.path}/net")
    if not names:
        return None
    label = as_name(names[0], "net")
    megabits = plain_int(_line(machine, f"{item.path}/net/{names[0]}/speed"), 1, 3_200_000)
    rate = None if megabits is None else megabits * 1e6 / 8
    device = Device(
        label,
        named=label == names[0],
        technology=_pci.nic_technology(item.device_class, item.vendor, item.device),
        rate_bytes_per_second=rate if rate is not None and 1.25e8 <= rate <= 4e11 else None,
    )
    return _with_slot(machine, item, device, draft, saves_power=False)
