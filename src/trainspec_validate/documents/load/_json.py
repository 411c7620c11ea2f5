"""Turns JSON text into plain values, as the standard library does, but strictly."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any, Final

from trainspec_validate.documents.load._base import (
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_NUMBER_LENGTH,
    MAX_VALUES,
    LoadError,
    key_too_long,
    not_finite,
    number_too_long,
    span_of,
    too_deep,
    too_many_values,
)
from trainspec_validate.documents.load._json_walk import (
    find_deep,
    find_duplicate,
    find_literal,
    find_open,
    find_surrogate,
)

_COUNTED = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,:]', re.DOTALL)
_REPEATED: Final = object()
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

_PROBLEMS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "Expecting property name",
        "a key in double quotes is expected here",
        'write "key": value, without a comma after the last entry',
    ),
    ("Illegal trailing comma", "a comma follows the last entry", "remove the comma"),
    ("Expecting ':'", "a ':' is missing after this key", 'write "key": value'),
    (
        "Expecting ','",
        "a ',' or a closing bracket is missing here",
        "separate entries by ',' and close every bracket",
    ),
    (
        "Expecting value",
        "a value is expected here",
        "write a value: text in double quotes, no comma after the last one",
    ),
    ("Extra data", "text follows the end of the document", "keep one JSON value per file"),
    ("Unterminated string", "this quote is never closed", "close the quote, or escape the quotes inside it"),
    (
        "Invalid control character",
        "a control character or a line break is inside this text",
        "write it as an escape, for example \\n or \\t",
    ),
    ("Invalid \\escape", "this escape does not exist in JSON", "write \\\\ for a backslash"),
    ("Invalid \\uXXXX", "this escape lacks hexadecimal digits", "\\u takes four hexadecimal digits"),
)

_COMMENT: Final = "remove it, or name the file .yaml and start the comment with '#'"
_FOREIGN: Final[tuple[tuple[str, str, str], ...]] = (
    ("//", "JSON has no comments", _COMMENT),
    ("/*", "JSON has no comments", _COMMENT),
    ("#", "JSON has no comments", _COMMENT),
    ("'", "JSON knows no single quotes", "use double quotes"),
    ("True", "JSON spells this true", "write true"),
    ("False", "JSON spells this false", "write false"),
    ("None", "JSON spells this null", "write null, or leave the key out"),
)
"""What stands where a key or a value is expected, and belongs to another language."""
_CLOSE: Final = {"{": "close it with '}'", "[": "close it with ']'"}


class _DuplicateKeyError(Exception):
    """An object repeats a key; the place is found by a second pass."""


class NotJsonError(LoadError):
    """The text is not JSON; it may be YAML."""


class _LiteralError(Exception):
    """A number is refused; the place is found by a second pass."""

    def __init__(self, literal: str, refusal: LoadError) -> None:
        super().__init__(literal)
        self.literal = literal
        self.refusal = refusal


def load(text: str) -> Any:
    """The value of the JSON text. Raises LoadError; of these NotJsonError means that it is not JSON."""
    if not text.strip(" \t\n\r"):
        raise LoadError("empty", "the file holds no document", "a document starts with its 'apiVersion' and 'kind'")
    _check_size(text)
    value = _parse(text)
    if value is _REPEATED:
        raise find_duplicate(text)
    if _is_deep(value):
        raise _deep(text)
    _check_surrogates(text, value)
    return value


def _parse(text: str) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except _DuplicateKeyError:
        # Returned, not raised from here: a traceback would keep the whole object alive during the search.
        return _REPEATED
    except _LiteralError as error:
        error.refusal.span = find_literal(text, error.literal)
        raise error.refusal from None
    except json.JSONDecodeError as error:
        raise _translate(text, error) from None
    except RecursionError:
        raise _deep(text) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    longest = max(map(len, mapping), default=0)
    if longest > MAX_KEY_LENGTH:
        raise key_too_long(longest)
    if len(mapping) != len(pairs):
        raise _DuplicateKeyError
    return mapping


def _integer(literal: str) -> int:
    if len(literal) > MAX_NUMBER_LENGTH:
        raise _LiteralError(literal, number_too_long(len(literal)))
    return int(literal)


def _float(literal: str) -> float:
    if len(literal) > MAX_NUMBER_LENGTH:
        raise _LiteralError(literal, number_too_long(len(literal)))
    number = float(literal)
    if isinf(number):
        raise _LiteralError(literal, not_finite(literal))
    return number


def _constant(literal: str) -> float:
    refusal = not_finite(literal)
    raise _LiteralError(literal, NotJsonError(refusal.code, refusal.message, refusal.help))


def _check_size(text: str) -> None:
    """Refuse too many values before any is built; every key and value but the first follows one of `[{,:`."""
    if sum(map(text.count, "[{,:")) < MAX_VALUES:
        return
    strings = structural = 0
    for match in _COUNTED.finditer(text):
        if text[match.start()] == '"':
            strings += 1
        else:
            structural += 1
        if structural >= MAX_VALUES or strings > MAX_VALUES:
            raise too_many_values()


def _is_deep(value: Any) -> bool:
    level = [value] if type(value) in (dict, list) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


def _deep(text: str) -> LoadError:
    error = too_deep()
    error.span = find_deep(text)
    return error


def _check_surrogates(text: str, value: Any) -> None:
    """Refuse half of a surrogate pair: Python lets it through, and no one can write or hash it as UTF-8."""
    if not _SURROGATE_ESCAPE.search(text):
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise LoadError(
            "syntax",
            "an escape names half of a surrogate pair",
            "write the character itself, or both \\u escapes of the pair",
            find_surrogate(text),
        ) from None


def _translate(text: str, error: json.JSONDecodeError) -> LoadError:
    position = error.pos
    comma = text.rfind(",", 0, position) if text[position : position + 1] in ("}", "]") else -1
    if comma >= 0 and not text[comma + 1 : position].strip():
        return NotJsonError("syntax", "a comma follows the last entry", "remove the comma", span_of(text, comma))
    for start, message, remedy in _FOREIGN:
        if text.startswith(start, position):
            end = position + len(start) if start.isalpha() else None
            return NotJsonError("syntax", message, remedy, span_of(text, position, end))
    if not text[:position].strip() and text[position : position + 1].isalpha():
        message, remedy = "this file is not JSON", "name a file of YAML .yaml"
        return NotJsonError("syntax", message, remedy, span_of(text, position))
    if position >= len(text.rstrip()) and (opened := find_open(text)) is not None:
        return NotJsonError("syntax", "this bracket is never closed", _CLOSE[text[opened]], span_of(text, opened))
    for problem, message, remedy in _PROBLEMS:
        if error.msg.startswith(problem):
            return NotJsonError("syntax", message, remedy, span_of(text, position))
    return NotJsonError("syntax", "this is not valid JSON", "", span_of(text, position))
