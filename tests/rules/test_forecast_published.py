"""Rules that predict stay silent about what was published and ran: tuners, measured memory, measured steps."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks import score_memory, training_sets
from benchmarks.collective_choices import choices
from trainspec_validate.performance.costs import collectives
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.step_errors import BANDS
from trainspec_validate.performance.costs.step_time import step_time
from trainspec_validate.performance.costs.transformer import parameters
from trainspec_validate.performance.forecast.facts import ModelFacts
from trainspec_validate.performance.forecast.outlook import Settings
from trainspec_validate.rules import com_forecast, mem_peak, top_forecast
from trainspec_validate.rules._forecast import FASTEST, LEAST_RUNS, LEAST_SOURCES, MARGIN, SLOWEST
from trainspec_validate.rules._lean_memory import generous_memory, lean_memory, needed_bytes

RUNS = training_sets.load()[0]
JUDGED = {
    name
    for name, band in BANDS.items()
    if band.low >= FASTEST * MARGIN
    and band.high * MARGIN <= SLOWEST
    and band.num_sources >= LEAST_SOURCES
    and band.num_runs >= LEAST_RUNS
}
WIDE = [run for run in RUNS if run.family.startswith("dense, 16-bit")]
GIB = 2**30
CAPACITY = {"torchtitan_h100_202412": 94 * GIB, "torchtitan_h200_202506": 141e9}
MEASURED = [point.row for point in score_memory.measured()]


def test_bounds_lie_beyond_the_error_of_predictions_that_rules_use() -> None:
    judged = [BANDS[name] for name in JUDGED]
    assert len(judged) >= 2
    for band in judged:
        assert band.low / FASTEST >= 1.3
        assert band.high * 1.3 <= SLOWEST
        assert band.high - 0.01 <= top_forecast.WORTH


def test_hardly_a_choice_of_a_tuner_is_called_slow() -> None:
    found = []
    every = choices()
    for choice in every:
        size, network = choice.message_bytes, choice.network
        try:
            forced = collectives.estimate(choice.operation, size, network, *choice.tuner)
        except ValueError:
            continue
        best = collectives.best(choice.operation, size, network)
        if com_forecast.Comparison(forced, best, 1.0).beyond_doubt:
            found.append((choice.platform, choice.operation, size, network.num_ranks, choice.tuner, best.algorithm))
    assert len(every) > 1000
    assert len(found) <= 4


def test_no_published_run_waits_for_half_of_its_step() -> None:
    shares = []
    for run in WIDE:
        step = step_time(run.work, run.networks)
        shares.append(sum(step.exposed_seconds.values()) / step.seconds)
    assert max(shares) < com_forecast.MOST_EXPOSED - 0.1
    assert median(shares) < 0.05


def test_published_steps_lie_between_the_bounds() -> None:
    """All but a few: runs without model parallelism that were published to be beaten (arXiv:2104.04473, table 2)."""
    assert len(WIDE) > 230
    outside = {run.row for run in WIDE if not FASTEST <= run.seconds / run.predicted() <= SLOWEST}
    assert len(outside) <= 4
    assert all(name.startswith("megatron2021_t2-00") for name in outside)


def test_hardly_a_published_step_below_16_bits_is_outside_of_the_bounds() -> None:
    narrow = [run for run in RUNS if run.family in JUDGED and run not in WIDE]
    outside = [run.row for run in narrow if not FASTEST <= run.seconds / run.predicted() <= SLOWEST]
    assert len(narrow) >= 120
    assert len(outside) <= 1


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["row"])
def test_measured_memory_fits_and_agrees(row: score_memory.Row) -> None:
    shape, layout = score_memory.shape_of(row), score_memory.layout_of(row)
    state = ModelState(float(row["weight_bytes"]), 0.0, float(row["gradient_bytes"]), float(row["optimizer_bytes"]))
    model = ModelFacts(shape, parameters(shape).total, state, ("bf16",), 4.0, 2.0)
    settings = Settings(recompute="full" if row["recompute"] == "full" else "selective")
    _, lean = lean_memory(model, layout, settings)
    _, generous = generous_memory(model, layout, settings)
    measured = float(row["memory_gib"]) * GIB
    low, high = mem_peak.bounds(lean, generous, "allocator")
    assert low <= measured <= high
    assert needed_bytes(lean, 3 * GIB) <= CAPACITY[row["row"].rsplit("-", 1)[0]]
