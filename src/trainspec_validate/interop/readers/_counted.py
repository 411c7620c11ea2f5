"""Counts the devices of one node in a list that may show a device several times, or not all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.readers._draft import plain_int, shown

_NAMES = {"uuid": ("uuid", "gpu_uuid"), "pci.bus_id": ("pci.bus_id", "gpu_bus_id"), "index": ("index",)}
"""Fields that identify a device, the strictest first, each with the titles that the tool has for it."""
_NONE = re.compile(r"|\[?(?:n/a|unknown error|not supported)\b.*", re.IGNORECASE | re.DOTALL)
_MAX_DIGITS = 10**18 - 1

Row = Mapping[str, str | None]
"""Fields of one listed device."""


@dataclass(frozen=True, slots=True)
class Counted:
    """How many devices a list shows."""

    num_devices: int | None
    """Distinct devices; None where the list leaves their number open."""
    firsts: tuple[int, ...]
    """Positions of the rows that show a device for the first time; all rows where nothing identifies them."""
    remark: str = ""
    """Why the number is open, or which devices the list repeats; empty for each device once, or equally often."""
    how: str | None = None
    """How rows make devices, where every device is listed equally often, as by a loop."""


def counted(rows: Sequence[Row], attached: str | None = None, *, is_sampled: bool = True) -> Counted:
    """Count the distinct devices of rows: by their UUIDs, else their PCI addresses, else their indices.

    `attached` is the number of devices that the list states, as written. Rows without such a field may be samples of
    fewer devices where the tool can repeat a list (`is_sampled`), and then their number is open.
    """
    kind, names = _identities(rows)
    if kind is None and is_sampled and len(rows) > 1:
        reason = f"no column identifies the devices of {len(rows):,} rows; query index or uuid too"
        return Counted(None, tuple(range(len(rows))), reason)
    position: dict[str, int] = {}
    for k, name in enumerate(names):
        position.setdefault(name, k)
    times = Counter(names)
    repeated = [name for name in times if times[name] > 1]
    most, is_even = max(times.values(), default=1), len(set(times.values())) == 1
    remark, how = "", None
    if repeated and is_even:
        how = f"{len(times)} devices, each of them listed {most} times"
    elif repeated:
        often = "twice" if most == 2 else "several times"
        remark = f"{kind} {shown(repeated)} {'is' if len(repeated) == 1 else 'are'} listed {often}"
    firsts = tuple(position.values())
    open_reason = _mismatch(len(times), attached)
    if open_reason:
        return Counted(None, firsts, "; ".join(filter(None, (open_reason, remark))))
    return Counted(len(times), firsts, remark, how)


def _identities(rows: Sequence[Row]) -> tuple[str | None, list[str]]:
    """The field that identifies every row, and its values; positions where there is none."""
    for kind, titles in _NAMES.items():
        values = [next((row[title] or "" for title in titles if title in row), "").strip() for row in rows]
        if rows and not any(_NONE.fullmatch(value) for value in values):
            return kind, [value.lower() if kind == "pci.bus_id" else value for value in values]
    return None, [str(k) for k in range(len(rows))]


def _mismatch(num_devices: int, attached: str | None) -> str:
    """Why a stated number of devices leaves their number open; empty where it is that of the list, or not stated."""
    if attached is None:
        return ""
    stated = plain_int(attached, 0, _MAX_DIGITS)
    if stated is None:
        return f"the number of attached GPUs is {attached[:32]!r}, which is no whole number"
    return "" if stated == num_devices else f"the file lists {num_devices} of {stated} attached GPUs"
