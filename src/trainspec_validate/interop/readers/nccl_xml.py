"""Reads the topology files of NCCL and RCCL: processors, PCI devices and links of one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _nvlink, _pci
from trainspec_validate.interop.readers._draft import Draft, plain_int
from trainspec_validate.interop.readers._links import Shape, meshed
from trainspec_validate.interop.readers._nccl_tree import Accelerator, Survey, survey
from trainspec_validate.interop.readers._node import describe
from trainspec_validate.interop.readers._products import accelerator_model
from trainspec_validate.model.catalog import pcie_bandwidth
from trainspec_validate.model.values import cut_to
from trainspec_validate.system import xml

NAME = "nccl-topology-xml"
_MAX_LIBRARY_ELEMENTS = 256
_MAX_LIBRARY_ATTRIBUTES = 16
_MAKERS = {"nvlink": "nvidia", "xgmi": "amd"}
_COHERENT_DOMAIN = "domains of this kind may span nodes, and the file ends at one node"


@dataclass(frozen=True, slots=True)
class _Links:
    """Scale-up links of one kind, between accelerators by position and towards switches."""

    technology: str
    pairs: dict[tuple[int, int], int]
    to_switch: dict[int, int]
    to_itself: dict[int, int]


def looks_like(text: ForeignText) -> bool:
    """Whether the first element is the one that NCCL writes."""
    return xml.root_tag(text.text) == "system"


def read(text: ForeignText) -> Fragment:
    """Facts of one node from a topology file.

    Raises:
        ForeignFormatError: the text is not such a file.
    """
    root = xml.parse(text.text)
    if root.tag != "system":
        raise ForeignFormatError(
            f"starts with <{cut_to(root.tag, 64)}>", root.line, "a topology file starts with <system>"
        )
    if not any(child.tag == "cpu" for child in root.children):
        raise ForeignFormatError("holds no <cpu>", root.line, "NCCL_TOPO_DUMP_FILE writes a whole file")
    draft = Draft()
    _header(root, draft)
    found = survey(root, draft)
    matches = [item.match for item in found.accelerators]
    num_dies = 1
    if found.accelerators:
        identities = {item.identity for item in found.accelerators}
        num_dies = accelerator_model(draft, matches, "PCI vendor and device identifier", identities)
        for k, item in enumerate(found.accelerators):
            draft.device(k, name=item.busid, model=item.match.model if item.match is not None else None)
        if matches[0] is None and all(vendor is None for vendor, _ in identities):
            _maker(found.accelerators, draft)
    describe(draft, found.node(), num_dies=num_dies)
    _host(found, draft)
    _upstream(found, draft)
    _scale_up(found, draft, num_dies)
    return draft.fragment(NAME, text)


def _maker(accelerators: Sequence[Accelerator], draft: Draft) -> None:
    """The maker by what only its devices have, in a file without PCI vendor identifiers."""
    kinds = {_MAKERS.get(child.tag) for item in accelerators if item.gpu is not None for child in item.gpu.children}
    makers = kinds - {None}
    if len(makers) == 1 and all(item.gpu is not None for item in accelerators):
        draft.group("accelerator", "vendor", value=makers.pop(), how="the kind of links, which one maker has")


def _header(root: xml.Element, draft: Draft) -> None:
    if root.get("version") not in {"1", "2"}:
        draft.remark(f"version is {root.get('version')!r}; 1 and 2 are known", root.line)
    elements = list(root.walk())
    if len(elements) > _MAX_LIBRARY_ELEMENTS:
        draft.remark(f"{len(elements)} elements; NCCL reads at most {_MAX_LIBRARY_ELEMENTS} of a file")
    for item in elements:
        if len(item.attributes) > _MAX_LIBRARY_ATTRIBUTES:
            draft.remark(f"<{cut_to(item.tag, 64)}> has more than {_MAX_LIBRARY_ATTRIBUTES} attributes", item.line)
    buses = Counter(item.get("busid") for item in elements if item.tag == "pci" and item.get("busid") is not None)
    for bus, count in buses.items():
        if count > 1:
            draft.remark(f"PCI address {cut_to(bus or '', 32)} appears {count} times")


def _host(found: Survey, draft: Draft) -> None:
    if found.numa_nodes:
        highest = max(found.numa_nodes)
        reason = f"only NUMA nodes that hold a device are written, the highest is {highest}; see lscpu"
        draft.group_unknown("host", "num_numa_nodes", reason=reason)
    for key in ("num_sockets", "num_cores", "memory_bytes"):
        draft.group_unknown("host", key, reason="the format does not hold it; see lscpu and /proc/meminfo")
    if found.num_unclassed:
        draft.remark(f"{found.num_unclassed} PCI devices carry no class, so that their kind is unknown")
    with_links = [item for item in found.accelerators if item.gpu is not None]
    if with_links and len(with_links) < len(found.accelerators):
        draft.remark(f"{len(with_links)} of {len(found.accelerators)} accelerators were used when the file was written")
    coherent = [
        item for item in with_links if item.gpu is not None and any(child.tag == "c2c" for child in item.gpu.children)
    ]
    if coherent and len(coherent) == len(found.accelerators):
        draft.remark("accelerators have a coherent link to the host; host_link states their PCIe slots")


def _upstream(found: Survey, draft: Draft) -> None:
    """How many devices share the topmost bridge, where that is alike for all accelerators."""
    if not found.accelerators or any(item.top is None for item in found.accelerators):
        return
    shared = Counter(id(item.top) for item in found.accelerators)
    shared.update(top for top, _ in {(id(item.top), item.card) for item in found.interfaces})
    counts = {shared[id(item.top)] for item in found.accelerators}
    slots = {(_slot(item, "link_speed"), _slot(item, "link_width")) for item in found.accelerators}
    if len(counts) != 1:
        draft.remark(f"upstream links are shared unevenly, by {min(counts)} to {max(counts)} devices")
    elif counts != {1}:
        how = "accelerators and interfaces below one topmost bridge"
        draft.group("host_link", "num_devices_per_upstream_link", value=counts.pop(), how=how)
        draft.group("host_link", "technology", value="pcie")
    if len(slots) == 1:
        speed, width = slots.pop()
        generation, lanes = _pci.generation(speed), _pci.lanes(width)
        rate = pcie_bandwidth(generation, lanes) if generation and lanes else None
        if rate is not None:
            how = f"nominal rate of PCIe {generation} with {lanes} lanes, the topmost bridge's link"
            draft.group("host_link", "upstream_bandwidth_bytes_per_second", value=rate, how=how)
            draft.group("host_link", "technology", value="pcie")


def _slot(item: Accelerator, name: str) -> str | None:
    return item.top.get(name) if item.top is not None else None


def _collect(accelerators: Sequence[Accelerator], draft: Draft) -> _Links | None:
    positions = {item.busid.lower(): k for k, item in enumerate(accelerators) if item.busid is not None}
    found = _Links("nvlink", {}, {}, {})
    technologies: set[str] = set()
    for k, accelerator in enumerate(accelerators):
        if accelerator.gpu is None:
            continue
        for link in accelerator.gpu.children:
            count = plain_int(link.get("count"), 1, 1024)
            if link.tag not in {"nvlink", "xgmi"}:
                continue
            if count is None:
                draft.unread(f"count {link.get('count')} of a link", link.line)
                continue
            technologies.add(link.tag)
            target = positions.get((link.get("target") or "").lower())
            if target == k:
                found.to_itself[k] = found.to_itself.get(k, 0) + count
            elif target is not None:
                found.pairs[k, target] = found.pairs.get((k, target), 0) + count
            elif _pci.is_nvswitch(_pci.identifier(link.get("tclass"))):
                found.to_switch[k] = found.to_switch.get(k, 0) + count
            else:
                draft.remark("a link ends at a device that the file does not hold", link.line)
    if len(technologies) != 1 or not (found.pairs or found.to_switch or found.to_itself):
        return None
    return _Links(technologies.pop(), found.pairs, found.to_switch, found.to_itself)


def _scale_up(found: Survey, draft: Draft, num_dies: int) -> None:
    links = _collect(found.accelerators, draft)
    if links is None:
        draft.group_unknown("scale_up", reason="the file lists no link of which it holds both ends")
        return
    for (one, other), count in links.pairs.items():
        if links.pairs.get((other, one), 0) != count:
            draft.remark(
                f"links from accelerator {one} to {other} are {count}, back {links.pairs.get((other, one), 0)}"
            )
    draft.group("scale_up", "technology", value=links.technology)
    if links.to_itself:
        draft.remark("links of an accelerator end at itself, as virtual machines write it; their peers are hidden")
    shape = _shape(links, len(found.accelerators))
    _nvlink.islands(draft, shape)
    uneven = _nvlink.UNEVEN if shape.num_accelerators is None and shape.islands else ""
    if shape.topology is None:
        draft.group_unknown("scale_up", "topology", reason=uneven or "the file does not state where the links end")
    else:
        draft.group("scale_up", "topology", value=shape.topology, how="the ends of the links")
    if shape.num_links is not None and num_dies == 1:
        draft.group("scale_up", "num_links", value=shape.num_links, how="links of one accelerator, added up")
    else:
        draft.group_unknown("scale_up", "num_links", reason="accelerators differ, or several dies make up a package")
    _domain(found, draft, shape, num_dies)


def _shape(links: _Links, size: int) -> Shape:
    if links.to_switch and not links.pairs:
        counts = {links.to_switch.get(k, 0) for k in range(size)}
        return Shape("switched", len(links.to_switch), counts.pop() if len(counts) == 1 else None)
    if links.pairs and not links.to_switch and not links.to_itself:
        shape = meshed(size, links.pairs)
        if shape is not None:
            return shape
    each = {k: links.to_switch.get(k, 0) + links.to_itself.get(k, 0) for k in range(size)}
    for (one, _), count in links.pairs.items():
        each[one] += count
    totals = set(each.values())
    return Shape(None, None, totals.pop() if len(totals) == 1 else None)


def _domain(found: Survey, draft: Draft, shape: Shape, num_dies: int) -> None:
    path = ("scale_up", "domain_num_accelerators")
    if found.coherent and shape.topology == "switched":
        draft.group_unknown(*path, reason=_COHERENT_DOMAIN)
    elif shape.topology is None or shape.num_accelerators is None or shape.num_accelerators % num_dies:
        uneven = _nvlink.UNEVEN if shape.num_accelerators is None and shape.islands else ""
        draft.group_unknown(*path, reason=uneven or "the file does not state which accelerators the links join")
    else:
        how = "accelerators of the node that the links join"
        draft.group(*path, value=shape.num_accelerators // num_dies, how=how)


FORMATS: tuple[Format, ...] = (Format(NAME, "topology file of NCCL or RCCL", "ClusterProfile", looks_like, read),)
