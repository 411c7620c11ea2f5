"""A small job that has everything, and copies of it with one key changed, for the tests of the writers."""

from __future__ import annotations

import copy
import re
from typing import Any

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan, read
from trainspec_validate.interop.document import Job
from trainspec_validate.model.requirements import load_index

CLUSTER: dict[str, Any] = {
    "apiVersion": "trainspec/v1",
    "kind": "ClusterProfile",
    "metadata": {"name": "pond"},
    "num_nodes": 16,
    "num_accelerators": 128,
    "node_groups": [
        {
            "name": "h100",
            "num_nodes": 16,
            "num_accelerators_per_node": 8,
            "accelerator": {"model": "nvidia-h100-sxm-80gb"},
            "host": {"num_cores": 96},
            "scale_up": {
                "technology": "nvlink",
                "generation": "4",
                "topology": "switched",
                "domain_num_accelerators": 8,
            },
            "nics": [
                {
                    "name": "rail",
                    "fabric": "back",
                    "num_per_node": 4,
                    "technology": "infiniband",
                    "rate_bytes_per_second": 50e9,
                    "devices": ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11"],
                },
                {
                    "name": "store",
                    "role": "storage",
                    "num_per_node": 1,
                    "technology": "infiniband",
                    "rate_bytes_per_second": 50e9,
                    "devices": ["mlx5_2"],
                },
            ],
        }
    ],
    "fabrics": [
        {
            "name": "back",
            "transport": "infiniband",
            "topology": "rail-optimised",
            "tiers": [{"name": "leaf", "group_num_nodes": 4}, {"name": "spine", "group_num_nodes": 16}],
        }
    ],
}
PLAN: dict[str, Any] = {
    "apiVersion": "trainspec/v1",
    "kind": "TrainingPlan",
    "metadata": {"name": "tadpole"},
    "model": {
        "name": "small",
        "family": "dense-transformer",
        "num_parameters": 1e9,
        "num_layers": 32,
        "sequence_length": 4096,
    },
    "parallelism": {"num_accelerators": 64, "data": 16, "tensor": 4},
    "batch": {"global_sequences": 64, "micro_sequences": 2, "accumulation_steps": 2},
    "precision": {"compute": "bf16", "parameters": "bf16", "gradients": "bf16", "reduction": "fp32"},
    "communication": {"library": {"name": "nccl", "version": "2.27.5"}},
}
POLICY: dict[str, Any] = {
    "apiVersion": "trainspec/v1",
    "kind": "CheckpointPolicy",
    "metadata": {"name": "log"},
    "interval": {"steps": 50},
    "save": {"mode": "asynchronous", "size_bytes": 14e9, "blocking_seconds": 1},
    "tiers": [{"name": "durable", "failure_domain": "cluster"}],
    "commit": {"protocol": "mark-last"},
    "retention": {"num_kept": 5, "error_detection_seconds": 60},
    "state": {"items": ["model", "optimizer", "step"]},
    "integrity": {"digest": "sha256", "manifest": True, "verified_on_restore": True},
    "detection": [{"layer": "launcher", "timeout_seconds": 5, "faults": ["process-loss"]}],
    "recovery": [
        {
            "fault": "process-loss",
            "action": "restart-in-place",
            "budget_seconds": 90,
            "decide_seconds": 1,
            "restart_seconds": 30,
            "restore_seconds": 40,
            "first_step_seconds": 10,
        }
    ],
    "recovery_point_seconds": 300,
    "restart": {"max_restarts": 3, "max_restarts_without_progress": 3},
}
REQUIREMENT = re.compile(r"TS-[A-Z]{3}-\d{3}")
DELETED = object()


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with values at dotted paths replaced, made, or taken away; a number is a place in a list."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        place: Any = result
        for key in keys:
            place = place[key] if isinstance(key, int) else place.setdefault(key, {})
        if value is DELETED:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    return result


def job(
    plan: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, policy: dict[str, Any] | None = None
) -> Job:
    """The job with changes; without `policy` it has none."""
    mine = read("TrainingPlan", changed(PLAN, plan or {}))
    machine = read("ClusterProfile", changed(CLUSTER, cluster or {}))
    rules = None if policy is None else read("CheckpointPolicy", changed(POLICY, policy))
    assert isinstance(mine, TrainingPlan)
    assert isinstance(machine, ClusterProfile)
    assert rules is None or isinstance(rules, CheckpointPolicy)
    return Job(mine, machine, rules)


def unknown_requirements(text: str) -> set[str]:
    """Ids in a text that no requirement has."""
    return set(REQUIREMENT.findall(text)) - set(load_index().by_id)
