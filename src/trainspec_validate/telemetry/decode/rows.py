"""Turns typed records into columns: the slow way, which every record can take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainspec_validate.documents.types.stream import Event, Head, HistogramValue, MetricValue, Sample, StreamRecord
from trainspec_validate.telemetry.decode.batch import EVENT, RECORD_COLUMNS, WARMUP, Batch, from_columns
from trainspec_validate.telemetry.decode.names import Names, Writer
from trainspec_validate.telemetry.formats.items import Losses, Refusal
from trainspec_validate.telemetry.view.run_view import Damage, Location, Subject

_MOST_OWNERS = 100_000
MAX_NOTED = 1_000
"""Other runs in a file, and names of attributes in addition to a key, that are kept."""
_NOT_FINITE = {"NaN": float("nan"), "+Inf": float("inf"), "-Inf": float("-inf")}


@dataclass(slots=True)
class FileFacts:
    """Facts of the records of one file in addition to their values."""

    number: int
    heads: list[tuple[Location, Head]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    num_damaged: int = 0
    num_unread: int = 0
    """Lines among the damaged ones that are no record."""
    num_heads: int = 0
    head_bytes: int = 0
    first_implicit: Location | None = None
    """First record that leaves its emitter or attempt to the head."""
    first_record: Location | None = None
    other_runs: dict[str, Location] = field(default_factory=dict)
    attributes: dict[int, set[str]] = field(default_factory=dict)
    """Names of attributes in addition to each key."""
    first_of_key: dict[int, Location] = field(default_factory=dict)
    num_of_key: dict[int, int] = field(default_factory=dict)
    num_histograms: dict[int, int] = field(default_factory=dict)
    """Values of each key that are histograms; the others are numbers."""
    spellings: dict[str, Location] = field(default_factory=dict)
    """First place of each name of a metric as the file writes it."""
    num_records: int = 0
    losses: Losses | None = None
    """Losses in the conversion of a file of another format."""
    tail: tuple[int, int, Refusal] | None = None
    """Offset and bytes of a last line without an end that is no record, and why."""


class RowBuilder:
    """Collects records of one file as columns."""

    def __init__(self, names: Names, facts: FileFacts, head: Head | None = None) -> None:
        self.names = names
        self.facts = facts
        self.head = head
        """The head that records without run, attempt, emitter and subject rest on: the first of the file."""
        self._owners: dict[tuple[Any, ...], tuple[int, int]] = {}
        """Writer and subject of records, by what they name; as long as no other head is known."""
        self._num_heads = names.num_heads
        self._clear()

    def _clear(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        """Of each record what `RECORD_COLUMNS` name."""
        self.samples: tuple[list[int], list[int], list[float]] = ([], [], [])
        self.weights: dict[int, float] = {}
        self.events: list[tuple[int, Event]] = []
        self.intervals: dict[int, tuple[float, float]] = {}

    def add(self, offset: int, record: StreamRecord) -> None:
        """Take one record."""
        facts = self.facts
        if isinstance(record, Head):
            self._head(Location(facts.number, offset), record)
            return
        facts.num_records += 1
        if facts.first_record is None:
            facts.first_record = Location(facts.number, offset)
        number, flags, start = len(self.rows), 0, None
        if isinstance(record, Event):
            flags = EVENT
            self.events.append((number, record))
        else:
            start = record.start_us
            self._values(number, offset, record)
        if record.a.get("train.step.warmup") is True:
            flags |= WARMUP
        step, observed = record.step, record.observed_us
        times = (-1 if step is None else step, -1 if start is None else start, -1 if observed is None else observed)
        owner = self._owner(offset, record)
        self.rows.append((facts.number, offset, record.time_us, record.seq, *times, *owner, flags))

    def batch(self) -> Batch:
        """Rows that were taken since the last batch."""
        rows = np.array(self.rows, np.int64).reshape(-1, len(RECORD_COLUMNS))
        batch = from_columns(rows.T, self.samples)
        batch.weights, batch.events, batch.intervals = self.weights, self.events, self.intervals
        self._clear()
        return batch

    def _head(self, location: Location, head: Head) -> None:
        self.facts.heads.append((location, head))
        self.head = self.head or head
        self.names.writer(Writer(head.run, head.emitter, head.att), head)

    def _owner(self, offset: int, record: Sample | Event) -> tuple[int, int]:
        """Numbers of the writer and of the subject of a record."""
        if self._num_heads != self.names.num_heads or len(self._owners) > _MOST_OWNERS:
            self._owners, self._num_heads = {}, self.names.num_heads
        named = (record.run, record.att, record.emitter, record.rank, record.host, record.device)
        found = self._owners.get(named)
        if found is None:
            writer = self._writer(Location(self.facts.number, offset), record)
            found = self._owners[named] = writer, self.names.subjects.number(self._subject(record, writer))
        return found

    def _writer(self, location: Location, record: Sample | Event) -> int:
        head = self.head
        if (record.emitter is None or record.att is None) and self.facts.first_implicit is None:
            self.facts.first_implicit = location
        emitter = record.emitter or (head.emitter if head else "")
        attempt = record.att if record.att is not None else (head.att if head else 0)
        own = head.run if head else self.names.run
        if record.run is not None and record.run != own and len(self.facts.other_runs) < MAX_NOTED:
            self.facts.other_runs.setdefault(record.run, location)
        return self.names.writer(Writer(own or record.run or "", emitter, attempt))

    def head_of(self, writer: int) -> Head | None:
        """The head that a writer's records rest on: its own, else the first of the file."""
        return self.names.heads[writer] or self.head

    def _subject(self, record: Sample | Event, writer: int) -> Subject:
        head = self.head_of(writer)
        if head is None:
            return Subject(record.rank, record.host, record.device)
        return Subject(
            record.rank if record.rank is not None else head.rank,
            record.host if record.host is not None else head.host,
            record.device if record.device is not None else head.device,
        )

    def _values(self, number: int, offset: int, record: Sample) -> None:
        records, keys, values = self.samples
        spellings, texts = self.facts.spellings, self.names.texts
        interval = _interval(record) if record.a else None
        for text, value in record.m.items():
            known = texts.get(text)
            key = self.names.key(text) if known is None else known
            if text not in spellings and text in texts:
                spellings[text] = Location(self.facts.number, offset)
            amount, weight = (value, None) if type(value) is float else _amount(value)
            if weight == 0:
                continue
            if weight is not None:
                self.weights[len(values)] = weight
                self.facts.num_histograms[key] = self.facts.num_histograms.get(key, 0) + 1
            if interval is not None:
                self.intervals[len(values)] = interval
            records.append(number)
            keys.append(key)
            values.append(amount)
            if record.a and len(self.facts.attributes.setdefault(key, set())) < MAX_NOTED:
                self.facts.attributes[key].update(record.a)


