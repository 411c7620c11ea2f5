"""Reads the documents in compressed files and small archives, as far as a search needs them to name the file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.pipeline.claims import is_document
from trainspec_validate.pipeline.files import is_document_name
from trainspec_validate.system.boundary import open_regular

_MOST_BYTES: Final = 4 * 1024**2
"""Size of the largest archive that is looked at."""
_MOST_UNPACKED: Final = 32 * 1024**2
_MOST_BYTES_OF_ONE: Final = 1024**2
_MOST_DOCUMENTS: Final = 100
_MOST_ENTRIES: Final = 10_000
_START_BYTES: Final = 262_144
_MOST_MEMORY_BYTES: Final = 128 * 1024**2
_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0"
_LZMA, _ZIP, _ZIP_END, _ZIP64 = b"\x5d\0\0", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07"
_MOST_END_BYTES: Final = 65_535 + 42
"""Bytes from the locator of a large container to the end of the longest comment."""
_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError, KeyError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
)
"""What the readers of the standard library raise for an archive that is damaged, encrypted or of an unknown kind."""


def documents_in(path: Path) -> list[tuple[str, bytes]] | None:
    """Names and contents of the YAML and JSON files in an archive.

    None where it is large, damaged, encrypted or in no format that is read.
    """
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            return None
        found = _zipped(io.BytesIO(content)) if zipfile.is_zipfile(io.BytesIO(content)) else _tarred(content, path.name)
        return list(islice(found, _MOST_DOCUMENTS))
    except _DAMAGE:
        return None


def unpacked_text(path: Path) -> bytes | None:
    """The text in a compressed file, up to the size of a document; None where it is damaged or cannot be unpacked.

    Of content that is no text in UTF-8 nothing is unpacked but its start.
    """
    from trainspec_validate.telemetry.formats.source import SourceError, head_of, pieces_of  # noqa: PLC0415 - start-up

    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES_OF_ONE)
        if content.startswith((_GZIP, _ZSTD)):
            start = head_of(path)
            is_longer = len(start) >= _START_BYTES and b"\0" not in start
            return b"".join(pieces_of(path, MAX_BYTES)) if is_longer else start
        start = _unpacked(content, path.name, _START_BYTES)
        is_longer = len(start) == _START_BYTES
        start.decode("utf-8", "replace" if is_longer else "strict")
        if b"\0" in start or (content and not start):
            return None
        return _unpacked(content, path.name, MAX_BYTES) if is_longer else start
    except (SourceError, *_DAMAGE):
        return None


def packed_documents(path: Path) -> list[tuple[str, bytes]] | None:
    """The documents of ours in a file that begins as a compressed file or an archive does, whatever its name is.

    The name is empty for the content of a compressed file. The list is empty for files of other programs, such as those
    of offices and packages. None for what is not packed, or is damaged.
    """
    try:
        with open_regular(path) as file:
            start = file.read(len(_XZ))
            if start.startswith(_ZIP):
                found = islice(_zipped(file) if _has_small_directory(file) else (), _MOST_DOCUMENTS)
                return [(name, content) for name, content in found if is_document(content)]
    except _DAMAGE:
        return None
    text = unpacked_text(path) if start.startswith((_GZIP, _ZSTD, _BZIP2, _XZ, _LZMA)) else None
    return None if text is None else [("", text)] if is_document(text) else []


def _has_small_directory(file: BinaryIO) -> bool:
    """Whether the list of entries at the end of a zip container is short enough to be read."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _MOST_END_BYTES))
    tail = file.read(_MOST_END_BYTES)
    place = tail.rfind(_ZIP_END)
    return place >= 0 and _ZIP64 not in tail and int.from_bytes(tail[place + 12 : place + 16], "little") <= _MOST_BYTES


def _unpacked(content: bytes, name: str, most_bytes: int) -> bytes:
    """Content without the compression of bzip2 or xz, up to a size; what has neither as it is."""
    if content.startswith(_BZIP2):
        return bz2.BZ2Decompressor().decompress(content, most_bytes)
    if content.startswith((_XZ, _LZMA)) or name.lower().endswith((".lzma", ".tlz")):
        return lzma.LZMADecompressor(memlimit=_MOST_MEMORY_BYTES).decompress(content, most_bytes)
    return content[:most_bytes]


def _zipped(content: BinaryIO) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(content) as archive:
        for entry in islice(archive.infolist(), _MOST_ENTRIES):
            if _may_be_document(entry.filename):
                with archive.open(entry) as file:
                    yield entry.filename, file.read(_MOST_BYTES_OF_ONE)


def _tarred(content: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    if content.startswith(_GZIP):
        with gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(_MOST_UNPACKED)
    else:
        content = _unpacked(content, name, _MOST_UNPACKED)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for entry in islice(archive, _MOST_ENTRIES):
            file = archive.extractfile(entry) if entry.isreg() and _may_be_document(entry.name) else None
            if file is not None:
                yield entry.name, file.read(_MOST_BYTES_OF_ONE)


def _may_be_document(name: str) -> bool:
    return is_document_name(PurePath(name).name)
