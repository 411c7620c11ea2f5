"""Picks rows of the table of series for checks, and makes few findings of many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.metrics import Metric, by_name
from trainspec_validate.telemetry.checks import NotApplicable, Violation
from trainspec_validate.telemetry.checks._cadences import cadence_class
from trainspec_validate.telemetry.checks._words import (
    MAX_ALONE,
    Fault,
    grouped,
    moment,
    names_in_words,
    subjects_in_words,
)
from trainspec_validate.telemetry.formats.format import FORMATS, StreamFormat
from trainspec_validate.telemetry.view.run_view import PlacedHead, RunView, Series

IMPORTED = "org.trainspec.import"
"""Where the head of a converted stream says what it was converted from."""


def refuse_snapshot(run: RunView) -> None:
    """Do not judge times of an input that holds one moment.

    Raises:
        NotApplicable: it is one snapshot.
    """
    if run.snapshot:
        raise NotApplicable("one snapshot has no time axis")


def refuse_timeless(run: RunView) -> None:
    """Do not judge intervals of an input that has no times.

    Raises:
        NotApplicable: it is one snapshot, or its times were made up by whoever converted it.
    """
    refuse_snapshot(run)
    if not has_times(run):
        raise NotApplicable("the source of the stream has no times")


def has_times(run: RunView) -> bool:
    """Whether times are those of a clock, of whatever start, and not made up by whoever converted the stream."""
    return not run.heads or any(clock_of(head) != "none" for head in run.heads)


def when(run: RunView, time_us: int) -> str:
    """A moment as the end of a message; nothing where times were made up, or count from a start that is not stated."""
    return f" at {moment(time_us)}" if states_start(run) else ""


def states_start(run: RunView) -> bool:
    """Whether times are moments, and not made up, or counted from a start that is not stated."""
    clocks = {clock_of(head) for head in run.heads}
    return not clocks or bool(clocks - {"none", "relative"})


def clock_of(head: PlacedHead) -> str:
    """Kind of the times by the head of an imported log: utc, local, relative or none; utc where it says nothing."""
    return str(_origin(head).get("clock", "utc"))


def is_restored(run: RunView, attempt: int) -> bool:
    """Whether an attempt continues from a checkpoint, as its events say, or the program whose log was converted."""
    begins = run.events_named("train.checkpoint.restore.begin", "train.checkpoint.restore.end")
    heads = (head for head in run.heads if head.record.att == attempt)
    return any(event.attempt == attempt for event in begins) or any(_origin(head).get("restored") for head in heads)


def source_format(run: RunView, head: PlacedHead) -> StreamFormat | None:
    """The format that the records of a head were written in, before any conversion; None where it is unknown."""
    name = _origin(head).get("format") or run.files[head.location.file].format
    return FORMATS.get(str(name))


def _origin(head: PlacedHead) -> Mapping[str, Any]:
    found = head.record.extensions.get(IMPORTED)
    return found if isinstance(found, Mapping) else {}


def _on_change(metric: Metric | None) -> bool:
    return metric is not None and "E" in metric.cadences


class Columns:
    """Fields of some rows of the table, each gathered when it is asked for: whole rows are wide."""

    def __init__(self, run: RunView, rows: Any) -> None:
        self._table, self._rows = run.series.rows, rows

    def __getitem__(self, name: str) -> Any:
        return self._table[name][self._rows]


def finite(values: Any) -> Any:
    """Values with those that are not finite as not a number: two infinities have no difference.

    >>> finite([1.0, float("inf")]).tolist()
    [1.0, nan]
    """
    return np.where(np.isfinite(values), values, np.nan)


def rows_of(run: RunView, metrics: Iterable[str], *, least: int = 1) -> Any:
    """Rows of the table that belong to any of some metrics, with at least so many values."""
    wanted = set(metrics)
    numbers = [number for number, key in enumerate(run.series.keys) if key.metric in wanted]
    return np.flatnonzero(np.isin(run.series.rows["key"], numbers) & (run.series.rows["num"] >= least))


def timed_rows(run: RunView, *, least: int = 2) -> Any:
    """Rows of the table whose metric has a cadence in seconds, with at least so many values.

    Values that other formats write once and when they change are left out where all streams were converted from such.

    Raises:
        NotApplicable: the input has no time axis, or there is no such row.
    """
    refuse_timeless(run)
    is_converted = bool(run.heads) and all(_origin(head) for head in run.heads)
    known = {key.metric: by_name(key.metric) for key in run.series.keys}
    timed = [
        name for name, metric in known.items() if cadence_class(metric) and not (is_converted and _on_change(metric))
    ]
    found = rows_of(run, timed, least=least)
    if not len(found):
        raise NotApplicable(f"no metric with a cadence in seconds has {'several values' if least > 1 else 'a value'}")
    return found


def violations_of_rows(run: RunView, rows: Any, place: str, fault: Callable[[Series], Fault]) -> Iterator[Violation]:
    """A violation for each row, or one for all rows of a metric where there are more than `MAX_ALONE`.

    `place` is the stem of the fields that hold the place of the record to look at, by which the first row is found.
    """
    numbers: dict[str, int] = {}
    metrics = np.array([numbers.setdefault(key.metric, len(numbers)) for key in run.series.keys], dtype=np.int64)
    for mine in _parts(rows, metrics[run.series.rows["key"][rows]]):
        if len(mine) <= MAX_ALONE:
            yield from grouped(fault(run.series.at(int(index))) for index in mine)
        else:
            yield _together(run, mine, _first(run, mine, place), fault)


def violations_by_emitter(run: RunView, rows: Any, place: str, fault: Callable[[Series], Fault]) -> Iterator[Violation]:
    """One violation for all rows of an emitter in an attempt, since they have one cause; one for many emitters."""
    columns = Columns(run, rows)
    parts = _parts(rows, columns["attempt"].astype(np.int64) * len(run.series.emitters) + columns["emitter"])
    for mine in parts if len(parts) <= MAX_ALONE else [rows]:
        first = _first(run, mine, place)
        if len(mine) == 1:
            yield from grouped([fault(run.series.at(first))])
        else:
            yield _together(run, mine, first, fault)


def _parts(rows: Any, codes: Any) -> list[Any]:
    """The rows of each code, in the order of the first of them."""
    if not len(rows):
        return []
    order = np.argsort(codes, kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(codes[order])) + 1)
    return sorted(parts, key=lambda part: int(part[0]))


def _first(run: RunView, rows: Any, place: str) -> int:
    """The row whose record comes first."""
    columns = Columns(run, rows)
    return int(rows[np.lexsort((columns[f"{place}_offset"], columns[f"{place}_file"]))[0]])


def _together(run: RunView, rows: Any, first: int, fault: Callable[[Series], Fault]) -> Violation:
    table, mine = run.series, Columns(run, rows)
    told = fault(table.at(first))
    keys = [table.keys[number] for number in np.unique(mine["key"]).tolist()]
    subjects = subjects_in_words(table.subjects[number] for number in np.unique(mine["subject"]).tolist())
    evidence = Evidence(
        series=str(told.key) if len(keys) == 1 else names_in_words({key.metric for key in keys}),
        subjects=subjects,
        first_time_us=int(mine["first_time_us"].min()),
        last_time_us=int(mine["last_time_us"].max()),
        count=len(rows),
        samples=told.samples,
    )
    where = f", on {subjects}" if subjects else ""
    (said,) = grouped([told])
    return replace(said, message=f"{told.message}; the first of {len(rows):,} series{where}", evidence=evidence)
