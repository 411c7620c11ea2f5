"""Opens a stream: gzip and zstd by content, and lines of bounded length with their offsets."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from trainspec_validate.boundary import open_regular, untrusted, words_of
from trainspec_validate.budget import Limit

MAX_LINE_BYTES = int(Limit("a line of another program", 16 * 1024 * 1024, "bytes").most)
"""A longer line is handed on with one byte more than this, which its reader refuses."""
MOST_OF_A_LINE: Final = Limit("a stream", 1024**3, "bytes without the end of a line")
_MOST_UNPACKED: Final = Limit("a compressed stream", 300, "times its size, where it unpacks to more than 200 MB")
_FREE_BYTES = 200_000_000
_MAX_WINDOW_BYTES = 128 * 1024 * 1024
_END = b"end of the file\n"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class SourceError(Exception):
    """A stream cannot be opened or read on; `help` says what would be right."""

    def __init__(self, message: str, help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.help = help


class _Rejoined(io.RawIOBase):
    """A stream of which some bytes were read, from its start again."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start, self._rest = start, rest
        self.num_read = 0
        """Bytes that were handed on."""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, first with what was read before."""
        found = self._start[: len(buffer)] or self._rest.read(len(buffer))
        self._start = self._start[len(found) :]
        self.num_read += len(found)
        buffer[: len(found)] = found
        return len(found)


def rejoined(start: bytes, rest: BinaryIO) -> BinaryIO:
    """A stream of which some bytes were read, from its start again."""
    return cast("BinaryIO", io.BufferedReader(_Rejoined(start, rest)))


def uncompressed(stream: BinaryIO) -> BinaryIO:
    """The stream, through the decompressor that its first bytes ask for.

    Raises:
        SourceError: it is zstd, and the library for that is not installed.
    """
    start = stream.read(4)
    whole = rejoined(start, stream)
    if start.startswith(_GZIP):
        return cast("BinaryIO", _Gzip(whole, _Gauge(whole)))
    if start == _ZSTD:
        return _from_zstd(whole, _Gauge(whole))
    return whole


class _Gauge:
    """What is unpacked of a stream, held against what was read of it: sizes that a file states are not asked."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = cast("_Rejoined", cast("io.BufferedReader", source).raw)
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Count unpacked bytes.

        Raises:
            OverLimitError: there are far more of them than in most files.
        """
        self._num_bytes += num_bytes
        if self._num_bytes > _FREE_BYTES:
            _MOST_UNPACKED.check(self._num_bytes // max(1, self._source.num_read))


class _Gzip(gzip.GzipFile):
    """A gzip stream that is measured."""

    def __init__(self, stream: BinaryIO, gauge: _Gauge) -> None:
        super().__init__(fileobj=stream)
        self._gauge = gauge

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes."""
        return self._counted(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        """The next bytes that are there."""
        return self._counted(super().read1(size))

    def readline(self, size: int | None = -1) -> bytes:
        """The next line."""
        return self._counted(super().readline(-1 if size is None else size))

    def _counted(self, found: bytes) -> bytes:
        self._gauge.add(len(found))
        return found


def _from_zstd(stream: Any, gauge: _Gauge) -> BinaryIO:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError:
        raise SourceError("zstd cannot be read here", "pip install 'trainspec-validate[telemetry]'") from None
    both: Any = _InTurn(stream, io.BytesIO(zstandard.ZstdCompressor().compress(_END)))
    reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).stream_reader(both, read_across_frames=True)
    return cast("BinaryIO", io.BufferedReader(cast("Any", _Zstd(reader, zstandard.ZstdError, gauge))))


class _InTurn:
    """Two streams, one after the other."""

    def __init__(self, first: Any, second: Any) -> None:
        self._first, self._second = first, second

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        found: bytes = self._first.read(size) or self._second.read(size)
        return found


class _Zstd(io.RawIOBase):
    """A zstd stream whose damage is told as that of other streams.

    The library does not tell an end that comes early from any other. What is read has a mark of our own behind it,
    which comes out only if all before it was whole.
    """

    def __init__(self, reader: Any, error: type[Exception], gauge: _Gauge) -> None:
        self._reader, self._error, self._gauge = reader, error, gauge
        self._held = b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with uncompressed bytes."""
        found = b""
        while not found:
            try:
                piece = self._reader.read(len(buffer))
            except self._error as error:
                raise SourceError(
                    f"the compressed data are damaged: {words_of(error)}", "copy the file again"
                ) from None
            if not piece and self._held != _END:
                raise SourceError("the compressed data end early", "copy the file again, or keep what was read")
            if not piece:
                break
            whole = self._held + piece
            found, self._held = whole[: -len(_END)], whole[-len(_END) :]
        self._gauge.add(len(found))
        buffer[: len(found)] = found
        return len(found)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a regular file.

    Raises:
        SourceError: it cannot be opened, or is no regular file.
    """
    with _raw(path) as file:
        yield uncompressed(file)


def _raw(path: Path) -> BinaryIO:
    with untrusted(SourceError):
        return open_regular(path)


def head_bytes(stream: BinaryIO, size: int) -> bytes:
    """The first bytes of a stream, fewer where it ends or its compressed data are damaged."""
    found = b""
    try:
        while len(found) < size and (piece := stream.read(size - len(found))):
            found += piece
    except (SourceError, EOFError, zlib.error, gzip.BadGzipFile):
        pass
    return found


def lines_of(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Every line with the bytes before it, without its line end.

    Raises:
        SourceError: the compressed data end early or are damaged.
        OverLimitError: a line has no end within 1 GiB, or there is far more in compressed data than in most.
    """
    offset = 0
    try:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            yield offset, line.rstrip(b"\r\n")
            offset += len(line)
            if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                offset += _skip_line(stream)
    except EOFError:
        raise SourceError("the compressed data end early", "copy the file again, or keep what was read") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"the compressed data are damaged: {words_of(error)}", "copy the file again") from None


def _skip_line(stream: BinaryIO) -> int:
    skipped = 0
    while line := stream.readline(MAX_LINE_BYTES):
        skipped += len(line)
        if line.endswith(b"\n"):
            break
        MOST_OF_A_LINE.check(skipped)
    return skipped
