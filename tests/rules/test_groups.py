"""A plan that names no node group of several is judged on every group that its job may run on."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from overlay import overlay

from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import changed, read
from trainspec_validate.documents.types.cluster import ClusterProfile
from trainspec_validate.model.finding import Finding, Outcome, Severity, Verdict
from trainspec_validate.performance.derived.groups import shares
from trainspec_validate.performance.derived.job import JobNodes, job_network
from trainspec_validate.performance.topology.graph import topology_of
from trainspec_validate.pipeline.validation import Selection, validate

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
HALF = {"num_nodes": 8}


def base(name: str) -> Any:
    return load_text((BASE / f"{name}.yaml").read_text(encoding="utf-8"), name).data


def groups(*changes: dict[str, Any]) -> dict[str, Any]:
    """The base cluster with one group for each of these changes to its only group, called a, b, c."""
    cluster = base("cluster")
    only = cluster["node_groups"][0]
    cluster["node_groups"] = [
        overlay(only, {"name": name, **change}) for name, change in zip("abc", changes, strict=False)
    ]
    cluster["num_nodes"] = sum(group["num_nodes"] for group in cluster["node_groups"])
    cluster["num_accelerators"] = sum(
        group["num_nodes"] * group["num_accelerators_per_node"] for group in cluster["node_groups"]
    )
    return cluster


def judged(
    directory: Path, requirement: str, cluster: dict[str, Any], plan: dict[str, Any]
) -> tuple[list[Finding], Outcome]:
    """What one requirement says of the base plan with an excerpt over it, on a cluster."""
    (directory / "cluster.yaml").write_text(json.dumps(cluster), encoding="utf-8")
    (directory / "plan.yaml").write_text(json.dumps(overlay(base("plan"), plan)), encoding="utf-8")
    (directory / "checkpoint.yaml").write_text(json.dumps(base("checkpoint")), encoding="utf-8")
    report = validate([directory], Selection(select=(requirement,)))
    outcome = next(outcome for outcome in report.outcomes if outcome.requirement == requirement)
    return list(report.findings), outcome


SMALL = {"accelerator": {"memory_bytes": 48e9, "model": "own-48gb"}}
PEAK = {"memory": {"predicted_peak_bytes": 60e9}}


def test_a_job_over_all_groups_is_judged_on_each(tmp_path: Path) -> None:
    found, _ = judged(tmp_path, "TS-MEM-004", groups(HALF, {**HALF, **SMALL}), PEAK)
    assert [(f.severity, f.pointer) for f in found] == [(Severity.ERROR, ("memory", "predicted_peak_bytes"))]
    assert found[0].message.startswith("in node group 'b': ")
    assert [related.pointer for related in found[0].related] == [("node_groups", 1, "accelerator")]


def test_equal_groups_give_one_finding_in_the_words_of_one_group(tmp_path: Path) -> None:
    one, _ = judged(tmp_path, "TS-MEM-004", groups(SMALL), PEAK)
    several, _ = judged(tmp_path, "TS-MEM-004", groups({**HALF, **SMALL}, {**HALF, **SMALL}), PEAK)
    assert [f.message for f in several] == [f.message for f in one]


def test_a_job_that_fits_into_one_group_is_warned_of_the_groups_that_do_not_hold_it(tmp_path: Path) -> None:
    found, outcome = judged(tmp_path, "TS-MEM-004", groups({}, SMALL), PEAK)
    assert [f.severity for f in found] == [Severity.WARNING]
    assert found[0].message.startswith("if the job runs in node group 'b': ")
    assert found[0].help.endswith("; or set node_group to 'a'")
    assert outcome.verdict is Verdict.WARN


def test_a_job_that_fits_into_several_groups_and_fails_in_all_is_an_error(tmp_path: Path) -> None:
    tiny = {"accelerator": {"memory_bytes": 40e9, "model": "own-40gb"}}
    found, outcome = judged(tmp_path, "TS-MEM-004", groups(SMALL, tiny, {"num_nodes": 1}), PEAK)
    assert [f.severity for f in found] == [Severity.ERROR] * 2
    assert [f.message.split(":")[0] for f in found] == ["in node group 'a'", "in node group 'b'"]
    assert outcome.verdict is Verdict.FAIL


def test_a_group_that_cannot_be_judged_leaves_a_warning(tmp_path: Path) -> None:
    unknown = {"accelerator": {"memory_bytes": None, "model": "own"}}
    found, _ = judged(tmp_path, "TS-MEM-004", groups(SMALL, unknown), PEAK)
    assert [f.severity for f in found] == [Severity.WARNING]
    assert "set node_group" not in found[0].help


def test_a_group_named_by_the_plan_is_the_only_one_that_counts(tmp_path: Path) -> None:
    both = groups({}, SMALL)
    assert judged(tmp_path, "TS-MEM-004", both, {"node_group": "a", **PEAK})[0] == []
    assert [f.severity for f in judged(tmp_path, "TS-MEM-004", both, {"node_group": "b", **PEAK})[0]] == [
        Severity.ERROR
    ]


@pytest.mark.parametrize(("watts", "verdict"), [(700, Verdict.FAIL), (7000, Verdict.NOT_RUN)])
def test_the_energy_of_a_job_over_groups_is_judged_where_they_agree(
    tmp_path: Path, watts: float, verdict: Verdict
) -> None:
    """The first group draws too little for the energy, the second may make up for it."""
    hungry = {"accelerator": {"power_watts": watts}, "node_power_watts": 14.5 * watts}
    plan = {"energy": {"expected_energy_joules": 1.2 * 10200 * 16 * 600e3, "boundary": "node"}}
    _, outcome = judged(tmp_path, "TS-NRG-013", groups(HALF, {**HALF, **hungry}), plan)
    assert outcome.verdict is verdict
    if verdict is Verdict.NOT_RUN:
        assert "its job spans 'a', where the requirement fails, and 'b'" in outcome.reason


def test_nodes_of_a_job_over_groups_of_unlike_nodes_are_counted(tmp_path: Path) -> None:
    """64 ranks in 8 nodes of 8, and 64 in 16 of 4."""
    unlike = groups(HALF, {"num_nodes": 16, "num_accelerators_per_node": 4})
    found, _ = judged(tmp_path, "TS-CKP-009", unlike, {})
    assert [f.help for f in found] == ["set job.num_nodes to 24"]


def test_the_last_group_of_a_job_is_filled_by_whole_nodes(tmp_path: Path) -> None:
    unlike = groups({"num_nodes": 7}, {"num_nodes": 8, "num_accelerators_per_node": 9})
    found, _ = judged(tmp_path, "TS-TOP-018", unlike, {})
    assert [f.message for f in found] == []
    found, _ = judged(tmp_path, "TS-TOP-018", unlike, {"parallelism": {"num_accelerators": 120}})
    assert [(f.message, f.help) for f in found] == [
        ("64 ranks in b fill 7 nodes of 9 and 1 accelerator of one more", "use 56 and a multiple of 9: 128")
    ]


def test_groups_without_a_common_fabric_are_found(tmp_path: Path) -> None:
    apart = groups(HALF, {**HALF, "nics": [{"name": "rail", "fabric": "islands"}]})
    apart["fabrics"].append({"name": "islands", "transport": "infiniband", "topology": "fat-tree"})
    found, _ = judged(tmp_path, "TS-TOP-026", apart, {"communication": None})
    assert [f.message for f in found] == [
        "128 ranks span 2 node groups, but no fabric joins 'a' (backend) and 'b' (islands)"
    ]
    found, _ = judged(tmp_path, "TS-TOP-026", apart, {})
    assert [f.message.rpartition(" and ")[2] for f in found] == ["'b' (islands) to 'backend'"]
    bare = groups(HALF, {**HALF, "nics": [{"name": "rail", "fabric": None}]})
    found, _ = judged(tmp_path, "TS-TOP-026", bare, {})
    assert [f.message.rpartition(" and ")[2] for f in found] == ["'b' (no fabric) to 'backend'"]


@pytest.mark.parametrize("order", list(permutations([0, 1, 2])), ids=lambda order: "".join(map(str, order)))
def test_a_job_runs_in_the_groups_that_are_joined_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Two of three groups of 64 ranks are on one fabric, which is room for 128."""
    parts = [HALF, {**HALF, "nics": [{"name": "rail", "fabric": "islands"}]}, HALF]
    mixed = groups(*(parts[index] for index in order))
    mixed["fabrics"].append({"name": "islands", "transport": "infiniband", "topology": "fat-tree"})
    _, outcome = judged(tmp_path, "TS-TOP-026", mixed, {"communication": None})
    assert outcome.verdict is Verdict.PASS
    more = {"communication": None, "parallelism": {"data": 12, "num_accelerators": 192}}
    _, outcome = judged(tmp_path, "TS-TOP-026", mixed, more)
    assert outcome.verdict is Verdict.FAIL


