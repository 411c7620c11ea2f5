"""Compares stretches of files with the CRC-32C that their format records of each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.protobuf import varint
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.system import threads
from trainspec_validate.system.crc32c import Running, masked
from trainspec_validate.system.process import memory_of_the_machine

BLOCK_BYTES = 1 << 20
_NUM_WAITING = 4_096
"""Pieces in the queue at once."""
_MAX_LENGTHS_BYTES = 16 * 1024 * 1024
_SUM = struct.Struct("<L")


def damaged(root: Path, pieces: list[Piece]) -> Iterator[tuple[Piece, str]]:
    """Pieces whose content contradicts the recorded checksum, or cannot be read, and in which way."""
    with threads.pool(threads.num_threads()) as pool:
        for start in range(0, len(pieces), _NUM_WAITING):
            part = pieces[start : start + _NUM_WAITING]
            for piece, words in zip(part, pool.map(lambda piece: _compare(root, piece), part), strict=True):
                if words:
                    yield piece, words


def _compare(root: Path, piece: Piece) -> str:
    try:
        with memory_of_the_machine(), open_file(root / piece.path) as file:
            found = _of_texts(file, piece) if piece.num_texts is not None else _of_bytes(file, piece)
    except UnreadableError as error:
        return str(error)
    except Exception as error:
        return failure(error)[1]
    return "" if found == piece.crc32c else "contradicts its checksum"


def stretch(file: BinaryIO, offset: int, num_bytes: int) -> Iterator[memoryview]:
    """The content of a stretch, block by block; a block is valid until the next one.

    Raises:
        UnreadableError: the file ends within it.
    """
    buffer = memoryview(bytearray(min(BLOCK_BYTES, max(num_bytes, 1))))
    file.seek(offset)
    while num_bytes:
        number = file.readinto(buffer[:num_bytes])  # type: ignore[attr-defined]
        if not number:
            raise UnreadableError("ends within what the index names")
        yield buffer[:number]
        num_bytes -= number


def _of_bytes(file: BinaryIO, piece: Piece) -> int:
    running = Running()
    for block in stretch(file, piece.offset, piece.num_bytes):
        running.update(block)
    return running.value


def _of_texts(file: BinaryIO, piece: Piece) -> int:
    """Texts lie behind their lengths: tensorflow/core/util/tensor_bundle/tensor_bundle.cc, WriteStringTensor."""
    running = Running()
    lengths, place = _lengths(file, piece)
    for length in lengths:
        running.update(length.to_bytes(4 if length < 1 << 32 else 8, "little"))
    file.seek(piece.offset + place)
    recorded = file.read(_SUM.size)
    if recorded != _SUM.pack(masked(running.value)):
        raise UnreadableError("contradicts the checksum of its lengths")
    place += _SUM.size
    if place + sum(lengths) != piece.num_bytes:
        raise UnreadableError(f"holds texts of {sum(lengths):,} bytes, and spans {piece.num_bytes - place:,}")
    running.update(recorded)
    for block in stretch(file, piece.offset + place, sum(lengths)):
        running.update(block)
    return running.value


def _lengths(file: BinaryIO, piece: Piece) -> tuple[list[int], int]:
    """Length of each text, and where the lengths end."""
    file.seek(piece.offset)
    content = memoryview(file.read(min(piece.num_bytes, _MAX_LENGTHS_BYTES)))
    lengths, place = [], 0
    if (piece.num_texts or 0) > len(content):
        raise UnreadableError(f"claims {piece.num_texts:,} texts in {piece.num_bytes:,} bytes")
    for _ in range(piece.num_texts or 0):
        length, place = varint(content, place)
        lengths.append(length)
    return lengths, place
