"""Walks the blocks of a file of Zstandard without unpacking them: a cut file does not end with its last block.

The layout is that of RFC 8878, section 3.1.1.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainspec_validate.checkpoints.opening import UnreadableError, open_file

_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_BLOCK_BYTES = 3
_REPEATED, _RESERVED = 1, 3
_MAX_BLOCKS = 1_000_000


def check_frame(path: Path) -> None:
    """One frame fills the whole file.

    Raises:
        OSError: the file cannot be read.
        UnreadableError: it does not.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(len(_MAGIC) + 1)
        if len(start) <= len(_MAGIC) or not start.startswith(_MAGIC):
            raise UnreadableError(f"has {size:,} bytes and does not begin as Zstandard does")
        place = len(start) + _header_bytes(start[-1])
        for _ in range(_MAX_BLOCKS):
            file.seek(place)
            head = int.from_bytes(file.read(_BLOCK_BYTES), "little")
            is_last, kind, num_bytes = head & 1, head >> 1 & 3, head >> 3
            if place + _BLOCK_BYTES > size or kind == _RESERVED:
                raise UnreadableError(f"has {size:,} bytes, and its blocks are cut or damaged")
            place += _BLOCK_BYTES + (1 if kind == _REPEATED else num_bytes)
            if is_last:
                break
        else:
            return  # so many small blocks are no damage, and are not followed to the end
        place += 4 if start[-1] & 4 else 0  # checksum of the content
        if place != size:
            raise UnreadableError(f"has {size:,} bytes, and its blocks ask for {place:,}")


def _header_bytes(descriptor: int) -> int:
    """Bytes of the header of a frame after its descriptor."""
    is_single = descriptor >> 5 & 1
    content_size = _CONTENT_SIZE_BYTES[descriptor >> 6] or is_single
    return (1 - is_single) + _DICTIONARY_BYTES[descriptor & 3] + content_size
