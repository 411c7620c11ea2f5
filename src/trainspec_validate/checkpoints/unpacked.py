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
_PIECE_BYTES: Final = 1024
"""Content that is asked for at once: what an unpacker has found in a call that ends in an error is lost.

Loaders ask for a multiple of it: Lib/_compression.py, `DecompressReader`, by blocks of `io.DEFAULT_BUFFER_SIZE`.
"""
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
_DEFLATE: Final = 8
_HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
"""Flags of a member of gzip: RFC 1952, section 2.3.1."""
_GZIP_TRAILER_BYTES, _ZLIB_TRAILER_BYTES = 8, 4


class _Unpacker(Protocol):
    @property
    def needs_input(self) -> bool: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Deflated:
    """Members of gzip or zlib, followed as far as the most lenient loader does.

    The `gzip` of Python hands content on before it looks at its checksum and length, skips zeros between members, and
    knows neither the checksum of a header nor its reserved flags: Lib/gzip.py, `_read_gzip_header` and `_read_eof`.
    """

    needs_input = False
    unused_data = b""

    def __init__(self, file: BinaryIO, *, is_gzip: bool) -> None:
        self._file, self._is_gzip = file, is_gzip
        self._block, self._place = b"", 0
        self._inflater: zlib._Decompress | None = None
        self.eof = False

    def decompress(self, _data: bytes, max_length: int) -> bytes:
        """Content of the next members; no bytes behind the last one.

        Raises:
            zlib.error: the data are damaged.
            EOFError: the data end within a member.
        """
        while inflater := self._inflater or self._begun():
            self._inflater = inflater
            data = inflater.unconsumed_tail or self._take(8 * _PIECE_BYTES)
            found = inflater.decompress(data, max_length)  # without data what it holds back
            if not data and not found and not inflater.eof:
                raise EOFError
            if inflater.eof:
                self._block, self._place = inflater.unused_data + self._block[self._place :], 0
                self._take(_GZIP_TRAILER_BYTES if self._is_gzip else _ZLIB_TRAILER_BYTES)
                self._inflater = None
            if found:
                return found
        self.eof = True
        return b""

    def _begun(self) -> zlib._Decompress | None:
        """What inflates the next member, behind its header; None where there is none."""
        if self._is_gzip:
            self._skip(b"\0")
        if not self._take(2).startswith(_GZIP if self._is_gzip else _ZLIB):
            return None
        if self._is_gzip:
            method, flags = self._take(8)[:2].ljust(2, b"\0")
            if method != _DEFLATE:
                return None
            if flags & _EXTRA:
                self._take(int.from_bytes(self._take(2), "little"))
            for _ in range(bool(flags & _NAME) + bool(flags & _COMMENT)):
                self._skip_text()
            self._take(2 if flags & _HEADER_CHECKSUM else 0)
        return zlib.decompressobj(-zlib.MAX_WBITS)

    def _fill(self) -> bool:
        """Read the next block where this one is used up; whether there is any byte."""
        if self._place >= len(self._block):
            self._block, self._place = self._file.read(_BLOCK_BYTES), 0
        return bool(self._block)

    def _take(self, num: int) -> bytes:
        """So many of the next bytes; fewer at the end of the file."""
        found = b""
        while len(found) < num and self._fill():
            piece = self._block[self._place : self._place + num - len(found)]
            self._place += len(piece)
            found += piece
        return found

    def _skip(self, byte: bytes) -> None:
        """Skip a byte as often as it comes."""
        while self._fill() and not (rest := self._block[self._place :].lstrip(byte)):
            self._place = len(self._block)
        if self._block:
            self._place = len(self._block) - len(rest)

    def _skip_text(self) -> None:
        """Skip a text and the zero that ends it."""
        while self._fill() and (end := self._block.find(b"\0", self._place)) < 0:
            self._place = len(self._block)
        if self._block:
            self._place = end + 1


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


def _is_read_by_itself(start: bytes) -> bool:
    """Whether the unpacker reads its file from the begin."""
    return _is_zstd(start) or start.startswith((_GZIP, *_ZLIB))


def _whole_file(file: BinaryIO, start: bytes) -> _Unpacker:
    return _Zstd(file) if _is_zstd(start) else _Deflated(file, is_gzip=start.startswith(_GZIP))


def _unpacker_of(start: bytes) -> _Unpacker | None:
    if start.startswith(b"BZh"):
        return bz2.BZ2Decompressor()
    if start.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
    return None


class _Unpacked(io.RawIOBase):
    """The content of a file of one or more compressed parts, up to the first that is damaged."""

    def __init__(self, file: BinaryIO, start: bytes) -> None:
        self._file, self._start = file, start
        self.is_damaged = False
        self._count = Count(UNPACKED_BYTES)
        self._begin()

    def _begin(self) -> None:
        self._unpacker: _Unpacker | None
        self._file.seek(0)
        by_itself = _is_read_by_itself(self._start)
        self._unpacker = _whole_file(self._file, self._start) if by_itself else _unpacker_of(self._start)
        self._rest, self._place = b"", 0

    @property
    def is_surely_packed(self) -> bool:
        """Whether so long a start of a file is never there by chance."""
        return self._start.startswith((_GZIP + bytes([_DEFLATE]), b"BZh", b"\xfd7zXZ\x00", _ZSTD))

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
        found = bytearray()
        try:
            with memory_of_the_machine():
                while len(found) < len(buffer) and (piece := self._next(min(len(buffer) - len(found), _PIECE_BYTES))):
                    found += piece
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
            self._unpacker, self.is_damaged = None, True
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
                data, self._rest = self._rest or self._file.read(_PIECE_BYTES), b""
                if not data:
                    return b""
            if found := self._unpacker.decompress(data, most):
                return found
        return b""


def is_damaged(file: BinaryIO) -> bool:
    """Whether what `unpacked` gives has come to a damaged place of a file that cannot look compressed by chance."""
    raw = getattr(file, "raw", None)
    return isinstance(raw, _Unpacked) and raw.is_damaged and raw.is_surely_packed


def is_packed(start: bytes) -> bool:
    """Whether a file begins as one that `unpacked` unpacks."""
    return _is_read_by_itself(start) or _unpacker_of(start) is not None


def unpacked(file: BinaryIO, start: bytes) -> BinaryIO | None:
    """The content of a compressed file; None where it is none that is unpacked.

    Args:
        file: the file.
        start: its first bytes.
    """
    return io.BufferedReader(_Unpacked(file, start), _BLOCK_BYTES) if is_packed(start) else None
