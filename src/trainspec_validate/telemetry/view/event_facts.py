"""Facts of all events of a run for checks: found in one pass, however many attempts and checks ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainspec_validate.telemetry.view.event_log import by_name
from trainspec_validate.telemetry.view.places import Subject
from trainspec_validate.telemetry.view.run_records import PlacedEvent

_GIVEN_UP = frozenset({"aborted", "failed"})
_OUTCOMES = ("train.evaluation.outcome", "train.recovery.outcome")


@dataclass(slots=True)
class EventFacts:
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


def facts_of(events: Sequence[PlacedEvent]) -> EventFacts:
    """Go through all events once."""
    found = EventFacts()
    for name, some in by_name(events):
        _add(found, name, some)
    return found


def _add(found: EventFacts, name: str, events: Iterable[PlacedEvent]) -> None:
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
