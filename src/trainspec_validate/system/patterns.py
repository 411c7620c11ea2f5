"""Matches names with patterns, and finds files by them, in time that grows with pattern times name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

WILDCARDS = frozenset("*?[")
_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|\[(?:![^\]/]+|[^\]/!][^\]/]*)\]|.", re.DOTALL)
_SET = re.compile(r"\[(?:![^\]/]+|[^\]/!][^\]/]*)\]")
_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class _Set:
    """`[abc]`, `[a-c]` and `[!a]`: one character of a name, never the one between directories."""

    body: str
    negated: bool

    def holds(self, char: str) -> bool:
        body, at, found = self.body, 0, False
        while at < len(body):
            is_range = body[at + 1 : at + 2] == "-" and at + 2 < len(body)
            found |= body[at] <= char <= body[at + 2] if is_range else body[at] == char
            at += 3 if is_range else 1
        return char != "/" and found is not self.negated


class Pattern:
    """`*` and `?` stay within a directory, `**/` crosses any number of them, `[...]` is a set.

    A name is read once, with the set of all places in the pattern that its start may have led to, one bit each.
    """

    def __init__(self, pattern: str) -> None:
        self._text = re.sub(r"\*{3,}", "**", re.sub(r"(?:\*\*/)+", "**/", pattern))
        plain = next((at for at, char in enumerate(self._text) if char in WILDCARDS), len(self._text))
        self._start = self._text[:plain]
        bare = _SET.sub("?", self._text)
        self._least = len(bare) - bare.count("*") - bare.count("/")
        """No shorter name fits, so that long patterns are rarely read as a whole."""
        self._places: _Places | None = None
        self.fits = lru_cache(_REMEMBERED)(self._fits)

    def _fits(self, name: str) -> bool:
        """Whether the whole name is one that the pattern means."""
        if len(name) < self._least or not name.startswith(self._start):
            return False
        self._places = self._places or _Places(self._text)
        return self._places.fit(name)


class _Places:
    """The places of a pattern, and where each character of a name leads from them."""

    def __init__(self, text: str) -> None:
        self._skipped = self._skipped_two = self._across = self._within = self._any = self._slash = 0
        self._chars: dict[str, int] = {}
        self._sets: list[tuple[int, _Set]] = []
        self._moves: dict[str, tuple[int, int]] = {}
        bit = 1
        for part in _PARTS.findall(text):
            if part == "**/":
                self._skipped |= bit  # to the place inside of it
                self._skipped_two |= bit
                bit <<= 1
                self._across |= bit
                self._slash |= bit
            elif part == "**":
                self._skipped |= bit
                self._across |= bit
            elif part == "*":
                self._skipped |= bit
                self._within |= bit
            elif part == "?":
                self._any |= bit
            elif len(part) > 1:
                negated = part[1] == "!"
                self._sets.append((bit, _Set(part[1 + negated : -1], negated)))
            else:
                self._chars[part] = self._chars.get(part, 0) | bit
            bit <<= 1
        self._end = bit

    def fit(self, name: str) -> bool:
        """Whether a name leads from the first place to the last."""
        places = self._closed(1)
        for char in name:
            stays, goes = self._moves.get(char) or self._move(char)
            places = self._closed((places & stays) | (places & goes) << 1)
            if not places:
                return False
        return bool(places & self._end)

    def _closed(self, places: int) -> int:
        """The places, and those behind what may mean nothing."""
        while True:
            more = places | (places & self._skipped) << 1 | (places & self._skipped_two) << 2
            if more == places:
                return places
            places = more

    def _move(self, char: str) -> tuple[int, int]:
        """Where a character keeps its place, and where it leads on."""
        is_slash = char == "/"
        stays = self._across if is_slash else self._across | self._within
        goes = self._chars.get(char, 0) | (self._slash if is_slash else self._any)
        for bit, one in self._sets:
            goes |= bit if one.holds(char) else 0
        if len(self._moves) < _REMEMBERED:
            self._moves[char] = stays, goes
        return stays, goes


def find(root: Path, steps: Sequence[str]) -> Iterator[Path]:
    """Entries below a directory under names that fit the steps; `**` means any number of directories but no links.

    Each directory is looked at once for all ways that lead to it. Links are followed last, and each directory behind
    them under one name, so that links in a circle do not multiply.
    """
    steps = [step for at, step in enumerate(steps) if step != "**" or not at or steps[at - 1] != "**"]
    patterns = [None if step == "**" else Pattern(step) for step in steps]
    pending = [(root, _without_globstars(patterns, {0}))]
    linked: list[tuple[Path, set[int]]] = []
    seen: set[tuple[int, int, frozenset[int]]] = set()
    while pending or linked:
        is_behind = not pending
        parent, places = (linked if is_behind else pending).pop()
        if is_behind:
            status = parent.stat()
            key = (status.st_dev, status.st_ino, frozenset(places))
            if key in seen:
                continue
            seen.add(key)
        for path, is_link in _entries(parent, [steps[at] for at in sorted(places) if at < len(steps)]):
            reached = {at + 1 for at in places if at < len(steps) and _is_step(patterns[at], steps[at], path)}
            is_directory = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for some names
            if is_directory and not is_link:
                reached |= {at for at in places if at < len(steps) and patterns[at] is None}
            reached = _without_globstars(patterns, reached)
            if len(steps) in reached:
                yield path
            if is_directory and reached - {len(steps)}:
                (linked if is_link or is_behind else pending).append((path, reached))


def _is_step(pattern: Pattern | None, step: str, path: Path) -> bool:
    return pattern is not None and (path.name == step or pattern.fits(path.name))


def _without_globstars(patterns: Sequence[Pattern | None], places: set[int]) -> set[int]:
    """The places, and those behind each `**`, which may mean no directory."""
    found = set(places)
    for at in sorted(places):
        while at < len(patterns) and patterns[at] is None:
            at += 1  # noqa: PLW2901
            if at in found:
                break  # what is behind it was added with it, or comes with a later place
            found.add(at)
    return found


def _entries(parent: Path, steps: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """What may lead on: entries that are named outright, or all of them."""
    if not any(WILDCARDS & set(step) for step in steps):
        for path in {Path(parent, step) for step in steps}:
            if os.path.lexists(path):
                yield path, path.is_symlink()
        return
    if ".." in steps:
        yield Path(parent, ".."), False
    try:
        with os.scandir(parent) as found:
            entries = [(entry.name, entry.is_symlink()) for entry in found]
    except PermissionError:
        return
    for name, is_link in entries:
        yield Path(parent, name), is_link
