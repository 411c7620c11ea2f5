"""Reads and writes the Parquet twin of a metric stream.

One row is one record, in the order of the stream. The columns `time_us`, `seq`, `att`, `step`, `rank`, `host`, `device`
and `emitter` are those of the record, and empty where it has none. Each metric key has a column of its own, a double
that is empty where the record does not have the key. The column `json` is the whole record, as on a line of JSON, for
rows that are more than plain numbers: heads, events, histograms, values that are not finite, attributes. Where it is
filled it is what counts, and the other columns repeat what they can for queries. The metadata of the file have the key
`trainspec.stream` with the version of this layout. Compression is zstd, and each page has a checksum. Where a file has
checksums they are compared; a changed byte in a page without one, in a header of a page or in the footer may go unseen.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from trainspec_validate.documents.types.stream import Sample, encode_record
from trainspec_validate.system.boundary import open_regular, untrusted
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats.fit import told
from trainspec_validate.telemetry.formats.footer import MARK as _MARK
from trainspec_validate.telemetry.formats.footer import RowGroup, check_alone, row_groups
from trainspec_validate.telemetry.formats.items import Item, Losses, Record, Refusal
from trainspec_validate.telemetry.formats.native import read_line, record_from
from trainspec_validate.telemetry.formats.pages import TextSize, check_pages, unpacked_bytes
from trainspec_validate.telemetry.formats.source import SourceError, check_unpacked, check_unwrapped

MARK = b"trainspec.stream"
"""Key of the metadata; its value is the version of the layout."""
VERSION = b"1"
MAX_COLUMNS = 4_000
"""Keys beyond this many are in `json`."""
ROWS_OF_A_GROUP = 131_072
CELLS_AT_ONCE = 8_000_000
"""Numbers that are held at once, whatever the number of columns."""
TEXT_AT_ONCE_BYTES = 8_000_000
"""Texts of `json` that are decoded at once: their records take up to twenty times as much."""
_LARGE_FILE_BYTES = 256_000_000
"""A part of a column is read whole in a smaller file, and through a buffer in a larger one."""
_BUFFER_BYTES = 65_536
_MOST_TOGETHER_BYTES = 1024 * 1024 * 1024
"""What all processes that share a file may take to unpack row groups and to hold their numbers."""
_NUMBER_BYTES = 8
_MOST_SHARED_PARTS = 50_000
"""Parts of columns in a footer that each process may hold: a library takes some 5 kB for each."""
_ROW_BYTES = 100
"""About what a record with some values takes as text."""
_WHOLE = ("time_us", "seq", "att", "step", "rank")
_TEXTS = ("host", "device", "emitter")
_FIXED = (*_WHOLE, *_TEXTS, "json")
_MOST_FOOTER: Final = Limit("the footer of a Parquet file", 64 * 1024 * 1024, "bytes")
"""4,000 columns of 100 row groups need about 60 MB."""
_MOST_ENTRIES: Final = Limit("a list in the footer of a Parquet file", 100_000, "entries")
_MARK_BYTES: Final = len(_MARK)
_END: Final = struct.Struct("<I4s")
"""The last bytes of a file: the length of the footer, and the mark."""


def _arrow() -> tuple[Any, Any]:
    """The library and its part for Parquet.

    Raises:
        SourceError: it is not installed.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - an extra, and slow to load
        import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError:
        raise SourceError("Parquet needs Arrow", "pip install 'trainspec-validate[telemetry]'") from None
    return pa, pq


def keys_of(records: Iterable[Record]) -> tuple[str, ...]:
    """Metric keys with a plain number among records, in order of appearance: the columns of a file for all of them."""
    found: dict[str, None] = {}
    for record in records:
        if isinstance(record, Sample):
            for key, value in record.m.items():
                if _is_plain(value) and key not in _FIXED and len(found) < MAX_COLUMNS:
                    found[key] = None
    return tuple(found)


