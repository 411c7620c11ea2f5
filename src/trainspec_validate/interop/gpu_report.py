"""Reads the report of `nvidia-smi -q`, in text or XML: what it says of the condition of each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._accelerators import by_product
from trainspec_validate.interop.readers._counted import counted
from trainspec_validate.interop.readers._query import size, unread
from trainspec_validate.model.smi_report import (
    COUNT,
    ROOT_TAG,
    UNREACHED,
    Gpus,
    TextReport,
    Tree,
    entry,
    error_texts,
    faults,
    is_xml,
    lacking,
    num_errors,
    odd_states,
    of_xml,
    raw,
)
from trainspec_validate.system import xml

Facts = dict[str, Any]
"""Part of an observed node in plain values."""
_MAX_DEVICES = 1_024
_WHOLE = "copy the whole output"
_WIDTH = re.compile(r"([1-9][0-9]?)x")
_GENERATION = re.compile(r"[1-9]|10")
_LIMIT = re.compile(r"(?=.*[1-9])(?P<number>[0-9]{1,5}(?:\.[0-9]{1,3})?) (?P<unit>MHz|W)")
_POWER = ("gpu_power_readings", "power_readings")
_LIMITS = {
    "clock_limit_hertz": (("max_clocks", "sm"), ("max_clocks", "sm_clock")),
    "application_clock_hertz": (("applications_clocks", "graphics"), ("applications_clocks", "graphics_clock")),
    "power_limit_watts": tuple(
        (section, key) for section in _POWER for key in ("current_power_limit", "enforced_power_limit", "power_limit")
    ),
}
"""What an administrator can set lower, by the key of a device."""
_LIMIT_PATHS = tuple(path for paths in _LIMITS.values() for path in paths)
_TEXT_LINK, _XML_LINK = ("pci", "gpu_link_info"), ("pci", "pci_gpu_link_info")
_WIDTH_PATHS = (
    *((*_TEXT_LINK, "link_width", key) for key in ("current", "max")),
    *((*_XML_LINK, "link_widths", key) for key in ("current_link_width", "max_link_width")),
)
_GENERATION_PATHS = (
    *((*_TEXT_LINK, "pcie_generation", key) for key in ("current", "max")),
    *((*_XML_LINK, "pcie_gen", key) for key in ("current_link_gen", "max_link_gen")),
)
PARTS = {
    "memory errors": ("ecc_errors",),
    "slowdowns": ("clocks_event_reasons", "clocks_throttle_reasons"),
    "host links": ("pci",),
}
"""Parts of the state of a GPU, and the sections of a report that have them; `-d` prints some sections alone."""
_MAX_SHOWN = 5
_SERIAL = re.compile(r"(?=.*[1-9A-Za-z])[0-9A-Za-z-]{4,64}")


def refuse_mixed(text: str) -> None:
    """Refuse a text that has the XML after other text, of which nothing would be read.

    Raises:
        ForeignFormatError: it has.
    """
    if f"<{ROOT_TAG}" in text and not is_xml(text):
        raise ForeignFormatError("has the XML of nvidia-smi after other text", help="keep it in a file of its own")


def read_text(text: str) -> Facts:
    """The report of `nvidia-smi -q`, which indents what belongs together."""
    report = TextReport()
    for line in text.split("\n"):
        report.take(line)
    gpus = report.gpus
    facts = _facts(report.root, gpus, is_unreached=UNREACHED in text)
    sections = {key for _, tree in gpus for key in tree}
    if "num_accelerators" not in facts and (not text.endswith("\n") or sections - set(gpus[-1][1] if gpus else ())):
        raise ForeignFormatError(f"is cut off: {facts['open_counts'][0]}", help=_WHOLE)
    return facts


def read_xml(text: str) -> Facts:
    """The report of `nvidia-smi -q -x`."""
    return _facts(*of_xml(xml.parse(text)))


def _facts(root: Tree, gpus: Gpus, *, is_unreached: bool = False) -> Facts:
    """Facts of the GPUs of one report; one that the tool names as unreached is attached and not listed."""
    if len(gpus) > _MAX_DEVICES:
        raise ForeignFormatError(f"lists {len(gpus):,} devices", help=f"at most {_MAX_DEVICES:,} are read")
    rows = [{"uuid": entry(tree, "gpu_uuid") or entry(tree, "uuid"), "pci.bus_id": pci} for pci, tree in gpus]
    found = counted(rows, None if is_unreached else entry(root, "attached_gpus"), is_sampled=False)
    if len(found.firsts) < len(gpus):
        raise ForeignFormatError(f"lists {len(found.firsts)} GPUs several times", help="keep one report of the tool")
    if found.num_devices is not None:
        _refuse_cut(gpus)
    stated = [part for part, keys in PARTS.items() if all(any(key in tree for key in keys) for _, tree in gpus)]
    facts: Facts = {"devices": [_gpu(pci, tree) for pci, tree in gpus], "stated": stated if gpus else []}
    facts["unread"] = [f"{words} of {pci}" for pci, tree in gpus for words in _unread(tree)]
    if found.num_devices is None:
        facts["open_counts"] = [found.remark]
    else:
        facts["num_accelerators"] = found.num_devices
    if driver := entry(root, "driver_version"):
        facts["driver"] = driver
    return facts


def _refuse_cut(gpus: Gpus) -> None:
    """Refuse a report whose last GPU lacks sections that all others of its product have: it is cut off.

    Raises:
        ForeignFormatError: it does.
    """
    if sections := lacking(gpus):
        words = ", ".join(key.replace("_", " ") for key in sections[:_MAX_SHOWN])
        raise ForeignFormatError(f"is cut off: the last GPU lacks sections that the others have ({words})", help=_WHOLE)


def _gpu(pci: str, tree: Tree) -> Facts:
    own: Facts = {"name": entry(tree, "gpu_uuid") or entry(tree, "uuid") or pci.lower(), "pci": pci}
    memory = size(entry(tree, "fb_memory_usage", "total"), "MiB")
    product = entry(tree, "product_name")
    match = by_product(product, memory) if product else None
    if match is not None:
        own["model"] = match.model
    if memory:
        own["memory_bytes"] = memory
    if firmware := entry(tree, "vbios_version"):
        own["firmware"] = firmware
    serial = entry(tree, "serial_number") or entry(tree, "serial") or ""
    if _SERIAL.fullmatch(serial) and len(set(serial)) > 1:
        own["serial_number"] = serial
    own |= _host_link(tree)
    for name, paths in _LIMITS.items():
        found = (_LIMIT.fullmatch(entry(tree, *path) or "") for path in paths)
        values = [float(limit["number"]) * (1e6 if limit["unit"] == "MHz" else 1.0) for limit in found if limit]
        if values:
            own[name] = values[0]
    errors = num_errors(tree, "uncorrected")
    if errors is not None:
        own["num_uncorrected_errors"] = errors
    modes = {entry(tree, "ecc_mode", key) for key in ("current", "current_ecc")}
    if modes & {"Enabled", "Disabled"}:
        own["ecc_enabled"] = "Enabled" in modes
    own["faults"] = list(faults(tree))
    return own


def _unread(tree: Tree) -> Iterator[str]:
    """Values of a GPU that are read, and that cannot be as the tool states them."""
    memory = raw(tree, "fb_memory_usage", "total")
    yield from unread({"memory": (memory, size(memory, "MiB"))})
    for pattern, paths in ((_LIMIT, _LIMIT_PATHS), (_WIDTH, _WIDTH_PATHS), (_GENERATION, _GENERATION_PATHS)):
        values = [(" ".join(path).replace("_", " "), raw(tree, *path)) for path in paths]
        yield from unread({words: (text, pattern.fullmatch(text or "")) for words, text in values})
    counts = ((key.replace("_", " "), text) for key, text in error_texts(tree, "uncorrected"))
    yield from unread({key: (text, COUNT.fullmatch(text)) for key, text in counts})
    yield from unread({name: (text, None) for name, text in odd_states(tree).items()})


def _host_link(tree: Tree) -> Facts:
    """Lanes of the host link, and its generation: the one in use at full performance, else the highest possible one.

    An idle device lowers the generation; the highest is that of device and system together
    (https://docs.nvidia.com/deploy/nvidia-smi/: "may be reduced when the GPU is not in use").
    """
    found: Facts = {}
    for path in _WIDTH_PATHS:
        if width := _WIDTH.fullmatch(entry(tree, *path) or ""):
            found["host_link_num_lanes" if path[-1].startswith("current") else "host_link_most_lanes"] = int(width[1])
    is_busy = entry(tree, "performance_state") == "P0"
    generations = [
        _GENERATION.fullmatch(entry(tree, *path) or "")
        for path in _GENERATION_PATHS
        if is_busy or path[-1].startswith("max")
    ]
    if stated := [int(found[0]) for found in generations if found]:
        found["host_link_generation"] = min(stated)
    return found
