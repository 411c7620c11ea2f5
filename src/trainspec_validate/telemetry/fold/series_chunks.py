"""Cuts the records of a table into chunks of one writer and subject, for each of its columns."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from trainspec_validate.telemetry.decode.batch import Batch, Column, Table
from trainspec_validate.telemetry.decode.identities import Numbering
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts
from trainspec_validate.telemetry.fold.jobs import JobValues
from trainspec_validate.telemetry.kernels import chunks as cutting
from trainspec_validate.telemetry.kernels import numbering
from trainspec_validate.telemetry.kernels.chunks import Chunks, Ordered
from trainspec_validate.telemetry.kernels.column_fold import Some
from trainspec_validate.telemetry.kernels.layout import State
from trainspec_validate.telemetry.view.time_windows import Frame

_NUM_OF_RECORDS = 6
"""Columns of chunks that are of records; those behind them are of chunks, and the last is of subjects."""


class Folded(Protocol):
    """Parts of a digest for those that fold a table into it."""

    names: Names
    pairs: Numbering
    """Of a writer and a subject."""
    frame: Frame
    jobs: JobValues
    some: Some

    def facts(self, file: int) -> FileFacts:
        """Facts of one file in addition to its values."""
        ...

    def state(self) -> State:
        """The arrays for the loops."""
        ...

    def make_room(self, num: int = 1) -> None:
        """Make room for so many more series."""
        ...

    def drain(self) -> None:
        """Take the occurrences out of the buffer."""
        ...


class Cuts:
    """The chunks of a table; columns that have a value in the same rows share theirs."""

    def __init__(self, digest: Folded, batch: Batch, table: Table) -> None:
        self._most = len(digest.some.value)
        self._subject_bits = digest.names.subject_bits()
        self._records = _ordered(digest, batch, table)
        pairs = self._records.begins
        self._whole = self._select(np.zeros(0, np.uint8), 0, np.diff(pairs))
        self._pair = np.searchsorted(pairs, self._whole.begins, side="right") - 1
        self._chunk_of_row = np.full(len(table.identity), len(self._whole.begins), np.int32)
        cutting.enter_rows(self._whole, self._chunk_of_row)
        self._known = {b"": self._whole}

    def of(self, column: Column) -> Chunks:
        """The records that have a value in a column, and maybe others between the chunks."""
        bits = column.bits()
        found = self._known.get(bits)
        if found is None:
            found = self._known[bits] = self._of(column)
        return found

    def _of(self, column: Column) -> Chunks:
        whole = self._whole
        num = len(whole.begins)
        counts = np.zeros(num + 1, np.int64)  # the last one is of rows that are in no chunk
        cutting.count(self._chunk_of_row, column.valid, column.shift, counts)
        counts = counts[:num]
        if ((counts == 0) | (counts == whole.ends - whole.begins)).all():
            chosen = np.flatnonzero(counts)
            return _with_arrays(whole, whole[:_NUM_OF_RECORDS], (array[chosen] for array in _of_chunks(whole)))
        filled = np.bincount(self._pair, counts, len(self._records.writer)).astype(np.int64)
        return self._select(column.valid, column.shift, filled)

    def _select(self, valid: Any, shift: int, filled: Any) -> Chunks:
        """The records whose bits in `valid` are set, of which each pair has so many."""
        room = cutting.room_for(self._records, int(filled.sum()), self._most, self._subject_bits)
        num_chunks, num = cutting.select(self._records, valid, shift, filled, self._most, room)
        of_records = (array[:num] for array in room[:_NUM_OF_RECORDS])
        found = _with_arrays(room, of_records, (array[:num_chunks] for array in _of_chunks(room)))
        cutting.measure(found)
        return found


def _of_chunks(chunks: Chunks) -> tuple[Any, ...]:
    return chunks[_NUM_OF_RECORDS:-1]


def _with_arrays(chunks: Chunks, of_records: Any, of_chunks: Any) -> Chunks:
    return Chunks._make([*of_records, *of_chunks, chunks.subject_bits])


def _ordered(digest: Folded, batch: Batch, table: Table) -> Ordered:
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
