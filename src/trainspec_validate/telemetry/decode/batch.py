"""Holds decoded records as columns, and puts them into the order in which they were written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trainspec_validate.documents.types.stream import Event

WARMUP, EVENT = 1, 2
"""Flags of a record."""
RECORD_COLUMNS = ("file", "offset", "time_us", "seq", "step", "start_us", "observed_us", "writer", "subject", "flags")
_TYPES = (np.int32, np.int64, np.int64, np.int64, np.int64, np.int64, np.int64, np.int32, np.int32, np.uint8)


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one key by row; NaN means no value."""

    key: int
    most: int
    """Values that it has at most."""
    values: Any
    valid: Any
    """Bits that say which rows have a value, the lowest first; empty where all have."""
    shift: int = 0
    """Number of the bit of the first row."""

    def numbers(self, rows: Any) -> Any:
        """The values of some rows, not a number where there is none."""
        found = self.values[rows]
        if len(self.valid):
            bits = rows + self.shift
            found = np.where(self.valid[bits >> 3] >> (bits & 7) & 1, found, np.nan)
        return found

    def bits(self) -> bytes:
        """Keys that distinguish columns that have a value in other rows; empty where all rows have one."""
        if not len(self.valid):
            return b""
        bits: bytes = self.valid[self.shift >> 3 : (self.shift + len(self.values) + 7) >> 3].tobytes()
        return bytes([self.shift & 7]) + bits


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of different keys, and where the values of each record are."""

    columns: tuple[Column, ...]
    row: Any
    """Of each record of the batch; -1 for records whose values are among its samples."""
    identity: Any
    """Number of what each row is of."""
    pairs: Any
    """Writer and subject of each of these numbers, as two columns."""


@dataclass(slots=True)
class Batch:
    """Records of one stretch of a file, and their samples in the order of the records."""

    file: Any
    offset: Any
    time_us: Any
    seq: Any
    """-1 where the format has no sequence numbers."""
    step: Any
    """-1 where the record has none."""
    start_us: Any
    """-1 where it is that of the writer."""
    observed_us: Any
    """-1 where it is not known."""
    writer: Any
    subject: Any
    flags: Any
    sample_record: Any
    """Number of the record within the batch, ascending."""
    sample_key: Any
    sample_value: Any
    weights: dict[int, float] = field(default_factory=dict)
    """Number of values of samples that are histograms, by number of the sample; the value is their mean."""
    events: list[tuple[int, Event]] = field(default_factory=list)
    """Events with the number of their record."""
    intervals: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Ends of the 95 % interval of samples whose record gives one, by number of the sample."""
    table: Table | None = None
    """Values that are not among the samples."""

    @property
    def num_records(self) -> int:
        """Samples and events together."""
        return len(self.offset)

    @property
    def num_samples(self) -> int:
        """Values of metrics in addition to those in the table."""
        return len(self.sample_value)


def _made(records: Iterable[Any], *rest: Any) -> Batch:
    """A batch from its columns of records, and what follows them."""
    values: tuple[Any, ...] = (*records, *rest)
    return Batch(*values)


def empty() -> Batch:
    """A batch without records."""
    records: tuple[Any, ...] = tuple(np.zeros(0, kind) for kind in _TYPES)
    return _made(records, np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))


def from_columns(records: Iterable[Any], samples: tuple[Sequence[int], Sequence[int], Sequence[float]]) -> Batch:
    """A batch from columns, in the order of `RECORD_COLUMNS`, and record, key and value of the samples."""
    columns: tuple[Any, ...] = tuple(np.array(column, dtype=kind) for column, kind in zip(records, _TYPES, strict=True))
    record, key, value = samples
    return _made(columns, np.array(record, np.int32), np.array(key, np.int32), np.array(value, np.float64))


