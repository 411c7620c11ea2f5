"""Gives a recorder the time, in microseconds since 1970 UTC."""

from __future__ import annotations

import time

_ANCHOR_NS = time.time_ns() - time.monotonic_ns()


class Clock:
    """Time of day as the process began it, carried on by the monotonic clock, so that it never goes back.

    The kernel slews the monotonic clock with the time of day, and does not step it.
    """

    def __init__(self) -> None:
        self._last_us = 0

    def now_us(self) -> int:
        """This moment; later than all moments returned before, by a microsecond at least."""
        now_us = max((_ANCHOR_NS + time.monotonic_ns()) // 1000, self._last_us + 1)
        self._last_us = now_us
        return now_us


def jump_seconds() -> float:
    """How far the time of day was stepped since the process began; positive is forward."""
    return (time.time_ns() - time.monotonic_ns() - _ANCHOR_NS) / 1e9
