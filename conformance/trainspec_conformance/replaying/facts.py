"""Looks up, once for each run, what its incidents are judged by: steps, restores, saves and values of the job."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from trainspec_conformance.records import Entry, SuiteRecord
from trainspec_validate.documents.types.trace import StepDone, TraceRecord
from trainspec_validate.telemetry.checks import NotApplicable
from trainspec_validate.telemetry.checks._episodes import Episode, episodes
from trainspec_validate.telemetry.checks._intervals import intervals
from trainspec_validate.telemetry.checks._progress import Progress, find_progress
from trainspec_validate.telemetry.checks._restarts import RESTORE, Restart, given_up, restarts
from trainspec_validate.telemetry.checks._saves import Save, saves
from trainspec_validate.telemetry.view.run_view import JobSeries, Location, PlacedEvent, RunView

NATIVE = frozenset({"metric-stream", "parquet"})
"""Formats of the recorder, whose numbers are neither rounded nor averaged."""
CLOCKS = frozenset({"utc", "local"})
"""Clocks by which times of two attempts can be compared."""
CLOCK_US = 5_000_000
"""Records of one step by two hosts are as far apart at most, where their clocks agree."""
MOST_STEPS = 100_000
"""Optimizer steps of one attempt that a history holds."""
MOST_SAVES = 10_000
"""Saves before an incident that are looked at."""
_LOSS, _RATE = "train.loss.mean", "train.learning_rate"
_TOTAL = f"{_LOSS}{{train.loss.name=total}}"
_UNKNOWN: Final = "NaN"
"""Loss of a step without a reported one: no step with a finite loss."""


@dataclass(frozen=True)
class Facts:
    """A run, and what is asked of it often."""

    run: RunView

    @cached_property
    def progress(self) -> Progress | None:
        """Completed optimizer steps of the job; None where the streams report none."""
        return find_progress(self.run)

    @cached_property
    def restarts(self) -> Mapping[int, Restart]:
        """State that each attempt continued from, by the number of the attempt."""
        return {one.attempt: one for one in restarts(self.run)}

    @cached_property
    def saves(self) -> list[Save]:
        """Every save of the run, in order of time."""
        return list(saves(self.run))

    @cached_property
    def episodes(self) -> Sequence[Episode]:
        """Every reported fault with what followed; none where no event reports one."""
        try:
            return episodes(self.run)
        except NotApplicable:
            return ()

    def saves_before(self, time_us: int) -> list[Save]:
        """The newest saves that began before a moment, at most `MOST_SAVES`."""
        until = bisect_left(self._save_times, time_us)
        return self.saves[max(until - MOST_SAVES, 0) : until]

    @cached_property
    def _save_times(self) -> list[int]:
        return [save.first.time_us for save in self.saves]

    @property
    def has_clock(self) -> bool:
        """Whether the times of all records are times of day."""
        return all(file.clock in CLOCKS for file in self.run.files)

    def has_one_clock(self, attempt: int) -> bool:
        """Whether no record of an attempt shows that a clock was stepped, or that clocks of its hosts differ."""
        if any(event.attempt == attempt for event in self.run.events_named("train.clock.stepped")):
            return False
        if self.progress is None:
            return True
        rows = self.progress.rows(attempt)
        times = np.asarray(self.progress.series.time_us[rows])
        if len(times) and int(np.diff(times).min(initial=0)) < -CLOCK_US:
            return False
        at = dict(zip(self.progress.steps[rows].tolist()[::-1], times.tolist()[::-1], strict=True))
        for index in self.run.series.of("train.rank.step").tolist():
            row = self.run.series.rows[index]
            if int(row["attempt"]) != attempt:
                continue
            first, last = at.get(int(row["first_step"])), at.get(int(row["last_step"]))
            if first is not None and abs(int(row["first_time_us"]) - first) > CLOCK_US:
                return False
            if last is not None and last - int(row["last_time_us"]) > CLOCK_US:
                return False
        return True

    @property
    def is_native(self) -> bool:
        """Whether every file is a metric stream of its own format."""
        return all(file.format in NATIVE for file in self.run.files)

    def restored_step(self, attempt: int) -> int | None:
        """Optimizer step that an attempt continued from; None where no record says it."""
        restart = self.restarts.get(attempt)
        return restart.step if restart is not None else None

    def has_trained(self, attempt: int) -> bool:
        """Whether an attempt completed an optimizer step."""
        above = self.restored_step(attempt) or 0
        return self.progress is not None and self.progress.first(attempt, above=above) is not None

    @cached_property
    def falls(self) -> Mapping[int, Location]:
        """The first place where the step count falls within an attempt, by the attempt."""
        found: dict[int, Location] = {}
        for attempt in self.progress.attempts() if self.progress is not None else ():
            rows = self.progress.rows(attempt)  # type: ignore[union-attr]
            places = np.flatnonzero(np.diff(self.progress.steps[rows]) < 0)  # type: ignore[union-attr]
            if len(places):
                found[attempt] = self.progress.update(rows.start + int(places[0]) + 1).location  # type: ignore[union-attr]
        return found

    @cached_property
    def given_up(self) -> frozenset[int]:
        """Attempts in which a restore was given up."""
        return frozenset(one.opened.attempt for one in intervals(self.run, RESTORE) if given_up(one))

    def last_signs_us(self, attempt: int, until_us: int) -> tuple[int, int] | None:
        """Times of the last two reports of an optimizer step up to a moment; twice the same where there is one."""
        if self.progress is None:
            return None
        times = np.sort(np.asarray(self.progress.series.time_us[self.progress.rows(attempt)]))
        times = times[times <= until_us]
        return (int(times[max(len(times) - 2, 0)]), int(times[-1])) if len(times) else None

    # --- entries of histories

    def entry(self, record: TraceRecord | SuiteRecord, time_us: int, place: Location | None = None) -> Entry:
        """A record at its time after the first record of the run; `line` is the offset of its place."""
        seconds = (time_us - self.run.first_time_us) / 1e6
        if place is None or place.file < 0:
            return Entry(seconds=seconds, record=record)
        return Entry(seconds=seconds, record=record, file=self.run.files[place.file].path, line=place.offset)

    def entry_of(self, event: PlacedEvent, record: TraceRecord | SuiteRecord) -> Entry:
        """A record at the time and place of an event."""
        return self.entry(record, event.time_us, event.location)

    def steps(
        self, attempt: int, above: int, most: int | None = None, *, with_losses: bool = True, needs: str = ""
    ) -> Iterator[Entry]:
        """Optimizer steps of the job in an attempt, as if one rank had reported them.

        Args:
            attempt: its number.
            above: steps up to this one are left out.
            most: steps above it are left out.
            with_losses: whether a step without a reported loss counts as one without a finite loss.
            needs: metric without which a step is left out.
        """
        progress = self.progress
        if progress is None:
            return
        rows = progress.rows(attempt)
        numbers = np.asarray(progress.steps[rows])
        taken = (numbers > above) if most is None else ((numbers > above) & (numbers <= most))
        picked = np.flatnonzero(taken)
        if len(picked) > MOST_STEPS:
            largest = picked[np.argmax(numbers[picked])]
            picked = np.append(picked[: MOST_STEPS - 2], [largest, picked[-1]])
        losses, rates = self._values(self._loss, attempt), self._values(self.run.job.get(_RATE), attempt)
        wanted = {_LOSS: losses, _RATE: rates}.get(needs)
        for index in picked.tolist():
            update = progress.update(rows.start + index)
            if wanted is not None and update.step not in wanted:
                continue
            loss = losses.get(update.step, math.nan if with_losses else 0.0)
            record = StepDone(
                time_us=max(update.time_us, 0),
                attempt=attempt,
                rank=0,
                step=update.step,
                loss=loss if math.isfinite(loss) else _UNKNOWN,
                learning_rate=rates.get(update.step, 0.0),
            )
            yield self.entry(record, update.time_us, update.location)

    @cached_property
    def _loss(self) -> JobSeries | None:
        if _TOTAL in self.run.job:
            return self.run.job[_TOTAL]
        return next((self.run.job[name] for name in sorted(self.run.job) if name.partition("{")[0] == _LOSS), None)

    @staticmethod
    def _values(series: JobSeries | None, attempt: int) -> dict[int, float]:
        """Values of a series in an attempt by the step of their records."""
        if series is None:
            return {}
        start, end = np.searchsorted(np.asarray(series.attempt), [attempt, attempt + 1]).tolist()
        part: Any = slice(start, end)
        return dict(zip(np.asarray(series.step)[part].tolist(), np.asarray(series.value)[part].tolist(), strict=True))
