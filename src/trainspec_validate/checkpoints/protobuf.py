"""Reads messages of Protocol Buffers: one field after the other, without a schema or a copy."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.checkpoints.limits import MESSAGE_FIELDS
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.system.budget import Count

# https://protobuf.dev/programming-guides/encoding/#structure
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10


def varint(content: memoryview, place: int) -> tuple[int, int]:
    """An unsigned number of variable length, and the place after it.

    Raises:
        UnreadableError: it does not end in ten bytes or within the content.
    """
    value = 0
    for number in range(_MAX_VARINT_BYTES):
        if place >= len(content):
            raise UnreadableError("ends within a number")
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise UnreadableError("holds a number of more than ten bytes")


def signed(value: int) -> int:
    """A number of type int32 or int64 out of its unsigned form."""
    return value - (1 << 64) if value >> 63 else value


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and value of each field: a number, or the bytes of a text or of a message in it.

    Raises:
        OverLimitError: it has more fields than the limit.
        UnreadableError: it breaks the format.
    """
    place = 0
    count = Count(MESSAGE_FIELDS)
    while place < len(message):
        count.add()
        key, place = varint(message, place)
        kind, number = key & 7, key >> 3
        if kind == _VARINT:
            value, place = varint(message, place)
            yield number, value
            continue
        if kind == _LENGTH:
            length, place = varint(message, place)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            raise UnreadableError(f"has a message with a field of the unknown type {kind}")
        if length > len(message) - place:
            raise UnreadableError("has a message that ends within a field")
        body = message[place : place + length]
        place += length
        yield number, body if kind == _LENGTH else int.from_bytes(body, "little")
