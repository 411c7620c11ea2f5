"""Finds series of a job, and evaluations, that stop long before their attempt does, by their own interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.checks import Violation
from trainspec_validate.telemetry.checks._intervals import intervals
from trainspec_validate.telemetry.checks._pauses import Pauses, before_end, end_by, end_us, judged_attempts, of_attempt
from trainspec_validate.telemetry.checks._rows import has_times
from trainspec_validate.telemetry.checks._seen import steps_by_attempt
from trainspec_validate.telemetry.checks._words import seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, Location, RunView

EVALUATED = "train.evaluation.loss"
REPORTED = frozenset(
    {
        *("train.step.count", "train.step.duration", "train.sample.count", "train.token.count", "train.token.rate"),
        *("train.sample.rate", "train.loss.mean", "train.gradient.norm", "train.learning_rate", EVALUATED),
    }
)
"""Metrics that training loops report at an interval of their own."""
FEWEST = 8
"""Reports that show an interval."""
INTERVALS = 3
"""Intervals without a report that make a silence."""
USUAL = 90
"""Percentile of the intervals of a series that counts as its own."""
LEAST_SECONDS = 60.0
HELP = "write it until the attempt ends, or an event that says why it stops"


class _Reports(NamedTuple):
    """Reports of one series in one attempt."""

    name: str
    times_us: Any
    steps: Any
    """-1 where a report has none."""
    last: Location


def tails(run: RunView, standing: Pauses) -> tuple[list[Violation], bool]:
    """Series that stop early, and whether any series was judged."""
    found: list[Violation] = []
    judged = False
    highest = steps_by_attempt(run)
    for span in judged_attempts(run):
        last_step = max(highest.get(span.number, (-1, -1))[1], run.event_facts.last_step.get(span.number, -1))
        for reports in (*_series(run, span), *_evaluations(run, span)):
            if len(reports.times_us) >= FEWEST:
                judged = True
                found += _stops(run, reports, span, last_step, standing if has_times(run) else None)
    return found, judged


def _series(run: RunView, span: AttemptSpan) -> Iterator[_Reports]:
    for series in run.job.values():
        mine = of_attempt(series, span.number)
        if series.key.metric in REPORTED and mine.stop > mine.start:
            last = series.location(mine.start + int(np.argmax(series.time_us[mine])))
            yield _Reports(str(series.key), series.time_us[mine], series.step[mine], last)


def _evaluations(run: RunView, span: AttemptSpan) -> Iterator[_Reports]:
    ends = [i.closed for i in intervals(run, "train.evaluation.begin") if i.closed and i.closed.attempt == span.number]
    if ends:
        # Logs give evaluations positions of other units than those of training.
        steps = [-1 if has_times(run) or end.step is None else end.step for end in ends]
        times = np.array([end.time_us for end in ends], dtype=np.int64)
        yield _Reports("the evaluations", times, np.array(steps, dtype=np.int64), ends[-1].location)


def _stops(
    run: RunView, reports: _Reports, span: AttemptSpan, last_step: int, standing: Pauses | None
) -> Iterator[Violation]:
    """The silence after the last report, where steps and clock both show it, or the one that is known."""
    last_us = int(reports.times_us.max())
    steps = np.unique(reports.steps[reports.steps >= 0])
    if len(steps) >= FEWEST:
        left_steps, usual_steps = last_step - int(steps[-1]), float(np.percentile(np.diff(steps), USUAL))
        if left_steps <= INTERVALS * usual_steps:
            return
        words = f"has its last value at step {int(steps[-1]):,}, and attempt {span.number} comes to step {last_step:,}"
    elif standing is None:
        return
    else:
        times = np.unique(reports.times_us)
        if len(times) < FEWEST:
            return
        left = float(standing.left_us(last_us, end_by(run, span, reports.last))) / 1e6
        usual = float(np.percentile(standing.left_us(times[:-1], times[1:]), USUAL)) / 1e6
        if left <= max(INTERVALS * usual, LEAST_SECONDS):
            return
        words = f"has its last value {before_end(run, span, reports.last, last_us)}"
        words += f", after one about every {seconds_in_words(usual)}"
    verb = words.replace("has its last value", "come last") if reports.name.startswith("the ") else words
    evidence = Evidence(reports.name, "", last_us, end_us(span))
    yield Violation(reports.last, f"{reports.name} {verb}", HELP, evidence)
