"""Pairs the values of repeated steps with those of their first execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainspec_validate.telemetry.view.run_view import JobSeries, Location


@dataclass(frozen=True, slots=True)
class Repeat:
    """One step that was executed in two attempts, with its values of one series."""

    step: int
    attempt: int
    """The later one."""
    before: float
    after: float
    location_before: Location
    location: Location


def repeats(series: JobSeries, changes_us: Sequence[int] = ()) -> Iterator[Repeat]:
    """Optimizer steps that were executed again, in order of attempt and step, each with the newest time before it.

    Left out are optimizer steps between whose two times something was changed on purpose.
    """
    steps, attempts = np.asarray(series.step), np.asarray(series.attempt)
    changes = np.sort(np.asarray(changes_us, dtype=np.int64))
    for attempt in np.unique(attempts)[1:].tolist():
        start, end = np.searchsorted(attempts, [attempt, attempt + 1]).tolist()
        older = np.flatnonzero(steps[:start] >= 0)[::-1]
        old_steps, newest = np.unique(steps[older], return_index=True)
        new_steps, first = np.unique(steps[start:end], return_index=True)
        _, at_old, at_new = np.intersect1d(old_steps, new_steps, return_indices=True)
        before, after = older[newest[at_old]], start + first[at_new]
        times = np.asarray(series.time_us)
        same = np.searchsorted(changes, times[before]) == np.searchsorted(changes, times[after])
        for old, new in zip(before[same].tolist(), after[same].tolist(), strict=True):
            values = float(series.value[old]), float(series.value[new])
            yield Repeat(int(steps[new]), attempt, *values, series.location(old), series.location(new))
