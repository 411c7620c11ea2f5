"""Checks the losses that a run reports: skipped steps and time by category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check, require
from trainspec_validate.telemetry.checks._job import held_at, updates_of
from trainspec_validate.telemetry.checks._pauses import of_attempt
from trainspec_validate.telemetry.checks._progress import find_progress
from trainspec_validate.telemetry.checks._rows import refuse_snapshot, refuse_timeless, when
from trainspec_validate.telemetry.checks._words import damaged, few, number, seconds_in_words
from trainspec_validate.telemetry.view.run_view import JobSeries, Location, RunView

SKIPPED = "train.step.skipped"
OF_UPDATES = (
    *(f"train.loss.{kind}{{train.loss.name={name}}}" for kind in ("mean", "max") for name in ("total", "lm")),
    "train.gradient.norm",
)
"""Quantities that have to be finite for an optimizer step to be applied: its objective and its gradient."""
GOODPUT = "train.goodput.time"
PRODUCTIVE = f"{GOODPUT}{{train.time.category=productive}}"
DURATION = "train.step.duration"
NOT_FINITE_PLACES = frozenset({"loss", "gradient"})
"""Where a value that is not finite keeps an optimizer step from being applied; in weights it is too late."""
REPORTS_AROUND = 2
"""Reports before and after a bad step in which it can be counted: events and reports of one step are not one."""
GOODPUT_TOLERANCE = 0.01


class _BadUpdate(NamedTuple):
    """An optimizer step whose loss or gradient is not finite, as an event or the value itself says."""

    time_us: int
    attempt: int
    location: Location
    words: str
    num_own: int = 0
    """Reports of the same step that can follow it: an event comes before the values of its step."""


@check("TS-TEL-042")
def skip_consistency(run: RunView) -> Iterator[Violation]:
    """An optimizer step whose loss or gradient is not finite is counted as skipped."""
    refuse_snapshot(run)
    yield from damaged(run, "TS-TEL-042")
    skipped = require([series for series in run.job.values() if series.key.metric == SKIPPED], f"no {SKIPPED}")
    bad_updates = {(bad.time_us, bad.attempt): bad for bad in sorted(_bad_updates(run), reverse=True)}
    answers = [(bad, _growth(bad, skipped)) for _, bad in sorted(bad_updates.items()) if _is_passed(run, bad)]
    if all(growth is None for _, growth in answers):
        raise NotApplicable("no step with a loss or gradient that is not finite, with reports around it")
    yield from few(
        Violation(
            bad.location,
            f"{bad.words}{when(run, bad.time_us)}, and {SKIPPED} does not grow",
            "count an optimizer step that is not applied under its reason, and write the counter with every report",
            Evidence(SKIPPED, "", bad.time_us, bad.time_us),
        )
        for bad, growth in answers
        if growth == 0
    )


def _bad_updates(run: RunView) -> Iterator[_BadUpdate]:
    for event in run.events_named("train.nonfinite.detected"):
        where = event.attribute("train.nonfinite.where")
        if where in NOT_FINITE_PLACES:
            yield _BadUpdate(event.time_us, event.attempt, event.location, f"the {where} is not finite", num_own=1)
    for series in (run.job[key] for key in OF_UPDATES if key in run.job):
        for index in np.flatnonzero(~np.isfinite(series.value)).tolist():
            place, words = series.location(index), f"{series.key} is not finite"
            yield _BadUpdate(int(series.time_us[index]), int(series.attempt[index]), place, words)


def _is_passed(run: RunView, bad: _BadUpdate) -> bool:
    """Whether the attempt continues beyond a bad step: it does not where the job stops, or restores an older state."""
    updates = find_progress(run)
    last = updates.last(bad.attempt, until_us=bad.time_us) if updates is not None else None
    if updates is not None and last is not None:
        after = updates.first(bad.attempt, after_us=bad.time_us + 1)
        if after is not None and updates.first(bad.attempt, above=last.step, after_us=bad.time_us + 1) is not None:
            return after.step >= last.step
    reports = [run.job[key] for key in (*OF_UPDATES, DURATION) if key in run.job]
    times = [series.time_us[of_attempt(series, bad.attempt)] for series in reports]
    return bool(sum(time_us > bad.time_us for time_us in np.unique(np.concatenate(times or [[]]))) > bad.num_own)


def _growth(bad: _BadUpdate, skipped: Sequence[JobSeries]) -> float | None:
    """How much the counters of skipped steps grow around a bad one; None without reports before and after it."""
    times = np.unique(np.concatenate([series.time_us[of_attempt(series, bad.attempt)] for series in skipped]))
    place = int(np.searchsorted(times, bad.time_us))
    if place == 0 or place == len(times):
        return None
    around = times[[max(place - REPORTS_AROUND, 0), min(place + REPORTS_AROUND, len(times)) - 1]]
    values = [np.nan_to_num(held_at(series, bad.attempt, around)) for series in skipped]
    return float(sum(value[1] - value[0] for value in values))


@check("TS-TEL-049")
def goodput_closed(run: RunView) -> Iterator[Violation]:
    """The categories of time add up to the time that passed, and productive time is no more than steps took."""
    refuse_timeless(run)
    categories = [series for series in run.job.values() if series.key.metric == GOODPUT and len(series)]
    times = np.concatenate([series.time_us for series in categories]) if categories else np.zeros(0, np.int64)
    if len(np.unique(times)) < 2:
        raise NotApplicable(f"{GOODPUT} is not reported twice")
    first, last = int(times.min()), int(times.max())
    elapsed = (last - first) / 1e6
    grown = sum(_grown(series, first) for series in categories)
    if abs(grown - elapsed) > GOODPUT_TOLERANCE * elapsed:
        yield Violation(
            _place_at(categories, last),
            f"the categories of {GOODPUT} grow by {seconds_in_words(grown)} in {seconds_in_words(elapsed)}",
            "let exactly one category grow at any moment, idle where nothing else fits, in all attempts",
            Evidence(GOODPUT, "", first, last, samples=(f"ratio {number(grown / elapsed)}",)),
        )
    duration, productive = run.job.get(DURATION), run.job.get(PRODUCTIVE)
    if duration is None or productive is None:
        return
    taken = _time_of_updates(run, duration, first, last) + _under_way(duration, last)
    claimed = _grown(productive, first)
    if taken and claimed > (1 + GOODPUT_TOLERANCE) * taken:
        yield Violation(
            _place_at([productive], last),
            f"{seconds_in_words(claimed)} are productive, and the steps of that time took {seconds_in_words(taken)}",
            "count only time of steps as productive; waiting, saves and evaluations have categories of their own",
            Evidence(PRODUCTIVE, "", first, last),
        )


def _grown(series: JobSeries, first_us: int) -> float:
    """Growth of a category from a moment on; one that is written later counted from zero."""
    begin = int(np.argmin(series.time_us))
    base = float(series.value[begin]) if int(series.time_us[begin]) == first_us else 0.0
    return float(series.value[int(np.argmax(series.time_us))]) - base


def _place_at(categories: Sequence[JobSeries], time_us: int) -> Location:
    places = (
        series.location(int(index)) for series in categories for index in np.flatnonzero(series.time_us == time_us)
    )
    return min(places, default=Location(-1, -1))


def _under_way(duration: JobSeries, last_us: int) -> float:
    """Seconds that the step may have taken which was under way at a moment: no more than the longest one."""
    before = np.flatnonzero((duration.time_us <= last_us) & np.isfinite(duration.value))
    if not len(before):
        return 0.0
    newest = int(before[np.argmax(duration.time_us[before])])
    mine = before[duration.attempt[before] == duration.attempt[newest]]
    longest = float(np.max(duration.value[mine]))
    return min((last_us - int(duration.time_us[newest])) / 1e6, longest)


def _time_of_updates(run: RunView, duration: JobSeries, first_us: int, last_us: int) -> float:
    """Seconds of the steps that were completed between two moments."""
    total = 0.0
    for attempt in np.unique(duration.attempt):
        mine = of_attempt(duration, int(attempt))
        times, values = duration.time_us[mine], duration.value[mine] * updates_of(run, duration, mine)
        inside = (times > first_us) & (times <= last_us) & np.isfinite(values)
        total += float(values[inside].sum())
    return total
