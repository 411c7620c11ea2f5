"""Mutants of the state that a resume preserves, and of the handling of non-finite numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from registry import Mutant, add, mutant
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_reference.common import messages as say
from trainspec_reference.common import restart_state, saves, start_state, trainer
from trainspec_reference.common.backend import Gradients
from trainspec_reference.common.batch_schedule import LearningRates, StepBatch
from trainspec_reference.common.ports import Surroundings
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trainer import Step

from trainspec_validate.documents import types as documents
from trainspec_validate.documents.types.conformance import Task

RESUMED = "it resumes from a checkpoint there, and is compared with a run that does not"
RESUMES = (*range(101, 104), *range(105, 117), 118, 119, 122, 123, *range(125, 130), 132, 135, 136, 137, 205)
ALSO = {f"TS-CNF-{number}": RESUMED for number in RESUMES}


def _but(number: int) -> dict[str, str]:
    return {name: why for name, why in ALSO.items() if name != f"TS-CNF-{number}"}


def _after_restore(change: Callable[[PlainBackend], None]) -> None:
    """Change the state of the backend after a checkpoint was read; its digest is not compared."""
    restore = PlainBackend.restore

    def changed(self: PlainBackend, directory: Path) -> None:
        restore(self, directory)
        change(self)

    PlainBackend.restore = changed  # type: ignore[method-assign]
    start_state.recorded_digest = lambda root: None


def restored_state(change: Callable[[TrainerState], TrainerState]) -> None:
    """Change the state of the trainer after it was read from a checkpoint."""
    from_checkpoint = start_state.StartState._from_checkpoint

    def changed(self: start_state.StartState, *arguments: Any) -> tuple[TrainerState, str]:
        state, digest = from_checkpoint(self, *arguments)
        return change(state), digest

    start_state.StartState._from_checkpoint = changed  # type: ignore[method-assign]


@mutant("forgets-optimizer", "TS-CNF-125", "Starts the optimizer anew.", also=_but(125))
def forgets_optimizer() -> None:
    def forget(backend: PlainBackend) -> None:
        backend._optimizer.first[...] = 0
        backend._optimizer.second[...] = 0

    _after_restore(forget)


@mutant("forgets-rates", "TS-CNF-125", "Starts the schedule of the learning rate anew.", also=_but(125))
def forgets_rates() -> None:
    start = {"step": 0}

    def note(state: TrainerState) -> TrainerState:
        start["step"] = state.step
        return state

    restored_state(note)
    at = LearningRates.at

    def anew(self: LearningRates, update: int, step: StepBatch, noise_sequences: float | None) -> float:
        return at(self, max(1, update - start["step"]), step, noise_sequences)

    LearningRates.at = anew  # type: ignore[method-assign]


@mutant("forgets-random-state", "TS-CNF-125", "Starts the random state of one rank anew.")
def forgets_random_state() -> None:
    def forget(backend: PlainBackend) -> None:
        if backend._formation.rank == 0:
            backend._random = backend._fresh_random()

    _after_restore(forget)


@mutant("starts-from-nothing", "TS-CNF-125", "Starts from step 0, and reports step 0.", also=_but(125))
def starts_from_nothing() -> None:
    restart_state.StateSource.checkpoint = lambda self: say.Start(source="initial")  # type: ignore[method-assign]


@mutant("forgets-position", "TS-CNF-126", "Starts the order of samples anew.", also=_but(126))
def forgets_position() -> None:
    restored_state(lambda state: replace(state, num_samples=0))


@mutant("repeats-a-batch", "TS-CNF-126", "Consumes the last batch again after a resume.", also=_but(126))
def repeats_a_batch() -> None:
    restored_state(lambda state: replace(state, num_samples=max(0, state.num_samples - 8)))


def _per_rank(task: Task) -> Task:
    job = task.job
    return documents.changed(task, job=documents.changed(job, global_sequences=4 * job.num_ranks))


add(
    Mutant(
        name="batch-follows-ranks",
        lie="Keeps the samples of each rank, so that the global batch changes.",
        requirement="TS-CNF-127",
        also=dict.fromkeys(
            ("TS-CNF-205", "TS-CNF-207", "TS-CNF-312", "TS-CNF-314"), "the job has other ranks than two"
        ),
        task=_per_rank,
    )
)


@mutant("applies-nan", "TS-CNF-121", "Applies every gradient.",
        also={"TS-CNF-213": "an overflow is a gradient that is not finite"})  # fmt: skip
def applies_nan() -> None:
    gradients = PlainBackend.gradients

    def fine(self: PlainBackend, *arguments: Any, **more: Any) -> Gradients:
        return replace(gradients(self, *arguments, **more), is_finite=True)

    PlainBackend.gradients = fine  # type: ignore[method-assign]


@mutant("skips-silently", "TS-CNF-121", "Skips the step without a report.",
        also={"TS-CNF-303": "the stream counts steps there that the trace does not have",
              "TS-CNF-213": "the loss scale is requested of steps that it does not report"})  # fmt: skip
def skips_silently() -> None:
    tell = Step.tell

    def quiet(self: Step, surroundings: Surroundings, num_updates: int) -> None:
        if self.skipped is None:
            tell(self, surroundings, num_updates)

    Step.tell = quiet  # type: ignore[method-assign]


@mutant("never-compares", "TS-CNF-122", "Claims to compare replicas, and does not.")
def never_compares() -> None:
    nothing: Any = lambda *_: None  # noqa: E731
    trainer.compare_replicas = nothing
    saves.Saves._compare = nothing  # type: ignore[method-assign]
