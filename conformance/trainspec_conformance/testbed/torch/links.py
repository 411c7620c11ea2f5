"""Describes a device, and the negotiated rate of the link to its host."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

_ENCODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Share of a PCI Express lane's transfers that carry data, by its speed in 1e9 transfers per second."""


def device_facts(device: torch.device) -> dict[str, Any]:
    """Name and size of a device."""
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        return {"name": facts.name, "memory_bytes": facts.total_memory, "num_processors": facts.multi_processor_count}
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"name": names[0] if names else platform.machine(), "num_processors": os.cpu_count()}


def link_bytes_per_second(device: torch.device, devices: Path = Path("/sys/bus/pci/devices")) -> float | None:
    """Unidirectional bandwidth of an accelerator's PCI Express link, as currently negotiated."""
    facts: Any = torch.cuda.get_device_properties(device)
    address = f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"
    return negotiated(devices / address)


def negotiated(folder: Path) -> float | None:
    """Bytes per second of the link of a device, from its folder in sysfs; None where it does not say.

    Sixteen lanes of 16 GT/s carry 31.5e9 bytes per second.
    """
    try:
        speed = float((folder / "current_link_speed").read_text().split()[0])
        width = int((folder / "current_link_width").read_text())
    except (OSError, ValueError, IndexError):
        return None
    return speed * 1e9 * width * _ENCODING[speed] / 8 if speed in _ENCODING and width > 0 else None
