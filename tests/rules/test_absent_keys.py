"""Findings on documents that lack a key say that it is absent, in place of a value that the document does not have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate
from trainspec_validate.documents.load import load_text
from trainspec_validate.model.finding import Finding, Verdict

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
FILES = ("cluster.yaml", "plan.yaml", "checkpoint.yaml")
Path_ = tuple[str | int, ...]
# Keys whose absence has a meaning that their description states: one rank, one domain, no copy, as often as saves.
MEANING = {
    ("plan.yaml", "parallelism", "data"),
    ("plan.yaml", "parallelism", "tensor"),
    ("plan.yaml", "parallelism", "pipeline"),
    ("plan.yaml", "precision", "master_parameters"),
    ("cluster.yaml", "node_groups", 0, "scale_up"),
    ("cluster.yaml", "node_groups", 0, "nics"),
    ("cluster.yaml", "node_groups", 0, "nics", 1, "role"),
    ("cluster.yaml", "fabrics"),
}


def base() -> dict[str, Any]:
    return {file: load_text((BASE / file).read_text(encoding="utf-8"), file).data for file in FILES}


def without(document: Any, path: Path_) -> Any:
    """The document without one key."""
    step, *rest = path
    if isinstance(document, list):
        return [without(item, tuple(rest)) if number == step else item for number, item in enumerate(document)]
    if not rest:
        return {key: value for key, value in document.items() if key != step}
    return {key: without(value, tuple(rest)) if key == step else value for key, value in document.items()}


def keys(value: Any, place: Path_ = ()) -> Iterator[Path_]:
    """Every key of a document, below lists too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        if isinstance(step, str):
            yield (*place, step)
        yield from keys(item, (*place, step))


def judged(documents: dict[str, Any], directory: Path) -> list[Finding]:
    for file, document in documents.items():
        (directory / file).write_text(json.dumps(document), encoding="utf-8")
    return list(validate([directory]).findings)


@pytest.mark.parametrize(
    ("file", "path", "requirement", "says"),
    [
        ("plan.yaml", "precision high_precision_operations", "TS-PRC-008", "high_precision_operations is absent"),
        ("cluster.yaml", "measurements 0 num_domains", "TS-CLU-044", "where it is absent"),
        ("cluster.yaml", "clock max_offset_seconds", "TS-CLU-039", "without a bound"),
    ],
)
def test_what_is_absent_is_called_absent(tmp_path: Path, file: str, path: str, requirement: str, says: str) -> None:
    documents = base()
    place = tuple(int(step) if step.isdecimal() else step for step in path.split())
    documents[file] = without(documents[file], place)
    (found,) = [finding for finding in judged(documents, tmp_path) if finding.requirement == requirement]
    assert says in found.message
    assert str(place[-1]) in found.message + found.help


@pytest.mark.parametrize(
    ("file", "path", "requirement"),
    [
        ("plan.yaml", "memory prefetch_depth", "TS-MEM-014"),
        ("plan.yaml", "memory pinned_input", "TS-MEM-014"),
        ("cluster.yaml", "reliability num_spare_nodes", "TS-CKP-047"),
        ("cluster.yaml", "fabrics 0 loss credit_flow_control", "TS-TOP-005"),
        ("cluster.yaml", "node_groups 0 scale_up in_network_reduction", "TS-COM-009"),
    ],
)
def test_what_must_hold_of_an_absent_key_is_not_judged(tmp_path: Path, file: str, path: str, requirement: str) -> None:
    documents = base()
    place = tuple(int(step) if step.isdecimal() else step for step in path.split())
    documents[file] = without(documents[file], place)
    assert not [finding for finding in judged(documents, tmp_path) if finding.requirement == requirement]
    (entry,) = [entry for entry in validate([tmp_path]).unjudged if requirement in entry.requirements]
    assert str(place[-1]) in entry.reason
    assert entry.path.endswith(file)


BACKEND = {"num_planes": 4, "plane_bandwidth_bytes_per_second": 12.5e9}
GROUPS = {"tiers": [{"name": "leaf", "group_num_nodes": 8}, {"name": "spine", "group_num_nodes": 12}]}
ONE_GROUP = {"tiers": [{"name": "leaf", "group_num_nodes": 8}, {"name": "spine", "group_num_nodes": None}]}
FABRICS: list[tuple[str, dict[str, Any]]] = [
    ("TS-TOP-001", BACKEND),
    ("TS-TOP-002", {"num_rails": 8}),
    ("TS-TOP-014", GROUPS),
    ("TS-TOP-014", ONE_GROUP),
    ("TS-TOP-015", {"max_num_nics": 128}),
    ("TS-TOP-027", GROUPS),
]


