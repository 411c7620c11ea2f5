"""Reads the documents in a small archive, as far as a search needs them to name the archive."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

from trainspec_validate.pipeline.files import is_document_name
from trainspec_validate.system.boundary import open_regular

ENDINGS: Final = (".zip", ".tar", ".tgz", ".tar.gz")
_MOST_BYTES: Final = 4 * 1024**2
"""Size of the largest archive that is looked at."""
_MOST_UNPACKED: Final = 32 * 1024**2
_MOST_BYTES_OF_ONE: Final = 1024**2
_MOST_DOCUMENTS: Final = 100
_MOST_ENTRIES: Final = 10_000
_DAMAGE: Final = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError, KeyError),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error),
)
"""What the readers of the standard library raise for an archive that is damaged, encrypted or of an unknown kind."""


def documents_in(path: Path) -> list[tuple[str, bytes]]:
    """Names and contents of the YAML and JSON files in an archive; nothing where it is large or cannot be read."""
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            return []
        found = _zipped(content) if zipfile.is_zipfile(io.BytesIO(content)) else _tarred(content)
        return list(islice(found, _MOST_DOCUMENTS))
    except _DAMAGE:
        return []


def _zipped(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in islice(archive.infolist(), _MOST_ENTRIES):
            if _may_be_document(entry.filename):
                with archive.open(entry) as file:
                    yield entry.filename, file.read(_MOST_BYTES_OF_ONE)


def _tarred(content: bytes) -> Iterator[tuple[str, bytes]]:
    if content.startswith(b"\x1f\x8b"):
        with gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(_MOST_UNPACKED)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for entry in islice(archive, _MOST_ENTRIES):
            file = archive.extractfile(entry) if entry.isreg() and _may_be_document(entry.name) else None
            if file is not None:
                yield entry.name, file.read(_MOST_BYTES_OF_ONE)


def _may_be_document(name: str) -> bool:
    return is_document_name(PurePath(name).name)
