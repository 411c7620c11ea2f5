"""Gradient noise against simulations with a known gradient and covariance."""

from __future__ import annotations

import doctest
import math
import random
from collections.abc import Sequence
from statistics import fmean, stdev

import pytest
from appendix_models import noise_statistics
from appendix_models.noise_statistics import (
    GradientNoise,
    gradient_noise,
    noise_scale_interval,
    norm_test,
    num_effective_steps,
    relative_sd_of_noise,
    relative_sd_of_signal,
    running,
    steps_to_average,
    student_quantile,
    two_batch_noise,
)
from trainspec_reference.common import noise_scale
from trainspec_reference.common.noise_scale import NoiseAverages

DIMENSION = 50
GRADIENT = [math.sqrt(1 / DIMENSION)] * DIMENSION
"""A true gradient of squared norm 1; with unit variance in each of 50 entries the noise is 50."""
UNEVEN = (1, 2, 4, 9)


def one_step(source: random.Random, sizes: Sequence[int]) -> tuple[list[float], float]:
    """Squared norms of the groups' mean gradients and of the weighted mean, for unit noise per entry and unit."""
    total = sum(sizes)
    mean = [0.0] * DIMENSION
    norms = []
    for size in sizes:
        deviation = 1 / math.sqrt(size)
        group = [source.gauss(entry, deviation) for entry in GRADIENT]
        norms.append(sum(x * x for x in group))
        mean = [x + y * size / total for x, y in zip(mean, group, strict=True)]
    return norms, sum(x * x for x in mean)


def simulate(sizes: Sequence[int], num_steps: int, seed: int) -> list[GradientNoise]:
    source = random.Random(seed)
    return [gradient_noise(sizes, *one_step(source, sizes)) for _ in range(num_steps)]


@pytest.fixture(scope="module")
def uneven() -> list[GradientNoise]:
    return simulate(UNEVEN, 4000, seed=1)


def test_uneven_groups_are_unbiased_when_weighted(uneven: list[GradientNoise]) -> None:
    signal, noise = fmean(r.signal_sq for r in uneven), fmean(r.noise_trace for r in uneven)
    steps = math.sqrt(len(uneven))
    assert signal == pytest.approx(1, abs=4 * relative_sd_of_signal(50, 16, 4, DIMENSION) / steps)
    assert noise == pytest.approx(50, abs=4 * 50 * relative_sd_of_noise(4, DIMENSION) / steps)
    assert noise == pytest.approx(50, rel=0.01)


def test_unweighted_groups_mislead() -> None:
    """Norms averaged as equals put signal far below 0 and noise at twice its value."""
    source = random.Random(2)
    total, groups = sum(UNEVEN), len(UNEVEN)
    signals, noises = [], []
    for _ in range(4000):
        norms, mean = one_step(source, UNEVEN)
        plain = fmean(norms)
        signals.append((groups * mean - plain) / (groups - 1))
        noises.append(total * (plain - mean) / (groups - 1))
    # E[plain] = 1 + 50 * mean(1/b), so these are -2.58 and 107 exactly.
    inverse = fmean(1 / size for size in UNEVEN)
    assert fmean(signals) == pytest.approx((4 * (1 + 50 / 16) - (1 + 50 * inverse)) / 3, abs=0.15)
    assert fmean(signals) == pytest.approx(-2.58, abs=0.15)
    assert fmean(noises) == pytest.approx(107, rel=0.02)


def test_one_rank_with_accumulation_equals_ranks(uneven: list[GradientNoise]) -> None:
    """Order of the groups does not matter: ranks and micro-batches are the same to the estimate."""
    norms, mean = one_step(random.Random(3), UNEVEN)
    forward = gradient_noise(UNEVEN, norms, mean)
    backward = gradient_noise(UNEVEN[::-1], norms[::-1], mean)
    assert forward.signal_sq == pytest.approx(backward.signal_sq, rel=1e-12)
    assert forward.noise_trace == pytest.approx(backward.noise_trace, rel=1e-12)


