"""Counts the seconds in which the controller attends to its workers; a time-out counts none of its own absence."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_TURN_SECONDS = 0.5
"""A turn of the controller's loop counts as no more: it was suspended, starved, or waited for storage itself."""


class Clock:
    """Time that advances between two turns of the loop only, and by no more than a turn counts.

    What a worker said in a longer turn is heard before the time counts against that worker.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()
        self._seconds = 0.0

    def advance(self) -> float:
        """Begin a turn; gives the time that all of it has."""
        now = self._now()
        self._seconds += min(now - self._last, LONGEST_TURN_SECONDS)
        self._last = now
        return self._seconds

    def __call__(self) -> float:
        """Time of the turn, in seconds."""
        return self._seconds
