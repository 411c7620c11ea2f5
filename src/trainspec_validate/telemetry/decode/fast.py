"""Reads blocks of common records by compiled loops, and the rest of their lines one by one."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.batch import Batch, join, take
from trainspec_validate.telemetry.decode.identities import Identities
from trainspec_validate.telemetry.decode.line_decoder import take_line
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import RowBuilder
from trainspec_validate.telemetry.formats.source import Block
from trainspec_validate.telemetry.kernels import parse as parsing
from trainspec_validate.telemetry.kernels import texts as finding
from trainspec_validate.telemetry.kernels import words
from trainspec_validate.telemetry.kernels.parse import PAD, RECORD
from trainspec_validate.telemetry.kernels.texts import Table
from trainspec_validate.telemetry.view.run_view import Location

_BYTES_OF_A_VALUE = 8
_MAX_TEXTS = 4_000_000
_FEW_LINES, _MOST_LINES = 128, 100_000
"""Lines that are read before new names are learned: few while most lines have some."""


class Texts:
    """Texts with numbers, in the form that the loops look them up in."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.known: dict[str, int] = {}
        self.numbers: list[int] = []
        self.arena = np.zeros(1_024, np.uint8)
        self.words = words.view(self.arena)
        self.used = 0
        self.starts = np.zeros(64, np.int64)
        self.lengths = np.full(64, -1, np.int64)
        self.values = np.zeros(64, np.int64)
        self.after = np.full(65, -1, np.int64)
        self.slots = np.zeros(256, np.int64)

    def add(self, text: str, number: int | None = None) -> int:
        """Enter a text with the number that it represents, by default its own; returns the number."""
        if text in self.known or len(self.items) >= _MAX_TEXTS:
            return self.values[self.known[text]].item() if text in self.known else -1
        content = np.frombuffer(f'{text}"'.encode(), np.uint8)
        entry = len(self.items)
        self.known[text] = entry
        self.items.append(text)
        self._make_room(entry + 1, self.used + len(content))
        self.arena[self.used : self.used + len(content)] = content
        self.starts[entry], self.lengths[entry] = self.used, len(content)
        self.values[entry] = entry if number is None else number
        self.used += len(content)
        self._enter(entry)
        return int(self.values[entry])

    def table(self) -> Table:
        """The arrays for the loops."""
        return Table(self.words, self.starts, self.lengths, self.slots, self.values, self.after)

    def _make_room(self, entries: int, size: int) -> None:
        if size + words.BYTES > len(self.arena):
            self.arena = np.concatenate([self.arena, np.zeros(max(size, len(self.arena)), np.uint8)])
            self.words = words.view(self.arena)
        if entries > len(self.starts):
            self.starts = np.concatenate([self.starts, np.zeros_like(self.starts)])
            self.lengths = np.concatenate([self.lengths, np.full_like(self.lengths, -1)])
            self.values = np.concatenate([self.values, np.zeros_like(self.values)])
            self.after = np.concatenate([self.after, np.full(len(self.starts) + 1 - len(self.after), -1, np.int64)])
        if 2 * entries > len(self.slots):
            self.slots = np.zeros(2 * len(self.slots), np.int64)
            for entry in range(entries - 1):
                self._enter(entry)

    def _enter(self, entry: int) -> None:
        mask = len(self.slots) - 1
        start = int(self.starts[entry])
        place = int(finding.hash_of(self.arena, start, start + int(self.lengths[entry]))) & mask
        while self.slots[place]:
            place = (place + 1) & mask
        self.slots[place] = entry + 1