def write(records: Iterable[Record], target: Path | BinaryIO, keys: Sequence[str] | None = None) -> int:
    """Write records, and return how many; memory holds one group of rows, which is smaller with many columns.

    `keys` are the metric keys that get a column; without them it is those of the first group. A record with a key that
    has no column is in `json`.

    Raises:
        SourceError: Arrow is not installed.
        OSError: the file cannot be written.
    """
    pa, pq = _arrow()
    source = iter(records)
    rows = list(itertools.islice(source, ROWS_OF_A_GROUP))
    columns = tuple(keys_of(rows) if keys is None else keys)[:MAX_COLUMNS]
    schema = _schema(pa, columns)
    num, most, every = 0, _most_rows(len(schema)), itertools.chain(rows, source)
    del rows
    groups = iter(lambda: list(itertools.islice(every, most)), [])
    with pq.ParquetWriter(
        target, schema, compression="zstd", use_dictionary=[*_TEXTS], write_page_checksum=True
    ) as writer:
        for group in itertools.chain([next(groups, [])], groups):
            writer.write_table(_table(pa, schema, columns, group))
            num += len(group)
    return num


def _most_rows(num_columns: int) -> int:
    """Rows that are held at once."""
    return min(ROWS_OF_A_GROUP, max(1, CELLS_AT_ONCE // num_columns))


def _schema(pa: Any, columns: Sequence[str]) -> Any:
    words = pa.dictionary(pa.int32(), pa.string())
    fields = [pa.field(name, pa.int64()) for name in _WHOLE] + [pa.field(name, words) for name in _TEXTS]
    fields += [pa.field(key, pa.float64()) for key in columns] + [pa.field("json", pa.string())]
    return pa.schema(fields, metadata={MARK: VERSION})


def _table(pa: Any, schema: Any, columns: Sequence[str], rows: Sequence[Record]) -> Any:
    known = frozenset(columns)
    whole = {name: [getattr(row, name, None) for row in rows] for name in (*_WHOLE, *_TEXTS)}
    values = [row.m if isinstance(row, Sample) else {} for row in rows]
    numbers = {key: [_plain(found.get(key)) for found in values] for key in columns}
    text = [None if _is_row(row, known) else encode_record(row).decode() for row in rows]
    named = {**whole, **numbers, "json": text}
    return pa.table([pa.array(named[field.name], type=field.type) for field in schema], schema=schema)


def _plain(value: Any) -> float | None:
    return float(value) if _is_plain(value) else None


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_row(record: Record, columns: frozenset[str]) -> bool:
    """Whether the columns hold the whole record."""
    if not isinstance(record, Sample) or not record.m:
        return False
    more = (record.run, record.start_us, record.observed_us, record.a or None, record.nr or None)
    if any(part is not None for part in more):
        return False
    return all(key in columns and _is_plain(value) for key, value in record.m.items())


@dataclass(frozen=True, slots=True)
class _Rows:
    """One batch of rows, column by column."""

    coordinates: dict[str, list[Any]]
    numbers: dict[str, list[float | None]]
    text: list[bytes | None]

    def record(self, row: int) -> Record | Refusal:
        """The record of a row."""
        text = self.text[row]
        if text is not None:
            whole = read_line(text)
            cells = itertools.chain(self.coordinates.items(), self.numbers.items())
            wrong = next((name for name, column in cells if contradicts(whole, name, column[row])), None)
            return whole if wrong is None else contradiction(wrong)
        found = {name: column[row] for name, column in self.coordinates.items() if column[row] is not None}
        values = {key: told(value) for key, column in self.numbers.items() if (value := column[row]) is not None}
        return record_from({"k": "m", "m": values, **found})


def read(path: Path) -> Iterator[Item]:
    """Everything that a file holds; the place of a record is the number of its row, and the last item holds the losses.

    Raises:
        SourceError: the file is no Parquet, or not the twin of a stream, or Arrow is not installed.
    """
    row = num_refusals = 0
    for _, whole in row_batches(path):
        for _, batch in pieces(whole):
            rows = _rows(batch)
            for index in range(batch.num_rows):
                found = rows.record(index)
                num_refusals += isinstance(found, Refusal)
                yield row, found
                row += 1
    yield row, Losses((), row - num_refusals, num_refusals, "utc", sequenced=True)


def row_batches(
    path: Path, start: int = 0, end: int | None = None, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, Any]]:
    """Arrow batches of a range of row groups, with all columns or some, each with the number of its first row.

    Raises:
        SourceError: the file is no Parquet, or not the twin of a stream, or Arrow is not installed.
    """
    pa, _ = _arrow()
    with _opened(path) as (file, content, parts):
        _checked(file.schema_arrow, pa)
        num_bytes, unpacked_bytes = content.seek(0, 2), 0
        sizes = [part.num_rows for part in parts]
        row, most = sum(sizes[:start]), _most_rows(len(columns or file.schema_arrow))
        for groups in _together(range(len(sizes))[start:end], sizes, most):
            for batch in _batches(file, content, {number: parts[number] for number in groups}, most, columns):
                unpacked_bytes += _unpacked_bytes(batch)
                check_unpacked(unpacked_bytes, num_bytes)
                yield row, batch
                row += batch.num_rows


def pieces(batch: Any) -> Iterator[tuple[int, Any]]:
    """A batch in parts whose texts can be decoded at once, each with the number of its first row in the batch."""
    import numpy as np  # noqa: PLC0415

    ends = np.cumsum(_text_lengths(batch.column("json")))
    first = 0
    while first < batch.num_rows:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + TEXT_AT_ONCE_BYTES, "right"))
        last = min(max(last, first + 1), first + ROWS_OF_A_GROUP)
        yield first, batch.slice(first, last - first)
        first = last


