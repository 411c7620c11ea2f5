"""Accelerators outside of the catalog by physical ranges, and host links of modules by the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.catalog import accelerators
from trainspec_validate.model.finding import Verdict


def unlisted(**figures: Any) -> dict[str, Any]:
    own = {"model": "prototype", "memory_bytes": 80e9, "memory_bandwidth_bytes_per_second": 2e12, **figures}
    return {"node_groups": [{"name": "compute", "accelerator": own}]}


@pytest.mark.parametrize(
    ("peaks", "bandwidth", "wrong"),
    [
        ({"bf16": 300e12}, 2e12, None),
        ({"bf16": 300e15}, 2e12, 0),
        ({"bf16": 300e12}, 2e15, 0),
        ({"bf16": 1e12}, 2e12, 0),
        ({"fp16": 177e12}, 204.8e9, None),  # MTIA v2: 864 operations per byte
        ({"fp8": 400e15}, 2e12, 0),
        ({"bf16": 300e12, "fp8": 600e12}, 2e12, None),
        ({"int8": 92e12}, 50e9, None),
        ({"fp64": 9.7e12}, 2e12, None),
        ({"fp64": 20e15}, 2e12, 0),
    ],
)
def test_peak_over_bandwidth_outside_the_catalog(findings, peaks, bandwidth, wrong) -> None:
    rates = [{"format": name, "flops_per_second": rate} for name, rate in peaks.items()]
    cluster = unlisted(peak_rates=rates, memory_bandwidth_bytes_per_second=bandwidth)
    found = findings(cluster=cluster, select=("TS-CLU-070",))
    place = f"node_groups.0.accelerator.peak_rates.{wrong}.flops_per_second"
    assert found == (set() if wrong is None else {("TS-CLU-070", place)})


def test_peak_over_bandwidth_where_the_catalog_has_no_peak(findings, verdict) -> None:
    own = {"model": "cerebras-wse-3", "memory_bytes": None, "power_watts": None}
    rates = [{"format": "fp16", "flops_per_second": 125e15}]
    cluster = {"node_groups": [{"name": "compute", "accelerator": {**own, "peak_rates": rates}}]}
    assert verdict("TS-CLU-070", cluster=cluster) is Verdict.PASS
    assert verdict("TS-CLU-070") is Verdict.NOT_APPLICABLE


def test_all_of_the_catalog_is_within_the_range_of_peaks(findings) -> None:
    """Every listed accelerator under a name of its own."""
    groups = []
    for entry in accelerators().values():
        rates = [{"format": name, "flops_per_second": rate} for name, rate in entry.peak_flops_per_second.items()]
        rate = entry.memory_bandwidth_bytes_per_second
        if rates and rate:
            own = {"model": f"my-{entry.name}", "memory_bandwidth_bytes_per_second": rate, "peak_rates": rates}
            groups.append({"name": entry.name, "num_nodes": 1, "num_accelerators_per_node": 1, "accelerator": own})
    assert len(groups) > 40
    assert findings(cluster={"node_groups": groups}, select=("TS-CLU-070",)) == set()


@pytest.mark.parametrize(
    ("model", "technology", "wrong"),
    [
        ("nvidia-gh200-96gb", "pcie", True),
        ("nvidia-gb200-186gb", "pcie", True),
        ("nvidia-gb300-288gb", "infinity-fabric", True),
        ("nvidia-gb200-186gb", "nvlink-c2c", False),
        ("nvidia-gb10-128gb", "coherent", False),
        ("amd-mi300a-128gb", "pcie", True),
        ("nvidia-h100-sxm-80gb", "pcie", False),
        ("nvidia-h100-sxm-80gb", "nvlink-c2c", True),
        ("amd-mi300x-192gb", "nvlink-c2c", True),
        ("amd-mi300a-128gb", "infinity-fabric", False),
        ("prototype", "pcie", False),
        ("prototype", "nvlink-c2c", False),
    ],
)
def test_host_link_of_a_module(findings, model, technology, wrong) -> None:
    group = {"name": "compute", "accelerator": {"model": model}, "host_link": {"technology": technology}}
    found = findings(cluster={"node_groups": [group]}, select=("TS-CLU-071",))
    assert found == ({("TS-CLU-071", "node_groups.0.host_link.technology")} if wrong else set())
