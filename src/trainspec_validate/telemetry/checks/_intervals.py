"""Pairs the events that open and close intervals, by the catalog and their `id`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from trainspec_validate.model.metrics import events
from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView

RUN, ATTEMPT = "train.run.start", "train.attempt.start"
REPEATED = "train.checkpoint.commit"
"""The one closing event that can come again with the same `id`, when a checkpoint becomes more durable."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Two events of one kind with the same `id`; the second is None while the interval is open."""

    opened: PlacedEvent
    closed: PlacedEvent | None

    @property
    def is_open(self) -> bool:
        """Whether nothing closes it."""
        return self.closed is None


@dataclass(frozen=True, slots=True)
class Pairing:
    """Results of the events of all kinds of intervals."""

    intervals: tuple[Interval, ...]
    """In order of opening."""
    untied: tuple[PlacedEvent, ...]
    """Events without the `id` that would tie them to others."""
    opened_twice: tuple[tuple[PlacedEvent, PlacedEvent], ...]
    """An event that opens an interval that is still open, and the event that opened it."""
    stray: tuple[PlacedEvent, ...]
    """Events that close what is not open."""
    reversed: tuple[Interval, ...]
    """Intervals that end before they begin."""

    def of(self, name: str) -> Sequence[Interval]:
        """The intervals that events of this name open."""
        return [interval for interval in self.intervals if interval.opened.name == name]


@cache
def openers() -> dict[str, str]:
    """Name of the event that opens an interval, by the names of those that close it."""
    return {closing: name for name, event in events().items() for closing in event.closed_by}


def kind_of(event: PlacedEvent) -> str | None:
    """Name of the opening event of the interval that an event belongs to; None where it belongs to none."""
    return _kinds().get(event.name)


@cache
def _kinds() -> dict[str, str]:
    """The same by the name of the event."""
    return {name: name for name, event in events().items() if event.closed_by} | openers()


def of_intervals(run: RunView, *kinds: str) -> Sequence[PlacedEvent]:
    """The events that open or close intervals of some kinds, or of all, in order of time."""
    return run.events_named(*(name for name, kind in _kinds().items() if not kinds or kind in kinds))


def tie_of(event: PlacedEvent) -> str | None:
    """Key that ties the events of one interval together; None where it is absent."""
    kind = kind_of(event)
    if kind == RUN:
        return event.run
    return str(event.attempt) if kind == ATTEMPT else event.record.id


def paired(run: RunView, *names: str) -> Pairing:
    """The intervals of a run, of all kinds or of those that events of these names open."""
    found, untied, twice, stray, backwards = [], [], [], [], []
    for tie, group in _groups(run, names).items():
        if tie[1] is None:
            untied += group
            continue
        mine = _Fold(group)
        found += mine.intervals
        twice += mine.opened_twice
        stray += mine.stray
        backwards += mine.reversed
    found.sort(key=lambda interval: (interval.opened.time_us, interval.opened.location))
    return Pairing(tuple(found), tuple(untied), tuple(twice), tuple(stray), tuple(backwards))


def intervals(run: RunView, name: str) -> Sequence[Interval]:
    """The intervals that events of this name open, in order of opening."""
    return paired(run, name).of(name)


def _groups(run: RunView, names: Sequence[str]) -> dict[tuple[str, str | None], list[PlacedEvent]]:
    found: dict[tuple[str, str | None], list[PlacedEvent]] = {}
    for event in of_intervals(run, *names):
        found.setdefault((_kinds()[event.name], tie_of(event)), []).append(event)
    return found


class _Fold:
    """Goes through the events of one tie in order of time."""

    def __init__(self, group: Sequence[PlacedEvent]) -> None:
        self.intervals: list[Interval] = []
        self.opened_twice: list[tuple[PlacedEvent, PlacedEvent]] = []
        self.stray: list[PlacedEvent] = []
        self.reversed: list[Interval] = []
        self._open: PlacedEvent | None = None
        self._last: PlacedEvent | None = None
        for event in group:
            (self._close if event.name in openers() else self._begin)(event)
        if self._open is not None:
            self._end(self._open)

    def _begin(self, event: PlacedEvent) -> None:
        if self._open is None:
            self._open = event
        else:
            self.opened_twice.append((event, self._open))

    def _close(self, event: PlacedEvent) -> None:
        if self._open is not None:
            self.intervals.append(Interval(self._open, event))
            self._open = None
        elif not (event.name == REPEATED and self._last is not None and self._last.name == REPEATED):
            self.stray.append(event)
        self._last = event

    def _end(self, left: PlacedEvent) -> None:
        """An interval that nothing after it closes: one closed too early, or one that is open."""
        if self.stray:
            self.reversed.append(Interval(left, self.stray.pop(0)))
        else:
            self.intervals.append(Interval(left, None))


def may_grow(run: RunView) -> bool:
    """Whether records can still come, as the run is followed; a last line that is cut says nothing of that."""
    return run.is_live
