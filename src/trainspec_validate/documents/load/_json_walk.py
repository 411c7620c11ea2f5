"""Finds the places of values in JSON text, without the values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from trainspec_validate.documents.load._base import MAX_DEPTH, LoadError, Offsets, duplicate_key, span_of
from trainspec_validate.documents.load._lookup import Lookup, Request, Wanted
from trainspec_validate.model.finding import Span

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_BLANKS = re.compile(r"[ \t\n\r]*+")
_SCALAR = re.compile(rf"{_STRING}|[^\s,:\[\]{{}}\"]++", re.DOTALL)
_BRACKETS = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_TOKENS = re.compile(rf"{_STRING}|[\[\]{{}},:]|[^\s,:\[\]{{}}\"]++", re.DOTALL)


def locate(text: str, requests: Iterable[Request]) -> dict[Request, Span]:
    """The span of every request, in one pass over a text that loads."""
    walker = _Walker(text, Lookup(requests))
    if walker.lookup.remaining:
        walker.value(walker.lookup.root, walker.blanks(0), None)
    return walker.lookup.spans(text)


def _decode(string: str) -> str:
    return str(json.loads(string)) if "\\" in string else string[1:-1]


class _Walker:
    def __init__(self, text: str, lookup: Lookup) -> None:
        self.text = text
        self.lookup = lookup

    def blanks(self, position: int) -> int:
        match = _BLANKS.match(self.text, position)
        return match.end() if match else position

    def scalar(self, position: int) -> int:
        match = _SCALAR.match(self.text, position)
        return match.end() if match else position + 1

    def value(self, wanted: Wanted, start: int, key: Offsets | None) -> int:
        """Settle what is wanted at and below the value that starts here; returns its end."""
        if self.text[start] in "{[":
            if key:
                self.lookup.settle(wanted, key, key)
            return self.collection(wanted, start, key)
        end = self.scalar(start)
        self.lookup.settle(wanted, key, (start, end))
        self.lookup.settle_missing(wanted, key or (start, end))
        return end

    def collection(self, wanted: Wanted, start: int, key: Offsets | None) -> int:
        is_object = self.text[start] == "{"
        nearest = key
        index, position = 0, self.blanks(start + 1)
        while self.text[position] not in "]}":
            step: str | int = index
            entry: Offsets | None = None
            if is_object:
                entry = (position, self.scalar(position))
                step = _decode(self.text[position : entry[1]])
                position = self.blanks(self.blanks(entry[1]) + 1)
            if nearest is None and wanted is self.lookup.root and entry:
                nearest = entry
            child = wanted.children.pop(step, None)
            position = self.value(child, position, entry) if child else self.skip(position)
            index += 1
            if not self.lookup.remaining:
                return position
            if not wanted.children:
                position = self.skip_rest(position) - 1
                break
            position = self.blanks(position)
            if self.text[position] == ",":
                position = self.blanks(position + 1)
        stretch = nearest or self.first_line(start, position + 1)
        self.lookup.settle(wanted, stretch, stretch)
        self.lookup.settle_missing(wanted, stretch)
        return position + 1

    def skip(self, start: int) -> int:
        return self.skip_rest(start + 1) if self.text[start] in "{[" else self.scalar(start)

    def skip_rest(self, position: int) -> int:
        """The end of the collection that is open at this position."""
        depth, text = 1, self.text
        for match in _BRACKETS.finditer(text, position):
            character = text[match.start()]
            if character in "{[":
                depth += 1
            elif character != '"':
                depth -= 1
                if not depth:
                    return match.end()
        return len(text)

    def first_line(self, start: int, end: int) -> Offsets:
        line_end = self.text.find("\n", start, end)
        if line_end < 0:
            return (start, end)
        return (start, start + max(1, len(self.text[start:line_end].rstrip())))


def _events(text: str) -> Iterator[tuple[str, int, int, bool]]:
    """Token, start, end, and whether it is a key; right for text that is valid up to the place looked for."""
    objects: list[bool] = []
    previous = ""
    for match in _TOKENS.finditer(text):
        token = match[0]
        is_key = token[0] == '"' and bool(objects) and objects[-1] and previous in ("{", ",")
        yield token, match.start(), match.end(), is_key
        if match[0] in ("{", "["):
            objects.append(match[0] == "{")
        elif token in ("}", "]") and objects:
            objects.pop()
        previous = token


def find_duplicate(text: str) -> LoadError:
    """The refusal of the first key that appears twice in one object."""
    stack: list[dict[str, int]] = []
    for token, start, end, is_key in _events(text):
        if token in ("{", "["):
            stack.append({})
        elif token in ("}", "]") and stack:
            stack.pop()
        elif is_key:
            key = _decode(token)
            first = stack[-1].setdefault(key, start)
            if first != start:
                return duplicate_key(key, span_of(text, first), span_of(text, start, end))
    return LoadError("duplicate-key", "a key appears twice in one object", "keep one of the two")


def find_literal(text: str, literal: str) -> Span | None:
    """The place of a number outside of strings."""
    return next((span_of(text, start, end) for token, start, end, _ in _events(text) if token == literal), None)


def find_surrogate(text: str) -> Span | None:
    """The place of the first string that is no Unicode text."""
    for token, start, end, _ in _events(text):
        if token[0] == '"' and any("\ud800" <= character <= "\udfff" for character in _decode(token)):
            return span_of(text, start, end)
    return None


def find_deep(text: str) -> Span | None:
    """The place of the first bracket that nests too deep."""
    depth = 0
    for match in _BRACKETS.finditer(text):
        character = text[match.start()]
        if character in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                return span_of(text, match.start())
        elif character != '"':
            depth -= 1
    return None


def find_open(text: str) -> int | None:
    """The offset of the innermost bracket that is not closed where the text ends."""
    stack: list[int] = []
    for match in _BRACKETS.finditer(text):
        if text[match.start()] in "{[":
            stack.append(match.start())
        elif text[match.start()] != '"' and stack:
            stack.pop()
    return stack[-1] if stack else None
