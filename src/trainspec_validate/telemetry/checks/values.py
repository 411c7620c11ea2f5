"""Checks single values: their range, codes for a missing value, and non-finite numbers."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.model.metrics import by_name
from trainspec_validate.model.units import bytes_
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._rows import when
from trainspec_validate.telemetry.checks._seen import advice
from trainspec_validate.telemetry.checks._words import (
    Fault,
    damaged,
    grouped,
    number,
    series_in_words,
    value_in_words,
    violations_of,
)
from trainspec_validate.telemetry.view.run_view import Occurrence, Trouble

USAGE, LIMIT = "hw.gpu.memory.usage", "hw.gpu.memory.limit"


@check("TS-TEL-012")
def value_range(run: RunView) -> Iterator[Violation]:
    """Values are in the range of their metric, and the use of memory within its limit."""
    if not run.damage:
        _with_values(run)
    yield from damaged(run, "TS-TEL-012")
    trails = run.trails_of(Trouble.BELOW_MINIMUM, Trouble.ABOVE_MAXIMUM)
    yield from violations_of(trails, lambda found: _out_of_range(run, found), _range_help)
    yield from grouped(_above_limit(run))


@check("TS-TEL-014")
def no_sentinel(run: RunView) -> Iterator[Violation]:
    """No value is a driver's code for no value."""
    _with_values(run)

    def message(found: Occurrence) -> str:
        whose = series_in_words(found.key, found.subject)
        return f"{whose} is {int(found.value)}, which drivers write where they have no value"

    of_header = ', or name the metric in "nr"; a head can declare it unsupported'
    help_text = advice(run, "leave the value out", of_header)
    yield from violations_of(run.trails_of(Trouble.SENTINEL), message, help_text)


@check("TS-TEL-015")
def finite_values(run: RunView) -> Iterator[Violation]:
    """Values that are not finite are texts, and only of metrics that can be so."""
    if not run.damage:
        _with_values(run)
    yield from damaged(run, "TS-TEL-015")

    def message(found: Occurrence) -> str:
        text = "not a number" if found.value != found.value else "infinite"
        return f"{series_in_words(found.key, found.subject)} is {text}{when(run, found.time_us)}"

    help_text = "leave the value out where there is none; only losses and gradient norms can be so"
    yield from violations_of(run.trails_of(Trouble.NOT_FINITE), message, help_text)


def _with_values(run: RunView) -> None:
    if not len(run.series):
        raise NotApplicable("no value of a metric")


def _bounds(found: Occurrence) -> tuple[float | None, float | None]:
    metric = by_name(found.key.metric)
    return (metric.minimum, metric.maximum) if metric else (None, None)


def _out_of_range(run: RunView, found: Occurrence) -> str:
    low, high = _bounds(found)
    side, bound = ("below", low) if found.trouble is Trouble.BELOW_MINIMUM else ("above", high)
    whose = series_in_words(found.key, found.subject)
    return f"{whose} is {value_in_words(found.value)}{when(run, found.time_us)}, {side} {number(bound or 0)}"


def _range_help(found: Occurrence) -> str:
    low, high = _bounds(found)
    metric = by_name(found.key.metric)
    unit = f" {metric.unit}" if metric and metric.unit != "1" else ""
    if low is not None and high is not None:
        return f"values are {number(low)} to {number(high)}{unit}"
    return f"the least is {number(low or 0)}{unit}; leave out what is not known"


def _above_limit(run: RunView) -> Iterator[Fault]:
    rows = run.series.rows
    limits = {
        (int(rows["subject"][index]), int(rows["attempt"][index])): float(rows["maximum"][index])
        for index in run.series.of(LIMIT)
    }
    for index in run.series.of(USAGE):
        limit = limits.get((int(rows["subject"][index]), int(rows["attempt"][index])))
        if limit is None or not rows["maximum"][index] > limit:
            continue
        found = run.series.at(int(index))
        whose = series_in_words(found.key, found.subject)
        yield Fault(
            key=found.key,
            subject=found.subject,
            location=found.first_location,
            message=f"{whose} reaches {bytes_(found.maximum)}, above the {bytes_(limit)} of {LIMIT}",
            help="write both in bytes, for the same device or partition",
            first_time_us=found.first_time_us,
            last_time_us=found.last_time_us,
            samples=(number(found.maximum), number(limit)),
        )
