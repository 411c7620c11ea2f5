"""Decodes the lines of a block one by one, and notes those that are no record."""

from __future__ import annotations

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.telemetry.decode.batch import Batch
from trainspec_validate.telemetry.decode.rows import RowBuilder
from trainspec_validate.telemetry.decode.run_file import note_damage, note_head
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.formats.source import Block, lines


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
