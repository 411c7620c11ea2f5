"""Boundaries, shipped defaults and not-applicable cases of the rules on detection and recovery."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.documents.load import load_file
from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]

SYNCHRONOUS = {"mode": "synchronous", "persist_seconds_p95": None}


def base(file: str) -> Any:
    return load_file(Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / file).data


def ids(found: set[tuple[str, str]]) -> set[str]:
    return {identifier for identifier, _ in found}


def fault(name: str, **keys: Any) -> dict[str, Any]:
    return {"recovery": [{"fault": name, **keys}]}


def layer(name: str, **keys: Any) -> dict[str, Any]:
    return {"detection": [{"layer": name, **keys}]}


def test_faults_covered(findings: Findings) -> None:
    extra = fault("storage-loss", action="rollback", budget_seconds=800, decide_seconds=100)
    extra["recovery"][0] |= {"restart_seconds": 15, "restore_seconds": 15, "first_step_seconds": 40}
    assert findings(checkpoint=extra) == {("TS-CKP-038", "detection")}
    sums = layer("digest-check", timeout_seconds=600, faults=["storage-loss"], signal="checksum")
    assert findings(checkpoint={**extra, **sums}) == set()


def test_a_missing_way_back_is_reported() -> None:
    from trainspec_validate.documents.types import CheckpointPolicy, read
    from trainspec_validate.rules.ckp_recovery import faults_covered

    data = base("checkpoint.yaml")
    policy = read("CheckpointPolicy", {**data, "recovery": data["recovery"][:1]})
    assert isinstance(policy, CheckpointPolicy)
    assert [violation.message for violation in faults_covered(policy)] == [
        "no recovery path from hang",
        "no recovery path from node-loss",
    ]


@pytest.mark.parametrize("signal", ["exit", "heartbeat", "health-check", "checksum", None])
def test_hangs_need_a_signal_that_stops(findings: Findings, signal: str | None) -> None:
    place = "detection.2.signal" if signal else "detection.2"
    found = findings(checkpoint=layer("collective-watchdog", signal=signal), select=("TS-CKP-039",))
    assert found == {("TS-CKP-039", place)}


def test_hangs_are_not_noticed_by_a_faster_heartbeat(findings: Findings) -> None:
    """The budget counts the watchdog's 100 s, not the 15 s of a heartbeat that a hung process still sends."""
    policy = {
        "detection": [
            {"layer": "node-agent", "faults": ["node-loss", "network-loss", "hang"]},
            {"layer": "collective-watchdog", "timeout_seconds": 100},
        ]
    }
    assert findings(checkpoint=policy, select=("TS-CKP-043",)) == {("TS-CKP-043", "recovery.1.budget_seconds")}


def test_time_outs_outlast_synchronous_saves(findings: Findings, verdict: Verdicts) -> None:
    slow = {"save": {**SYNCHRONOUS, "blocking_seconds": 30}}
    assert findings(checkpoint=slow, select=("TS-CKP-040",)) == {("TS-CKP-040", "detection.2.timeout_seconds")}
    slow["save"]["blocking_seconds"] = 29
    assert findings(checkpoint=slow, select=("TS-CKP-040",)) == set()
    beats = layer("collective-watchdog", signal="heartbeat")
    assert verdict("TS-CKP-040", checkpoint=beats) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-041") is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"budget_seconds": 90}, None),
        ({"budget_seconds": 91}, "budget_seconds"),
        ({"quantile": 0.9}, "quantile"),
        ({"quantile": 0.99}, None),
        ({"action": "replace-from-spares", "budget_seconds": 120}, "budget_seconds"),
    ],
)
def test_lost_accelerator(findings: Findings, keys: dict[str, Any], place: str | None) -> None:
    found = findings(checkpoint=fault("process-loss", **keys), select=("TS-CKP-042",))
    assert found == ({("TS-CKP-042", f"recovery.0.{place}")} if place else set())


