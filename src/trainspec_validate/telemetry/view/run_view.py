"""Declares the view of a run that checks see: the folded digest of its streams, never the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.telemetry.view.anomaly_kinds import Occurrence, Trail, Trouble
from trainspec_validate.telemetry.view.event_log import by_name, named
from trainspec_validate.telemetry.view.places import NOWHERE, Key, Location, Subject
from trainspec_validate.telemetry.view.run_records import (
    AttemptSpan,
    Damage,
    EmitterSpan,
    KeyInfo,
    PlacedEvent,
    PlacedHead,
    Placement,
    StreamFile,
)
from trainspec_validate.telemetry.view.tables import JobSeries, Lockstep, Series, SeriesTable, Windows

_GIVEN_UP = frozenset({"aborted", "failed"})
_OUTCOMES = ("train.evaluation.outcome", "train.recovery.outcome")


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that checks may look at, for one run."""

    run: str
    files: tuple[StreamFile, ...]
    heads: tuple[PlacedHead, ...]
    """In order of attempt, then emitter."""
    attempts: tuple[AttemptSpan, ...]
    """In order of their numbers."""
    events: Sequence[PlacedEvent]
    """In order of time, then attempt, emitter and sequence number."""
    keys: tuple[KeyInfo, ...]
    series: SeriesTable
    trails: tuple[Trail, ...]
    job: Mapping[str, JobSeries]
    """By the text of the key, such as `train.step.count` or `train.goodput.time{train.time.category=idle}`."""
    windows: Mapping[str, Windows]
    """By the text of the key; device and node metrics and those of ranks."""
    lockstep: tuple[Lockstep, ...]
    emitters: tuple[EmitterSpan, ...]
    placements: tuple[Placement, ...]
    damage: tuple[Damage, ...]
    other_runs: Mapping[str, Location]
    """Other run identifiers that records carry, with the first place."""
    num_records: int
    num_samples: int
    first_time_us: int
    last_time_us: int
    is_live: bool = False
    """Whether the run continues: it is followed and has not said that it ends."""
    snapshot: bool = False
    """Whether the input is one snapshot, so that nothing about time can be judged."""
    has_order: bool = True
    """Whether the format promises the order of records."""
    now_us: int | None = None
    """Moment of judging, for times in the future; None where the caller gives none."""
    watched_until_us: Mapping[int, int] = field(default_factory=dict)
    """Up to when each file of a run that is followed would have shown more records, by its own clock."""
    capabilities: frozenset[str] = field(default_factory=frozenset)
    _event_facts: list[_EventFacts] = field(default_factory=list, init=False, repr=False, compare=False)
    """Once they were asked for."""

    # --- finding one's way

    def trails_of(self, *troubles: Trouble) -> Sequence[Trail]:
        """The trails of these troubles, in order of place."""
        found = [trail for trail in self.trails if trail.trouble in troubles]
        return sorted(found, key=lambda trail: trail.first[0].location if trail.first else NOWHERE)

    def events_named(self, *names: str) -> Sequence[PlacedEvent]:
        """The events with these names, in order of time."""
        return named(self.events, *names)

    def events_by_name(self) -> Iterator[tuple[str, Iterable[PlacedEvent]]]:
        """The events of each name, in order of time."""
        return by_name(self.events)

    @property
    def event_facts(self) -> _EventFacts:
        """Facts that one pass over all events finds."""
        if not self._event_facts:
            self._event_facts.append(_facts_of(self.events))
        return self._event_facts[0]

    def attempt(self, number: int) -> AttemptSpan | None:
        """The attempt with this number."""
        return next((span for span in self.attempts if span.number == number), None)

    def head_of(self, emitter: str, attempt: int) -> PlacedHead | None:
        """The head of an emitter in an attempt."""
        mine = (h for h in self.heads if h.record.emitter == emitter and h.record.att == attempt)
        return next(mine, None)

    def declared(self, attribute: str) -> list[tuple[Any, PlacedHead]]:
        """Values of a declared attribute over all heads, with the head that says so."""
        return [(head.record.declared[attribute], head) for head in self.heads if attribute in head.record.declared]

    def unsupported(self, metric: str) -> str | None:
        """The reason why a metric is declared unsupported; None where no head says so."""
        reasons = (head.record.unsupported.get(metric) for head in self.heads)
        return next((reason for reason in reasons if reason), None)


__all__ = [
    "NOWHERE",
    "AttemptSpan",
    "Damage",
    "EmitterSpan",
    "JobSeries",
    "Key",
    "KeyInfo",
    "Location",
    "Lockstep",
    "Occurrence",
    "PlacedEvent",
    "PlacedHead",
    "Placement",
    "RunView",
    "Series",
    "SeriesTable",
    "StreamFile",
    "Subject",
    "Trail",
    "Trouble",
    "Windows",
]


@dataclass(slots=True)
class _EventFacts:
    """Facts of the events of a run, whatever their number."""

    num_by_file: dict[str, dict[int, int]] = field(default_factory=dict)
    """Number of events by name and by file."""
    completed: dict[int, set[str]] = field(default_factory=dict)
    """Names of the events of each attempt that say of nothing that it was given up."""
    last_step: dict[int, int] = field(default_factory=dict)
    """Largest step that events of each attempt name."""
    metrics: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    """Metrics that events of each emitter and attempt carry values of."""
    subjects: set[Subject] = field(default_factory=set)
    """Ranks, devices and hosts that events are of."""


def _facts_of(events: Sequence[PlacedEvent]) -> _EventFacts:
    """Go through all events once."""
    found = _EventFacts()
    for name, some in by_name(events):
        _add(found, name, some)
    return found


def _add(found: _EventFacts, name: str, events: Iterable[PlacedEvent]) -> None:
    by_file = found.num_by_file.setdefault(name, {})
    subjects: set[Subject] = set()
    for event in events:
        record, attempt = event.record, event.attempt
        by_file[event.location.file] = by_file.get(event.location.file, 0) + 1
        subjects.add(event.subject)
        if not _is_given_up(event):
            found.completed.setdefault(attempt, set()).add(name)
        if record.step is not None and record.step > found.last_step.get(attempt, -1):
            found.last_step[attempt] = record.step
        if record.m:
            names = found.metrics.setdefault((event.emitter, attempt), set())
            names.update(text.partition("{")[0] for text in record.m)
    found.subjects |= subjects


def _is_given_up(event: PlacedEvent) -> bool:
    attributes = event.record.a
    told = (attributes.get(name) for name in _OUTCOMES)
    return any(isinstance(outcome, str) and outcome in _GIVEN_UP for outcome in told)
