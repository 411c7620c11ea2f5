"""Lists the metrics that a run has values of, by writer and by attempt, and how far attempts came."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trainspec_validate.model.metrics import by_name, events
from trainspec_validate.telemetry.checks import RunView
from trainspec_validate.telemetry.checks._rows import source_format
from trainspec_validate.telemetry.view.run_view import AttemptSpan, Location, PlacedHead, Trouble

WITH_HEADS = frozenset({"metric-stream", "parquet"})
"""Formats that this specification defines; heads, numbers and names of others are made on reading."""
OWING = WITH_HEADS | {"otlp"}
"""Formats that can carry every metric; of a log of another program, only what that program writes is required."""


def is_own(run: RunView, place: Location) -> bool:
    """Whether a record is in a file that follows this specification, so that its form is its writer's."""
    return 0 <= place.file < len(run.files) and run.files[place.file].format in WITH_HEADS


def owing_heads(run: RunView, attempt: int) -> list[PlacedHead]:
    """The heads of an attempt whose records were written in a format that can carry every metric."""
    return [head for head in heads_of(run, attempt) if carries_every_metric(run, head)]


def carries_every_metric(run: RunView, head: PlacedHead) -> bool:
    """Whether the format can carry every metric that the records of a head were written in, before a conversion."""
    found = source_format(run, head)
    return found is None or found.name in OWING


def owing(run: RunView) -> bool:
    """Whether some file is of a format that can carry every metric, with the definitions of the catalog."""
    return any(file.format in OWING for file in run.files)


def own_heads(run: RunView) -> list[PlacedHead]:
    """The heads that writers wrote."""
    return [head for head in run.heads if is_own(run, head.location)]


def advice(run: RunView, advice_of_all: str, in_the_header: str) -> str:
    """Remedy; a log without a stream header gets no advice on one."""
    return f"{advice_of_all}{in_the_header}" if own_heads(run) else advice_of_all


def by_writer(run: RunView) -> dict[tuple[str, int], frozenset[str]]:
    """Names of the metrics that each emitter wrote in each attempt, second writers of a series included."""
    found = _by_writer_of_series(run)
    more: dict[tuple[str, int], set[str]] = {}
    for trail in run.trails_of(Trouble.SECOND_WRITER):
        for occurrence in trail.first:
            more.setdefault((occurrence.emitter, occurrence.attempt), set()).add(occurrence.key.metric)
    for writer, carried_names in run.event_facts.metrics.items():
        more.setdefault(writer, set()).update(carried_names)
    for writer, names in more.items():
        found[writer] = found.get(writer, frozenset()) | names
    return found


def _by_writer_of_series(run: RunView) -> dict[tuple[str, int], frozenset[str]]:
    """The same by the table of series; the many emitters that write the same metrics share one set."""
    if not len(run.series):
        return {}
    rows, num_keys = run.series.rows, len(run.series.keys)
    attempts = int(rows["attempt"].max()) + 1
    codes = (rows["emitter"].astype(np.int64) * attempts + rows["attempt"]) * num_keys + rows["key"]
    codes = np.unique(codes)
    writers, starts = np.unique(codes // num_keys, return_index=True)
    sets: dict[bytes, frozenset[str]] = {}
    found: dict[tuple[str, int], frozenset[str]] = {}
    for writer, keys in zip(writers.tolist(), np.split(codes % num_keys, starts[1:]), strict=True):
        names = sets.get(keys.tobytes())
        if names is None:
            names = sets[keys.tobytes()] = frozenset(run.series.keys[key].metric for key in keys.tolist())
        emitter, attempt = divmod(writer, attempts)
        found[run.series.emitters[emitter], attempt] = names
    return found


def by_attempt(run: RunView) -> dict[int, set[str]]:
    """Names of the metrics that each attempt has values of."""
    found: dict[int, set[str]] = {}
    for (_, attempt), names in by_writer(run).items():
        found.setdefault(attempt, set()).update(names)
    return found


def steps_by_attempt(run: RunView) -> dict[int, tuple[int, int]]:
    """Smallest and largest step that the records of each attempt name."""
    some = np.flatnonzero(run.series.rows["last_step"] >= 0)
    some = some[np.argsort(run.series.rows["attempt"][some], kind="stable")]
    if not len(some):
        return {}
    attempts, starts = np.unique(run.series.rows["attempt"][some], return_index=True)
    first, last = (run.series.rows[name][some] for name in ("first_step", "last_step"))
    lowest = np.minimum.reduceat(np.where(first < 0, last, first), starts).tolist()
    highest = np.maximum.reduceat(last, starts).tolist()
    return dict(zip(attempts.tolist(), zip(lowest, highest, strict=True), strict=True))


def num_updates(attempt: AttemptSpan, steps: tuple[int, int] | None) -> int:
    """Optimizer steps that the records of an attempt show, from the step that it restored."""
    if steps is None:
        return 0
    restored = attempt.started.attribute("train.restore.step") if attempt.started else None
    first = restored if isinstance(restored, int) else steps[0]
    return max(0, steps[1] - first)


def carried(run: RunView, attempt: int) -> frozenset[str]:
    """Metrics that the events of an attempt are to carry a value of; what was given up has none."""
    known = events()
    names = run.event_facts.completed.get(attempt, set()) & known.keys()
    return frozenset(metric for name in names for metric in known[name].values)


def heads_of(run: RunView, attempt: int) -> list[PlacedHead]:
    """The heads of an attempt."""
    return [head for head in run.heads if head.record.att == attempt]


def unsupported(heads: Iterable[PlacedHead]) -> dict[str, str]:
    """Metrics that heads declare unsupported, by their name in the catalog, with the reason."""
    found: dict[str, str] = {}
    for head in heads:
        for text, reason in head.record.unsupported.items():
            name = text.partition("{")[0]
            metric = by_name(name)
            found.setdefault(metric.name if metric else name, reason)
    return found
