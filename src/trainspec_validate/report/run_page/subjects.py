"""Adds up the series of ranks, devices and hosts over attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainspec_validate.telemetry.view.run_view import RunView, SeriesTable, Subject, Trouble


@dataclass(frozen=True, slots=True)
class Tally:
    """All values of one metric of one subject."""

    subject: Subject
    num: int
    mean: float
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Tallies:
    """All subjects of one metric, as arrays of one length."""

    table: SeriesTable
    subject: Any
    num: Any
    mean: Any
    minimum: Any
    maximum: Any

    def __len__(self) -> int:
        return len(self.subject)

    def at(self, place: int) -> Tally:
        """One subject, spelt out."""
        return Tally(
            self.table.subjects[int(self.subject[place])],
            int(self.num[place]),
            float(self.mean[place]),
            float(self.minimum[place]),
            float(self.maximum[place]),
        )

    def extreme(self, num: int, *, highest: bool) -> list[Tally]:
        """The subjects with the most extreme means, the most extreme one first."""
        order = np.argsort(-self.mean if highest else self.mean, kind="stable")[:num]
        return [self.at(place) for place in order.tolist()]


def tallies(view: RunView, metric: str, *, of: Callable[[Subject], bool] = lambda _: True) -> Tallies | None:
    """The subjects of a metric that a condition holds for, without those that have values that are not finite.

    None where there is none.
    """
    rows = _rows(view, metric, of)
    odd = _with_values_not_finite(view, metric)
    rows = rows[np.isfinite(rows["total"]) & (rows["num"] > 0) & ~np.isin(rows["subject"], odd)]
    if not len(rows):
        return None
    subjects, places = np.unique(rows["subject"], return_inverse=True)
    num = np.bincount(places, weights=rows["num"])
    total = np.bincount(places, weights=rows["total"])
    low, high = np.full(len(subjects), np.inf), np.full(len(subjects), -np.inf)
    np.minimum.at(low, places, rows["minimum"])
    np.maximum.at(high, places, rows["maximum"])
    return Tallies(view.series, subjects, num, total / num, low, high)


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a counter in all attempts."""

    total: float
    num_subjects: int
    num_fallen: int
    """Series that are left out, because their counter fell."""
    least: float
    """Growth of the subject that grew least."""
    most: float


def growth(view: RunView, metric: str, of: Callable[[Subject], bool] = lambda _: True) -> Growth | None:
    """Growth of a counter, added up over subjects and attempts; None where none of them has it."""
    rows = _rows(view, metric, of)
    fallen = rows["num_falls"] > 0
    kept = rows[~fallen]
    if not len(kept):
        return None
    subjects, places = np.unique(kept["subject"], return_inverse=True)
    grown = np.bincount(places, weights=kept["last_value"] - kept["first_value"])
    return Growth(float(grown.sum()), len(subjects), int(fallen.sum()), float(grown.min()), float(grown.max()))


def integral(view: RunView, metric: str, of: Callable[[Subject], bool]) -> tuple[float, float] | None:
    """Value times seconds over all subjects, and the seconds that it covers; None where there is none."""
    rows = _rows(view, metric, of)
    covered = float(rows["integral_seconds"].sum()) if len(rows) else 0.0
    return (float(rows["integral"].sum()), covered) if covered > 0 else None


def _with_values_not_finite(view: RunView, metric: str) -> list[int]:
    """Numbers of the subjects whose sum leaves values out, so that it gives no mean."""
    named = {
        each for trail in view.trails_of(Trouble.NOT_FINITE) if trail.key.metric == metric for each in trail.subjects
    }
    return [number for number, subject in enumerate(view.series.subjects) if subject in named] if named else []


def _rows(view: RunView, metric: str, of: Callable[[Subject], bool]) -> Any:
    table = view.series
    rows = table.rows[table.of(metric)]
    wanted = np.fromiter((of(subject) for subject in table.subjects), dtype=bool, count=len(table.subjects))
    return rows[wanted[rows["subject"]]] if len(rows) else rows


def distinct(view: RunView, names: Sequence[str]) -> dict[str, int]:
    """How many different ranks, hosts or devices the series name."""
    return {name: len({getattr(each, name) for each in view.series.subjects} - {None}) for name in names}


@dataclass(frozen=True, slots=True)
class Pair:
    """All values between two nodes."""

    source: str
    target: str
    num: int
    mean: float
    maximum: float


def pairs(view: RunView, metric: str) -> list[Pair]:
    """The pairs of nodes that a metric has values of, attempts together."""
    table = view.series
    rows = table.rows[table.of(metric)]
    rows = rows[np.isfinite(rows["total"]) & (rows["num"] > 0)]
    if not len(rows):
        return []
    keys, places = np.unique(rows["key"], return_inverse=True)
    num, total = np.bincount(places, weights=rows["num"]), np.bincount(places, weights=rows["total"])
    high = np.full(len(keys), -np.inf)
    np.maximum.at(high, places, rows["maximum"])
    found = []
    for place, number in enumerate(keys.tolist()):
        key = table.keys[number]
        source, target = (key.attribute(f"train.network.{end}") or "unknown" for end in ("source", "target"))
        found.append(Pair(source, target, int(num[place]), float(total[place] / num[place]), float(high[place])))
    return found
