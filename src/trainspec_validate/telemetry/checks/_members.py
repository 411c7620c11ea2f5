"""Lists the ranks, hosts and devices of a run as its series name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from trainspec_validate.model.metrics import Metric, by_name
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location, PlacedEvent, RunView

_AT_ONCE = 65_536
"""Series whose names are looked at in one go."""
LARGEST_NUM_DEVICES = 65_536
"""Devices of a rank that a header can declare; more are a mistake."""


def metrics_seen(run: RunView) -> list[Metric]:
    """Catalog entry of each metric that has a value, by name."""
    found = (by_name(name) for name in sorted(run.series.metrics()))
    return [metric for metric in found if metric is not None]


def rank_metrics(run: RunView) -> list[str]:
    """Metrics with a value that only ranks have."""
    return [m.name for m in metrics_seen(run) if {"rank", "group"} & set(m.scopes) and "job" not in m.scopes]


def device_metrics(run: RunView) -> list[Metric]:
    """Metrics with a value that only accelerators have."""
    return [metric for metric in metrics_seen(run) if metric.scopes == ("device",)]


def ranks_of_rows(run: RunView, rows: Any) -> Any:
    """Rank of each of some rows; -1 where it names none."""
    ranks = np.array([-1 if subject.rank is None else subject.rank for subject in run.series.subjects], dtype=np.int64)
    return ranks[run.series.rows["subject"][rows]]


def holes(numbers: Any, end: int) -> list[tuple[int, int]]:
    """First and last of each run of numbers below an end that ascending numbers leave out.

    >>> holes([1, 2, 5], 8)
    [(0, 0), (3, 4), (6, 7)]
    """
    known = [-1, *(number for number in map(int, numbers) if number < end), end]
    return [(low + 1, high - 1) for low, high in pairwise(known) if high - low > 1]


def head_of_scope(run: RunView, attempt: int, scopes: Iterable[str], emitter: str | None = None) -> Location:
    """Head of an attempt that requires metrics of some scopes, an emitter's own before others; NOWHERE if none."""
    wanted = set(scopes)
    mine = [head for head in run.heads if head.record.att == attempt]
    named = [head for head in mine if head.record.emitter == emitter]
    fitting = [head for head in mine if wanted & set(head.record.scopes)]
    return next((head.location for head in (*named, *fitting, *mine, *run.heads)), NOWHERE)


def devices_by_attempt(run: RunView, metrics: Iterable[str]) -> Iterator[tuple[int, str, str | None, str, str]]:
    """Attempt, metric, host, device and emitter of each series of some metrics that names a device."""
    wanted = set(metrics)
    table = run.series
    numbers = [number for number, key in enumerate(table.keys) if key.metric in wanted]
    mine = np.flatnonzero(np.isin(table.rows["key"], numbers))
    for start in range(0, len(mine), _AT_ONCE):
        some = mine[start : start + _AT_ONCE]
        columns = (table.rows[name][some].tolist() for name in ("attempt", "key", "subject", "emitter"))
        for attempt, key, number, emitter in zip(*columns, strict=True):
            subject = table.subjects[number]
            if subject.device is not None:
                yield attempt, table.keys[key].metric, subject.host, subject.device, table.emitters[emitter]


def attempt_of(event: PlacedEvent) -> int:
    """The attempt that an event says it starts or ends; that of its record where it names none."""
    number = event.attribute("train.run.attempt")
    return number if isinstance(number, int) else event.attempt


def num_devices_per_rank(run: RunView, attempt: int) -> int:
    """Devices that each rank of an attempt drives, as its headers declare; 1 where none does."""
    found = (value for value, head in run.declared("train.rank.num_devices") if head.record.att == attempt)
    return max((n for n in found if isinstance(n, int) and 1 <= n <= LARGEST_NUM_DEVICES), default=1)


def stated_sizes(run: RunView) -> Iterator[tuple[int, int, Location]]:
    """Attempt, number of ranks and place of each event that starts one, or of its heads where no event says so."""
    said: set[int] = set()
    for event in run.events_named("train.attempt.start"):
        size = event.attribute("train.world.size")
        if isinstance(size, int):
            said.add(attempt_of(event))
            yield attempt_of(event), size, event.location
    places = {(head.record.att, head.record.world_size): head.location for head in reversed(run.heads)}
    for (number, size), place in places.items():
        if size is not None and number not in said:
            yield number, size, place
