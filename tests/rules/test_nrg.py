"""Energy accounts: cadence of real logs, limits at their edge, published runs, and nothing to judge."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict


def energy(**keys: Any) -> dict[str, Any]:
    return {"energy": keys}


# Median interval and longest gap of power logs in mlcommons/training_results_v4.0.
@pytest.mark.parametrize(
    ("interval", "gap", "places"),
    [
        (2.005, 19.954, {"sample_interval_seconds", "max_gap_seconds"}),  # SMC, llama2-70b-lora
        (2.005, 2.536, {"sample_interval_seconds"}),  # SMC, gpt3
        (1.0, 7.0, {"max_gap_seconds"}),  # Dell
        (1.0, 5.0, set()),
    ],
)
def test_cadence_of_sampled_accounts(findings, interval, gap, places) -> None:
    plan = energy(method="sampled", sample_interval_seconds=interval, max_gap_seconds=gap)
    found = findings(plan=plan, select=("TS-NRG-003",))
    assert found == {("TS-NRG-003", f"energy.{place}") for place in places}


def test_codecarbon_reads_counters_every_15_seconds(findings) -> None:
    plan = energy(method="counter", sample_interval_seconds=15, max_gap_seconds=120)
    assert findings(plan=plan, select=("TS-NRG-003", "TS-NRG-004", "TS-NRG-017")) == set()


def test_each_method_has_a_cadence_of_its_own(findings, verdict) -> None:
    slow = energy(method="counter", sample_interval_seconds=61, max_gap_seconds=121)
    assert findings(plan=slow, select=("TS-NRG-003", "TS-NRG-017")) == {
        ("TS-NRG-017", f"energy.{key}") for key in ("sample_interval_seconds", "max_gap_seconds")
    }
    assert verdict("TS-NRG-003", plan=slow) is Verdict.NOT_APPLICABLE
    assert verdict("TS-NRG-017", plan=energy(method="sampled")) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("identity", "moves"), [("pci-address", False), ("index", True)])
def test_a_meter_is_tied_to_what_no_mask_renumbers(findings, identity, moves) -> None:
    found = findings(plan=energy(device_identity=identity), select=("TS-NRG-007",))
    assert found == ({("TS-NRG-007", "energy.device_identity")} if moves else set())


@pytest.mark.parametrize("requirement", [f"TS-NRG-{n:03}" for n in (2, 3, 5, 6, 7, 8, 17)])
def test_an_estimate_is_not_measured(verdict, requirement) -> None:
    assert verdict(requirement, plan=energy(method="estimated")) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("requirement", [f"TS-NRG-{n:03}" for n in (*range(2, 10), *range(11, 15))])
def test_a_plan_without_an_account_is_not_judged(verdict, requirement) -> None:
    assert verdict(requirement, plan={"energy": None}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("key", ["boundary", "method"])
def test_an_account_lacks_its_frame(findings, key) -> None:
    assert findings(plan=energy(**{key: None}), select=("TS-NRG-001",)) == {("TS-NRG-001", "energy")}


def test_a_wrong_boundary_is_the_same_requirement(findings) -> None:
    assert findings(plan=energy(boundary="rack"), select=("TS-NRG-001",)) == {("TS-NRG-001", "energy.boundary")}


@pytest.mark.parametrize("value", [350, 731.59, -0.1])
def test_carbon_intensity_in_other_units(findings, value) -> None:
    cluster = {"power": {"carbon_intensity_kilograms_per_kilowatt_hour": value}}
    place = "power.carbon_intensity_kilograms_per_kilowatt_hour"
    assert findings(cluster=cluster, select=("TS-NRG-010",)) == {("TS-NRG-010", place)}


@pytest.mark.parametrize(("coverage", "wrong"), [(0.95, False), (0.94, True)])
def test_coverage(findings, coverage, wrong) -> None:
    found = findings(plan=energy(coverage=coverage), select=("TS-NRG-005",))
    assert found == ({("TS-NRG-005", "energy.coverage")} if wrong else set())


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"counter_resets": None}, "energy"),
        ({"counter_resets": "undeclared"}, "energy.counter_resets"),
        ({"counter_resets": "none"}, None),
    ],
)
def test_counter_resets(findings, keys, place) -> None:
    found = findings(plan=energy(**keys), select=("TS-NRG-008",))
    assert found == ({("TS-NRG-008", place)} if place else set())


@pytest.mark.parametrize(
    "power",
    [
        None,
        {"carbon_source": None},
        {"carbon_intensity_kilograms_per_kilowatt_hour": None},
    ],
)
def test_carbon_needs_all_its_inputs(findings, power) -> None:
    found = findings(plan=energy(report_carbon=True), cluster={"power": power}, select=("TS-NRG-009",))
    assert found == {("TS-NRG-009", "energy.report_carbon")}


# The base job: 83.886080e9 tokens in 600e3 seconds on 16 nodes of 10.2 kW with 128 accelerators of 700 W.
TOKENS = 83886080000


@pytest.mark.parametrize(("factor", "wrong"), [(1.049, False), (1.051, True), (0.96, False), (0.94, True)])
def test_energy_of_tokens(findings, factor, wrong) -> None:
    plan = energy(expected_joules_per_token=0.8, expected_energy_joules=0.8 * TOKENS / factor)
    found = findings(plan=plan, select=("TS-NRG-012",))
    assert found == ({("TS-NRG-012", "energy.expected_energy_joules")} if wrong else set())


NODE = 1.1 * 16 * 10200 * 600e3
DEVICE = 1.1 * 128 * 700 * 600e3
IDLE = 0.1 * 128 * 700 * 600e3


@pytest.mark.parametrize(
    ("boundary", "most"),
    [
        ("device", DEVICE),
        ("node", NODE),
        ("node-and-network", 1.25 * NODE),
        ("facility", 1.25 * 1.2 * NODE),
    ],
)
def test_most_that_a_boundary_can_draw(findings, boundary, most) -> None:
    wrong = {("TS-NRG-013", "energy.expected_energy_joules")}
    for factor, found in ((0.999, set()), (1.001, wrong)):
        plan = energy(boundary=boundary, expected_energy_joules=factor * most)
        assert findings(plan=plan, select=("TS-NRG-013",)) == found


@pytest.mark.parametrize(("factor", "wrong"), [(1.001, False), (0.999, True)])
def test_least_that_idle_accelerators_draw(findings, factor, wrong) -> None:
    found = findings(plan=energy(expected_energy_joules=factor * IDLE), select=("TS-NRG-015",))
    assert found == ({("TS-NRG-015", "energy.expected_energy_joules")} if wrong else set())


def test_power_is_judged_by_the_token_where_the_total_is_not_stated(findings) -> None:
    found = findings(plan=energy(expected_joules_per_token=800), select=("TS-NRG-013",))
    assert found == {("TS-NRG-013", "energy.expected_joules_per_token")}


def test_gpt_3_of_mlperf_passes(findings) -> None:
    # mlcommons/training_results_v4.0, 64 nodes of eight H100: 56.9 min, 415.3 kWh at the nodes.
    nodes = [{"name": "compute", "num_nodes": 64}]
    plan = {
        "model": {"num_parameters": 175e9},
        "parallelism": {"num_accelerators": 512},
        "energy": {"expected_joules_per_token": 1.24, "expected_energy_joules": 415.28 * 3.6e6},
        "job": {"num_steps": None, "num_tokens": 415.28 * 3.6e6 / 1.24, "planned_seconds": 56.8778 * 60},
    }
    select = ("TS-NRG-012", "TS-NRG-013", "TS-NRG-014")
    assert findings(plan=plan, cluster={"node_groups": nodes}, select=select) == set()
    plan["energy"] = {"expected_joules_per_token": 1.24 / 8, "expected_energy_joules": None}
    found = findings(plan=plan, cluster={"node_groups": nodes}, select=("TS-NRG-014",))
    assert found == {("TS-NRG-014", "energy.expected_joules_per_token")}
    plan["energy"] = {"expected_joules_per_token": None, "expected_energy_joules": 415.28 * 3.6e6}
    assert findings(plan=plan, cluster={"node_groups": nodes}, select=("TS-NRG-014",)) == set()
    plan["energy"]["expected_energy_joules"] = 1000
    found = findings(plan=plan, cluster={"node_groups": nodes}, select=("TS-NRG-014",))
    assert found == {("TS-NRG-014", "energy.expected_energy_joules")}


def test_sparse_models_are_judged_by_their_active_parameters(findings) -> None:
    plan = {
        "model": {"family": "moe-transformer", "num_parameters": 671e9, "num_active_parameters": 37e9},
        **energy(expected_joules_per_token=0.3),
    }
    assert findings(plan=plan, select=("TS-NRG-014",)) == set()
    plan["model"]["num_active_parameters"] = None
    assert findings(plan=plan, select=("TS-NRG-014",)) == {("TS-NRG-014", "energy.expected_joules_per_token")}
