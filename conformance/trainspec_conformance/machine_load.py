"""Measures how much of the machine's processors others use while a trial runs."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from trainspec_conformance.processes import marked
from trainspec_conformance.records import Load
from trainspec_validate.model.units import counted

WINDOW_SECONDS = 2.0
"""Sampling interval: long compared with a scan of all processes, short compared with the limits of scenarios."""
BEFORE_SECONDS = 0.25
"""Length of the first measurement, before anything is started."""
FULL_SHARE = 0.9
"""Share of the processors in use from which a process waits for one."""
OTHERS_SHARE = 0.1
"""Share of the processors that others use in a window from which they, and not the stack alone, fill the machine."""
LONG_SHARE, LEAST_SECONDS = 0.1, 3.0
"""Full windows that make a trial one on a busy machine: this share of its time, and at least so many seconds."""
BUSY_BEFORE_SHARE = 0.5
"""Share of the processors in use before the start that makes it one, too."""
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""Kinds of time of a processor that is in use; those of guests are part of the first two."""
_OWN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def too_busy(load: Load) -> str:
    """Load by other processes, where it is so high that no time of the trial counts against a stack; else empty."""
    processors = counted(load.num_processors, "processor")
    if load.before_processors >= BUSY_BEFORE_SHARE * load.num_processors:
        return f"others used {load.before_processors:.1f} of {processors} before the start"
    if load.full_seconds >= max(LEAST_SECONDS, LONG_SHARE * load.seconds):
        return (
            f"others used {load.others_processors:.1f} of {processors} on average, and no "
            f"processor was free for {load.full_seconds:.0f} of {load.seconds:.0f} s"
        )
    return ""


class LoadMeter:
    """Measures from its making to its end, in a thread of its own."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._processors = _processors()
        began = _use(mark, self._processors)
        time.sleep(BEFORE_SECONDS)
        self._last = _use(mark, self._processors)
        self._began_seconds = self._last.at_seconds
        self._before = _others(self._last, began) / (self._began_seconds - began.at_seconds)
        self._others = self._full = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def end(self) -> Load:
        """Stop, and give what was measured."""
        self._over.set()
        self._thread.join()
        self._look()
        seconds = self._last.at_seconds - self._began_seconds
        return Load(
            num_processors=len(self._processors),
            before_processors=round(self._before, 3),
            others_processors=round(self._others / seconds, 3),
            full_seconds=round(self._full, 3),
            seconds=round(seconds, 3),
        )

    def _run(self) -> None:
        while not self._over.wait(WINDOW_SECONDS):
            self._look()

    def _look(self) -> None:
        before, self._last = self._last, _use(self._mark, self._processors)
        used, seconds = self._last.everybody - before.everybody, self._last.at_seconds - before.at_seconds
        others = _others(self._last, before)
        self._others += others
        num = len(self._processors) * seconds
        if used >= FULL_SHARE * num and others >= OTHERS_SHARE * num:
            self._full += seconds


@dataclass(frozen=True)
class _Use:
    """Processor seconds since the machine and the processes began."""

    at_seconds: float
    everybody: float
    own: float
    """Of the suite, of the stack, and of all their descendants that were waited for."""
    of_each: dict[int, float] = field(default_factory=dict)
    """Of the living processes of the stack, by number, without their descendants."""

    def own_since(self, before: _Use) -> float:
        """What the suite and the stack used since then.

        Who is killed and waited for by a stranger takes all of its time out of `own`: what the living used is the
        least that can be right.
        """
        living = sum(max(used - before.of_each.get(pid, 0.0), 0.0) for pid, used in self.of_each.items())
        return max(self.own - before.own, living)


def _use(mark: str, processors: Sequence[int]) -> _Use:
    times = psutil.cpu_times(percpu=True)
    everybody = sum(getattr(times[one], part, 0.0) for one in processors for part in _BUSY)
    own = sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, _OWN))
    of_each = {}
    for process in marked(mark):
        with contextlib.suppress(psutil.Error, OSError):
            used = process.cpu_times()
            of_each[process.pid] = used.user + used.system
            own += sum(used)
    return _Use(time.monotonic(), everybody, own, of_each)


def _others(now: _Use, before: _Use) -> float:
    return max(now.everybody - before.everybody - now.own_since(before), 0.0)


def _processors() -> list[int]:
    """Numbers of the processors that the suite may use."""
    process = psutil.Process()
    return list(process.cpu_affinity() if hasattr(process, "cpu_affinity") else range(psutil.cpu_count() or 1))
