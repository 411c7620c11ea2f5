"""Forced wire protocols: which links they are safe on, and up to which message size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
AT = "communication.collectives.0"


def row(axis: str, protocol: str, **keys: Any) -> dict[str, Any]:
    operation = "all-reduce" if axis == "tensor" else "all-gather"
    choice = {"operation": operation, "axis": axis, "algorithm": "ring", "protocol": protocol, **keys}
    return {"communication": {"collectives": [choice]}}


def group(**keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", **keys}]}


@pytest.mark.parametrize("axis", ["tensor", "data"])
@pytest.mark.parametrize(
    ("path", "far"),
    [("PIX", False), ("PXB", False), ("PXN", False), ("PHB", True), ("SYS", True), (None, False)],
)
def test_distance_of_the_nic(findings: Findings, axis: str, path: str | None, far: bool) -> None:
    nics = {"nics": [{"name": "rail", "accelerator_path": path}]}
    found = findings(cluster=group(**nics), plan=row(axis, "low-latency-128"), select=("TS-COM-031",))
    # Tensor groups are inside one domain of NVLink and cross no NIC.
    assert found == ({("TS-COM-031", f"{AT}.protocol")} if far and axis == "data" else set())


@pytest.mark.parametrize("link", [None, {"technology": "pcie"}])
def test_accelerators_without_nvlink(findings: Findings, link: dict[str, str] | None) -> None:
    found = findings(cluster=group(scale_up=link), plan=row("tensor", "low-latency-128"), select=("TS-COM-031",))
    assert found == {("TS-COM-031", f"{AT}.protocol")}


@pytest.mark.parametrize("protocol", ["automatic", "simple", "low-latency"])
def test_other_protocols_run_on_any_link(verdict: Verdicts, protocol: str) -> None:
    assert verdict("TS-COM-031", cluster=group(scale_up=None), plan=row("tensor", protocol)) is Verdict.NOT_APPLICABLE


def test_accelerators_of_other_makers_are_not_judged(verdict: Verdicts) -> None:
    other = group(accelerator={"model": "amd-mi300x"})
    assert verdict("TS-COM-031", cluster=other, plan=row("tensor", "low-latency-128")) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("limit", "bad"), [(None, True), (1e6, False)])
def test_size_of_the_low_latency_range(findings: Findings, limit: float | None, bad: bool) -> None:
    found = findings(plan=row("tensor", "low-latency", max_bytes=limit), select=("TS-COM-032",))
    assert found == ({("TS-COM-032", AT)} if bad else set())
