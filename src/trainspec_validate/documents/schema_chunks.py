"""Cuts a large value into small ones, so that its schema errors can be listed in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from trainspec_validate.model.finding import Pointer

MAX_ITEMS = 20
"""Items of a list that one piece holds; lists are in lists, so the values of a piece grow with its square."""
MAX_KEYS = 1_000
"""Keys of a mapping that a piece holds; no mapping with declared keys comes near."""
MOST_CHARACTERS = 4_096
"""Characters at each end of a text that a piece holds; no text with a limit may have more. Errors repeat their text."""
FREE = "extensions"
"""Key whose values the schemas leave alone."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A small value, and its place in the large one.

    The first piece is an outline: everything, with the first items of each long list. Every other holds nothing but
    some further items of one list, wrapped in the keys that lead there.
    """

    data: Any
    path: Pointer | None = None
    """The list whose items these are; None for the outline."""
    start: int = 0
    shortened: frozenset[Pointer] = field(default_factory=frozenset)
    """Mappings that were cut: a key that such a piece lacks may well be there."""

    def place(self, pointer: Pointer) -> Pointer | None:
        """The place in the large value; None where only the wrapping of the piece is concerned."""
        if self.path is None:
            return pointer
        depth = len(self.path)
        if len(pointer) <= depth:
            return None
        return (*self.path, self.start + int(pointer[depth]), *pointer[depth + 1 :])


def pieces(data: Any) -> Iterator[Piece]:
    """The outline of a value, then the rest of its long lists."""
    shortened: set[Pointer] = set()
    outline = _outline(data, (), shortened)
    yield Piece(outline, shortened=frozenset(shortened))
    for path, items in _long_lists(data, ()):
        for start in range(MAX_ITEMS, len(items), MAX_ITEMS):
            part = [_outline(item, (), set()) for item in items[start : start + MAX_ITEMS]]
            yield Piece(_wrapped(part, path), path, start)


def _outline(value: Any, pointer: Pointer, shortened: set[Pointer]) -> Any:
    if isinstance(value, dict):
        if len(value) > MAX_KEYS:
            shortened.add(pointer)
        kept = islice(value.items(), MAX_KEYS)
        if pointer == (FREE,):
            return {key: 0 for key, _ in kept}
        return {key: _outline(item, (*pointer, key), shortened) for key, item in kept}
    if isinstance(value, list):
        return [_outline(item, (*pointer, i), shortened) for i, item in enumerate(islice(value, MAX_ITEMS))]
    if isinstance(value, str) and len(value) > 2 * MOST_CHARACTERS:
        return value[:MOST_CHARACTERS] + value[-MOST_CHARACTERS:]
    return value


def _long_lists(value: Any, pointer: Pointer) -> Iterator[tuple[Pointer, list[Any]]]:
    if isinstance(value, dict) and pointer != (FREE,):
        for key, item in islice(value.items(), MAX_KEYS):
            yield from _long_lists(item, (*pointer, key))
    elif isinstance(value, list):
        if len(value) > MAX_ITEMS:
            yield pointer, value
        for i, item in enumerate(value):
            if isinstance(item, (dict, list)):
                yield from _long_lists(item, (*pointer, i))


def _wrapped(items: list[Any], path: Pointer) -> Any:
    value: Any = items
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value
