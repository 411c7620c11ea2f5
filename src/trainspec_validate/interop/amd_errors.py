"""Reads the errors of memory and other blocks that `amd-smi metric --ecc --ecc-blocks` counts for each AMD GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.system.digits import is_digits

_MAX_LINE = 1_000
_MAX_DEVICES = 1_024
_MAX_BLOCKS = 64
_GPU = re.compile(r"^GPU: (?P<index>[0-9]{1,4})\s*$", re.MULTILINE)
_TOTAL = re.compile(r"^\s+TOTAL_UNCORRECTABLE_COUNT: ", re.MULTILINE)
_HEAD = re.compile(r"\s+(?P<name>[A-Z][A-Z0-9_]{1,40}):\s*")
_FIELD = re.compile(r"\s+(?P<name>[A-Z][A-Z0-9_]{1,60}_COUNT): (?P<value>\S{1,40})\s*")
_FAULT = "ras:uncorrectable"


@dataclass(slots=True)
class _Gpu:
    name: str
    total: str = ""
    blocks: list[str] = field(default_factory=list)
    """Blocks with errors that were not corrected, with their numbers."""
    unread: list[str] = field(default_factory=list)
    """Counts that are not judged."""


def is_metric(text: str) -> bool:
    """Whether a text has the counts of errors of GPUs."""
    return bool(_GPU.search(text) and _TOTAL.search(text))


def read(text: str) -> Facts:
    """The GPUs with errors that were not corrected, by block of the chip, and counts that are not judged.

    Format: ROCm/amdsmi, CHANGELOG.md; the counts are since the driver was loaded. GPUs have no names but their index.

    Raises:
        ForeignFormatError: a GPU has no count, so that a part of the output is lost.
    """
    gpus: list[_Gpu] = []
    head, line = "", ""
    for line in text.split("\n"):
        words = line[:_MAX_LINE]
        if found := _GPU.fullmatch(words):
            gpus.append(_Gpu(f"GPU {found['index']}"))
        elif found := _HEAD.fullmatch(words):
            head = found["name"]
        elif gpus and (found := _FIELD.fullmatch(words)):
            _take(gpus[-1], head, found["name"], found["value"])
    lacking = next((gpu.name for gpu in gpus if not gpu.total), None)
    if lacking is not None or _FIELD.fullmatch(line[:_MAX_LINE]):
        message = f"is cut off: {lacking or gpus[-1].name} lacks counts, or the last one digits"
        raise ForeignFormatError(message, help="copy the whole output")
    devices = [{"name": gpu.name, "faults": _faults(gpu)} for gpu in gpus[:_MAX_DEVICES]]
    unread = [f"{gpu.name}: {one}" for gpu in gpus for one in gpu.unread[:_MAX_BLOCKS]]
    return {"devices": devices, "unread": unread, "stated": ["memory errors"], "num_stated": len(gpus)}


def _take(gpu: _Gpu, head: str, name: str, value: str) -> None:
    """Take a count; one of the caches is part of that of its block, and corrected errors are left out."""
    if name == "TOTAL_UNCORRECTABLE_COUNT":
        gpu.total = value
        if not is_digits(value):
            gpu.unread.append(f"{name} {value}")
    elif name == "UNCORRECTABLE_COUNT" and is_digits(value) and int(value):
        gpu.blocks.append(f"{value} of {head}")
    elif name == "TOTAL_DEFERRED_COUNT" and is_digits(value) and int(value):
        gpu.unread.append(f"{name} {value}")


def _faults(gpu: _Gpu) -> list[str]:
    if gpu.blocks:
        return [f"{_FAULT} {one}" for one in gpu.blocks[:_MAX_BLOCKS]]
    return [f"{_FAULT} {gpu.total}"] if is_digits(gpu.total) and int(gpu.total) else []
