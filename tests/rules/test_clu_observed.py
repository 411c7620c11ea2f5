"""Cluster profiles, observations: what a log shows agrees with what is declared, and every difference is found."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
SOURCE = {"title": "Log of the collective library", "reference": "job.log"}
ALL = ("TS-CLU-057", "TS-CLU-058", "TS-CLU-059", "TS-CLU-060", "TS-CLU-061")
LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "mlperf_nccl_observed_vs_declared.csv"
RAILS = [f"mlx5_{i}" for i in range(8)]


def seen(**keys: Any) -> dict[str, Any]:
    return {"observations": [{"source": SOURCE, **keys}]}


def nic(**keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "nics": [{"name": "rail", **keys}]}]}


def alone(findings: Findings, cluster: dict[str, Any]) -> set[tuple[str, str]]:
    return findings(cluster=cluster, plan=None, checkpoint=None, select=ALL)


def test_a_log_of_the_declared_machine_is_clean(findings: Findings) -> None:
    cluster = seen(
        library={"name": "NCCL", "version": "2.27.3+cuda12.9"},
        transport="infiniband",
        interfaces=RAILS,
        link_layers=["infiniband"],
        num_ranks=128,
        gpu_direct_share=1,
    )
    assert alone(findings, cluster) == set()


def test_many_unknown_interfaces_are_one_finding(findings: Findings) -> None:
    cluster = seen(interfaces=[f"ibp{i}s0" for i in range(8)])
    cluster |= nic(devices=RAILS)
    assert alone(findings, cluster) == {("TS-CLU-058", "observations.0.interfaces")}


def test_everything_that_can_differ(findings: Findings) -> None:
    cluster = seen(
        library={"name": "rccl"},
        transport="tcp",
        interfaces=["mlx5_0", "mlx5_8", "eth0"],
        link_layers=["infiniband", "ethernet"],
        gpu_direct_share=0.5,
    )
    assert alone(findings, cluster) == {
        ("TS-CLU-057", "observations.0.transport"),
        ("TS-CLU-058", "observations.0.interfaces.1"),
        ("TS-CLU-059", "observations.0.link_layers"),
        ("TS-CLU-060", "observations.0.gpu_direct_share"),
        ("TS-CLU-061", "observations.0.library.name"),
    }


@pytest.mark.parametrize("requirement", ALL)
def test_nothing_observed_is_not_a_pass(verdict: Verdicts, requirement: str) -> None:
    assert verdict(requirement, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE
    bare = seen()
    assert verdict(requirement, cluster=bare, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE


def test_a_transport_that_is_not_standard_is_not_judged(verdict: Verdicts) -> None:
    cluster = seen(transport="other")
    assert verdict("TS-CLU-057", cluster=cluster, plan=None, checkpoint=None) is Verdict.NOT_RUN


def test_the_transport_of_any_compute_fabric_will_do(findings: Findings) -> None:
    group = {
        "name": "compute",
        "nics": [
            {"name": "rail"},
            {
                "name": "eth",
                "role": "compute",
                "fabric": "front",
                "num_per_node": 8,
                "technology": "ethernet",
                "rate_bytes_per_second": 50e9,
            },
        ],
    }
    front = {"name": "front", "transport": "rocev2", "topology": "fat-tree"}
    cluster = {**seen(transport="rocev2"), "node_groups": [group], "fabrics": [{"name": "backend"}, front]}
    assert alone(findings, cluster) == set()


def test_a_device_that_nobody_declares(findings: Findings) -> None:
    assert alone(findings, seen(interfaces=[*RAILS, "mlx5_9"])) == {("TS-CLU-058", "observations.0.interfaces.8")}


@pytest.mark.parametrize(
    ("number", "keys", "is_clean"),
    [
        (8, {"devices": None}, True),
        (10, {"devices": None}, False),
        (16, {"devices": None, "num_ports": 2}, True),
        (8, {"devices": None, "num_ports": 2}, True),
        (13, {"devices": None, "num_ports": 2}, False),
    ],
)
def test_without_names_the_number_counts(findings: Findings, number: int, keys: dict[str, Any], is_clean: bool) -> None:
    cluster = {**seen(interfaces=[f"ib{i}" for i in range(number)]), **nic(**keys)}
    wanted = set() if is_clean else {("TS-CLU-058", "observations.0.interfaces")}
    assert alone(findings, cluster) == wanted


def test_one_layer_that_is_not_the_declared_one(findings: Findings) -> None:
    assert alone(findings, seen(link_layers=["ethernet"])) == {("TS-CLU-059", "observations.0.link_layers")}


def test_a_copy_through_the_host_is_fine_where_it_is_declared(verdict: Verdicts) -> None:
    cluster = {**seen(gpu_direct_share=0.5), **nic(gpu_direct=False)}
    assert verdict("TS-CLU-060", cluster=cluster, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("observed", "is_clean"), [("2.27.3", True), ("v2.27.3-1", True), ("2.27.3+cuda13.0", True), ("2.27.5", False)]
)
def test_versions(findings: Findings, observed: str, is_clean: bool) -> None:
    wanted = set() if is_clean else {("TS-CLU-061", "observations.0.library.version")}
    assert alone(findings, seen(library={"name": "nccl", "version": observed})) == wanted


def test_an_observation_of_another_group_is_not_held_against_this_one(verdict: Verdicts) -> None:
    cluster = seen(group="elsewhere", transport="tcp", interfaces=["eth0"], gpu_direct_share=0)
    assert verdict("TS-CLU-057", cluster=cluster, plan=None, checkpoint=None) is Verdict.FAIL  # no such group
    for requirement in ("TS-CLU-058", "TS-CLU-060"):
        assert verdict(requirement, cluster=cluster, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE


def of_log(row: dict[str, str]) -> dict[str, Any]:
    """The observation of one published log, over a cluster with eight compute NICs as its system declares them."""
    layers = {"ethernet": int(row["hca_roce"]), "infiniband": int(row["hca_ib"])}
    used = [layer for layer, number in layers.items() if number]
    declared = row["declared_network"]
    transport = "rocev2" if "RoCE" in declared else "infiniband" if " IB " in declared else "other"
    own: dict[str, Any] = {"interfaces": [f"hca{i}" for i in range(int(row["hcas"]))], "link_layers": used}
    if row["observed_network"].startswith("Socket"):
        own["transport"] = "tcp"
    elif len(used) == 1:
        own["transport"] = "infiniband" if used == ["infiniband"] else "rocev2"
    if int(row["via_net"] or 0):
        own["gpu_direct_share"] = int(row["via_net_gdr"]) / int(row["via_net"])
    technology = "infiniband" if transport == "infiniband" else "ethernet"
    ports = 2 if row["system"].startswith("MI325X") else 1
    cluster = {**seen(**own), "fabrics": [{"name": "backend", "transport": transport}]}
    return {**cluster, **nic(devices=None, technology=technology, num_ports=ports)}


def test_published_logs_and_what_their_systems_declare(findings: Findings) -> None:
    if not LOGS.is_file():
        pytest.skip("no table of published logs")
    with LOGS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(
        (requirement, row["submitter"], row["system"])
        for row in rows
        for requirement, _ in alone(findings, of_log(row))
    )
    assert len(rows) == 97
    assert counts == {
        ("TS-CLU-057", "MangoBoost", "MI300X-LLMBoost-GPUBoost-2node"): 10,
        ("TS-CLU-060", "MangoBoost", "MI300X-LLMBoost-GPUBoost-2node"): 10,
        ("TS-CLU-060", "MangoBoost", "MI325X-LLMBoost-GPUBoost-2node"): 10,
        ("TS-CLU-058", "Dell", "2xXE9680Lx8H200-SXM-141GB"): 10,
        ("TS-CLU-058", "Dell", "2xXE9680Lx8B200-SXM-180GB"): 10,
        ("TS-CLU-059", "Dell", "2xXE9680Lx8B200-SXM-180GB"): 10,
    }


# --- ports, where no interface of the profile names its devices

STORAGE = {"name": "storage", "role": "storage", "num_per_node": 4, "technology": "ethernet"}


def of_ports(rates: list[float | None], old: int | None = None) -> dict[str, Any]:
    """A node with ports of these rates, in GB/s, 0 for one that is down; `old` has a firmware of its own."""
    ports = [
        {"device": f"mlx5_{j}", "active": rate != 0, "firmware": "27.1" if j == old else "28.1"}
        | ({"rate_bytes_per_second": rate * 1e9} if rate else {})
        for j, rate in enumerate(rates)
    ]
    nics = [{"name": "rail", "devices": None}, {**STORAGE, "rate_bytes_per_second": 12.5e9}]
    return {"node_groups": [{"name": "compute", "nics": nics}], "observed_nodes": [{"name": "n0", "ports": ports}]}


@pytest.mark.parametrize(
    ("rates", "bad"),
    [
        ([50.0] * 8 + [12.5] * 4, []),
        ([12.5, *[50.0] * 4, 12.5, *[50.0] * 4, 12.5, 12.5], []),
        ([50.0] * 8 + [50.0] * 4, []),
        ([50.0] * 8 + [12.5] * 4 + [1.25, 0], []),
        ([None] * 12, []),
        ([*[50.0] * 7, None, *[12.5] * 4], []),
        ([*[50.0] * 3, 25.0, *[50.0] * 4, *[12.5] * 4], [3]),
        ([*[50.0] * 3, 0, *[50.0] * 4, *[12.5] * 4], [3]),
        ([50.0] * 8 + [12.5] * 3 + [0], [11]),
        ([50.0] * 8 + [12.5] * 3 + [1.25], [11]),
        ([*[25.0] * 8, *[12.5] * 4], list(range(8))),
    ],
)
def test_ports_without_names_are_taken_by_their_rates(
    findings: Findings, rates: list[float | None], bad: list[int]
) -> None:
    found = findings(cluster=of_ports(rates), plan=None, checkpoint=None, select=("TS-CLU-073",))
    assert {int(place.split(".")[3]) for _, place in found} == set(bad)


@pytest.mark.parametrize(("old", "is_found"), [(None, False), (2, True), (9, False)])
def test_firmware_is_compared_among_ports_that_may_be_compute(
    findings: Findings, old: int | None, *, is_found: bool
) -> None:
    cluster = of_ports([50.0] * 8 + [12.5] * 4, old)
    found = findings(cluster=cluster, plan=None, checkpoint=None, select=("TS-CLU-080",))
    assert bool(found) == is_found


def test_devices_of_one_board_have_versions_of_their_own(findings: Findings) -> None:
    """A board of two GPUs, each with its own image, as of K80: a board with other versions is named."""
    boards = [("A", "80.05", "80.06"), ("B", "80.05", "80.06"), ("C", "80.05", "80.05")]
    devices = [
        {"name": f"GPU-{board}{half}", "firmware": version, "serial_number": board}
        for board, *versions in boards
        for half, version in enumerate(versions)
    ]
    for number, wanted in ((4, set()), (6, {("TS-CLU-080", "observed_nodes.0.devices.4.firmware")})):
        cluster = {"observed_nodes": [{"name": "node-0", "devices": devices[:number]}]}
        assert findings(cluster=cluster, plan=None, checkpoint=None, select=("TS-CLU-080",)) == wanted
