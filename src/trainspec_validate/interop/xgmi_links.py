"""Reads the states of scale-up links that `amd-smi xgmi --link-status` prints for each AMD GPU."""

from __future__ import annotations

import re

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.gpu_report import Facts

_MAX_LINE = 1_000
_MAX_DEVICES = 1_024
_HEAD = re.compile(r"^XGMI LINK STATUS:[ \t]*\n[ \t]*bdf[ \t]+(?P<columns>[^\n]{1,1000})$", re.MULTILINE)
_ROW = re.compile(
    r"\s*GPU(?P<index>[0-9]{1,4})\s+(?P<address>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(?P<rest>\S.*)"
)
_BEGUN = re.compile(r"\s*GPU[0-9]{1,4}\b")
_STATES = frozenset({"U", "D", "X", "SELF"})
"""Up, down, disabled, and the place of the GPU itself in the form with a column for each GPU."""
_NUM_STATES = 8
"""amd-smi prints as many as there are GPUs, and at most so many: with fewer, links of a GPU may be absent."""


def is_table(text: str) -> bool:
    """Whether a text has the states of links."""
    return _HEAD.search(text) is not None


def read(text: str) -> Facts:
    """The number of links that are up of each GPU, and states that say nothing of it.

    Format: ROCm/rocm-systems, projects/amdsmi/CHANGELOG.md, in ROCm 6.4 (`link_status`) and later (a column for each
    GPU). Virtual functions showed all links as down before they showed `N/A`, so that such a GPU is left open.

    Raises:
        ForeignFormatError: a row has no address, or fewer states than another, so that a part of the output is lost.
    """
    head = _HEAD.search(text)
    body = text[head.end() :] if head is not None else ""
    rows: list[tuple[str, list[str]]] = []
    for line in body.split("\n"):
        row = _ROW.fullmatch(line[:_MAX_LINE])
        if row is not None:
            rows.append((f"GPU {row['index']}", row["rest"].split()))
        elif _BEGUN.match(line):
            raise ForeignFormatError(f"is cut off at {line.strip()[:60]!r}", help="copy the whole output")
        elif rows and line.strip():
            break
    most = max((len(states) for _, states in rows), default=0)
    if not rows or any(len(states) < most for _, states in rows) or not body.rstrip(" ").endswith("\n"):
        raise ForeignFormatError("is cut off: GPUs, or states of their links, are absent", help="copy the whole output")
    devices: list[Facts] = []
    unread: list[str] = []
    for name, states in rows[:_MAX_DEVICES]:
        if reason := _open(states):
            unread.append(f"links of {name}: {reason}")
        else:
            devices.append({"name": name, "num_active_links": states.count("U")})
    return {"devices": devices, "unread": unread}


def _open(states: list[str]) -> str:
    """Why the states do not say how many links are up; empty where they do."""
    odd = next((one for one in states if one not in _STATES), None)
    if odd is not None:
        return f"the state {odd[:40]}"
    if "U" not in states:
        return "none is up, as virtual functions also show it"
    return f"{len(states)} states, of {_NUM_STATES}" if len(states) < _NUM_STATES else ""