def _text_lengths(words: Any) -> Any:
    """Bytes of each text of a column; 0 for none."""
    import numpy as np  # noqa: PLC0415
    import pyarrow.compute as pc  # type: ignore[import-untyped] # noqa: PLC0415

    if words.null_count == len(words):
        return np.zeros(len(words), np.int64)
    if hasattr(words, "dictionary"):
        lengths = pc.binary_length(words.dictionary).take(words.indices)
    else:
        lengths = pc.binary_length(words)
    return lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _unpacked_bytes(batch: Any) -> int:
    """About what a batch makes the reader do: its texts but for names in dictionaries, and a little for each value."""
    num_values = sum(len(column) - column.null_count for column in batch.columns)
    columns = [(name, batch.column(name)) for name in batch.schema.names if name in {*_TEXTS, "json"}]
    texts = [column for name, column in columns if name == "json" or not hasattr(column, "dictionary")]
    num_bytes = sum(_text_lengths(each).sum() for each in texts)
    return int(num_bytes) + int(num_values) + 8 * int(batch.num_rows)


def contents_of(words: Any) -> list[bytes | None]:
    """The bytes of the texts of a column, UTF-8 or not."""
    import pyarrow as pa  # noqa: PLC0415

    plain = words.dictionary_decode() if hasattr(words, "dictionary") else words
    found: list[bytes | None] = plain.view(pa.binary()).to_pylist()
    return found


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, BinaryIO, tuple[RowGroup, ...]]]:
    """A regular file as Parquet, its bytes and its row groups; the footer is read if the length that it states can be.

    Texts stay in dictionaries: one text may be that of each row.

    Raises:
        SourceError: the file cannot be opened or is no sound Parquet, or Arrow is not installed.
    """
    _, pq = _arrow()
    limits = {
        "thrift_string_size_limit": int(_MOST_FOOTER.most),
        "thrift_container_size_limit": int(_MOST_ENTRIES.most),
    }
    with untrusted(_unsound), open_regular(path) as content:
        check_unwrapped(content)
        buffer_bytes = _BUFFER_BYTES if content.seek(0, 2) > _LARGE_FILE_BYTES else 0
        footer = footer_of(content)
        groups = row_groups(footer)
        check_alone(content, groups, content.seek(-_END.size - len(footer), 2))
        metadata = pq.ParquetFile(content, **limits).metadata
        if metadata.num_row_groups != len(groups):
            raise ValueError("its footer can be read in two ways")
        texts = _in_dictionaries(metadata.schema, groups)
        with pq.ParquetFile(
            content,
            metadata=metadata,
            read_dictionary=texts,
            pre_buffer=False,
            buffer_size=buffer_bytes,
            page_checksum_verification=True,
            **limits,
        ) as file:
            yield file, content, groups


