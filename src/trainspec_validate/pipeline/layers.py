"""Takes compression off, layer by layer, and reads the text below in pieces, within a budget of bytes."""

from __future__ import annotations

import bz2
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
_MOST_PACKED: Final = 1024**2
"""Compressed bytes that are read of a text which is longer than a document."""
_MOST_UNPACKED: Final = 64 * 1024**2
_MOST_SKIPPED: Final = 64 * 1024**2
_MOST_FRAMES: Final = 1_000
_MOST_MEMORY_BYTES: Final = 128 * 1024**2
_KEPT_BYTES: Final = 65_536
"""Bytes of a piece that are looked at once more with the next."""
_WIDE: Final = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


class TooDeepError(ValueError):
    """There are more layers of compression than are followed."""


@dataclass(frozen=True, slots=True)
class Layered:
    """The content below the layers of compression of a file."""

    start: bytes
    """First bytes of the content."""
    stream: BinaryIO
    num_layers: int


@dataclass(frozen=True, slots=True)
class Content:
    """What was read of an unpacked content."""

    text: bytes
    """The text in UTF-8 from its start, or from where a document begins far behind it."""
    is_whole: bool
    """Whether it is all there is, or has a document."""


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
    """All streams of bzip2 or xz in a file, one after the other, with zeros between them."""

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


def innermost(stream: BinaryIO, name: str = "", level: int = 0) -> Layered:
    """The content below the layers of compression.

    Raises:
        OverLimitError: the run has unpacked too much, here or where the stream is read.
        TooDeepError: there are more layers than are followed.
        SourceError: a layer is damaged from its start, or cannot be read here.
    """
    while True:
        start = _after_skipped(stream)
        whole = cast("BinaryIO", io.BufferedReader(_Again(start, stream)))
        inner = _unpacked(start, whole, name if not level else "")
        if inner is None:
            return Layered(start, whole, level)
        if level == MOST_LAYERS:
            raise TooDeepError
        stream, level = inner, level + 1


def _after_skipped(stream: BinaryIO) -> bytes:
    """First bytes of a stream behind the frames of zstd that have no content."""
    start = stream.read(_MARK_BYTES)
    left = _MOST_SKIPPED
    for _ in range(_MOST_FRAMES):
        size = int.from_bytes(start[4:], "little")
        if not _SKIPPED_FRAME.match(start) or size > left:
            break
        left -= size
        while size > 0 and (piece := stream.read(min(size, _PIECE_BYTES))):
            size -= len(piece)
            unpacked.count(len(piece))
        start = stream.read(_MARK_BYTES)
    return start


def _unpacked(start: bytes, stream: BinaryIO, name: str) -> BinaryIO | None:
    """A stream without its outermost compression; None where it has none."""
    from trainspec_validate.telemetry.formats.source import uncompressed  # noqa: PLC0415 - start-up

    if start.startswith((_GZIP, _ZSTD)):
        return uncompressed(stream)
    if start.startswith(_BZIP2):
        return _members(stream, bz2.BZ2Decompressor)
    if start.startswith((_XZ, _LZMA)) or name.lower().endswith((".lzma", ".tlz")):
        return _members(stream, lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY_BYTES))
    if start.startswith(_ZLIB):
        return io.BytesIO(zlib.decompressobj().decompress(stream.read(_MOST_PACKED), MAX_BYTES))
    return None


def _members(stream: BinaryIO, new: Callable[[], Any]) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Members(stream, new), _KEPT_BYTES))


def is_skipped_frame(start: bytes) -> bool:
    """Whether content begins with a frame of zstd that is skipped."""
    return _SKIPPED_FRAME.match(start) is not None


def is_stored(start: bytes) -> bool:
    """Whether content begins as an archive whose files are not compressed does."""
    return start.startswith(_STORED)


def read_content(stream: BinaryIO, packed: BinaryIO) -> Content:
    """The text of a stream, or the start of what is no text; `packed` is the file that it is unpacked from.

    What is longer than a document is searched for one, as long as little of the file was read.
    """
    from trainspec_validate.telemetry.formats.source import pieces_in  # noqa: PLC0415 - start-up

    pieces = pieces_in(stream, _PIECE_BYTES)
    start = next(pieces, b"")
    if not may_be_text(start):
        return Content(_in_utf8(start), is_whole=True)
    text, num_bytes, kept = [start], len(start), b""
    for piece in pieces:
        num_bytes += len(piece)
        if num_bytes <= MAX_BYTES:
            text.append(piece)
            continue
        kept = (kept or text[-1][-_KEPT_BYTES:]) + piece
        if found := document_within(kept.replace(b"\0", b"")):
            return Content(found, is_whole=True)
        kept = kept[-_KEPT_BYTES:]
        if num_bytes > _MOST_UNPACKED or packed.tell() > _MOST_PACKED:
            return Content(_in_utf8(b"".join(text)), is_whole=False)
    return Content(_in_utf8(b"".join(text)), is_whole=True)


def _in_utf8(text: bytes) -> bytes:
    """A text with two or four bytes for a letter in UTF-8; anything else as it is."""
    code = next((code for mark, code in _WIDE.items() if text.startswith(mark)), "")
    if code:
        return text.decode(code, "replace").encode("utf-8", "replace")
    return text.replace(b"\0", b"") if b"\0" in text[:_KEPT_BYTES] and may_be_text(text) else text
