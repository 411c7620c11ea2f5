"""Local updates: their keys, their groups, and what checkpoints and predictions make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, read
from trainspec_validate.model.finding import Verdict
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.predict import predict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
S = "synchrony"


def local(**keys: Any) -> dict[str, Any]:
    own = {"mode": "local-update", "outer_interval_steps": 100, "outer_optimizer": {"name": "nesterov"}}
    return {"synchrony": {**own, "num_groups": 2, **keys}}


@pytest.mark.parametrize(
    ("synchrony", "places"),
    [
        ({"mode": "local-update", "outer_interval_steps": 500}, set()),
        ({"mode": "local-update"}, {f"{S}.mode"}),
        ({"mode": "local-update", "max_staleness_steps": 2}, {f"{S}.mode", f"{S}.max_staleness_steps"}),
        ({"mode": "decentralised", "outer_interval_steps": 500}, {f"{S}.mode"}),
        ({"outer_interval_steps": 500}, {f"{S}.outer_interval_steps"}),
    ],
)
def test_bounds_of_modes(findings: Findings, synchrony: dict[str, Any], places: set[str]) -> None:
    found = findings(plan={"synchrony": synchrony}, select=("TS-PAR-021",))
    assert found == {("TS-PAR-021", place) for place in places}


@pytest.mark.parametrize("key", ["num_groups", "outer_optimizer"])
def test_keys_of_local_updates(findings: Findings, key: str) -> None:
    assert findings(plan=local(), select=("TS-PAR-045",)) == set()
    assert findings(plan=local(**{key: None}), select=("TS-PAR-045",)) == {("TS-PAR-045", f"{S}.mode")}


@pytest.mark.parametrize(
    ("groups", "parallelism", "bad"),
    [
        (2, {"sharding": "none"}, False),
        (3, {"sharding": "none"}, True),
        (4, {"sharding": "none"}, False),
        (2, {"sharding": "parameters"}, True),
        (2, {"sharding": "parameters", "sharding_degree": 4}, True),
        (2, {"sharding": "parameters", "sharding_degree": 2}, False),
        (2, {"sharding": "optimizer", "sharding_degree": 4, "context": 2, "pipeline": 2}, False),
        (8, {"sharding": "none", "data": 8, "pipeline": 2}, False),  # DiLoCo, arXiv:2311.08105
    ],
)
def test_groups_hold_whole_copies(findings: Findings, groups: int, parallelism: dict[str, Any], bad: bool) -> None:
    plan = {**local(num_groups=groups), "parallelism": parallelism}
    found = findings(plan=plan, select=("TS-PAR-046",))
    assert found == ({("TS-PAR-046", f"{S}.num_groups")} if bad else set())


def test_outer_state_is_saved_or_omitted(findings: Findings) -> None:
    wanted = {("TS-CKP-109", "state.items")}
    assert findings(plan=local(), select=("TS-CKP-109",)) == wanted
    omitted = {"state": {"omitted": [{"item": "outer-optimizer", "reason": "Parameters are averaged."}]}}
    assert findings(plan=local(), checkpoint=omitted, select=("TS-CKP-109",)) == set()


@pytest.mark.parametrize("requirement", ["TS-PAR-045", "TS-PAR-046", "TS-CKP-109"])
def test_synchronous_jobs_have_no_groups(verdict: Verdicts, requirement: str) -> None:
    assert verdict(requirement) is Verdict.NOT_APPLICABLE


def test_peers_are_those_of_one_group(findings: Findings) -> None:
    peers = {"recovery": [{"fault": "process-loss", "restore_from": "peers"}]}
    sharded = {"parallelism": {"sharding_degree": 2}}
    assert findings(plan=sharded, checkpoint=peers, select=("TS-CKP-106",)) == set()
    found = findings(plan={**sharded, **local()}, checkpoint=peers, select=("TS-CKP-106",))
    assert found == {("TS-CKP-106", "recovery.0.restore_from")}


def test_steps_of_local_updates_are_not_predicted() -> None:
    plan, cluster = (load_file(BASE / file).data for file in ("plan.yaml", "cluster.yaml"))
    machine = read("ClusterProfile", cluster)
    assert isinstance(machine, ClusterProfile)
    together, apart = read("TrainingPlan", plan), read("TrainingPlan", {**plan, **local()})
    assert isinstance(together, TrainingPlan)
    assert isinstance(apart, TrainingPlan)
    assert predict(together, machine)
    with pytest.raises(Unpredictable, match="step apart"):
        predict(apart, machine)
