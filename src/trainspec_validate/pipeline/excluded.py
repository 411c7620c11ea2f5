"""Keeps the files that patterns exclude out of every search of a run, and counts them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainspec_validate.model.finding import PassedOver
from trainspec_validate.system.patterns import WILDCARDS, Pattern

EXCLUDED: Final = "is excluded"
_MOST_LETTERS: Final = 1_000


def problem_of(words: str) -> str:
    """Why a text is no pattern of files to exclude; empty for a pattern.

    >>> problem_of("tests/**"), problem_of("!tests")
    ('', 'takes back nothing: write patterns of what to exclude, without !')
    """
    if words.startswith("!"):
        return "takes back nothing: write patterns of what to exclude, without !"
    if not words.strip("/"):
        return "is no pattern; write one such as tests/**"
    return f"is longer than {_MOST_LETTERS:,} characters" if len(words) > _MOST_LETTERS else ""


def anchored(words: str, directory: str) -> str:
    """A pattern of a file in `directory` as one of the working directory; a bare name counts in every directory.

    >>> anchored("tests/data", ".."), anchored("/build", "."), anchored("*.jsonl", "..")
    ('../tests/data', './build', '*.jsonl')
    """
    if "/" not in words.rstrip("/") or (directory == "." and not words.startswith("/")):
        return words
    plain = "".join(f"[{char}]" if char in WILDCARDS else char for char in directory)
    return f"{plain}/{words.lstrip('/')}"


@dataclass(slots=True)
class Excluded:
    """Patterns of what no search looks at, and the files that they kept out."""

    patterns: Sequence[str]
    settings: str = ""
    """The settings file that has them; empty where the command line does."""
    files: dict[str, str] = field(default_factory=dict)
    """Paths, as a search found them, by their real place."""
    _whole: list[Pattern] = field(default_factory=list)
    _below: dict[str, bool] = field(default_factory=dict)
    """Directories, and whether they or one above are excluded."""

    def __post_init__(self) -> None:
        for words in self.patterns:
            bare = words.rstrip("/")
            is_name = "/" not in bare
            self._whole.append(Pattern(f"/**/{bare}" if is_name else os.path.normpath(anchored(bare, os.getcwd()))))  # noqa: PTH109

    def covers(self, path: str | Path) -> bool:
        """Whether a pattern fits a path, or a directory above it."""
        if not self._whole:
            return False
        return self._is_below(os.path.abspath(path))  # noqa: PTH100 - Path.resolve follows links

    def takes(self, path: str | Path) -> bool:
        """The same, and the path is counted."""
        if not self.covers(path):
            return False
        self.files.setdefault(os.path.abspath(path), Path(path).as_posix())  # noqa: PTH100
        return True

    def _is_below(self, place: str) -> bool:
        pending = [place]
        while (parent := os.path.dirname(pending[-1])) not in self._below and parent != pending[-1]:  # noqa: PTH120
            pending.append(parent)
        is_below = self._below.get(parent, False)
        for directory in reversed(pending):
            is_below = is_below or any(pattern.fits(directory) for pattern in self._whole)
            if directory != place:
                self._below[directory] = is_below
        return is_below


_NONE: Final = Excluded(())
_RUN: ContextVar[Excluded] = ContextVar("excluded", default=_NONE)


@contextmanager
def excluding(patterns: Iterable[str], settings: str = "") -> Iterator[None]:
    """Have searches leave out what the patterns fit."""
    token = _RUN.set(Excluded(tuple(patterns), settings))
    try:
        yield
    finally:
        _RUN.reset(token)


def covers(path: str | Path) -> bool:
    """Whether a path is excluded from the searches of this run."""
    return _RUN.get().covers(path)


def takes(path: str | Path) -> bool:
    """Whether a file that a search found is excluded; it is counted."""
    return _RUN.get().takes(path)


def passed_over() -> tuple[PassedOver, ...]:
    """The files that were excluded so far in this run."""
    run = _RUN.get()
    files = tuple(sorted(run.files.values()))
    return (PassedOver(EXCLUDED, files, tuple(run.patterns), run.settings),) if files else ()
