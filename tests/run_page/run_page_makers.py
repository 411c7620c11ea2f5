"""Views of runs that are made by hand, for tests of the page of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainspec_validate.documents.types.stream import Event, Head
from trainspec_validate.model.finding import Evidence, Finding, Outcome, Report, Severity, Span, Verdict
from trainspec_validate.model.metrics import by_name
from trainspec_validate.telemetry.view.run_view import (
    NOWHERE,
    AttemptSpan,
    EmitterSpan,
    JobSeries,
    Key,
    KeyInfo,
    Location,
    Lockstep,
    Occurrence,
    PlacedEvent,
    PlacedHead,
    Placement,
    RunView,
    Series,
    SeriesTable,
    StreamFile,
    Subject,
    Trail,
    Trouble,
    Windows,
)

START_US = 1_772_000_000_000_000
SECOND = 1_000_000
NOBODY = Subject(None, None, None)
HERE = Location(0, 0)


def key(text: str) -> Key:
    """A key from its text."""
    name, _, inner = text.partition("{")
    pairs = (pair.split("=", 1) for pair in inner.removesuffix("}").split(",") if pair)
    return Key(name, tuple((name_, value) for name_, value in pairs))


def job(text: str, values: Sequence[float], *, every: float = 5.0, **more: Any) -> JobSeries:
    """A series of the job; `times` are in seconds from the start of the run."""
    num = len(values)
    seconds = np.asarray(more.pop("times", [every * place for place in range(num)]))
    columns = {
        "step": np.arange(1, num + 1),
        "attempt": np.zeros(num, np.int32),
        "weight": np.ones(num),
        "warmup": np.zeros(num, bool),
    }
    columns |= {name: np.asarray(more.pop(name)) for name in tuple(columns) if name in more}
    return JobSeries(
        key(text),
        time_us=(START_US + seconds * SECOND).astype(np.int64),
        value=np.asarray(values, np.float64),
        offset=np.arange(num, dtype=np.int64),
        file=np.zeros(num, np.int32),
        **columns,
        **more,
    )


def series(text: str, subject: Subject, values: Sequence[float], attempt: int = 0, **more: Any) -> Series:
    """A row of the table, of values that are 10 s apart."""
    last = START_US + 10 * SECOND * (len(values) - 1)
    made = Series(
        *(key(text), subject, attempt, "agent", len(values), START_US, last, values[0], values[-1], HERE, HERE, 1, 2),
        *(min(values), max(values), float(sum(values)), len(values) - 1, 0, 10 * SECOND, last, HERE, 1, HERE),
        *(START_US, START_US, values[0], 0, 0, HERE, 0, 0.0, 0.0, START_US, len(values)),
    )
    return replace(made, **more)


def table(rows: Iterable[Series]) -> SeriesTable:
    """The table of rows."""
    found = list(rows)
    keys, subjects, emitters = ([*dict.fromkeys(getattr(r, n) for r in found)] for n in ("key", "subject", "emitter"))
    columns: dict[str, list[Any]] = {}
    for name in Series.__dataclass_fields__:
        values = [getattr(row, name) for row in found]
        if name.endswith("_location"):
            stem = name.removesuffix("_location")
            columns[f"{stem}_file"] = [place.file for place in values]
            columns[f"{stem}_offset"] = [place.offset for place in values]
        else:
            known = {"key": keys, "subject": subjects, "emitter": emitters}.get(name)
            columns[name] = [known.index(value) for value in values] if known is not None else values
    whole = {"value", "minimum", "maximum", "total", "integral", "integral_seconds"}
    types = [(name, np.float64 if whole & {name, name.split("_")[-1]} else np.int64) for name in columns]
    rows_ = np.zeros(len(found), types)
    for name, values in columns.items():
        rows_[name] = values
    return SeriesTable(rows_, tuple(keys), tuple(subjects), tuple(emitters))


def windows(text: str, cells: Sequence[tuple[int, float, float, float]], width: float = 30.0) -> Windows:
    """Windows of count, total, minimum and maximum."""
    columns = [np.asarray(column) for column in zip(*cells, strict=True)]
    width_us = int(width * SECOND)
    return Windows(key(text), width_us, START_US // width_us * width_us, columns[0].astype(np.int64), *columns[1:])


def lockstep(text: str, low: Sequence[int], high: Sequence[int], attempt: int = 0, width: float = 30.0) -> Lockstep:
    """Ranks compared at instants; both ends are seen on eight ranks."""
    num, ranks = np.full(len(low), 8), np.zeros(len(low), np.int64)
    ends = np.asarray(low, np.float64), np.asarray(high, np.float64)
    places = np.zeros((len(low), 2), np.int64)
    return Lockstep(key(text), attempt, int(width * SECOND), START_US, *ends, ranks, ranks, num, places)


def event(
    name: str, at: float, *, attempt: int = 0, values: Mapping[str, float] | None = None, **more: Any
) -> PlacedEvent:
    """An event, at seconds from the start; `a` holds its attributes."""
    record = Event(time_us=START_US + int(at * SECOND), seq=0, name=name, m=dict(values or {}), **more)
    return PlacedEvent(record, attempt, "run", "job", NOBODY, HERE)


def head(emitter: str = "job", attempt: int = 0, **more: Any) -> PlacedHead:
    """A head."""
    named = {"apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "run", "scopes": ("job",)}
    return PlacedHead(Head(**{**named, "att": attempt, "emitter": emitter, "time_us": START_US, **more}), HERE)


def attempt(number: int, first: float, last: float, world_size: int | None = 8) -> AttemptSpan:
    """An attempt from and to seconds from the start."""
    times = (START_US + int(first * SECOND), START_US + int(last * SECOND))
    return AttemptSpan(number, *times, world_size, None, None)


def emitter(name: str, **more: Any) -> EmitterSpan:
    """An emitter that lost nothing."""
    made = EmitterSpan(
        *(name, 0, 100, START_US, START_US + 600 * SECOND, 0, 99, 0, 0, (), (), HERE, HERE), np.zeros(0, np.int64)
    )
    return replace(made, **more)


def trail(trouble: Trouble, text: str, *, at: float, before: float, subject: Subject = NOBODY) -> Trail:
    """One thing that was noticed once."""
    times = START_US + int(at * SECOND), START_US + int(before * SECOND)
    first = Occurrence(trouble, key(text), subject, 0, "job", HERE, NOWHERE, *times, 1.0, 2.0, 7)
    return Trail(trouble, key(text), 0, 1, (subject,), (first,), times[0], times[0])


def view(**changes: Any) -> RunView:
    """A run of nothing, with changes; its keys and its end follow from what it is given."""
    rows = tuple(changes.pop("series", ()))
    jobs = {str(each.key): each for each in changes.pop("job", ())}
    named = {str(each): each for each in (*(row.key for row in rows), *(each.key for each in jobs.values()))}
    made = RunView(
        run="run",
        files=(
            StreamFile("job.0.jsonl", "metric-stream", 12_000, 90, is_open=False, has_head=True, starts_with_head=True),
        ),
        heads=(),
        attempts=(),
        events=(),
        keys=tuple(KeyInfo(text, each, by_name(each.metric), 1, HERE) for text, each in named.items()),
        series=table(rows),
        trails=(),
        job=jobs,
        windows={str(each.key): each for each in changes.pop("windows", ())},
        lockstep=(),
        emitters=(),
        placements=(),
        damage=(),
        other_runs={},
        num_records=90,
        num_samples=80,
        first_time_us=START_US,
        last_time_us=START_US + 600 * SECOND,
    )
    return replace(made, **changes)


def finding(requirement: str = "TS-TEL-013", severity: Severity = Severity.ERROR, **more: Any) -> Finding:
    """A finding on a stream."""
    evidence = Evidence("hw.gpu.utilization", "ranks 0-3", START_US, START_US + 9 * SECOND, 12, ("97.2", "98.1"))
    made = Finding(requirement, "scale-suspect", severity, "the median is 97", "job.0.jsonl", span=Span(7, 1, 7, 1))
    return replace(made, **{"evidence": evidence, "help": "write 0.97", **more})


def report(*findings: Finding, outcomes: Sequence[Outcome] = (), **more: Any) -> Report:
    """A report."""
    known = outcomes or (
        Outcome("TS-TEL-001", Verdict.PASS),
        Outcome("TS-TEL-050", Verdict.NOT_APPLICABLE, 0, "no clocks"),
    )
    return Report(findings, outcomes=tuple(known), specification_version="1.0", tool_version="0.1.0", **more)


def placement(rank: int, host: str, device: str) -> Placement:
    """A rank on its host and device."""
    return Placement(0, rank, host, device, START_US, START_US + 600 * SECOND, HERE)
