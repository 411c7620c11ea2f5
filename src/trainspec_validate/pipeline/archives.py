"""Reads the documents in compressed files and small archives, as far as a search needs them to name the file."""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO, Final, cast

from trainspec_validate.pipeline import unpacked
from trainspec_validate.pipeline.claims import claims, document_within, is_document
from trainspec_validate.pipeline.files import QUOTING_SUFFIXES, is_document_name, may_be_renamed
from trainspec_validate.pipeline.layers import (
    MOST_LAYERS,
    PACKED,
    ZIP,
    Layered,
    NotFollowedError,
    TooDeepError,
    again,
    innermost,
    is_skipped_frame,
    is_stored,
    read_content,
)
from trainspec_validate.pipeline.unpacked import SEARCH
from trainspec_validate.system.boundary import open_regular
from trainspec_validate.system.budget import Limit, OverLimitError, check_time
from trainspec_validate.system.packings import is_archive, unpacked_name

_MOST_BYTES: Final = 4 * 1024**2
"""Size of the largest archive that is looked at."""
_MOST_UNPACKED: Final = 32 * 1024**2
_MOST_NESTED: Final = Limit(SEARCH, 32 * 1024**2, "bytes of a container in a compressed file or in another container")
_MOST_DIRECTORY: Final = Limit(SEARCH, 4 * 1024**2, "bytes of the directory of a zip container")
_MOST_DOCUMENTS: Final = 100
_MOST_ENTRIES: Final = 10_000
_START_BYTES: Final = 262_144
_START_OF_FILE: Final = 8
_TAR, _TAR_PLACE = b"ustar", 257
_ZIP_END, _ZIP64 = b"PK\x05\x06", b"PK\x06\x06"
_IN_LARGE: Final = 2**32 - 1
"""What the end of a zip container has in place of a size that another record states."""
_MOST_END_BYTES: Final = 65_535 + 98
"""Bytes from the end record of a large container to the end of the longest comment."""
_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError, KeyError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
)
"""What the readers of the standard library raise for an archive that is damaged, encrypted or of an unknown kind."""


@unpacked.once
def documents_in(path: Path) -> list[tuple[str, bytes]] | None:
    """Names and contents of the YAML and JSON files in an archive, unpacked where they are compressed by themselves.

    None where it is large, damaged, encrypted or in no format that is read.
    """
    from trainspec_validate.telemetry.formats.source import SourceError  # noqa: PLC0415 - start-up

    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            return None
        unpacked.begin_file(len(content))
        found = _zipped(io.BytesIO(content)) if zipfile.is_zipfile(io.BytesIO(content)) else _tarred(content, path.name)
        return list(islice((document for entry in found for document in _plain(*entry)), _MOST_DOCUMENTS))
    except (SourceError, OverLimitError, *_DAMAGE):
        return None


