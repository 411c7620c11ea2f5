"""Counts the records in a footer of Parquet before a library makes objects of them, and reads headers of its pages.

A library takes hundreds of bytes for each record.

The encoding is the compact protocol of Thrift:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainspec_validate.system.budget import Count, Limit

RECORDS: Final = Limit("the footer of a Parquet file", 2_400_000, "records in lists")
"""A library takes some 700 bytes for an empty record of 3 bytes: 5,000,000 column chunks of 15 MB took 3.6 GB."""
_MAX_DEPTH: Final = Limit("the footer of a Parquet file", 32, "levels of nesting")
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_VARINTS: Final = frozenset({4, 5, 6})


class Walk:
    """Goes once over the bytes, and keeps nothing but the place."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0
        self.records = Count(RECORDS)

    def varint(self) -> int:
        """A whole number from 0."""
        found = shift = 0
        while True:
            byte = self.content[self.place]
            self.place += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("its footer holds a number of more than 64 bits")

    def struct(self, depth: int) -> None:
        """Go over a record."""
        _MAX_DEPTH.check(depth)
        for _, kind in self.heads():
            self.skip(kind, depth)

    def number(self) -> int:
        """A whole number that may be negative."""
        return _signed(self.varint())

    def heads(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a record; who takes one goes over its value before the next."""
        number = 0
        while head := self.content[self.place]:
            self.place += 1
            number = number + (head >> 4) if head >= 0x10 else self.number()
            yield number, head & 0x0F
        self.place += 1

    def fields(self, depth: int) -> dict[int, Any]:
        """The whole numbers of a record, and of the records in it, by number of the field."""
        _MAX_DEPTH.check(depth)
        found: dict[int, Any] = {}
        for number, kind in self.heads():
            if kind in _VARINTS:
                found[number] = self.number()
            elif kind == _STRUCT:
                found[number] = self.fields(depth + 1)
            else:
                self.skip(kind, depth)
        return found

    def skip(self, kind: int, depth: int) -> None:
        """Go over the value of a field; that of a field that is true or false is its type."""
        if kind not in {_TRUE, _FALSE}:
            self.value(kind, depth)

    def value(self, kind: int, depth: int) -> None:
        """Go over a value of a type."""
        if kind in _VARINTS:
            self.varint()
        elif kind == _BINARY:
            num_bytes = self.varint()  # on a line of its own: it moves the place
            self.place += num_bytes
        elif kind == _STRUCT:
            self.struct(depth + 1)
        elif kind in {_LIST, _SET}:
            self.entries(depth)
        elif kind in {_TRUE, _FALSE, _BYTE}:
            self.place += 1
        elif kind == _DOUBLE:
            self.place += 8
        elif kind == _MAP:
            raise ValueError("its footer holds a map, which no field of one is")
        else:
            raise ValueError(f"its footer holds a field of type {kind}, which there is not")

    def entries(self, depth: int) -> None:
        """Go over a list."""
        number, kind = self.length()
        for _ in range(number):
            self.value(kind, depth)

    def length(self) -> tuple[int, int]:
        """How many entries a list has, and of which type."""
        head = self.content[self.place]
        self.place += 1
        number, kind = head >> 4, head & 0x0F
        if number == 0x0F:
            number = self.varint()
        if number > len(self.content):  # each entry takes a byte at least
            raise ValueError("its footer holds a list that is longer than the footer")
        if kind == _STRUCT:
            self.records.add(number)
        return number, kind


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def numbers_of(content: bytes) -> tuple[dict[int, Any], int]:
    """The whole numbers of the record that some bytes begin with, by number of the field, and where it ends.

    Raises:
        IndexError: it does not end within these bytes.
        ValueError: this is no record.
    """
    walk = Walk(content)
    return walk.fields(1), walk.place


def check_records(content: bytes) -> None:
    """Accept a footer whose records are not too many.

    Raises:
        OverLimitError: there are more records, or they nest deeper, than a library should make objects of.
        ValueError: this is no footer.
    """
    try:
        Walk(content).struct(1)
    except IndexError:
        raise ValueError("its footer ends within a record") from None
