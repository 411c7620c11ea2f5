"""Counts the records in a footer of Parquet before a library makes objects of them, and reads headers of its pages.

A library takes hundreds of bytes for each record.

The encoding is the compact protocol of Thrift:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any, Final

from trainspec_validate.system.budget import Count, Limit

RECORDS: Final = Limit("the footer of a Parquet file", 2_400_000, "records in lists")
"""A library takes some 700 bytes for an empty record of 3 bytes: 5,000,000 column chunks of 15 MB took 3.6 GB."""
_MAX_DEPTH: Final = Limit("the footer of a Parquet file", 32, "levels of nesting")
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_VARINTS: Final = frozenset({4, 5, 6})


class _Walk:
    """Goes once over the bytes, and keeps nothing but the place."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0
        self.records = Count(RECORDS)

    def varint(self) -> int:
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
        _MAX_DEPTH.check(depth)
        while True:
            head = self.content[self.place]
            self.place += 1
            if head == 0:
                return
            if head < 0x10:
                self.varint()  # the number of the field
            kind = head & 0x0F
            if kind not in {_TRUE, _FALSE}:  # the value of a field that is true or false is its type
                self.value(kind, depth)

    def fields(self, depth: int) -> dict[int, Any]:
        """The whole numbers of a record, and of the records in it, by number of the field."""
        _MAX_DEPTH.check(depth)
        found: dict[int, Any] = {}
        number = 0
        while head := self.content[self.place]:
            self.place += 1
            number = number + (head >> 4) if head >= 0x10 else _signed(self.varint())
            kind = head & 0x0F
            if kind in _VARINTS:
                found[number] = _signed(self.varint())
            elif kind == _STRUCT:
                found[number] = self.fields(depth + 1)
            elif kind not in {_TRUE, _FALSE}:
                self.value(kind, depth)
        self.place += 1
        return found

    def value(self, kind: int, depth: int) -> None:
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
        head = self.content[self.place]
        self.place += 1
        number, kind = head >> 4, head & 0x0F
        if number == 0x0F:
            number = self.varint()
        if number > len(self.content):  # each entry takes a byte at least
            raise ValueError("its footer holds a list that is longer than the footer")
        if kind == _STRUCT:
            self.records.add(number)
        for _ in range(number):
            self.value(kind, depth)


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def numbers_of(content: bytes) -> tuple[dict[int, Any], int]:
    """The whole numbers of the record that some bytes begin with, by number of the field, and where it ends.

    Raises:
        IndexError: it does not end within these bytes.
        ValueError: this is no record.
    """
    walk = _Walk(content)
    return walk.fields(1), walk.place


def check_records(content: bytes) -> None:
    """Accept a footer whose records are not too many.

    Raises:
        OverLimitError: there are more records, or they nest deeper, than a library should make objects of.
        ValueError: this is no footer.
    """
    try:
        _Walk(content).struct(1)
    except IndexError:
        raise ValueError("its footer ends within a record") from None
