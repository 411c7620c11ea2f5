"""The only place that checks that counters count up, start again openly, and that measured values move."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from trainspec_validate.metrics import Metric, by_name
from trainspec_validate.telemetry.checks import Deviation, NotJudged, check
from trainspec_validate.telemetry.checks._rows import deviations_of_rows, refuse_snapshot, rows_of
from trainspec_validate.telemetry.checks._words import (
    Fault,
    deviations_of,
    grouped,
    moment,
    number,
    series_in_words,
    value_in_words,
)
from trainspec_validate.telemetry.view import Occurrence, RunView, Series, Trouble

MOVING = frozenset(
    {
        *("train.loss.mean", "train.loss.max", "train.gradient.norm", "train.gradient.variance"),
        *("train.gradient.signal", "train.gradient.noise_scale", "train.token.rate", "train.step.duration"),
    }
)
"""Metrics that are computed or timed afresh in each update: limits, rates that are set, and integers do stand still."""
FROZEN_VALUES = 3
"""Equal values of full precision: the gradient norm of one public run stood still for 3 updates and again for 5."""
FROZEN_ZEROS = 10
"""Zeros in a row: an accumulator that is read after it was cleared gives nothing else."""
FROZEN_READINGS = 30
"""Equal readings of a power meter that never gives another: a quarter of an hour at the usual cadence."""
METER_DIGITS = 4
"""Significant digits from which a steady reading is no accident of rounding to whole watts."""
FULL_DIGITS = 6
"""Significant digits from which two equal values are no accident of rounding."""


def _counters(run: RunView) -> list[Metric]:
    found = [by_name(name) for name in sorted(run.series.metrics())]
    counters = [metric for metric in found if metric is not None and metric.instrument == "counter"]
    if not counters:
        raise NotJudged("no counter has a value")
    return counters


@check("TS-TEL-024")
def counter_monotonic(run: RunView) -> Iterator[Deviation]:
    """No counter falls while it counts from the same start."""
    counters = _counters(run)
    refuse_snapshot(run)

    def message(fall: Occurrence) -> str:
        before, now = value_in_words(fall.value_before), value_in_words(fall.value)
        return f"{series_in_words(fall.key, fall.subject)} falls from {before} to {now} at {moment(fall.time_us)}"

    help_text = "a counter that starts again says so with a later start_us; a value that falls by nature is a gauge"
    yield from deviations_of(run.trails_of(Trouble.COUNTER_FALL), message, help_text)
    yield from grouped(_falls_between_attempts(run, [metric.name for metric in counters if metric.falls == "never"]))


def _falls_between_attempts(run: RunView, metrics: list[str]) -> Iterator[Fault]:
    """Counters of the whole run whose first value of an attempt is below the last one of the attempt before."""
    newest: dict[Any, Series] = {}
    for series in sorted((run.series.at(int(row)) for row in rows_of(run, metrics)), key=lambda s: s.attempt):
        before = newest.get((series.key, series.subject))
        newest[(series.key, series.subject)] = series
        if before is not None and series.first_value < before.last_value:
            values = f"from {value_in_words(before.last_value)} to {value_in_words(series.first_value)}"
            yield Fault(
                key=series.key,
                subject=series.subject,
                location=series.first_location,
                message=f"{series.key} falls {values} with attempt {series.attempt}",
                help="it counts over the whole run: go on from the last value of the attempt before",
                first_time_us=series.first_time_us,
                last_time_us=series.first_time_us,
                related=((before.last_location, "the last value before it"),),
            )


@check("TS-TEL-025")
def counter_restarts(run: RunView) -> Iterator[Deviation]:
    """A counter of a device starts again at most once in an attempt, and one of the job not at all."""
    _counters(run)
    refuse_snapshot(run)
    trails = run.trails_of(Trouble.COUNTER_RESET)
    bound = [trail for trail in trails if _falls(trail.key.metric) in {"attempt", "never"}]

    def message(reset: Occurrence) -> str:
        name = series_in_words(reset.key, reset.subject)
        return f"{name} starts again within attempt {reset.attempt}, at {moment(reset.time_us)}"

    yield from deviations_of(bound, message, "go on counting; it starts again with a new attempt at the earliest")
    free = {trail.key for trail in trails if _falls(trail.key.metric) == "restart"}
    rows = rows_of(run, {key.metric for key in free})
    rows = rows[run.series.rows["num_falls"][rows] > 1]
    second = {
        place: occurrences[1]
        for place, occurrences in _by_series([o for trail in trails for o in trail.first]).items()
        if len(occurrences) > 1
    }

    def fault(series: Series) -> Fault:
        known = second.get((series.key, series.subject, series.attempt))
        return Fault(
            key=series.key,
            subject=series.subject,
            location=known.location if known else series.last_location,
            message=f"{series_in_words(series.key, series.subject)} starts again {series.num_falls} times "
            f"in attempt {series.attempt}",
            help="a driver restarts once; more often it is two writers of one series, or a counter that wraps",
            first_time_us=series.first_time_us,
            last_time_us=series.last_time_us,
        )

    yield from deviations_of_rows(run, rows, "last", fault)


def _falls(metric: str) -> str:
    entry = by_name(metric)
    return "any" if entry is None else entry.falls


def _by_series(occurrences: list[Occurrence]) -> dict[Any, list[Occurrence]]:
    found: dict[Any, list[Occurrence]] = {}
    for occurrence in sorted(occurrences, key=lambda occurrence: occurrence.time_us):
        found.setdefault((occurrence.key, occurrence.subject, occurrence.attempt), []).append(occurrence)
    return found


@check("TS-TEL-026")
def frozen_value(run: RunView) -> Iterator[Deviation]:
    """No value that is computed afresh in each update stays the same to the last bit over several of them."""
    refuse_snapshot(run)
    rows, meters = rows_of(run, MOVING, least=FROZEN_VALUES), rows_of(run, ["hw.power"], least=FROZEN_READINGS)
    if not len(rows) and not len(meters):
        raise NotJudged("no loss, gradient norm or power comes often enough")
    suspects = rows[run.series.rows["longest_run"][rows] >= FROZEN_VALUES]
    frozen = [row for row in suspects.tolist() if _is_frozen(run, row)]

    def fault(series: Series) -> Fault:
        return Fault(
            key=series.key,
            subject=series.subject,
            location=series.longest_run_location,
            message=f"{series_in_words(series.key, series.subject)} is {_shown(series.longest_run_value)} for "
            f"{series.longest_run} updates in a row",
            help="write what each update gives; a value that was cleared, cached or skipped is left out",
            first_time_us=series.longest_run_start_us,
            last_time_us=series.longest_run_end_us,
            samples=(_shown(series.longest_run_value),),
        )

    yield from deviations_of_rows(run, np.array(frozen, dtype=np.int64), "longest_run", fault)
    columns = run.series.rows[meters]
    still = meters[(columns["minimum"] == columns["maximum"]) & (columns["maximum"] != 0)]
    still = [row for row in still.tolist() if num_digits(float(run.series.rows["maximum"][row])) >= METER_DIGITS]
    yield from deviations_of_rows(run, np.array(still, dtype=np.int64), "first", _still)


def _still(series: Series) -> Fault:
    return Fault(
        key=series.key,
        subject=series.subject,
        location=series.first_location,
        message=f"{series_in_words(series.key, series.subject)} is {number(series.maximum)} W in all of its "
        f"{series.num:,} readings",
        help="read the meter anew for each value; one that is not read any more is left out",
        first_time_us=series.first_time_us,
        last_time_us=series.last_time_us,
    )


def _is_frozen(run: RunView, row: int) -> bool:
    columns = run.series.rows[row]
    value, length = float(columns["longest_run_value"]), int(columns["longest_run"])
    if value == 0:
        return length >= FROZEN_ZEROS
    return bool(np.isfinite(value)) and num_digits(value) >= FULL_DIGITS


def num_digits(value: float) -> int:
    """Significant digits of the shortest text that reads back as the value.

    >>> num_digits(464441.887), num_digits(2.5)
    (9, 2)
    """
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


def _shown(value: float) -> str:
    return number(value) if value == 0 else repr(value)
