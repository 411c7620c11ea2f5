"""Communication and compression: boundaries, producers' own settings, and when there is nothing to judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.pipeline.validation import validate

Findings = Callable[..., set[tuple[str, str]]]
AT = "communication"
ITEMS = [
    "model",
    "optimizer",
    "learning-rate-schedule",
    "rng",
    "data-position",
    "step",
    "samples-or-tokens",
    "layout",
]


def of(found: set[tuple[str, str]], requirement: str) -> set[str]:
    return {place for identifier, place in found if identifier == requirement}


def comm(**keys: Any) -> dict[str, Any]:
    return {"communication": keys}


def rows(*choices: dict[str, Any]) -> dict[str, Any]:
    return comm(collectives=list(choices))


def compress(method: str, **keys: Any) -> dict[str, Any]:
    exposed = {"exposed_fraction_before": 0.3, "exposed_fraction_after": 0.1}
    return comm(compression={"method": method, **exposed, **keys})


# --- library and network ---


@pytest.mark.parametrize(
    ("library", "bad"),
    [
        ({"name": "nccl", "version": "2.27.3"}, False),
        ({"name": "NCCL", "version": "2.27.3"}, False),
        ({"name": "rccl", "version": "2.27.3"}, True),
        ({"name": "nccl", "version": "2.27"}, True),
        ({"name": "nccl", "version": None}, False),
        ({"name": "rccl", "version": None}, True),
        (None, False),
    ],
)
def test_library(findings: Findings, library: dict[str, str] | None, bad: bool) -> None:
    found = findings(plan=comm(library=library))
    assert of(found, "TS-COM-001") | of(found, "TS-COM-033") == ({f"{AT}.library"} if bad else set())


def test_library_of_a_cluster_without_software(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-COM-001", cluster={"software": None}) is Verdict.NOT_APPLICABLE
    unpinned = {"software": {"collective_library": {"version": None}}}
    assert verdict("TS-COM-001", cluster=unpinned) is Verdict.NOT_APPLICABLE


def test_a_library_without_a_version_is_not_judged(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-COM-001", plan=comm(library={"version": None})) is Verdict.NOT_APPLICABLE
    assert verdict("TS-COM-001") is Verdict.PASS


def test_names_of_fabric_and_nics(findings: Findings) -> None:
    assert of(findings(plan=comm(fabric="backnd")), "TS-COM-002") == {f"{AT}.fabric"}
    assert of(findings(plan=comm(nic_names=["rail", "rial"])), "TS-COM-002") == {f"{AT}.nic_names.1"}
    assert of(findings(plan=comm(nic_names=["storage"])), "TS-COM-002") == {f"{AT}.nic_names.0"}


def test_nics_of_another_fabric(findings: Findings) -> None:
    second = {"name": "front", "transport": "rocev2", "topology": "fat-tree"}
    assert of(findings(cluster={"fabrics": [second]}, plan=comm(fabric="front")), "TS-COM-002") == {f"{AT}.nic_names.0"}


# --- time-outs ---


@pytest.mark.parametrize(("timeout", "bad"), [(30, False), (1.5, False), (1, True), (0.03, True)])
def test_failover(findings: Findings, timeout: float, bad: bool) -> None:
    found = of(findings(plan=comm(timeout_seconds=timeout)), "TS-COM-003")
    assert found == ({f"{AT}.timeout_seconds"} if bad else set())


@pytest.mark.parametrize("timeout", [600, 1800, 0.03, 30000])
def test_defaults_of_frameworks_are_not_the_policy(findings: Findings, timeout: float) -> None:
    # PyTorch: 10 minutes with NCCL, 30 otherwise; the others are slipped units.
    assert of(findings(plan=comm(timeout_seconds=timeout)), "TS-COM-004") == {f"{AT}.timeout_seconds"}


@pytest.mark.parametrize(("step", "advice"), [(1.5, "set both to 30"), (45, "too short: set both to 600")])
def test_the_time_out_to_keep_outlasts_a_step(step: float, advice: str, findings: Findings, tmp_path: Path) -> None:
    performance = {"kind": "measured", "step_seconds": step}
    findings(plan=comm(timeout_seconds=600) | {"performance": performance})
    found = [one for one in validate([tmp_path]).findings if one.requirement == "TS-COM-004"]
    assert found
    assert advice in found[0].help


def test_a_policy_without_a_watchdog(verdict: Callable[..., Verdict]) -> None:
    layers = [{"layer": "launcher", "timeout_seconds": 5, "faults": ["process-loss"]}]
    policy = {"detection": None}
    assert verdict("TS-COM-004", checkpoint=policy | {"detection": layers}) is Verdict.PASS
    assert verdict("TS-COM-004", checkpoint=None) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("beat", "bad"), [(0.1, False), (15, False), (15.1, True)])
def test_heartbeats(findings: Findings, beat: float, bad: bool) -> None:
    assert bool(of(findings(plan=comm(heartbeat_seconds=beat)), "TS-COM-005")) is bad


@pytest.mark.parametrize(("timeout", "bad"), [(14.9, True), (15, False), (600, False)])
def test_a_timeout_outlasts_a_step(findings: Findings, timeout: float, bad: bool) -> None:
    plan = {**comm(timeout_seconds=timeout), "performance": {"kind": "predicted", "step_seconds": 15}}
    assert of(findings(plan=plan), "TS-COM-030") == ({f"{AT}.timeout_seconds"} if bad else set())


def test_a_timeout_is_not_judged_by_the_planned_time_of_the_job(findings: Findings) -> None:
    assert of(findings(plan=comm(timeout_seconds=29)), "TS-COM-030") == set()


# --- collectives ---


def test_rows_of_axes_without_traffic(findings: Findings) -> None:
    plan = rows({"operation": "all-gather", "axis": "context", "algorithm": "ring"})
    assert of(findings(plan=plan), "TS-COM-006") == {f"{AT}.collectives.0.axis"}
    plan = compress("quantised", axis="expert", wire_ratio=4)
    assert of(findings(plan=plan), "TS-COM-006") == {f"{AT}.compression.axis"}
    plan = compress("none", axis="expert")
    assert of(findings(plan=plan), "TS-COM-006") == set()


MIB = 2**20


@pytest.mark.parametrize(
    ("ranges", "bad"),
    [
        ([(None, None)], set()),
        ([(1 * MIB, None)], set()),
        ([(None, 32 * MIB), (32 * MIB, 512 * MIB), (512 * MIB, None)], set()),
        ([(512 * MIB, None), (None, 32 * MIB), (32 * MIB, 512 * MIB)], set()),
        ([(None, 32 * MIB), (33 * MIB, None)], {1}),
        ([(None, 33 * MIB), (32 * MIB, None)], {1}),
        ([(None, None), (None, None)], {1}),
        ([(1, 32 * MIB), (32 * MIB, None)], {0}),
        ([(None, 32 * MIB), (32 * MIB, 64 * MIB)], {1}),
        ([(64 * MIB, 32 * MIB)], {0}),
    ],
)
def test_ranges(findings: Findings, ranges: list[tuple[float | None, float | None]], bad: set[int]) -> None:
    base = {"operation": "all-reduce", "axis": "tensor", "algorithm": "ring"}
    plan = rows(*({**base, "min_bytes": low, "max_bytes": high} for low, high in ranges))
    assert of(findings(plan=plan), "TS-COM-007") == {f"{AT}.collectives.{index}" for index in bad}


def test_the_table_of_aws_for_32_ranks(findings: Findings) -> None:
    # all-reduce on p5en, 32 ranks (aws/aws-ofi-nccl@2daf7d30:src/tuner): three protocols of two algorithms.
    base = {"operation": "all-reduce", "axis": "data"}
    plan = rows(
        {**base, "algorithm": "tree", "protocol": "low-latency", "max_bytes": MIB / 4},
        {
            **base,
            "algorithm": "tree",
            "protocol": "low-latency-128",
            "min_bytes": MIB / 4,
            "max_bytes": 32 * MIB,
        },
        {
            **base,
            "algorithm": "ring",
            "protocol": "low-latency-128",
            "min_bytes": 32 * MIB,
            "max_bytes": 512 * MIB,
        },
        {**base, "algorithm": "ring", "protocol": "simple", "min_bytes": 512 * MIB},
        {"operation": "all-gather", "axis": "data", "algorithm": "ring"},
    )
    assert {identifier for identifier, _ in findings(plan=plan) if identifier.startswith("TS-COM")} == set()


@pytest.mark.parametrize(
    ("operation", "algorithm", "bad"),
    [
        ("all-reduce", "tree", False),
        ("all-gather", "tree", False),
        ("all-gather", "in-network-tree", True),
        ("all-to-all", "ring", False),
        ("all-to-all", "in-network", True),
        ("send-receive", "direct", False),
        ("send-receive", "ring", True),
        ("send-receive", "automatic", False),
        ("broadcast", "halving-doubling", True),
    ],
)
def test_algorithms(findings: Findings, operation: str, algorithm: str, bad: bool) -> None:
    plan = rows({"operation": operation, "axis": "tensor", "algorithm": algorithm})
    assert bool(of(findings(plan=plan), "TS-COM-008")) is bad


FULL = {"tensor": 8, "data": 4}
THIN = {"tensor": 2, "data": 16}


@pytest.mark.parametrize(
    ("axis", "algorithm", "degrees", "bad"),
    [
        ("tensor", "in-network", FULL, False),
        ("data", "in-network", FULL, True),
        ("data", "in-network-tree", FULL, True),
        ("data", "in-network-tree", THIN, False),
        ("data", "hierarchical", FULL, True),
        ("data", "hierarchical", THIN, False),
        ("tensor", "hierarchical", FULL, True),
        ("tensor", "torus", FULL, True),
    ],
)
def test_hardware(findings: Findings, axis: str, algorithm: str, degrees: dict[str, int], bad: bool) -> None:
    plan = {**rows({"operation": "all-reduce", "axis": axis, "algorithm": algorithm}), "parallelism": degrees}
    cluster = {"fabrics": [{"name": "backend", "in_network_reduction": False}]}
    found = of(findings(cluster=cluster, plan=plan), "TS-COM-009")
    assert found == ({f"{AT}.collectives.0.algorithm"} if bad else set())


def test_a_fabric_that_reduces(findings: Findings) -> None:
    cluster = {"fabrics": [{"name": "backend", "in_network_reduction": True}]}
    plan = rows({"operation": "all-reduce", "axis": "data", "algorithm": "in-network"})
    assert of(findings(cluster=cluster, plan=plan), "TS-COM-009") == set()


def test_two_levels_need_two_members(findings: Findings) -> None:
    place = {f"{AT}.hierarchical_reduction"}
    assert of(findings(plan=comm(hierarchical_reduction=True)), "TS-COM-009") == place
    plan = {**comm(hierarchical_reduction=True), "parallelism": {"tensor": 2, "data": 16}}
    assert of(findings(plan=plan), "TS-COM-009") == set()


@pytest.mark.parametrize(
    ("sharding", "operations", "bad"),
    [
        ("none", {"all-reduce"}, False),
        ("none", {"reduce-scatter", "all-gather"}, False),
        ("none", {"reduce-scatter"}, True),
        ("optimizer", {"all-reduce", "all-gather"}, False),
        ("optimizer", {"reduce-scatter", "broadcast"}, False),
        ("optimizer", {"all-reduce"}, True),
        ("parameters", {"all-gather", "reduce-scatter"}, False),
        ("parameters", {"all-gather", "all-to-all"}, False),
        ("parameters", {"all-gather", "all-reduce"}, True),
    ],
)
def test_sharding(findings: Findings, sharding: str, operations: set[str], bad: bool) -> None:
    choices = [{"operation": name, "axis": "data", "algorithm": "automatic"} for name in sorted(operations)]
    plan = {**rows(*choices), "parallelism": {"sharding": sharding}}
    assert of(findings(plan=plan), "TS-COM-010") == ({f"{AT}.collectives"} if bad else set())


# --- gradients ---


def test_overlap_is_said(findings: Findings, verdict: Callable[..., Verdict]) -> None:
    assert of(findings(plan=comm(overlap_parameters=None)), "TS-COM-011") == {AT}
    unsharded = {**comm(overlap_parameters=None), "parallelism": {"sharding": "none"}}
    assert of(findings(plan=unsharded), "TS-COM-011") == set()
    assert of(findings(plan=comm(overlap_gradients=False)), "TS-COM-011") == set()
    assert verdict("TS-COM-011", plan={"parallelism": {"data": 1}}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("size", "overlap", "bad"),
    [
        (25 * MIB, True, False),
        (160e6, True, False),
        (500e6 * 4, True, False),
        (99e3, True, True),
        (8.8e9, True, False),
        (8.9e9, True, True),
        (8.9e9, False, False),
    ],
)
def test_buckets(findings: Findings, size: float, overlap: bool, bad: bool) -> None:
    # DistributedDataParallel, Megatron-LM (40 million fp32), DeepSpeed (500 million fp32), and the edges.
    found = of(findings(plan=comm(bucket_bytes=size, overlap_gradients=overlap)), "TS-COM-012")
    assert found == ({f"{AT}.bucket_bytes"} if bad else set())


def test_weights_follow_shares(findings: Findings, verdict: Callable[..., Verdict]) -> None:
    shares = [{"num_data_ranks": 2, "sequences_per_rank": n} for n in (144, 112)]
    plan = {**comm(gradient_averaging="divide-before"), "batch": {"worker_shares": shares}}
    assert of(findings(plan=plan), "TS-COM-013") == {f"{AT}.gradient_averaging"}
    unsaid = {**comm(gradient_averaging=None), "batch": {"worker_shares": shares}}
    assert of(findings(plan=unsaid), "TS-COM-013") == {AT}
    even = [{"num_data_ranks": 2, "sequences_per_rank": 128} for _ in range(2)]
    assert verdict("TS-COM-013", plan={"batch": {"worker_shares": even}}) is Verdict.NOT_APPLICABLE


def test_half_precision_sums(findings: Findings) -> None:
    assert of(findings(plan=compress("fp16", wire_ratio=2)), "TS-COM-014") == {f"{AT}.gradient_averaging"}
    assert of(findings(plan=compress("bf16", wire_ratio=2)), "TS-COM-014") == set()
    plan = {**comm(gradient_averaging="divide-before"), "precision": {"reduction": "fp16"}}
    assert of(findings(plan=plan), "TS-COM-014") == set()


# --- compression ---


@pytest.mark.parametrize(
    ("method", "keys", "place"),
    [
        ("power-sgd", {"rank": 4}, None),
        ("power-sgd", {}, ""),
        ("power-sgd", {"rank": 4, "density": 0.1}, ".density"),
        ("top-k", {"density": 0.01}, None),
        ("top-k", {"rank": 1}, ".rank"),
        ("other", {"rank": 4, "density": 0.1}, None),
        ("none", {"wire_ratio": 4}, ".wire_ratio"),
        ("none", {}, None),
    ],
)
def test_parameters(findings: Findings, method: str, keys: dict[str, Any], place: str | None) -> None:
    found = of(findings(plan=compress(method, **keys)), "TS-COM-015")
    assert place is None or f"{AT}.compression{place}" in found
    assert bool(found) is (place is not None)


@pytest.mark.parametrize(
    ("method", "keys", "place"),
    [
        ("one-bit", {"error_feedback": True}, None),
        ("sign", {}, "method"),
        ("power-sgd", {}, "method"),
        ("top-k", {"error_feedback": True, "unbiased": True}, None),
        ("quantised", {"unbiased": True}, None),
        ("quantised", {"unbiased": False}, "method"),
        ("int4", {}, None),
        ("bf16", {"unbiased": False}, None),
    ],
)
def test_feedback(findings: Findings, method: str, keys: dict[str, Any], place: str | None) -> None:
    found = of(findings(plan=compress(method, **keys)), "TS-COM-016")
    assert found == ({f"{AT}.compression.{place}"} if place else set())


@pytest.mark.parametrize(
    ("method", "unbiased", "is_wrong"), [("top-k", True, True), ("top-k", False, False), ("quantised", True, False)]
)
def test_bias(findings: Findings, method: str, unbiased: bool, is_wrong: bool) -> None:
    found = of(findings(plan=compress(method, error_feedback=True, unbiased=unbiased)), "TS-COM-034")
    assert found == ({f"{AT}.compression.unbiased"} if is_wrong else set())


@pytest.mark.parametrize(
    ("keys", "elastic", "places"),
    [
        ({"residual_checkpointed": True}, False, set()),
        ({"residual_checkpointed": False}, False, {".residual_checkpointed"}),
        ({}, False, {""}),
        ({"residual_checkpointed": True}, True, {""}),
        ({"residual_checkpointed": True, "residual_on_resize": "refuse"}, True, {".residual_on_resize"}),
        ({"residual_checkpointed": True, "residual_on_resize": "reset"}, True, set()),
    ],
)
def test_residuals(findings: Findings, keys: dict[str, Any], elastic: bool, places: set[str]) -> None:
    plan = compress("one-bit", error_feedback=True, start_step=100, wire_ratio=16, **keys)
    if elastic:
        plan["batch"] = {"elastic": {"data_degrees": [2, 4], "micro_sequences": [1, 2]}}
    assert of(findings(plan=plan), "TS-COM-017") == {f"{AT}.compression{place}" for place in places}


def test_residuals_in_the_policy(findings: Findings, verdict: Callable[..., Verdict]) -> None:
    kept = compress("one-bit", error_feedback=True, residual_checkpointed=True)
    saved = {"state": {"items": [*ITEMS, "config-digest", "compression-residuals"]}}
    assert of(findings(plan=kept, checkpoint=saved), "TS-COM-018") == set()
    assert of(findings(plan=kept), "TS-COM-018") == {"state.items"}
    assert of(findings(checkpoint=saved), "TS-COM-018") == {"state.items"}
    assert verdict("TS-COM-018") is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("method", "keys", "ratio", "bad"),
    [
        ("fp16", {}, 2, False),
        ("bf16", {}, 4, True),
        ("int4", {}, 7.75, False),
        ("int8", {}, 4, False),
        ("one-bit", {}, 32, False),
        ("one-bit", {}, 100, True),
        ("top-k", {"density": 0.001}, 600, False),
        ("top-k", {"density": 0.001}, 1000, True),
        ("top-k", {"density": 0.01}, 33, False),
        ("top-k", {"density": 0.01}, 100, True),
        ("random-k", {"density": 0.01}, 100, False),
        ("random-k", {"density": 0.01}, 110, True),
        ("power-sgd", {"rank": 4}, 200, False),
        ("power-sgd", {"rank": 4}, 10_000, True),
        ("quantised", {}, 500, False),
        ("top-k", {"density": 0.01}, None, True),
    ],
)
def test_ratios(findings: Findings, method: str, keys: dict[str, Any], ratio: float | None, bad: bool) -> None:
    # 1-bit Adam, Deep Gradient Compression at 0.1 %, PowerSGD; gradients accumulate in fp32 here.
    found = of(findings(plan=compress(method, wire_ratio=ratio, **keys)), "TS-COM-019")
    assert bool(found) is bad


def test_ratio_against_sixteen_bit_gradients(findings: Findings) -> None:
    narrow = {"precision": {"gradients": "bf16", "accumulation": "bf16"}}
    assert of(findings(plan={**compress("int4", wire_ratio=4), **narrow}), "TS-COM-019") == set()
    assert of(findings(plan={**compress("int4", wire_ratio=7.75), **narrow}), "TS-COM-019") != set()


def test_casts_and_sums(findings: Findings) -> None:
    plan = {**compress("bf16", wire_ratio=2), "precision": {"reduction": "bf16"}}
    assert of(findings(plan=plan), "TS-COM-020") == set()
    assert of(findings(plan=compress("fp16", wire_ratio=2)), "TS-COM-020") == {f"{AT}.compression.method"}
    assert of(findings(plan=compress("bf16", wire_ratio=2, axis="tensor")), "TS-COM-020") == set()
    for algorithm, places in {"ring": {f"{AT}.compression.method"}, "in-network-tree": set()}.items():
        plan = compress("bf16", wire_ratio=2)
        rows = [{"operation": "reduce-scatter", "axis": "data", "algorithm": algorithm}]
        plan["communication"]["collectives"] = rows
        assert of(findings(plan=plan), "TS-COM-020") == places


@pytest.mark.parametrize(
    ("method", "start", "place"),
    [
        ("power-sgd", 2, None),
        ("power-sgd", 1, ".start_step"),
        ("power-sgd", None, ""),
        ("one-bit", 3000, None),
        ("int8", None, None),
        ("int8", 1, None),
        ("int8", 20001, ".start_step"),
        ("one-bit", 20001, ".start_step"),
    ],
)
def test_start(findings: Findings, method: str, start: int | None, place: str | None) -> None:
    found = of(findings(plan=compress(method, start_step=start)), "TS-COM-021")
    assert found == (set() if place is None else {f"{AT}.compression{place}"})


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [(0.3, 0.1, None), (0.3, None, ""), (None, None, ""), (0.1, 0.1, ".exposed_fraction_after")],
)
def test_exposure(findings: Findings, before: float | None, after: float | None, place: str | None) -> None:
    plan = compress("int8", exposed_fraction_before=before, exposed_fraction_after=after)
    assert of(findings(plan=plan), "TS-COM-022") == (set() if place is None else {f"{AT}.compression{place}"})


@pytest.mark.parametrize(
    ("after", "claim", "bad"), [(0.1, 1.28, False), (0.1, 1.32, True), (None, 1.42, False), (None, 1.5, True)]
)
def test_speedups(findings: Findings, after: float | None, claim: float, bad: bool) -> None:
    plan = compress("int8", exposed_fraction_after=after, expected_speedup=claim)
    assert bool(of(findings(plan=plan), "TS-COM-023")) is bad


def test_one_bit_adam_on_slow_ethernet(findings: Findings) -> None:
    # 3.5 times faster at an effective 4.1 Gb/s needs a step that waits 72 % of its time at the least.
    for before, bad in ((0.75, False), (0.5, True)):
        plan = compress("one-bit", exposed_fraction_before=before, exposed_fraction_after=0.0, expected_speedup=3.5)
        assert bool(of(findings(plan=plan), "TS-COM-023")) is bad


@pytest.mark.parametrize(("seeds", "bad"), [(None, True), (1, True), (2, True), (3, False)])
def test_seeds(findings: Findings, seeds: int | None, bad: bool) -> None:
    plan = compress("int8", loss_tolerance=0.01, num_seeds=seeds)
    assert bool(of(findings(plan=plan), "TS-COM-024")) is bad


@pytest.mark.parametrize("number", [*range(1, 15), *range(15, 18), *range(19, 25)])
def test_silence_about_communication_is_nothing_to_judge(verdict: Callable[..., Verdict], number: int) -> None:
    assert verdict(f"TS-COM-{number:03}", plan={"communication": None}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("theirs", "mine", "found"),
    [
        ("nccl", "nccl", set()),
        ("rccl", None, {"TS-CLU-075"}),
        ("oneCCL", None, {"TS-CLU-075"}),
        ("mpich", None, set()),
        ("ncclx", None, set()),
        (None, "oneccl", {"TS-COM-033"}),
        ("nccl", "gloo", {"TS-COM-001"}),
        (None, "gloo", set()),
        ("rccl", "nccl", {"TS-CLU-075", "TS-COM-001"}),
        ("nccl", "hccl", {"TS-COM-033"}),
    ],
)
def test_libraries_run_on_accelerators_of_their_maker(findings: Findings, theirs, mine, found) -> None:
    cluster = {"software": {"collective_library": {"name": theirs} if theirs else None}}
    plan = {"communication": {"library": {"name": mine} if mine else None}}
    judged = findings(cluster=cluster, plan=plan, select=("TS-CLU-075", "TS-COM-001", "TS-COM-033"))
    assert {requirement for requirement, _ in judged} == found


def test_the_maker_of_an_unlisted_accelerator_decides_where_it_is_given(findings: Findings) -> None:
    for vendor, wrong in ((None, False), ("amd", True), ("AMD", True), ("intel", True), ("hygon", False)):
        group = {"name": "compute", "accelerator": {"model": "some-device", "vendor": vendor}}
        found = findings(cluster={"node_groups": [group]}, plan=None, checkpoint=None, select=("TS-CLU-075",))
        assert found == ({("TS-CLU-075", "software.collective_library.name")} if wrong else set())
