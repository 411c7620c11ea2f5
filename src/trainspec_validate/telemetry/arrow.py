"""The only place that brings the Parquet twin of a stream into batches, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trainspec_validate.documents.stream import Head
from trainspec_validate.streams import parquet
from trainspec_validate.telemetry import jit
from trainspec_validate.telemetry.batch import Batch, join, take
from trainspec_validate.telemetry.digest import Digest
from trainspec_validate.telemetry.identities import Identities
from trainspec_validate.telemetry.kernels import wide
from trainspec_validate.telemetry.lines import LineFault, read_line
from trainspec_validate.telemetry.names import Interner
from trainspec_validate.telemetry.reader import Stretch, note_damage
from trainspec_validate.telemetry.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.view import Location


def head_of(path: Path) -> Head | None:
    """The head that a file begins with.

    Raises:
        SourceError: the file is no twin of a stream.
    """
    for _, batch in parquet.row_batches(path, 0, 1):
        text = batch.column("json")[0].as_py() if batch.num_rows else None
        record = read_line(text.encode()) if text else None
        return record if isinstance(record, Head) else None
    return None


def arrow_batches(stretch: Stretch, digest: Digest, facts: FileFacts) -> Iterator[Batch]:
    """The records of a range of row groups; the place of a record is the number of its row."""
    builder = RowBuilder(digest.names, facts, stretch.file.head)
    texts: Interner[str] = Interner()
    identities = Identities(builder, texts.items)
    for first_row, batch in parquet.row_batches(stretch.file.path, stretch.start, stretch.end):
        text = batch.column("json")
        is_odd = ~np.asarray(text.is_null())
        for row in np.flatnonzero(is_odd).tolist():
            record = read_line(text[row].as_py().encode())
            if isinstance(record, LineFault):
                note_damage(facts, first_row + row, record)
            else:
                builder.add(first_row + row, record)
        plain = _plain_rows(batch, first_row, np.flatnonzero(~is_odd), builder, identities, texts)
        if is_odd.any():
            both = join([plain, builder.batch()])
            plain = take(both, np.argsort(both.offset, kind="stable"))
        yield plain


def _plain_rows(  # noqa: PLR0913, PLR0917
    batch: Any, first_row: int, rows: Any, builder: RowBuilder, identities: Identities, texts: Interner[str]
) -> Batch:
    """The rows that are nothing but numbers."""
    facts, num = builder.facts, len(rows)
    whole = {name: _whole(batch.column(name))[rows] for name in ("time_us", "seq", "att", "step", "rank")}
    named = {name: _numbers(batch.column(name), texts)[rows] for name in ("host", "device", "emitter")}
    facts.num_records += num
    implicit = np.flatnonzero((named["emitter"] < 0) | (whole["att"] < 0))
    if len(implicit):
        first = Location(facts.number, first_row + int(rows[implicit[0]]))
        facts.first_implicit = min(facts.first_implicit or first, first)
    none = np.full(num, -1, np.int64)
    writers = identities.writers(named["emitter"], whole["att"])
    return Batch(
        np.full(num, facts.number, np.int32),
        rows + first_row,
        whole["time_us"],
        whole["seq"],
        whole["step"],
        none,
        none,
        writers,
        identities.subjects(writers, whole["rank"], named["host"], named["device"]),
        np.zeros(num, np.uint8),
        *_values(batch, rows, builder, first_row),
    )


def _values(batch: Any, rows: Any, builder: RowBuilder, first_row: int) -> tuple[Any, Any, Any]:
    """Record, key and value of all numbers, row by row."""
    columns = parquet.metric_columns(batch.schema)
    keys = np.array([builder.names.key(name) for name in columns], np.int32)
    for name in columns:
        builder.facts.spellings.setdefault(name, Location(builder.facts.number, first_row))
    table = np.empty((len(columns), len(rows)))
    for number, name in enumerate(columns):
        table[number] = batch.column(name).to_numpy(zero_copy_only=False)[rows]
    if not jit.is_compiled():
        record, place = np.nonzero(~np.isnan(table.T))
        return record.astype(np.int32), keys[place], table.T[record, place]
    most = table.size
    out = (np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most))
    num = wide.gather(table, keys, *out)
    return out[0][:num], out[1][:num], out[2][:num]


def _whole(column: Any) -> Any:
    return column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _numbers(column: Any, texts: Interner[str]) -> Any:
    """Numbers of the texts of a column with a dictionary; -1 for none."""
    numbers = np.array([texts.number(text) for text in column.dictionary.to_pylist()], np.int64)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if not len(numbers):
        return np.full(len(codes), -1, np.int64)
    return np.where(codes >= 0, numbers[codes], -1)
