"""Lets a worker of the reference trainers do the damage to itself that a test has planted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from trainspec_reference.common.backend import Backend, Gradients
from trainspec_reference.common.data import Loaded
from trainspec_reference.common.job import Job
from trainspec_reference.common.trainer import Trainer


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """Damage that a worker does to itself at a step."""

    kind: Literal[
        "exception",
        "nan-gradient",
        "inf-gradient",
        "flip-parameter-bit",
        "livelock",
        "slow",
        "data-delay",
        "long-pause",
    ]
    rank: int
    """-1 is the last rank."""
    step: int
    """Optimizer step before which it happens: as many are completed."""
    num_steps: int = 1
    seconds: float = 0.0
    """Added time of each step, for `slow`, `data-delay` and `long-pause`."""
    every_attempt: bool = False
    """Whether it happens in every formation, and not in the first alone."""


@dataclass(frozen=True, slots=True)
class PlantedJob(Job):
    """A job with faults, which `testbed.worker` follows; a worker of the trainers sees the job alone."""

    faults: tuple[PlantedFault, ...] = ()


def planted(job: Job, faults: Sequence[PlantedFault]) -> PlantedJob:
    """The job with these faults."""
    return PlantedJob(**{field.name: getattr(job, field.name) for field in fields(Job)}, faults=tuple(faults))


class _Assigned(msgspec.Struct):
    job: dict[str, Any]


def faults_in(assignment: Path) -> tuple[PlantedFault, ...]:
    """Faults of the job in the file of an assignment.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    job = msgspec.json.decode(assignment.read_bytes(), type=_Assigned).job
    return msgspec.convert(job.get("faults", ()), tuple[PlantedFault, ...])


class PlantedExceptionError(Exception):
    """The exception that a test asked for."""


class PlantedTrainer(Trainer):
    """The loop of one worker, with the faults of its class."""

    faults: ClassVar[tuple[PlantedFault, ...]] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._num_done: Counter[PlantedFault] = Counter()
        self._samples, self._added_seconds = self._feed.samples, 0.0

    def _step(self) -> None:
        self._added_seconds, delay_seconds = 0.0, self._samples.data.delay_seconds
        for fault in filter(self._is_due, self.faults):
            self._num_done[fault] += 1
            match fault.kind:
                case "exception":
                    raise PlantedExceptionError(f"planted before step {self.state.step + 1}")
                case "livelock":
                    while True:
                        time.sleep(0.01)
                case "slow":
                    self._added_seconds += fault.seconds
                case "data-delay":
                    delay_seconds += fault.seconds
                case "long-pause":
                    time.sleep(fault.seconds)
                case _:
                    corrupt(self.backend, fault.kind)
        data = replace(self._samples.data, delay_seconds=delay_seconds)
        self._feed.samples = replace(self._samples, data=data)
        super()._step()

    def _gradients(self, loaded: Loaded, arrived: Callable[[], None]) -> Gradients:
        if self._added_seconds:
            time.sleep(self._added_seconds)
        return super()._gradients(loaded, arrived)

    def _is_due(self, fault: PlantedFault) -> bool:
        formation, step = self.surroundings.formation, self.state.step
        is_here = fault.rank % formation.num_ranks == formation.rank
        # A step that is skipped is tried again with the same number, and the fault is not.
        is_now = fault.step <= step < fault.step + fault.num_steps and self._num_done[fault] < fault.num_steps
        return is_here and is_now and (fault.every_attempt or formation.number == 0)


def with_faults(faults: Sequence[PlantedFault]) -> type[Trainer]:
    """The loop of a worker that has these faults."""
    return type("WithFaults", (PlantedTrainer,), {"faults": tuple(faults)})


def corrupt(backend: Backend, fault: str) -> None:
    """Do damage of a named kind to a rank.

    `nan-gradient` and `inf-gradient` put one such entry into this rank's part of the next gradient, before the
    exchange; `flip-parameter-bit` flips the highest bit of the mantissa of one parameter at once.
    """
    framework = type(backend).__module__.split(".")[-2]
    import_module(f"trainspec_conformance.testbed.{framework}.damage").corrupt(backend, fault)
