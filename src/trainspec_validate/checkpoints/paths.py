"""Decides which paths, written in a file of a checkpoint, may be joined to its directory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from unicodedata import normalize

MAX_CHARACTERS = 4096
"""Of the schema of manifests."""
_DRIVE = re.compile(r"^[A-Za-z]:")


def fault(path: str) -> str:
    """Reason why a path cannot be one of a file below the directory; empty where there is none."""
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
    """Reason why a path cannot be written into a manifest; empty where there is none."""
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


def folded_twins(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of paths, of files or of the directories above them, that are one on some file systems.

    Such file systems ignore case, or the way in which Unicode composes a letter (NFC or NFD).

    >>> folded_twins(["a/b", "A/c"])
    [('a', 'A')]
    >>> folded_twins(["\u00e9", "e\u0301"]) != []
    True
    """
    first: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for path in {part: None for one in paths for part in (*reversed([*above(one)]), one)}:
        other = first.setdefault(_folded(path), path)
        if other != path and (not found or not path.startswith(f"{found[-1][1]}/")):
            found.append((other, path))
    return found


def _folded(path: str) -> str:
    return normalize("NFD", normalize("NFD", path).casefold())


def shown_twins(first: str, second: str) -> tuple[str, str, str]:
    """Two paths as they can be distinguished in print, and in what they differ."""
    if normalize("NFC", first) == normalize("NFC", second):
        return ascii(first), ascii(second), "in the Unicode form (NFC, NFD) only"
    return repr(first), repr(second), "in case only"
