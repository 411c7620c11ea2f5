"""A stated figure that no formula, catalog entry or measurement reaches is not judged; an absent one does not apply."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmarks.published_documents import cluster_of, plan_of
from benchmarks.training_sets import rows
from tests.rules.test_groups import HALF, groups, judged
from tests.rules.test_par import GPT_OSS_120B
from trainspec_validate import validate
from trainspec_validate.documents.load import load_text
from trainspec_validate.model.finding import Verdict
from trainspec_validate.performance.forecast.predict import predict
from trainspec_validate.rules._lean_memory import lean_memory, needed_bytes

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
UNSTATED = {"predicted_peak_bytes": None, "peak_view": None}
OWN: dict[str, Any] = {"node_groups": [{"accelerator": {"model": "own-chip", "peak_rates": [], "power_watts": None}}]}
SCHEDULE = {"parallelism": {"schedule": "zero-bubble"}}
PCIE = {"technology": "pcie", "generation": 5, "num_lanes": None, "bandwidth_bytes_per_second": None}
CNN = {"model": {"family": "cnn"}}


@pytest.mark.parametrize(
    ("requirement", "documents"),
    [
        ("TS-MEM-020", {"plan": {"memory": UNSTATED, "parallelism": {"schedule": "other"}}}),
        ("TS-MEM-008", {"plan": {"memory": {"micro_batches_in_flight": 4}, **SCHEDULE}}),
        ("TS-MEM-020", {"plan": {"memory": UNSTATED, **CNN}}),
        ("TS-MEM-021", {"plan": CNN}),
        ("TS-PAR-034", {"plan": {"performance": {"kind": "measured", "tokens_per_second": 1e5}, **CNN}}),
        ("TS-PAR-042", {"plan": {"performance": {"kind": "measured", "step_seconds": 10}, **CNN}}),
        ("TS-COM-026", {"plan": CNN}),
        ("TS-PRC-011", {"cluster": OWN}),
        ("TS-PAR-026", {"plan": {"performance": {"kind": "published", "model_flops_utilisation": 0.41}}}),
        ("TS-PAR-008", {"plan": {"parallelism": {"schedule": None}}}),
        ("TS-PAR-015", {"plan": {"model": {"num_key_value_heads": None}}}),
        ("TS-CLU-016", {"cluster": {"node_groups": [{"name": "compute", "host_link": PCIE}]}}),
        ("TS-MEM-002", {"cluster": OWN}),
        ("TS-MEM-004", {"cluster": OWN}),
        ("TS-NRG-014", {"plan": {"energy": {"expected_joules_per_token": 5}}, "cluster": OWN}),
        ("TS-CLU-075", {"cluster": {"software": {"collective_library": {"name": "own-ccl"}}}}),
    ],
)
def test_a_stated_figure_without_a_model_is_not_judged(
    verdict: Callable[..., Verdict], requirement: str, documents: dict[str, Any]
) -> None:
    assert verdict(requirement, **documents) is Verdict.NOT_RUN


POWER = ("power_watts", 0.7, {"TS-CLU-005", "TS-CLU-041", "TS-CLU-066", "TS-CLU-078", "TS-CLU-082"})
CAP = ("power_cap_watts", 0.7, {"TS-CLU-041", "TS-CLU-066", "TS-CLU-078"})
RATES = ("peak_rates", 5, {"TS-MEM-002", "TS-MEM-004"})
MEMORY = ("memory_bytes", 3, {"TS-PRC-011", "TS-PAR-042"})


@pytest.mark.parametrize(("key", "value", "open_ids"), [POWER, CAP])
def test_a_wrong_power_leaves_nothing_open_that_needs_none(
    key: str, value: float, open_ids: set[str], tmp_path: Path
) -> None:
    assert _open_with(key, value, tmp_path) <= open_ids


@pytest.mark.parametrize(("key", "value", "judged_ids"), [RATES, MEMORY])
def test_a_wrong_figure_of_an_accelerator_leaves_others_judged(
    key: str, value: float, judged_ids: set[str], tmp_path: Path
) -> None:
    assert not _open_with(key, value, tmp_path) & judged_ids


def _open_with(key: str, value: float, directory: Path) -> set[str]:
    """What is not judged on complete documents where a figure of the accelerator is wrong."""
    for name in ("cluster.yaml", "plan.yaml", "checkpoint.yaml"):
        data = load_text((BASE / name).read_bytes(), name).data
        if name == "cluster.yaml":
            data["node_groups"][0]["accelerator"][key] = value
        (directory / name).write_text(json.dumps(data), encoding="utf-8")
    report = validate([str(directory)])
    return {requirement for entry in report.unjudged for requirement in entry.requirements}


@pytest.mark.parametrize(
    ("requirement", "plan"),
    [
        ("TS-MEM-020", {"memory": None, **SCHEDULE}),
        ("TS-MEM-008", SCHEDULE),
        ("TS-PAR-034", CNN),
        ("TS-PAR-042", CNN),
        ("TS-NRG-014", CNN),
    ],
)
def test_without_the_figure_there_is_nothing_that_the_requirement_concerns(
    verdict: Callable[..., Verdict], requirement: str, plan: dict[str, Any]
) -> None:
    assert verdict(requirement, plan=plan) is Verdict.NOT_APPLICABLE


def _experts(policy: str, micro: int = 1) -> dict[str, Any]:
    layout = {"data": 128, "tensor": 1, "pipeline": 1, "context": 1, "expert": 64, "num_accelerators": 128}
    plan: dict[str, Any] = load_text(GPT_OSS_120B, "plan.yaml").data
    plan |= {"parallelism": {**layout, "num_virtual_stages": 1, "schedule": "none", "sharding": "parameters"}}
    plan |= {"batch": {"micro_sequences": micro, "accumulation_steps": 1, "global_sequences": 128 * micro}}
    return plan | {"memory": {**UNSTATED, "activation_policy": policy, "reserve_bytes": None}}


def test_mixtures_of_experts_are_judged_by_their_least_memory_alone(
    verdict: Callable[..., Verdict], findings: Callable[..., set[tuple[str, str]]]
) -> None:
    assert verdict("TS-MEM-020", plan=_experts("full")) is Verdict.NOT_RUN
    assert findings(plan=_experts("none", 64), select=("TS-MEM-020",)) == {("TS-MEM-020", "memory.activation_policy")}
    peak = {**_experts("full"), "memory": {"predicted_peak_bytes": 70e9, "peak_view": "device"}}
    assert verdict("TS-MEM-021", plan=peak) is Verdict.NOT_RUN


def test_all_published_mixtures_of_experts_fit_by_the_lean_reading() -> None:
    """Even as if nothing was recomputed, where a row says nothing of it.

    Automodel is left out: it keeps weights and moments in 16 bits, and rows have master weights and moments of 32.
    """
    shares = []
    for row in rows():
        if not row["num_experts"] or row["excluded"] or row["dataset"] == "nemo_automodel":
            continue
        plan, found = plan_of(row), predict(plan_of(row), cluster_of(row))
        assert plan.model.experts
        stated: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
        for policy in [each for each in stated if row["recompute"] in {"", each}]:
            _, memory = lean_memory(found.model, found.layout, replace(found.settings, recompute=policy))
            shares.append(needed_bytes(memory, 0) / found.machine.memory_bytes)
    assert len(shares) >= 3 * 100
    assert max(shares) < 0.95


def test_a_group_that_cannot_be_judged_hides_no_other(tmp_path: Path) -> None:
    """Two groups that a job spans: one has too little memory, the memory of the other is not known."""
    small = {**HALF, "accelerator": {"memory_bytes": 1e9}}
    own = {**HALF, "accelerator": {"model": "own-chip", "peak_rates": [], "memory_bytes": None}}
    found, _ = judged(tmp_path, "TS-MEM-002", groups(small, own), {})
    assert len(found) == 1
    _, outcome = judged(tmp_path, "TS-MEM-002", groups(HALF, own), {})
    assert outcome.verdict is not Verdict.PASS
