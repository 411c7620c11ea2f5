"""Takes the values and the errors of one GPU from its part of a report of `nvidia-smi -q`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.model.smi_report import Tree, entry, faults, num_errors, slowdowns
from trainspec_validate.telemetry.formats import keys

SINCE_LOAD = ("hw.errors", "train.accelerator.throttle.time")
"""Metrics that count from the load of the driver, or a reset of the device."""
UNCORRECTED = "ecc:uncorrected"
_HELD = "throttle:hardware"
_OF_HARDWARE = frozenset({"throttle:thermal", "throttle:power-brake"})
_NO_ERRORS = frozenset({"mig:enabled", "fabric:not-started", "fabric:in-progress"})
"""What is a fault of a machine that is to be accepted, and no error of a device."""
_FATAL = re.compile(
    r"reset:required|driver:(?:gpu-is-lost|no-handle)|recovery-action:(?:gpu-)?(?:node-)?(?:reset|reboot)"
)
"""After these the device is not used before it is reset, or the machine started again; NVIDIA GPU Memory Error
Management, "Error Recovery and Response Flags"."""
_REASONS: Mapping[str, tuple[str, ...]] = {
    "power": ("sw_power_cap", "hw_power_brake_slowdown"),
    "thermal": ("sw_thermal_slowdown", "hw_thermal_slowdown"),
    "sync": ("sync_boost",),
    "hardware": ("hw_slowdown",),
}
"""Entries by the reason of this specification, as for the bits of the same names; nvml.h, nvmlClocksEventReasons."""
_TIMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "power": (("sw_power_capping", "sw_power_cap"), ("hw_power_braking", "hw_power_brake")),
    "thermal": (("sw_thermal_slowdown", "sw_therm_slowdown"), ("hw_thermal_slowdown", "hw_therm_slowdown")),
    "sync": (("sync_boost",),),
}
"""The names of each counter in text and XML, by reason."""
_COUNTERS = "clocks_event_reasons_counters"
_NUMBER = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?P<unit>[A-Za-z%]{0,6})")
_UNITS = {"W": 1.0, "C": 1.0, "%": 0.01, "MHz": 1e6, "MiB": 2.0**20, "us": 1e-6, "": 1.0}
_PLAIN: tuple[tuple[str, Mapping[str, str], str, tuple[tuple[str, ...], ...]], ...] = (
    (
        "hw.errors",
        {"error.type": "replay", "hw.type": "gpu"},
        "",
        (("pci", "replays_since_reset"), ("pci", "replay_counter")),
    ),
    ("hw.gpu.utilization", {}, "%", (("utilization", "gpu"), ("utilization", "gpu_util"))),
    (
        "hw.power",
        {"hw.type": "gpu"},
        "W",
        tuple(
            (section, name)
            for section in ("gpu_power_readings", "power_readings")
            for name in ("average_power_draw", "power_draw")
        ),
    ),
    (
        "hw.temperature",
        {"hw.sensor_location": "core"},
        "C",
        (("temperature", "gpu_current_temp"), ("temperature", "gpu_temp")),
    ),
    (
        "hw.temperature",
        {"hw.sensor_location": "memory"},
        "C",
        (("temperature", "memory_current_temp"), ("temperature", "memory_temp")),
    ),
    ("train.accelerator.clock.frequency", {}, "MHz", (("clocks", "sm"), ("clocks", "sm_clock"))),
    ("hw.gpu.memory.limit", {}, "MiB", (("fb_memory_usage", "total"),)),
    *(
        (
            "train.accelerator.memory.remapped_rows",
            {"error.type": kind},
            "",
            (("remapped_rows", f"{word}_error"), ("remapped_rows", f"remapped_row_{short}")),
        )
        for kind, word, short in (("corrected", "correctable", "corr"), ("uncorrected", "uncorrectable", "unc"))
    ),
)
"""Metric, series attributes, unit of the report, and where the value is in text and XML."""


def values_of(tree: Tree) -> dict[str, float]:
    """The values of a GPU by their keys; those that the report does not state are left out."""
    found = {}
    for metric, attributes, unit, paths in _PLAIN:
        values = (_number(entry(tree, *path), unit) for path in paths)
        value = next((value for value in values if value is not None), None)
        if value is not None:
            found[keys.join(metric, attributes)] = value
    free, total = _number(entry(tree, "fb_memory_usage", "free"), "MiB"), found.get("hw.gpu.memory.limit")
    if free is not None and total is not None and free <= total:
        found["hw.gpu.memory.usage"] = total - free  # older drivers count what they reserve as used, newer ones do not
    for kind in ("uncorrected", "corrected"):
        number = num_errors(tree, kind)
        if number is not None:
            found[keys.join("hw.errors", {"error.type": kind, "hw.type": "gpu"})] = float(number)
    return found | dict(_throttled(tree)) | dict(_throttle_times(tree))


def _number(text: str | None, unit: str) -> float | None:
    """A value in base units; None where it is in another unit than is known.

    >>> _number("81559 MiB", "MiB"), _number("45 W", "MHz"), _number(None, "")
    (85520809984.0, None, None)
    """
    match = _NUMBER.fullmatch(text or "")
    return float(match["number"]) * _UNITS[unit] if match and match["unit"] == unit else None


def _throttled(tree: Tree) -> Iterator[tuple[str, float]]:
    """1 for each reason that holds the clock down, and 0 for the others that the report states."""
    stated = {name: value == "Active" for name, value in slowdowns(tree) if value in {"Active", "Not Active"}}
    for reason, names in _REASONS.items():
        found = [stated[name] for name in names if name in stated]
        if found:
            yield keys.join("train.accelerator.throttled", {"train.throttle.reason": reason}), float(any(found))


def _throttle_times(tree: Tree) -> Iterator[tuple[str, float]]:
    """Times for which the clock was held down; two that are both above 0 may overlap, so their reason has none."""
    for reason, counters in _TIMES.items():
        found = []
        for names in counters:
            texts = (entry(tree, _COUNTERS, form) for name in names for form in (name, f"{_COUNTERS}_{name}"))
            found += [value for text in texts if (value := _number(text, "us")) is not None]
        if found and sum(value > 0 for value in found) < 2:
            yield keys.join("train.accelerator.throttle.time", {"train.throttle.reason": reason}), max(found)


def codes_of(tree: Tree) -> set[str]:
    """The errors of a GPU that hold at the time of the report, without those that only a count shows.

    >>> codes_of({"clocks_throttle_reasons": {"hw_slowdown": "Active", "hw_thermal_slowdown": "Active"}})
    {'throttle:thermal'}
    """
    found = set(faults(tree)) - _NO_ERRORS
    is_held = any(name == "hw_slowdown" and value == "Active" for name, value in slowdowns(tree))
    return found | ({_HELD} if is_held and found.isdisjoint(_OF_HARDWARE) else set())


def severity(code: str) -> str | None:
    """How bad an error is; None where the report does not say so.

    >>> severity("reset:required"), severity("recovery-action:drain-and-reset"), severity("row-remap:pending")
    ('fatal', None, None)
    """
    return "fatal" if _FATAL.fullmatch(code) else None
