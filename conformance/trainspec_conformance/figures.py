"""Sums up how long the way back from a fault took, as quantiles that the trials bear."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainspec_validate.documents.types.conformance_report import Moment, MomentFigures, TrialReport

MOMENTS: tuple[Moment, ...] = ("detected", "decided", "restored", "first-step", "caught-up")
TRIALS_FOR = {0.5: 5, 0.9: 29, 0.95: 59}
"""Trials from which on a quantile is told, as the chapter on conformance has them."""


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
