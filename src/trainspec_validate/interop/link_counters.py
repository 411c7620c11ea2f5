"""Reads what `nvidia-smi nvlink --errorcounters` counts on each link of a GPU: recoveries, and errors without a bound.

Drivers count by the generation of NVLink: replays, recoveries and CRC errors up to NVLink 4, and on NVLink 5 packets,
recovery events, and what forward error correction (FEC) did.
"""

from __future__ import annotations

import re

from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.system.digits import is_digits

_MAX_LINE = 1_000
_MAX_FAULTS = 64
_MAX_SHOWN = 40
"""Characters of a value that are shown, where it is no number."""
_COUNTER = re.compile(r"^\s+Link (?P<link>[^\s:]{1,40}): (?P<name>[A-Za-z][^:]{1,60}):[ \t]*(?P<value>.*?)\s*$")
_NAME = re.compile(r".*\b(?:errors?|events|discards|packets|bytes|blocks|codes|ber)\b.*", re.IGNORECASE)
"""Names of counters, and not those of capabilities and remote devices."""
_FAULTS = {"recovery errors": "nvlink:recovery", "link recovery failed events": "nvlink:recovery-failed"}
"""Counts of which one is a fault. DCGM fails a GPU whose recoveries grow. Source: NVIDIA/DCGM, DcgmHealthWatch.cpp."""
_OF_SOUND_LINKS = re.compile(
    r"(?:tx|rx) (?:packets|bytes)|fec errors - [0-9]{1,2}|raw (?:ber|errors)\b.*|(?:effective|symbol) ber|plr .*"
)
"""Traffic, and errors before their correction, which sound links of NVLink 5 have."""


def is_counter(line: str) -> bool:
    """Whether a line is a counter of a link.

    >>> is_counter("   Link 0: Replay Errors: 0"), is_counter("   Link 0: 26.562 GB/s")
    (True, False)
    """
    found = _COUNTER.match(line[:_MAX_LINE])
    return found is not None and _NAME.fullmatch(found["name"]) is not None


class Counters:
    """The counters of the links of one GPU."""

    def __init__(self, device: str) -> None:
        self.num_taken = 0
        self.by_link: dict[str, int] = {}
        """Counters of each link."""
        self._last = ""
        self._device = device
        self._faults: list[str] = []
        self._open: dict[str, list[str]] = {}

    def take(self, line: str) -> None:
        """Take a line that is a counter; one that is not 0 is a fault, or its meaning is left open."""
        found = _COUNTER.match(line[:_MAX_LINE])
        if found is None:
            return
        self.num_taken += 1
        self._last = found["link"]
        self.by_link[self._last] = self.by_link.get(self._last, 0) + 1
        name, value = found["name"], found["value"][:_MAX_SHOWN] or "nothing"
        if value == "0" or _OF_SOUND_LINKS.fullmatch(name.lower()):
            return
        if name.lower() in _FAULTS and is_digits(value):
            self._faults.append(f"{_FAULTS[name.lower()]} {value} of link {found['link']}")
        else:
            self._open.setdefault(name, []).append(f"{value} of link {found['link']}")

    @property
    def of_last_link(self) -> int:
        """Counters of the link that the last one is of."""
        return self.by_link.get(self._last, 0)

    def facts(self) -> Facts:
        """The GPU with its faults, and the counters that nothing bounds, as node tools give them."""
        unread = [f"{self._device}: {name}: {', '.join(values)}" for name, values in self._open.items()]
        return {"devices": [{"name": self._device, "faults": self._faults[:_MAX_FAULTS]}], "unread": unread}
