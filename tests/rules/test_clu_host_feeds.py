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
