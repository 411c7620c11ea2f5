"""Turns product names and PCI identifiers of accelerators into names of the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainspec_validate.interop.readers._draft import as_name
from trainspec_validate.model.accelerator_names import meant_by
from trainspec_validate.model.catalog import CatalogAccelerator, accelerators

# Source: pci.ids. Only identifiers that mean one product of the catalog.
_DEVICES = {
    ("10de", "1db5"): "nvidia-v100-sxm2-32gb",
    ("10de", "20b0"): "nvidia-a100-sxm-40gb",
    ("10de", "20b2"): "nvidia-a100-sxm-80gb",
    ("10de", "2330"): "nvidia-h100-sxm-80gb",
    ("10de", "2331"): "nvidia-h100-pcie-80gb",
    ("10de", "2335"): "nvidia-h200-sxm-141gb",
    ("10de", "2901"): "nvidia-b200-sxm-180gb",
    ("10de", "2941"): "nvidia-gb200-186gb",
    ("10de", "31c2"): "nvidia-gb300-288gb",
    ("1002", "7408"): "amd-mi250x-128gb",
    ("1002", "74a1"): "amd-mi300x-192gb",
    ("1002", "74a5"): "amd-mi325x-256gb",
    ("1002", "75a3"): "amd-mi355x-288gb",
}
_VENDORS = {"10de": "nvidia", "1002": "amd", "8086": "intel", "1da3": "intel", "1d0f": "aws", "1ae0": "google"}


@dataclass(frozen=True, slots=True)
class Match:
    """Accelerator that a product is."""

    model: str
    """Name of the catalog, or the product's own name as a name of the schema."""
    vendor: str | None
    entry: CatalogAccelerator | None
    """Row of the catalog; None for an own name."""
    alternatives: tuple[str, ...] = ()
    """Rows of the catalog that the name leaves open."""


def vendor_of(identifier: str | None) -> str | None:
    """Maker of a PCI vendor identifier. Source: pci.ids.

    >>> vendor_of("1002")
    'amd'
    """
    return _VENDORS.get(identifier or "")


def by_device(vendor: str | None, device: str | None) -> Match | None:
    """The catalog's accelerator of a PCI vendor and device identifier; None for any other device.

    >>> by_device("10de", "2330").model
    'nvidia-h100-sxm-80gb'
    """
    name = _DEVICES.get((vendor or "", device or ""))
    entry = accelerators().get(name) if name else None
    return Match(entry.name, entry.vendor, entry) if entry else None


def by_product(product: str, memory_bytes: float | None = None) -> Match | None:
    """Accelerator that a product name means; the memory that a driver reports must fit the catalog within 10 %.

    A name that the catalog does not have stays as the product's own name. None for a text that names nothing.

    >>> by_product("NVIDIA H100 80GB HBM3", 85.5e9).model
    'nvidia-h100-sxm-80gb'
    >>> by_product("NVIDIA H100 80GB HBM3", 68e9).model
    'nvidia-h100-80gb-hbm3'
    """
    plain = " ".join(product.split()).lower()[:200]
    if not re.search(r"[a-z]", plain, re.ASCII) or re.fullmatch(r"\[?(n/a|unknown|not supported)\b.*", plain):
        return None
    vendor = _maker(plain)
    meant = meant_by(plain, memory_bytes, driver=True)
    if meant.entry is not None:
        return Match(meant.entry.name, meant.entry.vendor, meant.entry)
    own = as_name(plain, "device")
    return Match(own if own not in accelerators() else f"{own}-as-reported", vendor, None, meant.alternatives)


def _maker(plain: str) -> str | None:
    if re.match(r"(nvidia|tesla|quadro|geforce)\b", plain):
        return "nvidia"
    if re.match(r"(amd|instinct|radeon)\b", plain):
        return "amd"
    return "google" if plain.startswith("tpu") else None
