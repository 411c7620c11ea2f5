"""Reads a JSON document with one long list, over lines: each object of the list by itself, the rest at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.json_text import decode

_SIGN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]')
_MOST_CHARACTERS = 16 * 1024 * 1024
_BETWEEN = ", \t\r\n"
_INNER = 2
"""Depth within a list that a top key of the document names."""


class JsonList:
    """The objects of the list under one of some keys of a document, with the place where each begins."""

    def __init__(self, *keys: str, depth: int = _INNER) -> None:
        self._inner = depth
        self._keys = frozenset(f'"{key}"' for key in keys)
        self._depth = 0
        self._last = ""
        self._is_in_list = self._is_over = False
        self._element: list[str] = []
        self._around: list[str] = []
        self._size = 0
        self._start = 0

    def line(self, offset: int, text: str) -> Iterator[tuple[int, Any]]:
        """The objects that end on a line, each with the bytes before the line that it begins on, and refusals."""
        if self._is_over:
            return
        place = 0
        for sign in _SIGN.finditer(text):
            found = sign[0]
            if found[0] == '"':
                self._last = found
            elif found in "[{":
                if self._is_between:
                    yield from self._unfit(offset, text[place : sign.start()])
                place = self._opened(offset, text, place, sign)
            else:
                self._depth -= 1
                if self._is_in_list and self._depth == self._inner:
                    self._keep(text[place : sign.end()])
                    place = sign.end()
                    whole, self._element = "".join(self._element), []
                    self._size = sum(map(len, self._around))
                    yield self._start, decode(whole, not_finite=True)
                elif self._is_in_list and self._depth < self._inner:
                    yield from self._unfit(offset, text[place : sign.start()])
                    self._is_in_list, place = False, sign.start()
        if self._is_between:
            yield from self._unfit(offset, text[place:])
        else:
            self._keep(text[place:] + "\n")
        if self._size > _MOST_CHARACTERS:
            self._is_over = True
            yield self._start, Refusal(f"an object is larger than {_MOST_CHARACTERS // 1024**2} MiB", "", "size")

    @property
    def _is_between(self) -> bool:
        """Whether the next character is in the list, and in none of its objects."""
        return self._is_in_list and self._depth == self._inner

    def _opened(self, offset: int, text: str, place: int, sign: re.Match[str]) -> int:
        """Take an opening bracket; the place from which the text is not kept yet."""
        self._depth += 1
        if self._is_in_list and self._depth == self._inner + 1:
            self._start = offset
            return sign.start()
        if self._depth == self._inner and sign[0] == "[" and self._last in self._keys and not self._is_in_list:
            self._keep(text[place : sign.end()])
            self._is_in_list = True
            return sign.end()
        return place

    def _keep(self, text: str) -> None:
        self._size += len(text)
        (self._element if self._is_in_list else self._around).append(text)

    def _unfit(self, offset: int, text: str) -> Iterator[tuple[int, Refusal]]:
        """What is in the list beside its objects."""
        found = text.strip(_BETWEEN)
        if found:
            yield offset, Refusal(f"the list holds {found[:40]!r}, which is no object", "", "value")

    def end(self) -> dict[str, Any] | Refusal:
        """The document without the objects of its list; the refusal of one that is damaged or cut off."""
        if self._is_over or not self._around:
            return {}
        if self._depth > 0:
            return Refusal("the document ends before its JSON does", "copy the file again", "cut-off")
        found = decode("".join(self._around), not_finite=True)
        if isinstance(found, dict | Refusal):
            return found
        return Refusal("the document is no JSON object", "", "value")
