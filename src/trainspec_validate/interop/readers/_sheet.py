"""Collects what a network, system or log reader finds, and keeps out what no key takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from trainspec_validate.documents.load import LoadError, load_text
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment, Kind, Remark, Unknown
from trainspec_validate.interop.shape import fitting
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import bare

MAX_REMARKS = 100
_MAX_KEYS = 12
_MAX_NAME = 128
_MAX_TEXT = 400
_NO_NAME = re.compile(r"[^A-Za-z0-9._+-]+")


class Sheet:
    """Facts, unknowns and remarks of one source, collected key by key."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self._unknown: dict[Pointer, str] = {}
        self._remarks: dict[str, Remark] = {}
        self._derived: dict[Pointer, str] = {}
        self._num_more = 0

    def put(self, pointer: Pointer, value: Any, derived: str = "") -> None:
        """Record a value; `derived` says how it follows where the source does not say it word for word."""
        place: Any = self.facts
        for key, following in pairwise(pointer):
            empty: Any = [] if isinstance(following, int) else {}
            if isinstance(key, int):
                if key == len(place):
                    place.append(empty)
                place = place[key]
            else:
                place = place.setdefault(key, empty)
        last = pointer[-1]
        if isinstance(last, int) and last == len(place):
            place.append(value)
        else:
            place[last] = value
        self._unknown.pop(pointer, None)
        if derived:
            self._derived[pointer] = derived

    def unknown(self, pointer: Pointer, reason: str) -> None:
        """Record that the source cannot state a key; the first reason stays."""
        self._unknown.setdefault(pointer, reason)

    def remark(self, message: str, line: int | None = None) -> None:
        """Record an oddity once; beyond a hundred only their number is kept."""
        message = plain_text(message)
        if message in self._remarks:
            return
        if len(self._remarks) >= MAX_REMARKS:
            self._num_more += 1
            return
        self._remarks[message] = Remark(message, line)

    def tell_unread(self, where: str, *entries: Mapping[Any, Any], read: Iterable[str]) -> None:
        """Record which keys of mappings are not read, each once."""
        known = set(read)
        left = sorted({plain_text(key)[:60] for entry in entries for key in entry if key not in known})
        if left:
            more = f" and {len(left) - _MAX_KEYS} more" if len(left) > _MAX_KEYS else ""
            self.remark(f"not read of {where}: {', '.join(left[:_MAX_KEYS])}{more}")

    def fragment(self, format_name: str, text: ForeignText, kind: Kind = "ClusterProfile") -> Fragment:
        """Everything recorded; values that the keys do not take become unknowns with a remark."""
        facts, refused = fitting(kind, self.facts)
        for pointer, reason in refused:
            key = ".".join(map(str, pointer))
            self.remark(f"{key} is left out: {reason}")
            self.unknown(pointer, f"the source gives what the key does not take: {plain_text(reason)}")
            self._derived.pop(pointer, None)
        remarks = [*self._remarks.values()]
        if self._num_more:
            remarks.append(Remark(f"{self._num_more:,} more remarks are left out"))
        unknown = tuple(Unknown(pointer, reason) for pointer, reason in self._unknown.items())
        return Fragment(kind, format_name, text.name, facts, unknown, tuple(remarks), dict(self._derived))


def as_label(text: str) -> str:
    """A text as a name of the schema: other characters become hyphens; empty where nothing is left.

    >>> as_label("MF0;A09-P1:MQM9701/U1")
    'MF0-A09-P1-MQM9701-U1'
    """
    return _NO_NAME.sub("-", text).lstrip("-._+")[:_MAX_NAME].rstrip("-")


def plain_text(text: object) -> str:
    """A text on one line, without what a terminal would obey, cut where it is long.

    >>> plain_text("two   words ")
    'two words'
    """
    line = " ".join(bare(text)[: 2 * _MAX_TEXT].split())
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 3]}..."


def whole(value: Any, low: int, high: int) -> int | None:
    """A whole number within bounds, given as a number or as plain digits; None for anything else.

    >>> whole("8", 1, 100), whole(8.0, 1, 100), whole("8 GPUs", 1, 100), whole(True, 0, 1)
    (8, 8, None, None)
    """
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,18}\s*", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        return None
    return int(value) if float(value).is_integer() else None


def load_values(text: ForeignText, wanted: str) -> Any:
    """The plain values of a YAML or JSON text.

    Raises:
        ForeignFormatError: the text is neither, with the line; `wanted` says what it claims to be.
    """
    try:
        return load_text(text.text, text.name).data
    except LoadError as error:
        line = error.span.line if error.span else None
        raise ForeignFormatError(f"this is no {wanted}: {error.message}", line, error.help) from None
