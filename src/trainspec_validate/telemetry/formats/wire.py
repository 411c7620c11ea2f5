"""Reads the fields of a message of Protocol Buffers, without its description and within its bounds."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Field = tuple[int, int | float | bytes]
"""Number of a field; its value: a whole number, a double, a float, or bytes."""
_FIXED = {1: struct.Struct("<d"), 5: struct.Struct("<f")}
_VARINT, _BYTES = 0, 2
_MOST_BITS = 64


class WireError(ValueError):
    """The bytes are no message."""


def fields(content: bytes) -> Iterator[Field]:
    """The fields of a message in their order.

    >>> list(fields(bytes([0x10, 0x96, 0x01, 0x1A, 0x01, 0x41])))
    [(2, 150), (3, b'A')]

    Raises:
        WireError: the bytes are no message.
    """
    place = 0
    while place < len(content):
        head, place = _varint(content, place)
        number, kind = head >> 3, head & 7
        if kind == _VARINT:
            whole, place = _varint(content, place)
            yield number, whole
        elif kind == _BYTES:
            length, place = _varint(content, place)
            if length > len(content) - place:
                raise WireError("a field is longer than its message")
            yield number, content[place : place + length]
            place += length
        elif kind in _FIXED:
            shape = _FIXED[kind]
            if shape.size > len(content) - place:
                raise WireError("a field is longer than its message")
            yield number, shape.unpack_from(content, place)[0]
            place += shape.size
        else:
            raise WireError(f"a field is of the unknown kind {kind}")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while place < len(content) and shift < _MOST_BITS:
        byte = content[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7
    raise WireError("a number has no end")


def signed(value: int) -> int:
    """A number of 64 bits that may be negative.

    >>> signed(2**64 - 1)
    -1
    """
    return value - 2**64 if value >= 2**63 else value
