"""Trade-off, adaptive batches, published laws and the recommendation within bounds."""

from __future__ import annotations

import doctest
import math

import pytest
from appendix_models import critical_batch
from appendix_models.critical_batch import (
    adaptive_batch,
    adaptive_gain,
    batch_for_samples_ratio,
    bergsma_best_batch,
    bergsma_critical_batch,
    critical_batch_of_limits,
    kaplan_critical_batch,
    recommend_batch,
    samples_for_steps,
    samples_ratio,
    steps_ratio,
    zhang_data_critical_batch,
    zhang_size_critical_batch,
)
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.floats(1e-3, 1e9)


@given(SIZES, SIZES)
def test_steps_and_samples_lie_on_the_curve(batch: float, noise: float) -> None:
    product = (steps_ratio(batch, noise) - 1) * (samples_ratio(batch, noise) - 1)
    assert product == pytest.approx(1, rel=1e-3)


@given(st.floats(1.001, 1e6))
def test_samples_of_a_run_are_those_of_its_batch(ratio: float) -> None:
    critical = critical_batch_of_limits(1e4, 1e7)
    samples = samples_for_steps(1e4 * ratio, 1e4, 1e7)
    batch = samples / (1e4 * ratio)
    assert steps_ratio(batch, critical) == pytest.approx(ratio, rel=1e-6)
    assert samples_ratio(batch, critical) == pytest.approx(samples / 1e7, rel=1e-6)


def test_at_the_critical_batch_either_doubles() -> None:
    assert steps_ratio(700, 700) == samples_ratio(700, 700) == 2


def test_a_batch_for_a_budget_of_samples_spends_it() -> None:
    assert samples_ratio(batch_for_samples_ratio(1.35, 4096), 4096) == pytest.approx(1.35)


@given(SIZES, SIZES)
def test_the_adaptive_batch_is_the_cheapest(noise: float, exchange: float) -> None:
    best = adaptive_batch(noise, exchange)

    def cost(batch: float) -> float:
        return batch + noise + exchange * (1 + noise / batch)

    assert cost(best) <= cost(best * 1.01)
    assert cost(best) <= cost(best / 1.01)


def test_gain_of_a_noise_scale_that_grows_as_the_root_of_progress() -> None:
    # Published for SVHN: 24/25; it is what a noise scale that grows as the square root of progress gives.
    noises = [math.sqrt((i + 0.5) / 20000) for i in range(20000)]
    assert adaptive_gain(noises) == pytest.approx(24 / 25, rel=1e-4)
    assert adaptive_gain([7.0] * 5) == pytest.approx(1)
    assert adaptive_gain([1, 9], [9, 1]) == adaptive_gain([1] * 9 + [9])


def test_gain_agrees_with_runs_that_follow_the_rule() -> None:
    noises, exchange = [100.0, 400.0, 900.0, 2500.0], 300.0
    batches = [adaptive_batch(noise, exchange) for noise in noises]
    steps = sum(steps_ratio(b, n) for b, n in zip(batches, noises, strict=True))
    samples = sum(b * steps_ratio(b, n) for b, n in zip(batches, noises, strict=True))
    least_steps, least_samples = len(noises), sum(noises)
    assert (steps / least_steps - 1) * (samples / least_samples - 1) == pytest.approx(adaptive_gain(noises))
    assert samples_for_steps(steps, least_steps, least_samples, adaptive_gain(noises)) == pytest.approx(samples)


def test_laws_of_data_and_of_size_meet_in_one_unit() -> None:
    """At 20 tokens per parameter the fixed-data law and the data law agree within a tenth where both were run."""
    size, data = zhang_size_critical_batch(151e6), zhang_data_critical_batch(20 * 151e6)
    assert size.tokens == pytest.approx(data.tokens, rel=0.1)
    assert size.in_range
    assert data.in_range


def test_ranges_of_the_laws() -> None:
    assert kaplan_critical_batch(3).in_range
    edges = [
        *((kaplan_critical_batch, 2, 10), (zhang_data_critical_batch, 1.7e9, 24e9)),
        *((zhang_size_critical_batch, 85e6, 1.2e9),),
        (lambda tokens: bergsma_critical_batch(tokens, 1e9, 1e6), 1e7, 1e11),
        (lambda tokens: bergsma_best_batch(tokens, 1e9, 1e6), 1e7, 1e11),
    ]
    for law, low, high in edges:
        inside = [law(x).in_range for x in (low * 0.999, low, high, high * 1.001)]
        assert inside == [False, True, True, False]
    assert not kaplan_critical_batch(1.5).in_range
    assert not zhang_data_critical_batch(15e12).in_range
    assert not zhang_size_critical_batch(405e9).in_range
    assert not bergsma_critical_batch(1e12, 1e9, 1e6).in_range
    assert bergsma_best_batch(1e10, 1e9, 1e6).in_range


def test_kaplan_law_at_one_nat_is_its_constant_and_falls_with_loss() -> None:
    assert kaplan_critical_batch(1).tokens == 2e8
    assert kaplan_critical_batch(4).tokens / kaplan_critical_batch(2).tokens == pytest.approx(2**-4.76)


# Benchmarks of arXiv:1812.06162, table 1: measured critical batch and simple noise scale, run averages.
PUBLISHED = {
    "MNIST": (200, 900),
    "SVHN": (500, 4000),
    "CIFAR10": (900, 2000),
    "ImageNet": (15000, 30000),
    "autoencoder": (40, 2),
    "VAE": (200, 10),
    "Billion Word": (100000, 150000),
    "Dota 1v1": (3000000, 300000),
}


def test_the_noise_scale_is_no_more_than_a_guess_at_the_critical_batch() -> None:
    ratios = {name: noise / critical for name, (critical, noise) in PUBLISHED.items()}
    assert min(ratios.values()) == pytest.approx(0.05)
    assert max(ratios.values()) == 8
    # At a batch of the noise scale, samples are at most nine times the least in any of them.
    assert max(samples_ratio(noise, critical) for critical, noise in PUBLISHED.values()) == 9


@given(SIZES, st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 64))
def test_the_recommendation_is_the_best_multiple(wanted: float, smallest: int, more: int, multiple: int) -> None:
    largest = smallest + more
    choices = [b for b in range(smallest, largest + 1) if b % multiple == 0]
    if not choices:
        with pytest.raises(ValueError, match="no multiple"):
            recommend_batch(wanted, 100, smallest, largest, multiple)
        return
    advice = recommend_batch(wanted, 100, smallest, largest, multiple)
    assert advice.batch in choices
    least = min(abs(math.log(b / wanted)) for b in choices)
    assert abs(math.log(advice.batch / wanted)) == pytest.approx(least, abs=1e-9)


def test_the_bound_that_holds_is_named() -> None:
    assert recommend_batch(10, 100, 64, 512).bound == "smallest"
    assert recommend_batch(1000, 100, 64, 512).bound == "largest"
    assert recommend_batch(100, 100, 64, 512).bound == "none"


@pytest.mark.parametrize(
    "call",
    [
        lambda: steps_ratio(0, 1),
        lambda: samples_ratio(1, math.inf),
        lambda: samples_for_steps(1, 1, 1),
        lambda: batch_for_samples_ratio(1, 10),
        lambda: adaptive_gain([]),
        lambda: adaptive_gain([1, 2], [1]),
        lambda: kaplan_critical_batch(0),
        lambda: zhang_data_critical_batch(-1),
        lambda: bergsma_critical_batch(1, 0, 1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    result = doctest.testmod(critical_batch)
    assert result.attempted >= 12
    assert result.failed == 0
