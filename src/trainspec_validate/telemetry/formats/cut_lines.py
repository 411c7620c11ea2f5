"""Leaves out the last line of a console log where it was cut while it was written, and notes it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from trainspec_validate.telemetry.formats.ends import Line, Note
from trainspec_validate.telemetry.formats.source import Unended

_NUM_BEFORE: Final = 8
"""Lines before the last that show its form: a log may have several forms in turn."""
_MOST_BYTES: Final = 4_000
_NUMBER: Final = re.compile(rb"\d+")
_LEAST: Final = 4
"""Characters of a form that say which one it is."""


def without_cut(lines: Iterable[Line], note: Note) -> Iterator[Line]:
    """The lines but for a last one that has no end and is the beginning of the form of a line before it.

    JSON is left to its reader, which refuses what is cut.
    """
    before: deque[bytes] = deque(maxlen=_NUM_BEFORE)
    for offset, raw in lines:
        if isinstance(raw, Unended) and _is_cut(raw, before):
            note(
                "cut",
                f"the log ends within a line, which is left out: {raw[-60:].decode('utf-8', 'replace')!r}",
                offset,
            )
            continue
        if isinstance(raw, bytes):
            before.append(raw)
        yield offset, raw


def _is_cut(raw: bytes, before: Iterable[bytes]) -> bool:
    """Whether a line is the beginning of one of the forms of others, whatever their numbers are.

    >>> _is_cut(b"s:898 trl", [b"s:897 trl:4.5 lr:0.1"]), _is_cut(b"s:898 trl:4.5 lr:0.2", [b"s:897 trl:4.5 lr:0.1"])
    (True, False)
    """
    form = _form(raw)
    if b'"' in raw or len(form) < _LEAST or len(raw) > _MOST_BYTES:
        return False
    others = [_form(line) for line in before if len(line) <= _MOST_BYTES]
    return form not in others and any(other.startswith(form) and b"0" in other[len(form) - 1 :] for other in others)


def _form(line: bytes) -> bytes:
    return _NUMBER.sub(b"0", line)
