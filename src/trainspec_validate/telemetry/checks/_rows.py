"""The only place that picks rows of the table of series for checks, and makes few findings of many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from trainspec_validate.findings import Evidence
from trainspec_validate.metrics import by_name
from trainspec_validate.telemetry.checks import Deviation, NotJudged
from trainspec_validate.telemetry.checks._cadences import cadence_class
from trainspec_validate.telemetry.checks._words import MAX_ALONE, Fault, grouped, subjects_in_words
from trainspec_validate.telemetry.view import RunView, Series


def refuse_snapshot(run: RunView) -> None:
    """Do not judge times of an input that holds one moment.

    Raises:
        NotJudged: it is one snapshot.
    """
    if run.snapshot:
        raise NotJudged("one snapshot has no time axis")


def rows_of(run: RunView, metrics: Iterable[str], *, least: int = 1) -> Any:
    """Rows of the table that belong to any of some metrics, with at least so many values."""
    wanted = set(metrics)
    numbers = [number for number, key in enumerate(run.series.keys) if key.metric in wanted]
    return np.flatnonzero(np.isin(run.series.rows["key"], numbers) & (run.series.rows["num"] >= least))


def timed_rows(run: RunView, *, least: int = 2) -> Any:
    """Rows of the table whose metric has a cadence in seconds, with at least so many values.

    Raises:
        NotJudged: the input has no time axis, or there is no such row.
    """
    refuse_snapshot(run)
    timed = {key.metric for key in run.series.keys if cadence_class(by_name(key.metric)) is not None}
    found = rows_of(run, timed, least=least)
    if not len(found):
        raise NotJudged(f"no metric with a cadence in seconds has {'several values' if least > 1 else 'a value'}")
    return found


def deviations_of_rows(run: RunView, rows: Any, place: str, fault: Callable[[Series], Fault]) -> Iterator[Deviation]:
    """A deviation for each row, or one for all rows of a metric where there are more than `MAX_ALONE`.

    `place` is the stem of the fields that hold the place of the record to look at, by which the first row is found.
    """
    table = run.series
    metrics = np.array([key.metric for key in table.keys], dtype=object)[table.rows["key"][rows]] if len(rows) else []
    for metric in dict.fromkeys(metrics):
        mine = rows[metrics == metric]
        if len(mine) <= MAX_ALONE:
            yield from grouped(fault(table.at(int(index))) for index in mine)
        else:
            yield _together(run, mine, place, fault)


def _together(run: RunView, rows: Any, place: str, fault: Callable[[Series], Fault]) -> Deviation:
    table = run.series
    mine = table.rows[rows]
    first = fault(table.at(int(rows[np.lexsort((mine[f"{place}_offset"], mine[f"{place}_file"]))[0]])))
    keys = np.unique(mine["key"])
    subjects = subjects_in_words(table.subjects[number] for number in np.unique(mine["subject"]).tolist())
    evidence = Evidence(
        series=str(first.key) if len(keys) == 1 else first.key.metric,
        subjects=subjects,
        first_time_us=int(mine["first_time_us"].min()),
        last_time_us=int(mine["last_time_us"].max()),
        count=len(rows),
        samples=first.samples,
    )
    where = f", on {subjects}" if subjects else ""
    (said,) = grouped([first])
    return replace(said, message=f"{first.message}; the first of {len(rows):,} series{where}", evidence=evidence)
