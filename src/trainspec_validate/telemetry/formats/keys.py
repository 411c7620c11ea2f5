"""Splits the key of a value into metric and attributes, and joins them again."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[a-z][a-z0-9_.]*")
_UNFIT = re.compile(r"[{},=\x00-\x1f\x7f]")
_MAX_KEY = 512


def join(metric: str, attributes: Mapping[str, str]) -> str:
    """The key of a metric with series attributes, which are sorted by name.

    >>> join("hw.errors", {"hw.type": "gpu", "error.type": "crc"})
    'hw.errors{error.type=crc,hw.type=gpu}'
    """
    inner = ",".join(f"{name}={attributes[name]}" for name in sorted(attributes))
    return f"{metric}{{{inner}}}" if inner else metric


def split(key: str) -> tuple[str, dict[str, str]] | None:
    """Metric and series attributes of a key; None where `join` does not give the key back.

    >>> split("hw.errors{error.type=crc}")
    ('hw.errors', {'error.type': 'crc'})
    >>> split("hw.errors{crc}") is None
    True
    """
    metric, brace, rest = key.partition("{")
    if not brace:
        return metric, {}
    parts = [part.partition("=") for part in rest.removesuffix("}").split(",")]
    attributes = {name: value for name, _, value in parts}
    return (metric, attributes) if join(metric, attributes) == key else None


def is_name(text: str) -> bool:
    """Whether a text can be the name of a metric, an event or an attribute."""
    return len(text) <= 256 and _NAME.fullmatch(text) is not None


def attribute_text(value: object) -> str:
    """A value as it is in a key: without characters that end it, and without line breaks.

    >>> attribute_text("a,b={c}")
    'a_b__c_'
    """
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return _UNFIT.sub("_", text)[:200]


def fits(key: str) -> bool:
    """Whether a key is short enough for a record."""
    return 0 < len(key) <= _MAX_KEY
