"""Pairs the events that open and close an interval."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.model.metrics import catalog
from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView


@dataclass(frozen=True, slots=True)
class Interval:
    """Something that lasted: the event that opened it, and the one that closed it."""

    opened: PlacedEvent
    closed: PlacedEvent | None
    end_us: int
    """Where it is not closed, the end of its attempt, or of the run where it may stay open."""

    @property
    def start_us(self) -> int:
        """When it began."""
        return self.opened.time_us

    @property
    def seconds(self) -> float:
        """How long it lasted, never below 0."""
        return max(self.end_us - self.start_us, 0) / 1e6


def intervals(view: RunView, opener: str) -> list[Interval]:
    """The intervals that an event opens, in order of their start.

    Events belong together by their `id`; without one, a closing event belongs to the last open one.
    """
    closers = catalog().events[opener].closed_by
    opened: list[PlacedEvent] = []
    closed: dict[int, PlacedEvent] = {}
    waiting: dict[str | None, list[int]] = {}
    for event in view.events_named(opener, *closers):
        if event.name == opener:
            waiting.setdefault(event.record.id, []).append(len(opened))
            opened.append(event)
        elif waiting.get(event.record.id):
            closed[waiting[event.record.id].pop()] = event
    return [_interval(view, event, closed.get(number)) for number, event in enumerate(opened)]


def _interval(view: RunView, event: PlacedEvent, closer: PlacedEvent | None) -> Interval:
    if closer is not None:
        return Interval(event, closer, closer.time_us)
    span = view.attempt(event.attempt)
    stays = span is None or catalog().events[event.name].can_stay_open
    return Interval(event, None, max(event.time_us, view.last_time_us if stays or span is None else span.last_time_us))
