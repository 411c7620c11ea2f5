"""Follows a fault until the job has caught up: the marks of a recovery, with their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_validate.telemetry.checks import NotApplicable, require
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._intervals import Interval, paired
from trainspec_validate.telemetry.checks._progress import Progress, Update, find_progress
from trainspec_validate.telemetry.checks._restarts import Restart, restarts
from trainspec_validate.telemetry.checks._rows import source_format
from trainspec_validate.telemetry.checks._words import seconds_in_words
from trainspec_validate.telemetry.view.run_view import Location, PlacedEvent, RunView

FAULT, CLEARED = "train.fault.detected", "train.fault.cleared"
RECOVERY = "train.recovery.begin"
OUTCOME = "train.recovery.outcome"
OUTCOMES = frozenset({CLEARED, "train.recovery.end"})
ONE_SIDED = "the source of the stream reports faults, and cannot report what came of them"
LONGEST_SECONDS = 1e9
"""No phase lasts thirty years."""
PHASES = ("detect", "decide", "restart", "restore", "replay")
"""Phases of a recovery, one after the other; `total` is their sum."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of an episode and the record that reports it."""

    name: str
    time_us: int
    location: Location


@dataclass(frozen=True, slots=True)
class Episode:
    """A fault and what the job did about it."""

    fault: PlacedEvent
    recoveries: tuple[Interval, ...]
    """Actions against it, one after another."""
    cleared: PlacedEvent | None
    restart: Restart | None
    """The attempt after the fault that completed the first step; else the newest one."""
    last: Update | None
    """The largest optimizer step that was completed before."""
    first: Update | None
    """The first step that was completed after the restore, or after the action where no new attempt was needed."""
    passed: Update | None
    """The first step beyond the largest one before."""
    alive_us: int | None
    """The newest sign of life before the fault was detected; None where the stream has none."""
    changes_attempt: bool
    """Whether the job continued in a new attempt."""

    @property
    def id(self) -> str:
        """Identifier of the fault, or of its record."""
        return fault_id(self.fault) or "without an id"

    @property
    def has_recovery(self) -> bool:
        """Whether the job had to recover from it."""
        return bool(self.recoveries) or self.changes_attempt

    @property
    def resumed(self) -> PlacedEvent | None:
        """The end of the action that brought the job back."""
        ends = (r.closed for r in self.recoveries if r.closed is not None)
        return next((end for end in ends if word(end, OUTCOME) == "resumed"), None)

    @property
    def failed(self) -> PlacedEvent | None:
        """The end of the last action, where it was given up."""
        end = self.recoveries[-1].closed if self.recoveries else None
        return end if end is not None and word(end, OUTCOME) == "failed" else None

    @property
    def detect_seconds(self) -> float | None:
        """Time from the fault to its detection, as the end of a recovery states it."""
        return self.stated_seconds("detect")

    @property
    def fault_us(self) -> int:
        """When the fault was: as stated, else the newest sign of life before it was detected."""
        stated = self.detect_seconds
        if stated is not None:
            return self.fault.time_us - round(stated * 1e6)
        return self.fault.time_us if self.alive_us is None else self.alive_us

    @property
    def restored_step(self) -> int | None:
        """Optimizer step that the restored state belongs to; None without a restore."""
        return self.restart.step if self.restart is not None else None

    @property
    def lost_steps(self) -> int | None:
        """Optimizer steps that were completed and are not in the restored state."""
        if self.last is None or self.restored_step is None:
            return None
        return max(0, self.last.step - self.restored_step)

    @property
    def seconds_to_first_step(self) -> float | None:
        """Time from the fault to the first completed step; None where there is none."""
        return None if self.first is None else (self.first.time_us - self.fault_us) / 1e6

    def stated_seconds(self, phase: str) -> float | None:
        """Length of a phase as the end of a recovery carries it."""
        key = f"train.recovery.duration{{train.recovery.phase={phase}}}"
        ends = [r.closed for r in self.recoveries if r.closed is not None]
        values = (value for end in ends if (value := end.value(key)) is not None)
        return next((value for value in values if 0 <= value <= LONGEST_SECONDS), None)

    def marks(self) -> list[Mark]:
        """The moments that records report, in the order in which they have to be."""
        found = [Mark("detected", self.fault.time_us, self.fault.location)]
        found += [_mark("decided", r.opened) for r in self.recoveries[:1]]
        restart = self.restart if self.changes_attempt else None
        if restart is not None and restart.span.started is not None:
            found.append(_mark("restarted", restart.span.started))
        if restart is not None and restart.restore is not None:
            found.append(_mark("restore begun", restart.restore.opened))
            found += [_mark("restored", restart.restore.closed)] if restart.restore.closed is not None else []
        if self.first is not None:
            found.append(Mark("first step", self.first.time_us, self.first.location))
        found += [_mark("caught up", self.resumed)] if self.resumed is not None else []
        return found


def _mark(name: str, event: PlacedEvent) -> Mark:
    return Mark(name, event.time_us, event.location)


def time_in_words(seconds: float) -> str:
    """A time of a recovery, in seconds up to ten minutes, as budgets are given.

    >>> time_in_words(117.0), time_in_words(1347.0)
    ('117 s', '22.45 min')
    """
    return f"{seconds:.4g} s" if 1 <= abs(seconds) < 600 else seconds_in_words(seconds)


def fault_id(event: PlacedEvent) -> str | None:
    """The fault that an event is about."""
    return word(event, "train.fault.id")


