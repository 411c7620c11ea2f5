"""The only place that folds values that are whole columns into a digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from trainspec_validate.telemetry.batch import Batch
from trainspec_validate.telemetry.columns import Column, Table
from trainspec_validate.telemetry.kernels import chunks as cutting
from trainspec_validate.telemetry.kernels import numbering
from trainspec_validate.telemetry.kernels import wide as folding
from trainspec_validate.telemetry.kernels.chunks import Chunks, Ordered
from trainspec_validate.telemetry.kernels.layout import Keys, Writers
from trainspec_validate.telemetry.kernels.wide import AT_ONCE, Some
from trainspec_validate.telemetry.names import DEVICE, RANK
from trainspec_validate.telemetry.rows import note_key
from trainspec_validate.telemetry.view import Location

if TYPE_CHECKING:
    from trainspec_validate.telemetry.digest import Digest


_FEW = 4_096
"""Records that are looked through at once for the first one with a value."""


def room_for_some() -> Some:
    """Arrays for the values of one series that are folded at once."""
    whole = (np.zeros(AT_ONCE, np.int64) for _ in range(5))
    return Some(np.zeros(AT_ONCE), *whole)


def fold_table(digest: Digest, batch: Batch, table: Table, about: tuple[Keys, Writers]) -> int:
    """Fold the columns of a batch of one file; returns the number of values."""
    if not len(batch.file):
        return 0
    records = _ordered(digest, batch, table)
    whole = _select(digest, records, len(records.row), np.zeros(0, np.uint8), 0)
    _keep_job_values(digest, batch, table)
    known: list[tuple[Column, Chunks]] = []
    file, total = int(batch.file[0]), 0
    for column in table.columns:
        chunks = next((chunks for other, chunks in reversed(known) if column.has_rows_of(other)), None)
        if chunks is None:
            chunks = _chunks(digest, records, whole, column)
            known.append((column, chunks))
        num = _fold_column(digest, column, chunks, (*about, file))
        if num:
            _note(digest, batch, table, column, num)
        total += num
    return total


def _ordered(digest: Digest, batch: Batch, table: Table) -> Ordered:
    """The records whose values are in the table, by writer and subject."""
    mine = np.flatnonzero(table.row >= 0)
    is_whole = len(mine) == len(table.row)
    same = digest.pairs.of(*table.pairs.T)  # several coordinates may be of one pair
    numbers = same.take(table.identity.take(table.row if is_whole else table.row[mine]))
    counts = np.bincount(numbers, minlength=digest.pairs.num)
    order = np.empty(len(numbers), np.int64)
    numbering.group(numbers, np.cumsum(counts) - counts, order)
    chosen = order if is_whole else mine.take(order)
    present = np.flatnonzero(counts)
    writer, subject = digest.pairs.codes[present].T
    first_window, width = digest.frame.numbers[:2]
    time = batch.time_us.take(chosen)
    return Ordered(
        *(table.row.take(chosen), batch.offset.take(chosen), time, batch.step.take(chosen)),
        time // width - first_window,
        np.concatenate([[0], np.cumsum(counts[present])]),
        *(np.ascontiguousarray(writer), np.ascontiguousarray(subject)),
    )


def _chunks(digest: Digest, records: Ordered, whole: Chunks, column: Column) -> Chunks:
    """The records that have a value in a column, in chunks of one writer and subject."""
    if not len(column.valid):
        return whole
    counts = np.empty(len(whole.begins), np.int64)
    if cutting.count(whole, column.valid, column.shift, counts):
        chosen = np.flatnonzero(counts)
        return Chunks._make([*whole[:6], *(array[chosen] for array in whole[6:14]), whole.subject_bits])
    return _select(digest, records, column.most, column.valid, column.shift)


def _select(digest: Digest, records: Ordered, num: int, valid: Any, shift: int) -> Chunks:
    """The records whose bits in `valid` are set, at most so many; an empty `valid` says that all are."""
    most = len(digest.some.value)
    room = cutting.room_for(records, num, most, digest.names.subject_bits())
    num_chunks, num = cutting.select(records, valid, shift, most, room)
    of_records, of_chunks = (array[:num] for array in room[:6]), (array[:num_chunks] for array in room[6:14])
    found = Chunks._make([*of_records, *of_chunks, room.subject_bits])
    cutting.measure(found)
    return found


def _fold_column(digest: Digest, column: Column, chunks: Chunks, about: tuple[Keys, Writers, int]) -> int:
    keys, writers, file = about
    index = total = 0
    while index < len(chunks.begins):
        digest.make_room()
        tables = (digest.state(), keys, writers, chunks, digest.some)
        index, num = folding.fold(*tables, file, column.key, column.values, index)
        digest.drain()
        total += num
    return total


def _note(digest: Digest, batch: Batch, table: Table, column: Column, num: int) -> None:
    """Count the values of a key, with the place of the first."""
    facts = digest.facts(int(batch.file[0]))
    first = facts.first_of_key.get(column.key)
    if first is None or int(batch.offset[0]) < first.offset:
        first = Location(facts.number, next(_offsets(batch, table, column)))
    note_key(facts, column.key, num, first)


def _offsets(batch: Batch, table: Table, column: Column) -> Iterator[int]:
    """Offsets of the records that have a value in a column."""
    for start in range(0, len(table.row), _FEW):
        records = start + np.flatnonzero(table.row[start : start + _FEW] >= 0)
        filled = records[~np.isnan(column.numbers(table.row[records]))]
        yield from batch.offset[filled].tolist()


def _keep_job_values(digest: Digest, batch: Batch, table: Table) -> None:
    """Keep the values of series of the whole job."""
    can_be = digest.names.key_columns().job
    columns = [column for column in table.columns if can_be[column.key]]
    bits = digest.names.subject_bits()
    records = np.flatnonzero((table.row >= 0) & (bits[batch.subject] & (RANK | DEVICE) == 0)) if columns else ()
    if not len(records):
        return
    for column in columns:
        values: Any = column.numbers(table.row[records])
        some = np.flatnonzero(~np.isnan(values))
        digest.jobs.keep(batch, digest.names, records[some], np.full(len(some), column.key, np.int32), values[some])
