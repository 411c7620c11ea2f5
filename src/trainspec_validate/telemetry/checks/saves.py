"""Checks how often a job saves, and whether the checkpoints that it restores were saved."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.performance.derived.policy import (
    declared_interval_seconds,
    durable_seconds,
    outlives_job,
    outlives_node,
)
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._attributes import whole, word
from trainspec_validate.telemetry.checks._intervals import Interval
from trainspec_validate.telemetry.checks._progress import median_step_seconds, progress
from trainspec_validate.telemetry.checks._restarts import NOTHING, PEERS, completed_restores
from trainspec_validate.telemetry.checks._saves import Save, committed_saves, saves
from trainspec_validate.telemetry.checks._unsaved import Unsaved, unsaved
from trainspec_validate.telemetry.checks._words import few, moment, seconds_in_words

TOLERANCE = 0.1
"""Share of an interval by which a save may be late, as between the two forms that a policy may give it in."""


@check("TS-TEL-045")
def checkpoint_cadence(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Saves that are committed are no further apart than the interval of the policy, in each form that it gives."""
    interval = policy.interval
    if interval.steps is None and interval.seconds is None:
        raise NotApplicable("the policy saves at the end of the job only")
    updates, found = progress(run), saves(run)
    step_seconds = _step_seconds(run, policy)
    late = []
    for stretch in unsaved(run, updates, found):
        wait = durable_seconds(policy) if stretch.is_tail else 0.0
        steps = _over_steps(stretch, interval.steps, math.ceil(wait / step_seconds) if step_seconds else 0)
        seconds = _over_seconds(stretch, interval.seconds, step_seconds + wait)
        late += [_late(stretch, *over) for over in (steps, seconds) if over is not None][:1]
    if not late and not any(save.commits for save in found):
        raise NotApplicable("no checkpoint was committed in the run")
    yield from few(late)


@check("TS-TEL-060")
def durable_cadence(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Checkpoints that outlive a node, or the job, come as often as the tiers of the policy that do."""
    updates, found = progress(run), committed_saves(run)
    if not any(save.durable_at("process") for save in found):
        raise NotApplicable("no commit says what its checkpoint outlives")
    late = []
    for least, outlives in (("a node", outlives_node), ("the job", outlives_job)):
        declared = declared_interval_seconds(policy)
        tiers = [tier.interval_seconds or declared for tier in policy.tiers if outlives(tier)]
        limit = min((seconds for seconds in tiers if seconds is not None), default=None)
        durable = [save for save in found if save.durable_at(least.split()[-1])]
        for stretch in unsaved(run, updates, durable):
            wait = durable_seconds(policy) if stretch.is_tail else 0.0
            over = _over_seconds(stretch, limit, _step_seconds(run, policy) + wait)
            if over is not None:
                late.append(_late(stretch, *over, kind=f"checkpoint that outlives {least}"))
    yield from few(late)


def _step_seconds(run: RunView, policy: CheckpointPolicy) -> float:
    """Time of a step: a save waits for the end of one."""
    declared = policy.job.step_seconds_p99 or policy.interval.step_seconds
    return declared or median_step_seconds(run) or 0.0


def _over_steps(stretch: Unsaved, limit: int | None, wait: int) -> tuple[str, str] | None:
    if limit is None or stretch.steps is None or stretch.steps <= limit + wait:
        return None
    return f"{stretch.steps:,} optimizer steps", f"{limit:,} optimizer steps"


def _over_seconds(stretch: Unsaved, limit: float | None, wait: float) -> tuple[str, str] | None:
    if limit is None or stretch.seconds <= limit * (1 + TOLERANCE) + wait:
        return None
    return f"{seconds_in_words(stretch.seconds)} of training", seconds_in_words(limit)


def _late(stretch: Unsaved, found: str, wanted: str, kind: str = "save") -> Violation:
    message = f"{found} from {stretch.before} to {stretch.after} without a {kind}, but the policy saves every {wanted}"
    return Violation(stretch.location, message, "save as often as the policy says, or correct its interval")


@check("TS-TEL-046")
def checkpoint_restorable(run: RunView) -> Iterator[Violation]:
    """A state that is restored was committed before, is not deleted, and is of the step that the restore names."""
    restores = [(restore, _source(restore)) for restore in completed_restores(run)]
    known = {save.id: save for save in saves(run)} if restores else {}
    judged = [(restore, source) for restore, source in restores if source and not _is_foreign(run, restore, known)]
    if not judged:
        raise NotApplicable("no restore names a checkpoint of the run")
    yield from few(violation for restore, source in judged for violation in _unfit(restore, source, known.get(source)))


def _source(restore: Interval) -> str | None:
    """The checkpoint that a restore names; None for a start from nothing, or from the memory of ranks that are left."""
    events = (restore.opened, restore.closed)
    named = next((found for e in events if e and (found := word(e, "train.restore.source"))), None)
    return None if named in {NOTHING, PEERS} else named


def _is_foreign(run: RunView, restore: Interval, known: dict[str, Save]) -> bool:
    """Whether the first attempt goes on from a checkpoint of another run, such as a pre-trained model."""
    is_first = not run.attempts or restore.opened.attempt == run.attempts[0].number
    return is_first and _source(restore) not in known


def _unfit(restore: Interval, source: str, save: Save | None) -> Iterator[Violation]:
    place, begun = restore.opened.location, restore.opened.time_us
    committed = save.committed if save is not None else None
    if save is None or committed is None:
        what = "of which the run has no commit" if save is None else "which was begun and never committed"
        yield Violation(place, f"checkpoint {source!r} is restored, {what}", "restore what was committed")
        return
    related = ((committed.location, "its commit"),)
    if committed.time_us > begun:
        message = (
            f"checkpoint {source!r} is restored at {moment(begun)} and committed later, at {moment(committed.time_us)}"
        )
        yield Violation(place, message, "restore what was committed before", related=related)
    elif save.deleted is not None and save.deleted.time_us <= begun:
        message = f"checkpoint {source!r} is restored after it was deleted, at {moment(save.deleted.time_us)}"
        related = ((save.deleted.location, "its deletion"),)
        yield Violation(place, message, "restore a checkpoint that is left", related=related)
    else:
        step = whole(restore.opened, "train.restore.step")
        if step is not None and save.step is not None and step != save.step:
            message = f"the restore names step {step:,}, but checkpoint {source!r} is of step {save.step:,}"
            yield Violation(place, message, f"train.restore.step is {save.step}", related=related)
