"""The memory plan: formats of real frameworks, measured jobs, capacities at their edge, nothing to judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

NO_MEMORY = {"memory": None}


def memory(**keys: Any) -> dict[str, Any]:
    return {"memory": keys}


def offload(*entries: dict[str, Any]) -> dict[str, Any]:
    return memory(offload=list(entries))


def host(**keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "host": keys}]}


OPTIMIZER = {"what": "optimizer", "target": "host", "fraction": 1}


@pytest.mark.parametrize(
    ("formats", "sharding", "stated", "right"),
    [
        ({}, "optimizer", 18, True),
        ({}, "optimizer", 18.2, True),
        ({}, "optimizer", 16, False),
        ({}, "parameters", 16, True),  # FSDP gathers bf16 weights and keeps fp32 ones
        ({"gradients": "bf16"}, "optimizer", 18, True),
        ({"gradients": "bf16"}, "optimizer", 16, True),
        ({"gradients": "bf16"}, "optimizer", 20, True),  # both copies of the gradient
        ({"parameters": "fp32"}, "optimizer", 20, True),
        ({"parameters": "fp32"}, "optimizer", 16, True),  # the master copy is the parameter
        ({"optimizer_state": "int8"}, "optimizer", 12, True),
        ({"num_optimizer_moments": 1}, "optimizer", 14, True),
        ({"num_optimizer_moments": 1}, "optimizer", 18, False),
    ],
)
def test_state_bytes(findings, formats, sharding, stated, right) -> None:
    plan = {
        "precision": formats,
        "parallelism": {"sharding": sharding},
        **memory(state_bytes_per_parameter=stated),
    }
    found = findings(plan=plan, select=("TS-MEM-001",))
    assert found == (set() if right else {("TS-MEM-001", "memory.state_bytes_per_parameter")})


# Measured GiB of pytorch/torchtitan on H100 with 96 GB: parameters, tensor, pipeline, data ranks, peak.
TORCHTITAN = [
    (8.03e9, 1, 1, 8, 77.0),
    (8.03e9, 1, 1, 128, 67.0),
    (8.03e9, 1, 1, 128, 62.0),
    (70.55e9, 8, 1, 32, 67.6),
    (405.85e9, 8, 8, 8, 82.5),
    (405.85e9, 8, 8, 8, 72.7),
]


@pytest.mark.parametrize("row", TORCHTITAN)
def test_measured_jobs_pass(findings, row) -> None:
    parameters, tensor, pipeline, data, gibibytes = row
    plan = {
        "model": {"num_parameters": parameters},
        "parallelism": {
            "num_accelerators": tensor * pipeline * data,
            "tensor": tensor,
            "pipeline": pipeline,
            "data": data,
            "sharding": "parameters",
        },
        **memory(predicted_peak_bytes=gibibytes * 2**30, reserve_bytes=3 * 2**30),
    }
    cluster = {"node_groups": [{"name": "compute", "accelerator": {"memory_bytes": 96e9}}]}
    select = ("TS-MEM-002", "TS-MEM-003", "TS-MEM-004", "TS-MEM-005")
    assert findings(plan=plan, cluster=cluster, select=select) == set()


# The bound of the base plan: (2 + 4 + 12/4) bytes of 70.55e9 parameters over 32 ranks.
BOUND = (6 + 12 / 4) * 70.55e9 / 32
MEMORY = 81559 * 2**20
"""Memory that an H100 reports."""


@pytest.mark.parametrize(("spare", "wrong"), [(MEMORY - BOUND - 1e6, False), (MEMORY - BOUND + 1e6, True)])
def test_state_and_reserve_fill_the_device(findings, spare, wrong) -> None:
    found = findings(plan=memory(reserve_bytes=spare), select=("TS-MEM-002",))
    assert found == ({("TS-MEM-002", "memory.reserve_bytes")} if wrong else set())


@pytest.mark.parametrize(("peak", "wrong"), [(BOUND + 1, False), (BOUND - 1, True)])
def test_a_peak_is_at_least_the_state(findings, peak, wrong) -> None:
    found = findings(plan=memory(predicted_peak_bytes=peak), select=("TS-MEM-003",))
    assert found == ({("TS-MEM-003", "memory.predicted_peak_bytes")} if wrong else set())


def test_an_unsharded_model_does_not_fit(findings) -> None:
    plan = {"parallelism": {"tensor": 1, "pipeline": 1, "data": 128, "sharding": "none"}, **NO_MEMORY}
    assert findings(plan=plan, select=("TS-MEM-002",)) == {("TS-MEM-002", "model.num_parameters")}


def test_adapters_have_no_optimizer_for_the_rest(findings) -> None:
    # LoRA of 70 billion parameters on eight ranks of 80 GB: 17.6 GB of weights and a little.
    plan = {
        "num_parameters_trained": 40e6,
        "parallelism": {"num_accelerators": 8, "tensor": 8, "pipeline": 1, "data": 1, "sharding": "none"},
        **NO_MEMORY,
    }
    assert findings(plan=plan, select=("TS-MEM-002",)) == set()
    plan["num_parameters_trained"] = None
    assert findings(plan=plan, select=("TS-MEM-002",)) == {("TS-MEM-002", "model.num_parameters")}


def test_offloaded_state_is_not_on_the_device(findings) -> None:
    plan = {"model": {"num_parameters": 500e9}, **memory(offload=[OPTIMIZER], predicted_peak_bytes=None)}
    assert findings(plan=plan, select=("TS-MEM-002",)) == {("TS-MEM-002", "model.num_parameters")}
    plan["model"] = {"num_parameters": 400e9}
    assert findings(plan=plan, select=("TS-MEM-002",)) == set()


def test_experts_are_split_over_expert_ranks(findings) -> None:
    # DeepSeek-V3: 671 billion parameters, 16 stages, 64 expert ranks, 128 data ranks, ZeRO-1.
    plan = {
        "model": {
            "family": "moe-transformer",
            "num_parameters": 671e9,
            "experts": {"num_experts": 256, "num_active_experts": 8},
        },
        "parallelism": {
            "num_accelerators": 2048,
            "tensor": 1,
            "pipeline": 16,
            "data": 128,
            "expert": 64,
            "sharding": "optimizer",
        },
        **NO_MEMORY,
    }
    assert findings(plan=plan, select=("TS-MEM-002",)) == set()


def test_ranks_share_a_package(findings) -> None:
    cluster = {"node_groups": [{"name": "compute", "accelerator": {"num_ranks_per_accelerator": 2}}]}
    found = findings(plan=memory(predicted_peak_bytes=40e9), cluster=cluster, select=("TS-MEM-004",))
    assert found == {("TS-MEM-004", "memory.predicted_peak_bytes")}


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"reserve_bytes": 3 * 2**30}, None),
        ({"reserve_bytes": 3e9}, "memory.reserve_bytes"),
        ({"reserve_bytes": None}, "memory"),
        ({"reserve_bytes": None, "allocator": "arena"}, None),
        ({"reserve_bytes": None, "predicted_peak_bytes": None}, None),
        ({"reserve_bytes": 6, "predicted_peak_bytes": None}, "memory.reserve_bytes"),
        ({"reserve_bytes": 0, "predicted_peak_bytes": None}, "memory.reserve_bytes"),
        ({"reserve_bytes": 6, "predicted_peak_bytes": None, "allocator": "arena"}, None),
    ],
)
def test_reserve(findings, keys, place) -> None:
    found = findings(plan=memory(**keys), select=("TS-MEM-005",))
    assert found == ({("TS-MEM-005", place)} if place else set())


@pytest.mark.parametrize("requirement", [f"TS-MEM-{n:03}" for n in (7, 8, 9, 10, 11, 12, 15, 16, 17, 18)])
def test_the_base_plan_has_nothing_to_judge(verdict, requirement) -> None:
    assert verdict(requirement) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("requirement", [f"TS-MEM-{n:03}" for n in (*range(3, 17), 18, 1)])
def test_a_plan_without_memory_is_not_judged(verdict, requirement) -> None:
    assert verdict(requirement, plan=NO_MEMORY) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("parallelism", "stated", "right"),
    [
        ({"schedule": "1f1b"}, 4, True),
        ({"schedule": "gpipe"}, 128, True),
        ({"schedule": "interleaved-1f1b", "num_virtual_stages": 2}, 6, True),
        ({"schedule": "interleaved-1f1b", "num_virtual_stages": 2}, 4, False),
        ({"schedule": "zero-bubble"}, 9, True),
        ({"schedule": None, "pipeline": 1}, 2, False),
    ],
)
def test_micro_batches_in_flight(findings, parallelism, stated, right) -> None:
    plan = {"parallelism": parallelism, **memory(micro_batches_in_flight=stated)}
    found = findings(plan=plan, select=("TS-MEM-008",))
    assert found == (set() if right else {("TS-MEM-008", "memory.micro_batches_in_flight")})


@pytest.mark.parametrize(
    ("policy", "entries", "wrong"),
    [
        ("offload", [], True),
        ("offload", [{"what": "optimizer", "target": "host", "fraction": 0.5}], True),
        ("selective", [{"what": "activations", "target": "host", "fraction": 0.5}], False),
        ("full", [{"what": "activations", "target": "host", "fraction": 1}], False),
        ("offload", [{"what": "activations", "target": "host", "fraction": 0.5}], False),
    ],
)
def test_activations_leave_by_policy(findings, policy, entries, wrong) -> None:
    """Recomputation with inputs of layers on the host is published: `decoder_layer_input: offload` of MaxText
    (AI-Hypercomputer/tpu-recipes, Llama3.1-70B on v6e-256), `cpu_checkpointing` of DeepSpeed."""
    found = findings(plan=memory(activation_policy=policy, offload=entries), select=("TS-MEM-031",))
    assert found == ({("TS-MEM-031", "memory.activation_policy")} if wrong else set())


def test_host_memory_is_shared_by_the_ranks_of_a_node(findings) -> None:
    # 12 bytes of 70.55e9 parameters over 128 ranks are 6.6 GB each, 53 GB of eight ranks.
    assert findings(plan=offload(OPTIMIZER), cluster=host(memory_bytes=53e9), select=("TS-MEM-010",)) == set()
    found = findings(plan=offload(OPTIMIZER), cluster=host(memory_bytes=52e9), select=("TS-MEM-010",))
    assert found == {("TS-MEM-010", "memory.offload.0.target")}


def test_local_disk_is_one_that_the_cluster_has(findings) -> None:
    plan = offload({**OPTIMIZER, "target": "local-disk"})
    targets = [{"name": "node-disk", "kind": "block"}]
    found = findings(plan=plan, cluster={"storage_targets": targets}, checkpoint=None, select=("TS-MEM-010",))
    assert found == {("TS-MEM-010", "memory.offload.0.target")}


@pytest.mark.parametrize(
    ("traffic", "cluster", "wrong"),
    [
        (2 * 63e9 * 30, {}, False),
        (2 * 63e9 * 31, {}, True),
        (
            2 * 63e9 * 16,
            {"num_devices_per_upstream_link": 2, "upstream_bandwidth_bytes_per_second": 63e9},
            True,
        ),
        (2 * 63e9 * 31, {"technology": "nvlink-c2c", "bandwidth_bytes_per_second": None}, False),
        (2 * 63e9 * 31, {"generation": 6, "bandwidth_bytes_per_second": None}, False),
    ],
)
def test_traffic_fits_through_the_link(findings, traffic, cluster, wrong) -> None:
    group = {"node_groups": [{"name": "compute", "host_link": cluster}]}
    plan = offload({**OPTIMIZER, "bytes_per_step": traffic})
    found = findings(plan=plan, cluster=group, select=("TS-MEM-011",))
    assert found == ({("TS-MEM-011", "memory.offload.0.bytes_per_step")} if wrong else set())


@pytest.mark.parametrize(("num_ranks", "wrong"), [(1, False), (2, True)])
def test_ranks_of_one_accelerator_share_its_link(findings, num_ranks, wrong) -> None:
    shared = {"name": "compute", "accelerator": {"num_ranks_per_accelerator": num_ranks}}
    plan = offload({**OPTIMIZER, "bytes_per_step": 2 * 63e9 * 20})
    found = findings(plan=plan, cluster={"node_groups": [shared]}, select=("TS-MEM-011",))
    assert found == ({("TS-MEM-011", "memory.offload.0.bytes_per_step")} if wrong else set())


def test_offload_of_megatron_bridge(findings) -> None:
    # NVIDIA-NeMo/Megatron-Bridge docs: Qwen3-30B-A3B on 16 GPUs, all of the optimizer offloaded.
    plan = {
        "model": {"num_parameters": 30.5e9, "num_active_parameters": 3.3e9},
        "parallelism": {"num_accelerators": 16, "tensor": 1, "pipeline": 1, "data": 16},
        **offload({**OPTIMIZER, "bytes_per_step": 11.5e9}),
    }
    assert findings(plan=plan, select=("TS-MEM-010", "TS-MEM-011", "TS-MEM-012")) == set()
    plan["memory"]["offload"][0]["bytes_per_step"] = 11.5e6
    assert findings(plan=plan, select=("TS-MEM-012",)) == {("TS-MEM-012", "memory.offload.0.bytes_per_step")}


@pytest.mark.parametrize(("pinned", "wrong"), [(0.9 * 2e12 / 8, False), (0.91 * 2e12 / 8, True)])
def test_pinned_memory(findings, pinned, wrong) -> None:
    found = findings(plan=memory(pinned_host_bytes=pinned), select=("TS-MEM-013",))
    assert found == ({("TS-MEM-013", "memory.pinned_host_bytes")} if wrong else set())


@pytest.mark.parametrize(
    ("keys", "places"),
    [
        ({"prefetch_depth": 0}, {"memory.prefetch_depth"}),
        ({"prefetch_depth": None}, set()),
        ({"pinned_input": None, "prefetch_depth": 0}, {"memory.prefetch_depth"}),
        ({"asynchronous_copies": False, "pinned_input": False, "prefetch_depth": 0}, set()),
    ],
)
def test_prefetch(findings, keys, places) -> None:
    assert findings(plan=memory(**keys), select=("TS-MEM-014",)) == {("TS-MEM-014", place) for place in places}


@pytest.mark.parametrize(
    ("technology", "wrong"),
    [
        ("pcie", True),
        ("nvlink-c2c", False),
        ("infinity-fabric", False),
        ("coherent", False),
        ("other", False),
    ],
)
def test_coherent_memory(findings, technology, wrong) -> None:
    cluster = {"node_groups": [{"name": "compute", "host_link": {"technology": technology}}]}
    found = findings(plan=memory(unified_memory="coherent"), cluster=cluster, select=("TS-MEM-015",))
    assert found == ({("TS-MEM-015", "memory.unified_memory")} if wrong else set())


@pytest.mark.parametrize(("workers", "wrong"), [(12, False), (13, True)])
def test_loader_workers(findings, workers, wrong) -> None:
    found = findings(plan=memory(num_loader_workers=workers), select=("TS-MEM-016",))
    assert found == ({("TS-MEM-016", "memory.num_loader_workers")} if wrong else set())


# One rank of the base plan reads 1,048,576 tokens in a step.
@pytest.mark.parametrize(("each", "wrong"), [(1.9, True), (2, False), (32, False), (64, False), (8192, True)])
def test_input_bytes(findings, each, wrong) -> None:
    found = findings(plan=memory(input_bytes_per_step=each * 1048576), select=("TS-MEM-018",))
    assert found == ({("TS-MEM-018", "memory.input_bytes_per_step")} if wrong else set())


def test_a_group_without_room_for_the_job_does_not_hide_the_one_with_room(verdict, findings) -> None:
    second = {
        "name": "other",
        "num_nodes": 1,
        "num_accelerators_per_node": 8,
        "accelerator": {"model": "own"},
    }
    cluster = {"node_groups": [{"name": "compute"}, second]}
    assert verdict("TS-MEM-004", cluster=cluster) is Verdict.PASS
    for named in ({"node_group": "compute"}, {}):
        plan = {**named, **memory(predicted_peak_bytes=84e9)}
        assert findings(plan=plan, cluster=cluster, select=("TS-MEM-004",)) == {
            ("TS-MEM-004", "memory.predicted_peak_bytes")
        }


@pytest.mark.parametrize(("pinned", "wrong"), [(6.9e9, True), (7e9, False), (8e9, False)])
def test_pinned_memory_stages_an_asynchronous_save(
    findings: Callable[..., set[tuple[str, str]]], pinned: float, wrong: bool
) -> None:
    """988 GB over 128 ranks are 7.72 GB each."""
    plan = {"memory": {"pinned_host_bytes": pinned}}
    assert bool(findings(plan=plan, select=("TS-MEM-019",))) is wrong
    synchronous = {"save": {"mode": "synchronous", "persist_seconds_p95": None}}
    assert findings(plan=plan, checkpoint=synchronous, select=("TS-MEM-019",)) == set()
