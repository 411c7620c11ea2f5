"""Finds the incidents of a run in the view of its streams, and says what the records leave open about each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainspec_conformance.replaying.facts import CLOCK_US, Facts
from trainspec_conformance.replaying.records import Kind
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._episodes import Episode
from trainspec_validate.telemetry.checks._intervals import intervals
from trainspec_validate.telemetry.checks._restarts import RESTORE, given_up
from trainspec_validate.telemetry.view.run_view import NOWHERE, AttemptSpan, Location, PlacedEvent

WITNESSES = frozenset({"slurm-accounting", "kubernetes-list"})
"""Formats of programs that watch a job from outside: their reports are none of the stack."""
DEVICE_ERROR = "train.device.error"
REASON = "train.attempt.reason"
BY_CLASS: dict[str, Kind] = {
    "process": "process-failure",
    "device": "device-failure",
    "device_memory": "device-failure",
    "node": "node-failure",
    "power": "node-failure",
    "link": "network-failure",
    "nic": "network-failure",
    "network": "network-failure",
    "storage": "storage-failure",
    "hang": "hang",
    "silent_corruption": "silent-corruption",
}
"""Kind of an incident by `train.fault.class`."""
_BY_REASON: dict[str, Kind] = {
    "fault": "unreported-fault",
    "preempted": "preemption",
    "operator": "planned-restart",
    "completed": "planned-restart",
    "time_limit": "planned-restart",
    "resized": "resize",
}
"""Kind by `train.attempt.reason`, where no fault was reported."""
FAULTS: frozenset[Kind] = frozenset({*BY_CLASS.values(), "out-of-memory", "unknown-fault", "unreported-fault"})
_MEMORY_CODES = frozenset({"slurm:OUT_OF_MEMORY", "kubernetes:OOMKilled"})
_MEMORY_CLASSES = frozenset({"out_of_memory", "oom"})


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happened to a run."""

    kind: Kind
    summary: str
    location: Location = NOWHERE
    time_us: int | None = None
    before: AttemptSpan | None = None
    """Attempt that it happened in."""
    between: tuple[AttemptSpan, ...] = ()
    """Later attempts that completed no optimizer step."""
    after: AttemptSpan | None = None
    """The next attempt that completed one."""
    reports: tuple[PlacedEvent, ...] = ()
    """Faults that were reported, by the stack or by a witness."""
    earliest_us: int = 0
    """The fault was not before this moment."""
    latest_us: int = 0
    """The fault was not after this moment."""
    in_attempt: bool = False
    """Whether the job continued in the same attempt."""
    ambiguities: tuple[str, ...] = ()
    count: int = 1

    @property
    def by_choice(self) -> bool:
        """Whether somebody, and not a fault, may have chosen what the job continued from."""
        return self.kind in {"preemption", "planned-restart", "resize", "restart"}


def find_incidents(facts: Facts) -> list[Incident]:
    """Every incident of a run, in order of time; those without a time come last."""
    found = [*_restarts(facts), *_in_attempts(facts), *_saves(facts), *_restores(facts), *_device_errors(facts)]
    found += [*_falls(facts)]
    found.sort(key=lambda one: (one.time_us if one.time_us is not None else 0, one.location))
    return [*found, *_of_consoles(facts)]


def own_reports(facts: Facts, incident: Incident) -> list[PlacedEvent]:
    """Reports of the stack itself."""
    return [one for one in incident.reports if not _is_of_witness(facts, one)]


def _is_of_witness(facts: Facts, event: PlacedEvent) -> bool:
    return facts.run.files[event.location.file].format in WITNESSES


# --- incidents that ended an attempt


def _restarts(facts: Facts) -> Iterator[Incident]:
    """Each change to a later attempt that trains, and the end of the last one where a fault or preemption ended it."""
    ending: dict[int, list[PlacedEvent]] = {}
    for episode in facts.episodes:
        if _is_terminal(facts, episode):
            ending.setdefault(episode.fault.attempt, []).append(episode.fault)
    for before, between, after in _changes(facts):
        reports = [event for span in (before, *between) for event in ending.get(span.number, ())]
        reason = word(before.ended, REASON) if before.ended is not None else None
        if after is None and not between and not reports and reason not in {"fault", "preempted"}:
            continue
        yield _restart(facts, before, between, after, reports)


