"""Bounds what the compressed files of one run unpack to while a search looks into them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from trainspec_validate.system.budget import Count, Limit, OverLimitError

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
_FILE: ContextVar[_Meter | None] = ContextVar("file", default=None)


@contextmanager
def one_run() -> Iterator[None]:
    """Have all files that are looked into share one budget; without it each has one of its own."""
    token = _RUN.set(Count(MOST))
    try:
        yield
    finally:
        _RUN.reset(token)


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
