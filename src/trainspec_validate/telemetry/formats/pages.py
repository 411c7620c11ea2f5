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
_DICTIONARY: Final = 2
_PACKED, _UNPACKED, _OF_DATA, _OF_DICTIONARY, _OF_DATA_2 = 3, 2, 5, 7, 8
"""Fields of the header of a page."""
_NUM_VALUES: Final = 1
_ENCODING: Final = {_OF_DATA: 2, _OF_DATA_2: 4}
_DELTA: Final = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}


@dataclass(frozen=True, slots=True)
class Page:
    """What the header of a page says."""

    unpacked_bytes: int
    num_values: int
    """Rows, with those that have no value; texts of a dictionary."""
    is_dictionary: bool
    encoding: int


@dataclass(slots=True)
class TextSize:
    """How large the texts of one column are, over row groups."""

    num_bytes: int = 0
    bytes_per_row: float = 0.0
    """In the page where they are largest."""

    def add(self, page: Page) -> None:
        """Take a page of data into account."""
        self.num_bytes += page.unpacked_bytes
        self.bytes_per_row = max(self.bytes_per_row, page.unpacked_bytes / max(1, page.num_values))


def check_pages(content: BinaryIO, group: Any, columns: list[int], texts: set[int], wanted: int) -> TextSize:
    """Accept a row group whose pages can be unpacked; return the size of the texts of one column.

    `columns` are the numbers of those that will be read, `texts` of those that hold text, `wanted` of the one to
    measure.

    Raises:
        OverLimitError: its pages unpack to more than is held at once.
        ValueError: a page is none, or holds text in an encoding whose unpacked size no header says.
    """
    found = TextSize()
    all_bytes = text_bytes = 0
    for number in columns:
        largest = dictionary = 0
        for page in _pages(content, group.column(number)):
            if page.is_dictionary:
                dictionary += page.unpacked_bytes + _DICTIONARY_ENTRY_BYTES * page.num_values * (number in texts)
            else:
                largest = max(largest, page.unpacked_bytes)
                if number in texts and page.encoding in _DELTA:
                    raise ValueError(f"a column of texts is encoded as {_DELTA[page.encoding]}; write plain texts")
                if number == wanted:
                    found.add(page)
        all_bytes += largest + dictionary
        text_bytes += (largest + dictionary) * (number in texts)
        _AT_ONCE.check(all_bytes)
        _TEXT_AT_ONCE.check(text_bytes)
    return found


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
