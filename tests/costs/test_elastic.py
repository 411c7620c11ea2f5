"""World sizes of elastic jobs against brute force, and uneven shares that add up."""

from __future__ import annotations

import doctest
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainspec_validate.costs import elastic, elastic_search
from trainspec_validate.costs.elastic import (
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
from trainspec_validate.costs.elastic_search import best_batch

MICROS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    least = draw(st.sampled_from((1, 1, 2, 5, 20)))
    most = least + draw(st.integers(0, 200))
    return Bounds(least, most, draw(st.sampled_from((1, 1, 2, 3, 8))), draw(st.sampled_from((1, 1, 4, 8))))


def brute_force(batch: int, micros: Sequence[int], limits: Bounds) -> set[tuple[int, int, int, int]]:
    """Every world, data degree, micro-batch and accumulation, by trying all of them."""
    return {
        (world, world // limits.model_parallel, micro, steps)
        for world in range(limits.min_accelerators, limits.max_accelerators + 1)
        if world % limits.model_parallel == 0 and world % limits.ranks_per_node == 0
        for micro in micros
        for steps in [batch // (micro * (world // limits.model_parallel))]
        if steps >= 1 and micro * steps * (world // limits.model_parallel) == batch
    }


@given(st.integers(1, 2000), MICROS, bounds())
def test_scales_are_exactly_those_of_brute_force(batch: int, micros: list[int], limits: Bounds) -> None:
    found = [(s.world_size, s.data, s.micro_sequences, s.accumulation_steps) for s in scales(batch, micros, limits)]
    assert len(found) == len(set(found))
    assert set(found) == brute_force(batch, micros, limits)
    assert data_degrees(batch, micros, limits) == sorted({data for _, data, _, _ in found})


@settings(deadline=None)
@given(st.integers(1, 400), MICROS, bounds(), st.booleans())
def test_the_best_batch_is_that_of_brute_force(most: int, micros: list[int], limits: Bounds, larger: bool) -> None:
    counts = {batch: len({s[0] for s in brute_force(batch, micros, limits)}) for batch in range(1, most + 1)}
    wanted = max(counts, key=lambda batch: (counts[batch], batch if larger else -batch))
    choice = best_batch(most, micros, limits, prefer_larger=larger)
    if counts[wanted] == 0:
        assert choice is None
    else:
        assert choice is not None
        assert (choice.global_sequences, len(choice.data_degrees)) == (wanted, counts[wanted])


@pytest.mark.parametrize("larger", [True, False])
def test_the_search_agrees_with_the_table(larger: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is what large cases use; here it runs where the table can check it."""
    source = random.Random(12)
    for _ in range(1200):
        most, least = source.randint(1, 3000), source.choice((1, 1, 1, 2, 5, 20))
        micros = [source.randint(1, 14) for _ in range(source.randint(1, 4))]
        model, node = source.choice((1, 1, 2, 3, 8)), source.choice((1, 1, 4, 8))
        limits = Bounds(least, least + source.choice((3, 40, 400)), model, node)
        monkeypatch.setattr(elastic_search, "MAX_TABLE", 10**9)
        table = best_batch(most, micros, limits, prefer_larger=larger)
        monkeypatch.setattr(elastic_search, "MAX_TABLE", 0)
        assert best_batch(most, micros, limits, prefer_larger=larger) == table, (most, micros, limits)


def test_a_hundred_thousand_ranks() -> None:
    choice = best_batch(1_000_000, [1], Bounds(1, 100_000))
    assert choice is not None
    # 720,720 has 240 divisors, the most below a million; 7 of them are above 100,000 (its 1/1 to 1/7).
    assert choice.global_sequences == 720_720
    assert len(choice.data_degrees) == 240 - 7
    assert len(data_degrees(720_720, [1], Bounds(1, 100_000))) == 233


def test_deepspeed_example() -> None:
    # Documentation of DeepSpeed's elasticity: at most 10,000, micro-batches 8, 12, 16 and 17, 32 to 1,500 GPUs.
    choice = best_batch(10_000, [8, 12, 16, 17], Bounds(32, 1500))
    assert choice is not None
    assert choice.global_sequences == 9792
    assert len(choice.data_degrees) == 23


def test_llama_3_keeps_its_batch_on_half_of_the_cluster() -> None:
    # arXiv:2407.21783, table 4: 2,048 sequences on data 128 (16,384 ranks) or 64 (8,192), tensor 8 and pipeline 16.
    limits = Bounds(8192, 16384, model_parallel=128, ranks_per_node=8)
    assert data_degrees(2048, [1], limits) == [64, 128]
    assert Scale(16384, 128, 1, 16) in scales(2048, [1], limits)


def test_replicas_that_do_not_fill_nodes_make_no_world() -> None:
    # Two ranks of model parallelism on nodes of eight: data degrees come in fours.
    assert data_degrees(48, [1], Bounds(1, 64, 2, 8)) == [4, 8, 12, 16, 24]
    assert data_degrees(48, [1], Bounds(65, 66, 2, 8)) == []
    assert best_batch(100, [1], Bounds(3, 5, 2, 8)) is None
    assert best_batch(7, [8], Bounds(1, 8)) is None


def test_a_job_that_shrinks_takes_the_largest_world_left() -> None:
    assert nearest_scale(2048, [1, 2], Bounds(64, 1024, ranks_per_node=8), 1016) == Scale(512, 512, 2, 2)
    assert nearest_scale(2048, [1], Bounds(64, 1024), 63) is None


def test_a_search_that_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_search, "MAX_TABLE", 0)
    monkeypatch.setattr(elastic_search, "MAX_VISITS", 10)
    with pytest.raises(ValueError, match="too many batches"):
        best_batch(10_000, [1], Bounds(500, 510))
    with pytest.raises(ValueError, match="data degrees"):
        best_batch(10**12, [1], Bounds(1, 10**12))


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
        lambda: best_batch(0, [1], Bounds(1, 1)),
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


@pytest.mark.parametrize("module", [elastic, elastic_search])
def test_examples(module) -> None:
    result = doctest.testmod(module)
    assert result.attempted >= 2
    assert result.failed == 0