class FastDecoder:
    """Reads blocks of one stretch of a file."""

    def __init__(self, builder: RowBuilder) -> None:
        self.builder = builder
        self.names: Names = builder.names
        self.keys = Texts()
        self.texts = Texts()
        self.stamps: Any = np.zeros(1, np.int64)
        self.hints: Any = np.full(len(parsing.FIELDS), -1, np.int64)
        self.fields_after: Any = np.arange(len(parsing.FIELDS) + 1) % len(parsing.FIELDS)
        self.identities = Identities(builder, self.texts.items)
        self.run = self.texts.add(builder.head.run) if builder.head else -1
        self.num_at_once = _FEW_LINES
        self.text: Any = np.zeros(0, np.uint8)
        self.records: Any = np.zeros(_MOST_LINES, RECORD)
        self.out: tuple[Any, Any] = (np.zeros(0, np.int32), np.zeros(0))

    def __call__(self, block: Block) -> Batch:
        """The records of a block, in the order of their lines."""
        size = len(block.content)
        if size + PAD > len(self.text):
            self.text = np.zeros(size + PAD, np.uint8)
        text = self.text
        text[:size] = np.frombuffer(block.content, np.uint8)
        text[size : size + PAD] = 0
        parts: list[Batch] = []
        place = 0
        while place < size:
            self.learn()
            place += self._some(block, text[place:], size - place, place, parts)
        return join(parts)

    def learn(self) -> None:
        """Enter the names that the slow way has seen in this file, and so noted the first place of."""
        for text in islice(self.builder.facts.spellings, len(self.keys.items), None):
            self.keys.add(text, self.names.texts[text])
        self.stamps = np.zeros(len(self.names.keys) + 1, np.int64)

    def _some(self, block: Block, text: Any, size: int, begin: int, parts: list[Batch]) -> int:
        """Read a part of a block; returns how many bytes."""
        records = self.records[: self.num_at_once]
        most = max(16_384, size // _BYTES_OF_A_VALUE)
        if most > len(self.out[0]):
            self.out = (np.zeros(most, np.int32), np.zeros(most))
        out = self.out
        tables = (self.keys.table(), self.texts.table())
        hints = (self.hints, self.fields_after)
        eights = words.view(text)
        rows = records.view(np.int64).reshape(len(records), -1)
        num, place = parsing.parse(text, eights, size, tables, self.stamps, hints, self.run, rows, out)
        records = records[:num]
        odd = np.flatnonzero(records["is_read"] == 0)
        self.num_at_once = _MOST_LINES if 8 * len(odd) < num else _FEW_LINES
        offset = block.offset + begin
        first = 0
        for number in odd.tolist():
            start, end = int(records["start"][number]), int(records["end"][number])
            line = text[start:end].tobytes().removesuffix(b"\r")
            is_head = b'"head"' in line
            if is_head and number > first:  # what stands before a head does not rest on it
                parts.append(self._taken(records[first:number], offset, out))
                first = number
            self._slow(offset + start, line, is_tail=block.is_tail)
            if is_head and number == first and not self.builder.rows:
                first = number + 1
        parts.append(self._taken(records[first:], offset, out))
        return int(place)

    def _taken(self, records: Any, offset: int, out: tuple[Any, Any]) -> Batch:
        """The records of lines that were read either way, in their order."""
        good = records if records["is_read"].all() else records[records["is_read"] == 1]
        begin = int(good["first"][0]) if len(good) else 0
        values = slice(begin, begin + int(good["num"].sum()))
        found = self._batch(good, offset, out[0][values], out[1][values])
        if len(good) == len(records):
            return found
        both = join([found, self.builder.batch()])
        return take(both, np.argsort(both.offset, kind="stable"))

    def _slow(self, offset: int, line: bytes, *, is_tail: bool) -> None:
        """Read a line the slow way, and learn the names that it has."""
        before, heads = len(self.builder.rows), self.builder.facts.heads
        num_heads = len(heads)
        take_line(self.builder, offset, line, is_tail=is_tail)
        if len(self.builder.rows) > before:
            for column in (7, 8):
                self._learn_names(column, self.builder.rows[-1][column])
        for _, head in heads[num_heads:]:
            for text in (head.emitter, head.host, head.device):
                if text is not None:
                    self.texts.add(text)
        if self.run < 0 and self.builder.head is not None:
            self.run = self.texts.add(self.builder.head.run)

    def _learn_names(self, column: int, number: int) -> None:
        if column == 7:
            self.texts.add(self.names.writers.items[number].emitter)
            return
        subject = self.names.subjects.items[number]
        for text in (subject.host, subject.device):
            if text is not None:
                self.texts.add(text)

    def _batch(self, records: Any, offset: int, keys: Any, values: Any) -> Batch:
        facts = self.builder.facts
        num = len(records)
        facts.num_records += num
        if num:
            self._note_places(records, offset)
        numbers = self.identities.of(*(records[name] for name in ("emitter", "att", "rank", "host", "device")))
        writers, subjects = self.identities.pairs[numbers].T
        return Batch(
            np.full(num, facts.number, np.int32),
            records["start"] + offset,
            records["time_us"].copy(),
            records["seq"].copy(),
            records["step"].copy(),
            records["start_us"].copy(),
            records["observed_us"].copy(),
            writers,
            subjects,
            np.zeros(num, np.uint8),
            np.repeat(np.arange(num, dtype=np.int32), records["num"]),
            keys.copy(),
            values.copy(),
        )

    def _note_places(self, records: Any, offset: int) -> None:
        facts = self.builder.facts
        first = Location(facts.number, int(records["start"][0]) + offset)
        facts.first_record = min(facts.first_record or first, first)
        implicit = np.flatnonzero((records["emitter"] < 0) | (records["att"] < 0))
        if len(implicit):
            first = Location(facts.number, int(records["start"][implicit[0]]) + offset)
            facts.first_implicit = min(facts.first_implicit or first, first)
