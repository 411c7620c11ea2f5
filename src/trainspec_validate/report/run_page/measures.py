"""Computes the figures of a run that several sections of its page show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.subjects import growth, integral
from trainspec_validate.report.run_page.traces import Points, quantile
from trainspec_validate.telemetry.view.run_view import RunView, Subject

TOKEN_COUNT = "train.token.count"  # noqa: S105 - a name of a metric
GOODPUT = "train.goodput.time"
CATEGORY = "train.time.category"


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of the values of a series."""

    num: int
    low: float
    """The value that 1 % do not exceed."""
    median: float
    high: float
    """The value that 99 % do not exceed."""
    minimum: float
    maximum: float
    last: float


def spread(found: Points, *, without_warmup: bool = False) -> Spread | None:
    """Quantiles of the values, each weighted by what it represents; None where no value is left."""
    kept = ~found.warmup if without_warmup else np.ones(len(found), dtype=bool)
    values, weights = found.value[kept], np.maximum(found.weight[kept], 1e-9)
    if not len(values):
        return None
    low, median, high = (quantile(values, weights, share) for share in (0.01, 0.5, 0.99))
    return Spread(len(values), low, median, high, float(values.min()), float(values.max()), float(values[-1]))


def spread_of(context: Context, metric: str, *, without_warmup: bool = False) -> Spread | None:
    """Quantiles of the first series of a job metric."""
    found = context.points(metric)
    return spread(found[0], without_warmup=without_warmup) if found else None


def steps(context: Context) -> tuple[int, int] | None:
    """First and last step that a record of the job names."""
    counted = context.points("train.step.count")
    if counted:
        return int(counted[0].value.min()), int(counted[0].value.max())
    if context.frame and len(context.frame.steps):
        return int(context.frame.steps.min()), int(context.frame.steps.max())
    return None


def tokens(context: Context) -> float | None:
    """Tokens that were trained on between the first and the last record, with padding where it is counted."""
    found = context.points(TOKEN_COUNT)
    chosen = next((each for each in found if "=all" in each.name), found[0] if found else None)
    return float(chosen.value.max() - chosen.value.min()) if chosen else None


def goodput(view: RunView) -> dict[str, float]:
    """Seconds by category, largest first; empty where the stream has none."""
    found: dict[str, float] = {}
    for series in view.job.values():
        values = np.asarray(series.value, dtype=np.float64)
        values = values[np.isfinite(values)]
        if series.key.metric == GOODPUT and len(values):
            found[series.key.attribute(CATEGORY) or "without a category"] = float(values.max())
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of all subjects of one scope, from one kind of reading."""

    scope: str
    """`devices` or `nodes`."""
    reading: str
    joules: float
    seconds: float
    """Time that it covers, added up over subjects; 0 where it is not known."""
    note: str = ""


def is_device(subject: Subject) -> bool:
    """Whether a value is of a device rather than of a whole node."""
    return subject.device is not None


def energy(view: RunView) -> Iterator[Energy]:
    """Energy by scope: from counters first, then from power over time."""
    for scope, of in (("devices", is_device), ("nodes", lambda subject: not is_device(subject))):
        counted = growth(view, "hw.energy", of)
        if counted:
            fallen = f"{counted.num_fallen:,} series whose counter fell are left out" if counted.num_fallen else ""
            yield Energy(scope, "hw.energy", counted.total, 0.0, fallen)
        measured = integral(view, "hw.power", of)
        if measured:
            yield Energy(scope, "hw.power", *measured)