def test_sizes_may_be_shares_of_a_unit() -> None:
    """In units four times as large, noise is a quarter and signal the same."""
    norms, mean = one_step(random.Random(11), UNEVEN)
    small, large = gradient_noise(UNEVEN, norms, mean), gradient_noise([s / 4 for s in UNEVEN], norms, mean)
    assert large.signal_sq == pytest.approx(small.signal_sq)
    assert large.noise_trace == pytest.approx(small.noise_trace / 4)


@pytest.mark.parametrize("factor", [2.0**16, 2.0**-16])
def test_a_loss_scale_that_is_left_in_leaves_the_ratio_only(factor: float) -> None:
    norms, mean = one_step(random.Random(4), UNEVEN)
    plain = gradient_noise(UNEVEN, norms, mean)
    scaled = gradient_noise(UNEVEN, [n * factor**2 for n in norms], mean * factor**2)
    assert scaled.noise_trace == pytest.approx(plain.noise_trace * factor**2, rel=1e-12)
    assert scaled.signal_sq == pytest.approx(plain.signal_sq * factor**2, rel=1e-9)


def test_equal_groups_are_the_two_batch_pair() -> None:
    norms, mean = one_step(random.Random(5), (4, 4, 4))
    groups, pair = gradient_noise((4, 4, 4), norms, mean), two_batch_noise(4, fmean(norms), 12, mean)
    assert groups.signal_sq == pytest.approx(pair.signal_sq, rel=1e-12)
    assert groups.noise_trace == pytest.approx(pair.noise_trace, rel=1e-12)


def test_predicted_deviations_agree_with_the_simulation(uneven: list[GradientNoise]) -> None:
    signal, noise = stdev(r.signal_sq for r in uneven), stdev(r.noise_trace for r in uneven)
    assert signal == pytest.approx(relative_sd_of_signal(50, 16, 4, DIMENSION), rel=0.04)
    assert noise / 50 == pytest.approx(relative_sd_of_noise(4, DIMENSION), rel=0.04)


def test_ratio_of_averages_is_right_where_the_average_of_ratios_is_not() -> None:
    readings = simulate((8, 8, 8, 8), 3000, seed=6)
    of_averages = list(running(readings, half_life_steps=600))[-1].noise_scale
    ratios = [r.noise_trace / r.signal_sq for r in readings]
    assert of_averages == pytest.approx(50, rel=0.06)
    assert abs(fmean(ratios) - 50) > 10


@pytest.mark.slow
def test_interval_covers_the_true_value_as_often_as_it_says() -> None:
    num_trials, num_steps = 300, 60
    readings = simulate((4, 4, 8), num_trials * num_steps, seed=8)
    hits = 0
    for trial in range(num_trials):
        interval = noise_scale_interval(readings[trial * num_steps : (trial + 1) * num_steps], 0.9)
        hits += interval is not None and interval[0] <= 50 <= interval[1]
    # The standard error of a share of 0.9 in 300 trials is 0.017.
    assert hits / num_trials == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_ends_of_the_interval_are_those_of_fieller(confidence: float) -> None:
    """At either end, mean noise less ratio times mean signal is exactly as many standard errors from 0 as allowed."""
    readings = simulate((2, 3, 5, 6), 80, seed=10)
    interval = noise_scale_interval(readings, confidence)
    assert interval is not None
    for end in interval:
        differences = [r.noise_trace - end * r.signal_sq for r in readings]
        errors = fmean(differences) / (stdev(differences) / math.sqrt(80))
        assert abs(errors) == pytest.approx(student_quantile((1 + confidence) / 2, 79), rel=1e-9)
    assert interval[0] < fmean(r.noise_trace for r in readings) / fmean(r.signal_sq for r in readings) < interval[1]


def test_a_signal_that_drowns_has_no_interval() -> None:
    readings = [GradientNoise(signal, 50, 16) for signal in (1, -1, 2, -2, 3, -2.9)]
    assert noise_scale_interval(readings) is None
    assert noise_scale_interval([GradientNoise(-r.signal_sq - 9, 50, 16) for r in readings]) is None


