"""Takes compression off, layer by layer, and reads the text below in pieces, within a budget of bytes."""

from __future__ import annotations

import bz2
import importlib.util
import io
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.pipeline import unpacked
from trainspec_validate.pipeline.claims import document_within, may_be_text
from trainspec_validate.pipeline.unpacked import SEARCH
from trainspec_validate.system.budget import Count, Limit, check_time

ZIP: Final = b"PK\x03\x04"
MOST_LAYERS: Final = 3
_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0"
_LZMA, _ZLIB = b"\x5d\0\0", (b"x\x01", b"x\x9c", b"x\xda")
_SKIPPED_FRAME: Final = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
"""How a frame of zstd without content begins; RFC 8878, section 3.1.2."""
_STORED: Final = (b"!<arch>\n", b"070701", b"070702", b"070707")
"""How archives of ar and cpio begin, which hold their files as they are."""
PACKED: Final = (_GZIP, _ZSTD, _BZIP2, _XZ, _LZMA, *_ZLIB)
_MARK_BYTES: Final = 8
_PIECE_BYTES: Final = 1024**2
_MOST_SKIPPED: Final = Limit(SEARCH, 64 * 1024**2, "bytes of frames without content before a text")
_MOST_FRAMES: Final = Limit(SEARCH, 1_000, "frames without content before a text")
_ZSTD_HEAD_BYTES: Final = 21
"""Bytes of the longest header of a frame, and of the header of the first block behind it."""
_NO_BLOCK, _MOST_BLOCK_BYTES = 3, 128 * 1024
_MOST_WINDOW: Final = Limit(SEARCH, 128 * 1024**2, "bytes in the window of a frame of zstd")
_MOST_MEMORY_BYTES: Final = 128 * 1024**2
_KEPT_BYTES: Final = 65_536
"""Bytes of a piece that are looked at once more with the next."""
_WIDE: Final = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


class NotFollowedError(ValueError):
    """Content is compressed in a way that is not followed here."""


class TooDeepError(NotFollowedError):
    """There are more layers of compression than are followed."""


class NoReaderError(NotFollowedError):
    """The library that reads a compression is not installed."""


@dataclass(frozen=True, slots=True)
class Layered:
    """The content below the layers of compression of a file."""

    start: bytes
    """First bytes of the content."""
    stream: BinaryIO
    num_layers: int


class _Again(io.RawIOBase):
    """A stream from its start again, which gives all that comes before a damage."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start, self._rest = start, cast("io.BufferedReader", rest)

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, first with what was read before."""
        found = self._start or self._rest.read1(len(buffer))
        self._start = b""
        unpacked.count(len(found))
        buffer[: len(found)] = found
        return len(found)


class _Members(io.RawIOBase):
    """All streams of bzip2, xz or zlib in a file, one after the other, with zeros between them."""

    def __init__(self, source: BinaryIO, new: Callable[[], Any]) -> None:
        self._source, self._new, self._decoder = source, new, new()

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with uncompressed bytes."""
        found = b""
        while not found:
            rest = b""
            if self._decoder.eof:
                rest = self._decoder.unused_data.lstrip(b"\0")
                while not rest:
                    piece = self._source.read(_KEPT_BYTES)
                    if not piece:
                        return 0
                    rest = piece.lstrip(b"\0")
                self._decoder = self._new()
            elif self._decoder.needs_input:
                rest = self._source.read(_KEPT_BYTES)
                if not rest:
                    return 0
            try:
                found = self._decoder.decompress(rest, len(buffer))
            except lzma.LZMAError as error:
                raise OSError(str(error)) from None
        buffer[: len(found)] = found
        return len(found)


class _Zlib:
    """A decoder of zlib with the attributes of those of bzip2 and xz."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj()

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        """What is behind the end."""
        return self._decoder.unused_data

    @property
    def needs_input(self) -> bool:
        """Whether all that was given has been unpacked."""
        return not self._decoder.unconsumed_tail

    def decompress(self, packed: bytes, most: int) -> bytes:
        """The next bytes."""
        return self._decoder.decompress(self._decoder.unconsumed_tail + packed, most)


def again(start: bytes, rest: BinaryIO) -> BinaryIO:
    """A stream from its start again, of which some bytes were read; what is read of it is counted."""
    return cast("BinaryIO", io.BufferedReader(_Again(start, rest)))


def innermost(stream: BinaryIO, name: str = "", level: int = 0) -> Layered:
    """The content below the layers of compression.

    Raises:
        OverLimitError: there is more than is unpacked, here or where the stream is read.
        TooDeepError: there are more layers than are followed.
        SourceError: a layer is damaged from its start, or cannot be read here.
    """
    while True:
        check_time()
        start = _after_skipped(stream)
        whole = again(start, stream)
        inner = _unpacked(start, whole, name if not level else "")
        if inner is None:
            return Layered(start, whole, level)
        if level == MOST_LAYERS:
            raise TooDeepError
        stream, level = inner, level + 1


