"""Checks the start of an attempt: a good checkpoint, its step, and the same data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._attributes import whole, word
from trainspec_validate.telemetry.checks._episodes import FAULT, Episode, episodes
from trainspec_validate.telemetry.checks._progress import Progress, progress
from trainspec_validate.telemetry.checks._repeats import repeats
from trainspec_validate.telemetry.checks._restarts import NOTHING, PEERS, Restart, restarts
from trainspec_validate.telemetry.checks._saves import Save, saves
from trainspec_validate.telemetry.checks._words import few, moment, number, seconds_in_words

SAMPLES = "train.sample.count"
CHANGES_OF_DATA = ("train.data.position.changed", "train.batch_size.changed")
CORRUPTION = "silent_corruption"


def _later_restarts(run: RunView) -> list[Restart]:
    """The attempts after the first one, where an event says what they go on from.

    Raises:
        NotApplicable: there is none.
    """
    first = run.attempts[0].number if run.attempts else 0
    found = [restart for restart in restarts(run) if restart.attempt > first]
    if not found:
        raise NotApplicable("no attempt after the first one says what it continues from")
    return found


@check("TS-REC-006")
def restore_source(run: RunView) -> Iterator[Violation]:
    """A new attempt continues from peers or from a checkpoint begun before the fault, where one is committed."""
    later = _later_restarts(run)
    known = saves(run)
    faults = {e.restart.attempt: e for e in _episodes(run) if e.restart is not None and e.changes_attempt}
    by_id = {save.id: save for save in known}
    judged = False
    found: list[Violation] = []
    for restart in later:
        from_nothing = restart.source == NOTHING or (restart.source is None and restart.step == 0)
        if from_nothing:
            judged = True
            found += _passed_over(restart, known)
        source = by_id.get(restart.source or "")
        fault = faults.get(restart.attempt)
        judged |= source is not None or restart.source == PEERS
        if source is not None and fault is not None:
            found += _too_new(restart, source, fault)
    if not judged:
        raise NotApplicable(
            "no attempt after the first one names a checkpoint of the run or peers, or starts from nothing"
        )
    yield from few(found)


def _episodes(run: RunView) -> list[Episode]:
    return list(episodes(run)) if run.events_named(FAULT) else []


def _passed_over(restart: Restart, known: Sequence[Save]) -> Iterator[Violation]:
    usable = [save for save in known if save.usable_at(restart.told.time_us) and save.step]
    if usable:
        newest = max(usable, key=lambda save: save.step or 0)
        message = (
            f"attempt {restart.attempt} starts from nothing, although checkpoint {newest.id!r} of step "
            f"{newest.step:,} is committed"
        )
        related = (((newest.committed or newest.first).location, "its commit"),)
        yield Violation(restart.told.location, message, "restore it, or stop with an error", related=related)


def _too_new(restart: Restart, source: Save, fault: Episode) -> Iterator[Violation]:
    begun = source.begun
    if begun is not None and begun.time_us > fault.fault.time_us:
        late = seconds_in_words((begun.time_us - fault.fault.time_us) / 1e6)
        message = (
            f"checkpoint {source.id!r} is restored, but its save began {late} after the fault {fault.id!r} was detected"
        )
        related = ((begun.location, "where its save begins"), (fault.fault.location, "the fault"))
        help_text = "state that a job saves after a fault is not safe; restore an older checkpoint"
        yield Violation(restart.told.location, message, help_text, related=related)


@check("TS-REC-007")
def step_continuity(run: RunView) -> Iterator[Violation]:
    """A new attempt continues with the step and the data after those of the restored state."""
    updates = progress(run)
    judged, found = False, []
    for restart in _later_restarts(run):
        first = updates.first(restart.attempt)
        if first is None or restart.step is None:
            continue
        judged = True
        found += [*_wrong_step(run, restart, updates), *_two_steps(restart)]
    if not judged:
        raise NotApplicable("no attempt after the first one has a restored step and optimizer steps")
    yield from few([*found, *_other_data(run)])


def _wrong_step(run: RunView, restart: Restart, updates: Progress) -> Iterator[Violation]:
    """The first report is of the restored step or of the one after it, and so is the first one beyond."""
    restored = restart.step or 0
    first, beyond = updates.first(restart.attempt), updates.first(restart.attempt, above=restored)
    if first is None:
        return
    if first.step == restored and beyond is not None:
        first = beyond
    heads = (head.record for head in run.heads if head.record.att == restart.attempt and "job" in head.record.scopes)
    interval = max((head.report_interval_steps for head in heads), default=1)
    if not restored <= first.step <= restored + interval:
        message = (
            f"attempt {restart.attempt} restores step {restored:,}, but the first that it reports is {first.step:,}"
        )
        related = ((restart.told.location, "what it restores"),)
        help_text = f"the next step is {restored + 1:,}"
        yield Violation(first.location, message, help_text, related=related)


def _two_steps(restart: Restart) -> Iterator[Violation]:
    started = restart.span.started
    stated = whole(started, "train.restore.step") if started is not None else None
    if started is not None and stated is not None and stated != restart.step:
        message = f"attempt {restart.attempt} says that it restores step {stated:,}, but restores {restart.step:,}"
        related = ((restart.told.location, "the restore"),)
        yield Violation(started.location, message, "both are the same", related=related)


def _other_data(run: RunView) -> Iterator[Violation]:
    """The first step of each attempt that is done again with other training samples."""
    series = run.job.get(SAMPLES)
    if series is None:
        return
    seen: set[int] = set()
    changes = [event.time_us for event in run.events_named(*CHANGES_OF_DATA)]
    for pair in repeats(series, changes):
        if pair.attempt not in seen and pair.before != pair.after:
            seen.add(pair.attempt)
            message = (
                f"after step {pair.step:,}, the run has trained on {number(pair.after)} samples in attempt "
                f"{pair.attempt} and had on {number(pair.before)} the first time"
            )
            related = ((pair.location_before, "the first time"),)
            help_text = "restore the position in the data, or write train.data.position.changed"
            yield Violation(pair.location, message, help_text, related=related)


@check("TS-REC-013")
def corruption_rolled_back(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """After silent corruption, the restored checkpoint is older than the corruption can be."""
    known = {save.id: save for save in saves(run)}
    judged, found = False, []
    for episode in episodes(run):
        if word(episode.fault, "train.fault.class") != CORRUPTION or episode.restart is None:
            continue
        source = known.get(episode.restart.source or "")
        if source is None:
            continue
        judged = True
        earliest = _earliest(episode, policy)
        if source.first.time_us > earliest:
            message = (
                f"checkpoint {source.id!r} was saved at {moment(source.first.time_us)}, when the state could be "
                f"corrupt already, since {moment(earliest)}"
            )
            related = ((source.first.location, "where it was saved"), (episode.fault.location, "the fault"))
            help_text = "restore a checkpoint that was saved before"
            found.append(Violation(episode.restart.told.location, message, help_text, related=related))
    if not judged:
        raise NotApplicable("no restore after silent corruption")
    yield from few(found)


def _earliest(episode: Episode, policy: CheckpointPolicy) -> int:
    """When the state can first have been corrupt: as stated, else as long before as the policy allows for."""
    if episode.detect_seconds is not None:
        return episode.fault_us
    return episode.fault.time_us - round(policy.retention.error_detection_seconds * 1e6)
