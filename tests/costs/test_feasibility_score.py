"""Published runs that ran are found to fit, and most of those that ran out of memory are found not to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import score_feasibility as score
from trainspec_validate.performance.costs.memory_overheads import LEAST_FRAGMENTATION, XLA, Overheads
from trainspec_validate.performance.costs.rank_memory import RankMemory
from trainspec_validate.performance.forecast.outlook import overheads_of


@pytest.fixture(scope="module")
def found() -> list[score.Trial]:
    return list(score.trials())


@pytest.mark.slow
def test_runs_that_ran_fit(found: list[score.Trial]) -> None:
    ran = [one for one in found if one.ran]
    assert len(ran) >= 700
    assert score.share(score.judged(ran)) <= score.MOST_REJECTED
    assert score.share([one.over for one in ran]) <= 0.09


def test_most_runs_out_of_memory_do_not_fit(found: list[score.Trial]) -> None:
    failed = [one for one in found if not one.ran]
    assert len(failed) >= 300
    assert score.share([one.over for one in failed]) >= 0.7
    assert score.share([one.not_planned for one in failed]) >= score.LEAST_REJECTED


def test_a_reserve_never_makes_a_run_fit(found: list[score.Trial]) -> None:
    assert all(one.not_planned for one in found if one.over)


def test_the_least_memory_has_all_tensors_and_little_fragmentation() -> None:
    memory = RankMemory(10.0, 20.0, 30.0, 35.0, 5.0, 2.0, 1.0, 12.0)
    assert memory.total == 115
    assert memory.least_total == pytest.approx(103 + 100 * LEAST_FRAGMENTATION)
    planned = replace(memory, fragmentation=0.3)
    assert planned.least_total == planned.total


def test_a_tpu_has_the_overheads_of_a_compiled_step() -> None:
    assert overheads_of("google-tpu-v5e") == XLA
    assert overheads_of("nvidia-h100-sxm-80gb") == Overheads()
    assert XLA.communication_bytes == 0
