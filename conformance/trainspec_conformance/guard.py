"""Runs next to the suite, and ends what a trial has left as soon as the suite is gone, also where it was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from trainspec_conformance.disk import unmount_abandoned
from trainspec_conformance.memory import sweep_groups
from trainspec_conformance.processes import end_abandoned, is_gone

PATIENCE_SECONDS = 30.0
"""Longest time from the end of the pipe until the suite is gone, and until a killed process is."""
_PAUSE_SECONDS = 0.02
_TAKEN, _RETURNED = b"+", b"-"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Guard:
    """The pipe to the process that waits for the end of this one, which is the end of the pipe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._maker = 0

    def start(self) -> None:
        """Start it, once for each process. It has a session of its own, so that no key of a terminal reaches it."""
        if self._process is not None and self._maker == os.getpid():
            return
        self._maker = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603 - the interpreter that runs the suite
            [sys.executable, "-m", "trainspec_conformance.guard", str(self._maker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def tell(self, mark: bytes, path: Path) -> None:
        """Say that a directory is to be removed, or that it was."""
        if self._process is None or self._process.stdin is None or self._maker != os.getpid():
            return
        with contextlib.suppress(OSError):  # without it, the run goes on
            self._process.stdin.write(mark + os.fsencode(path) + b"\0")
            self._process.stdin.flush()


_GUARD = _Guard()


def start() -> None:
    """See that nothing of a trial stays if this process is killed."""
    _GUARD.start()


def taken(path: Path) -> None:
    """A temporary directory was made."""
    _GUARD.tell(_TAKEN, path)


def returned(path: Path) -> None:
    """A temporary directory was removed."""
    _GUARD.tell(_RETURNED, path)


def clear_up(maker: int, paths: Iterable[Path]) -> None:
    """End and remove what a suite has left, once it is gone."""
    _until(lambda: is_gone(maker))
    _until(lambda: not end_abandoned())
    unmount_abandoned()
    sweep_groups()
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds() and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)


def main(maker: int) -> None:
    """Wait for the end of the suite."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    left: dict[bytes, None] = {}
    rest = b""
    while text := os.read(sys.stdin.fileno(), 1 << 16):
        *told, rest = (rest + text).split(b"\0")
        for one in told:
            if one[:1] == _TAKEN:
                left[one[1:]] = None
            else:
                left.pop(one[1:], None)
    clear_up(maker, [Path(os.fsdecode(path)) for path in left])


if __name__ == "__main__":
    with contextlib.suppress(psutil.Error):
        main(int(sys.argv[1]))
