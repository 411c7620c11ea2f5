"""Cuts the device matrices of nvidia-smi and rocm-smi into rows and cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.model.values import cut_to

MAX_COLUMNS = 320
_MAX_LINES = 200_000
_ESCAPES = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its label, its cells, and what follows them."""

    label: str
    cells: tuple[str, ...]
    tail: tuple[str, ...]
    line: int


def plain_lines(text: str, max_characters: int = 65_536) -> list[str]:
    r"""Lines without escape sequences of a terminal.

    >>> plain_lines("\x1b[4mGPU0\x1b[0m")
    ['GPU0']

    Raises:
        ForeignFormatError: there are more lines, or a longer one, than any tool prints.
    """
    if text.count("\n") > _MAX_LINES:
        raise ForeignFormatError(f"has more than {_MAX_LINES:,} lines", help="copy the output of the one tool")
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if len(line) > max_characters:
            raise ForeignFormatError(f"the line is longer than {max_characters:,} characters", number)
    return [without_escapes(line) for line in lines]


def without_escapes(line: str) -> str:
    r"""A line without the sequences that underline or colour it on a terminal.

    >>> without_escapes("\x1b[4mGPU0")
    'GPU0'
    """
    return _ESCAPES.sub("", line)


def rows(
    lines: Sequence[str], start: int, columns: Sequence[str], is_cell: Callable[[str], bool], *, first: int = 1
) -> list[Row]:
    """The rows of a square matrix below its header, one for each column and in the same order.

    `start` is the position of the first line below the header; `first` the number of the first of all lines.

    Raises:
        ForeignFormatError: a row is missing, is called otherwise, or has a cell that means nothing.
    """
    found: list[Row] = []
    position = start
    for label in columns:
        while position < len(lines) and not lines[position].strip():
            position += 1
        number = position + first
        words = lines[position].split() if position < len(lines) else []
        if not words or words[0] != label:
            seen = f"{words[0][:32]!r}" if words else "nothing"
            raise ForeignFormatError(
                f"the row of {cut_to(label, 32)} is expected, {seen} found", number, "copy the whole matrix"
            )
        cells = words[1 : len(columns) + 1]
        wrong = next((cell for cell in cells if not is_cell(cell)), None)
        if wrong is not None:
            raise ForeignFormatError(f"the row of {cut_to(label, 32)} holds {wrong[:32]!r}, which is no cell", number)
        if len(cells) < len(columns):
            raise ForeignFormatError(
                f"the row of {cut_to(label, 32)} has {len(cells)} cells for {len(columns)} columns", number
            )
        found.append(Row(label, tuple(cells), _tail(lines[position], words, len(columns)), number))
        position += 1
    return found


def _tail(line: str, words: Sequence[str], num_columns: int) -> tuple[str, ...]:
    """What follows the cells; empty fields stay where tabs mark them."""
    fields = [field.strip() for field in line.split("\t")]
    if len(fields) > num_columns + 1 and fields[0] == words[0]:
        return tuple(fields[num_columns + 1 :])
    return tuple(words[num_columns + 1 :])
