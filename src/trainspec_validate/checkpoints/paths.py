"""Decides which paths, written in a file of a checkpoint, may be joined to its directory."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
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


def leads_to_any(folder: str, paths: Sequence[str]) -> bool:
    """Whether one of some sorted paths is below a directory.

    >>> leads_to_any("a", ["a-b", "a/b"]), leads_to_any("a", ["a", "a-b"])
    (True, False)
    """
    place = bisect_left(paths, f"{folder}/")
    return place < len(paths) and paths[place].startswith(f"{folder}/")


def folded_twins(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of paths, of files or of the directories above them, that are one on some file systems.

    Such file systems ignore case, or the way in which Unicode composes a letter (NFC or NFD).

    >>> folded_twins(["a/b", "A/c"])
    [('a', 'A')]
    >>> folded_twins(["\u00e9", "e\u0301"]) != []
    True
    """
    found: dict[str, str] = {}
    # Paths that share folded names are next to each other then, as NUL comes before all of a name.
    in_order = sorted(dict.fromkeys(paths), key=lambda path: _folded(path).replace("/", "\0"))
    for one, other in pairwise(in_order):
        mine, theirs = one.split("/"), other.split("/")
        for number, (part, twin) in enumerate(zip(mine, theirs, strict=False), 1):
            if part != twin:
                if _folded(part) == _folded(twin):
                    found.setdefault("/".join(theirs[:number]), "/".join(mine[:number]))
                break
    return [(first, second) for second, first in found.items()]


def _folded(path: str) -> str:
    return normalize("NFD", normalize("NFD", path).casefold())


def shown_twins(first: str, second: str) -> tuple[str, str, str]:
    """Two paths as they can be distinguished in print, and in what they differ."""
    if normalize("NFC", first) == normalize("NFC", second):
        return ascii(first), ascii(second), "in the Unicode form (NFC, NFD) only"
    return repr(first), repr(second), "in case only"
