"""Recognizes the links of the cache of huggingface_hub, whose files have digests for names.

A snapshot is a directory of links, each to a file of the directory `blobs` of the same cache:
https://huggingface.co/docs/huggingface_hub/guides/manage-cache. Such a link is read as the file that it leads to. Every
other link that leads out of a checkpoint is followed by no reader.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

SNAPSHOTS: Final = "snapshots"
_BLOBS: Final = "blobs"
_DIGEST: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""SHA-1 as Git writes it, of small files; SHA-256 of the content, of files in large file storage."""
_SHA256_CHARACTERS: Final = 64


def blob_of(path: Path) -> Path | None:
    """The file of a cache that a link of one of its snapshots leads to; None for any other link or file."""
    place = os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links
    base, found, below = place.rpartition(f"{os.sep}{SNAPSHOTS}{os.sep}")
    if not found or os.sep not in below:  # a file is below the directory of a revision
        return None
    try:
        blob = os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place)))  # noqa: PTH115, PTH118, PTH120
        folder, name = os.path.split(blob)
        if folder != os.path.join(base, _BLOBS) or _DIGEST.fullmatch(name) is None:  # noqa: PTH118
            return None
        is_blob = stat.S_ISDIR(os.lstat(folder).st_mode) and stat.S_ISREG(os.lstat(blob).st_mode)
    except (OSError, ValueError):
        return None
    return Path(blob) if is_blob else None


def sha256_of(target: str) -> str:
    """The SHA-256 that the target of a link of a cache states of the content; empty where it states none.

    >>> sha256_of("../../blobs/" + "0" * 64) == "0" * 64, sha256_of("../../blobs/" + "0" * 40)
    (True, '')
    """
    name = target.replace("\\", "/").rpartition("/")[2]
    return name if len(name) == _SHA256_CHARACTERS else ""
