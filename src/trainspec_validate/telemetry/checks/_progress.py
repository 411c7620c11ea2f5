"""Finds which optimizer steps a job reports as complete, and when: `train.step.count` of each attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.telemetry.checks import require
from trainspec_validate.telemetry.checks._attributes import LARGEST
from trainspec_validate.telemetry.view.run_view import JobSeries, Location, RunView

STEPS = "train.step.count"


class Update(NamedTuple):
    """A completed step, as one record reports it."""

    step: int
    time_us: int
    attempt: int
    location: Location


@dataclass(frozen=True, slots=True)
class Progress:
    """The completed steps of a run, in order of attempt, then of record."""

    series: JobSeries
    steps: Any
    """Optimizer steps completed, as whole numbers."""
    numbers: Any
    """Attempts that report optimizer steps, in order."""
    starts: Any
    """Where the values of each attempt begin, and the end of the last one."""
    largests: Any
    """Place of the largest optimizer step of each attempt; the first record of it."""

    def rows(self, attempt: int) -> slice:
        """Where the values of an attempt are."""
        index = int(np.searchsorted(self.numbers, attempt))
        if index == len(self.numbers) or self.numbers[index] != attempt:
            return slice(int(self.starts[index]), int(self.starts[index]))
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def attempts(self) -> list[int]:
        """Attempts that report optimizer steps, in order."""
        found: list[int] = self.numbers.tolist()
        return found

    def update(self, index: int) -> Update:
        """The step at a place of the series."""
        s = self.series
        return Update(int(self.steps[index]), int(s.time_us[index]), int(s.attempt[index]), s.location(index))

    def first(self, attempt: int, *, above: int = -1, after_us: int = -1) -> Update | None:
        """The first step of an attempt beyond a step and not before a moment."""
        mine = self.rows(attempt)
        found = np.flatnonzero((self.steps[mine] > above) & (self.series.time_us[mine] >= after_us))
        return self.update(mine.start + int(found[0])) if len(found) else None

    def last(self, attempt: int, *, until_us: int | None = None) -> Update | None:
        """The newest step of an attempt, up to a moment."""
        mine = self.rows(attempt)
        times = self.series.time_us[mine]
        found = np.flatnonzero(times <= (until_us if until_us is not None else times.max(initial=0)))
        return self.update(mine.start + int(found[np.argmax(times[found])])) if len(found) else None

    def largest(self, *, below: int) -> Update | None:
        """The step with the largest number of all attempts below one; the first record of it."""
        places = self.largests[: int(np.searchsorted(self.numbers, below))]
        return self.update(int(places[np.argmax(self.steps[places])])) if len(places) else None

    def largest_until(self, attempt: int, until_us: int) -> Update | None:
        """The step with the largest number up to a moment of an attempt, those of earlier attempts included."""
        mine = self.rows(attempt)
        found = np.flatnonzero(self.series.time_us[mine] <= until_us)
        here = self.update(mine.start + int(found[np.argmax(self.steps[mine][found])])) if len(found) else None
        before = self.largest(below=attempt)
        if here is None or before is None:
            return here or before
        return here if here.step > before.step else before

    def reached(self, step: int, *, below: int) -> Update | None:
        """When the newest attempt below one that got to a step got there."""
        for attempt in reversed([number for number in self.attempts() if number < below]):
            found = self.first(attempt, above=step - 1)
            if found is not None:
                return found
        return None


def find_progress(run: RunView) -> Progress | None:
    """The completed steps of a run; None where it reports none."""
    series = run.job.get(STEPS)
    if series is None or not len(series):
        return None
    steps = np.nan_to_num(np.asarray(series.value)).clip(-1, LARGEST).astype(np.int64)
    numbers, starts = np.unique(np.asarray(series.attempt), return_index=True)
    ends = np.append(starts[1:], len(steps))
    largests = [start + int(np.argmax(steps[start:end])) for start, end in zip(starts, ends, strict=True)]
    return Progress(series, steps, numbers, np.append(starts, len(steps)), np.array(largests, np.int64))


def progress(run: RunView) -> Progress:
    """The completed steps of a run.

    Raises:
        NotApplicable: it reports none.
    """
    return require(find_progress(run), f"no {STEPS} in the run")


def median_step_seconds(run: RunView) -> float | None:
    """Median time of a step, without those that warm up; None where it is not reported."""
    series = run.job.get("train.step.duration")
    if series is None or not len(series):
        return None
    values = np.asarray(series.value)[~np.asarray(series.warmup, bool)]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None
