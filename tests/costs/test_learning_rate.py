"""Learning-rate factors against published schedules and their own inverses."""

from __future__ import annotations

import doctest
import math
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.documents.types.batch import LearningRateRule
from trainspec_validate.performance.costs import learning_rate
from trainspec_validate.performance.costs.learning_rate import (
    RULES,
    adascale_gain,
    factor,
    factor_bounds,
    noise_of_factor,
    saturating_rate,
    warmup_samples,
)


def test_rules_are_those_of_a_plan() -> None:
    assert set(RULES) == set(get_args(get_type_hints(LearningRateRule)["rule"]))


@pytest.mark.parametrize(("rule", "wanted"), [("none", 1), ("linear", 16), ("square-root", 4)])
def test_plain_rules(rule: str, wanted: float) -> None:
    assert factor(rule, 16) == wanted
    assert factor_bounds(rule, 16) == (wanted, wanted)


def test_olmo_warm_up() -> None:
    # arXiv:2505.23971: 1,024 to 2,048 to 4,096 sequences, the root of two each time.
    assert factor("square-root", 2) == pytest.approx(math.sqrt(2))
    assert factor("square-root", 2) ** 2 == pytest.approx(factor("square-root", 4))


@given(st.floats(1e-3, 1e3), st.floats(0, 1e6))
def test_the_gain_lies_between_one_and_the_growth(growth: float, noise: float) -> None:
    gain = adascale_gain(growth, noise)
    low, high = factor_bounds("adascale", growth)
    assert low * (1 - 1e-12) <= gain <= high * (1 + 1e-12)
    root_low, root_high = factor_bounds("adam-square-root", growth)
    assert root_low * (1 - 1e-12) <= factor("adam-square-root", growth, noise) <= root_high * (1 + 1e-12)


def test_the_gain_at_its_ends() -> None:
    assert adascale_gain(8, 0) == 1
    assert adascale_gain(8, math.inf) == 8
    assert adascale_gain(8, 1e12) == pytest.approx(8)
    assert adascale_gain(1, 5) == 1


@given(st.floats(1.01, 1e3), st.floats(0.01, 1e3))
def test_gains_of_two_resizes_multiply(growth: float, noise: float) -> None:
    middle = math.sqrt(growth)
    twice = adascale_gain(middle, noise) * adascale_gain(middle, noise / middle)
    assert twice == pytest.approx(adascale_gain(growth, noise))


@given(st.floats(1.5, 1e3), st.floats(0, 1e3))
def test_the_noise_follows_from_the_gain(growth: float, noise: float) -> None:
    gain = adascale_gain(growth, noise)
    assert noise_of_factor(gain, growth) == pytest.approx(noise, rel=1e-6, abs=1e-6)


@given(st.floats(0.1, 1e5), st.floats(0.1, 1e3), st.floats(0.1, 1e5))
def test_the_gain_is_the_ratio_of_best_rates(base: float, growth: float, noise: float) -> None:
    ratio = saturating_rate(1, base * growth, noise) / saturating_rate(1, base, noise)
    assert adascale_gain(growth, noise / base) == pytest.approx(ratio)


def test_rates_of_adam_flatten_later() -> None:
    assert saturating_rate(1, 100, 800, 0.5) == pytest.approx(1 / 3)
    assert saturating_rate(1, 100, 700, 0.75) == pytest.approx(8**-0.75)
    assert saturating_rate(1, 1e9, 1, 0.5) == pytest.approx(1)


def test_the_inverse_of_a_batch_that_shrinks() -> None:
    assert noise_of_factor(adascale_gain(0.25, 6), 0.25) == pytest.approx(6)
    with pytest.raises(ValueError, match="between 1"):
        noise_of_factor(1.5, 0.25)


def test_a_longer_warm_up_keeps_its_steps() -> None:
    assert warmup_samples(1000 * 256, 8) / (256 * 8) == 1000


@pytest.mark.parametrize(
    "call",
    [
        lambda: factor("declared", 2),
        lambda: factor("cube-root", 2),
        lambda: factor("adascale", 2),
        lambda: factor("linear", 0),
        lambda: adascale_gain(2, -1),
        lambda: adascale_gain(math.nan, 1),
        lambda: noise_of_factor(5, 4),
        lambda: noise_of_factor(1, 1),
        lambda: saturating_rate(1, 1, 1, 1.5),
        lambda: warmup_samples(0, 1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    result = doctest.testmod(learning_rate)
    assert result.attempted >= 6
    assert result.failed == 0
