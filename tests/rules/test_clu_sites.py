"""Sites, interconnects, memory that is shared, memory of servers, and ports of two rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]

SITES = [{"name": "lake"}, {"name": "hill"}]


def two_sites(ends: list[str], site: str | None = "lake", **more: Any) -> dict[str, Any]:
    join = {"ends": ends, "bandwidth_bytes_per_second": 50e9, "latency_seconds": 0.0105}
    return {"sites": SITES, "interconnects": [join], "node_groups": [{"name": "compute", "site": site}], **more}


@pytest.mark.parametrize(
    ("ends", "site", "places"),
    [
        (["lake", "hill"], "lake", set()),
        (["lake", "lake"], "lake", {"interconnects.0.ends"}),
        (["lake", "backend"], "lake", {"interconnects.0.ends"}),
        (["lake", "hilll"], "lake", {"interconnects.0.ends.1"}),
        (["lake", "hill"], "lakee", {"node_groups.0.site"}),
        (["lake", "hill"], None, {"node_groups.0.name"}),
    ],
)
def test_sites_and_interconnects(findings: Findings, ends: list[str], site: str | None, places: set[str]) -> None:
    found = findings(cluster=two_sites(ends, site), select=("TS-CLU-067",))
    assert found == {("TS-CLU-067", place) for place in places}


def test_interconnects_join_fabrics(findings: Findings, verdict: Callable[..., Verdict]) -> None:
    fabrics = [{"name": "backend"}, {"name": "second", "transport": "rocev2", "topology": "fat-tree"}]
    cluster = two_sites(["backend", "second"], fabrics=fabrics)
    assert findings(cluster=cluster, select=("TS-CLU-067",)) == set()
    assert verdict("TS-CLU-067") is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("size", "wrong"), [(640e9, False), (687e9, False), (1280e9, True), (320e9, True)])
def test_unified_memory(findings: Findings, size: float, wrong: bool) -> None:
    group = {"name": "compute", "accelerator": {"unified_memory": True}, "host": {"memory_bytes": size}}
    assert bool(findings(cluster={"node_groups": [group]}, select=("TS-CLU-068",))) is wrong


@pytest.mark.parametrize(
    ("scope", "domain", "wrong"),
    [("cluster", "cluster", False), ("cluster", "node", True), ("node", "node", False), ("node", "cluster", True)],
)
def test_memory_of_servers(findings: Findings, scope: str, domain: str, wrong: bool) -> None:
    store = {"kind": "host-memory", "scope": scope, "failure_domain": domain, "capacity_bytes": 1.5e12}
    cluster = {"storage_targets": [{"name": "memory", **store}]}
    assert bool(findings(cluster=cluster, select=("TS-CLU-032", "TS-CLU-033"))) is wrong


@pytest.mark.parametrize(
    ("others", "wrong"), [([], True), ([{"num_ports": 4, "bandwidth_bytes_per_second": 50e9}], False)]
)
def test_leaves_have_ports_of_two_rates(findings: Findings, others: list[dict[str, Any]], wrong: bool) -> None:
    leaf = {"name": "leaf", "num_down_ports": 8, "port_bandwidth_bytes_per_second": 25e9, "other_down_ports": others}
    fabric = {"name": "backend", "tiers": [leaf], "num_rails": None, "topology": "fat-tree"}
    found = findings(cluster={"fabrics": [fabric]}, select=("TS-TOP-011",))
    assert (("TS-TOP-011", "fabrics.0.tiers.0.port_bandwidth_bytes_per_second") in found) is wrong
