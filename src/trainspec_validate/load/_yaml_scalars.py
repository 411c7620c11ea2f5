"""The only place that knows the scalars and tags of the YAML 1.2 core schema."""

from __future__ import annotations

import re
from math import isinf
from typing import Any, Final

from trainspec_validate.load._base import (
    MAX_NUMBER_LENGTH,
    LoadError,
    not_finite,
    number_too_long,
    quoted,
)

CORE: Final = "tag:yaml.org,2002:"
"""What the tags of the core schema start with."""

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
