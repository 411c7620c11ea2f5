"""Checks errors of devices against what the job made of them: faults, their causes, and devices that stay in use."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from trainspec_validate.model.xids import xid
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check, require
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._episodes import CLEARED, FAULT
from trainspec_validate.telemetry.checks._rows import refuse_snapshot, refuse_timeless
from trainspec_validate.telemetry.checks._words import few, moment
from trainspec_validate.telemetry.view.run_view import PlacedEvent, Series

ERROR, CODE, SEVERITY = "train.device.error", "train.fault.vendor_code", "train.error.severity"
COMPONENT = "train.fault.component"
RECOVERED = "train.recovery.end"
CLOCKS_US = 60_000_000
"""Clocks of a kernel log and of a job agree within this, or one of them is wrong."""
DETECTED_US = 1_800_000_000
"""Half an hour: the longest default after which a collective library gives up on a rank that does not answer."""
WORK = ("hw.gpu.utilization", "train.rank.step")
"""Metrics that show that a device works: its utilisation, or the optimizer steps of its rank."""
_OF_DEVICES = frozenset({"device", "device_memory"})


def _errors(run: RunView) -> Sequence[PlacedEvent]:
    refuse_snapshot(run)
    refuse_timeless(run)
    return require(run.events_named(ERROR), "the run records no errors of devices")


def _between(events: Sequence[PlacedEvent], first_us: int, last_us: int) -> Sequence[PlacedEvent]:
    """The events of a time; they are in the order of their times."""
    start = bisect_left(events, first_us, key=_time)
    return events[start : bisect_right(events, last_us, lo=start, key=_time)]


def _time(event: PlacedEvent) -> int:
    return event.time_us


def _code(event: PlacedEvent) -> str:
    return word(event, CODE) or "without a code"


def _is_fatal(error: PlacedEvent) -> bool:
    """Whether its source, or the table of its maker, takes the device out of use."""
    known = xid(_code(error))
    return word(error, SEVERITY) == "fatal" or bool(known and known.reset)


def _stops_work(error: PlacedEvent) -> bool:
    known = xid(_code(error))
    return _is_fatal(error) or bool(known and known.restart) or _code(error).startswith("ras:uncorrectable")


def _answer(error: PlacedEvent) -> str:
    """What has to be done after an error, and who says so."""
    known = xid(_code(error))
    if known is not None and known.restart:
        return f"{known.title}; NVIDIA: {known.words}"
    return "its source calls it fatal" if word(error, SEVERITY) == "fatal" else "uncorrectable"


def _named(error: PlacedEvent) -> str:
    host = f" of {error.subject.host}" if error.subject.host else ""
    return f"{_code(error)} on {error.subject.device or 'a device'}{host}"


def _names(fault: PlacedEvent, error: PlacedEvent) -> bool:
    subject = error.subject
    return word(fault, CODE) == _code(error) or word(fault, COMPONENT) in {subject.device, subject.host} - {None}


@check("TS-TEL-085")
def device_error_reported(run: RunView) -> Iterator[Violation]:
    """An error that ends the work of an application is a fault of the job."""
    errors = [error for error in _errors(run) if _stops_work(error)]
    steps = require(list(run.series.each("train.step.count")), "no train.step.count says when the job ran")
    first, last = min(row.first_time_us for row in steps), max(row.last_time_us for row in steps)
    during = [error for error in errors if first <= error.time_us <= last + CLOCKS_US]
    if not during:
        raise NotApplicable("no error of a device that asks for a restart while the job ran")
    faults = run.events_named(FAULT)
    yield from few(
        Violation(
            error.location,
            f"no fault event for {_named(error)} at {moment(error.time_us)} ({_answer(error)})",
            "write train.fault.detected with its train.fault.vendor_code and train.fault.component",
        )
        for error in _first_of_each(during)
        if not any(
            _is_of(fault, error) for fault in _between(faults, error.time_us - CLOCKS_US, error.time_us + DETECTED_US)
        )
    )


def _is_of(fault: PlacedEvent, error: PlacedEvent) -> bool:
    """Whether a fault that follows an error can be of it: it names the error, or none."""
    return (word(fault, CODE) is None and word(fault, COMPONENT) is None) or _names(fault, error)


def _first_of_each(errors: Sequence[PlacedEvent]) -> Iterator[PlacedEvent]:
    """Errors without those that a device repeats within half an hour."""
    newest: dict[tuple[str | None, str | None, str], int] = {}
    for error in errors:
        key = (error.subject.host, error.subject.device, _code(error))
        if error.time_us - newest.get(key, -DETECTED_US - 1) > DETECTED_US:
            yield error
        newest[key] = error.time_us


@check("TS-TEL-086")
def fault_cause(run: RunView) -> Iterator[Violation]:
    """A fault of a device whose errors are recorded follows an error of it."""
    errors = _errors(run)
    watched = {name for error in errors for name in (error.subject.device, error.subject.host) if name}
    faults = [
        fault
        for fault in run.events_named(FAULT)
        if word(fault, "train.fault.class") in _OF_DEVICES and word(fault, COMPONENT) in watched
    ]
    if not faults:
        raise NotApplicable("no fault of a device, or of a host, whose errors are recorded")
    found = []
    for fault in faults:
        before = _between(errors, fault.time_us - DETECTED_US, fault.time_us + CLOCKS_US)
        code = word(fault, CODE)
        if any(_names(fault, error) and code in {None, _code(error)} for error in before):
            continue
        told = f" {code}" if code else ""
        message = f"no error{told} of {word(fault, COMPONENT)} is recorded in the 30 minutes before this fault"
        found.append(
            Violation(fault.location, message, "write the code that the driver reported, or the log that has it")
        )
    yield from few(found)


@check("TS-TEL-087")
def device_out_of_use(run: RunView) -> Iterator[Violation]:
    """A device is not used further in the attempt in which an error asked for its reset."""
    fatal = require([error for error in _errors(run) if _is_fatal(error)], "no error of a device that asks for a reset")
    ranks = {placed.rank: placed.device for placed in run.placements if placed.device is not None}
    working: dict[str, list[Series]] = {}
    for row in (row for metric in WORK for row in run.series.each(metric)):
        device = row.subject.device or ranks.get(row.subject.rank if row.subject.rank is not None else -1)
        if device is not None and row.last_value > 0:
            working.setdefault(device, []).append(row)
    judged = [error for error in fatal if error.subject.device in working]
    if not judged:
        raise NotApplicable("no record shows the work of a device with an error that asks for a reset")
    answers = run.events_named(CLEARED, RECOVERED)
    yield from few(
        Violation(
            error.location,
            f"{_named(error)} asks for a reset ({_answer(error)}), and the device is in use "
            f"{(row.last_time_us - error.time_us) / 1e6:,.0f} s later in the same attempt",
            "end the attempt, reset or replace the device, and write train.recovery.begin and .end",
        )
        for error, row in _used_further(judged, working)
        if not any(error.time_us <= answer.time_us <= row.last_time_us for answer in answers)
    )


def _used_further(
    errors: Sequence[PlacedEvent], working: dict[str, list[Series]]
) -> Iterator[tuple[PlacedEvent, Series]]:
    for error in _first_of_each(errors):
        rows = working[error.subject.device or ""]
        after = [
            row for row in rows if row.first_time_us <= error.time_us and row.last_time_us > error.time_us + CLOCKS_US
        ]
        if after:
            yield error, max(after, key=lambda row: row.last_time_us)
