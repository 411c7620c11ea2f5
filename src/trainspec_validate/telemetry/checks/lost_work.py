"""Checks the work that faults cost: lost optimizer steps and recomputed ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.performance.derived.policy import declared_interval_seconds, durable_seconds
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._episodes import Episode, recovered_episodes, refuse_unjudged
from trainspec_validate.telemetry.checks._pauses import standstills
from trainspec_validate.telemetry.checks._progress import Progress, median_step_seconds, progress
from trainspec_validate.telemetry.checks._restarts import restarts
from trainspec_validate.telemetry.checks._words import few, number, seconds_in_words
from trainspec_validate.telemetry.view.run_view import Location


@check("TS-REC-005")
def lost_work(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """A fault costs no more optimizer steps than there are between two saves and until the newer one is durable."""
    limit = _lost_steps_limit(run, policy)
    if limit is None:
        raise NotApplicable("the policy does not say how many optimizer steps there are between two saves")
    losses = _Losses(run)
    yield from few(
        Violation(
            _place(episode),
            f"the fault {episode.id!r} costs {lost:,} optimizer steps ({losses.said(episode)}): step "
            f"{episode.restored_step:,} is restored after {episode.last.step if episode.last else 0:,} was completed, "
            f"but the saves of the policy limit that to {limit:,}",
            "restore the newest checkpoint that is left, and save as often as the policy says",
        )
        for episode, lost in losses.each
        if lost > limit
    )


@check("TS-REC-015")
def measured_recovery_point(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """A fault costs no more productive time than the recovery point of the policy."""
    promise = policy.recovery_point_seconds
    losses = _Losses(run)
    judged, found = False, []
    for episode, lost in losses.each:
        seconds = losses.seconds(episode)
        if seconds is None:
            continue
        judged = True
        if seconds > promise:
            message = (
                f"the fault {episode.id!r} costs {seconds_in_words(seconds)} of training ({lost:,} steps), but the "
                f"policy promises that none costs more than {seconds_in_words(promise)}"
            )
            found.append(Violation(_place(episode), message, "save more often, or correct recovery_point_seconds"))
    if not judged:
        raise NotApplicable("the time of the lost optimizer steps is not known")
    yield from few(found)


@check("TS-REC-021")
def repeated_steps_counted(run: RunView) -> Iterator[Violation]:
    """The count of repeated steps at the end of a recovery is that of the steps that were completed before."""
    ends = [episode.resumed for episode in recovered_episodes(run) if episode.resumed is not None]
    updates = progress(run)
    restored = {restart.attempt: restart.step for restart in restarts(run)}
    num_judged, found = 0, []
    for end in ends:
        stated = end.value("train.step.repeated")
        expected = _repeated(updates, restored, end.attempt) if stated is not None else None
        if stated is None or expected is None:
            continue
        num_judged += 1
        if round(stated) != expected:
            message = f"train.step.repeated is {number(stated)}, but {expected:,} steps of the run were executed again"
            found.append(Violation(end.location, message, "count each step whose number was completed before"))
    yield from few(found)
    refuse_unjudged(len(ends), num_judged, "train.step.repeated at its end and known restored steps")


def _repeated(updates: Progress, restored: Mapping[int, int | None], until: int) -> int | None:
    """Steps executed again up to a recovery that ends in this attempt; None where a restore is not told of."""
    numbers = [attempt for attempt in updates.attempts() if attempt <= until]
    if not numbers or numbers[0] != 0:
        return None
    repeated = 0
    for attempt in numbers[1:]:
        before, mine, start = updates.largest(below=attempt), updates.last(attempt), restored.get(attempt)
        if before is None or mine is None or start is None:
            return None
        repeated += max(0, min(before.step, mine.step) - start)
    return repeated


class _Losses:
    """The recoveries that went on in a new attempt, with the steps that they lost and the time that those took."""

    def __init__(self, run: RunView) -> None:
        found = [(e, e.lost_steps) for e in recovered_episodes(run) if e.changes_attempt and e.first is not None]
        self.each = [(episode, lost) for episode, lost in found if lost is not None]
        if not self.each:
            raise NotApplicable("no recovery of the run has a restored step and optimizer steps before and after it")
        self._updates = progress(run)
        self._pauses = standstills(run)
        self._step_seconds = median_step_seconds(run)

    def seconds(self, episode: Episode) -> float | None:
        """Productive time between the restored step and the last one before the fault; None where it is not known."""
        last, restored = episode.last, episode.restored_step
        if last is None or restored is None:
            return None
        if last.step <= restored:
            return 0.0
        start = self._updates.reached(restored, below=last.attempt + 1)
        if start is None or start.step > restored or start.time_us > last.time_us:
            return None if self._step_seconds is None else self._step_seconds * (last.step - restored)
        return float(self._pauses.left_us(start.time_us, last.time_us)) / 1e6

    def said(self, episode: Episode) -> str:
        """That time in words."""
        seconds = self.seconds(episode)
        return "time not known" if seconds is None else f"{seconds_in_words(seconds)} of training"


def _lost_steps_limit(run: RunView, policy: CheckpointPolicy) -> int | None:
    """Steps between two saves that reach the slowest tier, until the newer one is durable, and the one under way."""
    step = policy.interval.step_seconds or median_step_seconds(run)
    declared = declared_interval_seconds(policy)
    intervals = [tier.interval_seconds or declared for tier in policy.tiers]
    longest = max((seconds for seconds in intervals if seconds is not None), default=None)
    if step is None or longest is None:
        return policy.interval.steps + 1 if policy.interval.steps is not None else None
    return math.ceil((longest + durable_seconds(policy)) / step) + 1


def _place(episode: Episode) -> Location:
    return episode.restart.told.location if episode.restart is not None else episode.fault.location
