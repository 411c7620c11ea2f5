"""Cluster profiles, operation: storage, failures, clocks, power, measurements and layouts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from overlay import overlay

from trainspec_validate.model.finding import Verdict
from trainspec_validate.pipeline.validation import Selection, validate

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]


def target(name: str = "shared-files", **keys: Any) -> dict[str, Any]:
    return {"storage_targets": [{"name": name, **keys}]}


# --- storage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "requirement"),
    [
        (target(free_bytes=1e15), None),
        (target(free_bytes=1.01e15), "TS-CLU-032"),
        (target("ram", kind="host-memory", scope="node", failure_domain="node", capacity_bytes=1e12), None),
        (
            target("ram", kind="host-memory", scope="node", failure_domain="node", capacity_bytes=4e12),
            "TS-CLU-032",
        ),
        (target("volume", kind="block", scope="node", failure_domain="cluster"), None),
        (target("node-disk", failure_domain="rack"), "TS-CLU-033"),
        (target(failure_domain="node"), "TS-CLU-033"),
        (target(scope="node"), "TS-CLU-033"),
        (target(read_bandwidth_bytes_per_second=400e9), None),
        (target(read_bandwidth_bytes_per_second=800e9, write_bandwidth_bytes_per_second=100e9), "TS-CLU-034"),
        (target(write_bandwidth_bytes_per_second=12.5e9), "TS-CLU-034"),
        (target(capacity_bytes=1e18), "TS-CLU-034"),
        (target("node-disk", write_bandwidth_bytes_per_second=6e12), "TS-CLU-034"),
    ],
)
def test_storage(findings: Findings, cluster: dict[str, Any], requirement: str | None) -> None:
    found = findings(cluster=cluster, select=("TS-CLU-032", "TS-CLU-033", "TS-CLU-034"))
    assert {identifier for identifier, _ in found} == ({requirement} if requirement else set())


def test_no_storage_is_not_a_pass(verdict: Verdicts) -> None:
    for requirement in ("TS-CLU-032", "TS-CLU-033", "TS-CLU-034"):
        assert verdict(requirement, cluster={"storage_targets": None}, checkpoint=None) is Verdict.NOT_APPLICABLE


# --- failures, clocks ---------------------------------------------------------------------------------------


def reliability(**keys: Any) -> dict[str, Any]:
    return {"reliability": keys}


@pytest.mark.parametrize(
    ("rate", "failures", "days", "wrong"),
    [
        (3.8, 419, 54 * 2048, False),  # Llama 3, arXiv:2407.21783
        (6.5, 38, 5840, False),
        (6.83, 38, 5840, False),
        (6.84, 38, 5840, True),
        (0.0065, 38, 5840, True),
        (0.5, 0, 6000, False),
        (0.6, 0, 6000, True),
    ],
)
def test_failure_rate(findings: Findings, rate: float, failures: int, days: float, wrong: bool) -> None:
    cluster = reliability(failures_per_1000_node_days=rate, num_failures=failures, node_days=days)
    assert bool(findings(cluster=cluster, select=("TS-CLU-036",))) is wrong


def test_quoted_rate_needs_a_citation(findings: Findings) -> None:
    keys = {"source": "vendor", "num_failures": None, "node_days": None}
    assert findings(cluster=reliability(**keys), select=("TS-CLU-035",)) == {("TS-CLU-035", "reliability.source")}
    citation = {"title": "Revisiting reliability", "reference": "arXiv:2410.21680"}
    assert not findings(cluster=reliability(**keys, citation=citation), select=("TS-CLU-035", "TS-CLU-036"))


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"replacement_seconds": 86.4}, "replacement_seconds"),
        ({"replacement_seconds": 86.4e6}, "replacement_seconds"),
        ({"replacement_seconds": 60 * 86400}, "num_spare_nodes"),
        ({"num_spare_nodes": 0}, None),
        ({"num_spare_nodes": 17}, "num_spare_nodes"),
        ({"spare_start_seconds": 30e3}, "spare_start_seconds"),
    ],
)
def test_spares(findings: Findings, keys: dict[str, Any], key: str | None) -> None:
    found = findings(cluster=reliability(**keys), select=("TS-CLU-038",))
    assert found == ({("TS-CLU-038", f"reliability.{key}")} if key else set())


@pytest.mark.parametrize(
    ("discipline", "offset", "wrong"),
    [
        ("ptp", 1e-6, False),
        ("ptp", 0.006, True),
        ("ntp", 0.05, False),
        ("ntp", 1, True),
        ("gps", 1e-3, True),
        ("ntp", None, True),
        ("none", None, False),
        ("none", 0.1, True),
    ],
)
def test_clocks(findings: Findings, discipline: str, offset: float | None, wrong: bool) -> None:
    cluster = {"clock": {"discipline": discipline, "max_offset_seconds": offset}}
    assert bool(findings(cluster=cluster, select=("TS-CLU-039",))) is wrong


# --- power --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("power", "wrong"), [(10200, ""), (5600, ""), (5599, "TS-CLU-041"), (19800, ""), (19801, "TS-CLU-066")]
)
def test_node_power(findings: Findings, power: float, wrong: str) -> None:
    cluster = {"node_groups": [{"name": "compute", "node_power_watts": power}]}
    found = findings(cluster=cluster, select=("TS-CLU-041", "TS-CLU-066"))
    assert {requirement for requirement, _ in found} == ({wrong} if wrong else set())


@pytest.mark.parametrize(("power", "wrong"), [(163.2e3, False), (163.1e3, True), (816e3, False), (820e3, True)])
def test_facility_power(findings: Findings, power: float, wrong: bool) -> None:
    assert bool(findings(cluster={"power": {"it_power_watts": power}}, select=("TS-CLU-042",))) is wrong


def test_facility_power_from_the_catalog(findings: Findings) -> None:
    cluster = {"node_groups": [{"name": "compute", "node_power_watts": None, "accelerator": {"power_watts": None}}]}
    assert not findings(cluster=cluster | {"power": {"it_power_watts": 128 * 700}}, select=("TS-CLU-042",))
    assert findings(cluster=cluster | {"power": {"it_power_watts": 128 * 699}}, select=("TS-CLU-042",))


# --- measurements -------------------------------------------------------------------------------------------


def measured(**keys: Any) -> dict[str, Any]:
    row = {"operation": "all-reduce", "num_ranks": 128, "num_domains": 16, "message_bytes": 8589934592}
    return {"measurements": [row | keys]}


@pytest.mark.parametrize(
    ("keys", "requirement"),
    [
        ({"num_ranks": 256}, "TS-CLU-044"),
        ({"num_domains": 32}, "TS-CLU-044"),
        ({"num_domains": 1}, "TS-CLU-044"),
        ({"group": "gpus"}, "TS-CLU-044"),
        ({"num_ranks": 2, "num_domains": 2}, None),
        # a vendor's own convention: all-gather counted by shard
        (
            {
                "operation": "all-gather",
                "num_ranks": 8,
                "num_domains": 1,
                "algorithm_bandwidth_bytes_per_second": 60e9,
                "bus_bandwidth_bytes_per_second": 420e9,
            },
            "TS-CLU-045",
        ),
        ({"bus_bandwidth_bytes_per_second": 423e9}, None),
        ({"bus_bandwidth_bytes_per_second": 424e9}, "TS-CLU-046"),
        (
            {"num_ranks": 8, "num_domains": 1, "bus_bandwidth_bytes_per_second": 483.05e9},
            None,
        ),  # AWS p5, one node
        ({"num_ranks": 8, "num_domains": 1, "bus_bandwidth_bytes_per_second": 788e9}, "TS-CLU-046"),
        # one rank per node has all NICs of the node to itself
        ({"num_ranks": 2, "num_domains": 2, "bus_bandwidth_bytes_per_second": 100e9}, None),
        ({"message_bytes": 41e9}, "TS-CLU-047"),
        ({"message_bytes": 128 * 2**20, "bus_bandwidth_bytes_per_second": 300e9}, None),
        ({"message_bytes": 127 * 2**20, "bus_bandwidth_bytes_per_second": 300e9}, "TS-CLU-047"),
        ({"relative_spread": 0.15}, None),
        ({"relative_spread": 0.151}, "TS-CLU-048"),
    ],
)
def test_measurements(findings: Findings, keys: dict[str, Any], requirement: str | None) -> None:
    found = findings(cluster=measured(**keys), select=("TS-CLU",))
    assert {identifier for identifier, _ in found} == ({requirement} if requirement else set())


@pytest.mark.parametrize("version", ["latest", ">=2.27", "2.x", "~=2.27", "2.27.*", "2.26|2.27"])
def test_ranges_pin_nothing(findings: Findings, version: str) -> None:
    cluster = {"software": {"runtime": {"version": version}}}
    assert findings(cluster=cluster, select=("TS-CLU-043",)) == {("TS-CLU-043", "software.runtime.version")}


@pytest.mark.parametrize("version", ["2.17.1-1+cuda12.1", "535.104.05", "2.27.3", "24.04", "2025.1-rc1"])
def test_published_versions_pin(findings: Findings, version: str) -> None:
    assert not findings(cluster={"software": {"runtime": {"version": version}}}, select=("TS-CLU-043",))


def test_a_cited_measurement_brings_its_own_versions(findings: Findings, verdict: Verdicts) -> None:
    source = {"title": "nccl-tests", "reference": "aws-samples/awsome-distributed-training@7217859f"}
    cited = measured(source=source) | {"software": None}
    assert verdict("TS-CLU-043", cluster=cited) is Verdict.NOT_APPLICABLE
    assert findings(cluster=measured() | {"software": None}, select=("TS-CLU-043",))


# --- layout -------------------------------------------------------------------------------------------------

PAIR: dict[str, Any] = {
    "apiVersion": "trainspec/v1",
    "kind": "ClusterProfile",
    "metadata": {"name": "pair"},
    "num_nodes": 2,
    "num_accelerators": 8,
    "node_groups": [
        {
            "name": "tray",
            "num_nodes": 2,
            "num_accelerators_per_node": 4,
            "accelerator": {"model": "nvidia-gb200-186gb"},
            "scale_up": {
                "technology": "nvlink",
                "topology": "switched",
                "domain_num_accelerators": 72,
                "used_num_accelerators": 8,
            },
            "nics": [
                {
                    "name": "rail",
                    "num_per_node": 2,
                    "technology": "infiniband",
                    "generation": "ndr",
                    "rate_bytes_per_second": 50e9,
                    "fabric": "backend",
                }
            ],
        }
    ],
    "fabrics": [{"name": "backend", "transport": "infiniband", "topology": "fat-tree"}],
}


def node(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "group": "tray", "scale_up_domain": "rack-a", **keys}


def nics(*names: str, **keys: Any) -> list[dict[str, Any]]:
    return [{"name": name, **keys} for name in names]


@pytest.mark.parametrize(("numa_nodes", "wrong"), [((0, 8), False), ((0, 1), False), ((1, 2, 3), True)])
def test_devices_are_on_no_more_numa_nodes_than_the_host_has(
    findings: Findings, numa_nodes: tuple[int, ...], wrong: bool
) -> None:
    devices = [{"name": f"d{i}", "numa_node": numa_nodes[i % len(numa_nodes)]} for i in range(8)]
    nodes = [{"name": f"n{i}", "group": "compute"} for i in range(16)]
    nodes[3] |= {"accelerators": devices}
    found = findings(cluster={"layout": {"nodes": nodes}}, select=("TS-CLU-049",))
    assert found == ({("TS-CLU-049", "layout.nodes.3.accelerators")} if wrong else set())


@pytest.mark.parametrize(
    ("layout", "requirement", "place"),
    [
        ({"nodes": [node("n1"), node("n2")]}, "", ""),
        ({"nodes": [node("n1"), node("n2", nics=nics("a", "b"))]}, "", ""),
        ({"nodes": [node("n1")]}, "TS-CLU-049", "nodes.0.group"),
        ({"nodes": [node("n1"), node("n2", accelerators=nics("g0"))]}, "TS-CLU-049", "nodes.1.accelerators"),
        ({"nodes": [node("n1"), node("n1")]}, "TS-CLU-050", "nodes.1.name"),
        (
            {"nodes": [node("n1"), node("n2")], "switches": [{"name": "n1"}]},
            "TS-CLU-050",
            "switches.0.name",
        ),
        (
            {
                "nodes": [node("n1"), node("n2")],
                "switches": [{"name": "s1"}],
                "links": [{"source": "n1", "target": "s2", "bandwidth_bytes_per_second": 50e9}],
            },
            "TS-CLU-050",
            "links.0.target",
        ),
        (
            {
                "nodes": [node("n1"), node("n2")],
                "links": [{"source": "n1", "target": "n1", "bandwidth_bytes_per_second": 50e9}],
            },
            "TS-CLU-050",
            "links.0.target",
        ),
        (
            {"nodes": [node("n1"), node("n2", nics=nics("a", "b", leaf="s9"))]},
            "TS-CLU-050",
            "nodes.1.nics.0.leaf",
        ),
        (
            {
                "nodes": [
                    node("n1", nics=nics("a", identifier="x")),
                    node("n2", nics=nics("a", identifier="x")),
                ]
            },
            "TS-CLU-050",
            "nodes.1.nics.0.identifier",
        ),
        (
            {"nodes": [node("n1", nics=nics("a", "b")), node("n2", nics=nics("a", "c"))]},
            "TS-CLU-051",
            "nodes.1.nics",
        ),
        (
            {"nodes": [node("n1"), node("n2", nics=nics("a", "b", rate_bytes_per_second=25e9))]},
            "TS-CLU-051",
            "nodes.1.nics.0.rate_bytes_per_second",
        ),
        (
            {
                "nodes": [
                    node("n1"),
                    node("n2", nics=[{"name": "a", "link_num_lanes": 8}, {"name": "b", "link_num_lanes": 16}]),
                ]
            },
            "TS-CLU-052",
            "nodes.1.nics.0.link_num_lanes",
        ),
        (
            {
                "nodes": [
                    node("n1"),
                    node("n2", nics=nics("a", "b", link_generation=5, upstream_generation=1)),
                ]
            },
            "TS-CLU-052",
            "nodes.1.nics.0.upstream_generation",
        ),
        ({"nodes": [node("n1"), node("n2", scale_up_domain=None)]}, "TS-CLU-053", "nodes.1.name"),
    ],
)
def test_layouts(tmp_path: Path, layout: dict[str, Any], requirement: str, place: str) -> None:
    found = judge(tmp_path, overlay(PAIR, {"layout": layout}))
    if not requirement:
        assert not found
    else:
        assert (requirement, f"layout.{place}") in found


EIGHT = [f"d{i}" for i in range(8)]


@pytest.mark.parametrize(("num_slow", "num_findings"), [(0, 0), (1, 1), (2, 2), (3, 1)])
def test_slow_slots_of_one_node_are_one_finding(tmp_path: Path, num_slow: int, num_findings: int) -> None:
    slow = [
        {"name": name, "link_generation": 5, "link_num_lanes": 8 if i < num_slow else 16}
        for i, name in enumerate(EIGHT)
    ]
    found = messages(tmp_path, {"nodes": [node("n1", accelerators=slow)]})
    assert len(found) == num_findings
    if num_slow == 3:
        pointer, message = found[0]
        assert pointer == "layout.nodes.0.accelerators"
        assert message.startswith("3 accelerators have link_num_lanes below 16")
        assert message.endswith("d0 (8), d1 (8), d2 (8)")


@pytest.mark.parametrize(("num_slow", "num_findings"), [(4, 1), (5, 1), (7, 1), (8, 0)])
@pytest.mark.parametrize("kind", ["accelerators", "nics"])
def test_slots_are_slow_where_most_of_them_are(tmp_path: Path, kind: str, num_slow: int, num_findings: int) -> None:
    rate = {"rate_bytes_per_second": 50e9} if kind == "nics" else {}
    devices = [{"name": name, "link_num_lanes": 8 if i < num_slow else 16, **rate} for i, name in enumerate(EIGHT)]
    found = messages(tmp_path, {"nodes": [node("n1", **{kind: devices})]})
    assert [pointer for pointer, _ in found] == [f"layout.nodes.0.{kind}"] * num_findings


def test_a_faster_slot_of_another_sort_of_nic_slows_no_other(tmp_path: Path) -> None:
    storage = {"name": "storage", "link_num_lanes": 16, "rate_bytes_per_second": 50e9}
    compute = [{"name": name, "link_num_lanes": 8, "rate_bytes_per_second": 25e9} for name in EIGHT]
    unknown = [{"name": name, "link_num_lanes": 8} for name in EIGHT]
    for others in (compute, unknown):
        assert messages(tmp_path, {"nodes": [node("n1", nics=[*others, storage])]}) == []


@pytest.mark.parametrize("megahertz", [(1410, 1980), (1980, 1410)])
def test_of_two_clock_limits_the_lower_is_found_in_any_order(tmp_path: Path, megahertz: tuple[int, ...]) -> None:
    import json

    devices = [
        {"name": f"gpu{i}", "model": "NVIDIA-H100-80GB-HBM3", "clock_limit_hertz": limit * 1e6}
        for i, limit in enumerate(megahertz)
    ]
    document = overlay(deepcopy(PAIR), {"observed_nodes": [{"name": "n1", "devices": devices}]})
    (tmp_path / "cluster.yaml").write_text(json.dumps(document), encoding="utf-8")
    found = validate([tmp_path], Selection(select=("TS-CLU-073",))).findings
    assert [f.pointer[3] for f in found if "clocks up to" in f.message] == [megahertz.index(1410)]


def test_slow_bridges_of_one_node_are_one_finding_for_each_kind_of_device(tmp_path: Path) -> None:
    cards = [f"card-{i:02d}" for i in range(14)]
    whole = {
        "accelerators": nics(*EIGHT, link_generation=5, upstream_generation=1),
        "nics": nics(*cards, link_generation=5, upstream_generation=4),
    }
    found = dict(messages(tmp_path, {"nodes": [node("n1", **whole), node("n2", nics=nics("a", link_generation=5))]}))
    assert set(found) == {"layout.nodes.0.accelerators", "layout.nodes.0.nics"}
    assert "d7 (1)" in found["layout.nodes.0.accelerators"]
    assert "14 nics of generation 5" in found["layout.nodes.0.nics"]
    assert found["layout.nodes.0.nics"].endswith("card-11 (4) and 2 more")


def test_equal_causes_in_two_nodes_stay_two_findings(tmp_path: Path) -> None:
    slow = nics("a", "b", "c", link_generation=5, upstream_generation=4)
    found = messages(tmp_path, {"nodes": [node("n1", nics=slow), node("n2", nics=slow)]})
    assert [pointer for pointer, _ in found] == ["layout.nodes.0.nics", "layout.nodes.1.nics"]


def messages(directory: Path, layout: dict[str, Any]) -> list[tuple[str, str]]:
    """Findings of TS-CLU-052, each with its place."""
    import json

    (directory / "cluster.yaml").write_text(json.dumps(overlay(deepcopy(PAIR), {"layout": layout})), encoding="utf-8")
    found = validate([directory], Selection(select=("TS-CLU-052",))).findings
    return [(".".join(map(str, f.pointer)), f.message) for f in found if f.requirement == "TS-CLU-052"]


def judge(directory: Path, document: dict[str, Any]) -> set[tuple[str, str]]:
    import json

    (directory / "cluster.yaml").write_text(json.dumps(document), encoding="utf-8")
    report = validate([directory], Selection(select=("TS-CLU",)))
    return {(f.requirement, ".".join(str(step) for step in f.pointer)) for f in report.findings}


def test_a_rack_holds_no_more_nodes_than_fill_it(tmp_path: Path) -> None:
    small = overlay(deepcopy(PAIR), {"layout": {"nodes": [node("n1"), node("n2")]}})
    small["node_groups"][0]["scale_up"] = {
        "technology": "nvlink",
        "topology": "switched",
        "domain_num_accelerators": 4,
    }
    assert judge(tmp_path, small) == {("TS-CLU-053", "layout.nodes.1.scale_up_domain")}


def test_uneven_racks_pass_when_they_are_listed(tmp_path: Path) -> None:
    # 72 of 76 accelerators in one rack: no whole number of domains, but every node says where it stands.
    uneven = overlay(deepcopy(PAIR), {"num_nodes": 19, "num_accelerators": 76})
    uneven["node_groups"][0] |= {"num_nodes": 19}
    uneven["node_groups"][0]["scale_up"].pop("used_num_accelerators")
    assert judge(tmp_path, uneven) == {("TS-CLU-012", "node_groups.0.scale_up.domain_num_accelerators")}
    racks = ["rack-a"] * 18 + ["rack-b"]
    uneven["layout"] = {"nodes": [node(f"n{i}", scale_up_domain=rack) for i, rack in enumerate(racks)]}
    assert not judge(tmp_path, uneven)


def test_no_layout_is_not_a_pass(verdict: Verdicts) -> None:
    for number in range(49, 54):
        assert verdict(f"TS-CLU-{number:03d}") is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("cluster", "requirement", "words"),
    [
        (target(write_bandwidth_bytes_per_second=560e9), "TS-CLU-034", "in bytes per second, 560 Gb/s is 70e9"),
        (target(write_bandwidth_bytes_per_second=100e12), "TS-CLU-034", "100e9 if its prefix slipped"),
        ({"node_groups": [{"name": "compute", "host": {"memory_bytes": 1.28e9}}]}, "TS-CLU-017", "1.28e12 if its"),
    ],
)
def test_the_value_without_the_slip_is_named(helps: Any, cluster: Any, requirement: str, words: str) -> None:
    assert any(words in help_text for help_text in helps(cluster=cluster, select=(requirement,)))