def test_lost_accelerator_binds_jobs_that_can_keep_it(verdict: Verdicts) -> None:
    waiting = fault("process-loss", action="wait-for-repair", budget_seconds=7200)
    assert verdict("TS-CKP-042", checkpoint=waiting) is Verdict.NOT_APPLICABLE


# Defaults as shipped, in seconds: c10d 1800, NCCL group 600, NVRx rank heartbeat 2700, Kubernetes 300.
@pytest.mark.parametrize(
    ("name", "default"),
    [
        *(("collective-watchdog", 1800), ("collective-watchdog", 600)),
        *(("node-agent", 2700), ("node-agent", 300), ("launcher", 60)),
    ],
)
def test_default_time_outs_do_not_fit(findings: Findings, name: str, default: float) -> None:
    found = findings(checkpoint=layer(name, timeout_seconds=default), select=("TS-CKP-043",))
    index = {"launcher": 0, "collective-watchdog": 1, "node-agent": 2}[name]
    assert found == {("TS-CKP-043", f"recovery.{index}.budget_seconds")}


def test_published_recovery_fits_ninety_seconds(findings: Findings) -> None:
    """13 s to detect, 50 to reschedule, 5.4 to restore, 12.7 to the next step: MaxText elastic demo."""
    demo = {
        **layer("launcher", timeout_seconds=13),
        **fault(
            "process-loss",
            decide_seconds=0.1,
            restart_seconds=50,
            restore_seconds=5.4,
            first_step_seconds=12.7,
        ),
    }
    assert findings(checkpoint=demo, select=("TS-CKP-042", "TS-CKP-043", "TS-CKP-046")) == set()