JOINED = {"bandwidth_bytes_per_second": 100e9, "latency_seconds": 1e-3}
SITES = [{"name": "north"}, {"name": "south"}, {"name": "east"}]


@pytest.mark.parametrize(
    ("ends", "sites", "verdict"),
    [
        ([["backend", "islands"]], ("north", "south"), Verdict.PASS),
        ([["backend", "between"], ["between", "islands"]], ("north", "north"), Verdict.PASS),
        ([["north", "south"]], ("north", "south"), Verdict.PASS),
        ([["north", "east"]], ("north", "south"), Verdict.FAIL),
        ([["north", "south"]], ("north", "north"), Verdict.FAIL),
        ([], ("north", "south"), Verdict.FAIL),
    ],
)
@pytest.mark.parametrize("plan", [{}, {"communication": None}], ids=["of a fabric", "of any"])
def test_interconnects_join_groups(
    ends: list[list[str]], sites: tuple[str, str], verdict: Verdict, plan: dict[str, Any], tmp_path: Path
) -> None:
    apart = groups(
        {**HALF, "site": sites[0]}, {**HALF, "site": sites[1], "nics": [{"name": "rail", "fabric": "islands"}]}
    )
    apart["fabrics"] += [{"name": name, "transport": "infiniband"} for name in ("islands", "between")]
    apart |= {"sites": SITES, "interconnects": [{"ends": pair, **JOINED} for pair in ends]}
    _, outcome = judged(tmp_path, "TS-TOP-026", apart, plan)
    assert outcome.verdict is verdict


