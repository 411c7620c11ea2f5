"""Opens streams: plain, gzip and zstd by content; reads their start, their blocks of whole lines, and their lines."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from trainspec_validate.system.boundary import open_regular, words_of
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats.items import Refusal

HEAD_BYTES = 262_144
"""Bytes from the start of a file, uncompressed, that show its format."""
BLOCK_BYTES = 8_000_000
FREE_SECONDS: Final = 600.0
MOST_SECONDS: Final = Limit(
    "a stream", 60, f"seconds of processor time for each million bytes, beyond {FREE_SECONDS:.0f} seconds"
)
MAX_LINE_BYTES = int(Limit("a line of another program", 16 * 1024 * 1024, "bytes").most)
"""A longer line is handed on with one byte more than this, which its reader refuses."""
MAX_RECORD_BYTES = int(Limit("a record of a stream", 1_000_000, "bytes").most)
"""The same for streams of our own format, whose lines are counted in full up to the size of a block."""
_MOST_OF_A_LINE: Final = Limit("a stream", 1024**3, "bytes without the end of a line")
_MOST_UNPACKED: Final = Limit("a compressed stream", 300, "times its size, where it unpacks to more than 200 MB")
_FREE_BYTES = 200_000_000
_MAX_WINDOW_BYTES = 128 * 1024 * 1024
_END = b"end of the file\n"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
COMPRESSED = (_GZIP, _ZSTD)
"""First bytes of compressed files."""
PARQUET = b"PAR1"
"""First bytes of Parquet."""
_SHOWN_BYTES = 4_000
_SKIPPED_BYTES = 1_000_000
_DAMAGED = (OSError, EOFError, zlib.error)
"""What damaged content raises, as does storage, which `_damage` tells apart."""


class SourceError(Exception):
    """A stream cannot be opened or read on; `help` says what would be right."""

    def __init__(self, message: str, help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.help = help


def cut_off(error: SourceError) -> Refusal:
    """Message on the place in a stream where it cannot be read on."""
    return Refusal(str(error), error.help, "cut-off")


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


def check_unwrapped(stream: BinaryIO) -> None:
    """Accept a file that is read from its end, such as Parquet, which no compressed file is.

    Raises:
        SourceError: it is compressed as a whole.
    """
    start = stream.read(4)
    if start.startswith(COMPRESSED):
        program, command = ("gzip", "gunzip") if start.startswith(_GZIP) else ("zstd", "unzstd")
        message = f"this is Parquet compressed with {program}, and only Parquet by itself is read"
        raise SourceError(message, f"unpack it first ({command}); Parquet compresses its own pages")


def check_unpacked(num_bytes: int, num_read: int) -> None:
    """Accept what some bytes were unpacked to.

    Raises:
        OverLimitError: it is far more than in most files.
    """
    if num_bytes > _FREE_BYTES:
        _MOST_UNPACKED.check(num_bytes // max(1, num_read))


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
        check_unpacked(self._num_bytes, self._source.num_read)


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
    """The uncompressed bytes of a regular file; a plain file can be searched by offset.

    Raises:
        SourceError: the file is zstd, and the library for that is not installed.
        OSError: the file cannot be opened, or is no regular file.
    """
    with open_regular(path) as file:
        is_packed = file.read(4).startswith(COMPRESSED)
        file.seek(0)
        yield uncompressed(file) if is_packed else file


def is_compressed(path: Path) -> bool:
    """Whether a file is gzip or zstd, by its first bytes."""
    with open_regular(path) as file:
        return file.read(4).startswith(COMPRESSED)


def head_of(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file, uncompressed; of damaged data those before the damage.

    Raises:
        SourceError: the compressed data are damaged from the start.
        OSError: the file cannot be read.
    """
    with opened(path) as file:
        return head_bytes(file, size)


def pieces_of(path: Path, most_bytes: int = 256 * 1024 * 1024) -> Iterator[bytes]:
    """The uncompressed content in pieces, up to a limit; of damaged data those before the damage."""
    with opened(path) as stream, contextlib.suppress(SourceError, *_DAMAGED):
        file = _Patient(stream)
        while most_bytes > 0 and (piece := file.read(BLOCK_BYTES)):
            most_bytes -= len(piece)
            yield piece


