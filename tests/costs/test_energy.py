"""Bounds on energy against power logs of MLPerf Training v4.0 and v5.1 and a published model card."""

from __future__ import annotations

import csv
import doctest
import math
import random
import statistics

import pytest

from benchmarks import score_energy as score
from trainspec_validate.performance.costs import energy
from trainspec_validate.performance.costs.energy import (
    BUSY_SHARE,
    JOULES_PER_KILOWATT_HOUR,
    WAITING_SHARE,
    Boundaries,
    boundaries,
    carbon_kilograms,
    facility_joules,
    least_joules,
    least_joules_per_token,
    mean_node_watts,
    most_joules,
    node_watts,
    predicted_joules,
)

# Nodes, accelerators, limit of one accelerator, full power of a node, minutes, kWh: from the power logs.
MEASURED = {
    "gpt3, 64 x 8 H100": (64, 512, 700, 10200, 56.8778, 415.2798),
    "llama2-70b-lora, 64 x 8 H100": (64, 512, 700, 10200, 1.9839, 10.5285),
    "llama2-70b-lora, 8 x 8 H100": (8, 64, 700, 10200, 5.3152, 4.0926),
    "bert, 8 H100": (1, 8, 700, 10200, 4.6175, 0.5241),
    "llama2-70b-lora, 8 H100": (1, 8, 700, 10200, 28.242, 3.3661),
}


def test_examples() -> None:
    result = doctest.testmod(energy)
    assert result.attempted >= 10
    assert result.failed == 0


@pytest.mark.parametrize("name", MEASURED)
def test_measured_runs_lie_between_the_bounds(name: str) -> None:
    nodes, accelerators, limit, node_watts, minutes, kilowatt_hours = MEASURED[name]
    joules, seconds = kilowatt_hours * 3.6e6, minutes * 60
    assert least_joules(limit, accelerators, seconds) < joules < most_joules(nodes * node_watts, seconds)
    for slip in (1000, 3600, 1 / 1000, 1 / 3600):
        slipped = joules * slip
        assert not least_joules(limit, accelerators, seconds) <= slipped <= most_joules(nodes * node_watts, seconds)


def test_llama_3_1_at_full_power() -> None:
    # Model card of Llama 3.1: 39.3 million GPU hours at 700 W, 27.5 GWh.
    seconds = 39.3e6 * 3600
    assert most_joules(700, seconds) / 1.1 / 3.6e12 == pytest.approx(27.5, rel=0.01)


def test_network_and_facility_add_up() -> None:
    assert most_joules(100, 10, with_network=True, overhead=1.2) == pytest.approx(100 * 10 * 1.1 * 1.25 * 1.2)


def test_no_token_is_cheaper_than_its_operations() -> None:
    # GPT-3 on 512 H100: 415.3 kWh at the nodes; 1.24 J per token.
    assert least_joules_per_token(175e9, 1979e12, 700) < 1.24
    assert least_joules_per_token(175e9, 1979e12, 700) > 1.24 / 8


