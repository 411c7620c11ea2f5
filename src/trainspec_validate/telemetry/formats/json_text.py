"""Decodes a line of foreign JSON: no key twice, bounded depth, numbers of bounded length."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import msgspec

from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats.items import Refusal

_MAX_DIGITS = 400
_BRACKET_OR_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]')
_REPEATED = "key {!r} appears twice"
_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
_MOST_OBJECTS: Final = Limit("a text of OTLP/JSON", 2_000_000, "objects and lists")


class _UnfitError(ValueError):
    """What the decoder refuses beside bad syntax, in words."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _UnfitError(_REPEATED.format(twice[:60]))
    return found


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _UnfitError(f"a number is {len(text):,} characters long")
    return int(text)


def _float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise _UnfitError(f"{text[:40]} is beyond the range of a double")
    return found


def _no_constant(text: str) -> float:
    raise _UnfitError(f"{text} is no JSON; write it as a text")


_STRICT = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_no_constant
)
_LENIENT = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_float=_float)


def decode(text: str, *, not_finite: bool = False) -> Any:
    """The value of a JSON text, or the refusal of it.

    `not_finite` takes NaN and Infinity without quotes, which some programs write.

    >>> decode('{"a": 1}'), decode('{"a": 1, "a": 2}').message
    ({'a': 1}, "the line is no sound JSON: key 'a' appears twice")
    """
    try:
        return (_LENIENT if not_finite else _STRICT).decode(text)
    except _UnfitError as error:
        return Refusal(f"the line is no sound JSON: {error}", "fix the program that wrote it")
    except RecursionError:
        return Refusal("values nest too deeply", "no stream needs more than a dozen levels")
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
            return Refusal(
                "the line ends before its JSON does", "the program may have been stopped while it wrote", "cut-off"
            )
        place = text[max(0, error.pos - 10) : error.pos + 20]
        return Refusal(f"the line is no JSON: {error.msg} at character {error.pos + 1}, near {place!r}", "cut the line")


def encoded(value: Any) -> bytes:
    """Plain values as JSON."""
    return _ENCODER.encode(value)


def plain_of(text: str) -> Any | Refusal:
    """The plain values of a line of JSON, as `decode` gives them; fast where it is written as we write it."""
    if len(text) > _MOST_OBJECTS.most:
        _MOST_OBJECTS.check(text.count("{") + text.count("["))
    line = text.strip().encode("utf-8", "replace")
    try:
        fast = _PLAIN.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return decode(text)
    # A line that is written as we write it has no key twice; any other is read again with care.
    return fast if _ENCODER.encode(fast) == line else decode(text)


def open_brackets(text: str, depth: int) -> int:
    """Depth of brackets after a line that starts at some depth; a text of JSON never spans lines.

    >>> open_brackets('{"a": "]}", "b": [', 0)
    2
    """
    found = (match[0] for match in _BRACKET_OR_TEXT.finditer(text))
    return depth + sum(1 if sign in "[{" else -1 for sign in found if sign in "[]{}")
