"""Reads the offset of the node's clock from its reference."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from trainspec_record.clock import jump_seconds
from trainspec_record.node.source import Reading, Source

OFFSET, ERROR = "train.clock.offset", "train.clock.error"
LIKELY_SECONDS = 16.0
"""Largest error that the kernel counts; a clock that no one sets is at it."""
STA_NANO, TIME_ERROR = 0x2000, 5
TIMEOUT_SECONDS = 2.0
NOBODY = "no time service sets the clock of this node"


class _Timex(ctypes.Structure):
    """`struct timex` of the C library on 64-bit Linux."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "sec", "usec", "tick", "ppsfreq")),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    ]


def chrony_answer() -> str | None:
    """Offset by the tracking of `chronyc`; None where there is none."""
    try:
        done = subprocess.run(  # noqa: S603, RUF100
            ["chronyc", "-c", "-n", "tracking"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def of_chrony(answer: str | None) -> tuple[float, float] | None:
    """Offset and its bound: half of the root delay with the root dispersion, and what is not yet corrected."""
    fields = (answer or "").strip().split(",")
    try:
        correction, delay, dispersion = float(fields[4]), float(fields[10]), float(fields[11])
        is_set = fields[13] != "Not synchronised" and fields[2] != "0"
    except (IndexError, ValueError):
        return None
    # chrony says how far the system clock is from true time; positive is slow, so the node is behind
    return (-correction, delay / 2 + dispersion + abs(correction)) if is_set else None


def kernel_answer() -> tuple[int, Any] | None:
    """State of the clock of the kernel, and its `timex`; None where it cannot be asked. Nothing is set."""
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    return (int(state), timex) if state >= 0 else None


def of_kernel(answer: tuple[int, Any] | None) -> tuple[float, float] | None:
    """Offset and its bound, as the time service reported them to the kernel."""
    if answer is None or answer[0] == TIME_ERROR or answer[1].maxerror >= LIKELY_SECONDS * 1e6:
        return None
    unit = 1e-9 if answer[1].status & STA_NANO else 1e-6
    # the kernel holds what is left to correct: positive is a clock that is behind
    return -answer[1].offset * unit, answer[1].maxerror / 1e6


def clock_source(
    ask_chrony: Callable[[], str | None] = chrony_answer,
    ask_kernel: Callable[[], tuple[int, Any] | None] = kernel_answer,
) -> Source:
    """Offset of the clock and its bound, from chrony or from the kernel."""
    by_chrony = of_chrony(ask_chrony()) is not None
    if not by_chrony and of_kernel(ask_kernel()) is None:
        return Source(unsupported={OFFSET: NOBODY, ERROR: NOBODY})

    def read() -> Iterator[Reading]:
        found = of_chrony(ask_chrony()) if by_chrony else of_kernel(ask_kernel())
        if found is not None:
            yield Reading({OFFSET: found[0], ERROR: found[1]})

    return Source(frozenset({"node"}), read, declared={"train.clock.reference": "utc-ntp"})


class Steps:
    """Notices that the time of day was set instead of slewed."""

    LEAST_SECONDS = 0.1

    def __init__(self, jump: Callable[[], float] = jump_seconds) -> None:
        self._jump = jump
        self._last = jump()

    def since_before(self) -> float | None:
        """Seconds that the clock was moved by since the last question; None where it was not."""
        before, now = self._last, self._jump()
        if abs(now - before) < self.LEAST_SECONDS:
            return None
        self._last = now
        return now - before
