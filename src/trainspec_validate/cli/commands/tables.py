"""Writes rows of text: as a table at a terminal, as plain columns everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainspec_validate.cli import terminal
from trainspec_validate.system.neutral import printable


def show(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int] = frozenset()) -> None:
    """Print the rows; `numbers` are the columns that are aligned to the right."""
    if terminal.is_terminal(sys.stdout):
        _rich(header, rows, numbers)
    else:
        terminal.emit(plain(header, rows, numbers))


def plain(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    """Aligned columns that no program has to unfold."""
    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        + "\n"
        for line in lines
    )


def _rich(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, name in enumerate(header):
        number = column in numbers
        last = column == len(header) - 1
        table.add_column(name, justify="right" if number else "left", no_wrap=not last)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    color = terminal.use_color("auto")
    console = Console(no_color=not color)
    with console.capture() as captured:
        console.print(table)
    terminal.emit(captured.get(), color=True)
