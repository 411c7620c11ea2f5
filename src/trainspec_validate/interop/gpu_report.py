"""Reads the report of `nvidia-smi -q`, in text or XML: what it says of the condition of each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainspec_validate.interop import xml
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._accelerators import by_product
from trainspec_validate.interop.readers._counted import counted
from trainspec_validate.interop.readers._query import size, unread

Facts = dict[str, Any]
"""Part of an observed node in plain values."""
Tree = dict[str, Any]
_MAX_LINE = 1_000
_MAX_DEVICES = 1_024
_WHOLE = "copy the whole output"
_MAX_DEPTH = 12
_SMI_ROOT = "nvidia_smi_log"
_SMI_XML = f"<{_SMI_ROOT}"
_SMI_TEXT = re.compile(r"^=+NVSMI LOG=+\s*$", re.MULTILINE)
_ENTRY = re.compile(r"(?P<indent> *)(?P<key>[^:]{1,120}?)\s*(?: : ?(?P<value>.*))?")
_GPU = re.compile(r"GPU (?P<pci>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])")
_UNREACHED = "Unable to determine the device handle"
"""What the tool prints in the place of a GPU that does not answer."""
_WIDTH = re.compile(r"([1-9]\d?)x")
_GENERATION = re.compile(r"[1-9]|10")
_LIMIT = re.compile(r"(?=.*[1-9])(?P<number>\d{1,5}(?:\.\d{1,3})?) (?P<unit>MHz|W)")
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
_COUNT = re.compile(r"[0-9]{1,18}")
_STATES: tuple[tuple[tuple[tuple[str, ...], ...], str, str], ...] = (
    (
        (("remapped_rows", "remapping_failure_occurred"), ("remapped_rows", "remapped_row_failure")),
        "Yes",
        "row-remap:failure",
    ),
    ((("remapped_rows", "pending"), ("remapped_rows", "remapped_row_pending")), "Yes", "row-remap:pending"),
    (
        tuple(("retired_pages", key) for key in ("pending_page_blacklist", "pending_retirement", "pending_blacklist")),
        "Yes",
        "page-retirement:pending",
    ),
    ((("ecc_errors", "aggregate", "sram_threshold_exceeded"),), "Yes", "sram:threshold-exceeded"),
    ((("gpu_reset_status", "reset_required"),), "Yes", "reset:required"),
    ((("gpu_reset_status", "drain_and_reset_recommended"),), "Yes", "reset:recommended"),
    ((("fabric", "health", "summary"),), "Unhealthy", "fabric:unhealthy"),
    ((("mig_mode", "current"), ("mig_mode", "current_mig")), "Enabled", "mig:enabled"),
)
"""Where a state is in text and XML, the value that is a fault, and its code."""
PARTS = {
    "memory errors": ("ecc_errors",),
    "slowdowns": ("clocks_event_reasons", "clocks_throttle_reasons"),
    "host links": ("pci",),
}
"""Parts of the state of a GPU, and the sections of a report that have them; `-d` prints some sections alone."""
_MAX_SHOWN = 5
_UNREGISTERED = frozenset({"Not Started", "In Progress"})
_BROKEN = {"Unknown Error": "driver:unknown-error", "GPU is lost": "driver:gpu-is-lost"}
"""What the driver answers in the place of a value where it does not reach the device."""
_SLOWDOWNS = {"hw_thermal_slowdown": "throttle:thermal", "hw_power_brake_slowdown": "throttle:power-brake"}
_UNCORRECTED = re.compile(r"(?:dram|sram)_uncorrectable(?:_parity|_sec_ded|_secded)?")
_SERIAL = re.compile(r"(?=.*[1-9A-Za-z])[0-9A-Za-z-]{4,64}")


def is_text(text: str) -> bool:
    """Whether a text has the report."""
    return bool(_SMI_TEXT.search(text))


def is_xml(text: str) -> bool:
    """Whether a text is the report in XML."""
    return xml.root_tag(text) == _SMI_ROOT


def refuse_mixed(text: str) -> None:
    """Refuse a text that has the XML after other text, of which nothing would be read.

    Raises:
        ForeignFormatError: it has.
    """
    if _SMI_XML in text and not is_xml(text):
        raise ForeignFormatError("has the XML of nvidia-smi after other text", help="keep it in a file of its own")


def read_text(text: str) -> Facts:
    """The report of `nvidia-smi -q`, which indents what belongs together."""
    root: Tree = {}
    stack: list[tuple[int, Tree]] = [(-1, root)]
    gpus: list[tuple[str, Tree]] = []
    for line in text.split("\n"):
        gpu, found = _GPU.match(line), _ENTRY.fullmatch(line[:_MAX_LINE].rstrip())
        if gpu is not None:
            gpus.append((gpu["pci"], {}))
            stack = [(-1, root), (0, gpus[-1][1])]
        elif found is not None and found["key"].strip():
            indent = len(found["indent"])
            while stack[-1][0] >= indent:
                stack.pop()
            if found["value"] is not None:
                stack[-1][1].setdefault(key_of(found["key"]), found["value"].strip())
            elif len(stack) < _MAX_DEPTH:
                section = stack[-1][1].setdefault(key_of(found["key"]), {})
                if isinstance(section, dict):
                    stack.append((indent, section))
    facts = _facts(root, gpus, is_unreached=_UNREACHED in text)
    sections = {key for _, tree in gpus for key in tree}
    if "num_accelerators" not in facts and (not text.endswith("\n") or sections - set(gpus[-1][1] if gpus else ())):
        raise ForeignFormatError(f"is cut off: {facts['open_counts'][0]}", help=_WHOLE)
    return facts


def key_of(text: str) -> str:
    """The name of an entry as a key.

    >>> key_of("SRAM Uncorrectable SEC-DED")
    'sram_uncorrectable_sec_ded'
    """
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")


def read_xml(text: str) -> Facts:
    """The report of `nvidia-smi -q -x`."""
    root = xml.parse(text)
    gpus = [child for child in root.children if child.tag == "gpu"]
    trees = [(gpu, _tree(gpu, 0)) for gpu in gpus]
    pcis = (_text(tree, "pci", "pci_bus_id") or gpu.get("id") or f"GPU {k}" for k, (gpu, tree) in enumerate(trees))
    return _facts(_tree(root, 0), [(pci, tree) for pci, (_, tree) in zip(pcis, trees, strict=True)])


def _tree(item: xml.Element, depth: int) -> Tree:
    found: Tree = {}
    for child in item.children:
        if child.tag != "gpu" or depth:
            below: Any = _tree(child, depth + 1) if child.children and depth < _MAX_DEPTH else child.text.strip()
            found.setdefault(key_of(child.tag), below)
    return found


def _facts(root: Tree, gpus: list[tuple[str, Tree]], *, is_unreached: bool = False) -> Facts:
    """Facts of the GPUs of one report; one that the tool names as unreached is attached and not listed."""
    if len(gpus) > _MAX_DEVICES:
        raise ForeignFormatError(f"lists {len(gpus):,} devices", help=f"at most {_MAX_DEVICES:,} are read")
    rows = [{"uuid": _text(tree, "gpu_uuid") or _text(tree, "uuid"), "pci.bus_id": pci} for pci, tree in gpus]
    found = counted(rows, None if is_unreached else _text(root, "attached_gpus"), is_sampled=False)
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
    if driver := _text(root, "driver_version"):
        facts["driver"] = driver
    return facts


def _refuse_cut(gpus: Sequence[tuple[str, Tree]]) -> None:
    """Refuse a report whose last GPU lacks sections that all others of its product have: it is cut off.

    Raises:
        ForeignFormatError: it does.
    """
    if len(gpus) < 2:
        return
    *before, last = (tree for _, tree in gpus)
    alike = [set(tree) for tree in before if tree.get("product_name") == last.get("product_name")]
    lacking = sorted(set.intersection(*alike) - set(last)) if alike else []
    if lacking:
        words = ", ".join(key.replace("_", " ") for key in lacking[:_MAX_SHOWN])
        raise ForeignFormatError(f"is cut off: the last GPU lacks sections that the others have ({words})", help=_WHOLE)


def _text(tree: Mapping[str, Any], *path: str) -> str | None:
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    usable = (
        isinstance(found, str) and found and not re.fullmatch(r"\[?(n/a|unknown error|not supported).*", found.lower())
    )
    return found if usable else None


def _gpu(pci: str, tree: Tree) -> Facts:
    own: Facts = {"name": _text(tree, "gpu_uuid") or _text(tree, "uuid") or pci.lower(), "pci": pci}
    memory = size(_text(tree, "fb_memory_usage", "total"), "MiB")
    product = _text(tree, "product_name")
    match = by_product(product, memory) if product else None
    if match is not None:
        own["model"] = match.model
    if memory:
        own["memory_bytes"] = memory
    if firmware := _text(tree, "vbios_version"):
        own["firmware"] = firmware
    serial = _text(tree, "serial_number") or _text(tree, "serial") or ""
    if _SERIAL.fullmatch(serial) and len(set(serial)) > 1:
        own["serial_number"] = serial
    own |= _host_link(tree)
    for name, paths in _LIMITS.items():
        found = (_LIMIT.fullmatch(_text(tree, *path) or "") for path in paths)
        values = [float(limit["number"]) * (1e6 if limit["unit"] == "MHz" else 1.0) for limit in found if limit]
        if values:
            own[name] = values[0]
    errors = _uncorrected(tree)
    if errors is not None:
        own["num_uncorrected_errors"] = errors
    modes = {_text(tree, "ecc_mode", key) for key in ("current", "current_ecc")}
    if modes & {"Enabled", "Disabled"}:
        own["ecc_enabled"] = "Enabled" in modes
    own["faults"] = list(_faults(tree))
    return own


def _unread(tree: Tree) -> Iterator[str]:
    """Values of a GPU that are read, and that cannot be as the tool states them."""

    def raw(*path: str) -> str | None:
        found: Any = tree
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str) else None

    memory = raw("fb_memory_usage", "total")
    yield from unread({"memory": (memory, size(memory, "MiB"))})
    for pattern, paths in ((_LIMIT, _LIMIT_PATHS), (_WIDTH, _WIDTH_PATHS), (_GENERATION, _GENERATION_PATHS)):
        values = [(" ".join(path).replace("_", " "), raw(*path)) for path in paths]
        yield from unread({words: (text, pattern.fullmatch(text or "")) for words, text in values})
    yield from unread({key: (text, _COUNT.fullmatch(text)) for key, text in _uncorrected_texts(tree)})


def _host_link(tree: Tree) -> Facts:
    """Lanes of the host link, and its generation: the one in use at full performance, else the highest possible one.

    An idle device lowers the generation; the highest is that of device and system together
    (https://docs.nvidia.com/deploy/nvidia-smi/: "may be reduced when the GPU is not in use").
    """
    found: Facts = {}
    for path in _WIDTH_PATHS:
        if width := _WIDTH.fullmatch(_text(tree, *path) or ""):
            found["host_link_num_lanes" if path[-1].startswith("current") else "host_link_most_lanes"] = int(width[1])
    is_busy = _text(tree, "performance_state") == "P0"
    generations = [
        _GENERATION.fullmatch(_text(tree, *path) or "")
        for path in _GENERATION_PATHS
        if is_busy or path[-1].startswith("max")
    ]
    if stated := [int(found[0]) for found in generations if found]:
        found["host_link_generation"] = min(stated)
    return found


def _uncorrected(tree: Tree) -> int | None:
    """Uncorrected errors since the driver was loaded; older drivers count double bits."""
    counts = [int(text) for _, text in _uncorrected_texts(tree) if _COUNT.fullmatch(text)]
    return sum(counts) if counts else None


def _uncorrected_texts(tree: Tree) -> Iterator[tuple[str, str]]:
    errors = tree.get("ecc_errors")
    volatile = errors.get("volatile") if isinstance(errors, dict) else None
    if not isinstance(volatile, dict):
        return
    double = volatile.get("double_bit")
    found = [(key, value) for key, value in volatile.items() if _UNCORRECTED.fullmatch(key)]
    found += [("double_bit", double.get("total"))] if isinstance(double, dict) else []
    yield from ((key.replace("_", " "), value) for key, value in found if isinstance(value, str))


def _faults(tree: Tree) -> Iterator[str]:
    """What the tool says of a device that takes it out of use, as NVIDIA documents the fields.

    - Reset, drain, recovery action, retired pages, MIG: https://docs.nvidia.com/deploy/nvidia-smi/. A device in MIG
      mode has no NVLink or peer access, https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
    - Remapped rows and the SRAM threshold: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/.
    - Fabric: https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html. Programs find no GPU before its
      registration is complete; devices without such a fabric have `N/A`.
    """
    for paths, value, fault in _STATES:
        if any(_text(tree, *path) == value for path in paths):
            yield fault
    action = _text(tree, "gpu_recovery_action") or "None"
    if action != "None" and "deprecated" not in action:
        yield f"recovery-action:{key_of(action)[:60].replace('_', '-')}"
    state, status = _text(tree, "fabric", "state"), _text(tree, "fabric", "status")
    if state in _UNREGISTERED:
        yield f"fabric:{key_of(state).replace('_', '-')}"
    elif state == "Completed" and status not in {None, "Success"}:
        yield f"fabric:{key_of(status or '')[:60].replace('_', '-')}"
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = tree.get(section)
        for key, value in reasons.items() if isinstance(reasons, dict) else ():
            name = key.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_")
            if value == "Active" and name in _SLOWDOWNS:
                yield _SLOWDOWNS[name]
    broken = set(_values({key: tree.get(key) for key in ("ecc_mode", "ecc_errors", "fabric", "remapped_rows")}))
    yield from (fault for value, fault in _BROKEN.items() if value in broken)


def _values(tree: Tree) -> Iterator[str]:
    for value in tree.values():
        if isinstance(value, dict):
            yield from _values(value)
        elif isinstance(value, str):
            yield value
