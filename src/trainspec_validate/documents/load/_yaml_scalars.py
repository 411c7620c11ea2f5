"""Scalars and tags of the YAML 1.2 core schema, and plain scalars that YAML 1.1 reads as another value."""

from __future__ import annotations

import re
from math import isinf
from typing import Any, Final

from trainspec_validate.documents.load._base import (
    MAX_NUMBER_LENGTH,
    LoadError,
    not_finite,
    number_too_long,
    quoted,
)

CORE: Final = "tag:yaml.org,2002:"
"""Prefix of the tags of the core schema."""

_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?[0-9]+").fullmatch
_PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+").fullmatch
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?").fullmatch
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)").fullmatch
_OLDER_WORDS: Final = {**dict.fromkeys(("yes", "on"), "true"), **dict.fromkeys(("no", "off"), "false")}
_OLDER_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0b(?P<binary>[01_]+)|0(?P<octal>[0-7_]+)|(?P<decimal>0|[1-9][0-9_]*)"
    r"|(?P<sexagesimal>[1-9][0-9_]*(?::[0-5]?[0-9])+))"
).fullmatch
"""Integers of YAML 1.1 but for hexadecimal ones, which both versions read alike: https://yaml.org/type/int.html."""
_MAX_AMBIGUOUS = 20


def resolve(text: str) -> Any:
    """The value of a plain scalar. Raises LoadError without a span for numbers that JSON could not carry."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _NOT_FINITE(text):
        raise not_finite(text)
    if _INTEGER(text):
        return int(_short(text))
    if _FLOAT(text):
        number = float(_short(text))
        if isinf(number):
            raise not_finite(text)
        return number
    if _PREFIXED(text):
        return int(_short(text), 0)
    return text


def read_by_older(text: str) -> str | None:
    """Value of a plain scalar in YAML 1.1, where it differs from that in YAML 1.2; None where both agree.

    Dates, and floats without a dot, are another type and no other value: a reader of YAML 1.1 that takes them for
    text fails at once. Source: https://yaml.org/type/bool.html, https://yaml.org/type/int.html.

    >>> read_by_older("no"), read_by_older("010"), read_by_older("1:30"), read_by_older("10")
    ('false', '8', '90', None)
    """
    if len(text) > _MAX_AMBIGUOUS:
        return None
    if text.isalpha():
        usual = text in (text.lower(), text.upper(), text.capitalize())
        return _OLDER_WORDS.get(text.lower()) if usual else None
    if _INTEGER(text) and not _OLDER_INTEGER(text):
        return "text"
    older = _older_integer(text)
    return None if older is None or (_INTEGER(text) and int(text) == older) else str(older)


def resolve_as_older(text: str) -> Any:
    """The value of a plain scalar, of which YAML 1.1 decides whether it is a whole number and which one.

    Words such as `no` stay text, and floats are those of YAML 1.2, as loaders of programs with YAML 1.1 read them too.

    >>> [resolve_as_older(text) for text in ("010", "1:40", "1_000", "08", "0o10", "0x10", "no", "1e-5")]
    [8, 100, 1000, '08', '0o10', 16, 'no', 1e-05]

    Raises LoadError without a span for numbers that JSON could not carry.
    """
    if len(text) > _MAX_AMBIGUOUS:
        return resolve(text)
    older = _older_integer(text)
    if older is None and (_INTEGER(text) or text.startswith("0o")):
        return text
    return resolve(text) if older is None else older


def _older_integer(text: str) -> int | None:
    match = _OLDER_INTEGER(text)
    if match is None:
        return None
    digits = {kind: each.replace("_", "") for kind, each in match.groupdict().items() if kind != "sign" and each}
    kind, plain = next(iter(digits.items()))
    if kind == "sexagesimal":
        number = 0
        for part in plain.split(":"):
            number = number * 60 + int(part)
    else:
        number = int(plain or "0", {"binary": 2, "octal": 8, "decimal": 10}[kind])
    return -number if match["sign"] == "-" else number


def _short(number: str) -> str:
    if len(number) > MAX_NUMBER_LENGTH:
        raise number_too_long(len(number))
    return number


def resolve_tagged(text: str, tag: str) -> Any:
    """The value of a scalar with an explicit tag. Raises LoadError without a span."""
    kind = tag.removeprefix(CORE)
    if kind in ("!", "str"):
        return text
    if tag == kind or kind not in ("int", "float", "bool", "null"):
        raise unsupported_tag(tag)
    value = resolve(text)
    if kind == "float" and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise not_finite(text) from None
    if type(value).__name__ != {"null": "NoneType"}.get(kind, kind):
        raise LoadError(
            "unsupported-tag",
            f"{quoted(text)} is tagged !!{kind} but is not one",
            "correct or remove the tag",
        )
    return value


def unsupported_tag(tag: str) -> LoadError:
    """The refusal of a tag outside the core schema."""
    written = tag.replace(CORE, "!!") if tag.startswith(CORE) else tag
    return LoadError(
        "unsupported-tag",
        f"tag {quoted(written)} is not supported here",
        "remove it; scalars may be !!str, !!int, !!float, !!bool or !!null, collections !!map or !!seq",
    )