@pytest.mark.parametrize("nics", [None, [{"name": "rail", "fabric": None}]])
@pytest.mark.parametrize(("requirement", "keys"), FABRICS)
def test_a_fabric_that_no_interface_names_has_nothing_to_compare_with(
    verdict: Callable[..., Verdict], requirement: str, keys: dict[str, Any], nics: Any
) -> None:
    cluster = {"fabrics": [{"name": "backend", **keys}], "node_groups": [{"name": "compute", "nics": nics}]}
    assert verdict(requirement, cluster=cluster) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("requirement", "keys", "expected"),
    [
        ("TS-TOP-001", {**BACKEND, "spraying": {"num_entropy_values": 128}}, Verdict.PASS),
        ("TS-TOP-001", {**BACKEND, "spraying": {"num_entropy_values": 127}}, Verdict.FAIL),
        ("TS-TOP-001", {"num_planes": 4}, Verdict.FAIL),
        ("TS-TOP-002", {"num_rails": None}, Verdict.NOT_RUN),
        ("TS-TOP-014", {"tiers": [*GROUPS["tiers"][:1], {"name": "spine", "group_num_nodes": 16}]}, Verdict.PASS),
        ("TS-TOP-014", {"tiers": [*GROUPS["tiers"][:1], {"name": "spine", "group_num_nodes": 4}]}, Verdict.FAIL),
    ],
)
def test_what_needs_no_interface_is_judged_without_one(
    verdict: Callable[..., Verdict], requirement: str, keys: dict[str, Any], expected: Verdict
) -> None:
    cluster = {"fabrics": [{"name": "backend", **keys}], "node_groups": [{"name": "compute", "nics": None}]}
    assert verdict(requirement, cluster=cluster) is expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"read_bandwidth_bytes_per_second": None, "capacity_bytes": None}, Verdict.NOT_APPLICABLE),
        ({"read_bandwidth_bytes_per_second": None}, Verdict.PASS),
        ({"capacity_bytes": None}, Verdict.PASS),
    ],
)
def test_a_rate_of_a_store_alone_is_compared_with_nothing(
    verdict: Callable[..., Verdict], keys: dict[str, Any], expected: Verdict
) -> None:
    disk = {"name": "node-disk", "read_bandwidth_bytes_per_second": None, "write_bandwidth_bytes_per_second": None}
    cluster = {
        "node_groups": [{"name": "compute", "nics": None}],
        "storage_targets": [disk, {"name": "shared-files", **keys}],
    }
    assert verdict("TS-CLU-034", cluster=cluster) is expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, Verdict.NOT_APPLICABLE),
        ({"interval": {"step_seconds": 30}, "job": {"step_seconds_p99": 40}}, Verdict.PASS),
        ({"save": {"num_parameters": 70e9, "bytes_per_parameter": None}}, Verdict.PASS),
    ],
)
def test_a_policy_without_two_figures_of_its_saves_has_none_to_compare(
    verdict: Callable[..., Verdict], keys: dict[str, Any], expected: Verdict
) -> None:
    policy: dict[str, Any] = {
        "save": {"num_parameters": None, "bytes_per_parameter": None, "persist_seconds_p95": None},
        "interval": {"step_seconds": None},
        "job": {"step_seconds_p99": None},
    }
    for section, figures in keys.items():
        policy[section] = {**policy[section], **figures}
    assert verdict("TS-CKP-064", checkpoint=policy) is expected


def test_no_shape_is_guessed_without_its_heads(tmp_path: Path) -> None:
    """Grouped-query attention without its groups is judged neither on them nor on the count of parameters."""
    documents = base()
    documents["plan.yaml"] = without(documents["plan.yaml"], ("model", "num_key_value_heads"))
    found = {finding.requirement for finding in judged(documents, tmp_path)}
    assert not {"TS-PAR-015", "TS-PAR-019"} & found


def test_the_flag_that_explains_the_count_is_named(tmp_path: Path) -> None:
    documents = base()
    documents["plan.yaml"] = without(documents["plan.yaml"], ("model", "gated_ffn"))
    (found,) = [finding for finding in judged(documents, tmp_path) if finding.requirement == "TS-PAR-019"]
    assert found.help.startswith("write gated_ffn: true, with which the shape has 70.55 billion")


@pytest.mark.long
@pytest.mark.parametrize("file", FILES)
def test_every_finding_on_an_absent_key_names_it(tmp_path: Path, file: str) -> None:
    documents = base()
    before = {(finding.requirement, finding.message) for finding in judged(documents, tmp_path)}
    silent = []
    for path in keys(documents[file]):
        if (file, *path) in MEANING or path[0] in {"apiVersion", "kind", "metadata"}:
            continue
        for finding in judged(documents | {file: without(documents[file], path)}, tmp_path):
            told = finding.message + finding.help
            if (finding.requirement, finding.message) not in before and str(path[-1]) not in told:
                silent.append(f"{'.'.join(map(str, path))}: {finding.requirement}: {told}")
    assert not silent, "\n".join(silent)