def _in_dictionaries(schema: Any, groups: Sequence[RowGroup]) -> list[str]:
    """The columns of texts that can be read as dictionaries; the library cannot do so for each encoding."""
    found = []
    for number in range(len(schema)):
        path = schema.column(number).path
        if path in {*_TEXTS, "json"} and not any(group.column(number).has_deltas for group in groups):
            found.append(path)
    return found


def _unsound(reason: str, remedy: str) -> SourceError:
    return SourceError(f"the file is no sound Parquet: {reason}", remedy)


def footer_of(content: BinaryIO) -> bytes:
    """The footer of a file, if one can be of the length that the file states.

    Raises:
        ValueError: the file is shorter than that, or ends without the mark of the format.
        OverLimitError: the footer is longer than one may be.
    """
    num_bytes = content.seek(0, 2)
    if num_bytes < _MARK_BYTES + _END.size:
        raise ValueError(f"it has {num_bytes} bytes, and the shortest Parquet file has more")
    content.seek(-_END.size, 2)
    num_footer_bytes, mark = _END.unpack(content.read(_END.size))
    if mark != _MARK:
        raise ValueError("it does not end with the mark of a Parquet file, PAR1")
    if _MARK_BYTES + num_footer_bytes + _END.size > num_bytes:
        raise ValueError(f"its footer of {num_footer_bytes:,} bytes begins before the file does")
    _MOST_FOOTER.check(num_footer_bytes)
    content.seek(-_END.size - num_footer_bytes, 2)
    footer = content.read(num_footer_bytes)
    content.seek(0)
    return footer


def _batches(
    file: Any, content: BinaryIO, parts: Mapping[int, RowGroup], most: int, columns: Sequence[str] | None
) -> Iterator[Any]:
    """The rows of row groups, whole where they fit, which is quicker; processes share the processors, not threads."""
    groups = list(parts)
    num_rows = sum(part.num_rows for part in parts.values())
    texts = [_text_size(file, content, part, columns) for part in parts.values()]
    bytes_per_row = max((text.bytes_per_row for text in texts), default=0.0)
    if bytes_per_row * most > TEXT_AT_ONCE_BYTES:
        most = max(1, int(TEXT_AT_ONCE_BYTES / bytes_per_row))
    if num_rows > 2 * most or sum(text.num_bytes for text in texts) > 2 * TEXT_AT_ONCE_BYTES:
        yield from file.iter_batches(most, row_groups=groups, columns=columns, use_threads=False)
    else:
        table = file.read_row_groups(groups, columns, use_threads=False)
        yield from table.unify_dictionaries().combine_chunks().to_batches()


def _text_size(file: Any, content: BinaryIO, group: RowGroup, columns: Sequence[str] | None) -> TextSize:
    """The size of the texts of `json`, and of others that repeat texts, in a row group whose pages can be held."""
    names = [column.path for column in (file.schema.column(number) for number in range(len(file.schema)))]
    chosen = [number for number, name in enumerate(names) if columns is None or name in columns]
    texts = {number for number in chosen if names[number] in {*_TEXTS, "json"}}
    return check_pages(content, group, chosen, texts, names.index("json"))


def _together(numbers: Iterable[int], sizes: Sequence[int], least: int) -> Iterator[list[int]]:
    """Neighbouring row groups that are worth reading at once."""
    found: list[int] = []
    num = 0
    for number in numbers:
        found.append(number)
        num += sizes[number]
        if num >= least:
            yield found
            found, num = [], 0
    if found:
        yield found


def num_row_groups(path: Path) -> int:
    """Number of row groups of a file that processes can share; 1 for a file whose footer is too large for each of them.

    Raises:
        SourceError: the file cannot be opened or is no sound Parquet, or Arrow is not installed.
    """
    with _opened(path) as (file, *_):
        num = int(file.num_row_groups)
        return num if num * int(file.metadata.num_columns) <= _MOST_SHARED_PARTS else 1


