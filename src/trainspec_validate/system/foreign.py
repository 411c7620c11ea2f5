"""Defines what a reader raises for a file of another program that cannot be read as what it claims to be."""

from __future__ import annotations


class ForeignFormatError(Exception):
    """A file that cannot be read as what it claims to be.

    `line` counts from 1; None where no line is to blame. `help` says what would be right.
    """

    def __init__(self, message: str, line: int | None = None, help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.line = line
        self.help = help
