"""Takes reports of `nvidia-smi -q` apart, in text and XML, into nested sections, and says which states are faults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trainspec_validate.system import xml

Tree = dict[str, Any]
"""Entries of a section by their keys: texts, and sections."""
Gpus = list[tuple[str, Tree]]
"""PCI addresses and sections of GPUs, in the order of a report."""
ROOT_TAG = "nvidia_smi_log"
TITLE = r"^=+NVSMI LOG=+\s*$"
"""The line that a report in text begins with."""
UNREACHED = "Unable to determine the device handle"
"""Start of the line that the tool prints in the place of a GPU that does not answer."""
_TITLE = re.compile(TITLE, re.MULTILINE)
_MAX_LINE = 1_000
_MAX_DEPTH = 12
_MAX_KEY = 120
_GPU = re.compile(r"GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])")
_NO_VALUE = re.compile(r"\[?(n/a|unknown error|not supported).*")
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
_UNREGISTERED = frozenset({"Not Started", "In Progress"})
_BROKEN = {"Unknown Error": "driver:unknown-error", "GPU is lost": "driver:gpu-is-lost"}
"""What the driver answers in the place of a value where it does not reach the device."""
_WORDS = frozenset({"Yes", "No", "Enabled", "Disabled", "Active", "Not Active", "Healthy", "Unhealthy", "Completed"})
"""What the tool states of a state, besides what `_UNREGISTERED` and `_BROKEN` list."""
_SLOWDOWNS = {"hw_thermal_slowdown": "throttle:thermal", "hw_power_brake_slowdown": "throttle:power-brake"}
_ERRORS = {
    "uncorrected": re.compile(r"(?:dram|sram)_uncorrectable(?:_parity|_sec_ded|_secded)?"),
    "corrected": re.compile(r"(?:dram|sram)_correctable"),
}
COUNT = re.compile(r"[0-9]{1,18}")
"""A number of errors."""
_TOTALS = {"uncorrected": "double_bit", "corrected": "single_bit"}
"""Sections in which older drivers count bits, each with a total."""


class TextReport:
    """Takes one report in text line by line; it indents what belongs together."""

    def __init__(self) -> None:
        self.root: Tree = {}
        self.gpus: Gpus = []
        self._stack: list[tuple[int, Tree]] = [(-1, self.root)]

    def take(self, line: str) -> None:
        """Take a line without its end; one that is neither a GPU nor an entry is passed over."""
        gpu = _GPU.match(line) if line.startswith("GPU ") else None
        if gpu is not None:
            self.gpus.append((gpu["pci"], {}))
            self._stack = [(-1, self.root), (0, self.gpus[-1][1])]
            return
        key, colon, value = line[:_MAX_LINE].partition(":")
        name = key.strip()
        if not name or len(name) > _MAX_KEY or (colon and not key.endswith(" ")):
            return
        indent = len(key) - len(key.lstrip(" "))
        while self._stack[-1][0] >= indent:
            self._stack.pop()
        below = self._stack[-1][1]
        if colon:
            first, *_ = value.strip().split("   ")  # a person may have written a remark behind it
            below.setdefault(key_of(name), first)
        elif len(self._stack) < _MAX_DEPTH:
            section = below.setdefault(key_of(name), {})
            if isinstance(section, dict):
                self._stack.append((indent, section))


def is_text(text: str) -> bool:
    """Whether a text has the report."""
    return bool(_TITLE.search(text))


def is_xml(text: str) -> bool:
    """Whether a text is the report in XML."""
    return xml.root_tag(text) == ROOT_TAG


@lru_cache(4_096)
def key_of(text: str) -> str:
    """The name of an entry as a key.

    >>> key_of("SRAM Uncorrectable SEC-DED")
    'sram_uncorrectable_sec_ded'
    """
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")


def of_xml(root: xml.Element) -> tuple[Tree, Gpus]:
    """Entries outside of GPUs, and the GPUs, of the report in XML."""
    elements = [child for child in root.children if child.tag == "gpu"]
    trees = [(element, _tree(element, 0)) for element in elements]
    pcis = (entry(tree, "pci", "pci_bus_id") or item.get("id") or f"GPU {k}" for k, (item, tree) in enumerate(trees))
    return _tree(root, 0), [(pci, tree) for pci, (_, tree) in zip(pcis, trees, strict=True)]


def _tree(item: xml.Element, depth: int) -> Tree:
    found: Tree = {}
    for child in item.children:
        if child.tag != "gpu" or depth:
            below: Any = _tree(child, depth + 1) if child.children and depth < _MAX_DEPTH else child.text.strip()
            found.setdefault(key_of(child.tag), below)
    return found


def entry(tree: Mapping[str, Any], *path: str) -> str | None:
    """The value of an entry; None where there is none, or it is no value, such as `N/A`."""
    found = raw(tree, *path)
    return found if found and not _NO_VALUE.fullmatch(found.lower()) else None


def raw(tree: Mapping[str, Any], *path: str) -> str | None:
    """The text of an entry, also one that is no value; None where there is none."""
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


def lacking(gpus: Sequence[tuple[str, Tree]]) -> list[str]:
    """Sections that all other GPUs of its product have and the last one lacks, by which a report is cut off."""
    if len(gpus) < 2:
        return []
    *before, last = (tree for _, tree in gpus)
    alike = [set(tree) for tree in before if tree.get("product_name") == last.get("product_name")]
    return sorted(set.intersection(*alike) - set(last)) if alike else []


def num_errors(tree: Tree, kind: str) -> int | None:
    """Errors of memory since the driver was loaded, `uncorrected` or `corrected`; older drivers count bits.

    >>> num_errors({"ecc_errors": {"volatile": {"dram_uncorrectable": "2", "sram_correctable": "9"}}}, "uncorrected")
    2
    """
    counts = [int(text) for _, text in error_texts(tree, kind) if COUNT.fullmatch(text)]
    return sum(counts) if counts else None


def error_texts(tree: Tree, kind: str) -> Iterator[tuple[str, str]]:
    """Entries that count these errors, by key, also those with no number."""
    errors = tree.get("ecc_errors")
    volatile = errors.get("volatile") if isinstance(errors, dict) else None
    if not isinstance(volatile, dict):
        return
    total = volatile.get(_TOTALS[kind])
    found = [(key, value) for key, value in volatile.items() if _ERRORS[kind].fullmatch(key)]
    found += [(_TOTALS[kind], total.get("total"))] if isinstance(total, dict) else []
    yield from ((key, value) for key, value in found if isinstance(value, str))


def slowdowns(tree: Tree) -> Iterator[tuple[str, str]]:
    """Reasons for which clocks are held down, as text names them, each with its value, such as `Not Active`."""
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = tree.get(section)
        for key, value in _flat(reasons) if isinstance(reasons, dict) else ():
            yield key.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_"), value


def _flat(section: Tree) -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value


def faults(tree: Tree) -> Iterator[str]:
    """The states of a device that take it out of use, as NVIDIA documents the fields.

    - Reset, drain, recovery action, retired pages, MIG: https://docs.nvidia.com/deploy/nvidia-smi/. A device in MIG
      mode has no NVLink or peer access, https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
    - Remapped rows and the SRAM threshold: https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/.
    - Fabric: https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html. Programs find no GPU before its
      registration is complete; devices without such a fabric have `N/A`.
    """
    for paths, value, fault in _STATES:
        if any(entry(tree, *path) == value for path in paths):
            yield fault
    action = entry(tree, "gpu_recovery_action") or "None"
    if action != "None" and "deprecated" not in action:
        yield f"recovery-action:{key_of(action)[:60].replace('_', '-')}"
    state, status = entry(tree, "fabric", "state"), entry(tree, "fabric", "status")
    if state in _UNREGISTERED:
        yield f"fabric:{key_of(state).replace('_', '-')}"
    elif state == "Completed" and status not in {None, "Success"}:
        yield f"fabric:{key_of(status or '')[:60].replace('_', '-')}"
    for name, value in slowdowns(tree):
        if value == "Active" and name in _SLOWDOWNS:
            yield _SLOWDOWNS[name]
    read = ("ecc_mode", "ecc_errors", "fabric", "remapped_rows")
    broken = {value for _, value in _flat({key: tree[key] for key in read if key in tree})}
    yield from (fault for value, fault in _BROKEN.items() if value in broken)


def odd_states(tree: Tree) -> dict[str, str]:
    """States that decide about a device, by their names, whose text is none that the tool writes."""
    paths = [*(path for paths, _, _ in _STATES for path in paths), ("fabric", "state"), ("ecc_mode", "current")]
    states = {" ".join(path).replace("_", " "): entry(tree, *path) for path in (*paths, ("ecc_mode", "current_ecc"))}
    states |= {name.replace("_", " "): value for name, value in slowdowns(tree) if name in _SLOWDOWNS}
    known = {*_WORDS, *_UNREGISTERED, *_BROKEN}
    return {
        name: text
        for name, text in states.items()
        if text and text not in known and not _NO_VALUE.fullmatch(text.lower())
    }
