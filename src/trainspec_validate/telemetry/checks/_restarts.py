"""Finds the state from which each attempt of a run continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_validate.telemetry.checks import NotApplicable
from trainspec_validate.telemetry.checks._attributes import whole, word
from trainspec_validate.telemetry.checks._intervals import Interval, intervals
from trainspec_validate.telemetry.checks._progress import find_progress
from trainspec_validate.telemetry.view.run_view import AttemptSpan, PlacedEvent, RunView

RESTORE = "train.checkpoint.restore.begin"
STEP, SOURCE = "train.restore.step", "train.restore.source"
NOTHING = "none"
"""Source of an attempt that starts from nothing."""
PEERS = "peers"
"""Source of a restore from the memory of ranks that are left."""


@dataclass(frozen=True, slots=True)
class Restart:
    """An attempt with the restore that it continues from."""

    span: AttemptSpan
    restore: Interval | None
    """The first one that was not given up; None where no event reports one."""
    told: PlacedEvent
    """The event that says what was restored."""

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        return self.span.number

    @property
    def step(self) -> int | None:
        """Optimizer step that the restored state belongs to; None where no event says so."""
        events = [self.restore.closed, self.restore.opened] if self.restore else []
        for event in (*events, self.span.started):
            value = whole(event, STEP) if event is not None else None
            if value is not None:
                return value
        return None

    @property
    def source(self) -> str | None:
        """Checkpoint that is restored, `none` for a start from nothing; None where no event says so."""
        if self.restore is None:
            return None
        events = (self.restore.closed, self.restore.opened)
        return next((found for event in events if event and (found := word(event, SOURCE))), None)


def given_up(restore: Interval) -> bool:
    """Whether a restore ended with a failure."""
    return restore.closed is not None and restore.closed.attribute("train.reason") is not None


def completed_restores(run: RunView) -> Sequence[Interval]:
    """The restores that ended with a state, in order.

    Raises:
        NotApplicable: there is none.
    """
    found = [restore for restore in intervals(run, RESTORE) if restore.closed is not None and not given_up(restore)]
    if not found:
        raise NotApplicable("no restore in the run")
    return found


def restarts(run: RunView) -> Sequence[Restart]:
    """The attempts that an event says the state of, in order of their numbers; the first one too.

    A restore that begins after the first step of its attempt, and is of another step than the attempt starts from,
    heals a part of the job and is none of these.
    """
    updates = find_progress(run)
    promised = {span.number: whole(span.started, STEP) for span in run.attempts if span.started is not None}
    first: dict[int, Interval] = {}
    for restore in intervals(run, RESTORE):
        number = restore.opened.attempt
        update = updates.first(number) if updates is not None else None
        is_late = update is not None and restore.opened.time_us > update.time_us
        heals = is_late and whole(restore.opened, STEP) != promised.get(number)
        before = first.get(number)
        if not heals and not given_up(restore) and (before is None or before.is_open):
            first[number] = restore
    found = ((span, first.get(span.number)) for span in run.attempts)
    return [Restart(span, restore, told) for span, restore in found if (told := _told(span, restore)) is not None]


def _told(span: AttemptSpan, restore: Interval | None) -> PlacedEvent | None:
    return span.started if restore is None else restore.closed or restore.opened
