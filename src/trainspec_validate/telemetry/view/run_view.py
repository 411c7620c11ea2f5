"""Declares the view of a run that checks see: the folded digest of its streams, never the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.telemetry.view.anomaly_kinds import Occurrence, Trail, Trouble
from trainspec_validate.telemetry.view.event_facts import EventFacts, facts_of
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
    _event_facts: list[EventFacts] = field(default_factory=list, init=False, repr=False, compare=False)
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
    def event_facts(self) -> EventFacts:
        """Facts that one pass over all events finds."""
        if not self._event_facts:
            self._event_facts.append(facts_of(self.events))
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
