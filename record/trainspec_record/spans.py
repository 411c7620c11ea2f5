"""The blocks that a training script runs under `with`: optimizer steps, evaluations, saves, faults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from trainspec_record import values
from trainspec_record.catalog import events
from trainspec_record.guard import never_raises
from trainspec_record.redaction import GIVEN_UP

if TYPE_CHECKING:
    from trainspec_record.job import Job
    from trainspec_record.recording import Run

PLACES = {"location": "train.checkpoint.location", "durability": "train.checkpoint.durability"}


class Span(ABC):
    """A block of the training script; what goes wrong in it passes through, and nothing of the recorder does."""

    is_noted = False
    """Whether its begin and end are noted, for the thread of the pump; else the script does the work."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Self:
        """The block begins."""
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The block ends; an error in it is told by the name of its type alone, for texts can hold secrets."""
        self._finish(kind.__name__ if kind is not None else None)

    @never_raises(None)
    def _begin(self) -> None:
        if not self._run.is_active:
            return
        if self.is_noted:
            self._run.pending.put(self._opened)
            return
        with self._run.lock:
            if self._run.is_active:
                self._run.pending.apply()
                self._opened(self._run.clock.now_us())

    @never_raises(None)
    def _finish(self, error: str | None) -> None:
        if not self._run.is_active:
            return
        if self.is_noted:
            self._run.pending.put(self._closed, error)
            return
        with self._run.lock:
            if self._run.is_active:
                self._run.pending.apply()
                self._closed(self._run.clock.now_us(), error)

    @abstractmethod
    def _opened(self, now_us: int) -> None:
        """What the run writes when the block begins."""

    @abstractmethod
    def _closed(self, now_us: int, error: str | None) -> None:
        """What the run writes when the block ends."""

    @property
    def _job(self) -> Job | None:
        return self._run.job


class Step(Span):
    """One optimizer update."""

    is_noted = True

    def __init__(self, run: Run, number: int | None) -> None:
        super().__init__(run)
        self.number = number

    def _opened(self, now_us: int) -> None:
        self._run.begin_training(self.number, now_us)

    def _closed(self, now_us: int, error: str | None) -> None:
        if error is None:
            self._run.complete_step(now_us)


class Phase(Span):
    """A part of a step that the rank spends on one thing; phases do not overlap."""

    is_noted = True

    def __init__(self, run: Run, name: str) -> None:
        super().__init__(run)
        self.name = name
        self._since_us = 0

    def _opened(self, now_us: int) -> None:
        self._since_us = now_us
        if self.name == "data_wait" and self._run.ledger.trains:
            self._run.ledger.enter(self, "data_wait", now_us)

    def _closed(self, now_us: int, error: str | None) -> None:  # noqa: ARG002 - time passed, whatever it ended with
        self._run.ledger.leave(self, now_us)
        if self._run.ledger.trains:
            self._run.rank.spend(self.name, now_us - self._since_us)


class Evaluation(Span):
    """An evaluation that training waits for."""

    def __init__(self, run: Run, name: str, identifier: str) -> None:
        super().__init__(run)
        self.name, self.identifier = name, identifier
        self._losses: dict[str, Any] = {}

    @never_raises(None)
    def log(self, loss: Any = None, *, synchronise: bool = False, **losses: Any) -> None:
        """Mean losses over all tokens of the set that are not masked: the objective, and others by their names."""
        for name, value in {"total": loss, **losses}.items():
            if value is not None:
                self._losses[name] = values.synchronised(value) if synchronise else value

    def _opened(self, now_us: int) -> None:
        self._run.ledger.enter(self, "evaluation", now_us)
        if self._job:
            self._job.event(now_us, events.EVALUATION_BEGIN.name, id=self.identifier, a=self._set)

    @property
    def _set(self) -> dict[str, Any]:
        return {"train.evaluation.set": self.name}

    def _closed(self, now_us: int, error: str | None) -> None:
        self._run.ledger.leave(self, now_us)
        if self._job:
            a = {**self._set, "train.evaluation.outcome": "aborted" if error else "completed"}
            m = {
                values.key("train.evaluation.loss", train__evaluation__set=self.name, train__loss__name=name): value
                for name, value in self._losses.items()
            }
            self._job.event(now_us, events.EVALUATION_END.name, id=self.identifier, a=a, m=m or None)


class Save(Span):
    """A save: the block is the time that training is paused; an asynchronous save is committed later."""

    def __init__(
        self, run: Run, identifier: str, *, asynchronous: bool, size_bytes: Any, places: dict[str, Any]
    ) -> None:
        super().__init__(run)
        self.identifier = identifier
        self._asynchronous, self._size_bytes, self._places = asynchronous, size_bytes, places
        self._step = 0
        self._begun_us = self._blocked_us = 0
        self._is_open = self._is_committed = False

    def _opened(self, now_us: int) -> None:
        self._begun_us = now_us
        self._is_open = True
        self._run.ledger.enter(self, "checkpoint_save", now_us)
        self._run.open_saves[self.identifier] = self
        if self._job:
            self._step = self._job.progress.step
            self._job.event(now_us, events.CHECKPOINT_BEGIN.name, id=self.identifier, a=self._id)

    @property
    def _id(self) -> dict[str, Any]:
        return {"train.checkpoint.id": self.identifier}

    def _closed(self, now_us: int, error: str | None) -> None:
        self._run.ledger.leave(self, now_us)
        self._blocked_us = now_us - self._begun_us
        if error is not None:
            self.end(now_us, error)
        elif not self._asynchronous:
            self._commit(now_us)

    @never_raises(None)
    def commit(self, *, size_bytes: Any = None, location: str | None = None, durability: str | None = None) -> None:
        """The checkpoint is whole and found by a restore; once more when it becomes more durable."""
        if not self._run.is_active:
            return
        with self._run.lock:
            self._run.pending.apply()
            if self._run.is_active and (self._is_open or self._is_committed):
                self._size_bytes = self._size_bytes if size_bytes is None else size_bytes
                told = {PLACES["location"]: location, PLACES["durability"]: durability}
                self._places = {**self._places, **{name: value for name, value in told.items() if value is not None}}
                self._commit(self._run.clock.now_us())

    @never_raises(None)
    def fail(self, reason: str = GIVEN_UP) -> None:
        """The checkpoint will not be committed; the reason without names of people or secrets."""
        if not self._run.is_active:
            return
        with self._run.lock:
            if self._run.is_active:
                self._run.pending.apply()
                self.end(self._run.clock.now_us(), reason)

    def end(self, now_us: int, reason: str) -> None:
        """Give the save up, if it is still open; called under the lock of the run."""
        if self._is_open and self._job:
            self._job.event(
                now_us, events.CHECKPOINT_FAIL.name, id=self.identifier, a={**self._id, "train.reason": reason}
            )
        self._is_open = False
        self._run.open_saves.pop(self.identifier, None)

    def _commit(self, now_us: int) -> None:
        job = self._job
        if job:
            whole_us = now_us - self._begun_us
            blocked_us = min(self._blocked_us or whole_us, whole_us)
            phases = {"blocking": blocked_us, "persist": whole_us, "total": whole_us} if self._is_open else {}
            m: dict[str, Any] = {
                f"train.checkpoint.duration{{train.checkpoint.phase={phase}}}": values.once(us / 1e6)
                for phase, us in phases.items()
            }
            if self._size_bytes is not None:
                m["train.checkpoint.size"] = self._size_bytes
            job.checkpoint_step = max(job.checkpoint_step, self._step)
            m["train.checkpoint.step"] = job.checkpoint_step
            job.event(now_us, events.CHECKPOINT_COMMIT.name, id=self.identifier, a={**self._id, **self._places}, m=m)
        self._is_open, self._is_committed = False, True
        self._run.open_saves.pop(self.identifier, None)


class Restore(Span):
    """Loading of a state; after it the job is at the step of that state."""

    def __init__(self, run: Run, source: str, step: int, state: dict[str, Any] | None, identifier: str) -> None:
        super().__init__(run)
        self.source, self.step, self.identifier = source, step, identifier
        self._state = state

    @property
    def _attributes(self) -> dict[str, Any]:
        return {"train.restore.step": self.step, "train.restore.source": self.source}

    def _opened(self, now_us: int) -> None:
        self._run.ledger.enter(self, "checkpoint_restore", now_us)
        if self._job:
            self._job.start(self.step)
            self._job.event(now_us, events.CHECKPOINT_RESTORE_BEGIN.name, id=self.identifier, a=self._attributes)

    def _closed(self, now_us: int, error: str | None) -> None:
        self._run.ledger.leave(self, now_us)
        failed = {"train.reason": error} if error else {}
        if self._job:
            told = {**self._attributes, **failed}
            self._job.event(
                now_us, events.CHECKPOINT_RESTORE_END.name, id=self.identifier, a=told, severity=17 if error else None
            )
        if error is None and not self._run.ledger.trains:
            self._run.restored_step = self._run.rank.step = self.step
            if self._job:
                self._job.restored(self.step, self._state, now_us)


class Fault(Span):
    """A fault that the program noticed and acts against, in the same attempt."""

    def __init__(self, run: Run, kind: str, domain: str, action: str, details: dict[str, Any]) -> None:
        super().__init__(run)
        self.kind, self.domain, self.action, self.details = kind, domain, action, details

    def _opened(self, now_us: int) -> None:
        self._run.ledger.enter(self, "fault_wait", now_us)
        if self._job:
            fault = self._job.detect(now_us, self.domain, self.kind, self.details, self._run.alive_us)
            self._job.recover(fault, now_us + 1, self.action)

    def _closed(self, now_us: int, error: str | None) -> None:  # noqa: ARG002 - an error ends the attempt
        self._run.ledger.leave(self, now_us)  # the recovery ends with the next step