def _is_terminal(facts: Facts, episode: Episode) -> bool:
    """Whether the attempt of a fault ended with it."""
    if episode.changes_attempt:
        return True
    fault, progress = episode.fault, facts.progress
    span = facts.run.attempt(fault.attempt)
    outcomes = [event for event in (episode.cleared, episode.resumed) if event is not None]
    if any(event.attempt == fault.attempt for event in outcomes):
        return False
    reason = word(span.ended, REASON) if span is not None and span.ended is not None else None
    if outcomes and reason not in {None, "fault"}:
        return False
    if progress is None:
        return span is None or span.ended is not None
    return progress.first(fault.attempt, after_us=fault.time_us + 1) is None


def _changes(facts: Facts) -> Iterator[tuple[AttemptSpan, tuple[AttemptSpan, ...], AttemptSpan | None]]:
    """Attempts one after another: those that completed no step are between two others.

    Where the streams report no step at all, each attempt is followed by the next.
    """
    before: AttemptSpan | None = None
    between: list[AttemptSpan] = []
    for span in facts.run.attempts:
        if before is None:
            before = span
        elif facts.progress is None or facts.has_trained(span.number):
            yield before, tuple(between), span
            before, between = span, []
        else:
            between.append(span)
    if before is not None:
        yield before, tuple(between), None


def _restart(
    facts: Facts,
    before: AttemptSpan,
    between: tuple[AttemptSpan, ...],
    after: AttemptSpan | None,
    reports: list[PlacedEvent],
) -> Incident:
    reason = word(before.ended, REASON) if before.ended is not None else None
    kind, ambiguities = _kind(reports, reason)
    latest = _latest_us(facts, before, [*between, *([after] if after is not None else [])], reports)
    signs = facts.last_signs_us(before.number, latest)
    earliest = signs[0] if signs is not None else min(before.first_time_us, latest)
    place = _place(reports, before, after)
    if after is not None and after.started is None:
        ambiguities += (f"no record says that attempt {after.number} began: it is inferred from its steps",)
    if between:
        numbers = ", ".join(str(span.number) for span in between)
        ambiguities += (f"attempt {numbers} completed no optimizer step, and no record says whether it had a fault",)
    return Incident(
        kind,
        _summary(facts, before, after, reports, reason),
        place,
        latest if facts.has_clock else None,
        before=before,
        between=between,
        after=after,
        reports=tuple(reports),
        earliest_us=earliest,
        latest_us=latest,
        ambiguities=ambiguities,
    )


def _latest_us(
    facts: Facts, before: AttemptSpan, following: Sequence[AttemptSpan], reports: Sequence[PlacedEvent]
) -> int:
    """Before the first report and before the next attempt began, or up to the newest record of the last attempt.

    Where the clock of the next attempt contradicts the report of the stack, the report counts.
    """
    until = following[0].first_time_us - 1 if following else before.last_time_us
    own = [event.time_us for event in reports if not _is_of_witness(facts, event)]
    if following and own and min(own) > until + CLOCK_US:
        return min(own)
    return min([until, *(event.time_us for event in reports)])


def _place(reports: Sequence[PlacedEvent], before: AttemptSpan, after: AttemptSpan | None) -> Location:
    if reports:
        return reports[0].location
    events = (before.ended, after.started if after is not None else None)
    return next((event.location for event in events if event is not None), NOWHERE)


def _kind(reports: Sequence[PlacedEvent], reason: str | None) -> tuple[Kind, tuple[str, ...]]:
    """Kind of a restart, and what is open about it."""
    if not reports:
        kind = _BY_REASON.get(reason or "", "restart")
        if kind == "restart":
            return kind, ("no record says why the attempt ended: a fault, a time limit or a person",)
        if kind == "preemption":
            return kind, ("no record says whether the job was given notice",)
        return kind, ()
    kinds = list(dict.fromkeys(_kind_of(event) for event in reports))
    ambiguities = []
    if len(kinds) > 1:
        ambiguities.append(f"reports name several kinds: {', '.join(kinds)}; the first one counts")
    if kinds[0] == "unknown-fault":
        named = word(reports[0], "train.fault.class")
        ambiguities.append(f"the report names {f'the class {named}' if named else 'no class'}, which no scenario has")
    return kinds[0], tuple(ambiguities)


def _kind_of(event: PlacedEvent) -> Kind:
    named = word(event, "train.fault.class") or ""
    if named in _MEMORY_CLASSES or word(event, "train.fault.vendor_code") in _MEMORY_CODES:
        return "out-of-memory"
    return BY_CLASS.get(named, "unknown-fault")


