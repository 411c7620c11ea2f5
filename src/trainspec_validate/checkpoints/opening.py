"""The only place that opens files of checkpoints: regular ones, never through a link, and no more than a limit."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MAX_JSON_BYTES = 100_000_000
"""The limit that safetensors sets for its header; https://github.com/huggingface/safetensors."""
MAX_JSON_DEPTH = 64
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class UnreadableError(Exception):
    """A file cannot be taken for what its name says; the text says why."""


class LimitError(UnreadableError):
    """A file asks for more than a reader gives."""


def open_file(path: Path) -> BinaryIO:
    """A regular file for reading.

    Raises:
        OSError: it cannot be opened, is a link, or is no regular file.
    """
    if not stat.S_ISREG(path.lstat().st_mode):  # Opening a pipe or a device already has effects
        raise OSError(f"{path.as_posix()}: not a regular file")
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.as_posix()}: not a regular file")
    return os.fdopen(descriptor, "rb")


def open_past_memory(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The same file for reads that leave out the memory of the system; None where the system has no such reads.

    Args:
        path: where the file was opened.
        file: the file as it was opened; another one that is there by now is not opened.
    """
    if not hasattr(os, "O_DIRECT") or not hasattr(os, "RWF_NOWAIT"):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | _NO_FOLLOW)
    except OSError:
        return None
    if not os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno())):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def read_small(path: Path, limit: int = MAX_JSON_BYTES) -> bytes:
    """The whole of a file of metadata.

    Raises:
        LimitError: it is larger than the limit.
        UnreadableError: it cannot be read.
    """
    try:
        with open_file(path) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > limit:
        raise LimitError(f"holds more than {limit:,} bytes")
    return content


def read_json(content: bytes) -> Any:
    """The value of a JSON text; keys are unique and values nest no deeper than the limit.

    Raises:
        LimitError: it nests deeper.
        UnreadableError: it is no such text.
    """
    try:
        value = json.loads(content, object_pairs_hook=_unique)
    except RecursionError as error:
        raise LimitError(f"nests deeper than {MAX_JSON_DEPTH} levels") from error
    except ValueError as error:
        raise UnreadableError(f"is no JSON: {error}") from error
    if _is_deeper(value, MAX_JSON_DEPTH):
        raise LimitError(f"nests deeper than {MAX_JSON_DEPTH} levels")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice")
    return found


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
