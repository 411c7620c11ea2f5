"""Trains in one process, without a controller: saves are synchronous, and an error is an end."""

from __future__ import annotations

import hashlib
import os
import signal
import uuid
from pathlib import Path

from trainspec_reference.common import messages as say
from trainspec_reference.common import telemetry
from trainspec_reference.common.assignment import Assignment
from trainspec_reference.common.attempts import Attempts
from trainspec_reference.common.backend import Backend, Formation, make
from trainspec_reference.common.channel import free_address
from trainspec_reference.common.checkpoints import SaveFacts, Vault, name_of
from trainspec_reference.common.job import Job
from trainspec_reference.common.ports import Outcome, Surroundings, TrainingFaultError, Wish
from trainspec_reference.common.reading import job_to_json
from trainspec_reference.common.run_settings import COMPLETED, NOTHING_RESTORABLE, PREEMPTED, Settings
from trainspec_reference.common.start_state import StartState
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.trainer import Trainer
from trainspec_reference.common.verification import search
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.documents.types import trace

FAULT = 1
"""Exit status of a run whose numbers are wrong."""
_ALL_KEPT = 1_000_000


class AlonePorts:
    """Surroundings of the only worker of a run: it saves by itself, and stops when it is told to."""

    def __init__(self, job: Job, backend: Backend, vault: Vault, run: str) -> None:
        self._job, self._backend, self._vault, self._run = job, backend, vault, run
        self._wish = Wish.NONE
        self.surroundings: Surroundings | None = None

    def stop(self) -> None:
        """Save and end after the step that is under way."""
        self._wish |= Wish.STOP

    def wishes(self) -> Wish:
        """As `Ports.wishes`."""
        given, self._wish = self._wish, Wish.NONE
        return given

    def arrived(self, step: int) -> None:
        """Nobody waits."""

    def done(self, step: int) -> None:  # noqa: ARG002
        """Nobody watches, but for the stream."""
        if self.surroundings is not None:
            telemetry.hurry(self.surroundings)

    def save(self, state: TrainerState) -> None:
        """Save at once; a save that fails is told, and training goes on."""
        around = self.surroundings
        if around is None:
            return
        name, save_id = name_of(state.step), uuid.uuid4().hex
        told = {"checkpoint": name, "step": state.step}
        around.trace.tell(trace.Save, stage="begin", rank=0, **told)
        try:
            with around.recorder.checkpoint(name):
                digest = self._commit(state, save_id)
        except OSError as error:
            self._vault.discard(save_id)
            around.trace.tell(trace.Save, stage="failed", reason=str(error)[:4096], **told)
        else:
            telemetry.settle(around)
            around.trace.tell(trace.Save, stage="committed", digest=digest, **told)

    def _commit(self, state: TrainerState, save_id: str) -> str:
        directory, digest = self._vault.stage(save_id), self._backend.digest()
        self._backend.write(self._backend.snapshot(), directory)
        policy = self._job.policy
        facts = SaveFacts(
            save_id=save_id,
            step=state.step,
            num_tokens=state.num_tokens,
            run=self._run,
            state=policy.state.items if policy else (),
            layout={"num_ranks": 1},
            config=f"sha256:{hashlib.sha256(job_to_json(self._job)).hexdigest()}",
            digest=digest,
            trainer=state.to_json(),
        )
        self._vault.commit(facts, _files(directory))
        return digest


def _files(directory: Path) -> list[say.File]:
    """Every file of a save with its digest.

    Raises:
        OSError: one cannot be read.
    """
    paths = tuple(sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()))
    found = []
    for path, digest in digests(directory, paths).items():
        if isinstance(digest, OSError):
            raise digest
        found.append(say.File(path=path, size_bytes=(directory / path).stat().st_size, sha256=digest))
    return found


def train_alone(assignment: Assignment, settings: Settings) -> int:
    """Train in this process from the newest good checkpoint, or from nothing; gives the exit status.

    Raises:
        OSError: the directory of the run cannot be written.
    """
    job, policy = assignment.job, assignment.job.policy
    vault = Vault(assignment.checkpoint_directory, policy.retention.num_kept if policy else _ALL_KEPT)
    vault.tidy()
    backend = make(assignment.backend, job)
    ports = AlonePorts(job, backend, vault, settings.run)
    signal.signal(signal.SIGTERM, lambda *_: ports.stop())
    number = Attempts(settings.directory / "attempt", settings.first_attempt).take()
    writer = TraceWriter(settings.trace_directory, "worker-0")
    writer.attempt = number
    writer.tell(trace.Process, role="rank", pid=os.getpid(), rank=0, host=settings.hosts[0])
    start = _start(vault, writer)
    if start is None:
        return NOTHING_RESTORABLE
    formation = Formation(number, 0, settings.hosts[:1], free_address(), timeout_seconds=60.0)
    backend.join(formation)
    recorder = telemetry.begin(job, formation, assignment.documents)
    ports.surroundings = Surroundings(formation, ports, writer, recorder)
    with recorder:
        state = StartState(job, backend, assignment.checkpoint_directory).take(start, ports.surroundings)
        return _run(Trainer(job, backend, ports.surroundings, state))


def _start(vault: Vault, writer: TraceWriter) -> say.Start | None:
    """Where to start from; None where something was saved, and nothing of it is good."""
    found = search(vault)
    for refusal in found.refusals:
        writer.tell(trace.Refused, checkpoint=refusal.checkpoint, reason=refusal.reason[:4096], file=refusal.file)
    if found.found is not None:
        return say.Start(source="checkpoint", step=found.found.step, checkpoint=found.found.name)
    return None if found.had_saved else say.Start(source="initial")


def _run(trainer: Trainer) -> int:
    around = trainer.surroundings
    try:
        outcome = trainer.run()
    except TrainingFaultError as error:
        around.trace.tell(trace.FaultSeen, kind=error.kind, rank=0, reason=str(error)[:4096])
        around.recorder.end("fault", error=type(error).__name__)
        reason, status = "fault", FAULT
    else:
        is_whole = outcome is Outcome.COMPLETED
        around.recorder.end("completed" if is_whole else "preempted")
        reason, status = ("completed", COMPLETED) if is_whole else ("preempted", PREEMPTED)
    around.trace.tell(trace.End, reason=reason, step=trainer.state.step, digest=trainer.backend.digest())
    trainer.backend.leave()
    return status
