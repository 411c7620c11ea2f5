"""Writes the streams of a process from one thread, so that the training script does not wait."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType

from trainspec_record.guard import never_raises
from trainspec_record.stream import Stream

INTERVAL_SECONDS = 0.25
"""Longest time that a record waits; what is lost when a process is killed."""
EXIT_SECONDS = 5.0
"""Longest time that the end of a run waits for its last records."""

_pumps: weakref.WeakSet[Pump] = weakref.WeakSet()


class Pump:
    """Writes streams from a thread of its own, and calls what is due at each turn.

    A forked child has no such thread: there the pump is dead, and everything put into it is forgotten.
    """

    def __init__(self) -> None:
        self.is_alive = False
        self.streams: list[Stream] = []
        self.ticks: list[Callable[[], None]] = []
        """Called before each turn of writing, in the thread of the pump."""
        self._wake = threading.Event()
        self._waiting: list[threading.Event] = []
        self._thread = threading.Thread(target=self._loop, name="trainspec-record", daemon=True)

    def start(self) -> None:
        """Begin to write.

        Raises:
            RuntimeError: the process cannot start a thread.
        """
        self.is_alive = True
        self._thread.start()
        _pumps.add(self)
        _catch_termination()

    def _loop(self) -> None:
        while self.is_alive:
            self._wake.wait(INTERVAL_SECONDS)
            self._wake.clear()
            self._turn()
        self._turn()
        for stream in self.streams:
            stream.close()

    def _turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.tick()
        for stream in tuple(self.streams):
            _safely(stream.drain)
        for done in waiting:
            done.set()

    def tick(self) -> None:
        """Call what is due."""
        for tick in tuple(self.ticks):
            _safely(tick)

    def flush(self, seconds: float = EXIT_SECONDS) -> bool:
        """Wait until what was put in before is written, or for so long; whether it was."""
        if not self.is_alive or not self._thread.is_alive():
            return False
        done = threading.Event()
        self._waiting.append(done)
        self._wake.set()
        return done.wait(seconds)

    def stop(self, seconds: float = EXIT_SECONDS) -> None:
        """Write what waits, close the files, and end; give up after so long."""
        if self.is_alive:
            self.is_alive = False
            self._wake.set()
            self._thread.join(seconds)

    def forget(self) -> None:
        """In a forked child: nothing of this pump belongs to it."""
        self.is_alive = False
        self.ticks.clear()
        for stream in self.streams:
            stream.close()
        self.streams.clear()


@never_raises(None)
def _safely(action: Callable[[], None]) -> None:
    action()


@never_raises(None)
def flush_all(seconds: float = EXIT_SECONDS) -> None:
    """Write what all pumps of this process hold."""
    end = time.monotonic() + seconds
    for pump in tuple(_pumps):
        pump.flush(max(0.0, end - time.monotonic()))


@never_raises(None)
def _forget_all() -> None:
    for pump in tuple(_pumps):
        pump.forget()
    _pumps.clear()


def _terminated(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    """Write what waits, and end as if nobody had listened."""
    for pump in tuple(_pumps):
        pump.tick()  # this thread may be within a call that the thread of the pump waits for
    flush_all(EXIT_SECONDS / 2)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@never_raises(None)
def _catch_termination() -> None:
    """Listen for SIGTERM where nobody does; a handler that the script sets, before or after, stays the only one."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


atexit.register(flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
