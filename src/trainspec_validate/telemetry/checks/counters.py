"""Checks that counters count up, and that their resets are declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.model.metrics import Metric, by_name
from trainspec_validate.telemetry.checks import NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._rows import Columns, refuse_snapshot, rows_of, violations_of_rows, when
from trainspec_validate.telemetry.checks._seen import is_own
from trainspec_validate.telemetry.checks._words import (
    Fault,
    grouped,
    series_in_words,
    value_in_words,
    violations_of,
)
from trainspec_validate.telemetry.view.run_view import Occurrence, RunView, Series, Trouble


def _counters(run: RunView) -> list[Metric]:
    found = [by_name(name) for name in sorted(run.series.metrics())]
    counters = [metric for metric in found if metric is not None and metric.instrument == "counter"]
    if not counters:
        raise NotApplicable("no counter has a value")
    return counters


@check("TS-TEL-024")
def counter_monotonic(run: RunView) -> Iterator[Violation]:
    """No counter falls while it counts from the same start."""
    counters = _counters(run)
    refuse_snapshot(run)

    def message(fall: Occurrence) -> str:
        before, now = value_in_words(fall.value_before), value_in_words(fall.value)
        return f"{series_in_words(fall.key, fall.subject)} falls from {before} to {now}{when(run, fall.time_us)}"

    def help_text(fall: Occurrence) -> str:
        return _remedy(run, fall)

    yield from violations_of(run.trails_of(Trouble.COUNTER_FALL), message, help_text)
    yield from grouped(_falls_between_attempts(run, [metric.name for metric in counters if metric.falls == "never"]))


def _remedy(run: RunView, fall: Occurrence) -> str:
    """What to do about a counter that falls: metric streams say when a counter starts, and other formats do not.

    A counter of the run, or of an attempt, has no start but theirs.
    """
    metric = by_name(fall.key.metric)
    if metric is not None and metric.falls in {"never", "attempt"}:
        scope = "the whole run" if metric.falls == "never" else "an attempt"
        return f"it counts over {scope}: continue from its last value, or begin another attempt at a restart"
    if not is_own(run, fall.location):
        return (
            "begin a file, or an attempt, where the program is started again; a value that falls by nature is a gauge"
        )
    return "a counter that starts again says so with a later start_us; a value that falls by nature is a gauge"


def _falls_between_attempts(run: RunView, metrics: list[str]) -> Iterator[Fault]:
    """Counters of the whole run whose first value of an attempt is below the last one of the attempt before."""
    rows = rows_of(run, metrics)
    columns = Columns(run, rows)
    rows = rows[np.lexsort((columns["attempt"], columns["subject"], columns["key"]))]
    columns = Columns(run, rows)
    same = (np.diff(columns["key"]) == 0) & (np.diff(columns["subject"]) == 0)
    for place in np.flatnonzero(same & (columns["first_value"][1:] < columns["last_value"][:-1])).tolist():
        before, series = run.series.at(int(rows[place])), run.series.at(int(rows[place + 1]))
        values = f"from {value_in_words(before.last_value)} to {value_in_words(series.first_value)}"
        yield Fault(
            key=series.key,
            subject=series.subject,
            location=series.first_location,
            message=f"{series.key} falls {values} with attempt {series.attempt}",
            help="it counts over the whole run: continue from the last value of the attempt before",
            first_time_us=series.first_time_us,
            last_time_us=series.first_time_us,
            related=((before.last_location, "the last value before it"),),
        )


@check("TS-TEL-025")
def counter_restarts(run: RunView) -> Iterator[Violation]:
    """A counter of a device starts again at most once in an attempt, and one of the job not at all."""
    _counters(run)
    refuse_snapshot(run)
    trails = run.trails_of(Trouble.COUNTER_RESET)
    bound = [trail for trail in trails if _falls(trail.key.metric) in {"attempt", "never"}]

    def message(reset: Occurrence) -> str:
        name = series_in_words(reset.key, reset.subject)
        return f"{name} starts again within attempt {reset.attempt}{when(run, reset.time_us)}"

    yield from violations_of(bound, message, "continue counting; it starts again with a new attempt at the earliest")
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

    yield from violations_of_rows(run, rows, "last", fault)


def _falls(metric: str) -> str:
    entry = by_name(metric)
    return "any" if entry is None else entry.falls


def _by_series(occurrences: list[Occurrence]) -> dict[Any, list[Occurrence]]:
    found: dict[Any, list[Occurrence]] = {}
    for occurrence in sorted(occurrences, key=lambda occurrence: occurrence.time_us):
        found.setdefault((occurrence.key, occurrence.subject, occurrence.attempt), []).append(occurrence)
    return found
