"""Leaves out the copy of a file that was appended to the file itself, and reports it.

A copy repeats every line from the first on. The lines of another attempt have other times or values, and are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from trainspec_validate.telemetry.formats.items import Refusal

Piece = tuple[int, bytes | Refusal]
COPY: Final = Refusal(
    "the file repeats itself from here on, each line from the first; the copy is left out",
    "remove the copy; another attempt has other times or values",
    "sequence",
)
_MOST_KNOWN: Final = 1_000_000
"""Lines that are known by their hash, of 8 bytes each."""
_MOST_HELD: Final = 10_000
"""Lines that wait until it is known whether they are a copy; so many equal ones are one."""
_MOST_HELD_BYTES: Final = 16_000_000
_LEAST: Final = 9
"""Lines of the format that are enough of a file to be copied: processes that share a log print the same few at once."""
_LONG_BYTES: Final = 1_000
"""A document on one line, which is enough too."""


class _Start:
    """The lines of a file from its first on, as far as they are known."""

    def __init__(self, mark: bytes) -> None:
        self.hashes = array("q")
        self._mark = mark
        self._num_marked = 0
        self._num_lines = 0

    def learn(self, piece: Piece) -> None:
        """Note a line that is no copy."""
        line = piece[1]
        self._num_lines += 1
        if isinstance(line, bytes):
            self._num_marked += _LEAST if not self._mark and len(line) >= _LONG_BYTES else self._mark in line
        if len(self.hashes) < _MOST_KNOWN:
            self.hashes.append(hash(line))

    def has(self, piece: Piece, place: int) -> bool:
        """Whether a line equals the one at a place."""
        return place < len(self.hashes) and self.hashes[place] == hash(piece[1])

    def is_all(self, num_lines: int) -> bool:
        """Whether so many equal lines are a copy: of all lines, and not only of a title that a log has twice."""
        return num_lines >= min(self._num_lines, _MOST_HELD) and self._num_marked >= _LEAST


def without_copies(pieces: Iterable[Piece], mark: bytes) -> Iterator[Piece]:
    """The lines of a file, or its records, with `COPY` in place of each copy.

    Args:
        pieces: each with its place.
        mark: what a line of the format holds among lines of other programs; empty where there are none.
    """
    start = _Start(mark)
    held, num_bytes, copied = list[Piece](), 0, 0
    for piece in pieces:
        if copied and start.has(piece, copied):
            copied += 1
            continue
        copied = 0
        if held and not start.has(piece, len(held)):
            yield from _released(start, held)
        if not start.has(piece, len(held)):
            start.learn(piece)
            yield piece
            continue
        num_bytes = (num_bytes if held else 0) + (len(piece[1]) if isinstance(piece[1], bytes) else 0)
        held.append(piece)
        if start.is_all(len(held)):
            yield held[0][0], COPY
            copied = len(held)
            held.clear()
        elif len(held) >= _MOST_HELD or num_bytes >= _MOST_HELD_BYTES:
            yield from _released(start, held)
    yield from held


def _released(start: _Start, held: list[Piece]) -> Iterator[Piece]:
    """Lines that are no copy after all."""
    for piece in held:
        start.learn(piece)
        yield piece
    held.clear()
