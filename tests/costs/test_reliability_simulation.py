"""The failure model against processes drawn failure by failure, and against the collected tables."""

from __future__ import annotations

import csv
import heapq
import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import score_reliability as score
from trainspec_validate.performance.costs.reliability import (
    daly_interval,
    effective_training_time_ratio,
    job_mtbf_seconds,
    optimal_interval,
    poisson_quantile,
    spare_nodes,
    young_interval,
)

SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES", Path(__file__).resolve().parents[3] / "shared" / "samples"))
CASES = [(mean, save, recovery) for mean in score.MEAN_TIMES for save, recovery in score.COSTS]


def table(name: str) -> Iterator[dict[str, str]]:
    path = SAMPLES.parent / "data" / name
    if not path.is_file():
        pytest.skip(f"{name} is not here; set TRAINSPEC_SAMPLES to the folder of samples beside it")
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@pytest.mark.parametrize(("mean", "save", "recovery"), CASES)
def test_the_renewal_model_is_the_mean_of_histories(mean: float, save: float, recovery: float) -> None:
    interval = daly_interval(save, mean)
    found = score.simulate(interval, save, recovery, score.exponential(mean, 3), num_saves=6000)
    model = effective_training_time_ratio(interval, save, mean, recovery)
    assert model == pytest.approx(found.share, abs=max(0.004, 4.5 * found.error))


def test_the_linear_form_fails_where_the_exact_one_holds() -> None:
    """131,072 accelerators, 5 min to save and 20 to recover: the linear form is below zero."""
    interval = daly_interval(5, 13.5)
    found = score.simulate(interval, 5, 20, score.exponential(13.5, 5), num_saves=4000)
    assert score.linear_share(interval, 5, 13.5, 20) < -0.4
    assert effective_training_time_ratio(interval, 5, 13.5, 20) == pytest.approx(found.share, abs=0.01)


def test_failures_in_bursts_cost_less_than_the_model_says() -> None:
    """The model assumes no memory; bursts hit the same interval again, so it errs on the safe side."""
    interval = daly_interval(5, 108.2)
    bursts = score.simulate(interval, 5, 20, score.clustered(108.2, 6), num_saves=20000)
    model = effective_training_time_ratio(interval, 5, 108.2, 20)
    assert model < bursts.share < model + 0.08


@pytest.mark.parametrize(("save", "mean"), [(0.1, 108.2), (1, 185.5), (5, 432.7)])
def test_young_and_daly_are_near_the_simulated_optimum(save: float, mean: float) -> None:
    """No interval of a wide grid does better in simulation than Daly's, beyond the noise of the simulation."""
    best, most = daly_interval(save, mean), 20000
    at_daly = score.simulate(best, save, 1.5, score.exponential(mean, 9), most)
    for factor in (0.25, 0.5, 0.8, 1.25, 2, 4):
        other = score.simulate(best * factor, save, 1.5, score.exponential(mean, 9), most)
        assert other.share < at_daly.share + 4 * (other.error + at_daly.error)
    for factor in (0.1, 10):
        far = score.simulate(best * factor, save, 1.5, score.exponential(mean, 9), most)
        assert far.share < at_daly.share - 4 * (far.error + at_daly.error)
    assert young_interval(save, mean) == pytest.approx(optimal_interval(save, mean), rel=0.06)
    assert best == pytest.approx(optimal_interval(save, mean), rel=1e-3)


def most_down(num_nodes: int, rate: float, repair_hours: float, seed: int) -> list[int]:
    """Nodes under repair at regular looks; lost nodes are replaced at once, so the rate of failures is constant."""
    source, mtbf_hours = random.Random(seed), job_mtbf_seconds(num_nodes, rate) / 3600
    clock, back, looks = 0.0, list[float](), list[int]()
    next_look = 5 * repair_hours
    while len(looks) < 4000:
        clock += source.expovariate(1 / mtbf_hours)
        while next_look < clock and len(looks) < 4000:
            while back and back[0] <= next_look:
                heapq.heappop(back)
            looks.append(len(back))
            next_look += repair_hours
        # Repairs take half to one and a half of their mean; the number under repair is Poisson all the same.
        heapq.heappush(back, clock + repair_hours * source.uniform(0.5, 1.5))
    return looks


@pytest.mark.parametrize(("nodes", "rate", "hours"), [(2048, 6.5, 24), (512, 6.5, 72), (128, 2.34, 24)])
def test_spares_suffice_as_often_as_they_promise(nodes: int, rate: float, hours: float) -> None:
    looks, spares = most_down(nodes, rate, hours, seed=4), spare_nodes(nodes, rate, hours * 3600)
    enough = sum(down <= spares for down in looks) / len(looks)
    one_less = sum(down < spares for down in looks) / len(looks)
    assert enough >= 0.99 - 0.005
    assert one_less < 0.99 + 0.005
    assert statistics.fmean(looks) == pytest.approx(nodes * rate * hours / 24000, rel=0.1)


def test_spares_of_the_table() -> None:
    rows = list(table("reliability_spares_p99.csv"))
    assert len(rows) == 24
    for row in rows:
        nodes, hours, rate = int(row["nodes"]), float(row["repair_h"]), float(row["rf_per_1000_node_days"])
        assert spare_nodes(nodes, rate, hours * 3600) == int(row["spares_p99"]), row
        assert poisson_quantile(float(row["expected_down"]), 0.99) == int(row["spares_p99"]), row


def test_effective_time_of_the_table() -> None:
    rows = list(table("reliability_ettr_model_check.csv"))
    assert len(rows) == 25
    for row in rows:
        mean, save, recovery, interval = (
            float(row[key]) for key in ("mttf_min", "save_min", "recovery_min", "interval_min")
        )
        model = effective_training_time_ratio(interval, save, mean, recovery)
        assert model == pytest.approx(float(row["exact_renewal"]), abs=0.0015), row
        assert model == pytest.approx(float(row["monte_carlo"]), abs=0.0065), row


def test_published_shares_have_a_sensible_missing_input() -> None:
    with score.PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 6
    for row in rows:
        assert row["source"]
        assert "no failure rate fits" not in score.implied(row, 0.1)


def test_a_missing_input_that_is_solved_gives_the_share_back() -> None:
    row = {
        "effective_share": str(effective_training_time_ratio(daly_interval(1, 185.5), 1, 185.5, 12)),
        "minutes_between_interruptions": "185.5",
        "relation": "equal",
    }
    assert score.implied(row, 1) == "recovery 12.0 min"
