"""Cuts the line of a file that a finding points at, marks it, and paints it for a terminal."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from trainspec_validate.model.finding import Span
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


MAX_CELLS = 100
"""Longer lines are cut on both sides of the mark."""
_CELLS_BEFORE_MARK = 30
_TAB = "    "

# What the loader, editors and code hosts count; str.splitlines breaks at more.
_LINE_BREAK = re.compile("\r\n|[\n\r]")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line made fit for a terminal, and the cells to mark below it."""

    line: int
    code: str
    indent: int
    length: int


def split_lines(text: str) -> list[str]:
    """The lines of a file, without their breaks; a byte order mark is in no column."""
    return _LINE_BREAK.split(text.removeprefix("\ufeff"))


def excerpt(lines: list[str], span: Span) -> Excerpt | None:
    """The first line of a span; None when the file has no such line."""
    if not 1 <= span.line <= len(lines):
        return None
    line = lines[span.line - 1]
    start = min(max(span.column - 1, 0), len(line))
    end = len(line) if span.end_line > span.line else min(span.end_column - 1, len(line))
    begin, stop = _window(line, start)
    lead, tail = "…" if begin else "", "…" if stop < len(line) else ""
    return Excerpt(
        span.line,
        lead + _show(line[begin:stop]) + tail,
        cells(lead + _show(line[begin:start])),
        max(1, cells(_show(line[start : min(end, stop)]))),
    )


def _show(text: str) -> str:
    return printable(text.replace("\t", _TAB))


def _window(line: str, start: int) -> tuple[int, int]:
    # The length in code points is tested first: a line may be a file of megabytes.
    if len(line) <= MAX_CELLS and cells(_show(line)) <= MAX_CELLS:
        return 0, len(line)
    begin = stop = start
    used = 0
    while begin > 0 and used < _CELLS_BEFORE_MARK:
        begin -= 1
        used += cells(_show(line[begin]))
    while stop < len(line) and used < MAX_CELLS:
        used += cells(_show(line[stop]))
        stop += 1
    return begin, stop
