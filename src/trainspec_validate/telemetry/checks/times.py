"""Checks that times are microseconds within the run, and not in the future."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._lives import START, last_end
from trainspec_validate.telemetry.checks._rows import clock_of
from trainspec_validate.telemetry.checks._seen import is_own
from trainspec_validate.telemetry.checks._words import damaged, few, moment, seconds_in_words
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.view.run_view import Location, PlacedEvent, PlacedHead

EARLIEST_US = 946_684_800_000_000
"""2000-01-01: a run that is older has its times in another unit."""
LATEST_US = 4_102_444_800_000_000
"""2100-01-01, for guesses."""
TOLERANCE_US = 300_000_000
"""How far a clock can be ahead of that of the reader."""
SLACK_US = 1_800_000_000
"""How long before and after the run others may write; clocks of another zone are off by half an hour or more."""
_WITHOUT_MOMENTS = frozenset({"relative", "none"})
"""Clocks of logs whose times count from a start that is not stated."""
_UNITS = {"seconds": 1_000_000, "milliseconds": 1_000}


@check("TS-TEL-016")
def time_valid(run: RunView) -> Iterator[Violation]:
    """Times are whole microseconds since 1970 UTC, within the run, and not in the future."""
    if not run.num_records and not run.heads and not run.damage:
        raise NotApplicable("no record")
    if run.heads and not run.damage and all(clock_of(head) in _WITHOUT_MOMENTS for head in run.heads):
        raise NotApplicable("times count from a start that is not stated (`trainspec import --known start=` states it)")
    yield from damaged(run, "TS-TEL-016")
    yield from few(found for head in run.heads if _has_clock(run, head) for found in _of_head(run, head))
    yield from _never_set(run)
    yield from few(_without_zone(run))
    yield from few(_future(run))
    yield from few(_outside(run))


def _never_set(run: RunView) -> Iterator[Violation]:
    """One finding for all streams that begin near 1970, as the clock of a host does that nothing has set."""
    unset = [head for head in run.heads if _has_clock(run, head) and _is_unset(head.record.time_us)]
    if unset:
        first = unset[0]
        others = f"; {len(unset) - 1:,} more begin so" if len(unset) > 1 else ""
        message = f"the stream starts at {moment(first.record.time_us)}, which is before 2000: no clock was set{others}"
        evidence = Evidence(first_time_us=first.record.time_us, count=len(unset))
        yield Violation(first.location, message, "start the writer once the time service has set the clock", evidence)


def _is_unset(time_us: int) -> bool:
    """Whether a time is before 2000 in any unit that it could be in."""
    return time_us < EARLIEST_US and not _guess(time_us)


def _guess(time_us: int) -> str:
    """What a time that is too early is in another unit; empty where it is none in any."""
    guesses = ((unit, time_us * factor) for unit, factor in _UNITS.items())
    return next((f"; in {unit} it is {moment(us)}" for unit, us in guesses if EARLIEST_US <= us < LATEST_US), "")


def _outside(run: RunView) -> Iterator[Violation]:
    """Emitters that write long before the run starts or after it has ended, by another emitter's events."""
    starts = run.events_named(START)
    start, end = starts[0] if starts else None, last_end(run)
    for span in run.emitters:
        if _is_unset(span.first_time_us):
            continue
        if start and span.emitter != start.emitter and span.first_time_us < start.time_us - SLACK_US:
            early = seconds_in_words((start.time_us - span.first_time_us) / 1e6)
            message = f"emitter {span.emitter!r} writes {moment(span.first_time_us)}, {early} before the run starts"
            yield _off(span.first_location, message, span.first_time_us, start)
        elif end and span.emitter != end.emitter and span.last_time_us > end.time_us + SLACK_US:
            late = seconds_in_words((span.last_time_us - end.time_us) / 1e6)
            message = f"emitter {span.emitter!r} writes {moment(span.last_time_us)}, {late} after the run has ended"
            yield _off(span.last_location, message, span.last_time_us, end)


def _off(place: Location, message: str, time_us: int, bound: PlacedEvent) -> Violation:
    help_text = "write UTC, not local time, and set the clock of its host, or of the one that writes the event"
    evidence = Evidence(first_time_us=time_us, last_time_us=time_us)
    return Violation(place, message, help_text, evidence, ((bound.location, f"the {bound.name}"),))


def _without_zone(run: RunView) -> Iterator[Violation]:
    """Files whose times have no zone, though their format has one."""
    for number, file in enumerate(run.files):
        if file.clock == "local" and FORMATS[file.format].clock != "local" and not FORMATS[file.format].omits_zone:
            message = "times have no zone, and are taken for UTC"
            yield Violation(Location(number, 0), message, "write UTC, or the offset with each time")


def _has_clock(run: RunView, head: PlacedHead) -> bool:
    """Whether the times of a head are those of a clock, and not counted from a start that is not told."""
    file = head.location.file
    if is_own(run, head.location):
        return clock_of(head) not in _WITHOUT_MOMENTS
    return 0 <= file < len(run.files) and run.files[file].clock == "utc"


def _of_head(run: RunView, head: PlacedHead) -> Iterator[Violation]:
    time_us = head.record.time_us
    if time_us < EARLIEST_US and (guess := _guess(time_us)):
        message = f"the stream starts at {moment(time_us)}, which is before 2000{guess}"
        yield Violation(head.location, message, "write microseconds since 1970-01-01 UTC")
    elif run.now_us is not None and time_us > run.now_us + TOLERANCE_US:
        ahead = seconds_in_words((time_us - run.now_us) / 1e6)
        message = f"the stream starts at {moment(time_us)}, {ahead} ahead of now"
        yield Violation(head.location, message, "write UTC, not local time, and set the clock")


def _future(run: RunView) -> Iterator[Violation]:
    if run.now_us is None:
        return
    for span in run.emitters:
        if span.last_time_us > run.now_us + TOLERANCE_US:
            ahead = seconds_in_words((span.last_time_us - run.now_us) / 1e6)
            message = f"emitter {span.emitter!r} writes {moment(span.last_time_us)}, {ahead} ahead of now"
            evidence = Evidence(first_time_us=span.last_time_us, last_time_us=span.last_time_us)
            yield Violation(span.last_location, message, "write UTC, not local time, and set the clock", evidence)
