"""Writes the records of a run around an incident as the history of a trial, which criteria read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

from trainspec_conformance.records import MOST_RANKS, Entry, Injected, Listed, Started, Streamed, Streams
from trainspec_conformance.replaying.facts import MOST_STEPS, Facts
from trainspec_conformance.replaying.incidents import FAULTS, Incident, own_reports
from trainspec_validate.documents.types.trace import Decision, FaultSeen, Restore, StepDone
from trainspec_validate.documents.types.trace import Save as SaveRecord
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._restarts import NOTHING, PEERS
from trainspec_validate.telemetry.checks._saves import Save
from trainspec_validate.telemetry.view.run_view import AttemptSpan, PlacedEvent

_FAULT_KINDS = {
    "hang": "hang",
    "node-failure": "node",
    "network-failure": "network",
    "storage-failure": "storage",
    "silent-corruption": "corruption",
    "out-of-memory": "out-of-memory",
}
"""Word of a trace for the fault of an incident; `process` for others."""
_MOST_SAVES = 1_000
_EVENTS = ("train.attempt.start", "train.recovery.end")
_RANK_METRICS = ("train.rank.step", "train.step.duration")


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read what the records leave open."""

    is_late: bool
    """Whether the fault was as late as it can have been, and a step without a reported loss had a finite one."""


LATE, EARLY = Reading(is_late=True), Reading(is_late=False)
"""The readings that are the best and the worst for a stack; a verdict holds where both give it."""


def history(facts: Facts, incident: Incident, reading: Reading) -> list[Entry]:
    """The attempt that ended, the fault, and the attempt after it, in order of time.

    Streams report steps and restores of the whole job: they appear as those of rank 0.
    """
    found = [*_before(facts, incident, reading), *_fault(facts, incident, reading), *_after(facts, incident, reading)]
    found += [*_saves(facts, incident), *_events(facts, incident)]
    return sorted(found, key=lambda entry: entry.seconds)


def first_time(facts: Facts, incident: Incident, needs: str) -> list[Entry]:
    """Steps of the attempt that ended, which have the metric: the baseline of those that were repeated after it."""
    before = incident.before
    return list(facts.steps(before.number, _restored(facts, before), needs=needs)) if before is not None else []


def repeated(facts: Facts, incident: Incident, needs: str) -> list[Entry]:
    """The attempt that followed alone, with the steps that have the metric."""
    after = incident.after
    if after is None:
        return []
    steps = facts.steps(after.number, _restored(facts, after), needs=needs)
    return sorted([*_restore(facts, after), *steps], key=lambda entry: entry.seconds)


def ranks(facts: Facts, span: AttemptSpan) -> list[Entry]:
    """The last step of an attempt, and the last values of each of its ranks."""
    size = min(span.world_size or 0, MOST_RANKS)
    found = [facts.entry(Started(pid=0, attempt=span.number, num_ranks=size), span.first_time_us)]
    found.append(facts.entry(Streams(num_files=len(facts.run.files)), span.last_time_us))
    last = facts.progress.last(span.number) if facts.progress is not None else None
    if last is not None:
        found += facts.steps(span.number, last.step - 1, last.step)
    table = facts.run.series
    for metric in _RANK_METRICS:
        for index in table.of(metric).tolist():
            if int(table.rows[index]["attempt"]) != span.number:
                continue
            one = table.at(index)
            if one.subject.rank is not None and one.last_step >= 0:
                record = Streamed(
                    kind="sample",
                    attempt=span.number,
                    time_us=one.last_time_us,
                    rank=one.subject.rank,
                    step=one.last_step,
                    values={str(one.key): one.last_value},
                )
                found.append(facts.entry(record, one.last_time_us, one.last_location))
    return sorted(found, key=lambda entry: entry.seconds)


def usable_saves(facts: Facts, incident: Incident) -> list[Save]:
    """Checkpoints that were committed in the lineage before the restart, not deleted, and that outlive the job.

    Left out are those from beyond a step that an earlier attempt went back to: the run has left them.
    """
    if incident.after is None:
        return []
    start = _start_us(facts, incident)
    left = sorted(
        (number, one.step)
        for number, one in facts.restarts.items()
        if number < incident.after.number and one.step is not None
    )
    least = list(accumulate((step for _, step in reversed(left)), min))[::-1]
    found = []
    for save in facts.saves_before(start):
        step, commit = save.step, save.committed
        if step is None or commit is None or not save.usable_at(start) or not save.outlives_the_job:
            continue
        later = bisect_right(left, commit.attempt, key=itemgetter(0))
        if later == len(least) or step <= least[later]:
            found.append(save)
    return found


def _restored(facts: Facts, span: AttemptSpan) -> int:
    """Step that an attempt continued from; 0 where no record says it."""
    return facts.restored_step(span.number) or 0


def _start_us(facts: Facts, incident: Incident) -> int:
    """When the attempt that followed began: before its restore, and after what ended the one before it."""
    if incident.after is None:
        return incident.latest_us
    restart = facts.restarts.get(incident.after.number)
    told = restart.told.time_us if restart is not None else incident.after.first_time_us
    return min(max(incident.after.first_time_us, incident.latest_us + 1), told - 1)


def _before(facts: Facts, incident: Incident, reading: Reading) -> Iterator[Entry]:
    before = incident.before
    if before is None:
        return
    yield facts.entry(_started(before, resume=False), before.first_time_us)
    yield from _restore(facts, before)
    last = facts.progress.last(before.number) if facts.progress is not None else None
    if last is None:
        return
    restored = _restored(facts, incident.after) if incident.after is not None else last.step
    above = max(_restored(facts, before), min(restored, last.step - 1))
    yield from facts.steps(before.number, above, with_losses=not reading.is_late)


