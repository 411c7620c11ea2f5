"""Reads the Parquet twin of a stream into batches, column by column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system.budget import Count
from trainspec_validate.telemetry.decode.batch import Batch, Column, Table, join, spread, take
from trainspec_validate.telemetry.decode.identities import Identities
from trainspec_validate.telemetry.decode.names import MOST_SUBJECTS, Interner, Names
from trainspec_validate.telemetry.decode.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.decode.run_file import MOST_HEAD_BYTES, MOST_HEADS, Stretch, note_damage, note_head
from trainspec_validate.telemetry.formats import parquet
from trainspec_validate.telemetry.formats.items import Record, Refusal
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.kernels.parse import MOST_ATTEMPT, MOST_TIME
from trainspec_validate.telemetry.view.run_view import Location

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
_ROWS_AT_ONCE = 4_096
"""Rows with a text of their own that are compared with their columns at once."""


def first_head(path: Path) -> Head | None:
    """The head that a file begins with.

    Raises:
        SourceError: the file is no twin of a stream.
    """
    for _, batch in parquet.row_batches(path, 0, 1, ["json"]):
        (text,) = parquet.contents_of(batch.column("json").slice(0, 1)) if batch.num_rows else [None]
        record = read_line(text) if text is not None else None
        return record if isinstance(record, Head) else None
    return None


def leading_heads(path: Path) -> tuple[Head, ...]:
    """The heads that a file begins with, one after another."""
    found: list[Head] = []
    num, num_bytes = Count(MOST_HEADS), Count(MOST_HEAD_BYTES)
    for _, whole in parquet.row_batches(path, columns=["json"]):
        for _, batch in parquet.pieces(whole):
            for text in parquet.contents_of(batch.column("json")):
                record = read_line(text) if text is not None else None
                if text is None or not isinstance(record, Head):
                    return tuple(found)
                num.add()
                num_bytes.add(len(text))
                found.append(record)
    return tuple(found)


def arrow_batches(stretch: Stretch, names: Names, facts: FileFacts, *, in_columns: bool = False) -> Iterator[Batch]:
    """The records of a range of row groups; the place of a record is the number of its row.

    `in_columns` leaves values in the columns of the file where compiled loops can fold them.
    """
    builder = RowBuilder(names, facts, stretch.file.head)
    texts = _Texts()
    identities = Identities(builder, texts.known.items)
    for first_row, batch in _pieces(stretch, facts):
        text = batch.column("json")
        is_odd = ~np.asarray(text.is_null()) if text.null_count < len(text) else np.zeros(len(text), bool)
        odd = np.flatnonzero(is_odd)
        for row, num_bytes, record in _odd_rows(batch, odd):
            if isinstance(record, Refusal):
                note_damage(facts, first_row + row, record)
            else:
                if isinstance(record, Head):
                    note_head(facts, num_bytes)
                builder.add(first_row + row, record)
        identity = np.zeros(batch.num_rows, np.int64)
        found = _plain_rows(batch, first_row, ~is_odd, builder, identities, texts, identity)
        if is_odd.any():
            both = join([found, builder.batch()])
            found = take(both, np.argsort(both.offset, kind="stable"))
        row = found.offset - first_row
        if is_odd.any():
            row[is_odd[row]] = -1
        columns = tuple(_columns(batch, builder, first_row))
        found.table = Table(columns, row, identity, identities.pairs)
        is_foldable = in_columns and jit.is_compiled() and len({column.key for column in columns}) == len(columns)
        yield found if is_foldable else spread(found)


def _odd_rows(batch: Any, odd: Any) -> Iterator[tuple[int, int, Record | Refusal]]:
    """The rows whose record is in `json`: number, bytes of the text, and the record, or why there is none."""
    for first in range(0, len(odd), _ROWS_AT_ONCE):
        rows = odd[first : first + _ROWS_AT_ONCE]
        part = batch.take(rows)
        texts = parquet.contents_of(part.column("json"))
        records = [read_line(text or b"") for text in texts]
        for name in part.schema.names:
            column = part.column(name)
            if name == "json" or column.null_count == len(column):
                continue
            for at, cell in enumerate(column.to_pylist()):
                if parquet.contradicts(records[at], name, cell):
                    records[at] = parquet.contradiction(name)
        for row, text, record in zip(rows.tolist(), texts, records, strict=True):
            yield row, len(text or b""), record


def _pieces(stretch: Stretch, facts: FileFacts) -> Iterator[tuple[int, Any]]:
    """The rows in pieces that fit into memory; columns that name no metric are damage."""
    refused: set[str] = set()
    for first_row, batch in parquet.row_batches(stretch.file.path, stretch.start, stretch.end):
        wrong = {name for name in parquet.metric_columns(batch.schema) if not _is_metric(name)}
        for name in sorted(wrong - refused):
            message = f"the column {name[:60]!r} has no name of a metric"
            note_damage(facts, 0, Refusal(message, "name columns by the keys of metrics"))
        refused |= wrong
        named = batch.select([name for name in batch.schema.names if name not in wrong])
        for start, piece in parquet.pieces(named):
            yield first_row + start, piece


@lru_cache(parquet.MAX_COLUMNS)
def _is_metric(name: str) -> bool:
    return len(name) <= _LONGEST_KEY and _METRIC.fullmatch(name) is not None


def _plain_rows(  # noqa: PLR0913, PLR0917
    batch: Any,
    first_row: int,
    is_plain: Any,
    builder: RowBuilder,
    identities: Identities,
    texts: _Texts,
    identity: Any,
) -> Batch:
    """The rows that are nothing but numbers, without their values; fills in the identity of each."""
    facts = builder.facts
    whole = {name: _whole(batch.column(name)) for name in _BOUNDS}
    named = {name: texts.numbers(name, batch.column(name)) for name in _NAMES}
    rows = np.flatnonzero(is_plain & _sound(whole, named, is_plain, first_row, facts))
    is_whole = len(rows) == batch.num_rows
    if not is_whole:
        whole, named = ({name: column[rows] for name, column in found.items()} for found in (whole, named))
    num = len(rows)
    facts.num_records += num
    implicit = np.flatnonzero((named["emitter"] < 0) | (whole["att"] < 0))
    if len(implicit):
        first = Location(facts.number, first_row + int(rows[implicit[0]]))
        facts.first_implicit = min(facts.first_implicit or first, first)
    none = np.full(num, -1, np.int64)
    coordinates = (named["emitter"], whole["att"], whole["rank"], named["host"], named["device"])
    numbers = identities.of(*coordinates)
    identity[slice(None) if is_whole else rows] = numbers
    writers, subjects = (column.take(numbers) for column in identities.pairs.T)
    return Batch(
        *(np.full(num, facts.number, np.int32), rows + first_row, whole["time_us"], whole["seq"], whole["step"]),
        *(none, none, writers, subjects, np.zeros(num, np.uint8)),
        *(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)),
    )


def _sound(whole: dict[str, Any], named: dict[str, Any], is_plain: Any, first_row: int, facts: FileFacts) -> Any:
    """Whether the schema allows the coordinates of each row; plain rows with others are damage."""
    wrong = np.zeros(len(is_plain), bool)
    bounds = [(whole[name], low, high) for name, (low, high) in _BOUNDS.items()]
    for column, low, high in (*bounds, *((column, -1, MOST_TIME) for column in named.values())):
        if len(column) and (column.min() < low or column.max() > high):
            wrong |= (column < low) | (column > high)
    for row in np.flatnonzero(wrong & is_plain).tolist():
        message = "the row has a time, a number, a name, a step, a rank or an attempt that no record can have"
        note_damage(facts, first_row + row, Refusal(message, "see the schema of records"))
    return ~wrong


def _columns(batch: Any, builder: RowBuilder, first_row: int) -> Iterator[Column]:
    """The columns of metrics that have a value, as they lie in memory."""
    for name in parquet.metric_columns(batch.schema):
        key = builder.names.key(name)
        builder.facts.spellings.setdefault(name, Location(builder.facts.number, first_row))
        column = batch.column(name)
        if column.null_count < len(column):
            bits, content = column.buffers()
            values = np.frombuffer(content, np.float64)[column.offset : column.offset + len(column)]
            valid = np.frombuffer(bits, np.uint8) if column.null_count else np.zeros(0, np.uint8)
            yield Column(key, len(column) - column.null_count, values, valid, column.offset)


def _whole(column: Any) -> Any:
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int64)
    return _filled(column).astype(np.int64, copy=False)


class _Texts:
    """Numbers of the texts in columns of names."""

    def __init__(self) -> None:
        self.known: Interner[str] = Interner()
        self._last: dict[str, tuple[Any, Any]] = {}
        """Of each column the dictionary that came last, with the numbers of its texts: the next one is mostly equal."""

    def numbers(self, name: str, column: Any) -> Any:
        """Numbers of the texts of a column; -1 for none, -2 for a text that names nothing."""
        if column.null_count == len(column):
            return np.full(len(column), -1, np.int64)
        if not hasattr(column, "dictionary"):
            column = column.dictionary_encode()
        if len(column.dictionary) > len(column):
            column = parquet.with_used_texts(column)
        last = self._last.get(name)
        if last is None or not column.dictionary.equals(last[0]):
            texts = parquet.texts_of(column.dictionary)
            last = (column.dictionary, np.array([*(self._number(text) for text in texts), -1], np.int64))
            self._last[name] = last
        return last[1].take(_filled(column.indices))  # -1 takes the last one

    def _number(self, text: str | None) -> int:
        if text is None:
            return -1
        known = self.known.numbers.get(text)
        if known is not None:
            return known
        MOST_SUBJECTS.check(len(self.known.items))
        return self.known.number(text) if _NAME.fullmatch(text) else _NO_NAME


def _filled(column: Any) -> Any:
    """Whole numbers, -1 for none."""
    return (column.fill_null(-1) if column.null_count else column).to_numpy(zero_copy_only=False)