def pieces_in(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """The start of a stream and the rest in pieces; of damaged data those before the damage.

    Raises:
        SourceError: the compressed data are damaged from the start.
        OSError: the stream cannot be read.
    """
    file = _Patient(stream)
    try:
        yield file.read(HEAD_BYTES)
    except _DAMAGED as error:
        raise _damage(error) from error
    with contextlib.suppress(SourceError, *_DAMAGED):
        while piece := file.read(size):
            yield piece


def head_bytes(stream: BinaryIO, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a stream; of damaged data those before the damage.

    Raises:
        SourceError: the compressed data are damaged from the start.
        OSError: the stream cannot be read.
    """
    try:
        return _Patient(stream).read(size)
    except _DAMAGED as error:
        raise _damage(error) from error


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, or its last line without an end."""

    offset: int
    """Of the first byte, in the uncompressed text."""
    content: bytes
    is_tail: bool = False
    """Whether it is the last line, and the line end is missing."""


def blocks(path: Path, start: int = 0, end: int | None = None, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Whole lines from those that begin at or after `start` up to the one that begins before `end`.

    Raises:
        SourceError: the compressed data end early or are damaged.
        OSError: the file cannot be read.
        OverLimitError: a line has no end within 1 GiB, or there is far more in compressed data than in most.
    """
    with opened(path) as file:
        try:
            offset = start - 1 + _skip_line(file, start - 1) if start else 0
            yield from _blocks(_Patient(file), offset, end, size, MAX_RECORD_BYTES)
        except _DAMAGED as error:
            raise _damage(error) from error


class Unended(bytes):
    """The last line of a file, without a line end."""


def lines_of(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Every line with the bytes before it, without its line end; raises as `blocks`."""
    try:
        for block in _blocks(_Patient(stream), 0, None, BLOCK_BYTES):
            if block.is_tail:
                yield block.offset, Unended(block.content)
            else:
                yield from lines(block)
    except _DAMAGED as error:
        raise _damage(error) from error


def _skip_line(file: BinaryIO, start: int) -> int:
    """Go on behind the line end at or after a place; returns how many bytes that is."""
    file.seek(start)
    skipped = 0
    while piece := file.readline(_SKIPPED_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


class _Patient:
    """A file that gives all that can be read before it says that no more can."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.error: Exception | None = None

    def read(self, size: int) -> bytes:
        """The next bytes; empty at the end."""
        if self.error is not None:
            raise self.error
        found: list[bytes] = []
        left = size
        try:
            while left > 0 and (piece := self.file.read1(left)):
                found.append(piece)
                left -= len(piece)
        except (*_DAMAGED, SourceError) as error:
            if not found:
                raise
            self.error = error
        return b"".join(found)


def _blocks(
    file: _Patient | _Chain, offset: int, end: int | None, size: int, most_bytes: int = MAX_LINE_BYTES
) -> Iterator[Block]:
    """Whole lines; of a line that is longer than a block and than `most_bytes` so many bytes and one more."""
    rest = b""
    while end is None or offset < end:
        chunk = file.read(size)
        if not chunk:
            break
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            rest += chunk
            if len(rest) > max(most_bytes, BLOCK_BYTES):
                length = len(rest)
                start = b"".join((memoryview(rest)[: most_bytes + 1], b"\n"))
                rest = chunk = b""  # not held while the start is read
                yield Block(offset, start)
                following = _after_line(file, offset, length)
                if following:
                    yield from _blocks(following[1], following[0], end, BLOCK_BYTES, most_bytes)
                return
            continue
        content = b"".join((rest, memoryview(chunk)[:cut]))
        rest, cut = chunk[cut:], len(content)
        if end is not None and offset + cut > end:
            last = content.find(b"\n", max(0, end - offset - 1), cut) + 1
            yield Block(offset, content[:last])
            return
        yield Block(offset, content)
        offset += cut
    if rest and (end is None or offset < end):
        yield Block(offset, rest, is_tail=True)


def _after_line(file: _Patient | _Chain, start: int, length: int) -> tuple[int, _Chain] | None:
    """What follows a line that begins at `start` and of which `length` bytes were read, with its offset."""
    while chunk := file.read(BLOCK_BYTES):
        place = chunk.find(b"\n") + 1
        if place:
            return start + length + place, _Chain(io.BytesIO(chunk[place:]), file)
        length += len(chunk)
        _MOST_OF_A_LINE.check(length)
    return None


class _Chain:
    """Two files as one."""

    def __init__(self, *files: BinaryIO | _Patient | _Chain) -> None:
        self.files = list(files)

    def read(self, size: int) -> bytes:
        """The next bytes; empty at the end of the last file."""
        while self.files:
            found = self.files[0].read(size)
            if found:
                return found
            self.files.pop(0)
        return b""


def lines(block: Block) -> Iterator[tuple[int, bytes]]:
    """The lines of a block with their offsets, without line ends."""
    place = 0
    content = block.content
    while place < len(content):
        end = content.find(b"\n", place)
        if end < 0:
            end = len(content)
        yield block.offset + place, content[place:end].removesuffix(b"\r")
        place = end + 1


def lines_at(path: Path, offsets: Iterable[int]) -> dict[int, tuple[int, str]]:
    """The line, from 1, that begins at each offset of the uncompressed text, with its first characters.

    Of a compressed file that ends early, those that can be read.
    """
    found: dict[int, tuple[int, str]] = {}
    number, place = 1, 0
    pending = iter(sorted(set(offsets)))
    target = next(pending, None)
    with opened(path) as stream, contextlib.suppress(SourceError, *_DAMAGED):
        file = _Patient(stream)
        while target is not None and (chunk := file.read(BLOCK_BYTES)):
            seen = 0
            while target is not None and target < place + len(chunk):
                number += chunk.count(b"\n", seen, target - place)
                seen = target - place
                start = chunk[seen : seen + _SHOWN_BYTES].partition(b"\n")[0]
                found[target] = (number, start.decode("utf-8", errors="replace"))
                target = next(pending, None)
            number += chunk.count(b"\n", seen)
            place += len(chunk)
    return found


def _damage(error: Exception) -> Exception:
    """What to raise: an error of the storage as it is, damage of the compressed data in words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    if isinstance(error, EOFError):
        return SourceError("the compressed data end early", "copy the file again, or keep what was read")
    return SourceError(f"the compressed data are damaged: {words_of(error)}", "copy the file again")