def episodes(run: RunView) -> Sequence[Episode]:
    """Every fault of the run with what followed, in order of detection.

    Raises:
        NotApplicable: no event reports a fault.
    """
    builder = _Builder(run)
    return require([builder.episode(event) for event in run.events_named(FAULT)], "no event reports a fault")


def recovered_episodes(run: RunView) -> Sequence[Episode]:
    """The faults that the job had to recover from.

    Raises:
        NotApplicable: there is none.
    """
    found = [episode for episode in episodes(run) if episode.has_recovery]
    if not found:
        raise NotApplicable("no fault of the run needed a recovery")
    return found


def refuse_unjudged(num: int, num_judged: int, what: str) -> None:
    """Say that recoveries are not judged, next to what a check found of the others.

    Raises:
        NotApplicable: not all of them have what a check needs.
    """
    if num_judged == 0:
        raise NotApplicable(f"no recovery has {what}")
    if num_judged < num:
        raise NotApplicable(f"{num - num_judged:,} of {num:,} recoveries are not judged: none of these has {what}")


def can_have_outcome(run: RunView, fault: PlacedEvent) -> bool:
    """Whether the format that a fault was written in also has events for what came of it."""
    heads = [head for head in run.heads if head.location.file == fault.location.file]
    formats = [source_format(run, head) for head in heads if head.record.emitter == fault.emitter]
    return not formats or any(each is None or each.events is None or each.events & OUTCOMES for each in formats)


class _Builder:
    """Looks up, once for all faults of a run, what they share."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.progress: Progress | None = find_progress(run)
        self.restarts = {restart.attempt: restart for restart in restarts(run)}
        self.numbers = sorted({span.number for span in run.attempts})
        self.recoveries: dict[str | None, list[Interval]] = {}
        for interval in paired(run, RECOVERY).of(RECOVERY):
            self.recoveries.setdefault(fault_id(interval.opened), []).append(interval)
        self.cleared = {fault_id(event): event for event in reversed(run.events_named(CLEARED))}
        self.newest = {event.attempt: event for event in run.events_named(FAULT)}

    def episode(self, fault: PlacedEvent) -> Episode:
        """The episode of one fault."""
        name = fault_id(fault)
        recoveries = tuple(self.recoveries.get(name, ())) if name is not None else ()
        target = self._next_attempt(fault, recoveries)
        first = self._first(fault, recoveries, target)
        after = first.attempt if first is not None and target is not None else target
        last = self._last(fault, target)
        return Episode(
            fault=fault,
            recoveries=recoveries,
            cleared=self.cleared.get(name) if name is not None else None,
            restart=self.restarts.get(after) if after is not None else None,
            last=last,
            first=first,
            passed=self._passed(fault, last, target),
            alive_us=self._alive(fault),
            changes_attempt=target is not None,
        )

    def _next_attempt(self, fault: PlacedEvent, recoveries: Sequence[Interval]) -> int | None:
        """The newest attempt that belongs to the recovery; None where the job went on in the same one."""
        ends = [r.closed for r in recoveries if r.closed is not None]
        for end in ends:
            if word(end, OUTCOME) == "resumed":
                return end.attempt if end.attempt > fault.attempt else None
        later = [number for number in self.numbers if number > fault.attempt]
        if not later or (not recoveries and not self._ends_attempt(fault)):
            return None
        return later[0] if not recoveries else later[-1]

    def _ends_attempt(self, fault: PlacedEvent) -> bool:
        """Whether a fault without a recovery is the one that its attempt ended with."""
        ended = next((s.ended for s in self.run.attempts if s.number == fault.attempt), None)
        if ended is not None and word(ended, "train.attempt.reason") not in {None, "fault"}:
            return False
        return self.newest[fault.attempt] is fault and fault_id(fault) not in self.cleared

    def _first(self, fault: PlacedEvent, recoveries: Sequence[Interval], target: int | None) -> Update | None:
        if self.progress is None:
            return None
        if target is None:
            begun = recoveries[0].opened.time_us if recoveries else fault.time_us
            return self.progress.first(fault.attempt, after_us=begun + 1)
        for number in (n for n in self.numbers if fault.attempt < n <= target):
            restart = self.restarts.get(number)
            step = restart.step if restart is not None else None
            found = self.progress.first(number, above=-1 if step is None else step)
            if found is not None:
                return found
        return None

    def _last(self, fault: PlacedEvent, target: int | None) -> Update | None:
        if self.progress is None:
            return None
        if target is None:
            return self.progress.largest_until(fault.attempt, fault.time_us)
        return self.progress.largest(below=fault.attempt + 1)

    def _passed(self, fault: PlacedEvent, last: Update | None, target: int | None) -> Update | None:
        if self.progress is None or last is None:
            return None
        numbers = [fault.attempt] if target is None else [n for n in self.numbers if n > fault.attempt]
        found = (self.progress.first(n, above=last.step, after_us=fault.time_us) for n in numbers)
        return next((update for update in found if update is not None), None)

    def _alive(self, fault: PlacedEvent) -> int | None:
        """The newest of the completed steps and the end of the attempt, up to the detection."""
        times = [] if fault.attempt not in self.numbers else self._ends(fault)
        update = self.progress.last(fault.attempt, until_us=fault.time_us) if self.progress is not None else None
        return max([*times, update.time_us] if update is not None else times, default=None)

    def _ends(self, fault: PlacedEvent) -> list[int]:
        spans = (span for span in self.run.attempts if span.number == fault.attempt)
        return [s.ended.time_us for s in spans if s.ended is not None and s.ended.time_us <= fault.time_us]
