"""Lists the tools that `discover` runs, and passes their output to the readers of their formats."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trainspec_validate.interop.discover.machine import Machine
from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import device_queries, hwloc, nvidia_matrix, rocm_matrix

_BY_NAME = {
    entry.name: entry for module in (device_queries, hwloc, nvidia_matrix, rocm_matrix) for entry in module.FORMATS
}
_NVIDIA_FIELDS = ",".join(
    (
        *("index", "name", "memory.total", "power.limit", "pcie.link.gen.max", "pcie.link.width.max"),
        *("mig.mode.current", "driver_version"),
    )
)
_ROCM_LISTS = ("--showproductname", "--showmeminfo", "vram", "--showmaxpower")


@dataclass(frozen=True, slots=True)
class Tool:
    """One call of a tool."""

    commands: tuple[tuple[str, ...], ...]
    """Spellings of the same call; the first that answers counts."""
    format: str
    vendor: str | None = None
    """PCI identifier of the maker whose accelerators it shows; None for all."""


NVIDIA = "10de"
TOOLS: tuple[Tool, ...] = (
    Tool((("nvidia-smi", f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv"),), "nvidia-smi-query-csv", NVIDIA),
    Tool((("nvidia-smi", "topo", "-m"),), "nvidia-smi-topology-matrix", NVIDIA),
    Tool((("rocm-smi", *_ROCM_LISTS),), "rocm-smi-list", "1002"),
    Tool((("rocm-smi", "--showtopo"),), "rocm-smi-topology", "1002"),
    Tool((("amd-smi", "static"),), "amd-smi", "1002"),
    Tool((("tpu-info",),), "tpu-info", "1ae0"),
    Tool((("lstopo-no-graphics", "--of", "xml"), ("lstopo", "--of", "xml")), "hwloc-xml"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of one source: a fragment, or why there is none."""

    vendor: str | None
    """PCI identifier of the maker whose accelerators it shows; None for all."""
    fragment: Fragment | None
    failure: str = ""
    """Empty where the source gave no answer at all, as when it is not installed."""


def others(vendors: Collection[str]) -> tuple[Tool, ...]:
    """The tools that show anything but the accelerators of these makers alone."""
    return tuple(tool for tool in TOOLS if tool.vendor not in vendors)


def ask(machine: Machine, tool: Tool) -> Answer:
    """Runs one tool and reads what it prints."""
    for command in tool.commands:
        printed = machine.run(command)
        if printed is None or not printed.strip():
            continue
        name = " ".join(command)
        entry: Format = _BY_NAME[tool.format]
        try:
            return Answer(tool.vendor, entry.read(ForeignText(name, printed)))
        except ForeignFormatError as error:
            place = "" if error.line is None else f" (line {error.line})"
            return Answer(tool.vendor, None, f"`{name}` printed something unexpected: {error}{place}")
    for command in tool.commands:
        if machine.has(command[0]):
            return Answer(
                tool.vendor, None, f"`{' '.join(command)}` failed, took too long or printed nothing; run it by hand"
            )
    return Answer(tool.vendor, None)
