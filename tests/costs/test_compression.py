"""What compression saves at most: published ratios stay below the bounds, nominal ones do not."""

from __future__ import annotations

import doctest

import pytest

from trainspec_validate.performance.costs import compression
from trainspec_validate.performance.costs.compression import (
    least_index_bits,
    low_rank_ratio,
    most_speedup,
    quantised_ratio,
    sparse_ratio,
)


def test_worked_examples() -> None:
    result = doctest.testmod(compression)
    assert result.attempted >= 5
    assert result.failed == 0


@pytest.mark.parametrize(("density", "published"), [(0.001, 600), (0.001, 270), (0.01, 66)])
def test_published_sparse_ratios_are_possible(density: float, published: float) -> None:
    # Deep Gradient Compression reports 270 to 600 at 0.1 % (arXiv:1712.01887).
    assert sparse_ratio(density, 32, least_index_bits(density)) > published


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5])
def test_the_nominal_ratio_is_never_reached(density: float) -> None:
    assert sparse_ratio(density, 16, least_index_bits(density)) < 1 / density


def test_everything_sent_needs_no_index() -> None:
    assert least_index_bits(1) == 0
    assert sparse_ratio(1, 32, 0) == 1


def test_one_bit_of_sixteen_is_sixteen() -> None:
    # 1-bit Adam, compression stage against 16-bit gradients.
    assert quantised_ratio(16, 1) == 16


def test_low_rank_is_bounded_by_the_smaller_side() -> None:
    assert low_rank_ratio(1000, 1_000_000, 1) < 1000


def test_speedup_is_amdahl() -> None:
    assert most_speedup(0) == 1
    assert most_speedup(0.3, 0.1) == pytest.approx(0.9 / 0.7)
    assert most_speedup(0.1, 0.3) < 1


@pytest.mark.parametrize("fractions", [(1, 0), (-0.1, 0), (0.3, 1), (0.3, -1)])
def test_fractions_out_of_range(fractions: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="are in"):
        most_speedup(*fractions)


@pytest.mark.parametrize("density", [0, -1, 1.5])
def test_densities_out_of_range(density: float) -> None:
    with pytest.raises(ValueError, match="density"):
        least_index_bits(density)
    with pytest.raises(ValueError, match="density"):
        sparse_ratio(density, 32, 8)


def test_widths_and_sizes_out_of_range() -> None:
    with pytest.raises(ValueError, match="widths"):
        quantised_ratio(32, 0)
    with pytest.raises(ValueError, match="at least 1"):
        low_rank_ratio(0, 8, 1)
