"""Cluster profiles, network interfaces: real producers' NICs pass, and slips are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate
from trainspec_validate.model.finding import Severity, Verdict
from trainspec_validate.model.requirements import load_index

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"


def nic(name: str = "rail", **keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "nics": [{"name": name, **keys}]}]}


def test_one_node_needs_no_network(verdict: Verdicts) -> None:
    cluster = {
        "num_nodes": 1,
        "num_accelerators": 8,
        "node_groups": [{"name": "compute", "num_nodes": 1, "nics": None}],
    }
    assert (
        verdict("TS-CLU-020", cluster=cluster | {"fabrics": None}, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE
    )


def test_one_domain_needs_no_network(verdict: Verdicts) -> None:
    # A TPU slice is one domain of many hosts.
    links = {
        "technology": "ici",
        "generation": "v6e",
        "topology": "torus",
        "domain_num_accelerators": 256,
        "used_num_accelerators": 128,
    }
    cluster = {"node_groups": [{"name": "compute", "nics": None, "scale_up": links}], "fabrics": None}
    assert verdict("TS-CLU-020", cluster=cluster, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE


def test_nics_without_a_fabric(findings: Findings) -> None:
    # 41 of 197 MLPerf systems with several nodes
    cluster = nic(fabric=None) | {"fabrics": None}
    assert ("TS-CLU-020", "num_nodes") in findings(cluster=cluster, plan=None, checkpoint=None)


@pytest.mark.parametrize(
    ("technology", "transport", "wrong"),
    [
        ("infiniband", "infiniband", False),
        ("ethernet", "rocev2", False),
        ("ethernet", "mrc", False),
        ("ethernet", "tcpxo", False),
        ("efa", "efa-srd", False),
        ("slingshot", "slingshot", False),
        ("other", "rocev2", False),
        ("ethernet", "other", False),
        ("infiniband", "rocev2", True),
        ("ethernet", "infiniband", True),
        ("efa", "rocev2", True),
    ],
)
def test_transport(findings: Findings, technology: str, transport: str, wrong: bool) -> None:
    cluster = nic(technology=technology, generation=None) | {"fabrics": [{"name": "backend", "transport": transport}]}
    assert bool(findings(cluster=cluster, select=("TS-CLU-021",))) is wrong


def test_unknown_fabric(findings: Findings) -> None:
    assert findings(cluster=nic("storage", fabric="files"), select=("TS-CLU-021",)) == {
        ("TS-CLU-021", "node_groups.0.nics.1.fabric")
    }


@pytest.mark.parametrize(
    ("count", "served", "own", "wrong"),
    [
        (8, 1, None, False),
        (4, 2, None, False),
        (16, 1, 2, False),
        (32, 1, 4, False),
        (16, 1, None, False),
        (32, None, None, False),  # AWS p5: 32 EFA interfaces, without the key
        (16, 1, 1, True),
        (16, 1, 4, True),
        (8, 1, 2, True),
        (1, 8, None, False),
        (64, 1, 8, False),
        (10, None, None, True),
        (8, 8, None, True),
    ],
)
def test_counts(findings: Findings, count: int, served: int | None, own: int | None, wrong: bool) -> None:
    cluster = nic(num_per_node=count, num_accelerators_served=served, num_per_accelerator=own, devices=None)
    assert bool(findings(cluster=cluster, select=("TS-CLU-023",))) is wrong


@pytest.mark.parametrize(("technology", "wrong"), [("gaudi-roce", False), ("nvlink", True)])
def test_cables_that_bundle_ports_of_accelerators(findings: Findings, technology: str, wrong: bool) -> None:
    # Gaudi 3: three ports of 200 Gb/s of each of 8 accelerators in 6 OSFP cables of 800 Gb/s.
    links = {"technology": technology, "generation": None, "topology": "full-mesh", "domain_num_accelerators": 8}
    cluster = nic(num_per_node=6, rate_bytes_per_second=100e9, num_accelerators_served=None, devices=None)
    cluster["node_groups"][0]["scale_up"] = links
    assert bool(findings(cluster=cluster, select=("TS-CLU-023",))) is wrong


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"technology": "infiniband", "generation": "NDR", "rate_bytes_per_second": 50e9}, False),
        ({"technology": "infiniband", "generation": "hdr100", "rate_bytes_per_second": 12.5e9}, False),
        (
            {"technology": "infiniband", "generation": "ndr", "rate_bytes_per_second": 100e9, "num_ports": 2},
            False,
        ),
        ({"technology": "efa", "generation": "v3", "rate_bytes_per_second": 25e9}, False),  # AWS p5en
        ({"technology": "slingshot", "generation": "11", "rate_bytes_per_second": 25e9}, False),  # Frontier
        (
            {"technology": "ethernet", "generation": None, "rate_bytes_per_second": 75e9, "num_ports": 3},
            False,
        ),  # Gaudi3
        ({"technology": "dcn", "generation": None, "rate_bytes_per_second": 23e9}, False),
        ({"technology": "infiniband", "generation": "ndr", "rate_bytes_per_second": 400e9}, True),
        ({"technology": "infiniband", "generation": "ndr", "rate_bytes_per_second": 6.25e9}, True),
        ({"technology": "infiniband", "generation": "ndrr", "rate_bytes_per_second": 50e9}, True),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 400e9}, True),
        ({"technology": "omni-path", "generation": "100", "rate_bytes_per_second": 12.5e9}, False),  # Jean Zay
        ({"technology": "omni-path", "generation": "OPA100", "rate_bytes_per_second": 12.5e9}, False),
        ({"technology": "omni-path", "generation": "cn5000", "rate_bytes_per_second": 50e9}, False),
        ({"technology": "omni-path", "generation": "100", "rate_bytes_per_second": 50e9}, True),
        ({"technology": "omni-path", "generation": "cn5000", "rate_bytes_per_second": 12.5e9}, True),
        ({"technology": "omni-path", "generation": None, "rate_bytes_per_second": 5e9}, True),
        ({"technology": "omni-path", "generation": None, "rate_bytes_per_second": 100e9}, False),
        ({"technology": "slingshot", "generation": None, "rate_bytes_per_second": 5e9}, True),
        ({"technology": "slingshot", "generation": "10", "rate_bytes_per_second": 12.5e9}, False),
        ({"technology": "infiniband", "generation": None, "rate_bytes_per_second": 5e9}, True),
        ({"technology": "infiniband", "generation": "qdr", "rate_bytes_per_second": 5e9}, False),
        # A tenth, and an eighth, of 400 Gb/s for accelerators with NVLink 4.
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 5e9}, True),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 6.25e9}, True),
        ({"technology": "ethernet", "generation": "40gbe", "rate_bytes_per_second": 5e9}, False),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 5e9, "role": "storage"}, False),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 5e9, "virtual": True}, False),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 200e9}, True),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 200e9, "num_ports": 2}, True),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 100e9, "num_ports": 2}, False),
        ({"technology": "ethernet", "generation": None, "rate_bytes_per_second": 10e9}, True),
        (
            {"technology": "ethernet", "generation": None, "rate_bytes_per_second": 22.5e9},
            True,
        ),  # 180000 Mb/s, one cloud's file
    ],
)
def test_rates(findings: Findings, keys: dict[str, Any], wrong: bool) -> None:
    assert bool(findings(cluster=nic(**keys), select=("TS-CLU-024", "TS-CLU-065"))) is wrong


@pytest.mark.parametrize(
    ("keys", "host", "wrong"),
    [
        ({"rate_bytes_per_second": 10e9}, {}, True),
        ({"rate_bytes_per_second": 10e9, "virtual": True}, {}, False),  # 80 Gb/s, Azure ND H100 v5
        ({"rate_bytes_per_second": 10e9}, {"virtualised": True}, False),
        ({"rate_bytes_per_second": 10e9, "virtual": False}, {"virtualised": True}, True),
    ],
)
def test_virtual_interfaces_have_any_rate(
    findings: Findings, keys: dict[str, Any], host: dict[str, Any], wrong: bool
) -> None:
    own = {"name": "admin", "role": "management", "num_per_node": 1, "technology": "ethernet", **keys}
    cluster = {"node_groups": [{"name": "compute", "host": host, "nics": [own]}]}
    assert bool(findings(cluster=cluster, select=("TS-CLU-024", "TS-CLU-065"))) is wrong


def test_the_help_on_an_unusual_rate_names_the_key_of_virtual_interfaces(tmp_path: Path) -> None:
    text = (BASE / "cluster.yaml").read_text(encoding="utf-8")
    file = tmp_path / "cluster.yaml"
    file.write_text(text.replace("rate_bytes_per_second: 25e9", "rate_bytes_per_second: 10e9"), encoding="utf-8")
    (found,) = [f for f in validate([file]).findings if f.requirement == "TS-CLU-065"]
    assert found.help == (
        "in bytes per second, 10 Gb/s is 1.25e9; where a provider limits the rate, write virtual: true"
    )


def test_accelerators_of_older_nodes_have_slow_ethernet(findings: Findings) -> None:
    slow = nic(technology="ethernet", generation=None, rate_bytes_per_second=5e9)
    slow["node_groups"][0]["scale_up"] = None
    assert not findings(cluster=slow, select=("TS-CLU-065",))


def test_the_rate_of_a_generation_is_an_error_and_any_other_a_warning() -> None:
    by_id = load_index().by_id
    assert by_id["TS-CLU-024"].severity is Severity.ERROR
    assert by_id["TS-CLU-065"].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("generation", "lanes", "rate", "wrong"),
    [
        (5, 16, 50e9, False),
        (4, 16, 25e9, False),
        (3, 16, 12.5e9, False),
        (6, 16, 100e9, False),
        (4, 16, 50e9, True),
        (5, 8, 50e9, True),
        (5, 16, 100e9, True),
    ],
)
def test_slots(findings: Findings, generation: int, lanes: int, rate: float, wrong: bool) -> None:
    link = {"technology": "pcie", "generation": generation, "num_lanes": lanes}
    cluster = nic(rate_bytes_per_second=rate, host_link=link)
    assert bool(findings(cluster=cluster, select=("TS-CLU-025",))) is wrong


@pytest.mark.parametrize(
    ("virtual", "rate", "wrong"),
    [
        (True, 10e9, False),  # 80 Gb/s of NDR on Azure ND H100 v5
        (True, 50e9, False),
        (True, 51e9, True),
        (False, 10e9, True),
        (None, 10e9, True),
    ],
)
def test_a_virtual_interface_has_a_part_of_the_rate(
    findings: Findings, virtual: bool | None, rate: float, wrong: bool
) -> None:
    cluster = nic("storage", technology="infiniband", generation="ndr", virtual=virtual, rate_bytes_per_second=rate)
    assert bool(findings(cluster=cluster, select=("TS-CLU-024",))) is wrong


@pytest.mark.parametrize(("num_links", "wrong"), [(None, True), (1, True), (2, False)])
def test_a_nic_on_two_links(findings: Findings, num_links: int | None, wrong: bool) -> None:
    """The ConnectX-7 of DGX Spark: 200 Gb/s on two PCIe 5 x4."""
    link = {"technology": "pcie", "generation": 5, "num_lanes": 4, "num_links": num_links}
    cluster = nic("storage", technology="ethernet", generation=None, rate_bytes_per_second=25e9, host_link=link)
    assert bool(findings(cluster=cluster, select=("TS-CLU-025",))) is wrong


def test_slot_of_unknown_rate_is_not_judged(verdict: Verdicts) -> None:
    none = [{"name": "rail", "host_link": None}, {"name": "storage", "host_link": None}]
    assert verdict("TS-CLU-025", cluster={"node_groups": [{"name": "compute", "nics": none}]}) is Verdict.NOT_APPLICABLE


def test_devices(findings: Findings) -> None:
    assert findings(cluster=nic(devices=["mlx5_0"]), select=("TS-CLU-026",)) == {
        ("TS-CLU-026", "node_groups.0.nics.0.devices")
    }
    twice = [f"mlx5_{i}" for i in (0, 1, 2, 3, 4, 5, 6, 6)]
    assert findings(cluster=nic(devices=twice), select=("TS-CLU-026",)) == {
        ("TS-CLU-026", "node_groups.0.nics.0.devices.7")
    }


@pytest.mark.parametrize(
    ("own", "nearest", "key"),
    [
        ("PIX", "PIX", None),
        ("PXB", "PIX", None),
        ("PHB", "PHB", None),  # nothing nearer is there
        ("NVL", "NVL", None),
        ("PHB", "PIX", "accelerator_path"),
        ("SYS", "PHB", "accelerator_path"),
        ("PIX", "PXB", "nearest_path"),
    ],
)
def test_paths(findings: Findings, own: str, nearest: str, key: str | None) -> None:
    found = findings(cluster=nic(accelerator_path=own, nearest_path=nearest), select=("TS-CLU-027",))
    assert found == ({("TS-CLU-027", f"node_groups.0.nics.0.{key}")} if key else set())


def test_path_between_numa_nodes(findings: Findings) -> None:
    cluster = nic(accelerator_path="SYS", nearest_path="SYS", same_numa_node=None)
    assert findings(cluster=cluster, select=("TS-CLU-028",)) == {
        ("TS-CLU-028", "node_groups.0.nics.0.accelerator_path")
    }


@pytest.mark.parametrize(("index", "wrong"), [(0, True), (1, True), (2, False), (3, False)])
def test_roce_address(findings: Findings, index: int, wrong: bool) -> None:
    cluster = nic(technology="ethernet", generation=None, gid_index=index) | {
        "fabrics": [{"name": "backend", "transport": "rocev2"}]
    }
    assert bool(findings(cluster=cluster, select=("TS-CLU-030",))) is wrong


def test_address_of_another_transport_is_not_judged(verdict: Verdicts) -> None:
    assert verdict("TS-CLU-030", cluster=nic(gid_index=0)) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("keys", "host_link", "wrong"),
    [
        ({"gpu_direct_level": "PIX"}, "pcie", False),
        ({"gpu_direct_level": "PHB"}, "pcie", True),
        ({"gpu_direct_level": "P2C", "accelerator_path": "P2C"}, "nvlink-c2c", False),
        ({"gpu_direct_level": "SYS"}, "nvlink-c2c", True),
        ({"gpu_direct_level": "PIX", "accelerator_path": "PXB"}, "pcie", True),
        ({"gpu_direct_level": "PXB", "gpu_direct": False}, "pcie", True),
    ],
)
def test_direct_access(findings: Findings, keys: dict[str, Any], host_link: str, wrong: bool) -> None:
    cluster = nic(**keys)
    cluster["node_groups"][0]["host_link"] = {"technology": host_link}
    assert bool(findings(cluster=cluster, select=("TS-CLU-031",))) is wrong


def test_bonds_of_storage_are_nobody_s_business(verdict: Verdicts) -> None:
    assert verdict("TS-CLU-029", cluster=nic("storage", bonded=True)) is Verdict.PASS


def test_two_kinds_of_one_layer(verdict: Verdicts) -> None:
    second = {
        "name": "second",
        "fabric": "backend",
        "num_per_node": 8,
        "technology": "infiniband",
        "rate_bytes_per_second": 50e9,
    }
    cluster = {"node_groups": [{"name": "compute", "nics": [second]}]}
    assert verdict("TS-CLU-022", cluster=cluster) is Verdict.PASS
    assert verdict("TS-CLU-022") is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("rate", "wrong"), [(12.5e9, False), (50e9, False), (100e9, True)])
def test_management_is_no_faster_than_collectives(findings: Findings, rate: float, wrong: bool) -> None:
    admin = {
        "name": "admin",
        "role": "management",
        "num_per_node": 1,
        "technology": "ethernet",
        "rate_bytes_per_second": rate,
    }
    cluster = {"node_groups": [{"name": "compute", "nics": [admin]}]}
    assert bool(findings(cluster=cluster, select=("TS-CLU-056",))) is wrong


SLINGSHOT = {"technology": "slingshot", "generation": "11", "rate_bytes_per_second": 25e9}
NDR200 = {"technology": "infiniband", "generation": "ndr200", "rate_bytes_per_second": 25e9}


def machine(topology: str, counts: tuple[int, int, int], kind: dict[str, Any]) -> dict[str, Any]:
    """Sixteen nodes, with accelerators, interfaces and sockets of one, without what the base has of another machine."""
    accelerators, nics, sockets = counts
    own = dict.fromkeys(("num_accelerators_served", "accelerator_path", "nearest_path", "devices", "host_link"))
    one = {"name": "rail", "fabric": "backend", "num_per_node": nics} | own | kind
    host = {"num_sockets": sockets}
    group = {"name": "compute", "num_accelerators_per_node": accelerators, "host": host, "nics": [one]}
    fabric = {"name": "backend", "topology": topology, "transport": kind["technology"], "tiers": None}
    return {"node_groups": [group], "fabrics": [fabric]}


@pytest.mark.parametrize(
    ("topology", "counts", "kind", "wrong"),
    [
        pytest.param("dragonfly", (6, 8, 2), SLINGSHOT, False, id="aurora"),
        pytest.param("dragonfly", (4, 4, 1), SLINGSHOT, False, id="frontier-and-lumi"),
        pytest.param("dragonfly", (8, 4, 1), SLINGSHOT, False, id="frontier-as-dies"),
        pytest.param("dragonfly", (4, 4, 4), SLINGSHOT, False, id="el-capitan"),
        pytest.param("dragonfly", (4, 4, 1), SLINGSHOT, False, id="perlmutter"),
        pytest.param("dragonfly", (4, 2, 1), SLINGSHOT, False, id="polaris"),
        pytest.param("fat-tree", (4, 4, 2), NDR200, False, id="marenostrum-5"),
        pytest.param("dragonfly", (4, 4, 4), NDR200, False, id="jupiter"),
        pytest.param("fat-tree", (6, 2, 2), NDR200, False, id="summit"),
        pytest.param("dragonfly", (6, 9, 2), SLINGSHOT, True, id="nine-on-two-sockets"),
        pytest.param("rail-optimised", (6, 8, 2), NDR200, True, id="rails"),
        pytest.param("fat-tree", (8, 10, 2), NDR200, True, id="ten-for-eight"),
    ],
)
def test_published_nodes(
    findings: Findings, topology: str, counts: tuple[int, int, int], kind: dict[str, Any], wrong: bool
) -> None:
    """Accelerators, interfaces and sockets of a node, by the documentation of the operators."""
    assert bool(findings(cluster=machine(topology, counts, kind), select=("TS-CLU-023",))) is wrong


def test_two_kinds_in_a_dragonfly_are_not_of_one_sort(findings: Findings) -> None:
    cluster = machine("dragonfly", (6, 6, 2), SLINGSHOT)
    cluster["node_groups"][0]["nics"].append({"name": "more", "fabric": "backend", "num_per_node": 2} | SLINGSHOT)
    assert findings(cluster=cluster, select=("TS-CLU-023",))


@pytest.mark.parametrize(("rate", "help_"), [(400e9, "50e9"), (80e9, "in bytes per second"), (320e9, "in bytes")])
def test_a_rate_in_bits_is_called_one(tmp_path: Path, rate: float, help_: str) -> None:
    text = (BASE / "cluster.yaml").read_text(encoding="utf-8")
    file = tmp_path / "cluster.yaml"
    file.write_text(text.replace("rate_bytes_per_second: 25e9", f"rate_bytes_per_second: {rate:g}"), encoding="utf-8")
    (found,) = [f for f in validate([file]).findings if f.requirement == "TS-CLU-065"]
    assert help_ in found.help
    assert ("a rate in bits" in found.help) is (rate == 400e9)


@pytest.mark.parametrize(
    ("technology", "generation", "wrong"),
    [
        ("ethernet", "NDR", True),
        ("ethernet", "xdr", True),
        ("efa", "ndr400", True),
        ("slingshot", "HDR-200", True),
        ("infiniband", "400GbE", True),
        ("infiniband", "rocev2", True),
        ("infiniband", "v3", True),  # of EFA
        ("infiniband", "11", True),  # of Slingshot
        ("infiniband", "NDR", False),
        ("infiniband", "connectx-7", False),
        ("infiniband", "fdr10", False),
        ("ethernet", "400gbe", False),
        ("ethernet", "v3", False),
        ("slingshot", "11", False),
        ("other", "ndr", False),
    ],
)
def test_a_generation_belongs_to_its_link_layer(
    findings: Findings, technology: str, generation: str, wrong: bool
) -> None:
    cluster = nic(technology=technology, generation=generation)
    found = findings(cluster=cluster, select=("TS-CLU-079",))
    assert found == ({("TS-CLU-079", "node_groups.0.nics.0.generation")} if wrong else set())
