"""The step time model keeps its accuracy on published runs that it was not fitted to."""

from __future__ import annotations

from statistics import fmean, median

import pytest

from benchmarks import score_step_time as score
from trainspec_validate.performance.costs.step_compute import CALIBRATION
from trainspec_validate.planner.search import INDIFFERENCE

RUNS, EXCLUDED = score.load()


@pytest.fixture(scope="module")
def held_out() -> score.Score:
    return score.held_out(RUNS, score.model)


def test_what_is_scored() -> None:
    sizes = {name: len(group) for name, group in score.datasets(RUNS).items()}
    assert sizes == {
        "megatron2021_t1": 10,
        "megatron2021_t2": 12,
        "korthikanti2022_t5": 8,
        "megatron_h100_2024": 9,
        "megascale_t2": 12,
        "llama3_t4": 3,
        "torchtitan_a100_202404": 5,
        "torchtitan_h100_202412": 4,
        "fms_fsdp": 4,
        "llmfoundry": 163,
    }
    assert len(EXCLUDED) == 17
    assert all(reason for _, reason in EXCLUDED)


def test_held_out_error(held_out: score.Score) -> None:
    assert held_out.pooled <= 0.1
    assert fmean(held_out.by_dataset.values()) <= 0.10


def test_better_than_a_constant_efficiency(held_out: score.Score) -> None:
    for causal in (False, True):
        rival = score.held_out(RUNS, lambda rows, flag=causal: score.constant(rows, causal=flag))
        assert held_out.pooled < 0.7 * rival.pooled
        assert fmean(held_out.by_dataset.values()) < 0.75 * fmean(rival.by_dataset.values())
    assert held_out.pooled < score.PUBLISHED_BASELINE[0]


def test_nothing_of_a_held_out_dataset_is_seen() -> None:
    seen: list[frozenset[str]] = []

    def train(rows: list[score.Run]) -> object:
        seen.append(frozenset(run.dataset for run in rows))
        return lambda run: run.seconds

    found = score.held_out(RUNS, train)  # type: ignore[arg-type]
    names = set(found.errors)
    assert sorted(map(sorted, seen)) == sorted(sorted(names - {name}) for name in names)
    assert found.pooled == 0


def test_committed_calibration_is_the_fit(held_out: score.Score) -> None:
    fitted = score.fit(RUNS)
    assert fitted.sustained_matmul == pytest.approx(CALIBRATION.sustained_matmul, abs=0.02)
    assert fitted.hidden_communication == pytest.approx(CALIBRATION.hidden_communication, abs=0.05)
    low, high = held_out.band
    assert low == pytest.approx(CALIBRATION.low_factor, abs=0.02)
    assert high == pytest.approx(CALIBRATION.high_factor, abs=0.02)


@pytest.mark.parametrize(("error", "band"), [(1.0, (0.5, 1.0)), (-0.5, (1.0, 2.0))])
def test_one_dataset_of_ten_is_exactly_a_tenth(error: float, band: tuple[float, float]) -> None:
    errors = {f"dataset {index}": [0.0] * 7 for index in range(9)}
    assert score.Score({**errors, "far": [error] * 7}).band == band


def test_operations_of_a_token() -> None:
    for errors in score.identity_errors().values():
        assert len(errors) >= 38
        assert median(errors) <= 0.001


def test_step_of_gpt3_as_published() -> None:
    # arXiv:2104.04473, table 2: 174.6e9 parameters on 384 accelerators at 153e12 operations per second.
    run = next(run for run in RUNS if run.row == "megatron2021_t2-007")
    assert run.seconds == pytest.approx(76.8, rel=0.01)
    assert run.work.layout.num_ranks == 384
    assert run.work.layout.num_micro_batches == 384


def test_layouts_that_the_planner_does_not_tell_apart_are_those_that_predictions_cannot() -> None:
    errors = score.pair_errors(RUNS)
    assert len(errors) >= 20
    assert median(errors) == pytest.approx(INDIFFERENCE, abs=0.005)