@pytest.mark.parametrize("plan", [{"node_group": "a"}, {"parallelism": {"num_accelerators": 64}}])
def test_a_job_in_one_group_needs_no_other(tmp_path: Path, plan: dict[str, Any]) -> None:
    apart = groups(HALF, {**HALF, "nics": [{"name": "rail", "fabric": "islands"}]})
    found, outcome = judged(tmp_path, "TS-TOP-026", apart, plan)
    assert (found, outcome.verdict) == ([], Verdict.NOT_APPLICABLE)


def test_ranks_without_a_place_count_for_the_last_group() -> None:
    cluster = read("ClusterProfile", groups(HALF, HALF))
    assert isinstance(cluster, ClusterProfile)
    every = [JobNodes(group, index) for index, group in enumerate(cluster.node_groups)]
    assert [count for _, count in shares(every, 128)] == [64, 64]
    assert [count for _, count in shares(every, 130)] == [64, 66]
    assert [count for _, count in shares(every, 64)] == [64]


def test_a_measurement_of_no_named_group_is_held_against_the_best(tmp_path: Path) -> None:
    both = groups(HALF, {**HALF, "scale_up": {"bandwidth_bytes_per_second": 900e9}})
    own = {"operation": "all-reduce", "num_ranks": 8, "message_bytes": 1e9, "algorithm_bandwidth_bytes_per_second": 1e9}
    for bus, wrong in ((1000e9, False), (2000e9, True)):
        both["measurements"] = [{**own, "bus_bandwidth_bytes_per_second": bus}]
        assert bool(judged(tmp_path, "TS-CLU-046", both, {})[0]) is wrong


def test_power_that_is_known_is_enough_to_overload_a_facility(tmp_path: Path) -> None:
    unknown = {"num_nodes": 1, "accelerator": {"model": "own", "power_watts": None}, "node_power_watts": None}
    cluster = groups({}, unknown)
    for supply, verdict in ((100e3, Verdict.WARN), (200e3, Verdict.NOT_RUN), (5e6, Verdict.NOT_RUN)):
        cluster["power"]["it_power_watts"] = supply
        found, outcome = judged(tmp_path, "TS-CLU-042", cluster, {})
        assert outcome.verdict is verdict
    cluster["power"]["it_power_watts"] = 100e3
    found, _ = judged(tmp_path, "TS-CLU-042", cluster, {})
    assert "without those of 'b'" in found[0].message


def test_writers_are_held_against_groups_with_room_for_the_nodes(tmp_path: Path) -> None:
    half, wide = {"num_accelerators_per_node": 4}, {"num_accelerators_per_node": 16}
    for cluster, wrong in (
        (groups(half), True),
        (groups(half, {}), False),
        (groups(half, {**wide, "num_nodes": 2}), True),
        (groups({"num_nodes": 2}, {"num_nodes": 14}), False),
    ):
        found, _ = judged(tmp_path, "TS-CKP-015", cluster, {})
        assert [f.severity for f in found] == ([Severity.ERROR] if wrong else [])


def test_nodes_of_a_job_without_room_are_not_counted(tmp_path: Path) -> None:
    _, outcome = judged(tmp_path, "TS-CKP-009", groups(HALF, {**HALF, "num_accelerators_per_node": 4}), {})
    assert outcome.reason == "the cluster has no room for the ranks of the plan"


