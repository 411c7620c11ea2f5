"""Finds stalls of a job by every sign that it works: reports, evaluations and the marks of its life."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.checks import Violation
from trainspec_validate.telemetry.checks._intervals import Interval, intervals
from trainspec_validate.telemetry.checks._pauses import (
    Pauses,
    can_close,
    end_by,
    evaluated,
    evaluations,
    of_attempt,
    silences,
)
from trainspec_validate.telemetry.checks._progress import Progress
from trainspec_validate.telemetry.checks._words import seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, Location, RunView

MARKS = (
    *("train.run.start", "train.run.end", "train.attempt.start", "train.attempt.end"),
    *("train.evaluation.begin", "train.evaluation.end", "train.checkpoint.begin", "train.checkpoint.commit"),
)
FEWEST = 6
"""Signs that show how often a job gives one."""
LONGER = 3.0
"""Times the next longest interval that makes a stall."""
LEAST_SECONDS = 600.0
LEAST_START_SECONDS = 7200.0
"""Compilation, warm-up and the first reading of data of large jobs take up to an hour."""
LONGER_START = 20.0
LONGER_PAUSE = 10.0
FEWEST_ALIKE = 4
HELP = "write what the job does instead: an evaluation, a save, a fault with its recovery, or train.telemetry.gap"


class Sign(NamedTuple):
    """One moment at which the job shows that it works."""

    time_us: int
    location: Location


class Signs:
    """The signs of one attempt, in order of time."""

    def __init__(self, run: RunView, span: AttemptSpan) -> None:
        self._run, self._span = run, span
        marks = (event for event in run.events_named(*MARKS) if event.attempt == span.number)
        found = {Sign(event.time_us, event.location) for event in marks}
        started = span.started.time_us if span.started else None
        for series in run.job.values():
            mine = of_attempt(series, span.number)
            found |= {Sign(int(series.time_us[n]), series.location(n)) for n in _edges(series.time_us, mine)}
        self._each = sorted(sign for sign in found if started is None or sign.time_us >= started)
        self._explained = Pauses([*silences(run).each, *evaluations(run).each])

    @property
    def show_rhythm(self) -> bool:
        """Whether there are enough of them."""
        return len(self._each) >= FEWEST

    def _lengths(self) -> list[float]:
        times = np.array([sign.time_us for sign in self._each], dtype=np.int64)
        left: list[float] = (self._explained.left_us(times[:-1], times[1:]) / 1e6).tolist()
        return left

    def stalls(self) -> Iterator[Violation]:
        """The interval that is several times as long as any other, the first one left out."""
        lengths = self._lengths()[1:] if self.show_rhythm else []
        if len(lengths) < FEWEST - 2:
            return
        longest = int(np.argmax(lengths))
        others = max(length for place, length in enumerate(lengths) if place != longest)
        if lengths[longest] > max(LONGER * others, LEAST_SECONDS):
            yield self._violation(longest + 1, lengths[longest], others)

    def late_start(self) -> Iterator[Violation]:
        """A first sign that comes hours after the start."""
        lengths = self._lengths() if self.show_rhythm else []
        if len(lengths) < FEWEST - 1 or self._span.started is None:
            return
        others = max(lengths[FEWEST // 2 :])
        longest = int(np.argmax(lengths[: FEWEST // 2]))
        if lengths[longest] > max(LONGER_START * others, LEAST_START_SECONDS):
            yield self._violation(longest, lengths[longest], others)

    def _violation(self, place: int, length: float, others: float) -> Violation:
        before, after = self._each[place], self._each[place + 1]
        return Violation(
            before.location,
            f"nothing is reported for {seconds_in_words(length)}, and at most {seconds_in_words(others)} pass between "
            "other reports; no event says why",
            HELP,
            Evidence(first_time_us=before.time_us, last_time_us=after.time_us),
        )


def _edges(times_us: np.ndarray, mine: slice) -> list[int]:
    """Places of the values around long intervals, which are all that a stall needs of a long series."""
    size = mine.stop - mine.start
    if size <= 2_000:
        return list(range(mine.start, mine.stop))
    gaps = np.argsort(np.diff(times_us[mine]))[-50:]
    places = np.unique(np.concatenate([[0, size - 1], gaps, gaps + 1, np.arange(0, size, max(size // 1_000, 1))]))
    return (places + mine.start).tolist()  # type: ignore[no-any-return]


def signs_of(run: RunView, span: AttemptSpan) -> Signs:
    """The signs of an attempt."""
    return Signs(run, span)


def long_pauses(run: RunView, updates: Progress | None) -> Iterator[Violation]:
    """Evaluations, and saves without a step, that take many times as long as the others: a stall explains them."""
    for mine, what in ((evaluated(run), "evaluation"), (intervals(run, "train.checkpoint.begin"), "save")):
        lengths = [(interval, _seconds(run, interval)) for interval in mine]
        known = [(interval, length) for interval, length in lengths if length is not None]
        for interval, length in known if len(known) >= FEWEST_ALIKE else ():
            usual = float(np.median([other for another, other in known if another is not interval]))
            if length <= max(LONGER_PAUSE * usual, LEAST_SECONDS):
                continue
            if what == "save" and _updates_within(updates, interval, length):
                continue
            takes = "takes" if interval.closed else "has taken"
            yield Violation(
                interval.opened.location,
                f"this {what} {takes} {seconds_in_words(length)}, and half of the others at most "
                f"{seconds_in_words(usual)}",
                "look for a rank that hangs; an evaluation that is larger by design has a set of its own"
                if what == "evaluation"
                else "look for a rank that hangs, and for storage that does",
                Evidence(first_time_us=interval.opened.time_us, last_time_us=interval.opened.time_us),
            )


def _seconds(run: RunView, interval: Interval) -> float | None:
    """How long an interval took, or has taken so far; None where nothing closes it and nothing can."""
    if interval.closed is not None:
        return (interval.closed.time_us - interval.opened.time_us) / 1e6
    until_us = end_by(run, run.attempts[-1], interval.opened.location)
    return (until_us - interval.opened.time_us) / 1e6 if can_close(run, interval.opened) else None


def _updates_within(updates: Progress | None, interval: Interval, seconds: float) -> bool:
    """Whether the job went on during a save, as it does where the save is asynchronous."""
    opened = interval.opened
    if updates is None:
        return False
    found = updates.first(opened.attempt, after_us=opened.time_us + 1)
    return found is not None and found.time_us < opened.time_us + seconds * 1e6 / 2
