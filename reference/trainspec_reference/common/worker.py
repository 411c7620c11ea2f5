"""Runs the process of a worker: it joins formations, gets its state, trains, and leaves them."""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from trainspec_reference.common import messages as say
from trainspec_reference.common import telemetry
from trainspec_reference.common.backend import Backend, CheckpointUnreadableError, Formation, PeerLostError, make
from trainspec_reference.common.channel import Link
from trainspec_reference.common.crew import CONTROLLER, LEASE, NUMBER, TOKEN, die_with_parent
from trainspec_reference.common.decisions import replicas_are_whole
from trainspec_reference.common.ports import Surroundings, TrainingFaultError, Wish
from trainspec_reference.common.run_settings import Assignment
from trainspec_reference.common.saver import WorkerPorts
from trainspec_reference.common.start_state import StartState
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.trainer import Trainer
from trainspec_validate.documents.types import trace

CONTROLLER_GONE = 4
"""Exit status of a worker whose controller is gone."""


class WorkerProcess:
    """One worker from its first formation to the end of the run."""

    def __init__(self, assignment: Assignment, backend: Backend, link: Link, number: int) -> None:
        self._assignment, self._job, self._backend, self._link = assignment, assignment.job, backend, link
        self._trace = TraceWriter(assignment.trace_directory, f"worker-{number}")
        self._start = StartState(assignment.job, backend, assignment.checkpoint_directory)
        self._orders: queue.SimpleQueue[say.Form | say.Leave | say.Exit] = queue.SimpleQueue()
        self._formation: int | None = None
        self._over = -1
        """The newest formation that is over."""
        self._ports: WorkerPorts | None = None
        self._recorder: telemetry.Recorder | None = None
        self._has_told = False

    def heard(self, message: say.FromController) -> None:
        """Take what the controller says; called by the thread of the channel, whatever the loop does."""
        match message:
            case say.Ping():
                self._link.say(say.Pong())
            case say.Stop():
                if self._ports:
                    self._ports.wish(Wish.STOP)
            case say.Write() | say.Hash() | say.SaveEnded():
                if self._ports:
                    self._ports.heard(message)
            case say.Form():
                is_asynchronous = self._job.policy is not None and self._job.policy.save.mode == "asynchronous"
                self._ports = WorkerPorts(self._backend, self._link, is_asynchronous=is_asynchronous)
                self._orders.put(message)
            case say.Leave(formation=number):
                self._over = number
                if self._ports:
                    self._ports.end()
                self._orders.put(message)
                if number == self._formation:  # the loop may wait for a kernel that waits for a lost peer
                    self._backend.abort()
            case say.Exit():
                self._orders.put(message)

    def run(self) -> None:
        """Do what the controller says until it says that it is over."""
        while True:
            match self._orders.get():
                case say.Form() as form:
                    self._form(form)
                case say.Leave(formation=number):
                    if number == self._formation:
                        self._leave("fault")
                case say.Exit():
                    return

    # --- one formation --------------------------------------------------------------------------------------

    def _form(self, form: say.Form) -> None:
        """Train in a formation until it is over; what ends it early is told."""
        self._formation = form.formation
        ended = self._tried(form)
        if ended is not None:  # the error is gone by now, and with it what its calls held of the formation
            message, error = ended
            self._link.say(message)
            self._leave("fault", error)

    def _tried(self, form: say.Form) -> tuple[say.Ended, str] | None:
        """What ended a formation early, to be told, and the name of the error; None where nothing did."""
        try:
            self._train(form)
        except PeerLostError as error:
            return _ended(form, error, kind="network")
        except TrainingFaultError as error:
            self._start.forget()
            return _ended(form, error, kind=error.kind, rank=error.rank, is_final=error.action == "stop")
        except CheckpointUnreadableError as error:
            self._start.forget()
            return _ended(form, error, kind="storage", checkpoint=form.start.checkpoint)
        return None

    def _train(self, form: say.Form) -> None:
        ports = self._ports
        if ports is None or self._over >= form.formation:
            raise PeerLostError("the formation is over")
        formation = Formation(form.formation, form.rank, form.hosts, form.address, form.timeout_seconds)
        self._introduce(formation)
        self._backend.join(formation)
        self._recorder = telemetry.begin(self._job, formation, self._assignment.documents)
        ports.surroundings = surroundings = Surroundings(formation, ports, self._trace, self._recorder)
        state = self._start.take(form.start, surroundings)
        self._link.say(say.Ready(formation=form.formation, step=state.step))
        if form.start.save_first:
            ports.save(state)
        trainer = Trainer(self._job, self._backend, surroundings, state)
        try:
            was_stopped = trainer.run()
            ports.wait()
        finally:
            self._start.held = trainer.state
        digest = self._backend.digest()
        self._end_recording("preempted" if was_stopped else "completed")
        self._link.say(
            say.Finished(formation=form.formation, step=trainer.state.step, was_stopped=was_stopped, digest=digest)
        )

    def _introduce(self, formation: Formation) -> None:
        self._trace.attempt = formation.number
        if not self._has_told:
            self._has_told = True
            host = formation.hosts[formation.rank]
            self._trace.tell(trace.Process, role="rank", pid=os.getpid(), rank=formation.rank, host=host)

    def _leave(self, reason: str, error: str | None = None) -> None:
        """Leave the formation, and say what state is held."""
        number = self._formation if self._formation is not None else -1
        if self._ports:
            self._ports.end()
        held = self._start.held
        digest = self._start.digest if replicas_are_whole(self._job) else None
        self._backend.leave()
        self._backend.discard()
        self._end_recording(reason, error)
        self._formation = None
        self._link.say(
            say.Left(
                formation=number,
                step=held.step if held else None,
                digest=digest,
                state=held.to_json().decode() if held else None,
            )
        )

    def _end_recording(self, reason: str, error: str | None = None) -> None:
        if self._recorder is not None:
            self._recorder.end(reason, error=error)
            self._recorder = None


def _ended(form: say.Form, error: Exception, **facts: Any) -> tuple[say.Ended, str]:
    return say.Ended(formation=form.formation, reason=str(error)[:4096], **facts), type(error).__name__


def _tell_failure(link: Link, error: BaseException) -> None:
    text = f"{type(error).__name__}: {error}"
    is_memory = isinstance(error, MemoryError) or "out of memory" in text.lower()
    link.say(say.Failed(kind="out-of-memory" if is_memory else "process", reason=text[:4096]))


def _hello(number: int, backend: Backend) -> say.Hello:
    return say.Hello(token=os.environ[TOKEN], worker=number, can_rejoin=backend.can_rejoin)


def _lease_seconds() -> float | None:
    return float(os.environ[LEASE]) if LEASE in os.environ else None


def main(arguments: list[str]) -> None:
    """Work for the controller that the environment names; the argument is the file of the assignment."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assignment = Assignment.read(Path(arguments[0]))
    backend = make(assignment.backend, assignment.job)
    gc.freeze()  # libraries stay: looking through them would take most of the time of giving a formation up
    number = int(os.environ[NUMBER])
    link = Link(os.environ[CONTROLLER], _hello(number, backend), CONTROLLER_GONE, _lease_seconds())
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=link.say, args=(say.Notice(),)).start())
    worker = WorkerProcess(assignment, backend, link, number)
    link.listen(worker.heard)
    status = 0
    try:
        worker.run()
    except BaseException as error:  # whatever it was, the controller has to know
        traceback.print_exc()
        _tell_failure(link, error)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of libraries, and of a save that hangs, must not keep the process


if __name__ == "__main__":
    main(sys.argv[1:])
