"""Keeps the files that patterns exclude out of every search of a run, and counts them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainspec_validate.model.finding import PassedOver
from trainspec_validate.system.budget import Limit
from trainspec_validate.system.patterns import WILDCARDS, Pattern

EXCLUDED: Final = "is excluded"
_MOST_LETTERS: Final = 1_000
MOST_PATTERNS: Final = Limit("a run", 500, "patterns of excluded files, against all of which each file is held")


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
    _whole: list[tuple[Pattern, bool]] = field(default_factory=list)
    """Patterns of absolute paths, or of the names alone of files and directories in any place."""
    _fitted: set[int] = field(default_factory=set)
    """Places of the patterns that fit something so far."""
    _below: dict[str, bool] = field(default_factory=dict)
    """Directories, and whether they or one above are excluded."""

    def __post_init__(self) -> None:
        for words in self.patterns:
            bare = words.rstrip("/")
            is_name = "/" not in bare
            self._whole.append((Pattern(bare if is_name else self._place(words)), is_name))

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

    def idle(self, arguments: Iterable[str]) -> Iterator[str]:
        """The patterns of places in the directories that were searched, of which none fits anything there."""
        roots = [os.path.join(os.path.abspath(path), "") for path in arguments if os.path.isdir(path)]  # noqa: PTH100, PTH112, PTH118
        for at, words in enumerate(self.patterns):
            whole = words.rstrip("/").removesuffix("/**")
            places = [*(os.path.join(root, whole) for root in roots), self._place(whole)]  # noqa: PTH118
            if at in self._fitted or any(map(os.path.lexists, places)):
                continue  # no search enters an environment, for one
            start = re.split(r"[*?\[]", self._place(words))[0]
            if any(root.startswith(start) or start.startswith(root) for root in roots):
                yield words

    @staticmethod
    def _place(words: str) -> str:
        """The pattern of absolute paths that a pattern is."""
        bare = words.rstrip("/")
        return f"/**/{bare}" if "/" not in bare else os.path.normpath(anchored(bare, os.getcwd()))  # noqa: PTH109

    def _is_below(self, place: str) -> bool:
        pending = [place]
        while (parent := os.path.dirname(pending[-1])) not in self._below and parent != pending[-1]:  # noqa: PTH120
            pending.append(parent)
        is_below = self._below.get(parent, False)
        for directory in reversed(pending):
            name = os.path.basename(directory)  # noqa: PTH119
            fitting = [
                at for at, (each, is_name) in enumerate(self._whole) if each.fits(name if is_name else directory)
            ]
            self._fitted.update(fitting)
            is_below = is_below or bool(fitting)
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


def is_in_use() -> bool:
    """Whether this run has patterns of what to exclude."""
    return bool(_RUN.get().patterns)


def takes(path: str | Path) -> bool:
    """Whether a file that a search found is excluded; it is counted."""
    return _RUN.get().takes(path)


def idle(arguments: Iterable[str]) -> Iterator[str]:
    """A sentence for each pattern that fits nothing in the directories that this run searched."""
    run = _RUN.get()
    option = f"exclude in {run.settings}" if run.settings else "--exclude"
    yield from (f"{option}: {words} fits no file" for words in run.idle(arguments))


def passed_over() -> tuple[PassedOver, ...]:
    """The files that were excluded so far in this run."""
    run = _RUN.get()
    files = tuple(sorted(run.files.values()))
    return (PassedOver(EXCLUDED, files, tuple(run.patterns), run.settings),) if files else ()
