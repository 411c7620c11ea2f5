"""Checks that a recovery is reported in full, in order, and with times that add up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check, require
from trainspec_validate.telemetry.checks._episodes import (
    ONE_SIDED,
    PHASES,
    Episode,
    can_have_outcome,
    recovered_episodes,
    time_in_words,
)
from trainspec_validate.telemetry.checks._intervals import may_grow
from trainspec_validate.telemetry.checks._lives import last_end
from trainspec_validate.telemetry.checks._words import few
from trainspec_validate.telemetry.view.run_view import PlacedEvent

TIME_SHARE = 0.02
TIME_SECONDS = 1.0
"""Parts add up to a whole within the larger of a share and a second, which clocks of two programs differ by."""
EVENTS = {
    "decided": "train.recovery.begin",
    "restarted": "train.attempt.start",
    "restored": "train.checkpoint.restore.begin and .end",
    "first step": "train.step.count of the first step",
    "caught up": "train.recovery.end",
}


@check("TS-REC-001")
def episode_complete(run: RunView) -> Iterator[Violation]:
    """Every fault that the job recovers from has all marks of its recovery, or an end that says that it failed."""
    found = require([episode for episode in recovered_episodes(run) if can_have_outcome(run, episode.fault)], ONE_SIDED)
    ended = last_end(run)
    judged = [e for e in found if not may_grow(run) or e.resumed is not None or e.failed is not None]
    if not judged:
        raise NotApplicable("the recovery from the fault continues")
    for episode in judged:
        absent = list(_absent(episode, ended))
        if absent:
            message = f"the recovery from the fault {episode.id!r} has no mark for {', '.join(absent)}"
            yield Violation(episode.fault.location, message, "write " + ", ".join(EVENTS[name] for name in absent))


def _absent(episode: Episode, end: PlacedEvent | None) -> Iterator[str]:
    if not episode.recoveries:
        yield "decided"
    if episode.failed is not None or (end is not None and episode.passed is None):
        return
    if episode.changes_attempt:
        restart = episode.restart
        if restart is None or restart.span.started is None:
            yield "restarted"
        from_nothing = restart is not None and restart.restore is None and restart.step == 0
        if not from_nothing and (restart is None or restart.restore is None or restart.restore.is_open):
            yield "restored"
    if episode.first is None:
        yield "first step"
    if episode.resumed is None:
        yield "caught up"


@check("TS-REC-002")
def marks_in_order(run: RunView) -> Iterator[Violation]:
    """The marks of a recovery follow each other in time."""
    judged = False
    found = []
    for episode in recovered_episodes(run):
        for before, after in pairwise(episode.marks()):
            judged = True
            if after.time_us < before.time_us:
                early = time_in_words((before.time_us - after.time_us) / 1e6)
                message = f"after the fault {episode.id!r}, {after.name!r} is {early} before {before.name!r}"
                related = ((before.location, before.name),)
                help_text = "take the times of all marks from one clock"
                found.append(Violation(after.location, message, help_text, related=related))
    if not judged:
        raise NotApplicable("no recovery of the run has two marks")
    yield from few(found)


@check("TS-REC-017")
def recovery_phases(run: RunView) -> Iterator[Violation]:
    """The phases of a recovery add up to its total, which reaches from the fault until the job has caught up."""
    judged = False
    for episode in recovered_episodes(run):
        end, total = episode.resumed, episode.stated_seconds("total")
        if end is None or total is None:
            continue
        judged = True
        apart = next(_apart(episode, end, total), None)
        if apart is not None:
            yield Violation(end.location, f"after the fault {episode.id!r}, {apart[0]}", apart[1])
    if not judged:
        raise NotApplicable("no recovery of the run states its train.recovery.duration")


def _apart(episode: Episode, end: PlacedEvent, total: float) -> Iterator[tuple[str, str]]:
    """What does not fit, and what would."""
    stated = {phase: seconds for phase in PHASES if (seconds := episode.stated_seconds(phase)) is not None}
    slack = max(TIME_SECONDS, TIME_SHARE * total)
    summed = sum(stated.values())
    if len(stated) == len(PHASES) and abs(summed - total) > slack:
        parts = ", ".join(f"{name} {time_in_words(seconds)}" for name, seconds in stated.items())
        message = f"the phases add up to {time_in_words(summed)} ({parts}), but the total is {time_in_words(total)}"
        yield message, "phases follow each other without gaps"
    measured = (end.time_us - episode.fault.time_us) / 1e6 + stated.get("detect", 0.0)
    if total < measured - slack or ("detect" in stated and total > measured + slack):
        message = f"the total is {time_in_words(total)}, but the records are {time_in_words(measured)} apart"
        yield message, "count from the fault to the end of the recovery"
    last, passed = episode.last, episode.passed
    if last is not None and (passed is None or (passed.time_us - end.time_us) / 1e6 > slack):
        message = f"the recovery ends before an optimizer step passes {last.step:,}, the largest one before the fault"
        yield message, "a recovery ends with work that was not done before"
