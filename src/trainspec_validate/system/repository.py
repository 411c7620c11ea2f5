"""Finds the repository of a directory, its submodules, and the directory that a copy of another state is of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from trainspec_validate.system.boundary import open_regular

TOOLS: Final = {".git": "HEAD", ".hg": "requires", ".svn": "wc.db", ".jj": "repo"}
"""Directories of version control, which hold no content of a tree, each with what shows that it is one."""
MARKS: Final = tuple(TOOLS)
"""Directories of version control, or files that lead to one."""
_SUBMODULES: Final = ".gitmodules"
_MOST_BYTES: Final = 1_000_000
_MOST_SUBMODULES: Final = 10_000
_MOST_NAMES: Final = 10_000
_PATH: Final = re.compile(r"^[ \t]*+path[ \t]*+=[ \t]*+([^\r\n]{1,4000})", re.MULTILINE)


class UnclearCopyError(Exception):
    """A copy may be one of the working directory, or one of its whole repository."""


def top_of(directory: str | os.PathLike[str], marks: tuple[str, ...] = MARKS) -> Path | None:
    """The real path of the nearest directory that has one of the marks, from `directory` upwards; None without one."""
    real = Path(os.path.realpath(directory))
    return next((place for place in (real, *real.parents) if _has(place, marks)), None)


def outermost(directory: str | os.PathLike[str], below: str | os.PathLike[str]) -> Path | None:
    """The real path of the repository of `directory` that holds all others below `below`; None without one."""
    real, top = Path(os.path.realpath(directory)), Path(os.path.realpath(below))
    places = [place for place in (real, *real.parents) if place != top and place.is_relative_to(top)]
    return next((place for place in reversed(places) if _has(place, MARKS)), None)


def _has(place: Path, marks: tuple[str, ...]) -> bool:
    return any(os.path.lexists(place / mark) for mark in marks)


def original_of(copy: str | os.PathLike[str]) -> Path:
    """The directory that `copy` is another state of: the working directory, or the top of its repository.

    It is the top where the copy has the directory that corresponds to the working directory, or where it has files of
    the top alone.

    Raises:
        UnclearCopyError: the copy may be of either.
    """
    here = Path(os.path.realpath(Path.cwd()))
    top = top_of(here)
    if top is None or top == here:
        return here
    inner = here.relative_to(top)
    if os.path.isdir(Path(copy, inner)):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        if os.path.isdir(here / inner):  # noqa: PTH112
            raise UnclearCopyError(f"{os.fspath(copy)} may be a copy of this directory or of its repository")
        return top
    names = _names(Path(copy))
    return top if names <= _names(top) and not names <= _names(here) else here


def _names(directory: Path) -> set[str]:
    try:
        with os.scandir(directory) as entries:
            return {entry.name for entry in islice(entries, _MOST_NAMES)}
    except OSError:
        return set()


def absent_submodules(directory: Path) -> Iterator[Path]:
    """The submodules of Git in a directory with `.gitmodules` whose directories are there and hold nothing."""
    top = os.path.realpath(directory)
    for path in _submodules(directory):
        place = directory / path
        is_inside = os.path.realpath(place).startswith(top + os.sep)
        if is_inside and os.path.isdir(place) and _names(place) <= {".git"}:  # noqa: PTH112
            yield place


def absent_submodules_below(directory: Path) -> Iterator[Path]:
    """Those of the repository that `directory` is in, as far as they are below it."""
    real, top = Path(os.path.realpath(directory)), top_of(directory, (".git",))
    if top is not None and top != real:
        for place in absent_submodules(top):
            if place.is_relative_to(real):
                yield directory / place.relative_to(real)


def is_absent_submodule(directory: Path) -> bool:
    """Whether a directory is a submodule of Git that holds nothing."""
    real = Path(os.path.realpath(directory))
    top = top_of(real.parent, (".git",))
    return top is not None and real in map(Path, map(os.path.realpath, absent_submodules(top)))


def superproject_of(directory: str | os.PathLike[str]) -> Path | None:
    """The repository that has the repository at `directory` as a submodule; None where there is none."""
    real = Path(os.path.realpath(directory))
    outer = top_of(real.parent, (".git",))
    if outer is None or not os.path.lexists(real / ".git"):
        return None
    return outer if real.relative_to(outer) in {Path(path) for path in _submodules(outer)} else None


def _submodules(directory: Path) -> Iterator[str]:
    """The paths of the submodules that a repository names."""
    try:
        with open_regular(directory / _SUBMODULES) as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for found in islice(_PATH.finditer(text), _MOST_SUBMODULES):
        path = found[1].strip().strip('"')
        if path and "\0" not in path:
            yield os.path.normpath(path)
