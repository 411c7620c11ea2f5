"""Reads compressed files of checkpoints piece by piece, as loaders unpickle them under any name."""

from __future__ import annotations

import bz2
import importlib.util
import io
import lzma
import zlib
from typing import BinaryIO, Final, Protocol

from trainspec_validate.checkpoints.limits import UNPACKED_BYTES
from trainspec_validate.system.budget import Count
from trainspec_validate.system.process import memory_of_the_machine

_MOST_MEMORY: Final = 100_000_000
_BLOCK_BYTES: Final = 65_536
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class _Unpacker(Protocol):
    @property
    def needs_input(self) -> bool: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib and gzip, with what the other unpackers have."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(47)

    @property
    def needs_input(self) -> bool:
        return not self._unpacker.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._unpacker.decompress(self._unpacker.unconsumed_tail + data, max_length)


class _ZstdError(ValueError):
    """A frame of Zstandard is damaged, or asks for more memory than it is given."""


class _Zstd:
    """Zstandard, which reads its file by itself."""

    needs_input = False
    unused_data = b""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard  # noqa: PLC0415 - an extra

        self.eof = False
        self._error = zstandard.ZstdError
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MOST_MEMORY)
        self._stream = unpacker.stream_reader(file, _BLOCK_BYTES, read_across_frames=True, closefd=False)

    def decompress(self, _data: bytes, max_length: int) -> bytes:
        try:
            found = bytes(self._stream.read(max_length))
        except self._error as error:
            self.eof = True
            raise _ZstdError(str(error)) from error
        self.eof = not found
        return found


def _is_zstd(start: bytes) -> bool:
    return start.startswith(_ZSTD) and importlib.util.find_spec("zstandard") is not None


def _unpacker_of(start: bytes) -> _Unpacker | None:
    if start.startswith((b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")):
        return _Zlib()
    if start.startswith(b"BZh"):
        return bz2.BZ2Decompressor()
    if start.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
    return None


class _Unpacked(io.RawIOBase):
    """The content of a file of one or more compressed parts, up to the first that is damaged."""

    def __init__(self, file: BinaryIO, start: bytes) -> None:
        self._file, self._start = file, start
        self._count = Count(UNPACKED_BYTES)
        self._begin()

    def _begin(self) -> None:
        self._unpacker: _Unpacker | None
        self._file.seek(0)
        self._unpacker = _Zstd(self._file) if _is_zstd(self._start) else _unpacker_of(self._start)
        self._rest, self._place = b"", 0

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def seekable(self) -> bool:
        """Forward, and to the begin."""
        return True

    def tell(self) -> int:
        """Bytes before the next one."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Unpack up to a place and drop what is before it."""
        target = offset + (self._place if whence == io.SEEK_CUR else 0)
        if target < self._place:
            self._begin()
        while self._place < target and (block := self.read(min(_BLOCK_BYTES, target - self._place))):
            del block
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Unpack the next bytes.

        Raises:
            OverLimitError: the file unpacks to more than the limit.
        """
        try:
            with memory_of_the_machine():
                found = self._next(len(buffer))
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
            found = b""
        self._count.add(len(found))
        self._place += len(found)
        buffer[: len(found)] = found
        return len(found)

    def _next(self, most: int) -> bytes:
        while self._unpacker is not None:
            if self._unpacker.eof:
                rest = self._unpacker.unused_data or self._file.read(_BLOCK_BYTES)
                self._unpacker, self._rest = _unpacker_of(rest), rest
                continue
            data = b""
            if self._unpacker.needs_input:
                data, self._rest = self._rest or self._file.read(_BLOCK_BYTES), b""
                if not data:
                    return b""
            if found := self._unpacker.decompress(data, most):
                return found
        return b""


def is_packed(start: bytes) -> bool:
    """Whether a file begins as one that `unpacked` unpacks."""
    return _is_zstd(start) or _unpacker_of(start) is not None


def unpacked(file: BinaryIO, start: bytes) -> BinaryIO | None:
    """The content of a compressed file; None where it is none that is unpacked.

    Args:
        file: the file.
        start: its first bytes.
    """
    return io.BufferedReader(_Unpacked(file, start), _BLOCK_BYTES) if is_packed(start) else None
