"""Reads the energy and power of a whole node, and of its processors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainspec_record.node.source import Reading, Source, listed, read_text, read_whole

POWER, ENERGY = "hw.power{hw.type=enclosure}", "hw.energy{hw.type=enclosure}"
PROCESSORS = "linux.powercap.energy"
"""Energy of processor packages, which are no accelerators and not the whole node: no metric of the catalog."""
EXTENSION = {
    "unit": "J",
    "instrument": "counter",
    "description": "Energy of a zone of the powercap interface of Linux.",
}


def power_source(root: Path) -> Source:
    """Power of the node from its meter, its energy where the platform counts it, and energy of its processors."""
    zones = {
        name: _Unwrapped(folder)
        for folder in listed(root / "sys/class/powercap", "intel-rapl:*")
        if folder.name.count(":") == 1 and (name := read_text(folder / "name"))
        if read_whole(folder / "energy_uj") is not None
    }
    folders = [folder for folder in listed(root / "sys/class/hwmon") if read_text(folder / "name") == "power_meter"]
    meters = [folder for folder in folders if read_whole(folder / "power1_average") is not None]
    whole = zones.pop("psys", None)
    if not zones and not meters and whole is None:
        return Source()

    def read() -> Iterator[Reading]:
        m: dict[str, Any] = {
            f"{PROCESSORS}{{linux.powercap.zone={name}}}": zone.joules() for name, zone in zones.items()
        }
        m[ENERGY] = whole.joules() if whole else None
        watts = read_whole(meters[0] / "power1_average") if meters else None
        m[POWER] = None if watts is None else watts / 1e6
        told = {key: value for key, value in m.items() if value is not None}
        if told:
            yield Reading(told)

    return Source(
        frozenset({"node"}),
        read,
        declared={"train.power.reading": "average"} if meters else {},
        extension_metrics={PROCESSORS: EXTENSION} if zones else {},
    )


class _Unwrapped:
    """A counter of microjoules that starts again at a limit, as one that does not."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "energy_uj"
        self._limit = read_whole(folder / "max_energy_range_uj") or 0
        self._last = 0
        self._turns = 0

    def joules(self) -> float | None:
        """Energy since the counter began."""
        found = read_whole(self._path)
        if found is None:
            return None
        self._turns += found < self._last
        self._last = found
        return (found + self._turns * self._limit) / 1e6
