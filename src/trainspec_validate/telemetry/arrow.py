"""The only place that brings the Parquet twin of a stream into batches, column by column."""

from __future__ import annotations

import re
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
from trainspec_validate.telemetry.kernels.parse import MOST_ATTEMPT, MOST_TIME
from trainspec_validate.telemetry.lines import RECORD, LineFault, read_line
from trainspec_validate.telemetry.names import Interner
from trainspec_validate.telemetry.reader import Stretch, note_damage
from trainspec_validate.telemetry.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.view import Location

_NAMES = ("host", "device", "emitter")
_NO_NAME = -2
_BOUNDS = {
    "time_us": (0, MOST_TIME),
    "seq": (0, 999_999_999_999_999),
    "att": (-1, MOST_ATTEMPT),
    "step": (-1, 999_999_999_999),
    "rank": (-1, 99_999_999),
}
"""Of whole numbers in rows, as in the schema; -1 is for none."""
_METRIC = re.compile(r"[a-z][a-z0-9_.]*(\{[^{}\x00-\x1f]+\})?")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
_LONGEST_KEY = 512
_MOST_CELLS = 8_000_000
"""Numbers that are held at once."""


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


def leading_heads(path: Path) -> tuple[Head, ...]:
    """The heads that a file begins with, one after another."""
    found: list[Head] = []
    for _, batch in parquet.row_batches(path):
        for text in batch.column("json"):
            record = read_line(text.as_py().encode()) if text.is_valid else None
            if not isinstance(record, Head):
                return tuple(found)
            found.append(record)
    return tuple(found)


def arrow_batches(stretch: Stretch, digest: Digest, facts: FileFacts) -> Iterator[Batch]:
    """The records of a range of row groups; the place of a record is the number of its row."""
    builder = RowBuilder(digest.names, facts, stretch.file.head)
    texts: Interner[str] = Interner()
    identities = Identities(builder, texts.items)
    for first_row, batch in _pieces(stretch, facts):
        text = batch.column("json")
        is_odd = ~np.asarray(text.is_null())
        for row in np.flatnonzero(is_odd).tolist():
            record = read_line(text[row].as_py().encode())
            if isinstance(record, LineFault):
                note_damage(facts, first_row + row, record)
            else:
                builder.add(first_row + row, record)
        named = {name: _numbers(batch.column(name), texts) for name in _NAMES}
        rows = _sound(batch, first_row, np.flatnonzero(~is_odd), named, facts)
        plain = _plain_rows(batch, first_row, rows, {name: named[name][rows] for name in _NAMES}, builder, identities)
        if is_odd.any():
            both = join([plain, builder.batch()])
            plain = take(both, np.argsort(both.offset, kind="stable"))
        yield plain


def _pieces(stretch: Stretch, facts: FileFacts) -> Iterator[tuple[int, Any]]:
    """The rows in pieces whose numbers fit into memory; columns that name no metric are damage."""
    refused: set[str] = set()
    for first_row, batch in parquet.row_batches(stretch.file.path, stretch.start, stretch.end):
        wrong = {name for name in parquet.metric_columns(batch.schema) if not _is_metric(name)}
        for name in sorted(wrong - refused):
            message = f"the column {name[:60]!r} has no name of a metric"
            note_damage(facts, 0, LineFault(RECORD, message, "name columns by the keys of metrics"))
        refused |= wrong
        sound = batch.select([name for name in batch.schema.names if name not in wrong])
        num = max(1, _MOST_CELLS // sound.num_columns)
        for start in range(0, sound.num_rows, num):
            yield first_row + start, sound.slice(start, num)


def _is_metric(name: str) -> bool:
    return len(name) <= _LONGEST_KEY and _METRIC.fullmatch(name) is not None


def _sound(batch: Any, first_row: int, rows: Any, named: dict[str, Any], facts: FileFacts) -> Any:
    """Those rows whose coordinates the schema allows; the others are damage."""
    wrong = np.zeros(len(rows), bool)
    for name, (low, high) in _BOUNDS.items():
        column = _whole(batch.column(name))[rows]
        wrong |= (column < low) | (column > high)
    for column in named.values():
        wrong |= column[rows] == _NO_NAME
    for row in rows[wrong].tolist():
        message = "the row has a time, a number, a name, a step, a rank or an attempt that no record can have"
        note_damage(facts, first_row + row, LineFault(RECORD, message, "see the schema of records"))
    return rows[~wrong]


def _plain_rows(  # noqa: PLR0913, PLR0917
    batch: Any, first_row: int, rows: Any, named: dict[str, Any], builder: RowBuilder, identities: Identities
) -> Batch:
    """The rows that are nothing but numbers."""
    facts, num = builder.facts, len(rows)
    whole = {name: _whole(batch.column(name))[rows] for name in ("time_us", "seq", "att", "step", "rank")}
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
    """Numbers of the texts of a column; -1 for none, -2 for a text that names nothing."""
    if not hasattr(column, "dictionary"):
        column = column.dictionary_encode()
    numbers = np.array([_number(text, texts) for text in column.dictionary.to_pylist()], np.int64)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if not len(numbers):
        return np.full(len(codes), -1, np.int64)
    return np.where(codes >= 0, numbers[codes], -1)


def _number(text: str | None, texts: Interner[str]) -> int:
    if text is None:
        return -1
    return texts.number(text) if _NAME.fullmatch(text) else _NO_NAME
