"""Answers questions about the values in metric streams, by metric, rank, attempt and update."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_conformance.records import Entry, Streamed
from trainspec_conformance.view import View

Key = tuple[int, int]
"""Attempt and update."""


@dataclass(frozen=True)
class Point:
    """One value of a metric."""

    entry: Entry
    record: Streamed
    value: float

    @property
    def key(self) -> Key:
        """Attempt and optimizer step that it holds at."""
        return self.record.attempt, self.record.step or 0


def points(view: View, metric: str, labels: str = "") -> Iterator[Point]:
    """Values of a metric in the order of the files; of any series, or of the one with these labels."""
    wanted = f"{metric}{{{labels}}}"
    for entry, record in view.of(Streamed):
        for name, value in record.values.items():
            if name == wanted or (not labels and name.partition("{")[0] == metric):
                yield Point(entry, record, math.nan if isinstance(value, str) else value)


def of_job(view: View, metric: str, labels: str = "") -> dict[Key, Point]:
    """Last value of a metric of the job at each step; of several series, the one that comes last."""
    return {point.key: point for point in points(view, metric, labels)}


def of_ranks(view: View, metric: str, labels: str = "") -> dict[int, dict[Key, Point]]:
    """Last value of a metric at each step, by the rank that reported it."""
    found: dict[int, dict[Key, Point]] = {}
    for point in points(view, metric, labels):
        if point.record.rank is not None:
            found.setdefault(point.record.rank, {})[point.key] = point
    return found


def job_alone(view: View, metric: str) -> dict[Key, Point]:
    """Values of a metric that the job and its ranks both have: those of records without a rank, or of the least."""
    found = [point for point in points(view, metric) if point.record.rank is None]
    return {point.key: point for point in found}


def heads(view: View) -> list[Streamed]:
    """Heads of all streams."""
    return [record for _, record in view.of(Streamed) if record.kind == "head"]


def events(view: View, name: str) -> list[tuple[Entry, Streamed]]:
    """Events of one name."""
    return [(entry, record) for entry, record in view.of(Streamed) if record.kind == "event" and record.name == name]


def unsupported(view: View) -> set[str]:
    """Metrics that some head declares as not to be had."""
    return {name for head in heads(view) for name in head.attributes.get("unsupported", ())}
