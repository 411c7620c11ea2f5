"""Opens zip containers: within limits, and without unpacking anything to a disk."""

from __future__ import annotations

import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trainspec_validate.checkpoints.limits import ZIP_DIRECTORY_BYTES, ZIP_ENTRIES, ZIP_OTHERS, within
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, open_file
from trainspec_validate.checkpoints.paths import fault
from trainspec_validate.checkpoints.view import Archive
from trainspec_validate.checkpoints.zip_readings import refuse_ambiguous

MAX_RATIO = 1.01
"""State is stored as it is: compressed entries are those of a bomb, or of another program."""
_MIN_RATIO_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_SMALL_BYTES = 1 << 16
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\x05\x06"
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_MARK = b"PK\x06\x06"
_LOCAL = struct.Struct("<4s22x2H")
_LOCAL_MARK = b"PK\x03\x04"
_MAX_COMMENT_BYTES = 65_535
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    lzma.LZMAError,
)
_KINDS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_VALUES = re.compile(r"(?:^|/)data/([0-9]+)$")
_ENTRY_MARK = b"PK\x01\x02"
"""Start of each entry of a directory."""


class Stretch(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: BinaryIO, begin: int, num_bytes: int) -> None:
        self._file, self._begin, self._size, self._place = file, begin, num_bytes, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place.

        Raises:
            OSError: it is before the start.
        """
        place = offset + (0, self._place, self._size)[whence]
        if place < 0:
            raise OSError("a place before the start of the file")
        self._place = place
        return place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer with the next bytes."""
        self._file.seek(self._begin + self._place)
        wanted = max(0, min(len(buffer), self._size - self._place))
        content = self._file.read(wanted)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


