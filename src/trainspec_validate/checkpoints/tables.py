"""Reads sorted tables of keys and values, as LevelDB and TensorFlow write them, block by block."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from trainspec_validate.checkpoints.limits import (
    TABLE_BLOCK_BYTES,
    TABLE_BYTES,
    TABLE_ENTRIES,
    TABLE_KEY_BYTES,
    TABLE_NAME_BYTES,
)
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError
from trainspec_validate.checkpoints.protobuf import varint
from trainspec_validate.system.budget import Count
from trainspec_validate.system.crc32c import crc32c, unmasked

# https://github.com/google/leveldb/blob/main/doc/table_format.md; TensorFlow: tsl/lib/io/format.h
MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER_BYTES = 48
_TRAILER = struct.Struct("<BL")
_COUNT = struct.Struct("<L")
_PLAIN, _SNAPPY = 0, 1
_GAP = "has blocks that do not follow each other"


class ChecksumError(UnreadableError):
    """A block contradicts its checksum."""


@dataclass(frozen=True, slots=True)
class _Handle:
    """Where a block lies."""

    offset: int
    num_bytes: int

    @property
    def end(self) -> int:
        """The place after its checksum."""
        return self.offset + self.num_bytes + _TRAILER.size


def entries(file: BinaryIO) -> Iterator[tuple[bytes, memoryview]]:
    """Every key with its value, in the order of the keys; each block agrees with its checksum.

    Raises:
        ChecksumError: a block contradicts its checksum.
        LimitError: a block is compressed.
        OverLimitError: the table, a block, a key or the number of them is larger than the limits.
        UnreadableError: it breaks the format.
    """
    size = file.seek(0, io.SEEK_END)
    TABLE_BYTES.check(size)
    count, name_bytes = Count(TABLE_ENTRIES), Count(TABLE_NAME_BYTES)
    last: bytes | None = None
    place = 0
    about, root = _ends(file, size)
    for _, value in _pairs(_block(file, root, size)):
        handle, _ = _handle(value, 0)
        if handle.offset != place:
            raise UnreadableError(_GAP)
        place = handle.end
        for key, content in _pairs(_block(file, handle, size)):
            count.add()
            name_bytes.add(len(key))
            if last is not None and key <= last:
                raise UnreadableError("has keys that are not in order")
            last = key
            yield key, content
    if place != about.offset:
        raise UnreadableError(_GAP)


def _ends(file: BinaryIO, size: int) -> tuple[_Handle, _Handle]:
    """Where the last blocks lie, as the end of the file says: the one about the table, and the one of the others."""
    if size < FOOTER_BYTES:
        raise UnreadableError(f"has {size:,} bytes, fewer than the end of a table alone")
    file.seek(size - FOOTER_BYTES)
    footer = file.read(FOOTER_BYTES)
    if not footer.endswith(MAGIC):
        raise UnreadableError("does not end as a table does")
    about, place = _handle(memoryview(footer), 0)
    root, place = _handle(memoryview(footer), place)
    if any(footer[place : -len(MAGIC)]):
        raise UnreadableError("has an end that holds more than two places")
    if (about.end, root.end) != (root.offset, size - FOOTER_BYTES):
        raise UnreadableError(_GAP)
    _block(file, about, size)
    return about, root


def _handle(content: memoryview, place: int) -> tuple[_Handle, int]:
    numbers = []
    for _ in ("offset", "num_bytes"):
        value, end = varint(content, place)
        if end > place + 1 and content[end - 1] == 0:
            raise UnreadableError("holds a place that is written longer than it has to be")
        numbers.append(value)
        place = end
    return _Handle(*numbers), place


def _block(file: BinaryIO, handle: _Handle, size: int) -> memoryview:
    """Content of a block, compared with its checksum."""
    TABLE_BLOCK_BYTES.check(handle.num_bytes)
    if handle.end > size - FOOTER_BYTES:
        raise UnreadableError(f"names a block beyond its end, at byte {handle.offset:,}")
    file.seek(handle.offset)
    whole = file.read(handle.num_bytes + _TRAILER.size)
    if len(whole) < handle.num_bytes + _TRAILER.size:
        raise UnreadableError("became shorter while it was read")
    kind, recorded = _TRAILER.unpack_from(whole, handle.num_bytes)
    if crc32c(whole[: handle.num_bytes + 1]) != unmasked(recorded):
        raise ChecksumError(f"has a block at byte {handle.offset:,} that contradicts its checksum")
    if kind != _PLAIN:
        name = "Snappy" if kind == _SNAPPY else f"type {kind}"
        raise LimitError(f"has a compressed block ({name}), which is not read: TensorFlow writes none")
    return memoryview(whole)[: handle.num_bytes]


def _pairs(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Keys, each written as what differs from the one before it, and values."""
    if len(block) < _COUNT.size:
        raise UnreadableError("has a block without a list of its restarts")
    (num_restarts,) = _COUNT.unpack_from(block, len(block) - _COUNT.size)
    end = len(block) - _COUNT.size * (num_restarts + 1)
    if end < 0:
        raise UnreadableError("has a block that is shorter than the list of its restarts")
    key, place = b"", 0
    while place < end:
        shared, place = varint(block, place)
        length, place = varint(block, place)
        num_bytes, place = varint(block, place)
        if shared > len(key) or length + num_bytes > end - place:
            raise UnreadableError("has an entry that reaches beyond its block")
        TABLE_KEY_BYTES.check(shared + length)
        key = key[:shared] + bytes(block[place : place + length])
        yield key, block[place + length : place + length + num_bytes]
        place += length + num_bytes
