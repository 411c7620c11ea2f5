"""Reads the frames of a TFRecord file: length, checksum of the length, content, checksum of the content."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from trainspec_validate.system.crc32c import crc32c, masked
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.source import SourceError

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MOST_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_MOST_SKIPPED_BYTES = 2 * 1024**3
_CUT = "the program may have been stopped while it wrote"


def is_frame(head: bytes) -> bool:
    """Whether a text begins with a frame: its length has the checksum that is next to it."""
    if len(head) < _HEADER.size:
        return False
    length, checksum = _HEADER.unpack_from(head)
    return bool(length <= _MOST_SKIPPED_BYTES and checksum == masked(crc32c(head[:8])))


def frames(stream: BinaryIO) -> Iterator[tuple[int, bytes | Refusal]]:
    """The number and content of each frame, or the refusal of one whose content is damaged or too large.

    Raises:
        SourceError: the file ends within a frame, or the length of one is damaged, so that the next cannot be found.
    """
    number = place = 0
    while header := _read(stream, _HEADER.size):
        if len(header) < _HEADER.size:
            raise SourceError(f"the file ends within the record at byte {place:,}", _CUT)
        length, checksum = _HEADER.unpack(header)
        if checksum != masked(crc32c(header[:8])):
            raise SourceError(
                f"the length of the record at byte {place:,} does not match its checksum", "copy the file again"
            )
        yield number, _content(stream, length, place)
        place += _HEADER.size + length + _CHECKSUM.size
        number += 1


def _content(stream: BinaryIO, length: int, place: int) -> bytes | Refusal:
    if length > _MOST_BYTES:
        _skip(stream, length + _CHECKSUM.size, place)
        return Refusal(f"the record is larger than {_MOST_BYTES // 1024**2} MiB", "", "size")
    content, checksum = _read(stream, length), _read(stream, _CHECKSUM.size)
    if len(content) + len(checksum) < length + _CHECKSUM.size:
        raise SourceError(f"the file ends within the record at byte {place:,}", _CUT)
    if _CHECKSUM.unpack(checksum)[0] != masked(crc32c(content)):
        return Refusal(
            f"the content of the record at byte {place:,} does not match its checksum", "copy the file again"
        )
    return content


def _skip(stream: BinaryIO, size: int, place: int) -> None:
    while size > 0:
        piece = stream.read(min(size, _PIECE_BYTES))
        if not piece:
            raise SourceError(f"the file ends within the record at byte {place:,}", _CUT)
        size -= len(piece)


def _read(stream: BinaryIO, size: int) -> bytes:
    """So many bytes, or those up to the end of the file."""
    found: list[bytes] = []
    while size > 0 and (piece := stream.read(size)):
        found.append(piece)
        size -= len(piece)
    return b"".join(found)