class _Directory(io.BufferedReader):
    """The file as the directory is read from it: in one piece, whose entries are counted whatever its end claims."""

    is_listed = False

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes.

        Raises:
            OverLimitError: they are the directory, and hold more entries than the limit.
        """
        if self.is_listed or size is None or size < 0:  # what is read to the end of the file begins near it
            return super().read(size)
        ZIP_DIRECTORY_BYTES.check(size)
        content = super().read(size)
        ZIP_ENTRIES.check(content.count(_ENTRY_MARK))
        return content


class Zip:
    """A container whose directory was read and is within the limits."""

    def __init__(self, file: _Directory, raw: Stretch, num_bytes: int) -> None:
        ZIP_ENTRIES.check(_num_entries(file, num_bytes))
        self._file, self._zip = file, zipfile.ZipFile(file)
        file.is_listed = True
        refuse_ambiguous(raw, num_bytes)
        for entry in self._zip.infolist():
            if entry.compress_type not in _KINDS:
                raise LimitError(f"holds {entry.filename!r}, which is compressed in a way that is not read")
        self._has_sums = any(entry.CRC for entry in self._zip.infolist())
        for entry in self._zip.infolist():
            if not self._has_sums:
                entry.CRC = None  # type: ignore[assignment]  # then none is compared
        total = 0
        for entry in self._zip.infolist():
            total += entry.file_size
            if entry.file_size > _MIN_RATIO_BYTES and entry.file_size > MAX_RATIO * entry.compress_size:
                ratio = entry.file_size / max(1, entry.compress_size)
                raise LimitError(f"holds {entry.filename!r}, which unpacks to {ratio:,.0f} times its size")
            if entry.file_size > _MIN_RATIO_BYTES and entry.compress_type != zipfile.ZIP_STORED:
                raise LimitError(f"holds {entry.filename!r} compressed, and state is stored as it is")
        if total > max(_MIN_RATIO_BYTES, MAX_RATIO * num_bytes):
            raise LimitError(f"has {num_bytes:,} bytes and claims to hold {total:,}")

    def pickles(self) -> list[str]:
        """Names of the entries that are pickles; PyTorch finds them in any letter case."""
        return [name for name in self.names() if name.lower().endswith((".pkl", ".pickle"))]

    def unnamed(self, held: Collection[str] | None = None) -> list[str]:
        """Names of the entries that are neither pickles by their names nor the values of tensors.

        Args:
            held: keys of the values of tensors; None for all entries that are named so.

        Raises:
            LimitError: they are more than the limit.
        """
        known = {*self.pickles()}
        others = [name for name in self.names() if name not in known]
        found = [
            name for name in others if (key := _VALUES.search(name)) is None or not (held is None or key[1] in held)
        ]
        with within():
            ZIP_OTHERS.check(len(found))
        return found

    def names(self) -> list[str]:
        """Names of all entries."""
        return [entry.filename for entry in self._zip.infolist()]

    def size(self, name: str) -> int:
        """Bytes that an entry unpacks to, as the directory says."""
        return self._zip.getinfo(name).file_size

    def place(self, name: str) -> tuple[int, int] | None:
        """Where the content of an entry begins in the container, and its bytes; None where it is compressed."""
        entry = self._zip.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED:
            return None
        self._file.seek(entry.header_offset)
        header = self._file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(_LOCAL_MARK):
            raise zipfile.BadZipFile(f"the entry {name!r} is not where its directory says")
        _, name_bytes, extra_bytes = _LOCAL.unpack(header)
        return entry.header_offset + _LOCAL.size + name_bytes + extra_bytes, entry.file_size

    @contextmanager
    def entry(self, name: str) -> Iterator[BinaryIO]:
        """An entry for reading."""
        with self._zip.open(name) as content:
            yield content  # type: ignore[misc]

    def unsafe_names(self) -> Iterator[tuple[str, str]]:
        """Names of entries that must not be joined to a directory, and why."""
        for entry in self._zip.infolist():
            why = fault(entry.filename.rstrip("/"))
            if why:
                yield entry.filename, why

    @contextmanager
    def stream(self, name: str) -> Iterator[BinaryIO]:
        """An entry for reading in many small parts."""
        with self._zip.open(name) as content:
            yield io.BufferedReader(content, _SMALL_BYTES)  # type: ignore[type-var]

    def read(self, name: str, limit: int) -> bytes:
        """Content of an entry.

        Raises:
            LimitError: it is larger than the limit.
        """
        if self.size(name) > limit:
            raise LimitError(f"holds {name!r} with more than {limit:,} bytes")
        with self._zip.open(name) as entry:
            return entry.read(limit)

    def sums(self) -> dict[str, tuple[int, int]] | None:
        """Bytes and checksums of all entries by their names within the container's folder; None where none is recorded.

        PyTorch names the folder after the file.
        """
        if not self._has_sums:
            return None
        return {one.filename.partition("/")[2]: (one.file_size, one.CRC) for one in self._zip.infolist()}

    def damaged(self) -> tuple[list[str], bool]:
        """Entries whose content contradicts their checksum, and whether any checksum is recorded at all."""
        if not self._has_sums:
            return [], False
        return [entry.filename for entry in self._zip.infolist() if not self._is_whole(entry)], True

    def _is_whole(self, entry: zipfile.ZipInfo) -> bool:
        try:
            with self._zip.open(entry) as content:
                while content.read(_BLOCK_BYTES):
                    pass
        except _BROKEN:
            return False
        return True


@contextmanager
def opened(path: Path, archive: Archive) -> Iterator[Zip]:
    """A container for reading.

    Raises:
        LimitError: it asks for more than a reader gives.
        UnreadableError: it is no container, or its directory is damaged.
    """
    try:
        with open_file(path) as file:
            size = file.seek(0, io.SEEK_END) - archive.offset
            size = size if archive.num_bytes is None else min(size, archive.num_bytes)
            with within():
                whole, raw = (Stretch(file, archive.offset, size) for _ in range(2))
                container = Zip(_Directory(whole, _SMALL_BYTES), raw, size)
            yield container
    except _BROKEN as error:
        words = str(error)  # it may name a file
        shown = words[:1].lower() + words[1:] or type(error).__name__
        raise UnreadableError(f"is no whole zip container: {shown}") from error


def _num_entries(file: BinaryIO, num_bytes: int) -> int:
    """Entries that the end of the container claims; the directory is not read before they are known to be few."""
    length = min(num_bytes, _END.size + _MAX_COMMENT_BYTES)
    file.seek(num_bytes - length)
    tail = file.read(length)
    place = tail.rfind(_END_MARK)
    if place < 0 or len(tail) - place < _END.size:
        raise zipfile.BadZipFile("the directory at its end is missing")
    claimed: int = _END.unpack_from(tail, place)[4]
    begin = tail.rfind(_END64_MARK, 0, place)
    if begin >= 0 and place - begin >= _END64.size:
        claimed = max(claimed, _END64.unpack_from(tail, begin)[7])
    return claimed
