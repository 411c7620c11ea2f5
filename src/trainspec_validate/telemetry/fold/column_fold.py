"""Folds values that are whole columns into a digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.batch import Batch, Column, Table
from trainspec_validate.telemetry.decode.names import DEVICE, RANK
from trainspec_validate.telemetry.decode.rows import note_key
from trainspec_validate.telemetry.fold.series_chunks import Cuts, Folded
from trainspec_validate.telemetry.kernels import column_fold as folding
from trainspec_validate.telemetry.kernels.chunks import Chunks
from trainspec_validate.telemetry.kernels.column_fold import AT_ONCE, Some
from trainspec_validate.telemetry.kernels.layout import Keys, Writers
from trainspec_validate.telemetry.view.run_view import Location

_FEW = 4_096
"""Records that are looked through at once for the first one with a value."""


def room_for_some() -> Some:
    """Arrays for the values of one series that are folded at once."""
    whole = (np.zeros(AT_ONCE, np.int64) for _ in range(5))
    return Some(np.zeros(AT_ONCE), *whole)


def fold_table(digest: Folded, batch: Batch, table: Table, about: tuple[Keys, Writers]) -> int:
    """Fold the columns of a batch of one file; returns the number of values."""
    if not len(batch.file):
        return 0
    cuts = Cuts(digest, batch, table)
    can_be_of_job = digest.names.key_columns().job
    file, total = int(batch.file[0]), 0
    for column in table.columns:
        chunks = cuts.of(column)
        if can_be_of_job[column.key] and (chunks.subject_bits[chunks.subject] & (RANK | DEVICE) == 0).any():
            _keep_job_values(digest, batch, table, column)
        num = _fold_column(digest, column, chunks, (*about, file))
        if num:
            _note(digest, batch, table, column, num)
        total += num
    return total


def _fold_column(digest: Folded, column: Column, chunks: Chunks, about: tuple[Keys, Writers, int]) -> int:
    keys, writers, file = about
    index = total = 0
    while index < len(chunks.begins):
        digest.make_room()
        tables = (digest.state(), keys, writers, chunks, digest.some)
        index, num = folding.fold(*tables, file, column.key, column.values, index)
        digest.drain()
        total += num
    return total


def _note(digest: Folded, batch: Batch, table: Table, column: Column, num: int) -> None:
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


def _keep_job_values(digest: Folded, batch: Batch, table: Table, column: Column) -> None:
    """Keep the values of series of the whole job."""
    bits = digest.names.subject_bits()
    records = np.flatnonzero((table.row >= 0) & (bits[batch.subject] & (RANK | DEVICE) == 0))
    values: Any = column.numbers(table.row[records])
    some = np.flatnonzero(~np.isnan(values))
    digest.jobs.keep(batch, digest.names, records[some], np.full(len(some), column.key, np.int32), values[some])
