"""Memory by prediction: what fits, what a stated peak can be, and traffic over the host link."""

from __future__ import annotations

import re
from typing import Any

import pytest
from predicted_documents import EXAMPLES, checkpoint, cluster, places, plan, violations

from trainspec_validate.performance.derived.cluster import capacity_bytes
from trainspec_validate.rules import NotApplicable, Unresolved

UNSTATED = {"predicted_peak_bytes": None, "peak_view": None}
POLICY = ("memory", "activation_policy")
PEAK = ("memory", "predicted_peak_bytes")
PART = r"([\d.]+) GB (weights|gradients|optimizer state|activations)"


def micro(sequences: int, policy: str = "none", **keys: Any) -> dict[str, Any]:
    return {
        "batch": {"micro_sequences": sequences, "accumulation_steps": 128 // sequences},
        "memory": {"activation_policy": policy, **UNSTATED, **keys},
    }


@pytest.mark.parametrize(
    ("sequences", "policy", "fits"),
    [(1, "none", True), (2, "none", True), (4, "none", False), (4, "full", True), (8, "selective", False)],
)
def test_micro_batches(sequences: int, policy: str, fits: bool) -> None:
    assert places("TS-MEM-020", plan(micro(sequences, policy)), cluster()) == ([] if fits else [POLICY])


def test_the_finding_shows_the_parts_and_a_change_that_fits() -> None:
    (found,) = violations("TS-MEM-020", plan(micro(4)), cluster())
    assert "a rank of stage 0 is predicted to need" in found.message
    assert "has 85.52 GB: " in found.message
    sizes = {name: float(size) for size, name in re.findall(PART, found.message)}
    [total, spare] = map(float, re.findall(r"([\d.]+) GB over 1\.12, .* and ([\d.]+) GB", found.message)[0])
    assert sum(sizes.values()) == pytest.approx(total, rel=1e-3)
    [least] = map(float, re.findall(r"need ([\d.]+) GB", found.message))
    assert total / 1.12 + spare == pytest.approx(least, rel=1e-3)
    for part in ("weights", "gradients", "optimizer state", "activations"):
        assert part in found.message
    assert found.help.startswith(("set activation_policy: selective: ", "set micro_sequences: 2 and"))


def test_the_change_that_is_named_does_fit() -> None:
    (found,) = violations("TS-MEM-020", plan(micro(8, "selective")), cluster())
    assert found.help.startswith("set activation_policy: full: ")
    assert places("TS-MEM-020", plan(micro(8, "full")), cluster()) == []


def test_a_plan_that_fits_by_the_lean_reading_alone_is_not_judged() -> None:
    words = r"is predicted to need 128.1 GB of the 85.52 GB of a rank, and 66.04 GB if"
    with pytest.raises(Unresolved, match=words) as raised:
        violations("TS-MEM-020", plan(micro(4, "selective")), cluster())
    assert raised.value.cause == "absent"
    assert raised.value.help == "measure one step, and state predicted_peak_bytes"


def test_inputs_of_layers_on_the_host_are_counted_with_recomputation() -> None:
    """With full recomputation only inputs of layers are kept; on the host they leave room for more sequences."""
    away = {"offload": [{"what": "activations", "target": "host", "fraction": 1}]}
    assert places("TS-MEM-020", plan(micro(32, "full")), cluster()) == [POLICY]
    assert places("TS-MEM-020", plan(micro(32, "full", **away)), cluster()) == []
    assert places("TS-MEM-020", plan(micro(32, "offload", **away)), cluster()) == []
    few = {"offload": [{"what": "activations", "target": "host", "fraction": 0.05}]}
    assert places("TS-MEM-020", plan(micro(32, "full", **few)), cluster()) == [POLICY]


def test_tokens_may_be_divided_over_the_tensor_ranks_where_the_plan_does_not_say() -> None:
    """Llama 3 405B on 16,384 accelerators, of which nothing says whether sequence parallelism was in use."""
    machine = cluster(path=EXAMPLES / "clusters" / "meta-llama3-24k.yaml")
    found = {}
    for stated in (True, False):
        keys = {"schedule": "1f1b", "sequence": stated}
        document = plan({"parallelism": keys}, path=EXAMPLES / "plans" / "llama3-405b-16384.yaml")
        found[stated] = violations("TS-MEM-020", document, machine)
    open_plan = plan({"parallelism": {"schedule": "1f1b"}}, path=EXAMPLES / "plans" / "llama3-405b-16384.yaml")
    with pytest.raises(Unresolved, match=r"needs 73.83 GB where they do and 186.3 GB where they do not"):
        violations("TS-MEM-020", open_plan, machine)
    assert found[True] == []
    (one,) = found[False]
    assert one.help.startswith("set ")


def test_sharding_is_named_where_recomputation_does_not_suffice() -> None:
    documents = {
        "parallelism": {"data": 8, "pipeline": 2, "sharding": "none"},
        "batch": {"accumulation_steps": 64},
        "memory": {"activation_policy": "full", "reserve_bytes": 0, **UNSTATED},
        "precision": {"master_parameters": None, "gradients": "bf16", "accumulation": "bf16"},
    }
    small = cluster({"node_groups": [{"name": "compute", "accelerator": {"memory_bytes": 54e9}}]})
    (found,) = violations("TS-MEM-020", plan(documents), small)
    assert found.help.startswith("set sharding: optimizer: ")


def test_what_is_left_to_other_rules() -> None:
    with pytest.raises(NotApplicable, match="states a peak"):
        violations("TS-MEM-020", plan(micro(4, predicted_peak_bytes=60e9)), cluster())
    with pytest.raises(NotApplicable, match="not even the state"):
        violations("TS-MEM-020", plan(micro(4) | {"model": {"num_parameters": 400e9}}), cluster())
    with pytest.raises(NotApplicable, match="no formula"):
        violations("TS-MEM-020", plan(micro(4) | {"parallelism": {"schedule": "other"}}), cluster())
    experts = {"num_experts": 8, "num_active_experts": 2, "ffn_hidden_size": 2048}
    mixture = {"model": {"family": "moe-transformer", "experts": experts}}
    with pytest.raises(NotApplicable, match="mixtures of experts"):
        violations("TS-MEM-020", plan(micro(4) | mixture), cluster())
    with pytest.raises(NotApplicable, match="mixtures of experts"):
        violations("TS-MEM-021", plan(mixture))


@pytest.mark.parametrize(
    ("peak", "view", "credible"),
    [
        (60e9, "device", True),
        (45e9, "device", True),
        (25e9, "device", False),
        (25e9, None, False),
        (78e9, "allocator", True),
        (600e9, "allocator", False),  # a slipped prefix
        (6e9, "device", True),  # below the state, which TS-MEM-003 says
    ],
)
def test_stated_peaks(peak: float, view: str | None, credible: bool) -> None:
    stated = plan({"memory": {"predicted_peak_bytes": peak, "peak_view": view}})
    try:
        found = places("TS-MEM-021", stated)
    except NotApplicable:
        found = []
    assert found == ([] if credible else [PEAK])


def test_a_peak_of_another_micro_batch_is_found() -> None:
    """A peak that was measured with one sequence, in a plan that takes four."""
    documents = {"batch": {"micro_sequences": 4, "accumulation_steps": 32}, "memory": {"activation_policy": "none"}}
    (found,) = violations("TS-MEM-021", plan(documents))
    assert "the peak is stated as 60 GB, but the layout is predicted to need" in found.message
    assert found.help.startswith("expected ")


def test_the_published_peak_is_credible() -> None:
    """Torchtitan's `selective` keeps every second matrix product."""
    assert violations("TS-MEM-021", plan(path=EXAMPLES / "plans" / "torchtitan-llama3-8b.yaml")) == []


@pytest.mark.parametrize("requirement", ["TS-MEM-020", "TS-MEM-021", "TS-COM-026", "TS-PAR-035"])
def test_endless_pipelines_are_not_added_up(requirement: str) -> None:
    documents = {
        "parallelism": {"pipeline": 1_000_000, "num_virtual_stages": 1024, "schedule": "interleaved-1f1b"},
        "performance": {"kind": "measured", "step_seconds": 30},
        "memory": UNSTATED if requirement == "TS-MEM-020" else {},
    }
    with pytest.raises(NotApplicable, match="more than 2048 chunks"):
        violations(requirement, plan(documents), cluster())


def test_plans_that_are_not_predicted_keep_their_peak() -> None:
    with pytest.raises(NotApplicable, match="of the family other"):
        violations("TS-MEM-021", plan({"model": {"family": "other"}}))
    with pytest.raises(NotApplicable, match="do not multiply"):
        violations("TS-MEM-021", plan({"parallelism": {"num_accelerators": 64}}))
    with pytest.raises(NotApplicable, match="no peak"):
        violations("TS-MEM-021", plan({"memory": UNSTATED}))


def flows(offloaded: float | None, inputs: float | None = None, **keys: Any) -> dict[str, Any]:
    entry = {"what": "optimizer", "target": "host", "fraction": 0.5, "bytes_per_step": offloaded}
    memory = {"offload": [entry] if offloaded else [], "input_bytes_per_step": inputs}
    return {"memory": memory, "job": {"planned_seconds": None}} | keys


def test_traffic_over_the_host_link() -> None:
    place = ("memory", "offload", 0, "bytes_per_step")
    assert places("TS-MEM-022", plan(flows(10e9)), cluster()) == []
    (found,) = violations("TS-MEM-022", plan(flows(20e12)), cluster())
    assert found.place.pointer == place
    assert "keeps the host link of 63 GB/s busy for" in found.message
    assert places("TS-MEM-022", plan(flows(None, 9e12)), cluster()) == [("memory", "input_bytes_per_step")]
    assert places("TS-MEM-022", plan(flows(8e12, 4e12)), cluster()) == [place]


def test_a_stated_step_is_judged_elsewhere() -> None:
    with pytest.raises(NotApplicable, match="states the time"):
        violations("TS-MEM-022", plan(flows(20e12, job={})), cluster())
    with pytest.raises(NotApplicable, match="no traffic"):
        violations("TS-MEM-022", plan(flows(None)), cluster())


STEP = ("performance", "step_seconds")


def performance(**keys: Any) -> dict[str, Any]:
    return {"performance": {"kind": "measured"} | keys}


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"step_seconds": 30}, False),
        ({"step_seconds": 60}, False),
        ({"step_seconds": 120}, True),
        ({"step_seconds": 8}, True),
        ({"step_seconds": 120, "kind": "predicted"}, True),
        ({"step_seconds": 120, "tokens_per_second": 34952}, True),
    ],
)
def test_stated_steps(keys: dict[str, Any], found: bool) -> None:
    assert places("TS-PAR-035", plan(performance(**keys)), cluster()) == ([STEP] if found else [])


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"step_seconds": 120, "kind": "published"}, "no predicted or measured"),
        ({"flops_per_token": 4e11}, "no predicted or measured"),
        ({"step_seconds": 120, "tokens_per_second": 1e6}, "contradicts"),
    ],
)
def test_steps_that_are_not_judged(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        violations("TS-PAR-035", plan(performance(**keys)), cluster())


@pytest.mark.parametrize(("rate", "found"), [(139810, False), (10, True), (1e6, True)])
def test_steps_follow_from_tokens_per_second(rate: float, found: bool) -> None:
    judged = places("TS-PAR-035", plan(performance(tokens_per_second=rate)), cluster())
    assert judged == ([("performance", "tokens_per_second")] if found else [])


def test_a_slow_step_shows_where_the_time_goes_and_a_fast_one_its_utilisation() -> None:
    (slow,) = violations("TS-PAR-035", plan(performance(step_seconds=120)), cluster())
    assert ": computation " in slow.message
    assert "waiting for tensor ranks" in slow.message
    assert slow.help.endswith("profile one step; after computation waiting for tensor ranks takes most")
    (fast,) = violations("TS-PAR-035", plan(performance(step_seconds=8)), cluster())
    assert "a utilisation of" in fast.help


def policy(**keys: Any) -> Any:
    return checkpoint({"interval": {"steps": 60} | keys})


UNTIMED = {"job": {"planned_seconds": None}}


def test_the_step_of_a_policy() -> None:
    place = ("interval", "step_seconds")
    assert places("TS-CKP-062", plan(UNTIMED), cluster(), policy(step_seconds=30)) == []
    assert places("TS-CKP-062", plan(UNTIMED), cluster(), policy(step_seconds=20)) == [place]
    with pytest.raises(NotApplicable, match="TS-CKP-112"):
        violations("TS-CKP-062", plan(UNTIMED), cluster(), policy(step_seconds=10))
    (found,) = violations("TS-CKP-062", plan(UNTIMED), cluster(), policy(step_seconds=300))
    assert found.place.pointer == place
    assert "60 steps are" in found.message
    with pytest.raises(NotApplicable, match="the plan states one"):
        violations("TS-CKP-062", plan(), cluster(), policy(step_seconds=300))


def test_no_step_of_a_policy_is_above_the_peak() -> None:
    fast = policy(step_seconds=10)
    assert places("TS-CKP-112", plan(UNTIMED), cluster(), policy(step_seconds=14)) == []
    (found,) = violations("TS-CKP-112", plan(UNTIMED), cluster(), fast)
    assert found.place.pointer == ("interval", "step_seconds")
    assert "of the peak of 989 TFLOP/s" in found.message
    with pytest.raises(NotApplicable, match="the plan states a speed"):
        violations("TS-CKP-112", plan(performance(step_seconds=30)), cluster(), fast)
    ramp = {"batch": {"ramp": [{"from_tokens": 0, "global_sequences": 256}]}}
    with pytest.raises(NotApplicable, match="of which one"):
        violations("TS-CKP-112", plan(UNTIMED | ramp), cluster(), fast)


def test_the_first_step_after_a_recovery() -> None:
    untimed = {"interval": {"steps": None, "step_seconds": None}}
    short = untimed | {"recovery": [{"fault": "hang", "first_step_seconds": 5}]}
    assert places("TS-CKP-063", plan(), cluster(), checkpoint(untimed)) == []
    (found,) = violations("TS-CKP-063", plan(), cluster(), checkpoint(short))
    assert found.place.pointer == ("recovery", 1, "first_step_seconds")
    assert "the first step after hang takes 5 s, but a step is predicted to take" in found.message
    with pytest.raises(NotApplicable, match="states the time"):
        violations("TS-CKP-063", plan(), cluster(), policy(step_seconds=30))


# arXiv:2407.21783, section 3.3.2: 8K tokens without activation checkpointing, on 16,384 H100.
LLAMA_405B = {
    "model": {"num_parameters": 405.85e9, "num_layers": 126, "hidden_size": 16384, "num_attention_heads": 128}
    | {"num_key_value_heads": 8, "head_size": None, "ffn_hidden_size": 53248, "sequence_length": 8192},
    "parallelism": {"num_accelerators": 16384, "data": 128, "tensor": 8, "pipeline": 16, "sharding": "gradients"}
    | {"schedule": "interleaved-1f1b", "num_virtual_stages": 8, "stage_layers": [0, *[1] * 126, 0]},
    "batch": {"global_sequences": 2048, "micro_sequences": 1, "accumulation_steps": 16, "global_tokens": 16777216},
    "memory": {"activation_policy": "none", "reserve_bytes": 4e9, "allocator": "framework-default", **UNSTATED},
    "job": {"num_steps": None, "num_tokens": 15.6e12},
}


@pytest.mark.parametrize("stated", [None, 80e9, 85.520809984e9])
def test_a_published_job_without_checkpointing_is_no_finding(stated: float | None) -> None:
    nodes = {"num_nodes": 2048, "num_accelerators": 16384}
    group = {"name": "compute", "num_nodes": 2048, "accelerator": {"memory_bytes": stated}}
    with pytest.raises(Unresolved, match=r"is predicted to need 91.03 GB of the 85.52 GB of a rank, and 81.28 GB if"):
        violations("TS-MEM-020", plan(LLAMA_405B), cluster({**nodes, "node_groups": [group]}))


@pytest.mark.parametrize(
    ("model", "stated", "capacity"),
    [
        ("nvidia-h100-sxm-80gb", 80e9, 85.520809984e9),
        ("nvidia-h100-sxm-80gb", 84.2e9, 84.2e9),
        ("nvidia-h100-sxm-80gb", 85.9e9, 85.9e9),
        ("nvidia-h100-sxm-80gb", 64e9, 64e9),
        ("amd-mi300x-192gb", 192e9, 206.141652992e9),
        ("own-chip", 80e9, 80e9),
    ],
)
def test_the_figure_of_a_data_sheet_means_the_memory_that_the_device_reports(
    model: str, stated: float, capacity: float
) -> None:
    own = {"name": "compute", "accelerator": {"model": model, "memory_bytes": stated}}
    (group,) = cluster({"node_groups": [own]}).node_groups
    assert capacity_bytes(group) == pytest.approx(capacity)
