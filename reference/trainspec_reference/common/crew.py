"""The only place that starts and ends the processes of workers."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainspec_reference.common.channel import Channel, Listener
from trainspec_reference.common.messages import FromController, Hello

CONTROLLER, TOKEN, NUMBER = (f"TRAINSPEC_REFERENCE_{name}" for name in ("CONTROLLER", "TOKEN", "WORKER"))
"""Variables by which a worker finds its controller and says who it is."""
_WAIT_SECONDS = 10.0


@dataclass(slots=True)
class Worker:
    """A process that trains, or stands by to do so."""

    number: int
    process: subprocess.Popen[bytes]
    host: str | None
    """Host that it stands for; None while it stands by."""
    started: float
    """Monotonic time."""
    channel: Channel | None = None
    """Once it has said hello."""
    can_rejoin: bool = True
    reason: str | None = None
    """What it said before it died."""
    kind: str = "process"
    """Kind of fault that its death is."""
    last_heard: float = field(default_factory=time.monotonic)

    def tell(self, message: FromController) -> None:
        """Say something to it; what is said to a worker that is gone is lost."""
        if self.channel is not None:
            self.channel.send(message)


class Crew:
    """All workers of a run that are alive, with the means to start more."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.listener = Listener()
        self.workers: list[Worker] = []
        self._strangers: list[Channel] = []
        self._token = secrets.token_hex(16)
        self._command, self._environment = list(command), dict(environment)
        self._num_started = 0

    def start(self, host: str | None) -> Worker:
        """Start a process for a host, or one that stands by.

        Raises:
            OSError: the command cannot be run.
        """
        number = self._num_started
        told = {CONTROLLER: self.listener.address, TOKEN: self._token, NUMBER: str(number)}
        environment = {**self._environment, **told}
        process = subprocess.Popen(self._command, env=environment, stdin=subprocess.DEVNULL)  # noqa: S603 - the user's
        self._num_started += 1
        worker = Worker(number, process, host, time.monotonic())
        self.workers.append(worker)
        return worker

    def admit(self) -> list[Channel]:
        """Connections that were made since; each is a stranger until it says hello."""
        found = []
        while channel := self.listener.accept():
            found.append(channel)
        self._strangers += found
        return found

    def recognise(self, channel: Channel, hello: Hello) -> Worker | None:
        """The worker of a new connection; None where it is none of this run, and the connection is closed."""
        self._strangers = [other for other in self._strangers if other is not channel]
        for worker in self.workers:
            if worker.number == hello.worker and worker.channel is None and self._is_ours(hello):
                worker.channel, worker.can_rejoin, worker.last_heard = channel, hello.can_rejoin, time.monotonic()
                return worker
        channel.close()
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
            worker.channel.close()
        self.workers = [other for other in self.workers if other is not worker]
        return status

    def end_all(self) -> None:
        """Leave no process behind."""
        for worker in tuple(self.workers):
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGKILL)
        for worker in tuple(self.workers):
            self.end(worker)
        for channel in self._strangers:
            channel.close()
        self.listener.close()


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
