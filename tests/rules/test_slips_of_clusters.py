"""Slips of clusters, each plausible by itself: topology, power, switches and libraries against published machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
GROUP = "node_groups.0"
MI300X = {
    "accelerator": {"model": "amd-mi300x-192gb", "memory_bytes": 192e9, "peak_rates": None, "power_watts": 750},
    "scale_up": {"technology": "xgmi", "generation": "mi300x", "num_links": 7, "in_network_reduction": None},
}
TPU = {"accelerator": {"model": "google-tpu-v5p", "memory_bytes": 95e9, "peak_rates": None, "power_watts": None}}


def _group(**keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", **keys}]}


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"scale_up": {"topology": "ring"}}, True),
        ({"scale_up": {"topology": "torus"}}, True),
        ({"scale_up": {"topology": "full-mesh"}}, False),
        ({"scale_up": {"topology": "other"}}, False),
        (MI300X | {"scale_up": MI300X["scale_up"] | {"topology": "switched"}}, True),
        (MI300X | {"scale_up": MI300X["scale_up"] | {"topology": "full-mesh"}}, False),
    ],
)
def test_topology_of_links(findings: Findings, keys: dict[str, Any], wrong: bool) -> None:
    found = findings(cluster=_group(**keys), select=("TS-CLU-081",))
    assert found == ({("TS-CLU-081", f"{GROUP}.scale_up.topology")} if wrong else set())


@pytest.mark.parametrize(("watts", "wrong"), [(350, True), (500, True), (600, False), (700, False)])
def test_power_far_below_the_catalog(findings: Findings, watts: int, wrong: bool) -> None:
    found = findings(cluster=_group(accelerator={"power_watts": watts}), select=("TS-CLU-082",))
    assert found == ({("TS-CLU-082", f"{GROUP}.accelerator.power_watts")} if wrong else set())


def test_the_power_of_another_card_is_named(helps: Callable[..., list[str]]) -> None:
    (told,) = helps(cluster=_group(accelerator={"power_watts": 350}), select=("TS-CLU-082",))
    assert told == "write 700, and a lower setting of the site as power_cap_watts; or correct the model"


@pytest.mark.parametrize(("num", "wrong"), [(4, False), (24, False), (40, True)])
def test_switches_of_links_that_the_table_counts(findings: Findings, num: int, wrong: bool) -> None:
    cluster = _group(scale_up={"num_links": None, "num_switches": num})
    found = findings(cluster=cluster, select=("TS-CLU-014", "TS-CLU-063"))
    assert found == ({("TS-CLU-063", f"{GROUP}.scale_up.num_switches")} if wrong else set())


@pytest.mark.parametrize("library", ["nccl", "rccl", "oneccl"])
def test_no_library_of_another_maker_runs_on_a_tpu(findings: Findings, library: str) -> None:
    cluster = _group(**TPU) | {"software": {"collective_library": {"name": library}}}
    plan = {"communication": {"library": {"name": library}}}
    found = findings(cluster=cluster, plan=plan, select=("TS-CLU-075", "TS-COM-033"))
    assert found == {
        ("TS-CLU-075", "software.collective_library.name"),
        ("TS-COM-033", "communication.library"),
    }


@pytest.mark.parametrize(
    ("accelerator", "library"), [("google-tpu-v5p", "xla"), ("google-tpu-v5p", "libtpu"), ("aws-trainium2", "nccom")]
)
def test_the_own_library_of_a_maker_leaves_nothing_open(
    verdict: Callable[..., Verdict], accelerator: str, library: str
) -> None:
    cluster = _group(accelerator={"model": accelerator}) | {"software": {"collective_library": {"name": library}}}
    assert verdict("TS-CLU-075", cluster=cluster) is Verdict.NOT_APPLICABLE


def test_a_library_of_no_known_maker_does_not_pass(verdict: Callable[..., Verdict]) -> None:
    plan = {"communication": {"library": {"name": "own-ccl"}}}
    assert verdict("TS-COM-033", plan=plan) is Verdict.NOT_APPLICABLE
