"""Walks the blocks of a file of Zstandard without unpacking them: a cut file does not end with its last block.

The layout is that of RFC 8878, section 3.1.1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from trainspec_validate.checkpoints.opening import UnreadableError, open_file

_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_BLOCK_BYTES = 3
_REPEATED, _COMPRESSED, _RESERVED = 1, 2, 3
_HUFFMAN = (2, 3)
"""Kinds of literals."""
_MAX_BLOCKS = 1_000_000


def check_frame(path: Path, offset: int = 0, num_bytes: int | None = None) -> None:
    """One frame fills a stretch of a file, or the whole.

    Args:
        path: of the file.
        offset: where the stretch begins.
        num_bytes: its length; None up to the end of the file.

    Raises:
        OSError: the file cannot be read.
        UnreadableError: it does not.
    """
    with open_file(path) as file:
        whole = os.fstat(file.fileno()).st_size
        size = whole - offset if num_bytes is None else num_bytes
        what = f"has {size:,} bytes" if num_bytes is None else f"has a chunk of {size:,} bytes at byte {offset:,}"
        file.seek(offset)
        start = file.read(len(_MAGIC) + 1)
        if len(start) <= len(_MAGIC) or not start.startswith(_MAGIC):
            raise UnreadableError(f"{what}, and does not begin as Zstandard does")
        place = len(start) + _header_bytes(start[-1])
        for _ in range(_MAX_BLOCKS):
            file.seek(offset + place)
            head = int.from_bytes(file.read(_BLOCK_BYTES), "little")
            is_last, kind, num_block_bytes = head & 1, head >> 1 & 3, head >> 3
            if place + _BLOCK_BYTES > size or kind == _RESERVED:
                raise UnreadableError(f"{what}, and its blocks are cut or damaged")
            place += _BLOCK_BYTES + (1 if kind == _REPEATED else num_block_bytes)
            if is_last:
                break
        else:
            return  # so many small blocks are no damage, and are not followed to the end
        if kind == _COMPRESSED and place <= size and _ends_in_zeros(file, offset + place, num_block_bytes):
            raise UnreadableError(f"{what}, and the last of its blocks ends in zeros")
        place += 4 if start[-1] & 4 else 0  # checksum of the content
        if place != size:
            raise UnreadableError(f"{what}, and its blocks ask for {place:,}")


def _ends_in_zeros(file: BinaryIO, end: int, num_bytes: int) -> bool:
    """Whether a block whose literals are packed by Huffman ends in two zero bytes, which no such block does.

    Each stream of bits ends with a set bit, and behind the literals is one byte where there are no sequences.
    """
    file.seek(end - num_bytes)
    first = file.read(1)
    file.seek(max(end - 2, 0))
    return num_bytes > 1 and first != b"" and first[0] & 3 in _HUFFMAN and not file.read(2).strip(b"\0")


def _header_bytes(descriptor: int) -> int:
    """Bytes of the header of a frame after its descriptor."""
    is_single = descriptor >> 5 & 1
    content_size = _CONTENT_SIZE_BYTES[descriptor >> 6] or is_single
    return (1 - is_single) + _DICTIONARY_BYTES[descriptor & 3] + content_size