def most_processes(path: Path) -> int:
    """How many processes may read row groups of a file at once, so that all of them together take bounded memory.

    Raises:
        SourceError: the file cannot be opened or is no sound Parquet, or Arrow is not installed.
    """
    with _opened(path) as (file, _, groups):
        texts = {n for n in range(len(file.schema)) if file.schema.column(n).path in {*_TEXTS, "json"}}
        largest = max((unpacked_bytes(group, texts) + _held_bytes(group) for group in groups), default=0)
        return max(1, _MOST_TOGETHER_BYTES // max(1, largest))


def _held_bytes(group: Any) -> int:
    """What the numbers of a row group take that are held at once."""
    return _NUMBER_BYTES * min(2 * CELLS_AT_ONCE, int(group.num_rows) * int(group.num_columns))


def text_bytes(path: Path) -> int:
    """About what the rows of a file take as text, as its footer says.

    Raises:
        SourceError: the file cannot be opened or is no sound Parquet, or Arrow is not installed.
    """
    with _opened(path) as (file, *_):
        return int(file.metadata.num_rows) * _ROW_BYTES


def texts_of(words: Any) -> list[str | None]:
    """Texts of a column; what is no UTF-8 becomes an empty one, which is no name."""
    try:
        found: list[str | None] = words.to_pylist()
    except UnicodeDecodeError:
        found = [_text(word) for word in words]
    return found


def with_used_texts(column: Any) -> Any:
    """A column with a dictionary of those texts alone that a row has."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    used = column.indices.drop_null().unique()
    return pa.DictionaryArray.from_arrays(pc.index_in(column.indices, used), column.dictionary.take(used))


def _text(word: Any) -> str | None:
    try:
        return bytes(word.as_buffer()).decode() if word.is_valid else None
    except UnicodeDecodeError:
        return ""


def metric_columns(schema: Any) -> list[str]:
    """Metric keys among the columns of a file."""
    return [name for name in schema.names if name not in _FIXED]


def _checked(schema: Any, pa: Any) -> list[str]:
    """Metric keys among the columns of a file.

    Raises:
        SourceError: the columns are not those of a stream.
    """
    if (schema.metadata or {}).get(MARK) != VERSION:
        raise SourceError(
            "this Parquet file is no metric stream", f"its metadata need {MARK.decode()}={VERSION.decode()}"
        )
    wanted = dict.fromkeys(_WHOLE, pa.types.is_integer) | dict.fromkeys((*_TEXTS, "json"), _is_text)
    for name, is_right in wanted.items():
        kind = schema.field(name).type if schema.names.count(name) == 1 else None
        if kind is None or not is_right(kind):
            raise SourceError(f"the column {name} is absent or of another type", "see the layout of the file")
    numbers = [name for name in schema.names if name not in _FIXED]
    for name in numbers:
        if schema.names.count(name) > 1:
            raise SourceError(f"two columns are named {name[:100]}", "write each metric into one column")
        if not pa.types.is_float64(schema.field(name).type):
            raise SourceError(f"the column {name[:100]} is no double", "see the layout of the file")
    return numbers


def _is_text(kind: Any) -> bool:
    pa, _ = _arrow()
    return bool(pa.types.is_string(kind) or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)))


def contradicts(record: Record | Refusal, name: str, cell: Any) -> bool:
    """Whether a cell says something else than the record that is in `json` of its row."""
    if cell is None or isinstance(record, Refusal):
        return False
    if name in _FIXED:
        return bool(cell != getattr(record, name, None))
    value = record.m.get(name) if isinstance(record, Sample) else None
    return cell != value if _is_plain(value) else value is None or math.isfinite(cell)


def contradiction(name: str) -> Refusal:
    """Message on a row in which `json` and the column of a name differ."""
    return Refusal(f"`json` and the column {name[:60]!r} differ", "leave the column empty, or repeat `json`", "value")


def _rows(batch: Any) -> _Rows:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != "json"}
    coordinates = {name: columns[name] for name in (*_WHOLE, *_TEXTS)}
    numbers = {name: columns[name] for name in metric_columns(batch.schema)}
    return _Rows(coordinates, numbers, contents_of(batch.column("json")))