def _after_skipped(stream: BinaryIO) -> bytes:
    """First bytes of a stream behind the frames of zstd that have no content."""
    start = stream.read(_MARK_BYTES)
    num_frames, num_skipped = Count(_MOST_FRAMES), Count(_MOST_SKIPPED)
    while _SKIPPED_FRAME.match(start):
        size = int.from_bytes(start[4:], "little")
        num_frames.add(1)
        while size > 0 and (piece := stream.read(min(size, _PIECE_BYTES))):
            size -= len(piece)
            num_skipped.add(len(piece))
            unpacked.count(len(piece))
        start = stream.read(_MARK_BYTES)
    return start


def _unpacked(start: bytes, stream: BinaryIO, name: str) -> BinaryIO | None:
    """A stream without its outermost compression; None where it has none."""
    from trainspec_validate.telemetry.formats.source import uncompressed  # noqa: PLC0415 - start-up

    if start.startswith(_ZSTD):
        head = stream.read(_ZSTD_HEAD_BYTES)
        _MOST_WINDOW.check(_window_bytes(head))
        if importlib.util.find_spec("zstandard") is None:
            raise NoReaderError
        return uncompressed(again(head, stream))
    if start.startswith(_GZIP):
        return uncompressed(stream)
    if start.startswith(_BZIP2):
        return _members(stream, bz2.BZ2Decompressor)
    if start.startswith((_XZ, _LZMA)) or name.lower().endswith((".lzma", ".tlz")):
        return _members(stream, lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY_BYTES))
    if start.startswith(_ZLIB):
        return _members(stream, _Zlib)
    return None


def _window_bytes(head: bytes) -> int:
    """The window of a frame of zstd that states one and begins with a block; RFC 8878, sections 3.1.1.1 and 3.1.1.2.

    It is 0 for a frame that has all in one segment, and for what is no frame.
    """
    if len(head) < _ZSTD_HEAD_BYTES or head[4] & 0b0010_1000:
        return 0
    place = 6 + (0, 1, 2, 4)[head[4] & 3] + (0, 2, 4, 8)[head[4] >> 6]
    block = int.from_bytes(head[place : place + 3], "little")
    if block >> 1 & 3 == _NO_BLOCK or block >> 3 > _MOST_BLOCK_BYTES:
        return 0
    base = 1 << 10 + (head[5] >> 3)
    return base + base // 8 * (head[5] & 7)


def _members(stream: BinaryIO, new: Callable[[], Any]) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Members(stream, new), _KEPT_BYTES))


def is_skipped_frame(start: bytes) -> bool:
    """Whether content begins with a frame of zstd that is skipped."""
    return _SKIPPED_FRAME.match(start) is not None


def is_stored(start: bytes) -> bool:
    """Whether content begins as an archive whose files are not compressed does."""
    return start.startswith(_STORED)


def read_content(stream: BinaryIO) -> bytes:
    """The text of a stream in UTF-8, up to the size of a document; the start alone of what is no text.

    A longer stream, or one that is no text, is searched for a document, which is returned from where it begins.

    Raises:
        OverLimitError: there is more of it than is searched.
    """
    from trainspec_validate.telemetry.formats.source import pieces_in  # noqa: PLC0415 - start-up

    pieces = pieces_in(stream, _PIECE_BYTES)
    start = next(pieces, b"")
    text, num_bytes, kept = [start], Count(unpacked.MOST_OF_ONE, len(start)), start[-_KEPT_BYTES:]
    most_kept = MAX_BYTES if may_be_text(start) else 0
    for piece in pieces:
        num_bytes.add(len(piece))
        if num_bytes.used <= most_kept:
            text.append(piece)
            kept = piece[-_KEPT_BYTES:]
            continue
        if num_bytes.used > MAX_BYTES:
            unpacked.count_far(len(piece))
        kept += piece
        if found := document_within(kept.translate(None, b"\0")):
            return found
        kept = kept[-_KEPT_BYTES:]
    return _in_utf8(b"".join(text))


def _in_utf8(text: bytes) -> bytes:
    """A text with two or four bytes for a letter in UTF-8; anything else as it is."""
    code = next((code for mark, code in _WIDE.items() if text.startswith(mark)), "")
    if code:
        return text.decode(code, "replace").encode("utf-8", "replace")
    return text.translate(None, b"\0") if b"\0" in text[:_KEPT_BYTES] and may_be_text(text) else text
