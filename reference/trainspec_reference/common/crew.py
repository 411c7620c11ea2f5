"""Starts and ends the processes of workers."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainspec_reference.common.channel import LOOPBACK, Channel
from trainspec_reference.common.decisions import Kind
from trainspec_reference.common.messages import FromController, Hello

LONGEST_TURN_SECONDS = 0.5
"""A turn of the controller's loop counts as no more: it was suspended, starved, or waited for storage itself."""


class Clock:
    """Time that advances between two turns of the loop only, and by at most one turn.

    Messages that a worker sent during a longer turn are read before the time counts against that worker.
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


CONTROLLER, TOKEN, NUMBER, LEASE = (
    f"TRAINSPEC_REFERENCE_{name}" for name in ("CONTROLLER", "TOKEN", "WORKER", "LEASE")
)
"""Variables by which a worker finds its controller and says who it is. The last one is for a worker on another host,
which may have been replaced: it ends after so many seconds without a word of its controller."""
_WAIT_SECONDS = 10.0


@dataclass(slots=True)
class Worker:
    """A process that trains, or is on standby to do so."""

    number: int
    process: subprocess.Popen[bytes]
    host: str | None
    """Host that it represents; None while it is on standby."""
    last_heard: float
    """By the clock of the crew; before it has said anything, when it was started."""
    channel: Channel | None = None
    """Once it has said hello."""
    can_rejoin: bool = True
    reason: str | None = None
    """Error that it reported before it died."""
    kind: Kind = "process"
    """Kind of fault that its death is."""
    notes: dict[str, str] = field(default_factory=dict)
    """Further data of a controller of another kind."""

    @property
    def is_alive(self) -> bool:
        """Whether it has a process that is within reach."""
        return self.process.returncode is None

    def tell(self, message: FromController) -> None:
        """Say something to it; what is said to a worker that is gone is lost."""
        if self.channel is not None:
            self.channel.send(message)


class Crew:
    """All workers of a run that are alive, with the means to start more."""

    def __init__(
        self,
        clock: Clock,
        command: Sequence[str],
        environment: Mapping[str, str],
        address: str = LOOPBACK,
    ) -> None:
        self.clock = clock
        self.workers: list[Worker] = []
        self._listener = socket.create_server((address, 0))
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._token = secrets.token_hex(16)
        self._command, self._environment = list(command), dict(environment)
        self._num_started = 0

    def start(self, host: str | None) -> Worker:
        """Start a process for a host, or a standby process.

        Raises:
            OSError: the command cannot be run.
        """
        number = self._num_started
        address, port = self._listener.getsockname()
        told = {CONTROLLER: f"{address}:{port}", TOKEN: self._token, NUMBER: str(number)}
        worker = Worker(number, self._process(host, told), host, self.clock())
        self._num_started += 1
        self.workers.append(worker)
        return worker

    def _process(self, host: str | None, told: Mapping[str, str]) -> subprocess.Popen[bytes]:  # noqa: ARG002
        """The process of a worker; all run on this host, whatever host they stand for."""
        return subprocess.Popen(self._command, env={**self._environment, **told}, stdin=subprocess.DEVNULL)  # noqa: S603 - the user's

    def wake_for(self, source: socket.socket) -> None:
        """Have `wait` end for a further source, too."""
        self._selector.register(source, selectors.EVENT_READ)

    def wait(self, seconds: float) -> Iterator[Channel | socket.socket]:
        """Connections that have something to say, and other sources; new connections are taken on the way."""
        for key, _ in self._selector.select(seconds):
            match key.fileobj:
                case Channel() as channel if channel.is_open:
                    yield channel
                case socket.socket() as listener if listener is self._listener:
                    with contextlib.suppress(OSError):  # until no worker waits
                        while True:
                            self._selector.register(Channel(listener.accept()[0]), selectors.EVENT_READ)
                case socket.socket() as source:
                    yield source

    def close(self, channel: Channel) -> None:
        """End a connection."""
        if channel.is_open:
            self._selector.unregister(channel)
            channel.close()

    @property
    def num_standing_by(self) -> int:
        """Workers without a host."""
        return sum(worker.host is None for worker in self.workers)

    def spare(self, host: str | None) -> Worker | None:
        """Assign a standby worker to a host: a ready one, or one that will soon be ready."""
        waiting = [worker for worker in self.workers if worker.host is None]
        waiting.sort(key=lambda worker: worker.channel is None)
        if not waiting:
            return None
        waiting[0].host = host
        return waiting[0]

    def recognise(self, channel: Channel, hello: Hello) -> Worker | None:
        """The worker of a new connection; None where it is none of this run."""
        for worker in self.workers:
            if worker.number == hello.worker and worker.channel is None and self._is_ours(hello):
                worker.channel, worker.can_rejoin, worker.last_heard = channel, hello.can_rejoin, self.clock()
                return worker
        return None

    def _is_ours(self, hello: Hello) -> bool:
        return secrets.compare_digest(hello.token.encode(), self._token.encode())

    def of_channel(self, channel: Channel) -> Worker | None:
        """The worker at the other end; None for one that has not said hello."""
        return next((worker for worker in self.workers if worker.channel is channel), None)

    def exited(self) -> Iterator[Worker]:
        """Workers whose process has ended by itself."""
        yield from [worker for worker in self.workers if worker.process.poll() is not None]

    def end(self, worker: Worker) -> int:
        """Kill a process, stopped or not, and wait until it is gone; gives its exit status."""
        with contextlib.suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGKILL)
        status = worker.process.wait(_WAIT_SECONDS)
        if worker.channel is not None:
            self.close(worker.channel)
        self.workers = [other for other in self.workers if other is not worker]
        return status

    def end_all(self) -> None:
        """Leave no process behind."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGKILL)
        for worker in tuple(self.workers):
            self.end(worker)
        for key in tuple(self._selector.get_map().values()):
            if isinstance(key.fileobj, Channel):
                self.close(key.fileobj)
        self._listener.close()
        self._selector.close()


def die_with_parent() -> None:
    """Have the kernel kill this process when its controller is gone, even while it is stopped; Linux alone can."""
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415

    parent_death_signal = 1  # PR_SET_PDEATHSIG, https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    before = os.getppid()
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != before:
        os._exit(1)
