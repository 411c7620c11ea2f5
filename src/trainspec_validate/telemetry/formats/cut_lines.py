"""Says whether the last line of a console log was cut while it was written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

NUM_BEFORE: Final = 8
"""Lines before the last that show its form: a log may have several forms in turn."""
_MOST_BYTES: Final = 4_000
_NUMBER: Final = re.compile(rb"\d+")
_LEAST: Final = 4
"""Characters of a form that say which one it is."""


def is_cut(raw: bytes, before: Iterable[bytes]) -> bool:
    """Whether a line is the beginning of one of the forms of others, whatever their numbers are.

    JSON is left to its reader, which refuses what is cut.

    >>> is_cut(b"s:898 trl", [b"s:897 trl:4.5 lr:0.1"]), is_cut(b"s:898 trl:4.5 lr:0.2", [b"s:897 trl:4.5 lr:0.1"])
    (True, False)
    """
    form = _form(raw)
    if b'"' in raw or len(form) < _LEAST or len(raw) > _MOST_BYTES:
        return False
    others = [_form(line) for line in before if len(line) <= _MOST_BYTES]
    return form not in others and any(other.startswith(form) and b"0" in other[len(form) - 1 :] for other in others)


def _form(line: bytes) -> bytes:
    return _NUMBER.sub(b"0", line)