def test_fabrics_of_one_transport_are_one_network() -> None:
    cluster = read("ClusterProfile", groups({}))
    assert isinstance(cluster, ClusterProfile)
    data = groups({})
    (nic, *rest), (fabric,) = data["node_groups"][0]["nics"], data["fabrics"]
    twin = {**fabric, "name": "twin", "latency_seconds": 5e-6}
    data["node_groups"][0]["nics"] = [
        {**nic, "num_per_node": 4, "devices": []},
        {**nic, "num_per_node": 4, "devices": [], "name": "twin", "fabric": "twin"},
        *rest,
    ]
    data["fabrics"] = [{**fabric, "latency_seconds": 3e-6}, twin]
    split = read("ClusterProfile", data)
    assert isinstance(split, ClusterProfile)
    one, network = job_network(None, split, JobNodes(split.node_groups[0], 0))
    assert network is not None
    assert (network.name, network.latency_seconds) == ("backend and twin", 5e-6)
    before = job_network(None, cluster, JobNodes(cluster.node_groups[0], 0))
    rates = [topology_of(split, *pair).fabric for pair in ((one, network), before)]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[0].bandwidth_bytes_per_second == rates[1].bandwidth_bytes_per_second
    mixed = changed(split, fabrics=(split.fabrics[0], changed(split.fabrics[1], transport="tcp")))
    with pytest.raises(ValueError, match="several transports: backend, twin"):
        job_network(None, mixed, JobNodes(mixed.node_groups[0], 0))


SLOW = {**HALF, "accelerator": {"model": "own-slow", "peak_rates": [{"format": "bf16", "flops_per_second": 312e12}]}}
FASTER = {**HALF, "accelerator": {"model": "own-fast", "peak_rates": [{"format": "bf16", "flops_per_second": 2e15}]}}
UNEVEN = {"parallelism": {"stage_layers": [22, 22, 18, 18]}}


@pytest.mark.parametrize(
    ("second", "step", "plan", "wrong"),
    [
        (SLOW, 30, {}, ["TS-PAR-042"]),  # 468 TFLOP/s of each rank, half of which do 312 at most
        (SLOW, 46, {}, ["TS-PAR-043"]),
        (SLOW, 60, {}, []),
        (SLOW, 30, UNEVEN, []),  # the mean of the groups is 650
        (SLOW, 20, UNEVEN, ["TS-PAR-042"]),
        (FASTER, 30, {}, []),
        (HALF, 30, {}, []),
        (HALF, 13, {}, ["TS-PAR-042"]),
    ],
)
def test_speed_over_groups_is_held_against_all_of_them(
    tmp_path: Path, second: dict[str, Any], step: float, plan: dict[str, Any], wrong: list[str]
) -> None:
    plan = {"performance": {"kind": "measured", "step_seconds": step}, **plan}
    found = [
        f.requirement
        for identifier in ("TS-PAR-042", "TS-PAR-043")
        for f in judged(tmp_path, identifier, groups(HALF, second), plan)[0]
    ]
    assert found == wrong


@pytest.mark.parametrize(("num_writers", "wrong"), [(96, False), (97, True)])
def test_writers_of_a_job_over_groups_are_those_of_all_its_nodes(tmp_path: Path, num_writers: int, wrong: bool) -> None:
    cluster = groups(HALF, {**HALF, "num_accelerators_per_node": 4})
    (tmp_path / "cluster.yaml").write_text(json.dumps(cluster), encoding="utf-8")
    policy = overlay(base("checkpoint"), {"save": {"num_writers": num_writers}})
    (tmp_path / "checkpoint.yaml").write_text(json.dumps(policy), encoding="utf-8")
    found = validate([tmp_path], Selection(select=("TS-CKP-015",))).findings
    assert bool(found) is wrong


def test_saves_of_a_job_over_groups_are_staged_in_the_memory_of_all_its_nodes(tmp_path: Path) -> None:
    cluster = groups(HALF, {**HALF, "host": {"memory_bytes": 500e9}})
    (tmp_path / "cluster.yaml").write_text(json.dumps(cluster), encoding="utf-8")
    for num_saves, wrong in ((20, False), (21, True)):  # a node has 61.75 GB of each, and 1.25 TB in the mean
        policy = overlay(base("checkpoint"), {"save": {"max_in_flight": num_saves}})
        (tmp_path / "checkpoint.yaml").write_text(json.dumps(policy), encoding="utf-8")
        assert bool(validate([tmp_path], Selection(select=("TS-CKP-105",))).findings) is wrong
