"""Decides which paths, written in a file of a checkpoint, may be joined to its directory."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_CHARACTERS = 4096
"""Of the schema of manifests."""
_DRIVE = re.compile(r"^[A-Za-z]:")


def fault(path: str) -> str:
    """What keeps a path from being one of a file below the directory; empty where nothing does."""
    if "\0" in path or "\\" in path:
        return "holds a backslash or a NUL"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if ".." in path.split("/"):
        return "leads out with .."
    if not path or any(part in {"", "."} for part in path.split("/")):
        return "is not normalised"
    return ""


def unwritable(path: str) -> str:
    """What keeps a path from being written into a manifest; empty where nothing does."""
    if len(path) > MAX_CHARACTERS:
        return f"has more than {MAX_CHARACTERS:,} characters"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "is no UTF-8"
    return ""


def above(path: str) -> Iterator[str]:
    """The directories that a path leads through."""
    while path := path.rpartition("/")[0]:
        yield path


def folded_twins(paths: list[str]) -> list[tuple[str, str]]:
    """Pairs of paths that are one on a file system that ignores case."""
    first: dict[str, str] = {}
    found = []
    for path in paths:
        other = first.setdefault(path.casefold(), path)
        if other != path:
            found.append((other, path))
    return found