def test_restore_reads_from_what_is_left(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-045",)
    slow = {"storage_targets": [{"name": "shared-files", "read_bandwidth_bytes_per_second": 10e9}]}
    assert findings(cluster=slow, select=select) == set()
    alone = {"tiers": [{"name": "partner-copies", "num_replicas": None, "replicas_across": None}]}
    assert findings(cluster=slow, checkpoint=alone, select=select) == {("TS-CKP-045", "recovery.2.restore_seconds")}
    unknown = {"storage_targets": [{"name": "node-disk", "read_bandwidth_bytes_per_second": None}]}
    assert verdict("TS-CKP-045", cluster=unknown) is Verdict.NOT_APPLICABLE


def test_restore_after_the_loss_of_a_job_reads_what_outlives_it(findings: Findings) -> None:
    slow = {"storage_targets": [{"name": "shared-files", "read_bandwidth_bytes_per_second": 10e9}]}
    path = {"action": "rollback", "budget_seconds": 800, "decide_seconds": 100, "restart_seconds": 15}
    lost = fault("job-loss", **path, restore_seconds=15, first_step_seconds=40)
    found = findings(cluster=slow, checkpoint=lost, select=("TS-CKP-045",))
    assert found == {("TS-CKP-045", "recovery.3.restore_seconds")}


def test_limits_bind(findings: Findings) -> None:
    select = ("TS-CKP-046",)
    assert findings(checkpoint={"recovery_point_seconds": 9100}, select=select) == set()
    assert findings(checkpoint={"recovery_point_seconds": 9101}, select=select) != set()
    assert findings(checkpoint=fault("hang", budget_seconds=511), select=select) == {
        ("TS-CKP-046", "recovery.1.budget_seconds")
    }


def test_replacement(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-047",)
    place = {("TS-CKP-047", "recovery.2.action")}
    assert findings(cluster={"reliability": None}, select=select) == set()
    assert verdict("TS-CKP-047", cluster={"reliability": None}) is Verdict.NOT_RUN
    assert findings(cluster={"reliability": {"num_spare_nodes": 0}}, select=select) == place
    repair = fault("node-loss", action="wait-for-repair", restart_seconds=600)
    assert findings(checkpoint=repair, select=select) == {("TS-CKP-047", "recovery.2.restart_seconds")}
    untimed = {"reliability": {"spare_start_seconds": None}}
    assert verdict("TS-CKP-047", cluster=untimed) is Verdict.NOT_APPLICABLE
    shrink = fault("node-loss", action="shrink")
    assert verdict("TS-CKP-047", checkpoint=shrink) is Verdict.NOT_APPLICABLE


# Nodes, seconds of repair and spares at 6.5 failures per 1000 node-days.
@pytest.mark.parametrize(("nodes", "repair", "needed"), [(2048, 3600, 3), (2048, 86400, 22), (2048, 259200, 55)])
def test_spares(findings: Findings, verdict: Verdicts, nodes: int, repair: float, needed: int) -> None:
    job = {"job": {"num_nodes": nodes}}
    for number, ok in ((needed, True), (needed - 1, False)):
        cluster = {"reliability": {"num_spare_nodes": number, "replacement_seconds": repair}}
        found = findings(cluster=cluster, checkpoint=job, select=("TS-CKP-048",))
        assert found == (set() if ok else {("TS-CKP-048", "reliability.num_spare_nodes")})
    shrinks = {"spare_policy": "shrink", "job": {"num_nodes": 16, "min_num_nodes": 8}}
    assert verdict("TS-CKP-048", checkpoint=shrinks) is Verdict.NOT_APPLICABLE


def test_shrink(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-050",)
    place = {("TS-CKP-050", "job.min_num_nodes")}
    elastic = {"batch": {"elastic": {"data_degrees": [3, 4], "micro_sequences": [1]}}}
    assert findings(plan=elastic, checkpoint={"job": {"min_num_nodes": 12}}, select=select) == set()
    assert findings(plan=elastic, checkpoint={"job": {"min_num_nodes": 11}}, select=select) == place
    assert findings(plan=elastic, checkpoint=fault("node-loss", action="shrink"), select=select) == place
    unsaid = {"spare_policy": "shrink", "job": {"min_num_nodes": None}}
    assert findings(plan=elastic, checkpoint=unsaid, select=select) == {("TS-CKP-050", "job")}
    assert verdict("TS-CKP-050") is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-049", checkpoint={"spare_policy": None}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    "restart", [{"max_restarts": None}, {"max_restarts": 1e6}, {"max_restarts_without_progress": "unlimited"}]
)
def test_restart_limits_are_numbers(findings: Findings, restart: dict[str, Any]) -> None:
    assert ids(findings(checkpoint={"restart": restart})) == {"TS-CKP-051"}


@pytest.mark.parametrize(("limit", "ok"), [(0, False), (1, True), (3, True), (4, False)])
def test_no_progress(findings: Findings, limit: int, ok: bool) -> None:
    found = findings(checkpoint={"restart": {"max_restarts_without_progress": limit}}, select=("TS-CKP-052",))
    assert (found == set()) is ok


# 419 failures were counted in 54 days of 2,048 nodes, at 3.79 in 1000 node-days; arXiv:2407.21783.
@pytest.mark.parametrize(("limit", "ok"), [(418, False), (419, True), (500, True), (3, False)])
def test_restarts_of_a_published_job(findings: Findings, limit: int, ok: bool) -> None:
    job = {"planned_seconds": 54 * 86400, "mean_time_between_failures_seconds": 54 * 86400 / 419}
    found = findings(checkpoint={"job": job, "restart": {"max_restarts": limit}}, select=("TS-CKP-103",))
    assert (found == set()) is ok
    assert found <= {("TS-CKP-103", "restart.max_restarts")}


def test_restarts_of_a_job_that_no_failure_is_expected_to_meet(findings: Findings, verdict: Verdicts) -> None:
    job = {"planned_seconds": 3600, "mean_time_between_failures_seconds": 86400}
    assert not findings(checkpoint={"job": job, "restart": {"max_restarts": 0}}, select=("TS-CKP-103",))
    assert verdict("TS-CKP-103", checkpoint={"job": {"planned_seconds": None}}) is Verdict.NOT_APPLICABLE


def test_preemption(findings: Findings, verdict: Verdicts) -> None:
    counted = {"grace": {"counts_on_checkpoint": True}}
    assert findings(checkpoint=counted, select=("TS-CKP-053",)) == {("TS-CKP-053", "grace.counts_on_checkpoint")}
    for preemptible, places in ((True, {("TS-CKP-053", "grace")}), (False, set())):
        unstated = {"grace": {"preemptible": preemptible, "counts_on_checkpoint": False, "notice_seconds": None}}
        assert findings(checkpoint=unstated, select=("TS-CKP-053",)) == places
    assert verdict("TS-CKP-053", checkpoint={"grace": None}) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-054", checkpoint={"grace": None}) is Verdict.NOT_APPLICABLE


# 5 s to see the notice, 34 s for a slow step, 20 s for the save under way, 2 + 20 s for a new one.
@pytest.mark.parametrize(("notice", "in_flight", "ok"), [(81, 1, True), (80, 1, False), (61, 2, True), (60, 2, False)])
def test_grace(findings: Findings, notice: float, in_flight: int, ok: bool) -> None:
    grace = {"preemptible": True, "notice_seconds": notice, "poll_seconds": 5, "counts_on_checkpoint": True}
    policy = {"grace": grace, "save": {"max_in_flight": in_flight}}
    assert (findings(checkpoint=policy, select=("TS-CKP-054",)) == set()) is ok


@pytest.mark.parametrize(
    ("latency", "wrong"), [(3239, True), (3240, False), (3600, False), (18000, False), (18001, True)]
)
def test_corruption_is_noticed_by_its_layer(findings: Findings, latency: float, wrong: bool) -> None:
    policy = {"retention": {"error_detection_seconds": latency}}
    assert bool(findings(checkpoint=policy, select=("TS-CKP-057",))) is wrong


@pytest.mark.parametrize(("restart", "wrong"), [(14, True), (15, False), (600, False)])
def test_another_node_takes_longer(findings: Findings, restart: float, wrong: bool) -> None:
    path = fault("node-loss", restart_seconds=restart)
    assert bool(findings(checkpoint=path, select=("TS-CKP-060",))) is wrong


# With steps of 150 s, 90 s hold no first step: the step itself is allowed for, and nothing more.
@pytest.mark.parametrize(
    ("step", "budget", "ok"), [(30, 90, True), (30, 91, False), (150, 240, True), (150, 241, False)]
)
def test_a_step_longer_than_the_limit_is_allowed_for(findings: Findings, step: float, budget: float, ok: bool) -> None:
    checkpoint = {
        "interval": {"steps": None, "seconds": 1800, "step_seconds": step},
        "job": {"step_seconds_p99": None},
        "recovery": [{"fault": "process-loss", "budget_seconds": budget, "first_step_seconds": step}],
    }
    found = findings(checkpoint=checkpoint, select=("TS-CKP-042",))
    assert found == (set() if ok else {("TS-CKP-042", "recovery.0.budget_seconds")})


@pytest.mark.parametrize(("limit", "ok"), [(0, False), (2, False), (4, True), (100, True)])
def test_restarts_by_the_planned_time_of_the_plan(findings: Findings, limit: int, ok: bool) -> None:
    job = {"planned_seconds": None, "mean_time_between_failures_seconds": 600e3 / 4}
    found = findings(checkpoint={"job": job, "restart": {"max_restarts": limit}}, select=("TS-CKP-103", "TS-CKP-110"))
    assert found == (set() if ok else {("TS-CKP-110", "restart.max_restarts")})


def test_no_restart_is_enough_for_a_short_plan(findings: Findings) -> None:
    checkpoint = {"job": {"planned_seconds": None}, "restart": {"max_restarts": 0}}
    assert not findings(plan={"job": {"planned_seconds": 3600}}, checkpoint=checkpoint, select=("TS-CKP-110",))
