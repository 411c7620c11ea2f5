"""A key that names a part of a document is held against the parts that there are: a dangling reference is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trainspec_validate.model.requirements import load_index

Findings = Callable[..., set[tuple[str, str]]]

ROOT = Path(__file__).resolve().parents[2]
INDEX = load_index()
RATE = ", bandwidth_bytes_per_second: 1e9}]}"
REFERENCES = {
    ("ClusterProfile", "node_groups[].site"): "sites: [{name: here}]\nnode_groups: [{name: compute, site: nowhere}]",
    (
        "ClusterProfile",
        "node_groups[].nics[].fabric",
    ): "node_groups: [{name: compute, nics: [{name: rail, fabric: nowhere}]}]",
    ("ClusterProfile", "interconnects[].ends[]"): (
        "sites: [{name: here}]\ninterconnects: [{ends: [here, nowhere], bandwidth_bytes_per_second: 1e9}]"
    ),
    ("ClusterProfile", "layout.nodes[].group"): "layout: {nodes: [{name: n0, group: nowhere}]}",
    ("ClusterProfile", "layout.nodes[].accelerators[].leaf"): (
        "layout: {nodes: [{name: n0, group: compute, accelerators: [{name: a0, leaf: nowhere}]}]}"
    ),
    ("ClusterProfile", "layout.nodes[].nics[].leaf"): (
        "layout: {nodes: [{name: n0, group: compute, nics: [{name: a0, leaf: nowhere}]}]}"
    ),
    ("ClusterProfile", "layout.switches[].tier"): (
        "layout: {nodes: [{name: n0, group: compute}], switches: [{name: s0, tier: nowhere}]}"
    ),
    ("ClusterProfile", "layout.links[].source"): (
        "layout: {nodes: [{name: n0, group: compute}], links: [{source: nowhere, target: n0" + RATE
    ),
    ("ClusterProfile", "layout.links[].target"): (
        "layout: {nodes: [{name: n0, group: compute}], links: [{source: n0, target: nowhere" + RATE
    ),
    (
        "ClusterProfile",
        "measurements[].group",
    ): "measurements: [{operation: all-reduce, num_ranks: 8, message_bytes: 1e9, group: nowhere}]",
    (
        "ClusterProfile",
        "observations[].group",
    ): "observations: [{source: {title: A log, reference: job.log}, group: nowhere}]",
    ("ClusterProfile", "observed_nodes[].group"): "observed_nodes: [{name: n0, group: nowhere}]",
    ("TrainingPlan", "cluster.name"): "cluster: {name: nowhere}",
    ("TrainingPlan", "node_group"): "node_group: nowhere",
    ("TrainingPlan", "parallelism.placements[].fabric_tier"): (
        "parallelism: {placements: [{axis: data, within: fabric, fabric_tier: nowhere}]}"
    ),
    ("TrainingPlan", "rollout.node_group"): (
        "rollout: {num_prompts: 32, num_responses_per_prompt: 16, num_accelerators: 8, max_staleness_steps: 1,"
        " node_group: nowhere}"
    ),
    ("TrainingPlan", "communication.fabric"): "communication: {fabric: nowhere}",
    ("TrainingPlan", "communication.nic_names[]"): "communication: {nic_names: [nowhere]}",
    ("CheckpointPolicy", "cluster.name"): "cluster: {name: nowhere}",
    ("CheckpointPolicy", "plan.name"): "plan: {name: nowhere}",
    ("CheckpointPolicy", "tiers[].storage"): "tiers: [{name: durable, storage: nowhere}]",
}

FILES = {"ClusterProfile": "cluster", "TrainingPlan": "plan", "CheckpointPolicy": "checkpoint"}


@pytest.mark.parametrize(("kind", "key"), REFERENCES)
def test_a_dangling_reference_is_an_error(findings: Findings, kind: str, key: str) -> None:
    found = findings(**{FILES[kind]: REFERENCES[kind, key]})
    place = re.sub(r"\[\]", "", key)
    places = {re.sub(r"\.\d+", "", pointer) for _, pointer in found}
    assert place in places or (key == "observed_nodes[].group" and "observed_nodes" in places)
    requirements = {requirement for requirement, pointer in found if re.sub(r"\.\d+", "", pointer) in place}
    assert any(INDEX.by_id[requirement].level == "MUST" for requirement in requirements)


def test_every_group_of_a_schema_is_in_the_table() -> None:
    """A key named for a group, fabric, site, tier or storage target refers to one."""
    known = {key.rsplit(".", 1)[-1].removesuffix("[]") for _, key in REFERENCES}
    for path in (ROOT / "schemas" / "v1").glob("*.schema.json"):
        if path.name.split(".")[0] in {"cluster-profile", "training-plan", "checkpoint-policy"}:
            schema = json.loads(path.read_text(encoding="utf-8"))
            keys = {key for part in [schema, *schema["$defs"].values()] for key in part.get("properties", {})}
            referring = {key for key in keys if re.fullmatch(r"(node_)?group|fabric(_tier)?|site|leaf|storage", key)}
            assert referring <= known