def _after(facts: Facts, incident: Incident, reading: Reading) -> Iterator[Entry]:
    after = incident.after
    if after is None:
        return
    yield facts.entry(_started(after, resume=True), _start_us(facts, incident))
    yield from _restore(facts, after)
    last = facts.progress.last(incident.before.number) if facts.progress is not None and incident.before else None
    restored = _restored(facts, after)
    most = None if last is None else max(last.step, restored) + 2 * _report_steps(facts)
    first = facts.progress.first(after.number, above=restored) if facts.progress is not None else None
    if reading.is_late and first is not None and first.step > restored + 1:
        yield _earliest_step(facts, after, restored)
    yield from facts.steps(after.number, _restored(facts, after), most, with_losses=not reading.is_late)


def _earliest_step(facts: Facts, span: AttemptSpan, restored: int) -> Entry:
    """The first step of an attempt whose first report is of a later one: as early as it can have been."""
    restart = facts.restarts.get(span.number)
    at_us = (restart.told.time_us if restart is not None else span.first_time_us) + 1
    record = StepDone(
        time_us=max(at_us, 0), attempt=span.number, rank=0, step=restored + 1, loss=0.0, learning_rate=0.0
    )
    return facts.entry(record, at_us)


def _report_steps(facts: Facts) -> int:
    """Optimizer steps between two reports of the job, at most as many as a history holds."""
    return min(max((head.record.report_interval_steps for head in facts.run.heads), default=1), MOST_STEPS)


def _started(span: AttemptSpan, *, resume: bool) -> Started:
    return Started(pid=0, attempt=span.number, num_ranks=min(span.world_size or 0, MOST_RANKS), resume=resume)


def _restore(facts: Facts, span: AttemptSpan) -> Iterator[Entry]:
    restart = facts.restarts.get(span.number)
    if restart is None or restart.step is None:
        return
    source = restart.source
    is_initial = source == NOTHING or (source is None and restart.step == 0)
    record = Restore(
        time_us=max(restart.told.time_us, 0),
        attempt=span.number,
        rank=0,
        step=restart.step,
        source="initial" if is_initial else "peer" if source == PEERS else "checkpoint",
        checkpoint=None if is_initial or source in {None, PEERS} else source,
    )
    yield facts.entry_of(restart.told, record)


def _fault(facts: Facts, incident: Incident, reading: Reading) -> Iterator[Entry]:
    if incident.kind in FAULTS or incident.kind == "failed-save":
        at_us = incident.latest_us - 1 if reading.is_late else min(incident.earliest_us, incident.latest_us - 1)
        kind = "stop" if incident.kind == "hang" else "kill"
        yield facts.entry(Injected(kind=kind, target="rank"), at_us, incident.location)
    for event in own_reports(facts, incident):
        record = FaultSeen(
            time_us=max(event.time_us, 0),
            attempt=event.attempt,
            kind=_FAULT_KINDS.get(incident.kind, "process"),  # type: ignore[arg-type]
            reason=word(event, "train.reason"),
        )
        yield facts.entry_of(event, record)
    named = {event.record.a.get("train.fault.id") for event in incident.reports}
    for event in facts.run.events_named("train.recovery.begin"):
        if event.record.a.get("train.fault.id") in named and event.record.a.get("train.fault.id") is not None:
            yield facts.entry_of(
                event, Decision(time_us=max(event.time_us, 0), attempt=event.attempt, action="restart")
            )


def _saves(facts: Facts, incident: Incident) -> Iterator[Entry]:
    """Commits around the incident, and the checkpoints that could be restored when the next attempt began."""
    usable = usable_saves(facts, incident)[-_MOST_SAVES:]
    start = _start_us(facts, incident)
    if usable:
        names = tuple(save.id for save in usable)
        yield facts.entry(Listed(checkpoints=names), start - 1)
    for save in usable:
        if save.committed is not None:
            yield _committed(facts, save, save.committed)
    known = {save.id for save in usable}
    near = [save for save in facts.saves if save.committed and save.committed.time_us > incident.latest_us]
    for save in [one for one in near if one.id not in known][:_MOST_SAVES]:
        if save.committed is not None:
            yield _committed(facts, save, save.committed)


def _committed(facts: Facts, save: Save, event: PlacedEvent) -> Entry:
    record = SaveRecord(
        time_us=max(event.time_us, 0),
        attempt=event.attempt,
        checkpoint=save.id,
        step=save.step or 0,
        stage="committed",
    )
    return facts.entry_of(event, record)


def _events(facts: Facts, incident: Incident) -> Iterator[Entry]:
    """Events of the stream about this incident: its reports, the attempts around it, the end of its recovery."""
    spans = [*([incident.before] if incident.before else []), *([incident.after] if incident.after else [])]
    numbers = {span.number for span in spans}
    named = {event.record.a.get("train.fault.id") for event in incident.reports} - {None}
    for event in incident.reports:
        yield _streamed(facts, event)
    for event in facts.run.events_named(*_EVENTS):
        is_of_another = event.name == _EVENTS[1] and event.record.a.get("train.fault.id") not in named
        if event.attempt in numbers and not is_of_another:
            yield _streamed(facts, event)


def _streamed(facts: Facts, event: PlacedEvent) -> Entry:
    record = Streamed(
        kind="event",
        name=event.name,
        attempt=event.attempt,
        time_us=event.time_us,
        step=event.step,
        attributes=event.record.a,
    )
    return facts.entry_of(event, record)
