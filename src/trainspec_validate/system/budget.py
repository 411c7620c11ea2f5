"""Limits on what one untrusted input may cost, and the counters that hold them.

Every reader of documents, settings, streams, checkpoints and files of other programs counts bytes, entries, levels of
nesting, keys, decoded bytes and seconds where they are produced, and refuses an input that passes a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LIMITS: Final[dict[str, Limit]] = {}
"""Every limit by name, for the table in SECURITY.md and its test."""


class OverLimitError(Exception):
    """An input passes a limit; the text names the input, the limit and its value."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.refusal)
        self.limit = limit

    def __reduce__(self) -> tuple[type[OverLimitError], tuple[Limit]]:
        return type(self), (self.limit,)  # it travels between processes


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one input may have of something."""

    input: str
    """The kind of input, in the singular, as a sentence starts with it: `a document`, `a zip directory`."""
    most: float
    """The largest number that is accepted."""
    unit: str
    """Counted things, in the plural: `bytes`, `levels of nesting`, `seconds of decoding`."""

    def __post_init__(self) -> None:
        LIMITS[f"{self.input}: {self.unit}"] = self

    @property
    def refusal(self) -> str:
        """Message on an input that passes the limit."""
        return f"{self.input} may have at most {self.most:,} {self.unit}"

    def check(self, number: float) -> None:
        """Accept a number that is known beforehand, such as the size of a file.

        Raises:
            OverLimitError: the number passes the limit.
        """
        if number > self.most:
            raise OverLimitError(self)


@dataclass(slots=True)
class Count:
    """How much of a limit one input has used."""

    limit: Limit
    used: float = 0

    def add(self, number: float = 1) -> None:
        """Count more of it.

        Raises:
            OverLimitError: the sum passes the limit.
        """
        self.used += number
        self.limit.check(self.used)
