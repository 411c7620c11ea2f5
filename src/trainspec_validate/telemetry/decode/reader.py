"""Turns one file of a run into batches, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system.budget import Count, Meter
from trainspec_validate.telemetry.decode.batch import Batch
from trainspec_validate.telemetry.decode.line_decoder import BlockDecoder
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.decode.run_file import (
    MOST_HEAD_BYTES,
    MOST_HEADS,
    NATIVE,
    RunFile,
    Stretch,
    note_damage,
)
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.formats.source import FREE_SECONDS, MOST_SECONDS, Block, SourceError, blocks, lines
from trainspec_validate.telemetry.kernels import jit

_HEAD_BLOCK_BYTES = 65_536


def batches(stretch: Stretch, names: Names, facts: FileFacts, *, in_columns: bool = False) -> Iterator[Batch]:
    """The records of a stretch as columns; names go into `names`, damage into `facts`.

    `in_columns` leaves values in the columns of a file that has such, for a digest that takes all records in order.

    Raises:
        UnreadableError: the file cannot be read to its end; where only its content is damaged, that is in `facts`.
    """
    try:
        with stretch.file.reading(facts):
            names.know((stretch.file.head, *stretch.heads))
            yield from _batches(stretch, names, facts, in_columns=in_columns)
    except SourceError as error:
        note_damage(facts, 0, Refusal(f"the file ends early: {error}", "was the writer stopped?"))


def _batches(stretch: Stretch, names: Names, facts: FileFacts, *, in_columns: bool) -> Iterator[Batch]:
    if stretch.file.format == "parquet":
        from trainspec_validate.telemetry.decode.arrow import arrow_batches  # noqa: PLC0415

        yield from arrow_batches(stretch, names, facts, in_columns=in_columns)
        return
    if stretch.file.format != NATIVE:
        from trainspec_validate.telemetry.decode.foreign import foreign_batches  # noqa: PLC0415

        yield from foreign_batches(stretch.file, names, facts)
        return
    decoder = decoder_of(RowBuilder(names, facts, stretch.file.head))
    meter = Meter(MOST_SECONDS, FREE_SECONDS)
    found = meter.read(blocks(stretch.file.path, stretch.start, stretch.end), lambda block: len(block.content))
    yield from meter.given(map(decoder, found))


def have_order(files: Iterable[RunFile]) -> bool:
    """Whether the formats of all files promise the order of records."""
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415

    return all(FORMATS[file.format].ordered for file in files)


def leading_heads(path: Path) -> tuple[Head, ...]:
    """The heads that a file begins with, one after another."""
    found: list[Head] = []
    num, num_bytes = Count(MOST_HEADS), Count(MOST_HEAD_BYTES)
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
