"""Writes values of read files into messages, as the files have them: `null`, `true`, `2026-01-01`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, time
from itertools import islice
from typing import Final

_MAX_ENTRIES: Final = 20
_MAX_DEPTH: Final = 4
_MANY_DIGITS: Final = 10**40


def as_in_file(value: object) -> str:
    """A plain value in the words of YAML; texts are in quotes, and large structures are cut short.

    >>> as_in_file(None), as_in_file(True), as_in_file(float("nan")), as_in_file("a b")
    ('null', 'true', '.nan', "'a b'")
    >>> as_in_file(date(2026, 1, 1)), as_in_file([8, {"a": None}, {}])
    ('2026-01-01', '[8, {a: null}, {}]')
    """
    return _written(value, _MAX_DEPTH)


def bare(value: object) -> str:
    """The same with a text as it is, without quotes.

    >>> bare("a b"), bare([None])
    ('a b', '[null]')
    """
    return str(value) if isinstance(value, str) else as_in_file(value)


def cut_to(text: str, most: int) -> str:
    """A text of at most `most` characters for a message; three dots mark where it is cut.

    >>> cut_to("step-240k", 9), cut_to("step-240k", 6)
    ('step-240k', 'step-2...')
    """
    return text if len(text) <= most else f"{text[:most]}..."


def _written(value: object, depth: int) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, int) and abs(value) >= _MANY_DIGITS:
        return "a number of many digits"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = (f"{bare(key)}: {_written(entry, depth - 1)}" for key, entry in value.items())
        return f"{{{_listed(pairs, len(value), depth)}}}"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{_listed((_written(entry, depth - 1) for entry in value), len(value), depth)}]"
    return repr(value) if isinstance(value, str | int | float) else str(value)


def _listed(entries: Iterable[str], number: int, depth: int) -> str:
    if number and not depth:
        return "..."
    return ", ".join([*islice(entries, _MAX_ENTRIES), *(["..."] if number > _MAX_ENTRIES else [])])
