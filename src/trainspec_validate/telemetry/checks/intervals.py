"""Checks that intervals that a run begins also end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainspec_validate.model.metrics import events
from trainspec_validate.telemetry.checks import Location, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._intervals import (
    Interval,
    Pairing,
    kind_of,
    may_grow,
    of_intervals,
    openers,
    paired,
)
from trainspec_validate.telemetry.checks._words import damaged, few, moment, seconds_in_words
from trainspec_validate.telemetry.view.run_view import PlacedEvent

OPENED = "the event that began it"


@check("TS-TEL-043")
def interval_balanced(run: RunView) -> Iterator[Violation]:
    """Every event that begins something has one that ends it, later and with the same id."""
    refused = list(damaged(run, "TS-TEL-043"))
    if not refused and not of_intervals(run):
        raise NotApplicable("no event of the run begins or ends anything")
    pairing = paired(run)
    own = {violation.place for violation in refused}
    stray = (each for each in _stray(run, pairing) if each[1].place not in own)
    found = [*_untied(pairing), *_opened_twice(pairing), *_reversed(pairing), *stray]
    if not may_grow(run):
        found += _unclosed(pairing)
    elif not found and not any(interval.closed for interval in pairing.intervals):
        raise NotApplicable("the run continues, and nothing has ended yet")
    by_event: dict[str, list[Violation]] = {}
    for name, violation in found:
        by_event.setdefault(name, []).append(violation)
    for mine in by_event.values():
        yield from few(mine)
    told = {violation.place for _, violation in found}
    yield from (violation for violation in refused if violation.place not in told)


Named = Iterable[tuple[str, Violation]]


def _untied(pairing: Pairing) -> Named:
    for event in pairing.untied:
        message = f"{event.name} has no id, so what it belongs to is unknown"
        yield event.name, Violation(event.location, message, "give both events of an interval the same id")


def _opened_twice(pairing: Pairing) -> Named:
    for event, before in pairing.opened_twice:
        message = f"{said(event)} begins again before it has ended"
        help_text = f"write {_closers(event)} first, or use another id"
        yield event.name, Violation(event.location, message, help_text, related=((before.location, OPENED),))


def _reversed(pairing: Pairing) -> Named:
    for interval in pairing.reversed:
        end = interval.closed or interval.opened
        early = seconds_in_words((interval.opened.time_us - end.time_us) / 1e6)
        message = f"{said(end)} is {early} before {interval.opened.name}"
        yield (
            end.name,
            Violation(end.location, message, "an end is no earlier than its begin", related=_begin(interval)),
        )


def _stray(run: RunView, pairing: Pairing) -> Named:
    for event in pairing.stray:
        if not _starts_late(run, event):
            message = f"{said(event)} ends what has not begun"
            yield (
                event.name,
                Violation(event.location, message, f"write {openers()[event.name]} with the same id before"),
            )


def _unclosed(pairing: Pairing) -> Named:
    known = events()
    for interval in pairing.intervals:
        opened = interval.opened
        if interval.is_open and not known[opened.name].can_stay_open:
            message = f"{said(opened)} begins at {moment(opened.time_us)} and never ends"
            help_text = f"write {_closers(opened)} with the same id, also where an observer finds that it ended"
            yield opened.name, Violation(opened.location, message, help_text)


def _starts_late(run: RunView, event: PlacedEvent) -> bool:
    """Whether the records in which the interval began can be missing from the front of the streams."""
    if run.attempts and run.attempts[0].number > 0:
        return True
    return any(
        span.emitter == event.emitter and span.attempt <= event.attempt and span.first_seq > 0 for span in run.emitters
    )


def _closers(event: PlacedEvent) -> str:
    return " or ".join(events()[kind_of(event) or event.name].closed_by)


def _begin(interval: Interval) -> tuple[tuple[Location, str], ...]:
    return ((interval.opened.location, OPENED),)


def said(event: PlacedEvent) -> str:
    """An event with what ties it to others."""
    if event.name.startswith("train.run."):
        return event.name
    if event.name.startswith("train.attempt."):
        return f"{event.name} of attempt {event.attempt}"
    return f"{event.name} {event.record.id!r}"
