"""Queues the calls of the script until the pump thread handles them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from trainspec_record.clock import Clock
from trainspec_record.guard import never_raises

MAX_PENDING = 10_000
"""Calls that wait at most; after so many the script does the work itself, so that memory is bounded."""
TICK_SECONDS = 0.1
"""Longest time that the thread of the pump waits for a call of the script to end."""
_PLAIN = frozenset({float, int, bool, str, type(None)})


def can_wait(words: Mapping[str, Any]) -> bool:
    """Whether values stay as they are and keep no memory of a device while they wait."""
    return _PLAIN.issuperset(map(type, words.values()))


class Pending:
    """Calls with the moment of each, in their order.

    The thread of the script only notes them. After milliseconds of training its caches hold nothing of the recorder, so
    that the work would cost several times what it costs in one go.
    """

    def __init__(self, clock: Clock, lock: threading.RLock) -> None:
        self._clock, self._lock = clock, lock
        self._calls: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._last_us = 0

    def put(self, action: Callable[..., None], *args: Any) -> None:
        """Note a call of this moment; the action takes the moment first."""
        self._calls.append((self._clock.now_us(), action, args))
        if len(self._calls) > MAX_PENDING:
            with self._lock:
                self.apply()

    def apply(self) -> None:
        """Do what was noted; called under the lock, before anything else is done under it."""
        while self._calls:
            time_us, action, args = self._calls.popleft()
            self._last_us = max(
                time_us, self._last_us
            )  # two threads can note in another order than they read the clock
            _carry_out(action, self._last_us, args)


@never_raises(None)
def _carry_out(action: Callable[..., None], time_us: int, args: tuple[Any, ...]) -> None:
    action(time_us, *args)
