"""Costs of batch ramps against stepping through them and against published runs."""

from __future__ import annotations

import doctest
import math

import pytest
from appendix_models import batch_cost
from appendix_models.batch_cost import schedule_cost, steps_saved
from appendix_models.critical_batch import adaptive_batch, adaptive_gain

from trainspec_validate.performance.costs.batch_schedule import Stage, batch_at

OLMO = [Stage(0, 2**22), Stage(168e9, 2**23), Stage(503e9, 2**24)]


def test_olmo_warm_up_saves_steps() -> None:
    # arXiv:2505.23971, table 1: 43 % fewer steps with the warm-up.
    assert steps_saved(OLMO, 655e9) == pytest.approx(0.43, abs=0.002)
    assert 0.40 < steps_saved(OLMO, 610e9) < 0.43
    assert steps_saved(OLMO, 100e9) == 0, "the later stages are never seen"


def test_a_ramp_that_follows_the_noise_has_the_adaptive_gain() -> None:
    """Two noise scales, and the best batch for each: progress as tokens, overheads on the curve of the gain."""
    noises, exchange = (100.0, 2500.0), 300.0
    batches = [adaptive_batch(noise, exchange) for noise in noises]
    # The same number of steps without noise in each half.
    lengths = [1e4 * (batch + noise) for batch, noise in zip(batches, noises, strict=True)]
    stages = [Stage(0, batches[0]), Stage(lengths[0], batches[1])]
    total = sum(lengths)
    cost = schedule_cost(stages, total, lambda seen: noises[0] if seen < lengths[0] else noises[1])
    product = (cost.num_steps / cost.least_steps - 1) * (total / cost.least_samples - 1)
    assert product == pytest.approx(adaptive_gain(noises), rel=1e-6)
    assert product < 0.7


def test_the_cost_of_a_linear_ramp_agrees_with_its_steps() -> None:
    """Each step adds its progress, at the batch and the noise of its middle."""
    stages, total = [Stage(0, 1e3, linear=True), Stage(1e7, 1e4)], 2e7

    def noise(seen: float) -> float:
        return 500 + seen / 1e4

    seen = progress = samples = 0.0
    while seen < total:
        batch = batch_at(stages, seen)
        middle = noise(seen + batch / 2)
        progress += batch / (batch + middle)
        samples += batch * middle / (batch + middle)
        seen += batch
    cost = schedule_cost(stages, total, noise)
    assert cost.least_steps == pytest.approx(progress, rel=2e-3)
    assert cost.least_samples == pytest.approx(samples, rel=2e-3)


def test_a_batch_above_the_noise_shows_at_its_worst_moment() -> None:
    """A large batch from the start, while the critical batch grows as the root of the tokens seen."""

    def critical(seen: float) -> float:
        return 2**24 * math.sqrt(seen / 600e9)

    large = schedule_cost([Stage(0, 2**24)], 600e9, critical)
    ramp = schedule_cost(OLMO, 600e9, critical)
    assert large.largest_samples_ratio > ramp.largest_samples_ratio
    assert ramp.least_samples > large.least_samples
    assert ramp.num_steps > large.num_steps


@pytest.mark.parametrize(("noise", "num_points"), [(0.0, 1000), (1.0, 0)])
def test_nonsense_is_refused(noise: float, num_points: int) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        schedule_cost([Stage(0, 1)], 1, lambda _seen: noise, num_points=num_points)


def test_examples() -> None:
    result = doctest.testmod(batch_cost)
    assert result.attempted >= 4
    assert result.failed == 0