def test_errors_of_a_large_batch_norm_are_amplified_by_noise_over_batch() -> None:
    """A 5 % error in one norm moves an ill-conditioned estimate by more than a third."""
    truth, units = 5150.0, 640.0
    small, large = 1 + truth / 64, 1 + truth / units
    high = two_batch_noise(64, small, units, large * 0.95).noise_scale
    low = two_batch_noise(64, small, units, large * 1.05).noise_scale
    assert high is not None
    assert low is not None
    assert low < truth / 1.4
    assert high > truth * 1.7


def test_averages_are_corrected_for_their_start() -> None:
    constant = [GradientNoise(3, 60, 16)] * 40
    for averages in running(constant, half_life_steps=500):
        assert averages.signal_sq == pytest.approx(3, rel=1e-9)
        assert averages.noise_trace == pytest.approx(60, rel=1e-9)
        assert averages.noise_scale == pytest.approx(20)


def test_the_average_halves_in_a_half_life() -> None:
    averages = NoiseAverages(10).after(1, 1)
    first = averages.raw_signal
    for _ in range(10):
        averages = averages.after(0, 1)
    assert averages.raw_signal == pytest.approx(first / 2)


def test_effective_steps_are_those_of_the_weights() -> None:
    averages = NoiseAverages(20)
    for _ in range(35):
        averages = averages.after(1, 1)
    weights = [(1 - averages.decay) * averages.decay**age / averages.weight for age in range(35)]
    assert num_effective_steps(averages) == pytest.approx(1 / sum(w * w for w in weights), rel=1e-9)


def test_a_negative_signal_is_kept_and_has_no_ratio() -> None:
    reading = gradient_noise((1, 1), (10, 10), 1)
    assert reading.signal_sq == -8
    assert reading.noise_scale is None
    assert NoiseAverages(10).after(reading.signal_sq, reading.noise_trace).noise_scale is None
    assert GradientNoise(0, 5, 1).noise_scale is None


def test_steps_needed() -> None:
    # Simulated beforehand with W = 8, b = 4, a noise scale of 3,200 and 2,000 dimensions: about 1,160 for 10 %.
    assert steps_to_average(relative_sd_of_signal(3200, 32, 8, 2000), 0.1) == pytest.approx(1160, rel=0.01)
    assert steps_to_average(1, 1) == 1


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [(0.975, 5, 2.57058), (0.95, 10, 1.81246), (0.995, 10, 3.16927), (0.995, 30, 2.75), (0.75, 5, 0.72669)],
)
def test_student_quantiles_of_the_tables(probability: float, degrees: int, value: float) -> None:
    assert student_quantile(probability, degrees) == pytest.approx(value, rel=0.0025)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gradient_noise((1,), (1,), 1),
        lambda: gradient_noise((1, 1), (1, 1, 1), 1),
        lambda: gradient_noise((1, 0), (1, 1), 1),
        lambda: gradient_noise((1, 1), (1, math.inf), 1),
        lambda: gradient_noise((1, 1), (1, math.nan), 1),
        lambda: gradient_noise((1, 1), (1, 1), 1.1),
        lambda: two_batch_noise(8, 1, 8, 1),
        lambda: two_batch_noise(1, -1, 8, 1),
        lambda: norm_test(GradientNoise(1, 1, 1), 0),
        lambda: NoiseAverages(0),
        lambda: relative_sd_of_noise(1, 10),
        lambda: relative_sd_of_signal(0, 1, 2, 10),
        lambda: steps_to_average(1, 0),
        lambda: student_quantile(1, 10),
        lambda: noise_scale_interval([GradientNoise(1, 1, 1)] * 5),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    results = [doctest.testmod(module) for module in (noise_scale, noise_statistics)]
    assert all(result.attempted for result in results)
    assert sum(result.attempted for result in results) >= 10
    assert not any(result.failed for result in results)
