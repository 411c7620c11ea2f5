"""Turns product names and PCI identifiers of accelerators into names of the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainspec_validate.catalog import CatalogAccelerator, accelerators
from trainspec_validate.interop.readers._draft import as_name

_MEMORY_TOLERANCE = 0.1

# Whole product names as drivers print them, lower case and without the maker; memory decides where one name has two.
_PRODUCTS: tuple[tuple[str, str], ...] = (
    (r"(tesla )?v100-sxm2-32gb(-ls)?", "nvidia-v100-sxm2-32gb"),
    (r"a100-sxm4?-40gb", "nvidia-a100-sxm-40gb"),
    (r"a100-sxm4?-80gb", "nvidia-a100-sxm-80gb"),
    (r"h100 80gb hbm3|h100 sxm5( 80gb)?", "nvidia-h100-sxm-80gb"),
    (r"a100-pcie-40gb", "nvidia-a100-pcie-40gb"),
    (r"a100( 80gb pcie|-pcie-80gb)", "nvidia-a100-pcie-80gb"),
    (r"a10", "nvidia-a10-24gb"),
    (r"rtx a5000", "nvidia-rtx-a5000-24gb"),
    (r"l4", "nvidia-l4-24gb"),
    (r"l40s", "nvidia-l40s-48gb"),
    (r"geforce rtx 4090", "nvidia-rtx-4090-24gb"),
    (r"h100 nvl", "nvidia-h100-nvl-94gb"),
    (r"h200 nvl", "nvidia-h200-nvl-141gb"),
    (r"h800", "nvidia-h800-sxm-80gb"),
    (r"h20", "nvidia-h20-96gb"),
    (r"gh200 480gb", "nvidia-gh200-96gb"),
    (r"gh200 144g hbm3e", "nvidia-gh200-144gb"),
    (r"gb10", "nvidia-gb10-128gb"),
    (r"rtx pro 6000 blackwell server edition", "nvidia-rtx-pro-6000-server-96gb"),
    (r"h100 pcie", "nvidia-h100-pcie-80gb"),
    (r"h200( sxm5?)?( 141gb)?( hbm3e)?", "nvidia-h200-sxm-141gb"),
    (r"b200", "nvidia-b200-sxm-180gb"),
    (r"gb200", "nvidia-gb200-186gb"),
    (r"b300 sxm6( ac)?", "nvidia-b300-sxm-288gb"),
    (r"gb300", "nvidia-gb300-288gb"),
    (r"instinct mi250x( oam)?|instinct mi250x.*sku.*", "amd-mi250x-128gb"),
    (r"instinct mi210", "amd-mi210-64gb"),
    (r"instinct mi300a", "amd-mi300a-128gb"),
    (r"instinct mi350x( vf)?( hf)?( oam.*)?", "amd-mi350x-288gb"),
    (r"radeon rx 7900 xtx", "amd-rx-7900-xtx-24gb"),
    (r"instinct mi300x( vf)?( hf)?( oam.*)?", "amd-mi300x-192gb"),
    (r"instinct mi325x( vf)?( hf)?( oam.*)?", "amd-mi325x-256gb"),
    (r"instinct mi355x( vf)?( hf)?( oam.*)?", "amd-mi355x-288gb"),
    (r"tpu v4( chip)?", "google-tpu-v4"),
    (r"tpu (v5e|v5 ?lite)( chip)?", "google-tpu-v5e"),
    (r"tpu v5p( chip)?", "google-tpu-v5p"),
    (r"tpu (v6e|v6 ?lite)( chip)?", "google-tpu-v6e"),
    (r"tpu ?(v?7x?)( chip)?", "google-tpu-v7x"),
)

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
    """What a product is."""

    model: str
    """Name of the catalog, or the product's own name as a name of the schema."""
    vendor: str | None
    entry: CatalogAccelerator | None
    """Row of the catalog; None for an own name."""


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
    """What a product name means; the memory that a driver reports must fit the catalog within 10 %.

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
    bare = re.sub(r"^(nvidia|amd) ", "", plain)
    name = next((name for pattern, name in _PRODUCTS if re.fullmatch(pattern, bare, re.ASCII)), None)
    entry = accelerators().get(name) if name else None
    if entry is not None and _fits(entry, memory_bytes):
        return Match(entry.name, entry.vendor, entry)
    own = as_name(plain, "device")
    return Match(own if own not in accelerators() else f"{own}-as-reported", vendor, None)


def _maker(plain: str) -> str | None:
    if re.match(r"(nvidia|tesla|quadro|geforce)\b", plain):
        return "nvidia"
    if re.match(r"(amd|instinct|radeon)\b", plain):
        return "amd"
    return "google" if plain.startswith("tpu") else None


def _fits(entry: CatalogAccelerator, memory_bytes: float | None) -> bool:
    if memory_bytes is None:
        return True
    die = entry.memory_bytes / entry.num_dies
    wanted = (entry.memory_bytes, die) if entry.num_dies > 1 else (entry.memory_bytes,)
    return any(abs(memory_bytes / size - 1) <= _MEMORY_TOLERANCE for size in wanted)
