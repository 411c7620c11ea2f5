"""Limits on what one untrusted input may cost, and the counters that hold them.

Every reader of documents, settings, streams, checkpoints and files of other programs counts bytes, entries, levels of
nesting, keys, decoded bytes and seconds where they are produced, and refuses an input that passes a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

Piece = TypeVar("Piece")
Record = TypeVar("Record")
thread_seconds: Final[Callable[[], float]] = getattr(time, "thread_time", time.process_time)
"""Processor seconds of this thread; of the process, where a system has no clock for threads, as WebAssembly."""
LIMITS: Final[dict[str, Limit]] = {}
"""Every limit by name, for the table in SECURITY.md and its test."""


class OverLimitError(Exception):
    """An input passes a limit; the text names the input, the limit and its value."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.refusal)
        self.limit = limit

    def __reduce__(self) -> tuple[type[OverLimitError], tuple[Limit]]:
        return type(self), (self.limit,)  # it travels between processes


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one input may have of something."""

    input: str
    """The kind of input, in the singular, as a sentence starts with it: `a document`, `a zip directory`."""
    most: float
    """The largest number that is accepted."""
    unit: str
    """Counted things, in the plural: `bytes`, `levels of nesting`, `seconds of decoding`."""

    def __post_init__(self) -> None:
        LIMITS[f"{self.input}: {self.unit}"] = self

    @property
    def refusal(self) -> str:
        """Message on an input that passes the limit."""
        return f"{self.input} may have at most {self.most:,} {self.unit}"

    def check(self, number: float) -> None:
        """Accept a number that is known beforehand, such as the size of a file.

        Raises:
            OverLimitError: the number passes the limit.
        """
        if number > self.most:
            raise OverLimitError(self)


@dataclass(slots=True)
class Count:
    """How much of a limit one input has used."""

    limit: Limit
    used: float = 0
    _num_left: int = 0
    """Calls until the time is looked at again."""

    def add(self, number: float = 1) -> None:
        """Count more of it.

        Raises:
            OverLimitError: the sum passes the limit, or the time for the input is over.
        """
        self.used += number
        self.limit.check(self.used)
        self._num_left -= 1
        if self._num_left < 0:
            self._num_left = _CALLS_A_LOOK
            check_time()


@contextmanager
def timed(limit: Limit) -> Iterator[None]:
    """Give what reads one input in this thread at most so many processor seconds; a busy machine takes none of them.

    Time is looked at where counts are added to, and where `check_time` is called.

    >>> with timed(Limit("a riddle", 60, "seconds of processor time")):
    ...     check_time()
    >>> check_time()
    """
    token = _DEADLINE.set((limit, thread_seconds() + limit.most))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def check_time() -> None:
    """Look at the time of the input that is being read.

    Raises:
        OverLimitError: it is over.
    """
    limit, end = _DEADLINE.get() or (None, 0)
    if limit is not None and thread_seconds() > end:
        raise OverLimitError(limit)


@dataclass(slots=True)
class Meter:
    """Processor seconds that a reader takes for a stream in its thread, held against the bytes that it has read.

    The processing of the records between two of them is not counted.
    """

    limit: Limit
    """Seconds for each million bytes."""
    free_seconds: float
    """Seconds that any stream may take."""
    num_bytes: int = 0
    _spent: float = 0
    _since: float = 0
    """Processor time of the thread when the reader was asked for its next record."""
    _num_read: int = 0

    def read(self, pieces: Iterable[Piece], size: Callable[[Piece], int]) -> Iterator[Piece]:
        """The input of the reader; every 256th piece is followed by a look at the time.

        Raises:
            OverLimitError: the reader took too long.
        """
        for piece in pieces:
            self.num_bytes += size(piece)
            self._num_read += 1
            if not self._num_read & _CALLS_A_LOOK:
                self._check(self._spent + thread_seconds() - self._since)
            yield piece

    def given(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records of the reader.

        Raises:
            OverLimitError: the reader took too long.
        """
        each = iter(records)
        while True:
            self._since = thread_seconds()
            try:
                record = next(each)
            except StopIteration:
                return
            finally:
                self._spent += thread_seconds() - self._since
            self._check(self._spent)
            yield record

    def _check(self, seconds: float) -> None:
        if seconds > self.free_seconds + self.limit.most * self.num_bytes / 1e6:
            raise OverLimitError(self.limit)


_CALLS_A_LOOK: Final = 255
_DEADLINE: ContextVar[tuple[Limit, float] | None] = ContextVar("deadline", default=None)
"""The limit of the input that this thread reads, and the processor time of the thread at which it is reached."""
