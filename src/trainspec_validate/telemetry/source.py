"""Reads the bytes of streams: whole lines in blocks, out of plain and compressed files."""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainspec_validate.boundary import open_regular, words_of
from trainspec_validate.streams.source import MOST_OF_A_LINE, SourceError, uncompressed
from trainspec_validate.telemetry.lines import MAX_LINE_BYTES

BLOCK_BYTES = 8_000_000
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PARQUET = b"PAR1"
_SHOWN_BYTES = 4_000
_DAMAGED = (OSError, EOFError, zlib.error)
"""What damaged content raises, as does storage, which `_damage` tells apart."""
_SKIPPED_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, or its last line without an end."""

    offset: int
    """Of the first byte, in the uncompressed text."""
    content: bytes
    is_tail: bool = False
    """Whether it is the last line, and the line end is missing."""


def first_bytes(path: Path, number: int = 4_096) -> bytes:
    """The start of the uncompressed content.

    Raises:
        SourceError: its compressed content is damaged.
        OSError: the file cannot be read.
    """
    try:
        with open_file(path) as file:
            return _Patient(file).read(number)
    except _DAMAGED as error:
        raise _damage(error) from error


def is_compressed(path: Path) -> bool:
    """Whether the file is gzip or zstd, by its first bytes."""
    with open_regular(path) as file:
        start = file.read(4)
    return start.startswith((_GZIP, _ZSTD))


def open_file(path: Path) -> IO[bytes]:
    """The uncompressed content of a file.

    Raises:
        SourceError: the file is zstd and the library for it is not installed.
        OSError: the file cannot be opened.
    """
    return uncompressed(open_regular(path)) if is_compressed(path) else open_regular(path)


def blocks(path: Path, start: int = 0, end: int | None = None, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Whole lines from those that begin at or after `start` up to the one that begins before `end`.

    Raises:
        SourceError: its compressed content is damaged.
        OSError: the file cannot be read.
    """
    try:
        with open_file(path) as file:
            offset = start - 1 + _skip_line(file, start - 1) if start else 0
            yield from _blocks(_Patient(file), offset, end, size)
    except _DAMAGED as error:
        raise _damage(error) from error


def _skip_line(file: IO[bytes], start: int) -> int:
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


def _blocks(file: _Patient | _Chain, offset: int, end: int | None, size: int) -> Iterator[Block]:
    rest = b""
    while end is None or offset < end:
        chunk = file.read(size)
        if not chunk:
            break
        cut = chunk.rfind(b"\n") + 1
        if cut == 0:
            rest += chunk
            if len(rest) > 8 * MAX_LINE_BYTES:
                yield from _overlong(file, Block(offset, rest[: MAX_LINE_BYTES + 1] + b"\n"), len(rest), end)
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


def _overlong(file: _Patient | _Chain, start: Block, length: int, end: int | None) -> Iterator[Block]:
    """A line beyond all limits, told by its start; what follows the `length` bytes of it is read on."""
    yield start
    offset = start.offset + length
    while chunk := file.read(BLOCK_BYTES):
        place = chunk.find(b"\n") + 1
        if place:
            rest = _Chain(io.BytesIO(chunk[place:]), file)
            yield from _blocks(rest, offset + place, end, BLOCK_BYTES)
            return
        offset += len(chunk)
        MOST_OF_A_LINE.check(offset - start.offset)


class _Chain:
    """Two files as one."""

    def __init__(self, *files: IO[bytes] | _Patient | _Chain) -> None:
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
    wanted = sorted(set(offsets))
    found: dict[int, tuple[int, str]] = {}
    number, place = 1, 0
    pending = iter(wanted)
    target = next(pending, None)
    with open_file(path) as opened, contextlib.suppress(SourceError, *_DAMAGED):
        file = _Patient(opened)
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
    """What to raise: an error of the storage as it is, damage of the compressed content in words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return SourceError(f"the compressed content is damaged: {words_of(error)}")
