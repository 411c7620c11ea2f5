"""Checks the form of a stream: its records, headers, writers, times and sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.telemetry.checks import Evidence, Location, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._lives import last_end
from trainspec_validate.telemetry.checks._rows import when
from trainspec_validate.telemetry.checks._seen import WITH_HEADS, is_own, own_heads
from trainspec_validate.telemetry.checks._words import (
    counted,
    damaged,
    few,
    moment,
    of_records,
    seconds_in_words,
    series_in_words,
    value_in_words,
    violations_of,
)
from trainspec_validate.telemetry.view.run_view import NOWHERE, EmitterSpan, Occurrence, Trail, Trouble


@check("TS-TEL-001")
def record_form(run: RunView) -> Iterator[Violation]:
    """Every line is a record; a line is cut off only where the run continues."""
    if not run.files:
        raise NotApplicable("no stream")
    yield from damaged(run, "TS-TEL-001")
    ended = last_end(run)
    for number, file in enumerate(run.files):
        if file.tail_bytes and ended and not run.is_live:
            message = f"the file ends within a line, and the run has ended at {moment(ended.time_us)}"
            place = Location(number, file.tail_offset)
            yield Violation(place, message, "end every record with a line end, and flush it before the program stops")


@check("TS-TEL-002")
def head_first(run: RunView) -> Iterator[Violation]:
    """Every file starts with a head."""
    if not any(file.format in WITH_HEADS for file in run.files):
        raise NotApplicable("no file of a format that has heads")
    yield from damaged(run, "TS-TEL-002")
    told = {damage.location.file for damage in run.damage if damage.location.offset == 0}
    wrong = []
    for number, file in enumerate(run.files):
        if file.format in WITH_HEADS and not file.starts_with_head and number not in told:
            state = "starts with another record than a head" if file.has_head else "has no head"
            help_text = "write a head first: run, attempt, emitter, scopes and start of the stream"
            wrong.append(Violation(Location(number, 0), f"the file {state}", help_text))
    yield from few(wrong)


@check("TS-TEL-010")
def single_writer(run: RunView) -> Iterator[Violation]:
    """One emitter writes a series in an attempt."""
    if not own_heads(run):
        raise NotApplicable("no head that names its emitter")
    if not len(run.series):
        raise NotApplicable("no value of a metric")

    def message(found: Occurrence) -> str:
        whose = series_in_words(found.key, found.subject)
        return f"{whose} has a second writer in attempt {found.attempt}: {found.emitter!r}"

    help_text = "let one emitter write each series; a second reader of the same device writes under names of its own"
    yield from of_records(run.trails_of(Trouble.SECOND_WRITER), message, help_text)


@check("TS-TEL-017")
def series_order(run: RunView) -> Iterator[Violation]:
    """Times within a series do not go back."""
    _with_order(run)

    def message(found: Occurrence) -> str:
        back = seconds_in_words((found.time_before_us - found.time_us) / 1e6)
        return f"{series_in_words(found.key, found.subject)} goes back by {back} to {moment(found.time_us)}"

    help_text = "number records in the order of their times; where a clock was set, say so by train.clock.stepped"
    yield from of_records(_of_one_writer(run, Trouble.TIME_BACK), message, help_text)


@check("TS-TEL-018")
def conflicting_points(run: RunView) -> Iterator[Violation]:
    """A series has one value at one time."""
    _with_values(run)

    def message(found: Occurrence) -> str:
        values = f"{value_in_words(found.value_before)} and {value_in_words(found.value)}"
        return f"{series_in_words(found.key, found.subject)} is both {values}{when(run, found.time_us)}"

    help_text = "give each value the time that it holds at, and each sensor a series of its own"
    yield from violations_of(_of_one_writer(run, Trouble.DUPLICATE_OTHER), message, help_text)


@check("TS-TEL-072")
def repeated_points(run: RunView) -> Iterator[Violation]:
    """No value is written twice."""
    _with_values(run)

    def message(found: Occurrence) -> str:
        return f"{series_in_words(found.key, found.subject)} has its value{when(run, found.time_us)} twice"

    help_text = "write each value once; a stream that is sent again keeps its sequence numbers"
    yield from of_records(_of_one_writer(run, Trouble.DUPLICATE_SAME), message, help_text)


@check("TS-TEL-019")
def sequence_complete(run: RunView) -> Iterator[Violation]:
    """Sequence numbers are 0, 1, 2 and so on."""
    yield from damaged(run, "TS-TEL-019")
    numbered = [span for span in run.emitters if is_own(run, span.first_location)]
    if not numbered:
        raise NotApplicable("the records have no sequence numbers")
    for span in numbered:
        yield from _without_start(span)
        if num_lost(run, span):
            yield _skipped(span)
        yield from _repeated(span)


def num_lost(run: RunView, span: EmitterSpan) -> int:
    """Records that are missing by their numbers; a line of the file that is no record can hide two of them."""
    if not span.num_missing or not is_own(run, span.first_location):
        return 0
    unread = sum(damage.location.file == span.first_location.file for damage in run.damage)
    return span.num_missing if span.num_missing > 2 * unread else 0


def _of_one_writer(run: RunView, trouble: Trouble) -> list[Trail]:
    """The trails of series with one writer: values of two have no order, and another check has them."""
    contested = {(trail.key, trail.attempt) for trail in run.trails_of(Trouble.SECOND_WRITER)}
    return [trail for trail in run.trails_of(trouble) if (trail.key, trail.attempt) not in contested]


def _with_order(run: RunView) -> None:
    _with_values(run)
    if run.snapshot:
        raise NotApplicable("the input is a snapshot, which has no order")
    if not run.has_order:
        raise NotApplicable("the format promises no order of records")


def _with_values(run: RunView) -> None:
    if not len(run.series):
        raise NotApplicable("no value of a metric")


def _whose(span: EmitterSpan) -> str:
    return f"emitter {span.emitter!r} in attempt {span.attempt}"


def _evidence(span: EmitterSpan, count: int) -> Evidence:
    return Evidence(first_time_us=span.first_time_us, last_time_us=span.last_time_us, count=count)


def _without_start(span: EmitterSpan) -> Iterator[Violation]:
    if span.first_seq > 0:
        message = f"{_whose(span)} begins with sequence number {span.first_seq:,}"
        help_text = f"the {counted(span.first_seq, 'record')} before it are lost, or in a file that was not given"
        yield Violation(span.first_location, message, help_text, _evidence(span, span.first_seq))


def _skipped(span: EmitterSpan) -> Violation:
    first, amount, location = span.missing[0] if span.missing else (-1, 0, NOWHERE)
    numbers = f"{first:,}" if amount == 1 else f"{first:,} to {first + amount - 1:,}"
    message = f"{_whose(span)} lacks sequence number{'s' * (amount > 1)} {numbers}"
    others = span.num_missing - amount
    if others:
        message += f", and {others:,} more later"
    help_text = f"lost are {span.num_missing:,} of {_total(span)} records; look at what carries the stream"
    return Violation(location, message, help_text, _evidence(span, span.num_missing))


def _repeated(span: EmitterSpan) -> Iterator[Violation]:
    if not span.num_repeated:
        return
    number, location = span.repeated[0] if span.repeated else (-1, NOWHERE)
    message = f"{_whose(span)} has sequence number {number:,} twice"
    others = span.num_repeated - 1
    if others:
        message += f", and {counted(others, 'other number')} more than once"
    help_text = "number records through the whole attempt, and give each program a name of its own"
    yield Violation(location, message, help_text, _evidence(span, span.num_repeated))


def _total(span: EmitterSpan) -> str:
    return f"{span.num_records - span.num_repeated + span.num_missing:,}"
