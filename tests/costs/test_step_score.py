"""The step time model keeps its accuracy on published runs that it was not fitted to."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, median

import pytest

from benchmarks import score_step_time as score
from benchmarks import step_fit
from trainspec_validate.performance.costs.step_compute import CALIBRATION
from trainspec_validate.performance.costs.step_errors import BANDS, UNNAMED
from trainspec_validate.performance.forecast.outlook import outlook
from trainspec_validate.performance.forecast.predict import predict
from trainspec_validate.planner.search import CONTEXT_INDIFFERENCE, INDIFFERENCE

RUNS, EXCLUDED = score.load()
FIRST = score.first_rows(RUNS)
FITS = step_fit.read_fits()


@pytest.fixture(scope="module")
def held_out() -> list[step_fit.Residual]:
    return step_fit.residuals(RUNS, FITS, step_fit.publication)


@pytest.fixture(scope="module")
def first(held_out: list[step_fit.Residual]) -> list[step_fit.Residual]:
    return [one for one in held_out if one.run in set(FIRST)]


def by_dataset(found: list[step_fit.Residual]) -> dict[str, float]:
    names = dict.fromkeys(one.run.dataset for one in found)
    return {name: score.mean_error([one for one in found if one.run.dataset == name]) for name in names}


def test_what_was_scored_first_still_is() -> None:
    sizes = {name: sum(run.dataset == name for run in FIRST) for name in score.FIRST}
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
    assert all(reason for _, reason in EXCLUDED)


def test_rows_have_a_source_and_a_date_or_an_empty_one() -> None:
    for row in step_fit_rows():
        assert row["source"], row["row_id"]
        assert len(row["published"]) in {0, 4, 7, 10}, row["row_id"]


def step_fit_rows() -> list[dict[str, str]]:
    from benchmarks.training_sets import rows

    return list(rows())


def test_the_benchmark_predicts_by_the_path_of_users() -> None:
    for run in RUNS[::20]:
        found = predict(run.plan, run.cluster)
        assert found.outlook.step.seconds == run.predicted(CALIBRATION)
        assert found.outlook.step.seconds == run.predicted()
        again = outlook(found.model, found.machine, found.layout, found.settings)
        assert again.step.seconds == found.outlook.step.seconds


def test_held_out_error(first: list[step_fit.Residual]) -> None:
    assert score.mean_error(first) <= 0.1
    assert fmean(by_dataset(first).values()) <= 0.10


@pytest.mark.slow
def test_better_than_a_constant_efficiency(first: list[step_fit.Residual]) -> None:
    rival = [one for one in score.constant_left_out(RUNS) if one.run in set(FIRST)]
    assert score.mean_error(first) < 0.7 * score.mean_error(rival)
    assert fmean(by_dataset(first).values()) < 0.75 * fmean(by_dataset(rival).values())
    assert score.mean_error(first) < score.PUBLISHED_BASELINE[0]


def test_nothing_of_a_publication_that_is_left_out_is_seen() -> None:
    for name in dict.fromkeys(map(step_fit.publication, RUNS)):
        seen = step_fit.rows_fitted(RUNS, name)
        assert len(seen) < len(RUNS)
        assert name not in set(map(step_fit.publication, seen))
    for day in score.DAYS:
        seen = step_fit.rows_fitted(RUNS, day)
        assert seen
        assert all(step_fit.last_day(run.published) < day for run in seen)


def test_fits_are_of_these_rows() -> None:
    seen = step_fit.rows_fitted(RUNS, step_fit.ALL)
    assert not {run.dataset for run in seen} & set(step_fit.UNSEEN)
    names = {step_fit.ALL, *score.DAYS, *map(step_fit.publication, seen)}
    assert set(FITS) == names
    assert FITS[step_fit.ALL] == CALIBRATION


def test_committed_fit_is_a_minimum() -> None:
    seen = step_fit.rows_fitted(RUNS, step_fit.ALL)
    least = step_fit.loss(seen, CALIBRATION)
    for name in step_fit.CONSTANTS:
        for change in (-0.02, 0.02):
            tried = replace(CALIBRATION, **{name: getattr(CALIBRATION, name) + change})
            assert step_fit.loss(seen, tried) >= least - step_fit.LEAST_GAIN, name


def test_no_dataset_decides_more_than_a_quarter() -> None:
    shares: dict[str, float] = {}
    for (name, _), weight in step_fit.weights(step_fit.rows_fitted(RUNS, step_fit.ALL)).items():
        shares[name] = shares.get(name, 0.0) + weight
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares.values()) <= score.MOST_WEIGHT


def test_committed_bands_are_those_of_the_residuals(held_out: list[step_fit.Residual]) -> None:
    families = score.with_bands(held_out)
    assert families.keys() == BANDS.keys()
    for name, group in families.items():
        found, known = score.band(group), BANDS[name]
        assert found.num_runs == known.num_runs
        assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=0.002)
        assert found.mean_error == pytest.approx(known.mean_error, abs=0.002)


def test_committed_bands_without_a_framework_are_those_of_the_residuals() -> None:
    for name, group in score.with_bands(step_fit.residuals(RUNS, FITS, step_fit.publication, named=False)).items():
        found, known = score.band(group), UNNAMED[name]
        assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=0.002)
        assert found.mean_error == pytest.approx(known.mean_error, abs=0.002)


def test_bands_of_families_with_many_rows_cover_eight_of_ten_of_a_source_left_out(
    held_out: list[step_fit.Residual],
) -> None:
    for name, group in score.by_family(held_out).items():
        if len(group) >= score.FEW_RUNS:
            assert len(score.sources(group)) > 1, name
            inside = score.covered_elsewhere(group, score.widening(group))
            assert score.COVERAGE[0] <= inside <= score.COVERAGE[1], name
            assert score.covered(group, BANDS[name]) >= score.COVERAGE[0], name


def test_a_band_is_no_wider_than_sources_left_out_ask_for(held_out: list[step_fit.Residual]) -> None:
    for name, group in score.by_family(held_out).items():
        factor = score.widening(group)
        assert factor == 1 or score.covered_elsewhere(group, factor - 0.005) < score.EIGHT_OF_TEN, name


def test_a_quantile_is_between_its_neighbors() -> None:
    assert score.quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert score.quantile([1.0, 2.0], 0.25) == 1.25
    assert score.quantile([1.0], 0.9) == 1.0


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
    errors = score.pair_errors(FIRST)
    assert len(errors) >= 20
    assert median(errors) == pytest.approx(INDIFFERENCE, abs=0.005)


def test_context_ranks_take_longer_than_predicted() -> None:
    errors = score.context_errors(RUNS)
    assert len(errors) >= 20
    assert sum(error > 0 for error in errors) >= 0.9 * len(errors)
    assert median(map(abs, errors)) > CONTEXT_INDIFFERENCE
