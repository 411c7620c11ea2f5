"""Queries NVML, in a process of its own, since a driver may hang or crash its caller."""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import combinations
from typing import Any

MAX_DEVICES = 256
_NUMA_WORDS = 16
"""Words of 64 bits in a mask of NUMA nodes."""
_ABSENT = frozenset(
    {"NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_InvalidArgument", "AttributeError"}
)
"""Errors by which a device, a driver or a binding says that it does not have something."""
_REMOTES = {0: "gpu", 1: "npu", 2: "switch"}


class Asker:
    """Calls a binding of NVML, and counts the calls that failed."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding
        self.failures: Counter[str] = Counter()

    def ask(self, function: str, *arguments: Any) -> Any:
        """Value that a function returns; None where it fails, which is counted unless the device lacks it."""
        try:
            answer = getattr(self._binding, function)(*arguments)
        except Exception as error:  # the binding raises what the driver and ctypes make it raise
            if type(error).__name__ not in _ABSENT:
                self.failures[f"{function}: {_told(error)}"] += 1
            return None
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer

    def constant(self, name: str, default: int) -> int:
        """A constant of the binding, or what it is in those that lack the name."""
        return int(getattr(self._binding, name, default))


def survey(binding: Any) -> dict[str, Any]:
    """Report of NVML on the accelerators of this machine, in plain values; only `error` where it fails."""
    try:
        binding.nvmlInit()
    except Exception as error:  # the binding raises what the driver and ctypes make it raise
        return {"error": _told(error), "absent": type(error).__name__ == "NVMLError_LibraryNotFound"}
    asker = Asker(binding)
    count = asker.ask("nvmlDeviceGetCount")
    if count is None or not 0 < count <= MAX_DEVICES:
        return {"error": next(iter(asker.failures), f"lists {count} devices")}
    handles = [asker.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    found = {
        "driver": asker.ask("nvmlSystemGetDriverVersion"),
        "devices": [None if handle is None else _device(asker, handle) for handle in handles],
        "pairs": _pairs(asker, handles),
        "failures": [f"{told} ({count} times)" for told, count in asker.failures.most_common(16)],
    }
    asker.ask("nvmlShutdown")
    return found


def _told(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]


def _device(asker: Asker, handle: Any) -> dict[str, Any]:
    """One accelerator, in the units of NVML."""
    limit = asker.ask("nvmlDeviceGetPowerManagementLimit", handle)
    mode = asker.ask("nvmlDeviceGetMigMode", handle)
    return {
        "bus_id": _text(asker.ask("nvmlDeviceGetPciInfo", handle), "busId"),
        "name": asker.ask("nvmlDeviceGetName", handle),
        "memory_bytes": getattr(asker.ask("nvmlDeviceGetMemoryInfo", handle), "total", None),
        "power_milliwatts": asker.ask("nvmlDeviceGetEnforcedPowerLimit", handle) if limit is None else limit,
        "pcie_generation": asker.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_num_lanes": asker.ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "mig": None if mode is None else mode[0] == asker.constant("NVML_DEVICE_MIG_ENABLE", 1),
        "numa_nodes": _numa_nodes(asker, handle),
        "own_numa_node": asker.ask("nvmlDeviceGetNumaNodeId", handle),
        "links": _links(asker, handle),
    }


def _text(struct: Any, field: str) -> str | None:
    value = getattr(struct, field, None)
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _numa_nodes(asker: Asker, handle: Any) -> list[int] | None:
    scope = asker.constant("NVML_AFFINITY_SCOPE_NODE", 0)
    words = asker.ask("nvmlDeviceGetMemoryAffinity", handle, _NUMA_WORDS, scope)
    if words is None:
        return None
    return [64 * position + bit for position, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def _links(asker: Asker, handle: Any) -> list[dict[str, Any]]:
    """NVLinks that the device has, active or not, with what is at the other end of the active ones."""
    found: list[dict[str, Any]] = []
    for link in range(asker.constant("NVML_NVLINK_MAX_LINKS", 18)):
        state = asker.ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            continue
        entry: dict[str, Any] = {"active": state == asker.constant("NVML_FEATURE_ENABLED", 1)}
        if entry["active"]:
            entry["remote"] = _REMOTES.get(asker.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link))
            entry["bus_id"] = _text(asker.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link), "busId")
        found.append(entry)
    return found


def _pairs(asker: Asker, handles: list[Any]) -> list[tuple[int, int, bool]]:
    """Pairs of devices, and whether the driver lets them reach each other over NVLink; none where it does not tell."""
    index = asker.constant("NVML_P2P_CAPS_INDEX_NVLINK", 2)
    fine = asker.constant("NVML_P2P_STATUS_OK", 0)
    here = [position for position, handle in enumerate(handles) if handle is not None]
    found: list[tuple[int, int, bool]] = []
    for one, other in combinations(here, 2):
        status = asker.ask("nvmlDeviceGetP2PStatus", handles[one], handles[other], index)
        if status is not None:
            found.append((one, other, status == fine))
    return found


def main() -> None:
    """Print the survey as one line of JSON."""
    try:
        import pynvml  # noqa: PLC0415 - an optional library, and tests bring their own
    except Exception as error:  # an old binding may fail in its own ways on a new interpreter
        found: dict[str, Any] = {"error": _told(error)}
    else:
        found = survey(pynvml)
    sys.stdout.write(json.dumps(found, default=str) + "\n")


if __name__ == "__main__":
    main()
