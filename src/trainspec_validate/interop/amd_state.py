"""Reads lanes of host links and slowdowns that `amd-smi metric --pcie --throttle` prints for each AMD GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.system.digits import is_digits

_MAX_LINE = 1_000
_MAX_DEVICES = 1_024
_MAX_LANES = 64
_GPU = re.compile(r"^GPU: (?P<index>[0-9]{1,4})\s*$")
_SECTION = re.compile(r"^\s+(?P<name>PCIE|THROTTLE):\s*$", re.MULTILINE)
_HEAD = re.compile(r"\s+[A-Z][A-Z0-9_]{1,40}:\s*")
_FIELD = re.compile(r"\s+(?P<name>[A-Z][A-Z0-9_]{1,60}): (?P<value>\S.{0,60}?)\s*")
_SLOWDOWNS = {
    "PROCHOT_VIOLATION_STATUS": "throttle:prochot",
    "SOCKET_THERMAL_VIOLATION_STATUS": "throttle:thermal",
    "VR_THERMAL_VIOLATION_STATUS": "throttle:thermal of the voltage regulators",
    "HBM_THERMAL_VIOLATION_STATUS": "throttle:thermal of the memory",
}
"""A limit of power (`PPT`) slows down a sound GPU."""
_IS_ACTIVE = {"ACTIVE": True, "NOT ACTIVE": False}


@dataclass(slots=True)
class _Gpu:
    name: str
    lanes: int | None = None
    slowdowns: dict[str, bool] = field(default_factory=dict)

    def sections(self) -> tuple[bool, bool]:
        return self.lanes is not None, len(self.slowdowns) == len(_SLOWDOWNS)

    def device(self) -> Facts:
        found: Facts = {
            "name": self.name,
            "faults": [_SLOWDOWNS[key] for key, is_so in self.slowdowns.items() if is_so],
        }
        return found if self.lanes is None else {**found, "host_link_num_lanes": self.lanes}


def is_metric(text: str) -> bool:
    """Whether a text has the host links or the slowdowns of AMD GPUs."""
    return _SECTION.search(text) is not None and any(_GPU.match(line) for line in text.split("\n"))


def read(text: str) -> Facts:
    """The lanes in use and the slowdowns of each GPU; a value such as `N/A` is left open.

    Format: ROCm/amdsmi, CHANGELOG.md, ROCm 6.3. GPUs have no names but their index.

    Raises:
        ForeignFormatError: the last line has no end, or the last GPU lacks what the others have.
    """
    gpus: list[_Gpu] = []
    section, line = "", ""
    for line in text.split("\n"):
        words = line[:_MAX_LINE]
        if found := _GPU.match(words):
            gpus.append(_Gpu(f"GPU {found['index']}"))
            section = ""
        elif _HEAD.fullmatch(words):
            section = words.strip()
        elif gpus and (found := _FIELD.fullmatch(words)):
            _take(gpus[-1], section, found["name"], found["value"])
    lacking = [gpu.name for gpu in gpus[-1:] if gpu.sections() != gpus[0].sections()]
    if lacking or _FIELD.fullmatch(line[:_MAX_LINE]):
        message = f"is cut off: {gpus[-1].name} lacks what the others have, or its last line has no end"
        raise ForeignFormatError(message, help="copy the whole output")
    stated = [
        part
        for number, part in enumerate(("host links", "slowdowns"))
        if gpus and all(gpu.sections()[number] for gpu in gpus)
    ]
    devices = [gpu.device() for gpu in gpus[:_MAX_DEVICES]]
    return {"devices": devices, "stated": stated, **({"num_stated": len(gpus)} if stated else {})}


def _take(gpu: _Gpu, section: str, name: str, value: str) -> None:
    if section == "PCIE:" and name == "WIDTH" and is_digits(value) and 0 < int(value) <= _MAX_LANES:
        gpu.lanes = int(value)
    elif section == "THROTTLE:" and name in _SLOWDOWNS and value in _IS_ACTIVE:
        gpu.slowdowns[name] = _IS_ACTIVE[value]
