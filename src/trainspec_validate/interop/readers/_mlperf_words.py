"""Takes one value out of an MLPerf system description as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.readers._sheet import plain_text

_NOTHING = frozenset({"", "n/a", "na", "none", "-", "tbd"})


def words(said: Mapping[str, Any], key: str) -> str:
    """The text of a key on one line; empty where there is none or it says nothing.

    >>> words({"a": " N/A ", "b": 8}, "a"), words({"a": " N/A ", "b": 8}, "b")
    ('', '8')
    """
    value = said.get(key)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    plain = plain_text(value)
    return "" if plain.casefold() in _NOTHING else plain
