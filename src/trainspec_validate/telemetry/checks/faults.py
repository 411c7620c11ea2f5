"""Checks that faults have an outcome, and that the policy foresaw them."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.telemetry.checks import Location, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._budget import actions_of, class_in_policy, path_of
from trainspec_validate.telemetry.checks._episodes import (
    FAULT,
    ONE_SIDED,
    Episode,
    can_have_outcome,
    episodes,
    recovered_episodes,
)
from trainspec_validate.telemetry.checks._intervals import may_grow
from trainspec_validate.telemetry.checks._lives import last_end
from trainspec_validate.telemetry.checks._words import few
from trainspec_validate.telemetry.checks.owed import UNREAD
from trainspec_validate.telemetry.formats.ends import is_failure
from trainspec_validate.telemetry.formats.format import FORMATS

ACTIONS = {
    "restart-in-place": frozenset({"retry", "restart"}),
    "replace-from-spares": frozenset({"node_swap", "hot_spare"}),
    "shrink": frozenset({"shrink"}),
    "rollback": frozenset({"restart", "rollback"}),
}
"""Actions of a stream that do what a recovery path says; waiting for a repair is any of them, later."""


@check("TS-TEL-048")
def fault_closed(run: RunView) -> Iterator[Violation]:
    """Every fault is cleared, answered by a recovery that ended, or is what the run ended with."""
    yield from few(_failures(run))
    found = [episode for episode in episodes(run) if can_have_outcome(run, episode.fault)]
    if not found and run.events_named(FAULT):
        raise NotApplicable(ONE_SIDED)
    ended = last_end(run)
    failed = ended is not None and word(ended, "train.run.status") not in {"completed", None}
    if failed and not found:
        raise NotApplicable("the run ended without success, and no event names a fault")
    still_open = [e for e in found if not _has_outcome(e) and not (failed and not e.changes_attempt)]
    if may_grow(run):
        if len(still_open) == len(found):
            raise NotApplicable("the run continues, and no fault has an outcome yet")
        return
    yield from few(
        Violation(
            episode.fault.location,
            f"nothing says what came of the fault {episode.id!r}",
            "write train.fault.cleared, or train.recovery.begin and .end, with its train.fault.id",
        )
        for episode in still_open
    )


def _failures(run: RunView) -> Iterator[Violation]:
    """The failure with which each log of another program ends, unless a record says that its run is over."""
    if last_end(run) is not None:
        return
    for number, file in enumerate(run.files):
        form = FORMATS[file.format]
        has_program = form.metrics != frozenset() or not form.events  # a kernel log is of no program
        if file.end and has_program and is_failure(file.end[1]):
            offset, words = file.end
            what = words if words.startswith("the log ends") else f"{words}, and ends so"
            unread = f"; {UNREAD}" if form.metrics == frozenset() else ""
            yield Violation(Location(number, offset), f"{what}{unread}", "look for the cause at this line")


def _has_outcome(episode: Episode) -> bool:
    return episode.cleared is not None or any(recovery.closed is not None for recovery in episode.recoveries)


@check("TS-REC-016")
def observed_fault_paths(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """The policy has a recovery path from every class of fault that the job had to recover from."""
    judged, found = False, []
    for episode in recovered_episodes(run):
        fault = class_in_policy(episode.fault, actions_of(episode))
        if fault is None:
            continue
        judged = True
        if path_of(policy, episode) is None:
            message = (
                f"the job recovered from the fault {episode.id!r}, and the policy has no recovery path from {fault}"
            )
            found.append(Violation(episode.fault.location, message, f"add a recovery path for fault: {fault}"))
    if not judged:
        raise NotApplicable("no fault that needed a recovery is of a class that policies know")
    yield from few(found)


@check("TS-REC-020")
def action_as_declared(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Actions against a fault are those of the policy."""
    judged, found = False, []
    for episode in recovered_episodes(run):
        path, actions = path_of(policy, episode), actions_of(episode)
        wanted = ACTIONS.get(path.action) if path is not None else None
        if path is None or wanted is None or not actions:
            continue
        judged = True
        if not wanted.intersection(actions):
            message = (
                f"the answer to the fault {episode.id!r} was {', '.join(actions)}, but the policy says {path.action}"
            )
            place = episode.recoveries[0].opened.location
            found.append(
                Violation(place, message, "rehearse the recovery path of the policy, or declare the one that is used")
            )
    if not judged:
        raise NotApplicable("no recovery has a recovery path in the policy with an action that a stream can show")
    yield from few(found)
