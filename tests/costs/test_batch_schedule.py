"""Steps of batch ramps against stepping through them and against published runs."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.performance.costs import batch_schedule
from trainspec_validate.performance.costs.batch_schedule import Stage, batch_at, num_steps

OLMO = [Stage(0, 2**22), Stage(168e9, 2**23), Stage(503e9, 2**24)]
LLAMA = [Stage(0, 4194304), Stage(252e6, 8388608), Stage(2.87e12, 16777216)]


@st.composite
def ramps(draw: st.DrawFn) -> list[Stage]:
    count = draw(st.integers(1, 4))
    starts = [0, *sorted(draw(st.sets(st.integers(1, 9999), min_size=count - 1, max_size=count - 1)))]
    return [
        Stage(start, draw(st.integers(1, 50)), linear=i < count - 1 and draw(st.booleans()))
        for i, start in enumerate(starts)
    ]


@examples(60)
@given(ramps(), st.integers(1, 20000))
def test_steps_are_the_integral_of_one_over_the_batch(stages: list[Stage], total: int) -> None:
    points = 1000
    width = total / points
    summed = sum(width / batch_at(stages, (i + 0.5) * width) for i in range(points))
    assert num_steps(stages, total) == pytest.approx(summed, rel=0.02, abs=2 * width)


def test_a_linear_ramp_agrees_with_a_run_step_by_step() -> None:
    stages, seen, steps = [Stage(0, 32e3, linear=True), Stage(12e9, 3.2e6)], 0.0, 0
    while seen < 30e9:
        seen += batch_at(stages, seen)
        steps += 1
    assert num_steps(stages, 30e9) == pytest.approx(steps, rel=1e-3)


def test_olmo_warm_up() -> None:
    # arXiv:2505.23971, table 1: 75 % fewer steps with the largest batch throughout, 43 % with the warm-up.
    assert 1 - num_steps([Stage(0, 2**24)], 6e11) * 2**22 / 6e11 == pytest.approx(0.75)


def test_llama_ramp() -> None:
    # arXiv:2407.21783, section 3.4.1: 15.6 trillion tokens; nearly all of them in the last two batches.
    assert num_steps(LLAMA, 15.6e12) == pytest.approx(
        252e6 / 4194304 + (2.87e12 - 252e6) / 8388608 + (15.6e12 - 2.87e12) / 16777216
    )
    assert num_steps(LLAMA, 15.6e12) == pytest.approx(1.10e6, rel=0.01)
    assert [batch_at(LLAMA, at) for at in (0, 251e6, 252e6, 2e12, 2.87e12, 15e12)] == [
        *(4194304, 4194304, 8388608, 8388608, 16777216, 16777216),
    ]


def test_a_run_that_ends_early_never_sees_the_later_stages() -> None:
    assert num_steps(OLMO, 100e9) == 100e9 / 2**22
    assert num_steps([Stage(0, 10, linear=True), Stage(100, 30)], 50) == pytest.approx(50 * math.log(2) / 10)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Stage(-1, 1),
        lambda: Stage(0, math.inf),
        lambda: num_steps([], 1),
        lambda: num_steps([Stage(1, 1)], 1),
        lambda: num_steps([Stage(0, 1)], 0),
        lambda: num_steps([Stage(0, 1), Stage(0, 2)], 1),
        lambda: num_steps([Stage(0, 1, linear=True)], 1),
        lambda: batch_at([Stage(0, 1)], -1),
        lambda: batch_at([], 1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    result = doctest.testmod(batch_schedule)
    assert result.attempted >= 3
    assert result.failed == 0