def _interval(record: Sample) -> tuple[float, float] | None:
    """The ends of the 95 % interval that goes with the values of a record."""
    ends = record.a.get("train.gradient.ci95")
    if not isinstance(ends, list) or len(ends) != 2:
        return None
    low, high = ends
    return None if isinstance(low, str) or isinstance(high, str) else (float(low), float(high))


def _amount(value: MetricValue) -> tuple[float, float | None]:
    """A value as a number, and for a histogram its mean and the number of its values."""
    if isinstance(value, str):
        return _NOT_FINITE[value], None
    if isinstance(value, HistogramValue):
        return value.sum / max(value.count, 1), float(value.count)
    return float(value), None


def note_keys(facts: FileFacts, batch: Batch, file: int) -> None:
    """Count the keys of the records of one file in a batch, with the first place of each."""
    if (batch.file == file).all() and not (batch.offset[1:] < batch.offset[:-1]).any():
        mine = np.arange(batch.num_samples)
    else:
        mine = np.flatnonzero(batch.file[batch.sample_record] == file)
        mine = mine[np.argsort(batch.offset[batch.sample_record[mine]], kind="stable")]
    found = batch.sample_key[mine]
    counts = np.bincount(found)
    first = np.zeros(len(counts), np.int64)
    first[found[::-1]] = mine[::-1]
    for key in np.flatnonzero(counts).tolist():
        offset = int(batch.offset[batch.sample_record[first[key]]])
        note_key(facts, key, int(counts[key]), Location(file, offset))


def note_key(facts: FileFacts, key: int, num: int, first: Location) -> None:
    """Count values of a key, and keep the first place of one."""
    facts.num_of_key[key] = facts.num_of_key.get(key, 0) + num
    before = facts.first_of_key.get(key)
    if before is None or first.offset < before.offset:
        facts.first_of_key[key] = first
