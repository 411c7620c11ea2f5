"""Reads the XML of hwloc (lstopo): sockets, cores, PCI devices and distances of one node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _hwloc_distances as distances
from trainspec_validate.interop.readers import _pci
from trainspec_validate.interop.readers._accelerators import Match, by_device, by_product
from trainspec_validate.interop.readers._draft import Draft, as_name, plain_float, plain_int
from trainspec_validate.interop.readers._node import Device, Node, check_size, describe
from trainspec_validate.interop.readers._products import accelerator_model
from trainspec_validate.interop.readers._query import unread
from trainspec_validate.model.values import cut_to
from trainspec_validate.system import xml

NAME = "hwloc-xml"
_OPENFABRICS = {"2": frozenset({"3"}), "3": frozenset({"32"})}
_GPU_MEMORY = frozenset({"GPUMemory", "NVIDIAGPUMemory"})
_VIRTUAL = ("KVM", "QEMU", "VMware", "Virtual Machine", "Google Compute Engine", "Amazon EC2", "HVM domU")


@dataclass(frozen=True, slots=True)
class _Pci:
    """One PCI device with where it hangs."""

    item: xml.Element
    place: _pci.Place
    device_class: str | None
    vendor: str | None
    device: str | None


def looks_like(text: ForeignText) -> bool:
    """Whether the first element is the one that hwloc writes."""
    return xml.root_tag(text.text) == "topology"


def read(text: ForeignText) -> Fragment:
    """Facts of one node from an XML export of hwloc 2 or 3.

    Raises:
        ForeignFormatError: the text is not such an export, or an older one.
    """
    root = xml.parse(text.text)
    version = (root.get("version") or "1")[:16]
    if root.tag != "topology" or not any(child.tag == "object" for child in root.children):
        raise ForeignFormatError("is no export of hwloc", root.line, "`lstopo --of xml` writes one")
    if version.partition(".")[0] not in _OPENFABRICS:
        raise ForeignFormatError(f"is an export of hwloc {version}", root.line, "2 and 3 are read")
    draft = Draft()
    objects = [item for item in root.walk() if item.tag == "object"]
    _host(objects, draft)
    devices = list(_devices(root))
    gpus = [entry for entry in devices if _pci.is_accelerator(entry.device_class, entry.vendor)]
    nics = [entry for entry in devices if _pci.is_nic(entry.device_class)]
    check_size(len(gpus), len(nics))
    num_dies = 1
    if gpus:
        identities = {(entry.vendor, entry.device) for entry in gpus}
        how = "product name of the driver, or PCI identifier"
        matches = [_match(entry) for entry in gpus]
        num_dies = accelerator_model(draft, matches, how, identities)
        for k, (entry, match) in enumerate(zip(gpus, matches, strict=True)):
            model = match.model if match is not None else None
            name, memory = entry.item.get("pci_busid"), _memory(entry)
            draft.device(k, name=name, model=model, memory_bytes=memory)
            for value in unread({"memory in KiB": (_kibibytes(entry), memory)}):
                draft.unread(value, entry.item.line, about=name)
    node = _node(gpus, nics, version)
    _slots(gpus, draft)
    describe(draft, node, num_dies=num_dies)
    distances.scale_up(root, [entry.item for entry in gpus], draft, num_dies)
    return draft.fragment(NAME, text)


def _of(objects: list[xml.Element], kind: str) -> list[xml.Element]:
    return [item for item in objects if item.get("type") == kind]


def _host(objects: list[xml.Element], draft: Draft) -> None:
    numa = _of(objects, "NUMANode")
    own = [item for item in numa if item.get("subtype") not in _GPU_MEMORY]
    missing = _missing(objects, draft)
    for key, count in (
        ("num_sockets", len(_of(objects, "Package"))),
        ("num_numa_nodes", len(numa)),
        ("num_cores", len(_of(objects, "Core"))),
    ):
        if key in missing:
            draft.group_unknown("host", key, reason=missing[key])
        elif count:
            draft.group("host", key, value=count, how="objects of this kind, counted")
        else:
            draft.group_unknown("host", key, reason="the export holds no such object")
    sizes = [plain_int(item.get("local_memory"), 0, 10**15) for item in own]
    known = [size for size in sizes if size is not None]
    if "memory_bytes" in missing:
        draft.group_unknown("host", "memory_bytes", reason=missing["memory_bytes"])
    elif known and len(known) == len(sizes) and 1e8 <= sum(known) <= 1e14:
        how = "local memory of the NUMA nodes, added up, without the memory of accelerators"
        draft.group("host", "memory_bytes", value=float(sum(known)), how=how)
    else:
        draft.group_unknown("host", "memory_bytes", reason="not every NUMA node states its memory")
    if len(own) < len(numa):
        draft.remark(f"{len(numa) - len(own)} NUMA nodes are the memory of accelerators")
    machine = objects[0]
    if machine.get("complete_cpuset") != machine.get("allowed_cpuset"):
        draft.remark("not all processors were allowed when the export was made, so that counts may be too small")
    _virtual(machine, draft)


def _missing(objects: list[xml.Element], draft: Draft) -> dict[str, str]:
    """Counts of the host of which the export holds a part, as in a container or with devices offline, and why."""
    machine = objects[0]
    units, nodes = (
        machine.get(name) is not None and machine.get(name) != machine.get(f"complete_{name}")
        for name in ("cpuset", "nodeset")
    )
    missing = {}
    draft.partial = nodes
    if units or _reduced(objects, draft):
        missing["num_cores"] = "the export holds a part of the processing units; see lscpu"
    if units:
        missing["num_sockets"] = missing["num_cores"]
    if nodes:
        missing |= dict.fromkeys(("num_numa_nodes", "memory_bytes"), "the export holds a part of the NUMA nodes")
    return missing


def _reduced(objects: list[xml.Element], draft: Draft) -> bool:
    """Whether processing units are missing: the operating system numbers them from 0 without gaps."""
    numbers = {plain_int(item.get("os_index"), 0, 10**6) for item in _of(objects, "PU")}
    highest = max((number for number in numbers if number is not None), default=-1)
    if highest < len(numbers):
        return False
    draft.remark(f"processing units are numbered up to {highest}, but {len(numbers)} are listed; cores may be missing")
    return True


def _virtual(machine: xml.Element, draft: Draft) -> None:
    names = {child.get("name"): child.get("value") or "" for child in machine.children if child.tag == "info"}
    product = f"{names.get('DMISysVendor', '')} {names.get('DMIProductName', '')}"
    if any(word in product for word in _VIRTUAL):
        draft.group("host", "virtualised", value=True, how=f"the board calls itself {cut_to(product.strip(), 64)}")
    else:
        draft.group_unknown("host", "virtualised", reason="the export does not say it; see systemd-detect-virt")


def _devices(root: xml.Element) -> Iterator[_Pci]:
    for top in root.children:
        if top.tag == "object":
            yield from _below(top, (), None, None)


def _below(item: xml.Element, bridges: tuple[str, ...], host: str | None, numa: int | None) -> Iterator[_Pci]:
    kind, children = item.get("type"), [child for child in item.children if child.tag == "object"]
    if kind == "PCIDev":
        found = distances.identity(item)
        yield _Pci(item, _pci.Place(bridges, host, numa), *found)
        return
    if kind == "Bridge":
        label = f"bridge-{item.get('gp_index')}-{item.line}"
        if (item.get("bridge_type") or "").startswith("0-"):
            bridges, host = (), label
        else:
            bridges = (label, *bridges)
    memory = {plain_int(child.get("os_index"), 0, 1024) for child in children if child.get("type") == "NUMANode"}
    if memory:
        numa = memory.pop() if len(memory) == 1 else None
    for child in children:
        yield from _below(child, bridges, host, numa)


def _infos(item: xml.Element) -> dict[str, str]:
    """Key and value pairs of the operating system's devices on a PCI device."""
    found: dict[str, str] = {}
    for child in item.children:
        if child.tag == "object" and child.get("type") == "OSDev":
            for info in child.children:
                name, value = info.get("name"), info.get("value")
                if info.tag == "info" and name is not None and value is not None:
                    found.setdefault(name, value)
    return found


