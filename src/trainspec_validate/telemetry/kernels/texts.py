"""Finds texts in bytes: known names, and the ends of texts, values and lines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.telemetry.kernels.words import is_same


class Table(NamedTuple):
    """Texts that were seen before, each with the quote that ends it, and the number of each."""

    words: np.ndarray
    """Of all texts, one after another."""
    starts: np.ndarray
    lengths: np.ndarray
    slots: np.ndarray
    """Open addressing: entry plus one, by hash; the length is a power of two."""
    numbers: np.ndarray
    after: np.ndarray
    """Entry that last followed each, by entry plus one, with an entry for those without a predecessor; -1 where none did."""


def hash_of(text: Any, begin: int, end: int) -> int:
    """A hash of some bytes."""
    value: Any = end - begin
    for place in range(begin, end):
        value = (value * 1_000_003 + np.int64(text[place])) & 0x3FFFFFFFFFF
    found: int = value ^ (value >> 21)
    return found


def find_entry(table: Table, text: Any, words: Any, begin: int, end: int) -> int:
    """The entry that some bytes are; -1 where they were not seen before."""
    length = end - begin
    mask = len(table.slots) - 1
    place = hash_of(text, begin, end) & mask
    while table.slots[place] != 0:
        entry: int = table.slots[place] - 1
        if table.lengths[entry] == length and is_same(words, begin, table.words, table.starts[entry], length):
            return entry
        place = (place + 1) & mask
    return -1


def text_end(text: Any, place: int) -> int:
    """Place of the quote that ends a plain text; -1 for one with escapes or other than printable ASCII."""
    while text[place] != 34:
        if text[place] < 32 or text[place] > 126 or text[place] == 92:
            return -1
        place += 1
    return place


def after_blanks(text: Any, place: int) -> int:
    """The place of the next byte that is no blank."""
    while text[place] == 32:
        place += 1
    return place


def after_colon(text: Any, quote: int) -> int:
    """The place of the value behind the quote that ends its key; -1 where there is no colon."""
    place = after_blanks(text, quote + 1)
    return after_blanks(text, place + 1) if text[place] == 58 else -1


def line_end(text: Any, place: int, size: int) -> int:
    """The place of the next line end, or of the end of the text."""
    while place < size and text[place] != 10:
        place += 1
    return place


def is_end(text: Any, place: int, size: int) -> bool:
    """Whether a line ends at a place."""
    if place >= size:
        return place == size
    return text[place] == 10 or (text[place] == 13 and (place + 1 >= size or text[place + 1] == 10))


def after_value(text: Any, place: int) -> Any:
    """The place after the comma or brace behind a value, and whether it was a brace; -1 for something else."""
    place = after_blanks(text, place)
    if text[place] == 44:
        return after_blanks(text, place + 1), False
    return (place + 1 if text[place] == 125 else -1), True
