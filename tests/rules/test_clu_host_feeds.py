"""Links between host and accelerator against the NICs that they feed, and figures of machines beyond the usual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate
from trainspec_validate.model.finding import Verdict
from trainspec_validate.model.requirements import load_index

FEEDS = ("TS-CLU-069",)


def host(**link: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "host_link": link}]}


@pytest.mark.parametrize(
    ("generation", "lanes", "wrong"),
    [(5, 16, False), (6, 16, False), (4, 16, True), (3, 16, True), (5, 8, True)],
)
def test_400_gigabits_for_each_accelerator(findings, generation: int, lanes: int, wrong: bool) -> None:
    cluster = host(technology="pcie", generation=generation, num_lanes=lanes)
    expected = {("TS-CLU-069", "node_groups.0.host_link")} if wrong else set()
    assert findings(cluster=cluster, select=FEEDS) == expected
    assert load_index().by_id["TS-CLU-069"].level == "SHOULD"


def test_accelerators_with_ports_of_their_own_are_not_judged(verdict) -> None:
    cluster = host(technology="pcie", generation=3, num_lanes=16)
    cluster["node_groups"][0]["scale_up"] = {"technology": "gaudi-roce", "generation": "3"}
    assert verdict("TS-CLU-069", cluster=cluster, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE


WAFER = """apiVersion: trainspec/v1
kind: ClusterProfile
metadata: {name: wafers}
num_nodes: 1
num_accelerators: 1
node_groups:
  - name: cs3
    num_nodes: 1
    num_accelerators_per_node: 1
    accelerator:
      model: cerebras-wse-3
      memory_bytes: 44e9
      memory_bandwidth_bytes_per_second: 21e15
      peak_rates: [{format: fp16, flops_per_second: 125e15}]
      power_watts: 23000
"""


def test_a_wafer_is_within_the_ranges(tmp_path: Path) -> None:
    """Cerebras states 125 PFLOP/s, 21 PB/s and 23 kW for a CS-3."""
    file = tmp_path / "cluster.yaml"
    file.write_text(WAFER, encoding="utf-8")
    assert not [f for f in validate([file]).findings if f.requirement == "TS-DOC-009"]
    file.write_text(WAFER.replace("125e15", "125e18"), encoding="utf-8")
    assert [f.requirement for f in validate([file]).findings if f.requirement == "TS-DOC-009"]


BEYOND = ("TS-CLU-072",)


@pytest.mark.parametrize(
    ("link", "key"),
    [
        ({"generation": 5, "num_lanes": 16}, None),
        ({"generation": 4, "num_lanes": 8}, None),
        ({"generation": 5, "num_lanes": 8, "num_links": 2}, None),
        ({"generation": None, "num_lanes": None, "bandwidth_bytes_per_second": 64e9}, None),
        ({"generation": 6, "num_lanes": 16}, "generation"),
        ({"generation": 7, "num_lanes": 16}, "generation"),
        ({"generation": 5, "num_lanes": 32}, "num_lanes"),
        ({"generation": 5, "num_lanes": 16, "num_links": 2}, "num_links"),
        ({"generation": None, "num_lanes": None, "bandwidth_bytes_per_second": 128e9}, "bandwidth_bytes_per_second"),
    ],
)
def test_no_host_link_is_more_than_the_interface_of_the_accelerator(findings, link, key: str | None) -> None:
    """An H100 has PCIe 5 x16: 128e9 is that in both directions."""
    cluster = host(**{"technology": "pcie", "bandwidth_bytes_per_second": None} | link)
    assert findings(cluster=cluster, select=BEYOND) == (
        {("TS-CLU-072", f"node_groups.0.host_link.{key}")} if key else set()
    )


def test_the_interface_of_an_unknown_accelerator_is_not_judged(verdict) -> None:
    cluster = host(technology="pcie", generation=7, num_lanes=16, bandwidth_bytes_per_second=None)
    cluster["node_groups"][0]["accelerator"] = {"model": "prototype", "memory_bandwidth_bytes_per_second": 3e12}
    assert verdict("TS-CLU-072", cluster=cluster, plan=None, checkpoint=None) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("link", "requirement", "key"),
    [
        ({"generation": 7, "bandwidth_bytes_per_second": 500e9}, "TS-CLU-016", "bandwidth_bytes_per_second"),
        ({"generation": 7, "bandwidth_bytes_per_second": 63e9}, "TS-CLU-064", "bandwidth_bytes_per_second"),
        ({"generation": 2, "bandwidth_bytes_per_second": 63e9}, "TS-CLU-016", "bandwidth_bytes_per_second"),
        ({"generation": 9, "bandwidth_bytes_per_second": 63e9}, "TS-CLU-064", "generation"),
    ],
)
def test_every_generation_has_its_rate(findings, link, requirement: str, key: str) -> None:
    found = findings(cluster=host(technology="pcie", num_lanes=16, **link), select=("TS-CLU-016", "TS-CLU-064"))
    assert found == {(requirement, f"node_groups.0.host_link.{key}")}


@pytest.mark.parametrize(
    ("model", "rate", "wrong"),
    [
        ("nvidia-h100-sxm-80gb", 50e9, False),
        ("nvidia-h100-sxm-80gb", 100e9, True),
        ("nvidia-a100-sxm-80gb", 25e9, False),
        ("nvidia-a100-sxm-80gb", 50e9, True),
        ("amd-mi300x-192gb", 50e9, False),
        ("amd-mi300x-192gb", 100e9, True),
        ("nvidia-b300-sxm-288gb", 100e9, False),
    ],
)
def test_nics_are_compared_with_the_accelerator_where_no_host_link_is_described(
    findings, model: str, rate: float, wrong: bool
) -> None:
    """A doubled rate of a NIC without a slot shows at the accelerator, whose PCIe link the catalog has."""
    own = {"model": model, "memory_bytes": None, "peak_rates": None, "power_watts": None}
    nic = {
        "name": "rail",
        "technology": "ethernet",
        "generation": None,
        "rate_bytes_per_second": rate,
        "host_link": None,
    }
    cluster = {"node_groups": [{"name": "compute", "accelerator": own, "host_link": None, "nics": [nic]}]}
    expected = {("TS-CLU-069", "node_groups.0.nics.0.rate_bytes_per_second")} if wrong else set()
    assert findings(cluster=cluster, select=FEEDS) == expected
