"""Cuts the line of a file that a finding points at, and measures where the marks go."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainspec_validate.model.finding import Span
from trainspec_validate.report.terminal import cells
from trainspec_validate.system.neutral import printable

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
