"""Measures the machine for a probe: its kernels, and its energy under load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainspec_conformance.testbed.probe_arrays import ProbeInputError, Request
from trainspec_conformance.testbed.probe_parts import Probes, UnsupportedError
from trainspec_record.node.nvml import binding, nvml_source
from trainspec_record.node.power import power_source
from trainspec_record.node.source import Source

_LONGEST_SECONDS = 120.0
_SETTLE_SECONDS = 2.0
"""Load before the first reading: NVML's power is the mean of the last second on some devices, so that the rise of the
load would be missing from the sum of readings and not from the counter. Source: arXiv:2312.02741, table 1."""


def kernels(request: Request, probes: Probes) -> dict[str, Any]:  # noqa: ARG001 - nothing is chosen
    """Median times of kernels and of the rooflines of the same run."""
    return probes.kernels()


@dataclass(frozen=True, slots=True)
class _Moment:
    seconds: float
    joules: float | None
    watts: float | None


def energy(request: Request, probes: Probes) -> dict[str, Any]:
    """Counter and power of one device or node, as the recorder reads them, while the device that trains works."""
    wanted, interval = request.get("seconds", float), request.get("interval_seconds", float, 0.1)
    if not 0 < interval <= wanted <= _LONGEST_SECONDS:
        raise ProbeInputError(f"the load lasts between an interval and {_LONGEST_SECONDS:g} s")
    source, subject = _metered(probes.device_uuid())
    settled = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < settled:
        probes.work()
    found = list(_under_load(source, subject, probes, wanted, interval))
    return {
        "subject": subject or "node",
        "seconds": [one.seconds for one in found],
        "joules": [one.joules for one in found],
        "watts": [one.watts for one in found],
    }


def _metered(device: str | None) -> tuple[Source, str | None]:
    """A reader, and the subject of which it gives both energy and power: the named device, where one is named."""
    for source in (nvml_source(binding()), power_source(Path("/"))):
        if source.read is None:
            continue
        for reading in source.read():
            is_other = None not in (device, reading.device) and device != reading.device
            if not is_other and {"hw.energy", "hw.power"} <= {name.partition("{")[0] for name in reading.m}:
                return source, reading.device
    raise UnsupportedError("this machine does not have both an energy counter and a readable power meter")


def _under_load(
    source: Source, subject: str | None, probes: Probes, wanted: float, interval: float
) -> Iterator[_Moment]:
    began, due = time.monotonic(), 0.0
    while True:
        passed = time.monotonic() - began
        if passed >= due:
            yield _moment(source, subject, passed)
            due = passed + interval
        if passed > wanted:
            return
        probes.work()


def _moment(source: Source, subject: str | None, seconds: float) -> _Moment:
    values: dict[str, float] = {}
    for reading in source.read() if source.read is not None else ():
        if reading.device == subject:
            values.update({name.partition("{")[0]: value for name, value in reading.m.items()})
    return _Moment(seconds, values.get("hw.energy"), values.get("hw.power"))
