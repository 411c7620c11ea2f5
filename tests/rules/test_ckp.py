"""Boundaries, published figures and not-applicable cases of the rules on intervals and saves."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate
from trainspec_validate.checking.selection import Selection
from trainspec_validate.documents.load import load_file
from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]

SYNCHRONOUS = {"mode": "synchronous", "persist_seconds_p95": None}
LLAMA3 = {"failures_per_1000_node_days": 3.79, "num_failures": 419, "node_days": 110592}
"""419 unexpected interruptions of 2,048 nodes in 54 days, arXiv:2407.21783."""


def base(file: str) -> Any:
    return load_file(Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / file).data


def ids(found: set[tuple[str, str]]) -> set[str]:
    return {identifier for identifier, _ in found}


def every(interval: float, **keys: Any) -> dict[str, Any]:
    """A policy that saves to all tiers at one interval."""
    return {
        "interval": {"seconds": interval, "steps": None},
        "tiers": [
            {"name": "partner-copies", "interval_seconds": None},
            {"name": "durable", "interval_seconds": None, "num_kept": 20},
        ],
        "recovery_point_seconds": interval + 100,
        **keys,
    }


def test_interval_needs_one_reading(findings: Findings) -> None:
    select = ("TS-CKP-001",)
    assert findings(checkpoint={"interval": {"steps": None, "seconds": None}}, select=select) == {
        ("TS-CKP-001", "interval")
    }
    assert findings(checkpoint={"interval": {"final_only": True}}, select=select) == {
        ("TS-CKP-001", "interval.final_only")
    }
    alone = {"steps": None, "seconds": None, "final_only": True}
    assert findings(checkpoint={"interval": alone}, select=select) == set()
    unplanned = {"interval": alone, "job": {"planned_seconds": None}}
    assert findings(checkpoint=unplanned, select=select) == {("TS-CKP-001", "interval.final_only")}


@pytest.mark.parametrize(("steps", "ok"), [(54, True), (53, False), (66, True), (67, False)])
def test_forms_agree_within_ten_per_cent(findings: Findings, steps: int, ok: bool) -> None:
    found = findings(checkpoint={"interval": {"steps": steps}}, select=("TS-CKP-002",))
    assert (found == set()) is ok


def test_forms_need_all_three_figures(verdict: Verdicts) -> None:
    assert verdict("TS-CKP-002", checkpoint={"interval": {"steps": None}}) is Verdict.NOT_APPLICABLE


# Best interval of the base documents: Daly's formula for 2 s against 16 nodes at 6.5 is 1821.6 s.
@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (3640, set()),
        (3650, {("TS-CKP-005", "interval.seconds")}),
        (912, set()),
        (910, {("TS-CKP-006", "interval.seconds")}),
    ],
)
def test_interval_window(findings: Findings, interval: float, expected: set[tuple[str, str]]) -> None:
    assert findings(checkpoint=every(interval)) == expected


def test_window_uses_a_measured_rate_and_not_the_nodes(findings: Findings) -> None:
    job = {"mean_time_between_failures_seconds": 5000, "mean_time_between_failures_reason": "Shared fabric."}
    found = findings(checkpoint={"job": job}, select=("TS-CKP-005",))
    assert found == {("TS-CKP-005", "interval.seconds")}


def test_a_node_local_tier_does_not_shorten_the_interval(findings: Findings) -> None:
    local = {
        "tiers": [
            {"name": "partner-copies", "num_replicas": None, "replicas_across": None},
            {"name": "durable", "interval_seconds": 7200},
        ],
        "recovery_point_seconds": 7300,
    }
    assert findings(checkpoint=local) == {("TS-CKP-005", "tiers.1.interval_seconds")}


def test_copies_in_memory_at_every_step_do_not_wait_for_the_outer_tier(findings: Findings) -> None:
    """Copies on partners once a minute and on storage every half hour, as in doi:10.1145/3600006.3613145."""
    inner = {
        "interval": {"seconds": 60, "steps": 2},
        "save": {"blocking_seconds": 0.004, "persist_seconds_p95": 300, "writer_bandwidth_bytes_per_second": 50e6},
        "tiers": [{"name": "partner-copies", "interval_seconds": 60}, {"name": "durable"}],
        "recovery_point_seconds": 2100,
    }
    assert findings(checkpoint=inner) == set()


def test_the_best_interval_waits_for_slow_asynchronous_saves(findings: Findings) -> None:
    slow = every(1000, save={"persist_seconds_p95": 990, "blocking_seconds": 0.01})
    assert "TS-CKP-005" not in ids(findings(checkpoint=slow))


@pytest.mark.parametrize(("declared", "ok"), [(420e3, True), (400e3, False), (1.65e6, True), (1.67e6, False)])
def test_measured_rate_within_a_factor_of_two(findings: Findings, declared: float, ok: bool) -> None:
    found = findings(checkpoint={"job": {"mean_time_between_failures_seconds": declared}}, select=("TS-CKP-004",))
    assert (found == set()) is ok


def test_short_jobs(findings: Findings, verdict: Verdicts) -> None:
    final = {"interval": {"final_only": True, "steps": None, "seconds": None}}
    select = ("TS-CKP-007",)
    assert findings(checkpoint={**final, "job": {"planned_seconds": 1800}}, select=select) == set()
    late = findings(checkpoint={**final, "job": {"planned_seconds": 1850}}, select=select)
    assert late == {("TS-CKP-007", "interval.final_only")}
    assert verdict("TS-CKP-007", checkpoint={"job": {"planned_seconds": None}}) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-006", checkpoint=final) is Verdict.NOT_APPLICABLE


def test_effective_time_explains_its_losses() -> None:
    from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, read
    from trainspec_validate.performance.costs.reliability import time_shares
    from trainspec_validate.rules.ckp import effective_time

    cluster = read("ClusterProfile", base("cluster.yaml"))
    data = dict(base("checkpoint.yaml"))
    data["effective_training_time_target"] = 0.999
    policy = read("CheckpointPolicy", data)
    assert isinstance(cluster, ClusterProfile)
    assert isinstance(policy, CheckpointPolicy)
    (violation,) = effective_time(policy, cluster)
    shares = time_shares(1800, 2, 830769.23, 130, 20)
    assert f"{shares.effective * 100:.4g} %" in violation.message
    assert f"saves take {shares.save * 100:.4g} %" in violation.message
    assert f"lost work {shares.lost_work * 100:.4g} %" in violation.message
    assert f"recovery {shares.recovery * 100:.4g} %" in violation.message
    assert "30.36 min" in violation.help


@pytest.mark.parametrize(
    ("nodes", "blocking", "recovery", "reached"),
    [(2048, 6.3, 90, 0.9589), (2048, 60, 1200, 0.8078), (2048, 300, 1200, 0.7052)],
)
def test_effective_time_of_published_scales(
    findings: Findings, nodes: int, blocking: float, recovery: float, reached: float
) -> None:
    """The 16,384 accelerators of arXiv:2407.21783 with synchronous saves at the best interval."""
    best = {6.3: 370, 60: 1116, 300: 2388}[blocking]
    parts = {"decide_seconds": 0.1, "restart_seconds": 1, "restore_seconds": 1}
    paths = [
        {"fault": name, **parts, "first_step_seconds": recovery - seen - 2.1}
        for name, seen in (("process-loss", 5), ("hang", 30), ("node-loss", 15))
    ]
    for target, ok in ((reached - 0.001, True), (reached + 0.001, False)):
        policy = every(
            best,
            save={**SYNCHRONOUS, "blocking_seconds": blocking},
            job={"num_nodes": nodes},
            recovery=paths,
            effective_training_time_target=target,
        )
        found = findings(checkpoint=policy, cluster={"reliability": LLAMA3}, select=("TS-CKP-008",))
        assert (found == set()) is ok


def test_job_size(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-009",)
    half = {"parallelism": {"num_accelerators": 64, "data": 2}}
    assert findings(plan=half, checkpoint={"job": None}, select=select) == {("TS-CKP-009", "interval")}
    assert findings(plan=half, checkpoint={"job": {"num_nodes": None}}, select=select) == {("TS-CKP-009", "job")}
    assert findings(plan=half, checkpoint={"job": {"num_nodes": 8, "min_num_nodes": 8}}, select=select) == set()
    fewest = {("TS-CKP-056", "job.min_num_nodes"), ("TS-CKP-058", "job.min_num_nodes")}
    assert findings(checkpoint={"job": {"min_num_nodes": 17}}) == fewest
    assert findings(checkpoint={"job": {"min_num_nodes": 16}}, select=("TS-CKP-056", "TS-CKP-058")) == set()
    all_nodes = {"job": {"num_nodes": None, "min_num_nodes": 16}}
    assert findings(checkpoint=all_nodes, select=("TS-CKP-056",)) == set()
    one_more = {"job": {"num_nodes": None, "min_num_nodes": 17}}
    assert findings(checkpoint=one_more, select=("TS-CKP-056",)) == {("TS-CKP-056", "job.min_num_nodes")}
    small = {"job": {"num_nodes": 8, "min_num_nodes": 9}}
    assert findings(plan=half, checkpoint=small, cluster=None, select=("TS-CKP-058",)) == {
        ("TS-CKP-058", "job.min_num_nodes")
    }
    assert verdict("TS-CKP-009", plan={"node_group": "elsewhere"}) is Verdict.NOT_RUN


def test_a_cluster_that_is_too_small_is_not_blamed_on_the_policy(tmp_path, findings: Findings) -> None:
    select = ("TS-CKP-009", "TS-PAR-002")
    small = {"num_nodes": 8, "num_accelerators": 64, "node_groups": [{"name": "compute", "num_nodes": 8}]}
    unstated = findings(cluster=small, checkpoint={"job": {"num_nodes": None}}, select=select)
    assert {requirement for requirement, _ in unstated} == {"TS-PAR-002"}
    half = {"parallelism": {"num_accelerators": 64, "data": 2}}
    findings(plan=half, checkpoint={"job": None}, select=select)
    [found] = validate([tmp_path], Selection(select=select)).findings
    assert found.message.startswith("without num_nodes, the policy counts the cluster's 16 nodes, but the plan's 64")


def test_several_ranks_on_one_accelerator(findings: Findings) -> None:
    cluster = {"node_groups": [{"name": "compute", "accelerator": {"num_ranks_per_accelerator": 2}}]}
    job = {"num_nodes": 8, "min_num_nodes": 8}
    found = findings(cluster=cluster, checkpoint={"job": job}, select=("TS-CKP-009",))
    assert found == set()


def test_plan_figures(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-010",)
    assert findings(checkpoint={"job": {"planned_seconds": 750e3}}, select=select) == set()
    assert findings(checkpoint={"job": {"planned_seconds": 760e3}}, select=select) == {
        ("TS-CKP-010", "job.planned_seconds")
    }
    predicted = {"performance": {"kind": "predicted", "step_seconds": 45}}
    assert findings(plan=predicted, select=select) == {("TS-CKP-010", "interval.step_seconds")}
    adapters = {"lora": {"rank": 8, "targets": ["query"]}, "num_parameters_trained": 10e6}
    saved = {"save": {"num_parameters": 10e6}}
    assert findings(plan=adapters, checkpoint=saved, select=select) == set()
    assert findings(checkpoint=saved, select=select) == {("TS-CKP-010", "save.num_parameters")}
    nothing = {"job": None, "interval": {"step_seconds": None}, "save": {"num_parameters": None}}
    assert verdict("TS-CKP-010", checkpoint=nothing) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("planned", "plan", "wrong"),
    [
        (600e3, {"job": {"planned_seconds": None}}, False),
        (600, {"job": {"planned_seconds": None}}, True),
        (600, {}, False),  # the plan states its own, which TS-CKP-010 compares
        (151e3, {"job": {"planned_seconds": None}}, False),
        (149e3, {"job": {"planned_seconds": None}}, True),
        (6e6, {"job": {"planned_seconds": None}, "performance": {"kind": "measured", "step_seconds": 60}}, True),
        (2e6, {"job": {"planned_seconds": None}, "performance": {"kind": "measured", "step_seconds": 60}}, False),
        (100e3, {"job": {"planned_seconds": None, "num_steps": None}}, True),  # 20,000 steps, from its tokens
        (300e3, {"job": None}, False),
    ],
)
def test_planned_time_of_a_plan_that_states_steps_alone(findings: Findings, planned, plan, wrong) -> None:
    found = findings(checkpoint={"job": {"planned_seconds": planned}}, plan=plan, select=("TS-CKP-104",))
    assert found == ({("TS-CKP-104", "job.planned_seconds")} if wrong else set())


def test_a_slipped_unit_is_on_one_of_two_sides(tmp_path: Path) -> None:
    for name in ("cluster.yaml", "plan.yaml", "checkpoint.yaml"):
        shutil.copy(Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / name, tmp_path)
    plan = tmp_path / "plan.yaml"
    text = plan.read_text(encoding="utf-8")
    plan.write_text(re.sub(r"num_parameters: \S+", "num_parameters: 70.6e6", text, count=1), encoding="utf-8")
    [found] = validate([tmp_path], Selection(select=("TS-CKP-010",))).findings
    assert found.help == "one of the two has a slipped unit: give the parameters as they are, in both"
    plan.write_text(re.sub(r"num_parameters: \S+", "num_parameters: 60e9", text, count=1), encoding="utf-8")
    [found] = validate([tmp_path], Selection(select=("TS-CKP-010",))).findings
    assert found.help == "write 60e9, or correct the plan"


@pytest.mark.parametrize(("tail", "ok"), [(29.9, False), (30, True), (152, True), (153, False)])
def test_step_tail(findings: Findings, tail: float, ok: bool) -> None:
    found = findings(checkpoint={"job": {"step_seconds_p99": tail}}, select=("TS-CKP-011", "TS-CKP-064"))
    assert (found == set()) is ok


# Parameters in billions and checkpoint bytes as published by mlcommons/storage@caa90c9 and
# stas00/ml-engineering@744d01e.
@pytest.mark.parametrize(
    ("billions", "size"), [(8.03, 105e9), (70.55, 912e9), (405, 5.29e12), (1000, 18e12), (176, 2.3e12)]
)
def test_published_sizes_are_plausible(findings: Findings, billions: float, size: float) -> None:
    save = {"num_parameters": billions * 1e9, "size_bytes": size, "bytes_per_parameter": None}
    assert findings(checkpoint={"save": save}, select=("TS-CKP-064",)) == set()
    save["size_bytes"] = size / 8
    assert findings(checkpoint={"save": save}, select=("TS-CKP-064",)) == {("TS-CKP-064", "save.size_bytes")}
    save["bytes_per_parameter"] = 14
    assert findings(checkpoint={"save": save}, select=("TS-CKP-012",)) == {("TS-CKP-012", "save.size_bytes")}


@pytest.mark.parametrize(
    ("items", "bytes_each", "wrong"),
    [
        (["model", "optimizer"], 2, True),
        (["model", "optimizer"], 2.1, False),
        (["model"], 2, False),
        (["model"], 1, False),
        (["model", "optimizer", "ema-weights"], 4, True),
        (["model", "optimizer", "ema-weights"], 4.1, False),
        (["model", "optimizer", "ema-weights", "outer-optimizer"], 6, True),
        (["model", "ema-weights"], 3, True),
        (["model", "ema-weights"], 4, False),
    ],
)
def test_weights_alone_are_no_state_with_an_optimizer(
    findings: Findings, items: list[str], bytes_each: float, wrong: bool
) -> None:
    save = {"num_parameters": 176e9, "size_bytes": 176e9 * bytes_each, "bytes_per_parameter": bytes_each}
    found = findings(checkpoint={"save": save, "state": {"items": items}}, select=("TS-CKP-064",))
    assert found == ({("TS-CKP-064", "save.bytes_per_parameter")} if wrong else set())


def test_asynchronous_saves(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-013",)
    assert findings(checkpoint={"save": {"persist_seconds_p95": None}}, select=select) == {("TS-CKP-013", "save")}
    assert findings(checkpoint={"save": {"persist_seconds_p95": 1800}}, select=select) == set()
    assert findings(checkpoint={"save": {"persist_seconds_p95": 1801}}, select=select) != set()
    assert verdict("TS-CKP-013", checkpoint={"save": SYNCHRONOUS}) is Verdict.NOT_APPLICABLE


def test_save_time_of_published_systems(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-014",)
    fleet = {"storage_targets": [{"name": "shared-files", "write_bandwidth_bytes_per_second": 2e12}]}
    published = {"size_bytes": 5.29e12, "persist_seconds_p95": 51.06, "blocking_seconds": 0.59}
    writers = {"num_writers": 8960, "writer_bandwidth_bytes_per_second": 20e6}
    assert findings(cluster=fleet, checkpoint={"save": {**published, **writers}}, select=select) == set()
    bloom = {**SYNCHRONOUS, "size_bytes": 2.3e12, "blocking_seconds": 40, "num_writers": 384}
    assert findings(cluster=fleet, checkpoint={"save": bloom}, select=select) == set()
    hours = {"save": {"persist_seconds_p95": 20 * 3600}}
    assert findings(checkpoint=hours, select=("TS-CKP-064",)) == {("TS-CKP-064", "save.persist_seconds_p95")}
    quick = {"save": {**SYNCHRONOUS, "blocking_seconds": 9}}
    assert findings(checkpoint=quick, select=("TS-CKP-059",)) == {("TS-CKP-059", "save.blocking_seconds")}
    assert findings(checkpoint={"save": {**SYNCHRONOUS, "blocking_seconds": 8}}, select=select) == {
        ("TS-CKP-014", "save.blocking_seconds")
    }
    silent = {"num_writers": None, "writer_bandwidth_bytes_per_second": None}
    stores = {"storage_targets": None}
    assert verdict("TS-CKP-014", cluster=stores, checkpoint={"save": silent}) is Verdict.NOT_APPLICABLE


def test_writers(findings: Findings) -> None:
    select = ("TS-CKP-015",)
    assert findings(checkpoint={"save": {"num_writers": 129}}, select=select) == {("TS-CKP-015", "save.num_writers")}
    alone = {"save": {"writer_bandwidth_bytes_per_second": 2e9}}
    assert findings(checkpoint=alone, select=select) == {("TS-CKP-015", "save.writer_bandwidth_bytes_per_second")}


@pytest.mark.parametrize(("promised", "ok"), [(1820, True), (1819, False)])
def test_recovery_point(findings: Findings, promised: float, ok: bool) -> None:
    found = findings(checkpoint={"recovery_point_seconds": promised}, select=("TS-CKP-016",))
    assert (found == set()) is ok


def test_recovery_point_of_synchronous_saves(findings: Findings) -> None:
    policy = {"save": {**SYNCHRONOUS, "blocking_seconds": 101}}
    assert findings(checkpoint=policy, select=("TS-CKP-016",)) == {("TS-CKP-016", "recovery_point_seconds")}


def test_policy_alone_is_judged_without_plan_and_cluster(findings: Findings) -> None:
    alone = {"cluster": None, "plan": None}
    assert findings(cluster=None, plan=None, checkpoint=alone) == set()
    broken = {**alone, "recovery_point_seconds": 900}
    assert findings(cluster=None, plan=None, checkpoint=broken) == {("TS-CKP-016", "recovery_point_seconds")}


@pytest.mark.parametrize(("persist", "wrong"), [(9.2, True), (9.3, False), (72, False), (72.1, True)])
def test_writers_explain_the_time_of_a_save(findings: Findings, persist: float, wrong: bool) -> None:
    """988 GB over 128 writers of 750 MB/s take 10.29 s."""
    save = {"save": {"persist_seconds_p95": persist}}
    assert bool(findings(checkpoint=save, select=("TS-CKP-059",))) is wrong


@pytest.mark.parametrize(("between", "wrong"), [(1800, False), (1799, True)])
def test_saves_come_before_failures_without_a_cluster(findings: Findings, between: float, wrong: bool) -> None:
    job = {"job": {"mean_time_between_failures_seconds": between}}
    assert bool(findings(cluster=None, plan=None, checkpoint=job, select=("TS-CKP-061",))) is wrong


@pytest.mark.parametrize(
    ("rate", "told"), [(0.0065, True), (0.22, True), (0.24, False), (64, False), (66, True), (950, True)]
)
def test_a_rate_far_from_published_ones_is_named_where_the_interval_follows_from_it(
    rate: float, told: bool, findings: Findings, tmp_path: Path
) -> None:
    findings(cluster={"reliability": {"failures_per_1000_node_days": rate}})
    found = validate([tmp_path], Selection(select=("TS-CKP-005", "TS-CKP-006"))).findings
    assert [("published are 2.3 to 6.5" in one.help) for one in found] == [told]


@pytest.mark.parametrize(
    ("save", "nodes", "key"),
    [
        ({"max_in_flight": 32}, 16, None),
        ({"max_in_flight": 33}, 16, "max_in_flight"),
        ({"max_in_flight": 33, "mode": "synchronous"}, 16, None),
        ({"max_in_flight": 1, "size_bytes": 40e12}, 16, "size_bytes"),
        ({"max_in_flight": 3}, 1, "max_in_flight"),
    ],
)
def test_saves_in_flight_fit_into_host_memory(findings: Findings, save, nodes, key) -> None:
    """A node of 16 holds 61.75 GB of each save, and 2 TB of memory."""
    found = findings(checkpoint={"save": save, "job": {"num_nodes": nodes}}, select=("TS-CKP-105",))
    assert found == ({("TS-CKP-105", f"save.{key}")} if key else set())


def test_unknown_host_memory_is_not_a_pass(verdict: Callable[..., Verdict]) -> None:
    group = {"node_groups": [{"name": "compute", "host": {"memory_bytes": None}}]}
    assert verdict("TS-CKP-105", cluster=group) is Verdict.NOT_APPLICABLE


def test_helps_name_each_side_that_may_be_wrong(tmp_path: Path) -> None:
    for name in ("cluster.yaml", "plan.yaml", "checkpoint.yaml"):
        shutil.copy(Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / name, tmp_path)
    plan, policy = tmp_path / "plan.yaml", tmp_path / "checkpoint.yaml"
    text, own = plan.read_text(encoding="utf-8"), policy.read_text(encoding="utf-8")
    plan.write_text(text.replace("num_accelerators: 128", "num_accelerators: 256"), encoding="utf-8")
    [found] = validate([tmp_path], Selection(select=("TS-CKP-009",))).findings
    assert found.help == "plan for the 128 ranks of 16 nodes"
    plan.write_text(re.sub(r" +planned_seconds: \S+\n", "", text, count=1), encoding="utf-8")
    policy.write_text(re.sub(r"planned_seconds: \S+", "planned_seconds: 10e3", own, count=1), encoding="utf-8")
    [found] = validate([tmp_path], Selection(select=("TS-CKP-104",))).findings
    assert found.help
    assert found.help.startswith("correct the planned time, the steps of the job or the time of one: 2.778 h fit ")
    policy.write_text(own.replace("budget_seconds: 90,", "budget_seconds: 300,", 1), encoding="utf-8")
    [found] = validate([tmp_path], Selection(select=("TS-CKP-042",))).findings
    assert found.help == "at most 1.5 min; the parts add up to 1.283 min, of which 40 s are the first step"
