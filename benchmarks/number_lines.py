"""Writes many lines with numbers at once, from a template whose blanks are filled by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

GROUP = 4
_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10**GROUP)), np.uint8)
GROUPS: Any = _DIGITS.view(np.uint32)
"""The four digits of every number below ten thousand, as one word of memory each."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A number of so many digits, zeros in front included."""

    name: str
    width: int


class Lines:
    """A line whose blanks all have a fixed width, so that many of them are an array of bytes."""

    def __init__(self, pieces: Sequence[bytes | Blank]) -> None:
        self.blanks: list[tuple[int, Blank]] = []
        base = bytearray()
        for piece in pieces:
            if isinstance(piece, Blank):
                self.blanks.append((len(base), piece))
                base += b"0" * piece.width
            else:
                base += piece
        self.base = bytes(base)

    def __len__(self) -> int:
        return len(self.base)

    def fill(self, matrix: Any, values: Mapping[str, Any]) -> None:
        """Write lines into an array of bytes whose last axis is the line; `values` has integers for each blank."""
        matrix[:] = np.frombuffer(self.base, np.uint8)
        for offset, blank in self.blanks:
            _write(matrix, offset, blank.width, values[blank.name])


def _write(matrix: Any, offset: int, width: int, values: Any) -> None:
    """Write digits from the right, four at a time."""
    end, rest = offset + width, values
    while end > offset:
        start = max(offset, end - GROUP)
        rest, low = np.divmod(rest, 10**GROUP) if start > offset else (0, rest)
        digits = GROUPS[low].view(np.uint8).reshape(*low.shape, GROUP)
        matrix[..., start:end] = digits[..., start - end :]
        end = start