def _summary(
    facts: Facts,
    before: AttemptSpan,
    after: AttemptSpan | None,
    reports: Sequence[PlacedEvent],
    reason: str | None,
) -> str:
    last = facts.progress.last(before.number) if facts.progress is not None else None
    words = f"attempt {before.number} ended" + (f" after step {last.step:,}" if last is not None else "")
    words += f" ({reason})" if reason else ""
    if after is None:
        words += "; the files have no later attempt that trains"
    else:
        restart = facts.restarts.get(after.number)
        step = restart.step if restart is not None else None
        words += f"; attempt {after.number} continued"
        words += f" from step {step:,}" if step is not None else _first_report(facts, after)
        words += f" ({restart.source})" if restart is not None and restart.source else ""
    return words + _reported(reports)


def _first_report(facts: Facts, after: AttemptSpan) -> str:
    """That the state of an attempt is not known, with the first step that it reports."""
    first = facts.progress.first(after.number) if facts.progress is not None else None
    at = f" its first report is of step {first.step:,}, and" if first is not None else ""
    return f";{at} no record says from which state"


def _reported(reports: Sequence[PlacedEvent]) -> str:
    said = []
    for event in reports[:3]:
        parts = (word(event, name) for name in ("train.fault.class", "train.fault.vendor_code", "train.reason"))
        said.append(", ".join(part for part in parts if part))
    more = f" and {len(reports) - 3} more" if len(reports) > 3 else ""
    return f"; reported: {'; '.join(filter(None, said))}{more}" if said else ""


# --- incidents that ended no attempt


def _in_attempts(facts: Facts) -> Iterator[Incident]:
    """Faults from which the job recovered in the same attempt."""
    for episode in facts.episodes:
        fault = episode.fault
        if _is_terminal(facts, episode):
            continue
        kind, ambiguities = _kind([fault], None)
        span = facts.run.attempt(fault.attempt)
        summary = f"a fault in attempt {fault.attempt}, which continued{_reported([fault])}"
        yield replace(
            _of_event(facts, kind, summary, fault),
            before=span,
            reports=(fault,),
            in_attempt=True,
            ambiguities=ambiguities,
        )


def _of_event(facts: Facts, kind: Kind, summary: str, event: PlacedEvent) -> Incident:
    time_us = event.time_us
    return Incident(
        kind,
        summary,
        event.location,
        time_us if facts.has_clock else None,
        before=facts.run.attempt(event.attempt),
        earliest_us=time_us,
        latest_us=time_us,
    )


def _saves(facts: Facts) -> Iterator[Incident]:
    for save in facts.saves:
        if save.failed is not None and not save.commits:
            reason = word(save.failed, "train.reason")
            summary = f"checkpoint {save.id} was not committed" + (f": {reason}" if reason else "")
            yield _of_event(facts, "failed-save", summary, save.failed)


def _restores(facts: Facts) -> Iterator[Incident]:
    for restore in intervals(facts.run, RESTORE):
        if restore.closed is not None and given_up(restore):
            source = word(restore.closed, "train.restore.source") or word(restore.opened, "train.restore.source")
            reason = word(restore.closed, "train.reason")
            summary = f"the restore of {source or 'a checkpoint'} was given up: {reason}"
            one = _of_event(facts, "failed-restore", summary, restore.closed)
            doubt = "no record says whether the checkpoint was damaged, or could not be read at the time"
            yield replace(one, ambiguities=(doubt,))


def _device_errors(facts: Facts) -> Iterator[Incident]:
    """Errors of devices by attempt and code: they say nothing of the job."""
    first: dict[tuple[int, str], PlacedEvent] = {}
    counts: dict[tuple[int, str], int] = {}
    for event in facts.run.events_named(DEVICE_ERROR):
        key = event.attempt, word(event, "train.fault.vendor_code") or "no code"
        first.setdefault(key, event)
        counts[key] = counts.get(key, 0) + 1
    for key, event in first.items():
        summary = f"a device reported {key[1]} in attempt {key[0]}"
        one = _of_event(facts, "device-error", summary, event)
        doubt = "an error of a device says nothing of the job"
        yield replace(one, ambiguities=(doubt,), count=counts[key])


def _falls(facts: Facts) -> Iterator[Incident]:
    for attempt, place in facts.falls.items():
        summary = f"the step count falls within attempt {attempt}"
        doubt = "no record says whether the job restarted there, or the file is of several runs"
        span = facts.run.attempt(attempt)
        yield Incident("step-fall", summary, place, None, before=span, ambiguities=(doubt,))


def _of_consoles(facts: Facts) -> Iterator[Incident]:
    """Reports of consoles on the end of their program, which have no time."""
    for number, file in enumerate(facts.run.files):
        for words in file.incidents:
            is_end = file.end is not None and file.end[1] == words
            place = Location(number, file.end[0] if is_end and file.end is not None else -1)
            doubt = "the report has no time, and no record says what the job lost"
            yield Incident("console-report", words, place, ambiguities=(doubt,))
