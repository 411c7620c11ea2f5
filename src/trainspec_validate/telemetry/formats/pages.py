"""Reads the headers of the pages of a Parquet file, to know what they unpack to before a library unpacks them.

A footer states sizes too, but a library does not hold a page against them: it reserves what the header of the page
says, and the largest file of a few kilobytes unpacks to all memory.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats.thrift import numbers_of

_AT_ONCE: Final = Limit("a row group of a Parquet file", 512 * 1024 * 1024, "bytes of unpacked pages at once")
"""One page of each column, and its dictionary."""
_TEXT_AT_ONCE: Final = Limit(
    "a row group of a Parquet file", 128 * 1024 * 1024, "bytes of unpacked pages of texts at once"
)
"""A library indexes the texts of a dictionary, which takes several times their size."""
_MOST_HEADER: Final = Limit("a page of a Parquet file", 16 * 1024 * 1024, "bytes of header")
_USUAL_HEADER_BYTES: Final = 1_024
_DICTIONARY_ENTRY_BYTES: Final = 16
"""What a library takes for each text of a dictionary beside the text."""
_MOST_OF_TEXT: Final = 5
"""How many times its size a dictionary of short texts, of four bytes and more each, takes with these entries."""
_DICTIONARY: Final = 2
_PACKED, _UNPACKED, _OF_DATA, _OF_DICTIONARY, _OF_DATA_2 = 3, 2, 5, 7, 8
"""Fields of the header of a page."""
_NUM_VALUES: Final = 1
_ENCODING: Final = {_OF_DATA: 2, _OF_DATA_2: 4}
_DELTA_LENGTH, _DELTA = 6, 7
"""Encodings with the lengths of texts apart; in the second, texts repeat the start of the one before."""
_DELTA_ENTRY_BYTES: Final = 24
"""What a library takes for the lengths of each text of a page in such an encoding."""
_MOST_REPEATED: Final = 8
"""How many times as large as they are told to be texts may come out that repeat the start of the one before."""


@dataclass(frozen=True, slots=True)
class Page:
    """Facts of the header of a page."""

    unpacked_bytes: int
    num_values: int
    """Rows, with those that have no value; texts of a dictionary."""
    is_dictionary: bool
    encoding: int

    @property
    def text_bytes(self) -> int:
        """Memory that a library takes at once to unpack this page of a column of texts."""
        if self.is_dictionary:
            return self.unpacked_bytes + _DICTIONARY_ENTRY_BYTES * self.num_values
        return self.unpacked_bytes + _DELTA_ENTRY_BYTES * self.num_values * (self.encoding in {_DELTA_LENGTH, _DELTA})


@dataclass(slots=True)
class TextSize:
    """How large the texts are that one reads, over row groups."""

    num_bytes: int = 0
    bytes_per_row: float = 0.0
    """In the page where they are largest."""

    def add(self, page: Page) -> None:
        """Take a page of data into account; each text may be as long as the page where texts repeat others."""
        repeats = page.encoding == _DELTA
        self.num_bytes += page.unpacked_bytes * (page.num_values if repeats else 1)
        bytes_per_row = page.unpacked_bytes / (_MOST_REPEATED if repeats else max(1, page.num_values))
        self.bytes_per_row = max(self.bytes_per_row, bytes_per_row)


def check_pages(content: BinaryIO, group: Any, columns: list[int], texts: set[int], wanted: int) -> TextSize:
    """Accept a row group whose pages can be unpacked; return the size of the texts of one column.

    `columns` are the numbers of those that will be read, `texts` of those that hold text, `wanted` of the one to
    measure; others are measured too where texts repeat the start of the one before.

    Raises:
        OverLimitError: its pages unpack to more than is held at once.
        ValueError: a page is none.
    """
    found = TextSize()
    all_bytes = text_bytes = 0
    for number in columns:
        largest = dictionary = 0
        column = group.column(number)
        for page in _pages(content, column):
            if page.unpacked_bytes > column.total_uncompressed_size:  # how many processes may share the file follows
                raise ValueError(f"a page of column {number} unpacks to more than its footer says of the whole column")
            num_bytes = page.text_bytes if number in texts else page.unpacked_bytes
            if page.is_dictionary:
                dictionary += num_bytes
            else:
                largest = max(largest, num_bytes)
                if number == wanted or (number in texts and page.encoding == _DELTA):
                    found.add(page)
        all_bytes += largest + dictionary
        text_bytes += (largest + dictionary) * (number in texts)
        _AT_ONCE.check(all_bytes)
        _TEXT_AT_ONCE.check(text_bytes)
    return found


def unpacked_bytes(group: Any, texts: set[int]) -> int:
    """Memory that a row group may take to be unpacked, as the footer says, which its pages are held against."""
    other_bytes = text_bytes = 0
    for number in range(group.num_columns):
        column = group.column(number)
        if number in texts:
            text_bytes += _MOST_OF_TEXT * column.total_uncompressed_size + _DELTA_ENTRY_BYTES * column.num_values
        else:
            other_bytes += column.total_uncompressed_size
    return min(other_bytes, int(_AT_ONCE.most)) + min(text_bytes, int(_TEXT_AT_ONCE.most))


def _pages(content: BinaryIO, column: Any) -> Iterator[Page]:
    """The pages of a part of a column, as far as a library reads them."""
    place = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < place:
        place = column.dictionary_page_offset
    end = place + column.total_compressed_size
    num_values = 0
    while place < end and num_values < column.num_values:
        header, num_bytes = _header(content, place, end)
        page = _page(header)
        yield page
        num_values += 0 if page.is_dictionary else page.num_values
        place += num_bytes + header[_PACKED]


def _header(content: BinaryIO, place: int, end: int) -> tuple[dict[int, Any], int]:
    """The fields of the header at a place, and its length."""
    num_bytes = _USUAL_HEADER_BYTES
    while True:
        content.seek(place)
        start = content.read(min(num_bytes, end - place))
        try:
            return numbers_of(start)
        except IndexError:
            if len(start) < num_bytes:
                raise ValueError(f"the header of the page at byte {place:,} does not end") from None
        num_bytes *= 8
        _MOST_HEADER.check(num_bytes)


def _page(header: dict[int, Any]) -> Page:
    numbers: dict[int, Any] = {}
    encoding = 0
    for field in (_OF_DATA, _OF_DATA_2, _OF_DICTIONARY):
        if isinstance(header.get(field), dict):
            numbers = header[field]
            encoding = numbers.get(_ENCODING.get(field, 0), 0)
            break
    unpacked, packed = header.get(_UNPACKED), header.get(_PACKED)
    num_values = numbers.get(_NUM_VALUES, 0)
    if not all(isinstance(each, int) and each >= 0 for each in (unpacked, packed, num_values)):
        raise ValueError("the header of a page states no size")
    return Page(int(unpacked or 0), int(num_values), header.get(1) == _DICTIONARY, encoding)
