"""Identifies the content of a file that was not judged, so that a baseline entry holds for this content alone."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Final

from trainspec_validate.system.boundary import open_regular

_START_BYTES: Final = 16 * 1024**2
_END_BYTES: Final = 1024**2
"""Of a larger file, its size, its start and its end count."""


def digest_of(path: str | os.PathLike[str]) -> str:
    """A digest of a file, of the target of a link or of an empty directory; empty for what has none.

    >>> digest_of("no such file")
    ''
    """
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return _text("link", os.fsencode(os.readlink(path)))  # noqa: PTH115 - as it is written
        if stat.S_ISDIR(state.st_mode):
            return _text("directory") if not _has_entries(path) else ""
        if not stat.S_ISREG(state.st_mode):
            return ""
        with open_regular(Path(path)) as file:
            pieces = [file.read(_START_BYTES)]
            if state.st_size > _START_BYTES:
                file.seek(max(_START_BYTES, state.st_size - _END_BYTES))
                pieces.append(file.read(_END_BYTES))
    except (OSError, ValueError):
        return ""
    return _text(f"file {state.st_size}", *pieces)


def _has_entries(path: str | os.PathLike[str]) -> bool:
    with os.scandir(path) as entries:
        return any(entry.name != ".git" for entry in entries)


def _text(kind: str, *pieces: bytes) -> str:
    digest = sha256(f"{kind}\n".encode())
    for piece in pieces:
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"
