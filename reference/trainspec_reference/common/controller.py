"""Runs the loop of the controller, which receives messages of workers and detects failures that they cannot report."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import ClassVar

from trainspec_reference.common import messages as say
from trainspec_reference.common.backend import PROGRAMS_DIRECTORY
from trainspec_reference.common.channel import Channel, ChannelError
from trainspec_reference.common.crew import Clock, Crew, Worker
from trainspec_reference.common.job import Job
from trainspec_reference.common.recovery import Recovery
from trainspec_reference.common.run_settings import IN_USE, Assignment, RunEnd, Settings
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.watch import silent
from trainspec_validate.documents.types import trace

_COUNTERS = Path("/proc/vmstat")


class MemoryKills:
    """Number of processes here that the kernel has killed for lack of memory; the signal does not say why."""

    def __init__(self, counters: Path = _COUNTERS) -> None:
        self._counters = counters
        self._num_seen = self._num()

    def _num(self) -> int:
        """How many there were; 0 where the kernel does not tell."""
        try:
            lines = self._counters.read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def there_was_one(self) -> bool:
        """Whether one was ended since the last time that this was asked."""
        before, self._num_seen = self._num_seen, self._num()
        return self._num_seen > before


_TICK_SECONDS = 0.02
_EXIT_SECONDS = 5.0
_GRACE_SECONDS = 30.0


class Controller:
    """Runs a job to its end, through whatever happens to its workers."""

    recovery: ClassVar[type[Recovery]] = Recovery

    def __init__(self, job: Job, settings: Settings, command: Sequence[str]) -> None:
        self._job, self._settings = job, settings
        self._trace = TraceWriter(settings.trace_directory, "controller")
        self._crew = self._make_crew(command)
        self._recovery = self.recovery(job, settings, self._crew, self._trace)
        self._wake, self._woken = socket.socketpair()
        self._is_told_to_stop = False
        self._stop_by: float | None = None
        self._last_ping = 0.0
        self._memory_kills = MemoryKills()

    def _make_crew(self, command: Sequence[str]) -> Crew:
        return Crew(Clock(), command, self._settings.environment)

    def run(self) -> int:
        """Train to the end; gives the exit status. No process is left, however it ends."""
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._settings.directory / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            print(f"{self._settings.directory}: in use by another process", file=sys.stderr)  # noqa: T201 - the answer
            return IN_USE
        handlers = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._run()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._crew.end_all()
            self._recovery.close()
            self._trace.close()
            os.close(lock)

    def _run(self) -> int:
        self._trace.attempt = self._recovery.attempts.next_number
        self._trace.tell(trace.Process, role="controller", pid=os.getpid())
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._crew.wake_for(self._woken)
        try:
            self._recovery.begin()
            while True:
                self._turn()
        except RunEnd as end:
            return self._end(end)
        finally:
            signal.set_wakeup_fd(-1)

    def _turn(self) -> None:
        now = self._crew.clock.advance()
        for source in self._crew.wait(_TICK_SECONDS):
            if isinstance(source, Channel):
                self._receive(source)
            else:
                self._woken.recv(64)
        self._tick(now)

    # --- what is heard --------------------------------------------------------------------------------------

    def _receive(self, channel: Channel) -> None:
        worker = self._crew.of_channel(channel)
        try:
            for message in channel.receive():
                if worker is not None:
                    self._hear(worker, message)
                elif isinstance(message, say.Hello):
                    worker = self._crew.recognise(channel, message)
                if worker is None:
                    raise ChannelError("unknown worker")
        except ChannelError:
            if worker is None:
                self._crew.close(channel)
            else:
                self._lose(worker)

    def _hear(self, worker: Worker, message: say.FromWorker) -> None:
        worker.last_heard = self._crew.clock()
        match message:
            case say.Pong():
                return
            case say.Notice():
                self._is_told_to_stop = True
            case say.Failed(kind=kind, reason=reason):
                worker.kind, worker.reason = kind, reason
            case _:
                self._recovery.hear(worker, message)

    def _lose(self, worker: Worker) -> None:
        """A worker is gone, or its connection is, which comes to the same."""
        status = self._crew.end(worker)
        if status == -signal.SIGKILL and worker.kind == "process" and self._memory_kills.there_was_one():
            worker.kind = "out-of-memory"
        how = f"signal {-status}" if status < 0 else f"status {status}"
        self._recovery.lost(worker, worker.reason or f"its process ended with {how}")

    # --- what is noticed ------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        for worker in self._crew.exited():
            if worker.channel is None:
                self._lose(worker)
        limits = self._recovery.limits
        if now - self._last_ping >= limits.ping:
            self._last_ping = now
            for worker in self._crew.workers:
                worker.tell(say.Ping())
        for worker in self._crew.workers:
            if worker.channel is not None:
                worker.channel.flush()
        heard = [(worker.number, worker.last_heard) for worker in self._crew.workers if worker.channel]
        self._recovery.blame(silent(heard, limits.silence, now), "the worker does not answer")
        self._recovery.tick(now)
        if self._is_told_to_stop:
            self._stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._is_told_to_stop = True

    def _stop(self) -> None:
        """The platform takes the machines away: save and end, within the notice that it gives.

        It counts all time, whatever the controller did meanwhile.
        """
        now = time.monotonic()
        if self._stop_by is None:
            grace = self._job.policy.grace if self._job.policy else None
            self._stop_by = now + ((grace.notice_seconds if grace else None) or _GRACE_SECONDS)
            self._recovery.stop()
        elif now > self._stop_by:
            raise self._recovery.preempted()

    # --- the end --------------------------------------------------------------------------------------------

    def _end(self, end: RunEnd) -> int:
        for worker in self._crew.workers:
            worker.tell(say.Exit())
        until = time.monotonic() + _EXIT_SECONDS
        while any(worker.process.poll() is None for worker in self._crew.workers) and time.monotonic() < until:
            time.sleep(_TICK_SECONDS)
        self._trace.tell(trace.End, reason=end.reason, step=end.step, digest=end.digest)
        return end.status


WORKER = (sys.executable, "-m", "trainspec_reference.common.worker")
"""Command of a worker; the file of its assignment follows."""
ASSIGNMENT = ".assignment.json"


def launch(
    assignment: Assignment,
    settings: Settings,
    command: Sequence[str] = WORKER,
    controller: Callable[[Job, Settings, Sequence[str]], Controller] = Controller,
) -> int:
    """Run a job to its end; gives the exit status.

    Raises:
        OSError: the directory of the run cannot be written.
    """
    settings.directory.mkdir(parents=True, exist_ok=True)
    path = settings.directory / ASSIGNMENT
    assignment.write(path)
    told = {PROGRAMS_DIRECTORY: str(settings.programs_directory.resolve()), **settings.environment}
    settings = replace(settings, environment=told)
    return controller(assignment.job, settings, (*command, str(path))).run()


def hosts(num_ranks: int, num_hosts: int) -> tuple[str, ...]:
    """Names of the nodes over which ranks are spread evenly; ranks of one node are adjacent."""
    return tuple(f"node-{rank * num_hosts // num_ranks}" for rank in range(num_ranks))