def join(batches: Sequence[Batch]) -> Batch:
    """All records of several batches, one after another."""
    if not batches:
        return empty()
    if len(batches) == 1:
        return batches[0]
    batches = [spread(batch) for batch in batches]
    starts = np.cumsum([0, *(batch.num_records for batch in batches)])
    samples = np.cumsum([0, *(batch.num_samples for batch in batches)])
    pairs = list(zip(batches, starts, samples, strict=False))
    columns: tuple[Any, ...] = tuple(np.concatenate([getattr(one, name) for one in batches]) for name in RECORD_COLUMNS)
    return _made(
        columns,
        np.concatenate([batch.sample_record + start for batch, start, _ in pairs]).astype(np.int32),
        np.concatenate([batch.sample_key for batch in batches]),
        np.concatenate([batch.sample_value for batch in batches]),
        {int(first) + number: weight for batch, _, first in pairs for number, weight in batch.weights.items()},
        [(int(start) + number, event) for batch, start, _ in pairs for number, event in batch.events],
        {int(first) + number: ends for batch, _, first in pairs for number, ends in batch.intervals.items()},
    )


def take(batch: Batch, order: Any) -> Batch:
    """The records with these numbers, in this order, with their samples."""
    batch = spread(batch)
    place = np.full(batch.num_records, -1, np.int64)
    place[order] = np.arange(len(order))
    record = place[batch.sample_record]
    kept = np.flatnonzero(record >= 0)
    by_record = kept[np.argsort(record[kept], kind="stable")]
    odd = batch.weights or batch.intervals
    new = dict(zip(by_record.tolist(), range(len(by_record)), strict=True)) if odd else {}
    columns: tuple[Any, ...] = tuple(getattr(batch, name)[order] for name in RECORD_COLUMNS)
    return _made(
        columns,
        record[by_record].astype(np.int32),
        batch.sample_key[by_record],
        batch.sample_value[by_record],
        {new[number]: weight for number, weight in batch.weights.items() if number in new},
        [(int(place[number]), event) for number, event in batch.events if place[number] >= 0],
        {new[number]: ends for number, ends in batch.intervals.items() if number in new},
    )


def in_order(batch: Batch, *, by_time: bool = False) -> Batch:
    """The records by writer, sequence number and time, or time alone where numbers were given by place."""
    first = (batch.time_us,) if by_time else (batch.time_us, batch.seq)
    order = np.lexsort((batch.offset, batch.file, *first, batch.writer))
    if np.array_equal(order, np.arange(len(order))):
        return batch
    return take(batch, order)


def spread(batch: Batch, chosen: Any = None) -> Batch:
    """The batch with the values of chosen records, or of all, among its samples instead of in its table."""
    table = batch.table
    if table is None:
        return batch
    mine = table.row >= 0 if chosen is None else chosen & (table.row >= 0)
    records = np.flatnonzero(mine)
    cells = np.empty((len(records), len(table.columns)))
    for index, column in enumerate(table.columns):
        cells[:, index] = column.numbers(table.row[records])
    keys = np.array([column.key for column in table.columns], np.int32)
    place, number = np.nonzero(~np.isnan(cells))
    record = np.concatenate([batch.sample_record, records[place].astype(np.int32)])
    order = np.argsort(record, kind="stable")
    batch.sample_record = record[order]
    batch.sample_key = np.concatenate([batch.sample_key, keys[number]])[order]
    batch.sample_value = np.concatenate([batch.sample_value, cells[place, number]])[order]
    if batch.weights or batch.intervals:
        new = np.empty(len(order), np.int64)
        new[order] = np.arange(len(order))
        batch.weights = {int(new[old]): weight for old, weight in batch.weights.items()}
        batch.intervals = {int(new[old]): ends for old, ends in batch.intervals.items()}
    left = np.where(mine, -1, table.row)
    batch.table = replace(table, row=left) if (left >= 0).any() else None
    return batch


def apart(batch: Batch) -> Batch:
    """The batch with all values of a writer and subject in one place: among the samples, or in the table."""
    if batch.table is None or not len(batch.sample_record):
        return batch
    codes = batch.writer.astype(np.int64) << 32 | batch.subject
    return spread(batch, np.isin(codes, codes[batch.sample_record]))
