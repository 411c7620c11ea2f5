"""Names the files of a run, and holds what one file has shown against limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system.boundary import UnreadableError, unreadable, untrusted
from trainspec_validate.system.budget import Limit, OverLimitError
from trainspec_validate.telemetry.decode.rows import FileFacts
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.formats.items import Given, Refusal
from trainspec_validate.telemetry.view.run_view import Damage, Location

NATIVE = "metric-stream"
_MOST_DAMAGED: Final = Limit("a stream", 200_000, "damaged lines")
MOST_HEADS: Final = Limit("a stream", 100_000, "heads")
MOST_HEAD_BYTES: Final = Limit("a stream", 48_000_000, "bytes of heads")
MAX_DAMAGE = 10_000
"""Damaged lines of a file that are kept in words."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """One file of a run, as it was found."""

    number: int
    path: Path
    name: str
    """As findings name it."""
    format: str
    num_bytes: int
    head: Head | None
    """First head, where the file begins with one."""
    run: str | None = None
    """Run that a file of another format names at its start."""
    is_compressed: bool = False
    given: Given = field(default_factory=Given)
    """Facts of a file by its place or other files of the run, and not by itself."""
    least_text_bytes: int = 0
    """Text that the records of a file take at least, by the file."""

    @property
    def text_bytes(self) -> int:
        """Size of the text; a compressed one is taken for ten times as large."""
        factor = 10 if self.is_compressed or self.format == "parquet" else 1
        return max(self.num_bytes * factor, self.least_text_bytes)

    @contextmanager
    def reading(self, facts: FileFacts | None = None) -> Iterator[None]:
        """Around whatever reads the file: what it raises becomes an `UnreadableError` of this file.

        Where `facts` are given and it is too damaged, the first damage is reported.
        """
        with untrusted(unreadable(self.name)):
            try:
                yield
            except OverLimitError as error:
                if facts is None or not facts.damage or error.limit is not _MOST_DAMAGED:
                    raise
                first = facts.damage[0]
                place = f"{'row' if FORMATS[self.format].is_binary else 'byte'} {first.location.offset:,}"
                reason = f"{error}; at {place} {first.message}"
                raise UnreadableError(self.name, reason, first.help or "write the file again") from error


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a file: the lines that begin in a range of bytes, or a range of row groups of Parquet."""

    file: RunFile
    start: int = 0
    end: int | None = None
    heads: tuple[Head, ...] = ()
    """Heads that come before the stretch."""


def note_head(facts: FileFacts, num_bytes: int) -> None:
    """Count a head, which is kept.

    Raises:
        OverLimitError: the file has too many of them, or too large ones.
    """
    facts.num_heads += 1
    facts.head_bytes += num_bytes
    check_facts(facts)


def check_facts(facts: FileFacts) -> None:
    """Hold what a file has shown against its limits, which its parts may keep and their sum not.

    Raises:
        OverLimitError: it passes one.
    """
    MOST_HEADS.check(facts.num_heads)
    MOST_HEAD_BYTES.check(facts.head_bytes)
    _MOST_DAMAGED.check(facts.num_unread)


def note_damage(facts: FileFacts, offset: int, fault: Refusal) -> None:
    """Keep the damage of a line; the first ones in words, all in number.

    Raises:
        OverLimitError: the file has too many of them to be worth reading on.
    """
    facts.num_damaged += 1
    facts.num_unread += 1
    _MOST_DAMAGED.check(facts.num_unread)
    if len(facts.damage) < MAX_DAMAGE:
        location = Location(facts.number, offset)
        words = (fault.message, fault.help)
        facts.damage.append(Damage(fault.requirement, location, *words, fault.is_accepted, fault.is_unjudged))
