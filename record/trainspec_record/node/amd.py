"""Reads devices of AMD, through the files of the kernel driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainspec_record.node.source import Reading, Source, listed, read_text, read_whole, whole

VENDOR = "0x1002"
NO_COUNTER = "the kernel driver has no such file"
OWED = ("hw.gpu.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.energy", "hw.errors")
SENSORS = {"junction": "core", "mem": "memory"}
_BYTES = {"hw.gpu.memory.usage": "mem_info_vram_used", "hw.gpu.memory.limit": "mem_info_vram_total"}


def amd_source(root: Path) -> Source:
    """Every device of the driver `amdgpu` with memory of its own."""
    devices = {uuid: folder for folder in _folders(root) if (uuid := _uuid(folder))}
    if not devices:
        return Source()

    def read() -> Iterator[Reading]:
        for uuid, folder in devices.items():
            m = _values(folder)
            if m:
                yield Reading(m, device=uuid)

    told = {key.partition("{")[0] for reading in read() for key in reading.m}
    unsupported = {name: NO_COUNTER for name in OWED if name not in told}
    unsupported["train.accelerator.matrix.active"] = "the kernel driver counts no cycles of matrix units"
    declared = {"train.power.reading": "average"} if "hw.power" in told else {}
    return Source(frozenset({"device"}), read, declared=declared, unsupported=unsupported)


def _folders(root: Path) -> Iterator[Path]:
    for card in listed(root / "sys/class/drm", "card*"):
        folder = card / "device"
        if (
            card.name[4:].isdecimal()
            and read_text(folder / "vendor") == VENDOR
            and (folder / "mem_info_vram_total").exists()
        ):
            yield folder


def _uuid(folder: Path) -> str | None:
    """Identifier of the chip, as the runtime writes it; the same after a restart."""
    found = read_text(folder / "unique_id")
    return f"GPU-{found.lower()}" if found else None


def _values(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {metric: read_whole(folder / name) for metric, name in _BYTES.items()}
    busy = read_whole(folder / "gpu_busy_percent")
    found["hw.gpu.utilization"] = None if busy is None else busy / 100
    for monitor in listed(folder / "hwmon", "hwmon*")[:1]:
        found.update(_of_monitor(monitor))
    errors = _errors(folder)
    for kind, count in errors.items():
        found[f"hw.errors{{error.type={kind},hw.type=gpu}}"] = count
    return {key: value for key, value in found.items() if value is not None}


def _of_monitor(monitor: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    microwatts = read_whole(monitor / "power1_average")
    if microwatts is not None:
        found["hw.power{hw.type=gpu}"] = microwatts / 1e6
    microjoules = read_whole(monitor / "energy1_input")
    if microjoules is not None:
        found["hw.energy{hw.type=gpu}"] = microjoules / 1e6
    hertz = read_whole(monitor / "freq1_input")
    if hertz is not None:
        found["train.accelerator.clock.frequency"] = hertz
    for label in listed(monitor, "temp*_label"):
        sensor = SENSORS.get(read_text(label) or "")
        millidegrees = read_whole(monitor / label.name.replace("label", "input"))
        if sensor and millidegrees is not None:
            found[f"hw.temperature{{hw.sensor_location={sensor}}}"] = millidegrees / 1000
    return found


def _errors(folder: Path) -> dict[str, int]:
    """Errors by type, over all blocks of the chip that count them."""
    found: dict[str, int] = {}
    for path in listed(folder / "ras", "*_err_count"):
        for line in (read_text(path) or "").splitlines():
            kind, _, text = line.partition(":")
            told, count = {"ue": "uncorrected", "ce": "corrected"}.get(kind.strip()), whole(text)
            if told and count is not None and count >= 0:
                found[told] = found.get(told, 0) + count
    return found
