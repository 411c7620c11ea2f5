"""Turns one file of a run into batches, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system.boundary import UnreadableError, unreadable, untrusted
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.telemetry.decode.batch import Batch
from trainspec_validate.telemetry.decode.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.fold.digest import MAX_DAMAGE, Digest
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.formats.source import Block, SourceError, blocks, lines
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.view.run_view import Damage, Location

NATIVE = "metric-stream"
_HEAD_BLOCK_BYTES = 65_536
_MOST_DAMAGED: Final = Limit("a stream", 200_000, "damaged lines")
_MOST_HEADS: Final = Limit("a stream", 100_000, "heads")
_MOST_HEAD_BYTES: Final = Limit("a stream", 48_000_000, "bytes of heads")


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
    is_compressed: bool = False

    @property
    def text_bytes(self) -> int:
        """Size of the text; a compressed one is taken for ten times as large."""
        return self.num_bytes * (10 if self.is_compressed or self.format == "parquet" else 1)

    @contextmanager
    def reading(self, facts: FileFacts | None = None) -> Iterator[None]:
        """Around whatever reads the file: what it raises becomes an `UnreadableError` of this file.

        Where `facts` are given and it is too damaged, the first damage is told.
        """
        with untrusted(unreadable(self.name)):
            try:
                yield
            except OverLimitError as error:
                if facts is None or not facts.damage or error.limit is not _MOST_DAMAGED:
                    raise
                first = facts.damage[0]
                place = f"{'row' if self.format == 'parquet' else 'byte'} {first.location.offset:,}"
                reason = f"{error}; at {place} {first.message}"
                raise UnreadableError(self.name, reason, first.help or "write the file again") from error


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a file: the lines that begin in a range of bytes, or a range of row groups of Parquet."""

    file: RunFile
    start: int = 0
    end: int | None = None
    heads: tuple[Head, ...] = ()
    """Heads that stand before the stretch."""


def batches(stretch: Stretch, digest: Digest, *, in_columns: bool = False) -> Iterator[Batch]:
    """The records of a stretch as columns; names and damage go into the digest.

    `in_columns` leaves values in the columns of a file that has such, for a digest that takes all records in order.

    Raises:
        UnreadableError: the file cannot be read to its end; where only its content is damaged, that is in the digest.
    """
    facts = digest.facts(stretch.file.number)
    try:
        with stretch.file.reading(facts):
            digest.know((stretch.file.head, *stretch.heads))
            yield from _batches(stretch, digest, facts, in_columns=in_columns)
    except SourceError as error:
        note_damage(facts, 0, Refusal(f"the file ends early: {error}", "was the writer stopped?"))


def _batches(stretch: Stretch, digest: Digest, facts: FileFacts, *, in_columns: bool) -> Iterator[Batch]:
    if stretch.file.format == "parquet":
        from trainspec_validate.telemetry.decode.arrow import arrow_batches  # noqa: PLC0415

        yield from arrow_batches(stretch, digest, facts, in_columns=in_columns)
        return
    if stretch.file.format != NATIVE:
        from trainspec_validate.telemetry.decode.foreign import foreign_batches  # noqa: PLC0415

        yield from foreign_batches(stretch.file, digest, facts)
        return
    decoder = decoder_of(RowBuilder(digest.names, facts, stretch.file.head))
    for block in blocks(stretch.file.path, stretch.start, stretch.end):
        yield decoder(block)


def have_order(files: Iterable[RunFile]) -> bool:
    """Whether the formats of all files promise the order of records."""
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415

    return all(FORMATS[file.format].ordered for file in files)


def leading_heads(path: Path) -> tuple[Head, ...]:
    """The heads that a file begins with, one after another."""
    found: list[Head] = []
    num, num_bytes = Count(_MOST_HEADS), Count(_MOST_HEAD_BYTES)
    for block in blocks(path, size=_HEAD_BLOCK_BYTES):
        for _, line in lines(block):
            record = read_line(line)
            if not isinstance(record, Head):
                return tuple(found)
            num.add()
            num_bytes.add(len(line))
            found.append(record)
    return tuple(found)


def decoder_of(builder: RowBuilder) -> Callable[[Block], Batch]:
    """The quick way where the loops are compiled, else the slow one."""
    if not jit.is_compiled():
        return BlockDecoder(builder)
    from trainspec_validate.telemetry.decode.fast import FastDecoder  # noqa: PLC0415

    return FastDecoder(builder)


class BlockDecoder:
    """Reads the lines of a block one by one."""

    def __init__(self, builder: RowBuilder) -> None:
        self.builder = builder

    def __call__(self, block: Block) -> Batch:
        """The records of the block."""
        for offset, line in lines(block):
            take_line(self.builder, offset, line, is_tail=block.is_tail)
        return self.builder.batch()


def take_line(builder: RowBuilder, offset: int, line: bytes, *, is_tail: bool = False) -> None:
    """Read one line into the builder, or note why it is no record."""
    facts = builder.facts
    record = read_line(line)
    if isinstance(record, Head):
        note_head(facts, len(line))
    if isinstance(record, Refusal):
        if is_tail:
            facts.tail = (offset, len(line), record)
            return
        note_damage(facts, offset, record)
        return
    builder.add(offset, record)


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
    _MOST_HEADS.check(facts.num_heads)
    _MOST_HEAD_BYTES.check(facts.head_bytes)
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
        facts.damage.append(Damage(fault.requirement, Location(facts.number, offset), fault.message, fault.help))
