"""Reads streams of other formats into batches, record by record."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.telemetry.decode.batch import Batch
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.decode.run_file import RunFile, note_damage, note_head
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.formats.items import Losses, Refusal
from trainspec_validate.telemetry.formats.read import pieces, read
from trainspec_validate.telemetry.formats.source import SourceError, opened

_AT_ONCE = 50_000


def foreign_batches(file: RunFile, names: Names, facts: FileFacts) -> Iterator[Batch]:
    """The records of a file of another format; what cannot become a record is damage."""
    builder = RowBuilder(names, facts)
    try:
        yield from _batches(file, builder)
    except SourceError:
        yield builder.batch()
        raise
    yield builder.batch()


def _batches(file: RunFile, builder: RowBuilder) -> Iterator[Batch]:
    facts = builder.facts
    with opened(file.path) as stream:
        number = 0
        stream_format = FORMATS[file.format]
        for offset, item in read(pieces(stream, stream_format), file.name, stream_format, file.given):
            if isinstance(item, Refusal):
                note_damage(facts, offset, item)
            elif isinstance(item, Losses):
                facts.losses = item
            else:
                if isinstance(item, Head):
                    note_head(facts, 0)
                builder.add(offset, item)
                number += 1
                if number % _AT_ONCE == 0:
                    yield builder.batch()
