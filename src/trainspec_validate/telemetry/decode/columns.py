"""Holds values of records as the columns that they were read from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trainspec_validate.telemetry.decode.batch import Batch


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one key by row; not a number stands for no value."""

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
        """What tells apart columns that have a value in other rows; empty where all rows have one."""
        if not len(self.valid):
            return b""
        bits: bytes = self.valid[self.shift >> 3 : (self.shift + len(self.values) + 7) >> 3].tobytes()
        return bytes([self.shift & 7]) + bits


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of different keys, and where the values of each record stand."""

    columns: tuple[Column, ...]
    row: Any
    """Of each record of the batch; -1 for records whose values are among its samples."""
    identity: Any
    """Number of what each row is of."""
    pairs: Any
    """Writer and subject of each of these numbers, as two columns."""


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
