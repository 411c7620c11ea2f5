"""Reads devices of NVIDIA, through the binding of NVML where one is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_record.node.source import Reading, Source

MAX_DEVICES = 256
BLANK = 2**31 - 1024
"""Numbers from here on to 2**31 - 1, and their likes of 64 bits, are codes of a driver that has no value."""
NOT_TOLD = "the driver does not report it"
NEEDS_PROFILER = "NVML reports it only for a whole window, by counters that a profiler may hold"
OWED = ("hw.gpu.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.energy", "hw.errors")


def binding() -> Any:
    """The module `pynvml`, started; None where it is not installed, or finds no driver."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    try:
        found = importlib.import_module("pynvml")
        found.nvmlInit()
    except Exception:  # noqa: BLE001, RUF100 - it raises what the driver and ctypes make it raise
        return None
    return found


def nvml_source(nvml: Any) -> Source:
    """Every device that the driver lists, with what it reports about itself now."""
    if nvml is None:
        return Source()
    asker = _Asker(nvml)
    count = min(asker.ask("nvmlDeviceGetCount") or 0, MAX_DEVICES)
    handles = [asker.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    devices = {uuid: handle for handle in handles if handle is not None and (uuid := asker.uuid(handle))}
    if not devices:
        return Source()
    matrix = {uuid: _Window(nvml, handle) for uuid, handle in devices.items()}

    def read() -> Iterator[Reading]:
        for uuid, handle in devices.items():
            m = _values(asker, handle) | matrix[uuid].values()
            if m:
                yield Reading(m, device=uuid)

    told = {key.partition("{")[0] for reading in read() for key in reading.m}
    unsupported = {name: NOT_TOLD for name in OWED if name not in told}
    if not all(window.works for window in matrix.values()):
        unsupported["train.accelerator.matrix.active"] = NEEDS_PROFILER
    return Source(
        frozenset({"device"}),
        read,
        declared={"train.power.reading": "average"} if "hw.power" in told else {},
        unsupported=unsupported,
        close=lambda: asker.ask("nvmlShutdown"),
    )


def device_uuid(environment: Mapping[str, str], local_rank: int) -> str | None:
    """UUID of the device of a rank, where the driver reports it; no context is made on the device."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    entries = [entry.strip() for entry in visible.split(",")] if visible else []
    index = entries[local_rank] if local_rank < len(entries) else entries[0] if len(entries) == 1 else str(local_rank)
    if not index.isdecimal() or visible == "":
        return None
    nvml = binding()
    if nvml is None:
        return None
    asker = _Asker(nvml)
    handle = asker.ask("nvmlDeviceGetHandleByIndex", int(index))
    uuid = asker.uuid(handle) if handle is not None else None
    asker.ask("nvmlShutdown")
    return uuid


class _Asker:
    """Calls the binding; None is the answer where it fails, or has no value."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def ask(self, function: str, *arguments: Any) -> Any:
        """What a function returns."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except Exception:  # noqa: BLE001, RUF100 - it raises what the driver and ctypes make it raise
            return None

    def number(self, function: str, *arguments: Any) -> int | None:
        """A number that a function returns; codes for no value are none."""
        found = self.ask(function, *arguments)
        if not isinstance(found, int) or found < 0 or BLANK <= found < 2**31 or found >= 2**63 - 1024:
            return None
        return found

    def uuid(self, handle: Any) -> str | None:
        """Name of a device that survives a restart."""
        found = self.ask("nvmlDeviceGetUUID", handle)
        return found.decode("ascii", "replace") if isinstance(found, bytes) else found


def _values(asker: _Asker, handle: Any) -> dict[str, Any]:
    """What one device tells, in the units of the catalog."""
    nvml = asker.nvml
    rates = asker.ask("nvmlDeviceGetUtilizationRates", handle)
    memory = asker.ask("nvmlDeviceGetMemoryInfo", handle)
    found = {
        "hw.gpu.utilization": _scaled(getattr(rates, "gpu", None), 0.01),
        "hw.gpu.memory.limit": getattr(memory, "total", None),
        "hw.gpu.memory.usage": _used(memory),
        "hw.power{hw.type=gpu}": _scaled(asker.number("nvmlDeviceGetPowerUsage", handle), 1e-3),
        "hw.energy{hw.type=gpu}": _scaled(asker.number("nvmlDeviceGetTotalEnergyConsumption", handle), 1e-3),
        "hw.temperature{hw.sensor_location=core}": asker.number("nvmlDeviceGetTemperature", handle, 0),
        "train.accelerator.clock.frequency": _scaled(
            asker.number("nvmlDeviceGetClockInfo", handle, getattr(nvml, "NVML_CLOCK_SM", 1)), 1e6
        ),
        "hw.errors{error.type=replay,hw.type=gpu}": asker.number("nvmlDeviceGetPcieReplayCounter", handle),
    }
    for kind, code in (("corrected", 0), ("uncorrected", 1)):
        count = asker.number("nvmlDeviceGetTotalEccErrors", handle, code, 0)
        found[f"hw.errors{{error.type={kind},hw.type=gpu}}"] = count
    return {key: value for key, value in found.items() if value is not None}


def _used(memory: Any) -> int | None:
    """Memory that is taken, with what the driver reserves."""
    total, free = getattr(memory, "total", None), getattr(memory, "free", None)
    return None if total is None or free is None else max(0, total - free)


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


class _Window:
    """Share of the cycles between two readings in which matrix units were active, where the device counts it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._asker, self._handle = _Asker(nvml), handle
        self._metric = getattr(nvml, "NVML_GPM_METRIC_ANY_TENSOR_UTIL", None)
        support = self._asker.ask("nvmlGpmQueryDeviceSupport", handle)
        self.works = self._metric is not None and bool(getattr(support, "isSupportedDevice", 0))
        self._last = self._sample() if self.works else None
        self.works = self._last is not None

    def _sample(self) -> Any:
        sample = self._asker.ask("nvmlGpmSampleAlloc")
        if sample is None:
            return None
        taken = self._asker.ask("nvmlGpmSampleGet", self._handle, sample)
        if taken is None:
            self._asker.ask("nvmlGpmSampleFree", sample)
        return taken

    def values(self) -> dict[str, Any]:
        """The share since the reading before."""
        if not self.works:
            return {}
        before, self._last = self._last, self._sample()
        if before is None or self._last is None:
            return {}
        found = self._between(before, self._last)
        self._asker.ask("nvmlGpmSampleFree", before)
        if found is None or not 0 <= found <= 100:
            return {}
        return {"train.accelerator.matrix.active": found / 100}

    def _between(self, before: Any, now: Any) -> float | None:
        asked = self._asker.ask("c_nvmlGpmMetricsGet_t")
        if asked is None:
            return None
        asked.version = getattr(self._asker.nvml, "NVML_GPM_METRICS_GET_VERSION", 1)
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId = self._metric
        if self._asker.ask("nvmlGpmMetricsGet", asked) is None or asked.metrics[0].nvmlReturn != 0:
            return None
        return float(asked.metrics[0].value)