def _plain(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """An entry of an archive, or the documents of ours in one that is compressed."""
    return _documents(name, content) if content.startswith((ZIP, *PACKED)) else iter([(name, content)])


@unpacked.once
def unpacked_text(path: Path) -> bytes | None:
    """The text of ours in a compressed file, up to the size of a document; None where it cannot be unpacked to its end.

    It is empty where it does not claim to be ours.

    Raises:
        OverLimitError: there is more than is unpacked.
        NotFollowedError: it is compressed in a way that is not followed.
    """
    from trainspec_validate.telemetry.formats.source import SourceError  # noqa: PLC0415 - start-up

    try:
        with open_regular(path) as file:
            unpacked.begin_file(path.stat().st_size)
            below = innermost(file, path.name)
            if below.start.startswith(ZIP) and below.num_layers:
                return next((content for _, content in _packed_in(below)), b"")
            text = read_content(below.stream)
        if not text and path.stat().st_size:
            return None
        if not below.num_layers:
            text[:_START_BYTES].decode("utf-8", "replace" if len(text) > _START_BYTES else "strict")
            return None if b"\0" in text else text
        return text if claims(text) else b""
    except NotFollowedError:
        raise
    except (SourceError, *_DAMAGE):
        return None


@unpacked.once
def packed_documents(path: Path) -> list[tuple[str, bytes]] | None:
    """The documents of ours in a file that begins as a compressed file or an archive does, whatever its name is.

    The name is empty for the content of a compressed file. The list is empty for files of other programs, such as those
    of offices and packages. None for what is not packed, or is damaged.

    Raises:
        OverLimitError: there is more than is unpacked.
        NotFollowedError: it is compressed in a way that is not followed.
    """
    from trainspec_validate.telemetry.formats.source import SourceError  # noqa: PLC0415 - start-up

    try:
        with open_regular(path) as file:
            start = file.read(_START_OF_FILE)
            is_packed = start.startswith((ZIP, *PACKED)) or is_skipped_frame(start) or is_stored(start)
            if not is_packed and not _has_directory(file):
                return None
            file.seek(0)
            unpacked.begin_file(path.stat().st_size)
            if is_packed and not start.startswith(ZIP):
                quotes = PurePath(unpacked_name(path.name)).suffix.lower() in QUOTING_SUFFIXES
                return list(islice(_packed_in(innermost(file), quotes=quotes), _MOST_DOCUMENTS))
            entries = _zipped(file) if _has_directory(file) else ()
            found = islice((document for entry in entries for document in _documents(*entry)), _MOST_DOCUMENTS)
            return list(found) if is_packed else list(found) or None
    except NotFollowedError:
        raise
    except (SourceError, *_DAMAGE):
        return None


def _packed_in(below: Layered, *, quotes: bool = False) -> Iterator[tuple[str, bytes]]:
    """The documents of ours in the content below the compression of a file or an entry.

    A text that may quote documents, such as a page or a program, is one where the whole of it is.
    """
    if below.start.startswith(ZIP):
        inner = below.stream.read(int(_MOST_NESTED.most) + 1)
        _MOST_NESTED.check(len(inner))
        for name, content in _zipped(io.BytesIO(inner)):
            yield from _documents(name, content, below.num_layers + 1)
        return
    text = read_content(below.stream)
    whole = text.strip()
    found = whole if not is_stored(below.start) and is_document(whole) else b"" if quotes else document_within(text)
    if found:
        yield "", found


def _documents(name: str, content: bytes, level: int = 1) -> Iterator[tuple[str, bytes]]:
    """The document of ours in an entry of an archive, which can be compressed or an archive by itself."""
    if content.startswith((ZIP, *PACKED)):
        if level >= MOST_LAYERS:
            raise TooDeepError
        file = io.BytesIO(content)
        yield from ((name, found) for _, found in _packed_in(innermost(file, "", level)))
    elif content.startswith(_TAR, _TAR_PLACE):
        found = document_within(content)
        yield from [(name, found)] if found else []
    elif is_document(content):
        yield name, content


def _has_directory(file: BinaryIO) -> bool:
    """Whether a zip container ends here, with a list of its entries.

    Raises:
        OverLimitError: the list is too long to be read.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _MOST_END_BYTES))
    tail = file.read(_MOST_END_BYTES)
    place, large = tail.rfind(_ZIP_END), tail.rfind(_ZIP64)
    if place < 0:
        return False
    for start, length in ((place + 12, 4), *(((large + 40, 8),) if large >= 0 else ())):
        stated = int.from_bytes(tail[start : start + length], "little")
        if length == 8 or stated != _IN_LARGE or large < 0:
            _MOST_DIRECTORY.check(stated)
    return True


def _zipped(content: BinaryIO) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(content) as archive:
        for entry in archive.infolist():
            if _may_be_document(entry.filename):
                with archive.open(entry) as file:
                    yield entry.filename, _content_of(cast("BinaryIO", file))


def _content_of(entry: BinaryIO) -> bytes:
    """The text of an entry of an archive, or all of one that is packed by itself."""
    check_time()
    start = entry.read(_START_OF_FILE)
    whole = again(start, entry)
    if not start.startswith((ZIP, *PACKED)):
        return read_content(whole)
    content = whole.read(int(_MOST_NESTED.most) + 1)
    _MOST_NESTED.check(len(content))
    return content


def _tarred(content: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    content = innermost(io.BytesIO(content), name).stream.read(_MOST_UNPACKED)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for number, entry in enumerate(archive):
            if number == _MOST_ENTRIES:
                raise ValueError("there are too many entries")
            file = archive.extractfile(entry) if entry.isreg() and _may_be_document(entry.name) else None
            if file is not None:
                yield entry.name, _content_of(cast("BinaryIO", file))


def _may_be_document(name: str) -> bool:
    name = unpacked_name(PurePath(name).name)
    return is_document_name(name) or may_be_renamed(name) or is_archive(name)
