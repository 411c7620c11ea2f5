"""Measures the recovery path from a fault in one trial, and sums it up as quantiles that the trials bear."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance_report import Mark, Moment, MomentFigures, TrialReport
from trainspec_validate.documents.types.trace import Decision, StepDone


def marks(view: View) -> tuple[Mark, ...]:
    """Moments after the last injection, in seconds after it; none where nothing was injected."""
    injected = view.injections()
    if not injected:
        return ()
    start = injected[-1][0].seconds
    first = next(view.first_steps(start), None)
    restored = [entry.seconds for entry, record in view.restores(start)]
    if first is not None:
        restored = [seconds for seconds in restored if seconds <= first.seconds]
    earlier = [record for entry, record in view.of(StepDone) if entry.seconds <= start]
    before = max((record.step for record in earlier), default=0)
    attempt = max((record.attempt for record in earlier), default=0)
    later = [(entry, record) for entry, record in view.of(StepDone, start) if record.attempt > attempt]
    caught_up = next((entry for entry, record in later if record.step == before + 1), None)
    found: dict[Moment, float | None] = {
        "detected": next((entry.seconds for entry, _ in view.faults(start)), None),
        "decided": next((entry.seconds for entry, _ in view.of(Decision, start)), None),
        "restored": max(restored, default=None),
        "first-step": first.seconds if first else None,
        "caught-up": max(caught_up.seconds, first.seconds if first else 0.0) if caught_up else None,
    }
    return tuple(Mark(name=name, seconds=round(at - start, 4)) for name, at in found.items() if at is not None)


MOMENTS: tuple[Moment, ...] = ("detected", "decided", "restored", "first-step", "caught-up")
TRIALS_FOR = {0.5: 5, 0.9: 29, 0.95: 59}
"""Minimum numbers of trials for quantiles, as in the chapter on conformance."""


def figures(trials: Sequence[TrialReport]) -> tuple[MomentFigures, ...]:
    """Figures of each moment that any trial has seen.

    A trial that never came to a moment counts as one that took for ever.
    """
    found = []
    for name in MOMENTS:
        seen = sorted(mark.seconds for trial in trials for mark in trial.marks if mark.name == name)
        if seen:
            found.append(
                MomentFigures(
                    name=name,
                    num_trials=len(trials),
                    num_seen=len(seen),
                    p50_seconds=quantile(seen, 0.5, len(trials)),
                    p90_seconds=quantile(seen, 0.9, len(trials)),
                    p95_seconds=quantile(seen, 0.95, len(trials)),
                    largest_seconds=seen[-1],
                )
            )
    return tuple(found)


def quantile(ordered: Sequence[float], share: float, num_trials: int) -> float | None:
    """The least time within which that share of all trials stays; None where too few trials bear it."""
    rank = math.ceil(share * num_trials)
    if num_trials < TRIALS_FOR[share] or rank > len(ordered):
        return None
    return ordered[rank - 1]
