"""A JobSet: what its published definition says of it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from export_jobs import job
from jsonschema import Draft202012Validator
from published_definitions import published

from trainspec_validate.interop.writers import kubernetes

ORDERED = {"parallelism.order": ["tensor", "data"], "parallelism.rank_order": "topology"}
SMALL = {"parallelism": {"num_accelerators": 8, "data": 2, "tensor": 4}}
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]] = {
    "several nodes": ({}, {}, {}),
    "in order": (ORDERED, {}, {"grace": {"preemptible": True, "notice_seconds": 29.5}}),
    "one node": (SMALL, {}, {}),
    "amd over ethernet": (
        ORDERED,
        {"node_groups.0.accelerator.model": "amd-mi300x-192gb", "fabrics.0.transport": "tcp"},
        None,
    ),
}


@pytest.fixture(scope="module")
def definition() -> Draft202012Validator:
    """`config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml` of kubernetes-sigs/jobset v0.12.0."""
    return published("TRAINSPEC_JOBSET_CRD", "v1alpha2")


def manifest(name: str) -> Any:
    return yaml.safe_load(kubernetes.write(job(*JOBS[name])).text)


@pytest.mark.parametrize("name", JOBS)
def test_the_published_definition_accepts_it(name: str, definition: Draft202012Validator) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in definition.iter_errors(manifest(name))]
    assert errors == []


@pytest.mark.parametrize("name", JOBS)
def test_the_published_definition_refuses_a_slip(name: str, definition: Draft202012Validator) -> None:
    data = manifest(name)
    (node,) = data["spec"]["replicatedJobs"]
    spec = node["template"]["spec"]
    spec["completion"] = spec.pop("completions")
    spec["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountpath"] = "/dev/shm"
    assert len(list(definition.iter_errors(data))) == 2
