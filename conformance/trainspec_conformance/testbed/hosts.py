"""Runs the workers of the reference trainers on hosts that the suite makes, and leaves those that are cut off."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence

from trainspec_reference.common.controller import Controller
from trainspec_reference.common.crew import LEASE, Clock, Crew, Worker
from trainspec_reference.common.decisions import Episode
from trainspec_reference.common.job import Job
from trainspec_reference.common.messages import FromWorker
from trainspec_reference.common.recovery import Recovery
from trainspec_reference.common.run_settings import Settings

from trainspec_conformance.testbed.muster import Bell, Muster, Reached
from trainspec_conformance.testbed.places import ADDRESS, Place, Places

LEASE_SECONDS = 15.0
"""After so long without a word of its controller a worker ends: it may have been replaced."""
_UNANSWERED_PINGS = 4
"""After so many a worker is out of reach, if it is to blame for something else, too."""


class OutOfReach:
    """Process of unknown state, which its crew takes for dead."""

    returncode = -9

    def poll(self) -> int:
        """As that of a process."""
        return self.returncode


class HostsCrew(Crew):
    """Workers on hosts."""

    def __init__(
        self,
        clock: Clock,
        command: Sequence[str],
        environment: Mapping[str, str],
        places: Mapping[str, Place],
        address: str,
    ) -> None:
        super().__init__(clock, command, environment, address)
        self.places = Places(places)
        self._given_up: list[subprocess.Popen[bytes]] = []

    def _process(self, host: str | None, told: Mapping[str, str]) -> subprocess.Popen[bytes]:
        place = self.places.of(host)
        if place is None:
            return super()._process(host, told)
        of_host = {ADDRESS: place.address, LEASE: str(LEASE_SECONDS), "GLOO_SOCKET_IFNAME": place.interface}
        environment = {**self._environment, **told, **of_host}
        return subprocess.Popen([*place.enter, *self._command], env=environment, stdin=subprocess.DEVNULL)  # noqa: S603

    def give_up(self, worker: Worker) -> None:
        """Count on a worker no more that is out of reach: it has to notice that itself, and cannot be made to end."""
        self._given_up.append(worker.process)
        worker.process = OutOfReach()  # type: ignore[assignment]
        if worker.channel is not None:
            self.close(worker.channel)
        self.workers = [other for other in self.workers if other is not worker]

    def end_all(self) -> None:
        """Leave no process behind."""
        super().end_all()
        for process in self._given_up:
            process.kill()
            process.wait()


class HostsRecovery(Recovery):
    """Forms up once all workers reach each other."""

    _crew: HostsCrew
    _muster: Muster | None = None

    def hear(self, worker: Worker, message: FromWorker) -> None:
        """As `Recovery.hear`, and reports of a worker on its peers."""
        match message:
            case Bell(address=address):
                worker.notes["address"] = address
            case Reached():
                if self._muster is not None:
                    self._muster.hear(worker, message)
            case _:
                super().hear(worker, message)

    def lost(self, worker: Worker, reason: str) -> None:
        """As `Recovery.lost`; the host of a worker that never came, or is out of reach, gets no other."""
        if worker.channel is None:
            self._crew.places.cut_off(worker.host)
        super().lost(worker, reason)

    def blame(self, numbers: Iterable[int], reason: str) -> None:
        """As `Recovery.blame`; a worker that has not answered for long is given up, for it cannot be ended."""
        silence, blamed = _UNANSWERED_PINGS * self.limits.ping, set(numbers)
        for worker in [worker for worker in self._crew.workers if worker.number in blamed]:
            if self._crew.places.of(worker.host) is None or self._crew.clock() - worker.last_heard <= silence:
                super().blame([worker.number], reason)
            else:
                worker.kind = "network"
                self._crew.places.cut_off(worker.host)
                self._crew.give_up(worker)
                self.lost(worker, reason)

    def _fault(self, sign: Episode) -> Episode:
        self._muster = None
        return super()._fault(sign)

    def _refilled(self) -> list[Worker]:
        found: list[Worker] = []
        taken = [member.host for member in self._members if member.is_alive]
        for member in self._members:
            if member.is_alive:
                found.append(member)
                continue
            host = self._crew.places.for_worker(member.host, taken)
            taken.append(host)
            found.append(self._crew.start(host))
        return found

    def _gather(self) -> None:
        """Form up when all reach each other; whoever does not is replaced by a worker on another host."""
        if not all("address" in member.notes for member in self._members):
            return
        muster = self._muster or Muster(self._members, self._crew.clock)
        self._muster = None if muster.is_over else muster
        if muster.is_over:
            outside = muster.outside()
            for worker in outside:
                self._crew.places.cut_off(worker.host)
                self._crew.end(worker)
            if outside:
                self._members = self._refilled()
            else:
                self._form(muster.address)


class HostsController(Controller):
    """The controller of a run on hosts; rank 0 serves each formation at an address that all others have reached."""

    recovery = HostsRecovery

    def __init__(
        self, job: Job, settings: Settings, command: Sequence[str], *, places: Mapping[str, Place], address: str
    ) -> None:
        self._places, self._address = places, address
        super().__init__(job, settings, command)

    def _make_crew(self, command: Sequence[str]) -> Crew:
        return HostsCrew(Clock(), command, self._settings.environment, self._places, self._address)
