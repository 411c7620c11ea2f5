"""Bounds what the compressed files of one run unpack to while a search looks into them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from trainspec_validate.system.budget import Count, Limit, OverLimitError

Found = TypeVar("Found")
_TIMES: Final = 32
"""Texts rarely shrink more: what other files unpack to grows with their size, and is not bounded here."""
MOST: Final = Limit(
    "a search of compressed files", 256 * 1024**2, f"bytes unpacked in one run beyond {_TIMES} times the size of each"
)
NOT_LOOKED_INTO: Final = (
    "is compressed, and was not looked into:"
    f" one run unpacks {MOST.most / 1024**2:,.0f} MiB beyond {_TIMES} times the sizes of its files"
)


@dataclass(slots=True)
class _Meter:
    """How much of the budget of a run a file may use, after what its size allows."""

    run: Count
    allowed_bytes: float

    def add(self, num_bytes: int) -> None:
        self.allowed_bytes -= num_bytes
        if self.allowed_bytes < 0:
            num_bytes, self.allowed_bytes = int(-self.allowed_bytes), 0
            self.run.add(num_bytes)


_RUN: ContextVar[Count | None] = ContextVar("run", default=None)
_EMPTY: ContextVar[dict[str, Any] | None] = ContextVar("empty", default=None)
_FILE: ContextVar[_Meter | None] = ContextVar("file", default=None)


@contextmanager
def one_run() -> Iterator[None]:
    """Have all files that are looked into share one budget; without it each has one of its own."""
    run, empty = _RUN.set(Count(MOST)), _EMPTY.set({})
    try:
        yield
    finally:
        _RUN.reset(run)
        _EMPTY.reset(empty)


def once(look: Callable[[Path], Found]) -> Callable[[Path], Found]:
    """Have a function look into a file without documents once in a run, under whatever name; its answer is kept."""

    @wraps(look)
    def looked(path: Path) -> Found:
        empty = _EMPTY.get()
        if empty is None:
            return look(path)
        key = f"{look.__name__} {os.path.realpath(path)}"
        if key in empty:
            kept: Found = empty[key]
            return kept
        found = look(path)
        if not found:
            empty[key] = found
        return found

    return looked


def begin_file(num_bytes: int) -> None:
    """Say that a file of a size is looked into from here on."""
    _FILE.set(_Meter(_RUN.get() or Count(MOST), _TIMES * num_bytes))


def count(num_bytes: int) -> None:
    """Count unpacked bytes of the file.

    Raises:
        OverLimitError: the run has unpacked too much.
    """
    meter = _FILE.get()
    if meter:
        meter.add(num_bytes)


def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of the file, counted.

    Raises:
        OverLimitError: as `count`.
    """
    for piece in pieces:
        count(len(piece))
        yield piece


def is_spent(error: Exception) -> bool:
    """Whether an error says that the run has unpacked too much."""
    return isinstance(error, OverLimitError) and error.limit is MOST