def _match(entry: _Pci) -> Match | None:
    product = _infos(entry.item).get("GPUModel")
    named = by_product(product, _memory(entry)) if product else None
    return named or by_device(entry.vendor, entry.device)


def _memory(entry: _Pci) -> float | None:
    """Bytes of the memory of an accelerator, which the export has in KiB."""
    kibibytes = plain_float(_kibibytes(entry), 1e5, 1e11)
    return None if kibibytes is None else kibibytes * 1024


def _kibibytes(entry: _Pci) -> str | None:
    infos = _infos(entry.item)
    return infos.get("CUDAGlobalMemorySize") or infos.get("RSMIVRAMSize")


def _node(gpus: list[_Pci], nics: list[_Pci], version: str) -> Node:
    accelerators = tuple(
        Device(f"accelerator-{k}", named=False, numa_node=entry.place.numa_node, line=entry.item.line)
        for k, entry in enumerate(gpus)
    )
    interfaces = tuple(_nic(entry, k, version) for k, entry in enumerate(nics))
    paths = {}
    for a, gpu in enumerate(gpus):
        for n, nic in enumerate(nics):
            found = _pci.path_class(gpu.place, nic.place, switch_levels=1)
            if found is not None:
                paths[a, n] = found
    return Node(accelerators, interfaces, paths)


def _nic(entry: _Pci, position: int, version: str) -> Device:
    wanted = _OPENFABRICS[version.partition(".")[0]]
    systems = [child for child in entry.item.children if child.get("type") == "OSDev"]
    ports = [child for child in systems if child.get("osdev_type") in wanted]
    name = next((child.get("name") for child in (*ports, *systems) if child.get("name")), None)
    label = as_name(f"{name}", "") if name else ""
    return Device(
        name=f"{label}" if label else f"nic-{position}",
        named=bool(label) and label == name,
        numa_node=entry.place.numa_node,
        technology=_pci.nic_technology(entry.device_class, entry.vendor, entry.device),
        bonded="bond" in (name or "").lower(),
        line=entry.item.line,
    )


def _slots(gpus: list[_Pci], draft: Draft) -> None:
    """The export states the rate of a link, not its generation and lanes."""
    rates = {plain_float(entry.item.get("pci_link_speed"), 0.2, 2000) for entry in gpus}
    for key in ("generation", "num_lanes"):
        draft.group_unknown("host_link", key, reason="the export holds the rate of the link alone")
    if len(rates) > 1 and None not in rates:
        told = ", ".join(f"{rate:g}" for rate in sorted(rate for rate in rates if rate is not None))
        draft.remark(f"accelerators differ in pci_link_speed: {told} GB/s")
    if gpus and None not in rates:
        lowest = min(rate for rate in rates if rate is not None)
        draft.group("host_link", "technology", value="pcie")
        draft.group("host_link", "bandwidth_bytes_per_second", value=lowest * 1e9, how="pci_link_speed in GB/s")


FORMATS: tuple[Format, ...] = (Format(NAME, "XML export of hwloc (lstopo)", "ClusterProfile", looks_like, read),)
