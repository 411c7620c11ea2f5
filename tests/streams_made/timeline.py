"""Lays out a made run in time: attempts, steps, saves, evaluations, the fault."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

from .shape import Shape

INITIALIZATION_SECONDS = 20.0
FORMATION_SECONDS = 6.0
WARMUP_FACTOR = 4.0
DATA_WAIT_SHARE = 0.012
CATEGORIES = (
    *("productive", "initialization", "data_wait", "evaluation", "checkpoint_save", "checkpoint_restore"),
    *("replay", "fault_wait", "idle"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One completed update. Times in seconds since the start of the run."""

    number: int
    begin: float
    end: float
    data_wait: float
    is_warmup: bool

    @property
    def duration(self) -> float:
        """Time of the update."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Save:
    """One checkpoint, from its begin to its commit."""

    step: int
    begin: float
    blocking: float
    commit: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One pause for an evaluation."""

    step: int
    begin: float
    end: float


@dataclass(slots=True)
class Attempt:
    """One formation of the process group."""

    number: int
    formed: float
    restored_step: int = 0
    restore: tuple[float, float] | None = None
    first_begin: float = 0.0
    """When the first step begins."""
    end: float = 0.0
    steps: list[Step] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    """The loss of the last node (of the last rank where there is one node), and the answer to it."""

    step: int
    at: float
    detected: float
    decided: float
    recovered: float = 0.0
    num_repeated: int = 0


class Timeline:
    """What the run does at each moment; `end` is that of the run."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.attempts: list[Attempt] = []
        self.fault: Fault | None = None
        self._starts: list[float] = []
        self._categories: list[str] = []
        self._sums: list[dict[str, float]] = []
        self._now = 0.0
        self._random = random.Random(f"{shape.seed}/timeline")
        self._lay_out()

    def _spend(self, seconds: float, category: str) -> None:
        before = dict.fromkeys(CATEGORIES, 0.0)
        if self._starts:
            before = dict(self._sums[-1])
            before[self._categories[-1]] += self._now - self._starts[-1]
        self._starts.append(self._now)
        self._categories.append(category)
        self._sums.append(before)
        self._now += seconds

    def _lay_out(self) -> None:
        shape = self.shape
        attempt = Attempt(0, FORMATION_SECONDS)
        self.attempts.append(attempt)
        self._spend(INITIALIZATION_SECONDS, "initialization")
        if shape.faults:
            self._train(attempt, 0, shape.fault_step, completed=0)
            self._break_down(attempt)
            attempt = self._come_back()
            self._train(attempt, attempt.restored_step, shape.num_steps, completed=shape.fault_step)
        else:
            self._train(attempt, 0, shape.num_steps, completed=0)
        attempt.end = self._now
        self._spend(1.0, "idle")
        self.end = self._now

    def _train(self, attempt: Attempt, first: int, last: int, completed: int) -> None:
        """Steps `first + 1` to `last`, those up to `completed` for the second time."""
        shape = self.shape
        attempt.first_begin = self._now
        for number in range(first + 1, last + 1):
            is_warmup = number == first + 1
            self._step(attempt, number, is_warmup, is_replay=number <= completed)
            if shape.evaluation_interval_steps and number % shape.evaluation_interval_steps == 0:
                self._evaluate(attempt, number)
            if number % shape.checkpoint_interval_steps == 0 or number == shape.num_steps:
                self._save(attempt, number, is_last=number == shape.num_steps)

    def _step(self, attempt: Attempt, number: int, is_warmup: bool, is_replay: bool) -> None:
        seconds = self.shape.step_seconds * (1 + 0.01 * max(-3.0, min(3.0, self._random.gauss(0, 1))))
        seconds *= WARMUP_FACTOR if is_warmup else 1
        wait = seconds * DATA_WAIT_SHARE * self._random.uniform(0.5, 1.5)
        begin = self._now
        if is_replay:
            self._spend(seconds, "replay")
        else:
            self._spend(wait, "data_wait")
            self._spend(seconds - wait, "productive")
        attempt.steps.append(Step(number, begin, self._now, wait, is_warmup))

    def _evaluate(self, attempt: Attempt, number: int) -> None:
        begin = self._now
        self._spend(self.shape.evaluation_seconds, "evaluation")
        attempt.evaluations.append(Evaluation(number, begin, self._now))

    def _save(self, attempt: Attempt, number: int, is_last: bool) -> None:
        """A save that persists beside the next steps; the job waits for its last one."""
        begin, blocking = self._now, self.shape.blocking_seconds
        persist = self.shape.persist_seconds * self._random.uniform(0.8, 1.0)
        self._spend(persist + 0.02 if is_last else blocking, "checkpoint_save")
        attempt.saves.append(Save(number, begin, persist if is_last else blocking, begin + persist))

    def _break_down(self, attempt: Attempt) -> None:
        at = self._now + 0.4 * self.shape.step_seconds
        low, high = (6.0, 9.0) if self.shape.num_nodes > 1 else (2.0, 4.0)
        detected = at + self._random.uniform(low, high)
        decided = detected + 2
        self.fault = Fault(self.shape.fault_step, at, detected, decided)
        attempt.end = decided + 0.5
        self._spend(attempt.end - self._now, "fault_wait")

    def _come_back(self) -> Attempt:
        """Form the group again and load the newest checkpoint."""
        assert self.fault is not None
        committed = sorted(save.step for save in self.attempts[0].saves if save.commit < self.fault.at)
        self._spend(14.0, "initialization")
        formed = self._now
        self._spend(1.0, "initialization")
        begin = self._now
        self._spend(6.0, "checkpoint_restore")
        attempt = Attempt(1, formed, committed[-2 if self.shape.restores_older else -1], (begin, self._now))
        self.attempts.append(attempt)
        return attempt

    def recovery(self) -> Fault | None:
        """The fault with the end of its recovery, which is known once all is laid out."""
        if self.fault is None:
            return None
        first = next(step for step in self.attempts[1].steps if step.number == self.fault.step + 1)
        repeated = self.fault.step - self.attempts[1].restored_step
        fault = self.fault
        return Fault(fault.step, fault.at, fault.detected, fault.decided, first.end, repeated)

    def until(self, moment: float) -> dict[str, float]:
        """Seconds of each category from the start of the run to a moment."""
        place = bisect_right(self._starts, moment) - 1
        sums = dict(self._sums[place])
        sums[self._categories[place]] += moment - self._starts[place]
        return sums

    def mean(self, begin: float, end: float, values: dict[str, float]) -> float:
        """Mean over a window of a value that depends on the category."""
        before, after = self.until(begin), self.until(end)
        return sum((after[name] - before[name]) * values[name] for name in CATEGORIES) / (end - begin)
