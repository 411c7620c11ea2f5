"""World sizes of elastic jobs against brute force, and uneven shares that add up."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.costs.elastic_cases import MICROS, bounds, brute_force
from trainspec_validate.performance.costs import elastic
from trainspec_validate.performance.costs.elastic import (
    Bounds,
    Scale,
    data_degrees,
    divisors,
    gradient_weights,
    nearest_scale,
    prime_factors,
    proportional_shares,
    scales,
    slowest_seconds,
)


@given(st.integers(1, 2000), MICROS, bounds())
def test_scales_are_exactly_those_of_brute_force(batch: int, micros: list[int], limits: Bounds) -> None:
    found = [(s.world_size, s.data, s.micro_sequences, s.accumulation_steps) for s in scales(batch, micros, limits)]
    assert len(found) == len(set(found))
    assert set(found) == brute_force(batch, micros, limits)
    assert data_degrees(batch, micros, limits) == sorted({data for _, data, _, _ in found})


def test_llama_3_keeps_its_batch_on_half_of_the_cluster() -> None:
    # arXiv:2407.21783, table 4: 2,048 sequences on data 128 (16,384 ranks) or 64 (8,192), tensor 8 and pipeline 16.
    limits = Bounds(8192, 16384, model_parallel=128, ranks_per_node=8)
    assert data_degrees(2048, [1], limits) == [64, 128]
    assert Scale(16384, 128, 1, 16) in scales(2048, [1], limits)


def test_replicas_that_do_not_fill_nodes_make_no_world() -> None:
    # Two ranks of model parallelism on nodes of eight: data degrees come in fours.
    assert data_degrees(48, [1], Bounds(1, 64, 2, 8)) == [4, 8, 12, 16, 24]
    assert data_degrees(48, [1], Bounds(65, 66, 2, 8)) == []


def test_a_job_that_shrinks_takes_the_largest_world_left() -> None:
    assert nearest_scale(2048, [1, 2], Bounds(64, 1024, ranks_per_node=8), 1016) == Scale(512, 512, 2, 2)
    assert nearest_scale(2048, [1], Bounds(64, 1024), 63) is None


@given(st.integers(1, 10**6))
def test_factors_multiply_back(number: int) -> None:
    factors = prime_factors(number)
    assert math.prod(prime**power for prime, power in factors.items()) == number
    assert all(prime_factors(prime) == {prime: 1} for prime in factors)


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_divisors_are_all_of_them(number: int, most: int) -> None:
    assert divisors(number, most) == [d for d in range(1, min(number, most) + 1) if number % d == 0]


SPEEDS = st.lists(st.floats(0.1, 10), min_size=1, max_size=40)


@given(SPEEDS, st.integers(1, 50), st.sampled_from((1, 2, 8)))
def test_shares_add_up_and_stay_near_their_quota(speeds: list[float], per_worker: int, multiple: int) -> None:
    batch = len(speeds) * per_worker * multiple
    try:
        shares = proportional_shares(batch, speeds, multiple)
    except ValueError as problem:
        assert "would get nothing" in str(problem)  # noqa: PT017 - both outcomes are right, by the speeds
        assert min(speeds) / sum(speeds) * batch < multiple
        return
    assert sum(shares) == batch
    for share, speed in zip(shares, speeds, strict=True):
        assert share % multiple == 0
        assert abs(share - batch * speed / sum(speeds)) < multiple * (1 + 1e-9)
    assert sum(gradient_weights(shares)) == pytest.approx(1, abs=1e-12)


def test_weighted_means_of_uneven_shares_are_the_mean_of_the_batch() -> None:
    samples = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    shares = proportional_shares(8, [1, 2, 5])
    starts = [sum(shares[:i]) for i in range(len(shares))]
    means = [sum(samples[a : a + n]) / n for a, n in zip(starts, shares, strict=True)]
    weighted = sum(w * m for w, m in zip(gradient_weights(shares), means, strict=True))
    assert weighted == pytest.approx(sum(samples) / 8)
    assert sum(means) / 3 != pytest.approx(sum(samples) / 8)


def test_a_slow_rank_costs_a_fifth_less_at_least_with_fitted_shares() -> None:
    for workers in (2, 8, 64):
        speeds = [1.0] * (workers - 1) + [0.5]
        fitted = slowest_seconds(proportional_shares(workers * 32, speeds), speeds)
        assert fitted <= 0.8 * slowest_seconds([32] * workers, speeds)


def test_equal_speeds_give_equal_shares_on_many_ranks() -> None:
    assert set(proportional_shares(400_000, [1.7] * 100_000)) == {4}
    shares = proportional_shares(100_003, [1.0] * 50_000)
    assert sum(shares) == 100_003
    assert shares[:3] == [3, 3, 3]
    assert set(shares[3:]) == {2}


@pytest.mark.parametrize(
    "call",
    [
        lambda: Bounds(0, 1),
        lambda: Bounds(2, 1),
        lambda: data_degrees(0, [1], Bounds(1, 1)),
        lambda: data_degrees(8, [], Bounds(1, 1)),
        lambda: data_degrees(8, [0], Bounds(1, 1)),
        lambda: data_degrees(10**13, [1], Bounds(1, 1)),
        lambda: prime_factors(0),
        lambda: proportional_shares(8, []),
        lambda: proportional_shares(8, [1, math.inf]),
        lambda: proportional_shares(9, [1, 1], 2),
        lambda: proportional_shares(2, [1, 1, 1]),
        lambda: gradient_weights([0, 1]),
        lambda: slowest_seconds([1], [1, 2]),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    result = doctest.testmod(elastic)
    assert result.attempted >= 2
    assert result.failed == 0
