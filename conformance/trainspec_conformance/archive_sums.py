"""Writes the checksums of a zip container anew, after the content of stored entries was changed in place."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.view import Archive
from trainspec_validate.checkpoints.zips import Stretch, opened

_SUM = struct.Struct("<L")
_ENTRY = struct.Struct("<4s12xLLLHHH12x")
"""Of the directory at the end: its mark, CRC-32, two sizes, and the lengths of name, extra fields and comment."""
_ENTRY_SUM, _LOCAL_FLAGS, _LOCAL_SUM = 16, 6, 14
_LATER = 1 << 3
"""The flag of an entry whose sums follow its content."""
_LATER_MARK = b"PK\x07\x08"
_BLOCK_BYTES = 1 << 20


def write_sums(path: Path, archive: Archive) -> None:
    """Give each stored entry the CRC-32 of its content; a container without any checksum keeps none.

    Raises:
        UnreadableError: it is no container, or its entries are not where its directory says.
    """
    with opened(path, archive) as container:  # within the limits, and unambiguous
        places = {name: container.place(name) for name in container.names()}
    with path.open("r+b") as file:
        size = file.seek(0, io.SEEK_END) - archive.offset
        size = size if archive.num_bytes is None else min(size, archive.num_bytes)
        with zipfile.ZipFile(io.BufferedReader(Stretch(file, archive.offset, size))) as directory:
            entries, begin = directory.infolist(), directory.start_dir
        if not any(entry.CRC for entry in entries):
            return
        place = archive.offset + begin
        for entry in entries:
            where = places[entry.filename]
            if where is not None:
                found = _sum(file, archive.offset + where[0], where[1])
                _put(file, place + _ENTRY_SUM, found)
                _put_local(file, archive.offset + entry.header_offset, archive.offset + sum(where), found)
            file.seek(place)
            mark, _, _, _, *lengths = _ENTRY.unpack(file.read(_ENTRY.size))
            if mark != b"PK\x01\x02":
                raise UnreadableError(f"{path} has an entry that is not where its directory says")
            place += _ENTRY.size + sum(lengths)


def _sum(file: BinaryIO, place: int, num_bytes: int) -> int:
    file.seek(place)
    found = 0
    while num_bytes > 0 and (block := file.read(min(num_bytes, _BLOCK_BYTES))):
        found = zlib.crc32(block, found)
        num_bytes -= len(block)
    return found


def _put(file: BinaryIO, place: int, found: int) -> None:
    file.seek(place)
    file.write(_SUM.pack(found))


def _put_local(file: BinaryIO, place: int, end: int, found: int) -> None:
    """Write the sum where the entry itself holds it: before its content, or after it."""
    file.seek(place + _LOCAL_FLAGS)
    if not int.from_bytes(file.read(2), "little") & _LATER:
        _put(file, place + _LOCAL_SUM, found)
        return
    file.seek(end)
    _put(file, end + (len(_LATER_MARK) if file.read(len(_LATER_MARK)) == _LATER_MARK else 0), found)
