"""Figures of the recovery path from faults claim no more than the trials bear."""

from __future__ import annotations

import pytest
from conformance_reports import trial
from trainspec_conformance.figures import figures, quantile


@pytest.mark.parametrize(
    ("num_trials", "told"), [(1, []), (4, []), (5, [0.5]), (28, [0.5]), (29, [0.5, 0.9]), (59, [0.5, 0.9, 0.95])]
)
def test_a_quantile_needs_enough_trials(num_trials: int, told: list[float]) -> None:
    ordered = [float(number) for number in range(1, num_trials + 1)]
    assert [share for share in (0.5, 0.9, 0.95) if quantile(ordered, share, num_trials) is not None] == told


def test_a_quantile_is_a_time_that_was_seen() -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.5, 5) == 3.0
    assert quantile([float(n) for n in range(1, 60)], 0.95, 59) == 57.0


def test_a_trial_that_never_came_back_took_for_ever() -> None:
    trials = [trial(number, seconds=0.5 if number <= 2 else None) for number in range(1, 6)]
    by_name = {one.name: one for one in figures(trials)}
    assert by_name["detected"].p50_seconds == 0.25
    assert by_name["first-step"].num_seen == 2
    assert by_name["first-step"].p50_seconds is None, "the median trial never came to a step"
    assert by_name["first-step"].largest_seconds == 0.5
    assert "restored" not in by_name
