"""A TrainJob: what Kubeflow's published schema says of it, and what torchrun reads from it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from export_jobs import job, unknown_requirements
from jsonschema import Draft202012Validator
from published_definitions import published

from trainspec_validate.interop.writers import kubeflow

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
    "a value with a reference": ({}, {"node_groups.0.host.topology_file": "$(HOSTNAME)"}, None),
}


def manifest(name: str) -> Any:
    return yaml.safe_load(kubeflow.write(job(*JOBS[name])).text)


def pod(data: Any) -> Any:
    (patch,) = data["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    return node["template"]["spec"]["template"]


@pytest.fixture(scope="module")
def definition() -> Draft202012Validator:
    """`manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml` of kubeflow/trainer v2.3.0."""
    return published("TRAINSPEC_TRAINJOB_CRD", "v1alpha1")


@pytest.mark.parametrize("name", JOBS)
def test_the_published_definition_accepts_it(name: str, definition: Draft202012Validator) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in definition.iter_errors(manifest(name))]
    assert errors == []


@pytest.mark.parametrize("name", JOBS)
def test_the_published_definition_refuses_a_slip(name: str, definition: Draft202012Validator) -> None:
    data = manifest(name)
    data["spec"]["trainer"]["numNode"] = data["spec"]["trainer"].pop("numNodes")
    pod(data)["spec"]["restartPolicy"] = "Never"
    assert len(list(definition.iter_errors(data))) == 2


@pytest.mark.parametrize("name", JOBS)
def test_what_the_webhook_asks_for(name: str) -> None:
    """Rules of the admission webhook and of CEL, which a schema does not hold."""
    data = manifest(name)
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", data["metadata"]["name"])
    for container in pod(data)["spec"]["containers"]:
        assert container["name"] == "node"
        assert "env" not in container, "variables of this container are of spec.trainer"
    (patch,) = data["spec"]["runtimePatches"]
    assert re.fullmatch(r"[a-z0-9.-]+/[a-z-]+", patch["manager"])
    variables = [entry["name"] for entry in data["spec"]["trainer"].get("env", [])]
    assert not [each for each in variables if each.startswith("PET_")], "these are the controller's"
    assert len(set(variables)) == len(variables) <= 128


def test_nodes_ranks_and_devices_are_those_of_the_job() -> None:
    trainer = manifest("in order")["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (8, 8)
    assert trainer["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 8}}
    assert {"name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1,mlx5_10,mlx5_11"} in trainer["env"]
    amd = manifest("amd over ethernet")["spec"]["trainer"]
    assert amd["resourcesPerNode"] == {"limits": {"amd.com/gpu": 8}}
    (entry,) = [
        one for one in manifest("a value with a reference")["spec"]["trainer"]["env"] if one["name"] == "NCCL_TOPO_FILE"
    ]
    assert entry["value"] == "$$(HOSTNAME)"


def test_pods_lie_together_lock_memory_and_have_time_to_end() -> None:
    found = pod(manifest("in order"))
    assert found["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-spine"
    }
    assert found["spec"]["terminationGracePeriodSeconds"] == 30
    (container,) = found["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert container["volumeMounts"] == [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    assert found["spec"]["volumes"] == [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    assert "securityContext" not in pod(manifest("amd over ethernet"))["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("name", "nodes", "rendezvous", "restarts"),
    [("several nodes", 8, "c10d", 3), ("in order", 8, "static", 0), ("one node", 1, "c10d", 3)],
)
def test_torchrun_reads_it(
    name: str, nodes: int, rendezvous: str, restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pytest.importorskip("torch.distributed.run")
    data = manifest(name)
    trainer = data["spec"]["trainer"]
    variables = {  # what Kubeflow's plug-in for torch sets, pkg/runtime/framework/plugins/torch/torch.go
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": f"{data['metadata']['name']}-node-0-0.{data['metadata']['name']}",
        "PET_MASTER_PORT": "29400",
    }
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    expanded = [re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], word) for word in trainer["command"]]
    assert expanded[0] == "torchrun"
    options = run.parse_args([*expanded[1:], *trainer["args"]])
    config, _, arguments = run.config_from_args(options)
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (nodes, nodes, 8)
    assert arguments[-1] == "train.py"
    assert config.max_restarts == restarts
    if not options.standalone:
        assert config.rdzv_backend == rendezvous
        assert config.rdzv_endpoint == "tadpole-node-0-0.tadpole:29400"
    else:
        assert nodes == 1


def test_restarts_that_only_the_runtime_can_make_are_said() -> None:
    found = kubeflow.write(job(*JOBS["in order"]))
    assert any("restart.max_restarts is 3" in note and "maxRestarts" in note for note in found.left_out)
    assert not any("max_restarts" in note for note in kubeflow.write(job(*JOBS["amd over ethernet"])).left_out)
    assert not unknown_requirements(found.text + " ".join(found.left_out))
