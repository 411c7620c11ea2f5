"""Facts about PCI: device classes, link speeds, and the path class between two devices of a tree."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GENERATION_GIGATRANSFERS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6, "128": 7}
_DISPLAY, _CONTROLLER_3D, _DISPLAY_OTHER, _ACCELERATOR = "0300", "0302", "0380", "1200"
_COMPUTE_VENDORS = frozenset({"10de", "1002", "8086", "1da3", "1d0f", "1ae0"})
_NIC_CLASSES = frozenset({"0200", "0207", "0208", "0280"})
_BRIDGE, _NVSWITCH = "0604", "0680"
_ETHERNET = "0200"


def identifier(text: str | None) -> str | None:
    """Four lower-case hexadecimal digits of a vendor, device or class, from `0x10DE`, `10de` or `0x030200`.

    >>> identifier("0x030200"), identifier("0x10DE"), identifier("gpu")
    ('0302', '10de', None)
    """
    found = re.fullmatch(r"\s*(?:0x)?([0-9a-f]{4})(?:[0-9a-f]{2})?\s*", text or "", re.IGNORECASE | re.ASCII)
    return found[1].lower() if found else None


def is_accelerator(device_class: str | None, vendor: str | None) -> bool:
    """Whether a class is that of an accelerator; a display adapter counts for makers of accelerators only.

    Source: pci.ids, classes 03 and 12.

    >>> is_accelerator("0302", "10de"), is_accelerator("0300", "1a03")
    (True, False)
    """
    if device_class == _DISPLAY:
        return vendor in {"10de", "1002"}
    if device_class in {_CONTROLLER_3D, _DISPLAY_OTHER, _ACCELERATOR}:
        return vendor is None or vendor in _COMPUTE_VENDORS
    return False


def is_nic(device_class: str | None) -> bool:
    """Whether a class is that of a network interface. Source: pci.ids, class 02.

    >>> is_nic("0207"), is_nic("0604")
    (True, False)
    """
    return device_class in _NIC_CLASSES


def is_bridge(device_class: str | None) -> bool:
    """Whether a class is that of a bridge between PCI buses. Source: pci.ids, class 0604.

    >>> is_bridge("0604")
    True
    """
    return device_class == _BRIDGE


def is_nvswitch(device_class: str | None) -> bool:
    """Whether a class is the one that NVSwitch chips carry. Source: pci.ids, class 0680, vendor 10de.

    >>> is_nvswitch("0680")
    True
    """
    return device_class == _NVSWITCH


def nic_technology(device_class: str | None, vendor: str | None, device: str | None) -> str | None:
    """Link layer of a network interface; None where class and maker leave it open.

    The class of Ethernet controllers is also carried by EFA and Slingshot cards, so that it needs the maker.
    Source: pci.ids (0207 InfiniBand, 0208 fabric; 1d0f:efa0 to efa3 EFA; 17db:0501 Slingshot).

    >>> nic_technology("0200", "1d0f", "efa1"), nic_technology("0200", None, None)
    ('efa', None)
    """
    if vendor == "1d0f" and device is not None and device.startswith("efa"):
        return "efa"
    if vendor == "17db":
        return "slingshot"
    if device_class == "0207":
        return "infiniband"
    if device_class == "0208" and vendor in {"8086", "434e"}:
        return "omni-path"
    if device_class == _ETHERNET and vendor not in {None, "ffff", "0000", "1d0f"}:
        return "ethernet"
    return None


def generation(link_speed: str | None) -> int | None:
    """PCIe generation of a link speed in any spelling: `32.0 GT/s PCIe`, `16 GT/s`, `8.0`, or empty.

    Source: PCI Express base specifications (2.5, 5, 8, 16, 32, 64 GT/s).

    >>> generation("32.0 GT/s PCIe"), generation("16 GT/s"), generation("Unknown speed")
    (5, 4, None)
    """
    found = re.match(r"\s*([0-9]{1,3}(?:\.[0-9])?)\s*(?:GT/s|$)", link_speed or "", re.ASCII)
    return _GENERATION_GIGATRANSFERS.get(found[1].removesuffix(".0")) if found else None


def lanes(link_width: str | None) -> int | None:
    """Lanes of a link width such as `16`, `x16` or `16x`; 0 and nonsense are None.

    >>> lanes("x16"), lanes("16x"), lanes("0"), lanes("63")
    (16, 16, None, None)
    """
    found = re.fullmatch(r"\s*x?([0-9]{1,2})x?\s*", link_width or "", re.ASCII)
    value = int(found[1]) if found else 0
    return value if value in {1, 2, 4, 8, 12, 16, 32} else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device hangs."""

    bridges: tuple[str, ...]
    """Bridges between it and its host bridge, nearest first."""
    host_bridge: str | None
    """Root that the chain ends at."""
    numa_node: int | None = None


def path_class(one: Place, other: Place, *, switch_levels: int) -> str | None:
    """Path class between two devices: PIX, PXB, PHB or SYS; None where the NUMA nodes are needed and unknown.

    PIX crosses one PCIe switch, PXB several, PHB the host bridge or another one of the same NUMA node, SYS the link
    between NUMA nodes. `switch_levels` is the number of bridges between a device and the bridge that both share for
    one switch: 0 where the tree holds one bridge per switch, as NCCL writes it, 1 where it holds both ports of a
    switch, as the operating system lists them. Source: NVIDIA/nccl@5067397c:src/graph/paths.cc; nvidia-smi manual.

    >>> path_class(Place(("a",), "h"), Place(("a",), "h"), switch_levels=0)
    'PIX'
    >>> path_class(Place(("a",), "h", 0), Place(("b",), "k", 1), switch_levels=0)
    'SYS'
    """
    num_shared = 0
    for ours, theirs in zip(reversed(one.bridges), reversed(other.bridges), strict=False):
        if ours != theirs:
            break
        num_shared += 1
    if num_shared:
        far = max(len(one.bridges), len(other.bridges)) - num_shared
        return "PIX" if far <= switch_levels else "PXB"
    if one.host_bridge is not None and one.host_bridge == other.host_bridge:
        return "PHB"
    if one.numa_node is None or other.numa_node is None:
        return None
    return "PHB" if one.numa_node == other.numa_node else "SYS"
