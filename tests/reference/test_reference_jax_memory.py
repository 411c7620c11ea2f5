"""Memory of the JAX backend: arrays that live are counted, and programs as XLA plans them, run or not."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="JAX is not installed")

import jax_memory_tasks as tasks
from jax_crew import CREW


def test_arrays_count_once_and_as_long_as_they_live() -> None:
    before, one, again, after = CREW.run(tasks.counted, 1)[0]
    assert one - before == again - before == 4000
    assert after == before


@pytest.mark.slow
def test_steps_take_what_is_planned_and_what_is_kept() -> None:
    planned, told = CREW.run(tasks.planned, 1, 16)[0]
    assert told == [0.0], "a program that is not run gives zeros"
    peaks, before = CREW.run(tasks.of_steps, 1, 16, 10_000)[0]
    assert peaks[3] - peaks[2] == pytest.approx(40_000, rel=0.02)
    assert peaks[0] - before == pytest.approx(planned, rel=0.1)


@pytest.mark.long
def test_each_sample_is_planned_alike() -> None:
    small, middle, large = (CREW.run(tasks.planned, 1, samples)[0][0] for samples in (8, 16, 32))
    assert large - middle == pytest.approx(2 * (middle - small), rel=0.1)
    one_array = 8 * 32 * 16 * 4
    assert middle - small > 5 * one_array, "a layer keeps at least what its backward pass reads"
