"""Fills the message of a rule with the values of a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from trainspec_validate.model.values import bare

_FIELD = re.compile(r"\{([a-z][a-z0-9_]*)(?::(time|,|,?\.[0-9][feg]|\.[0-9]%))?\}")
_BRACE = re.compile(r"[{}]")
STRAY_BRACE = "a brace in the message is no field; fields are {column}, {column:.2f}, {time_us:time}"
MAX_TEXT = 200
"""Characters of one value that a message shows."""


def fields(template: str) -> Iterator[str]:
    """Names of the columns that a message shows."""
    return (match[1] for match in _FIELD.finditer(template))


def stray_brace(template: str) -> bool:
    """Whether a brace belongs to no field, so that a field is misspelt."""
    return bool(_BRACE.search(_FIELD.sub("", template)))


def filled(template: str, row: Mapping[str, Any]) -> str:
    """The message with the values of a row.

    >>> filled("rank {rank} waited {value:.1f} s", {"rank": 3, "value": 2.25})
    'rank 3 waited 2.2 s'
    """
    return _FIELD.sub(lambda match: shown(row[match[1]], match[2] or ""), template)


def shown(value: Any, form: str = "") -> str:
    """One value in words; numbers with six digits where nothing else is asked for."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = bare(value)
        return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    if form == "time":
        return _moment(value)
    return format(value, form) if form else str(value) if isinstance(value, int) else f"{value:.6g}"


def _moment(time_us: float) -> str:
    try:
        return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_us} us"
