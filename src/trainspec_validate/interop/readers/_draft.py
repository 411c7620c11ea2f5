"""Collects what a node-level reader finds, key by key, and hands it over as a fragment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from trainspec_validate.interop.fragment import ForeignText, Fragment, Remark, Unknown
from trainspec_validate.model.finding import Pointer

GROUP = "nodes"
"""Name of the one node group that a description of one node fills."""
NODE = "node-0"
"""Name of the one explicit node."""
MAX_DEVICES = 1024
_IN_GROUP: Pointer = ("node_groups", 0)
COUNT: Pointer = (*_IN_GROUP, "num_accelerators_per_node")
_ONE_NODE = "the source describes one node; count them in the scheduler or the inventory"
_MAX_REMARKS = 100


class Draft:
    """Facts, unknowns and remarks of one source that describes one node."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"node_groups": [{"name": GROUP}]}
        self._unknown: dict[Pointer, str] = {}
        self._remarks: dict[str, tuple[int | None, dict[str, None], Pointer]] = {}
        self._derived: dict[Pointer, str] = {("node_groups", 0, "name"): "a label for the one node group"}
        self._num_more = 0
        self._unread: set[str] = set()
        self._devices: list[dict[str, Any]] = []
        self.partial = False
        """Whether the source may show a part of the devices of the node."""
        self.unknown(("num_nodes",), _ONE_NODE)
        self.unknown(("num_accelerators",), _ONE_NODE)
        self.unknown((*_IN_GROUP, "num_nodes"), _ONE_NODE)

    def fact(self, pointer: Pointer, value: Any, how: str | None = None) -> None:
        """Records a value; `how` says its derivation where the source does not write it word for word."""
        place: Any = self._facts
        for key, following in pairwise(pointer):
            place = _step(place, key, [] if isinstance(following, int) else {})
        last = pointer[-1]
        if isinstance(last, int):
            _step(place, last, value)
        else:
            place[last] = value
        self._unknown.pop(pointer, None)
        if how is not None:
            self._derived[pointer] = how

    def group(self, *path: str | int, value: Any, how: str | None = None) -> None:
        """Records a value of the node group."""
        self.fact((*_IN_GROUP, *path), value, how)

    def unknown(self, pointer: Pointer, reason: str) -> None:
        """Records that the source cannot state a key; a fact about it wins."""
        self._unknown.setdefault(pointer, reason)

    def group_unknown(self, *path: str | int, reason: str) -> None:
        """Records that the source cannot state a key of the node group."""
        self.unknown((*_IN_GROUP, *path), reason)

    def uncount(self, reason: str) -> None:
        """Leaves open after all how many accelerators the node has, and with it which."""
        self._facts.pop("layout", None)
        self._facts["node_groups"][0].pop(COUNT[-1], None)
        self._derived = {place: how for place, how in self._derived.items() if place != COUNT and place[0] != "layout"}
        self.unknown(COUNT, reason)

    def device(self, position: int, **facts: Any) -> None:
        """Records facts of one accelerator, which may differ from the others; None is not stated."""
        while len(self._devices) <= position:
            self._devices.append({})
        self._devices[position] |= {key: value for key, value in facts.items() if value is not None}

    def remark(self, message: str, line: int | None = None, *, about: str | None = None, pointer: Pointer = ()) -> None:
        """Records an oddity once, with the devices that it is about; beyond a hundred only their number is kept."""
        self._remark(message, line, about, pointer)

    def unread(self, value: str, line: int | None = None, *, about: str | None = None) -> None:
        """Records a value that the source states and that cannot be, such as `memory NaN`."""
        message = f"has a value that cannot be: {value}"
        self._unread.add(message)
        self._remark(message, line, about, ())

    def _remark(self, message: str, line: int | None, about: str | None, pointer: Pointer) -> None:
        if message not in self._remarks and len(self._remarks) >= _MAX_REMARKS:
            self._num_more += 1
            return
        _, names, _ = self._remarks.setdefault(message, (line, {}, pointer))
        if about is not None:
            names.setdefault(about)

    def fragment(self, format_name: str, text: ForeignText) -> Fragment:
        """Everything recorded, as the fragment of a text."""
        remarks = [
            Remark(f"{shown(list(names))}: {message}" if names else message, line, pointer, message in self._unread)
            for message, (line, names, pointer) in self._remarks.items()
        ]
        if self._num_more:
            has_unread = len(self._unread) > len(self._unread.intersection(self._remarks))
            remarks.append(Remark(f"{self._num_more:,} more remarks are left out", is_unread=has_unread))
        return Fragment(
            kind="ClusterProfile",
            format=format_name,
            name=text.name,
            facts=self._facts,
            unknown=tuple(
                Unknown(pointer, reason)
                for pointer, reason in self._unknown.items()
                if not _present(self._facts, pointer)
            ),
            remarks=tuple(remarks),
            derived=dict(self._derived),
            devices=tuple(self._devices),
            partial=self.partial,
        )


def _present(facts: Any, pointer: Pointer) -> bool:
    """Whether facts hold a key, be it in part."""
    place = facts
    for key in pointer:
        if isinstance(key, int):
            if not isinstance(place, list) or key >= len(place):
                return False
        elif not isinstance(place, dict) or key not in place:
            return False
        place = place[key]
    return True


def _step(place: Any, key: str | int, empty: Any) -> Any:
    if isinstance(key, int):
        if key == len(place):
            place.append(empty)
        return place[key]
    return place.setdefault(key, empty)


def shown(names: Sequence[str]) -> str:
    """Names for a message, the first eight of them.

    >>> shown(["a", "b"])
    'a, b'
    """
    first = ", ".join(names[:8])
    return first if len(names) <= 8 else f"{first} and {len(names) - 8} more"


def as_name(text: str, fallback: str) -> str:
    """A text as a name of the schema: other characters become hyphens, and it starts with a letter or digit.

    >>> as_name("0000:10:1b.0", "device")
    '0000-10-1b.0'
    """
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", text)[:128].strip("-._+")
    return name or fallback


def plain_int(text: str | None, low: int, high: int) -> int | None:
    """A decimal whole number within bounds; None for anything else.

    >>> plain_int(" 16 ", 1, 64), plain_int("x16", 1, 64), plain_int("0", 1, 64)
    (16, None, None)
    """
    if text is None or not re.fullmatch(r"\s*[0-9]{1,18}\s*", text, re.ASCII):
        return None
    value = int(text)
    return value if low <= value <= high else None


def plain_float(text: str | None, low: float, high: float) -> float | None:
    """A decimal number within bounds; None for anything else.

    >>> plain_float("700.00", 10, 50_000), plain_float("[N/A]", 10, 50_000)
    (700.0, None)
    """
    if text is None or not re.fullmatch(r"\s*[0-9]{1,18}(\.[0-9]{0,18})?\s*", text, re.ASCII):
        return None
    value = float(text)
    return value if low <= value <= high else None
