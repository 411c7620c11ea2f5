"""Measures the cells of a terminal, and adds colour and links."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from trainspec_validate.system.neutral import printable

_LOOKS = {"error": "1;31", "warning": "1;33", "note": "1;36", "frame": "1;34", "strong": "1"}


def cells(text: str) -> int:
    """How many columns of a terminal printable text takes."""
    return len(text) if text.isascii() else sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


@dataclass(frozen=True, slots=True)
class Painter:
    """Adds colour and links where the reader asked for them, and nothing otherwise."""

    color: bool = False
    hyperlinks: bool = False

    def paint(self, text: str, look: str) -> str:
        """The text in the colours of a severity or of a part of the frame."""
        return f"\x1b[{_LOOKS[look]}m{text}\x1b[0m" if self.color and text else text

    def link(self, text: str, url: str) -> str:
        """The text as a link that a terminal opens (OSC 8)."""
        return f"\x1b]8;;{printable(url)}\x1b\\{text}\x1b]8;;\x1b\\" if self.hyperlinks and url else text
