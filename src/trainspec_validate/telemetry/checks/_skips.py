"""Finds steps that are skipped one after another for longer than a scale of the loss takes to settle."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, Violation
from trainspec_validate.telemetry.checks._job import held_at, stretches
from trainspec_validate.telemetry.checks._pauses import of_attempt
from trainspec_validate.telemetry.view.run_view import JobSeries, RunView

STEPS, SKIPPED = "train.step.count", "train.step.skipped"
MOST_SKIPPED = 32
"""Skipped steps in a row with which the largest initial scale of a loss, 2**32, has come down to 1 by halving."""
HELP = "find why no step is applied: a gradient that is not finite at the least scale of the loss has another cause"


def runs_of_skips(run: RunView) -> list[Violation]:
    """Stretches in which as many steps are skipped and none is applied."""
    counts = run.job.get(STEPS)
    skipped = [series for series in run.job.values() if series.key.metric == SKIPPED]
    if counts is None or not skipped:
        return []
    return [found for span in run.attempts for found in _of_attempt(counts, skipped, span.number)]


def _of_attempt(counts: JobSeries, skipped: list[JobSeries], attempt: int) -> list[Violation]:
    """Stretches of one attempt; programs count a skipped step as completed, or do not."""
    mine = of_attempt(counts, attempt)
    times, steps = counts.time_us[mine], np.asarray(counts.value)[mine]
    total: Any = sum(np.nan_to_num(held_at(series, attempt, times)) for series in skipped)
    grown = np.diff(total, prepend=total[:1])
    is_skipped = (grown > 0) & (np.diff(steps, prepend=steps[:1]) <= grown)
    found = []
    for begin, end in stretches(is_skipped, 1):
        num = int(grown[begin:end].sum())
        if num >= MOST_SKIPPED:
            after = int(steps[end - 1])
            until = f"up to step {after:,}" if after else "and none is applied"
            message = f"{num:,} steps in a row are skipped, {until}"
            evidence = Evidence(SKIPPED, "", int(times[begin]), int(times[end - 1]), end - begin)
            found.append(Violation(counts.location(mine.start + begin), message, HELP, evidence))
    return found
