"""Every example is valid, names its sources, and together they cover what real systems differ in."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.every import every
from trainspec_validate import Report, Severity, validate
from trainspec_validate.documents.load import load_text
from trainspec_validate.model.requirements import load_index

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
SCHEMAS = {
    "clusters": ("ClusterProfile", "cluster-profile"),
    "plans": ("TrainingPlan", "training-plan"),
    "policies": ("CheckpointPolicy", "checkpoint-policy"),
}
FILES = sorted(path for directory in SCHEMAS for path in (EXAMPLES / directory).glob("*.yaml"))


@cache
def data(path: Path) -> Any:
    return load_text(path.read_text(encoding="utf-8"), path.name).data


def documents(directory: str) -> list[Any]:
    return [data(path) for path in FILES if path.parent.name == directory]


@cache
def report() -> Report:
    return validate([EXAMPLES / directory for directory in SCHEMAS])


@every("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_example_has_no_finding(path: Path) -> None:
    found = [f for f in report().at_or_above(Severity.WARNING) if Path(f.path).parts[-2:] == path.parts[-2:]]
    assert [(f.span and f.span.line, f.requirement, f.message) for f in found] == []


def test_examples_together_have_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    findings = validate([f"examples/{directory}" for directory in SCHEMAS]).at_or_above(Severity.WARNING)
    assert [(f.path, f.span and f.span.line, f.requirement, f.message) for f in findings] == []


@every("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_example_is_complete(path: Path) -> None:
    kind, schema = SCHEMAS[path.parent.name]
    document = data(path)
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first == f"# yaml-language-server: $schema=https://trainspec.org/schemas/v1/{schema}.schema.json"
    assert document["kind"] == kind
    assert document["metadata"]["name"] == path.stem
    assert document["metadata"]["description"]
    assert document["metadata"]["sources"]
    for source in document["metadata"]["sources"]:
        assert source["title"]
        assert source["reference"]


def test_every_example_is_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in FILES if f"({path.parent.name}/{path.name})" not in readme]
    assert missing == []


def test_clusters_cover_vendors_and_sizes() -> None:
    clusters = documents("clusters")
    assert len(clusters) >= 14
    models = {group["accelerator"]["model"] for cluster in clusters for group in cluster["node_groups"]}
    vendors = {model.split("-")[0] for model in models}
    assert vendors >= {"nvidia", "amd", "intel", "google", "graphcore", "aws"}
    assert any("trainium" in model for model in models)
    assert any(model.startswith("google-tpu") for model in models)
    assert 131072 in {cluster["num_accelerators"] for cluster in clusters}
    transports = {fabric["transport"] for cluster in clusters for fabric in cluster.get("fabrics", [])}
    assert transports >= {"mrc", "infiniband", "rocev2"}


def test_plans_cover_kinds_of_runs() -> None:
    plans = documents("plans")
    assert len(plans) >= 13
    assert {plan["model"]["family"] for plan in plans} >= {"dense-transformer", "moe-transformer"}
    assert {plan["model"]["family"] for plan in plans} >= {"cnn", "state-space", "hybrid"}
    assert {plan["performance"]["kind"] for plan in plans if "performance" in plan} == {"published"}
    assert {plan["optimizer"]["name"] for plan in plans if "optimizer" in plan} >= {"adamw", "muon"}
    assert any("lora" in plan for plan in plans)
    assert any("num_mtp_layers" in plan["model"] for plan in plans)
    references = {plan["cluster"]["name"] for plan in plans if "cluster" in plan}
    assert any(name.startswith("google-tpu") for name in references)
    assert any("ramp" in plan["batch"] for plan in plans)
    assert any(plan["parallelism"].get("context", 1) > 1 for plan in plans)
    assert max(plan["parallelism"]["num_accelerators"] for plan in plans) == 16384


def test_policies_refer_to_examples_and_say_what_they_are() -> None:
    policies = documents("policies")
    assert len(policies) >= 5
    for policy in policies:
        assert "cluster" in policy or "plan" in policy
        assert policy["metadata"]["description"].startswith("Illustrative")
    assert any(policy.get("grace", {}).get("preemptible") for policy in policies)
    assert {tier["name"] for policy in policies for tier in policy["tiers"]} >= {"host-memory", "durable"}


def test_references_lead_to_examples() -> None:
    for path in FILES:
        for key in ("cluster", "plan"):
            reference = data(path).get(key)
            if reference:
                target = (path.parent / reference["file"]).resolve()
                assert data(target)["metadata"]["name"] == reference["name"]


def test_departures_carry_reasons() -> None:
    suppressed = report().suppressed
    assert suppressed
    assert {Path(entry.finding.path).parent.name for entry in suppressed} <= {"clusters", "plans"}
    assert all(len(entry.reason) > 10 for entry in suppressed)


def test_core_is_what_published_systems_meet() -> None:
    """The table of the introduction counts the examples, and at least eight of ten have no core error."""
    core = {requirement.id for requirement in load_index().by_id.values() if requirement.profile == "core"}
    departures: dict[str, set[str]] = {}
    for entry in report().suppressed:
        if entry.finding.severity is Severity.ERROR and entry.finding.requirement in core:
            departures.setdefault(Path(entry.finding.path).stem, set()).add(entry.finding.requirement)
    page = (ROOT / "spec" / "v1" / "00-introduction.md").read_text(encoding="utf-8")
    for kind, words in (("ClusterProfile", "cluster profiles"), ("TrainingPlan", "training plans"),
                        ("CheckpointPolicy", "checkpoint policies")):  # fmt: skip
        names = [Path(document.path).stem for document in report().documents if document.kind == kind]
        departed = [f"{name}: {', '.join(sorted(departures[name]))}" for name in sorted(names) if name in departures]
        clean = len(names) - len(departed)
        assert f"| {words} | {len(names)} | {clean} | {'; '.join(departed)}".rstrip() in page
        assert clean >= 0.8 * len(names)
    assert not report().at_or_above(Severity.ERROR)
