"""Reads what the footer of a Parquet file says of its row groups.

A library ends the process where the description of one column chunk contradicts the schema, as no exception leaves the
call that makes an object of it. So no such object is made of a file that may be hostile.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO, Final

from trainspec_validate.telemetry.formats.thrift import Walk

MARK: Final = b"PAR1"
"""How a Parquet file begins and ends."""
_AT_ONCE_BYTES: Final = 1_000_000
_LIST, _STRUCT = 9, 12
_INTEGERS: Final = frozenset({4, 5, 6})
_GROUPS: Final = 4
"""Field of the footer."""
_COLUMNS, _NUM_ROWS = 1, 3
"""Fields of a row group."""
_META: Final = 3
"""Field of a column chunk."""
_ENCODINGS: Final = 2
_NUM_VALUES, _UNPACKED, _PACKED, _DATA, _DICTIONARY = 5, 6, 7, 9, 11
"""Fields of the description of a column chunk."""
_KEPT: Final = (_NUM_VALUES, _UNPACKED, _PACKED, _DATA)
_DELTAS: Final = frozenset({5, 6, 7})
"""Encodings that the library cannot read as dictionaries."""
_WIDTH: Final = 6
_NONE: Final = -1
_MOST: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Part:
    """Facts of a footer on a column in a row group; the names are those of the library."""

    num_values: int
    total_uncompressed_size: int
    total_compressed_size: int
    data_page_offset: int
    dictionary_page_offset: int
    has_deltas: bool

    @property
    def has_dictionary_page(self) -> bool:
        """Whether the footer says where a dictionary begins."""
        return self.dictionary_page_offset != _NONE


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Facts of a footer on a row group."""

    num_rows: int
    numbers: array[int]
    """Those of its columns, side by side: a file may have millions of them."""

    @property
    def num_columns(self) -> int:
        """How many columns it has."""
        return len(self.numbers) // _WIDTH

    @property
    def end(self) -> int:
        """The byte after the pages of its columns, of those that it describes."""
        return max((self._end(first) for first in range(0, len(self.numbers), _WIDTH)), default=0)

    def _end(self, first: int) -> int:
        _, _, packed, data, dictionary, _ = self.numbers[first : first + _WIDTH]
        return 0 if _NONE in {packed, data} else packed + (data if dictionary == _NONE else min(data, dictionary))

    def column(self, number: int) -> Part:
        """Facts of the footer on a column.

        Raises:
            ValueError: the row group has no such column, or does not describe it.
        """
        if not 0 <= number < self.num_columns:
            raise ValueError("a row group has fewer columns than the schema")
        first = number * _WIDTH
        values, unpacked, packed, data, dictionary, has_deltas = self.numbers[first : first + _WIDTH]
        if has_deltas == _NONE:
            raise ValueError("a column is not described, as in an encrypted file")
        return Part(values, unpacked, packed, data, dictionary, bool(has_deltas))


@lru_cache(maxsize=1)
def row_groups(footer: bytes) -> tuple[RowGroup, ...]:
    """The row groups that a footer describes.

    Raises:
        OverLimitError: the footer holds more than a library should make objects of.
        ValueError: this is no footer.
    """
    walk = Walk(footer)
    found: tuple[RowGroup, ...] = ()
    try:
        for number, kind in walk.heads():
            if number == _GROUPS and kind == _LIST:
                found = tuple(_group(walk) for _ in _records(walk))
            else:
                walk.skip(kind, 1)
    except IndexError:
        raise ValueError("its footer ends within a record") from None
    return found


def _records(walk: Walk) -> Iterator[int]:
    number, kind = walk.length()
    if number and kind != _STRUCT:
        raise ValueError("its footer holds a list of another type than the format has")
    return iter(range(number))


def _group(walk: Walk) -> RowGroup:
    num_rows = _NONE
    numbers: array[int] = array("q")
    for number, kind in walk.heads():
        if number == _COLUMNS and kind == _LIST:
            for _ in _records(walk):
                numbers.extend(_chunk(walk))
        elif number == _NUM_ROWS and kind in _INTEGERS:
            num_rows = walk.number()
        else:
            walk.skip(kind, 2)
    if num_rows < 0:
        raise ValueError("a row group states no number of rows")
    return RowGroup(num_rows, numbers)


def _chunk(walk: Walk) -> tuple[int, ...]:
    found: tuple[int, ...] = (_NONE,) * _WIDTH
    for number, kind in walk.heads():
        if number == _META and kind == _STRUCT:
            found = _description(walk)
        else:
            walk.skip(kind, 3)
    return found


def _description(walk: Walk) -> tuple[int, ...]:
    said: dict[int, int] = {}
    has_deltas = False
    for number, kind in walk.heads():
        if kind in _INTEGERS:
            said[number] = walk.number()
        elif number == _ENCODINGS and kind == _LIST:
            num, kind_of_entries = walk.length()
            for _ in range(num):
                if kind_of_entries in _INTEGERS:
                    has_deltas |= walk.number() in _DELTAS
                else:
                    walk.value(kind_of_entries, 4)
        else:
            walk.skip(kind, 4)
    if any(not 0 <= said.get(field, _NONE) < _MOST for field in _KEPT):
        raise ValueError("a column states no size or place")
    dictionary = said.get(_DICTIONARY, _NONE)
    if not _NONE <= dictionary < _MOST:
        raise ValueError("a column states a place that is none")
    return (*(said[field] for field in _KEPT), dictionary, int(has_deltas))


def check_alone(content: BinaryIO, groups: Sequence[RowGroup], footer: int) -> None:
    """Refuse a file that another was appended to: only the last footer is read. `footer` is the place where it begins.

    Raises:
        ValueError: behind the pages, where indexes and the footer are, one file ends and another begins.
    """
    place = min(max((group.end for group in groups), default=len(MARK)), footer)
    content.seek(place)
    before = b""
    while place < footer:
        piece = content.read(min(_AT_ONCE_BYTES, footer - place))
        if not piece:
            break
        if MARK + MARK in before + piece:
            raise ValueError("another Parquet file was appended to it, and only one of them is read; split the file")
        before, place = piece[1 - 2 * len(MARK) :], place + len(piece)
    content.seek(0)
