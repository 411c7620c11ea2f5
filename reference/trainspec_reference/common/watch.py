"""Follows the workers of a formation, distinguishes one that trains from one that hangs, and names the cause."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from trainspec_reference.common import messages as say
from trainspec_validate.documents.types.checkpoint import CheckpointPolicy

_KEPT_STEPS = 64
_USUAL_STEPS = 20
"""Steps that a pause may last before it counts as a hang."""


@dataclass(frozen=True)
class Limits:
    """Silence after which a formation counts as hanging; seconds."""

    least: float = 5.0
    """Of a job with short steps: what a busy machine takes at times."""
    most: float = 10.0
    """Of any job: the time-out of the policy's first layer that sees hangs."""
    start: float = 60.0
    """Until the first step of a formation: processes join, load, and compile."""
    device_start: float = 300.0
    """The least of it on an accelerator, whose libraries load and whose programs compile for minutes."""
    compiles: bool = False
    """Whether a step with another batch size may compile anew, and so take as long as the first one did."""
    save: float = 60.0
    """Of a save that training waits for."""
    ping: float = 0.5
    """Between two questions whether a worker can answer."""
    silence: float = 8.0
    """Without an answer from a worker, whatever it does."""

    @staticmethod
    def of_policy(policy: CheckpointPolicy | None, device: str = "cpu") -> Limits:
        """Hang limits of a policy; the defaults where the policy has none."""
        least_start = Limits.start if device == "cpu" else Limits.device_start
        if policy is None:
            return Limits(start=least_start, compiles=device != "cpu")
        seen = [layer.timeout_seconds for layer in policy.detection if "hang" in layer.faults]
        ways = [way for way in policy.recovery if way.fault in {"process-loss", "hang"}]
        start = max((way.restart_seconds + way.restore_seconds + way.first_step_seconds for way in ways), default=0.0)
        most = min(seen, default=Limits.most)
        persist = policy.save.persist_seconds_p95 or policy.save.blocking_seconds
        return Limits(
            least=min(Limits.least, most),
            most=most,
            start=max(least_start, start),
            save=max(Limits.save, 10 * persist),
            silence=min(Limits.silence, most),
            compiles=device != "cpu",
        )


@dataclass(slots=True)
class _Mark:
    """How far a worker is."""

    arrived: int = -1
    done: int = -1
    is_waiting: bool = False
    """Whether it waits for the end of a save."""


@dataclass(slots=True)
class Watch:
    """Progress of the members of one formation."""

    limits: Limits
    members: frozenset[int]
    """Numbers of workers."""
    now: Callable[[], float]
    """Time that counts, in seconds."""
    largest: int = -1
    """The largest optimizer step that a member has completed."""
    completed: int = -1
    """The largest optimizer step that all members have completed."""
    _marks: dict[int, _Mark] = field(default_factory=dict)
    _durations: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_STEPS))
    _last_progress: float = 0.0
    _began: float = 0.0
    """When the last member held the state that it starts from."""
    _last_step: float | None = None
    _first_step_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._marks = {number: _Mark() for number in self.members}
        self._last_progress = self._began = self.now()

    def hear(self, worker: int, message: say.FromWorker) -> None:
        """Take a worker's report of its progress."""
        match message:
            case say.Ready(step=step):
                self.ready(worker, step)
            case say.Arrived(step=step):
                self.arrived(worker, step)
            case say.Done(step=step):
                self.done(worker, step)
            case say.Pausing():
                self.waits(worker)
            case say.Begun() | say.Written() | say.Hashed() | say.Unsaved() | say.Finished():
                self._last_progress = self.now()

    def ready(self, worker: int, step: int) -> None:
        """A worker holds the state that it starts from."""
        self._marks[worker] = _Mark(step, step)
        self._last_progress = self._began = self.now()

    def arrived(self, worker: int, step: int) -> None:
        """A worker has done its part of an update."""
        mark = self._marks[worker]
        mark.arrived, mark.is_waiting = step, False
        self._last_progress = self.now()

    def done(self, worker: int, step: int) -> bool:
        """A worker has completed a step; whether all have now."""
        mark = self._marks[worker]
        mark.done, mark.arrived, mark.is_waiting = step, max(step, mark.arrived), False
        self._last_progress = self.now()
        self.largest = max(self.largest, step)
        lowest = min(mark.done for mark in self._marks.values())
        if lowest <= self.completed or lowest < step:
            return False
        if self._last_step is not None:
            self._durations.append(self._last_progress - self._last_step)
        else:
            self._first_step_seconds = self._last_progress - self._began
        self.completed, self._last_step = lowest, self._last_progress
        return True

    def waits(self, worker: int) -> None:
        """A worker waits for the end of a save."""
        self._marks[worker].is_waiting = True
        self._last_progress = self.now()

    @property
    def timeout_seconds(self) -> float:
        """Silence that counts as a hang at this moment."""
        if any(mark.is_waiting for mark in self._marks.values()):
            return self.limits.save
        if not self._durations:
            return self.limits.start
        usual = min(self.limits.most, max(self.limits.least, _USUAL_STEPS * median(self._durations)))
        return max(usual, self._first_step_seconds) if self.limits.compiles else usual

    @property
    def is_stalled(self) -> bool:
        """Whether no member has reported progress for too long."""
        return self.now() - self._last_progress > self.timeout_seconds

    def culprits(self) -> frozenset[int]:
        """Members that the others wait for: those that have not arrived where others have."""
        furthest = max(mark.arrived for mark in self._marks.values())
        late = frozenset(number for number, mark in self._marks.items() if mark.arrived < furthest)
        return self.members if len(self.members) == 1 else late


def silent(heard: Iterable[tuple[int, float]], limit_seconds: float, now: float) -> frozenset[int]:
    """Workers that have not answered for too long, by when they were heard last."""
    return frozenset(number for number, last in heard if now - last > limit_seconds)
