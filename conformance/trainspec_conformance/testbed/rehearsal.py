"""Trains a job for its numbers alone: nothing is saved, watched or recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainspec_reference.common import backend as backends
from trainspec_reference.common.backend import Backend, Formation
from trainspec_reference.common.channel import free_address
from trainspec_reference.common.job import Job
from trainspec_reference.common.ports import Ports, Surroundings, Wish
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.trainer import Trainer
from trainspec_reference.common.weights import initial_weights

from trainspec_conformance.testbed import backend_named
from trainspec_record.silent import NO_RUN
from trainspec_validate.documents.types.trace import StepDone, TraceRecord

TIMEOUT_SECONDS = 60.0


class NoPorts:
    """Surroundings that want nothing and take nothing."""

    def wishes(self) -> Wish:
        """As `Ports.wishes`."""
        return Wish.NONE

    def arrived(self, step: int) -> None:
        """No process waits."""

    def done(self, step: int) -> None:
        """No process watches."""

    def save(self, state: TrainerState) -> None:
        """Nothing is kept."""


class StepMemory(TraceWriter):
    """A trace that is kept in memory, steps alone."""

    def __init__(self) -> None:
        super().__init__(None, "rehearsal")
        self.steps: list[StepDone] = []

    def tell(self, record_type: type[TraceRecord], /, **values: Any) -> None:
        """Keep a step."""
        if record_type is StepDone:
            self.steps.append(StepDone(time_us=0, **values))


def only_rank() -> Formation:
    """A formation of one worker."""
    return Formation(0, 0, ("localhost",), free_address(), TIMEOUT_SECONDS)


@contextmanager
def built(name: str, job: Job, formation: Formation) -> Iterator[Backend]:
    """A backend that has joined a formation and holds the initial weights."""
    backend = backends.make(backend_named(name), job)
    backend.join(formation)
    try:
        backend.build(initial_weights(job.model, job.seed))
        yield backend
    finally:
        backend.leave()


def trainer_of(job: Job, backend: Backend, formation: Formation, ports: Ports, memory: StepMemory) -> Trainer:
    """A loop at its first step that records nothing."""
    return Trainer(job, backend, Surroundings(formation, ports, memory, NO_RUN), TrainerState.first(job.plan))


def rehearse(name: str, job: Job, formation: Formation | None = None) -> list[StepDone]:
    """Train to the end as one rank of a formation, or alone, and report each step."""
    formation, memory = formation or only_rank(), StepMemory()
    with built(name, job, formation) as backend:
        trainer_of(job, backend, formation, NoPorts(), memory).run()
    return memory.steps