@pytest.mark.parametrize(
    "call",
    [
        lambda: least_joules(0, 1, 1),
        lambda: most_joules(1, 0),
        lambda: most_joules(1, 1, overhead=0.9),
        lambda: least_joules_per_token(1, 0, 1),
        lambda: node_watts(0, 700),
        lambda: node_watts(8, math.nan),
        lambda: node_watts(8, 700, -0.1),
        lambda: mean_node_watts(10200, 1.1),
        lambda: predicted_joules(1, 10200, 0),
        lambda: boundaries(0, 1),
        lambda: boundaries(1, -1),
        lambda: boundaries(1, 1, supply_loss=-0.1),
        lambda: boundaries(1, 1, network_share=-0.1),
        lambda: facility_joules(1, 0.99),
        lambda: facility_joules(1, math.inf),
        lambda: Boundaries(1, 1, 1, 1).per_token(0),
        lambda: carbon_kilograms(1, 1.2, 475),
        lambda: carbon_kilograms(1, 1.2, -0.1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_full_power_of_published_nodes() -> None:
    # NVIDIA user guides and data sheets: DGX H100 10.2 kW, DGX B200 about 14.3 kW, DGX A100 6.5 kW.
    assert node_watts(8, 700) == pytest.approx(10200, rel=0.02)
    assert node_watts(8, 1000) == pytest.approx(14300, rel=0.02)
    assert node_watts(8, 400, host_share=1.03) == pytest.approx(6500, rel=0.01)


def test_a_node_that_waits_half_of_the_time_lies_between() -> None:
    waiting, half, working = (mean_node_watts(10000, busy) for busy in (0, 0.5, 1))
    assert (waiting, working) == pytest.approx((10000 * WAITING_SHARE, 10000 * BUSY_SHARE))
    assert half == pytest.approx((waiting + working) / 2)
    assert predicted_joules(3, 10000, 7, 0.5) == pytest.approx(21 * half)


def test_gpt3_on_512_accelerators() -> None:
    predicted = predicted_joules(64, node_watts(8, 700), 56.8778 * 60) / JOULES_PER_KILOWATT_HOUR
    assert predicted == pytest.approx(415.3, rel=0.02)


def test_constants_are_the_fit_to_the_published_runs() -> None:
    runs = score.read_runs()
    assert len(runs) == 9
    assert sum(run.num_runs for run in runs) == 83
    working, waiting = score.fit(runs, runs)
    assert working == pytest.approx(BUSY_SHARE, abs=0.005)
    assert waiting == pytest.approx(WAITING_SHARE, abs=0.005)


def test_predictions_of_systems_left_out() -> None:
    """As measured; a change for the worse fails, and so does a baseline that is no longer beaten."""
    runs = score.read_runs()
    errors = score.left_out(runs, lambda run: run.system)
    assert score.mean_error(errors) < 0.06
    assert max(map(abs, errors.values())) < 0.15
    assert score.mean_error(errors) < score.mean_error(score.constant_left_out(runs, lambda run: run.system)) / 1.5
    assert score.mean_error(errors) < score.mean_error(score.limits_times_time(runs)) / 2.5
    by_maker = score.left_out(runs, lambda run: run.maker)
    assert score.mean_error(by_maker) < score.mean_error(score.limits_times_time(runs))


def test_what_is_left_out_is_not_seen() -> None:
    """Energy of a run that is left out may be anything: its prediction stays."""
    runs = score.read_runs()
    for position, run in enumerate(runs):
        wrong = [*runs]
        wrong[position] = score.Run(**{f: getattr(run, f) for f in run.__slots__} | {"joules": run.joules * 7})
        before = score.left_out(runs, lambda r: r.system)[run]
        after = score.left_out(wrong, lambda r: r.system)[wrong[position]]
        assert (1 + after) * 7 == pytest.approx(1 + before)


def test_power_supplies_lose_what_was_measured() -> None:
    with score.PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == "gpt3"]
    means = [
        statistics.fmean(float(row["node_kilowatt_hours"]) for row in rows if row["meter"] == meter)
        for meter in ("supply output", "supply input")
    ]
    node = boundaries(0.8 * means[0], 0.2 * means[0], supply_loss=0.016).node
    assert node == pytest.approx(means[1], rel=0.001)


def test_the_chain_of_gpt3() -> None:
    # MLPerf Training v4.0: 415.3 kWh at the nodes, 56.5 kWh of switches by their ratings; 1.24 J per token.
    chain = boundaries(300.0, 115.3)
    assert chain.node == pytest.approx(415.3)
    assert chain.node_and_network - chain.node == pytest.approx(56.5, abs=0.1)
    tokens = 415.3 * JOULES_PER_KILOWATT_HOUR / 1.24
    assert Boundaries(*[x * JOULES_PER_KILOWATT_HOUR for x in (300, 415.3, 471.8, 471.8)]).per_token(
        tokens
    ).node == pytest.approx(1.24)


def test_each_boundary_holds_the_one_before() -> None:
    source = random.Random(2)
    for _ in range(100):
        chain = boundaries(
            source.uniform(1, 100),
            source.uniform(0, 100),
            supply_loss=source.uniform(0, 0.1),
            network_share=source.uniform(0, 0.3),
            power_usage_effectiveness=source.uniform(1, 2),
        )
        assert chain.device <= chain.node <= chain.node_and_network <= chain.facility


def test_carbon_of_llama_3_1() -> None:
    # Model card: 39.3 million GPU hours at 700 W, 11,390 t location-based.
    joules = 39.3e6 * 3600 * 700
    implied = 11390e3 / (joules / JOULES_PER_KILOWATT_HOUR)
    assert implied == pytest.approx(0.414, abs=0.001)
    assert carbon_kilograms(joules, 1.0, implied) == pytest.approx(11390e3)
    assert carbon_kilograms(joules, 1.1, implied) == pytest.approx(1.1 * 11390e3)


@pytest.mark.parametrize("grams", [11.0, 475.0, 1000.0])
def test_grams_are_told_from_kilograms(grams: float) -> None:
    with pytest.raises(ValueError, match="thousand times"):
        carbon_kilograms(1e9, 1.2, grams)
