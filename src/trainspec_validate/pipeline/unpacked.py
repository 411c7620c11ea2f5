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

from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.system.budget import Count, Limit, OverLimitError, timed

Found = TypeVar("Found")
_TIMES: Final = 32
"""Texts rarely shrink more: what other files unpack to grows with their size, and is not bounded here."""
SEARCH: Final = "a search of compressed files"
_MIB: Final = MAX_BYTES // 1024**2
MOST: Final = Limit(SEARCH, 256 * 1024**2, f"bytes unpacked in one run beyond {_TIMES} times the size of each")
NOT_LOOKED_INTO: Final = (
    "is compressed, and was not looked into:"
    f" one run unpacks {MOST.most / 1024**2:,.0f} MiB beyond {_TIMES} times the sizes of its files"
)


MOST_SECONDS: Final = Limit(SEARCH, 600, "seconds of processor time for one file")
MOST_OF_ONE: Final = Limit(SEARCH, 192 * 1024**2, "bytes unpacked of one content")
MOST_FAR: Final = Limit(SEARCH, 512 * 1024**2, f"bytes read in one run behind {_MIB} MiB of each")
_CUT: Final = "is compressed, and was not searched to its end:"
_SAID: Final = {
    MOST.unit: NOT_LOOKED_INTO,
    MOST_OF_ONE.unit: f"{_CUT} a search unpacks {MOST_OF_ONE.most / 1024**2:,.0f} MiB of one",
    MOST_FAR.unit: f"{_CUT} one run reads {MOST_FAR.most / 1024**2:,.0f} MiB behind the first {_MIB} MiB of each",
}


@dataclass(slots=True)
class _Meter:
    """How much of the budget of a run a file may use, after what its size allows."""

    run: Count
    far: Count
    allowed_bytes: float

    def add(self, num_bytes: int) -> None:
        self.allowed_bytes -= num_bytes
        if self.allowed_bytes < 0:
            num_bytes, self.allowed_bytes = int(-self.allowed_bytes), 0
            self.run.add(num_bytes)


_RUN: ContextVar[tuple[Count, Count] | None] = ContextVar("run", default=None)
_EMPTY: ContextVar[dict[str, Any] | None] = ContextVar("empty", default=None)
_FILE: ContextVar[_Meter | None] = ContextVar("file", default=None)


@contextmanager
def one_run() -> Iterator[None]:
    """Have all files that are looked into share one budget; without it each has one of its own."""
    run, empty = _RUN.set((Count(MOST), Count(MOST_FAR))), _EMPTY.set({})
    try:
        yield
    finally:
        _RUN.reset(run)
        _EMPTY.reset(empty)


def once(look: Callable[[Path], Found]) -> Callable[[Path], Found]:
    """Have a function look into a file without documents once in a run, under whatever name; its answer is kept."""

    def in_time(path: Path) -> Found:
        with timed(MOST_SECONDS):
            return look(path)

    @wraps(look)
    def looked(path: Path) -> Found:
        empty = _EMPTY.get()
        if empty is None:
            return in_time(path)
        key = f"{look.__name__} {os.path.realpath(path)}"
        if key in empty:
            kept: Found = empty[key]
            return kept
        found = in_time(path)
        if not found:
            empty[key] = found
        return found

    return looked


def begin_file(num_bytes: int) -> None:
    """Say that a file of a size is looked into from here on."""
    run, far = _RUN.get() or (Count(MOST), Count(MOST_FAR))
    _FILE.set(_Meter(run, far, _TIMES * num_bytes))


def count(num_bytes: int) -> None:
    """Count unpacked bytes of the file.

    Raises:
        OverLimitError: the run has unpacked too much.
    """
    meter = _FILE.get()
    if meter:
        meter.add(num_bytes)


def count_far(num_bytes: int) -> None:
    """Count bytes of the file behind as many as a document may have.

    Raises:
        OverLimitError: the run has read too many.
    """
    meter = _FILE.get()
    if meter:
        meter.far.add(num_bytes)


def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of the file, counted.

    Raises:
        OverLimitError: as `count`.
    """
    for piece in pieces:
        count(len(piece))
        yield piece


def why_not_searched(error: OverLimitError) -> str:
    """Message on a compressed file that was not searched to its end, with the limit."""
    return _SAID.get(error.limit.unit, f"{_CUT} {error}")


def is_not_searched(reason: str) -> bool:
    """Whether a reason is one of a compressed file that was not searched to its end, or not at all."""
    return reason.startswith((_CUT, NOT_LOOKED_INTO))
