"""Writes the documents that a made run claims to follow, laid over the base documents."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainspec_validate.documents.load import load_file

from .learning import PEAK_LEARNING_RATE, WARMUP_STEPS
from .shape import MEMORY_BYTES, NUM_PARAMETERS, PEAK_FLOPS_PER_SECOND, SEQUENCE_LENGTH, Shape

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
CLUSTER, PLAN, POLICY = "made-cluster", "made-plan", "made-policy"
MODEL = {
    "name": "made-8b",
    "num_parameters": NUM_PARAMETERS,
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "ffn_hidden_size": 14336,
    "sequence_length": SEQUENCE_LENGTH,
}


@cache
def _base(name: str) -> dict[str, Any]:
    found: dict[str, Any] = load_file(BASE / f"{name}.yaml").data
    return found


def papers(shape: Shape) -> dict[str, str]:
    """Text of each document by the name of its file."""
    made = {"cluster.yaml": cluster(shape), "plan.yaml": plan(shape), "checkpoint.yaml": policy(shape)}
    return {name: yaml.safe_dump(data, sort_keys=False, width=120) for name, data in made.items()}


def cluster(shape: Shape) -> dict[str, Any]:
    """The cluster of the run, with one spare node."""
    data = deepcopy(_base("cluster"))
    data["metadata"] = {"name": CLUSTER}
    data["num_nodes"] = shape.num_nodes + 1
    data["num_accelerators"] = (shape.num_nodes + 1) * shape.devices_per_node
    group = data["node_groups"][0]
    group["num_nodes"] = shape.num_nodes + 1
    group["num_accelerators_per_node"] = shape.devices_per_node
    group["accelerator"]["memory_bytes"] = float(MEMORY_BYTES)
    group["node_power_watts"] = 1275 * shape.devices_per_node
    group["scale_up"]["domain_num_accelerators"] = shape.devices_per_node
    rail = group["nics"][0]
    rail["num_per_node"] = shape.devices_per_node
    rail["devices"] = [f"mlx5_{local}" for local in range(shape.devices_per_node)]
    data["fabrics"] = [{"name": "backend", "transport": "infiniband", "topology": "fat-tree"}]
    for way in ("write", "read"):
        data["storage_targets"][0][f"{way}_bandwidth_bytes_per_second"] = 25e9 * shape.num_nodes
    data["reliability"] = reliability(shape)
    del data["measurements"], data["power"]
    return data


def reliability(shape: Shape) -> dict[str, Any]:
    """A failure rate for which the interval between saves is right."""
    between = interval_seconds(shape) ** 2 / (2 * shape.blocking_seconds)
    rate = 1000 * 86400 / (between * shape.num_nodes)
    return {
        "failures_per_1000_node_days": round(rate, 3),
        "source": "measured",
        "num_failures": 40,
        "node_days": round(40_000 / rate, 1),
        "num_spare_nodes": 1,
        "replacement_seconds": 600,
        "spare_start_seconds": 14,
    }


def interval_seconds(shape: Shape) -> float:
    """Time between two saves."""
    return shape.checkpoint_interval_steps * shape.step_seconds


def plan(shape: Shape) -> dict[str, Any]:
    """A dense model of 8 billion parameters: tensor ranks in the node, data ranks across."""
    data = deepcopy(_base("plan"))
    data["metadata"] = {"name": PLAN}
    data["cluster"] = {"name": CLUSTER}
    data["model"] |= MODEL
    data["parallelism"] |= {
        "num_accelerators": shape.world_size,
        "data": shape.num_nodes,
        "tensor": shape.devices_per_node,
        "pipeline": 1,
    }
    del data["parallelism"]["schedule"], data["memory"]["predicted_peak_bytes"]
    data["memory"]["pinned_host_bytes"] = max(8e9, 15 * NUM_PARAMETERS / shape.world_size)
    degrees = {"tensor": shape.devices_per_node, "data": shape.num_nodes, "pipeline": 1}
    for part, key in (("communication", "collectives"), ("parallelism", "placements")):
        data[part][key] = [entry for entry in data[part][key] if degrees[entry["axis"]] > 1]
    data["batch"] |= {
        "global_sequences": shape.batch_sequences,
        "accumulation_steps": shape.sequences_per_device * shape.devices_per_node,
        "global_tokens": shape.batch_tokens,
    }
    data["optimizer"] = {"name": "adamw"} | data.get("optimizer", {})
    data["optimizer"]["learning_rate"] = {
        "kind": "cosine",
        "peak": PEAK_LEARNING_RATE,
        "final": PEAK_LEARNING_RATE / 10,
        "warmup_steps": WARMUP_STEPS,
        "total_steps": shape.num_steps,
    }
    data["telemetry"] = {
        "profile": "full",
        "step_interval": 1,
        "device_interval_seconds": shape.device_interval_seconds,
        "network_interval_seconds": shape.device_interval_seconds,
        "gradient_interval_steps": shape.gradient_interval_steps,
    }
    data["performance"] = performance(shape)
    data["job"] = {
        "num_steps": shape.num_steps,
        "num_tokens": shape.num_steps * shape.batch_tokens,
        "planned_seconds": shape.num_steps * shape.step_seconds * 1.05,
        "seed": 1234,
    }
    return data


def performance(shape: Shape) -> dict[str, Any]:
    """What the plan expects: the pace of the shape."""
    rate = shape.batch_tokens / shape.step_seconds
    return {
        "kind": "predicted",
        "step_seconds": shape.step_seconds,
        "flops_convention": "6n",
        "flops_per_token": 6 * NUM_PARAMETERS,
        "model_flops_utilisation": round(6 * NUM_PARAMETERS * rate / (shape.world_size * PEAK_FLOPS_PER_SECOND), 4),
        "peak_flops_per_second": PEAK_FLOPS_PER_SECOND,
        "peak_format": "bf16",
    }


def policy(shape: Shape) -> dict[str, Any]:
    """Saves at the interval of the shape, to shared files."""
    data = deepcopy(_base("checkpoint"))
    data["metadata"] = {"name": POLICY}
    data["cluster"], data["plan"] = {"name": CLUSTER}, {"name": PLAN}
    interval = interval_seconds(shape)
    data["interval"] = {
        "steps": shape.checkpoint_interval_steps,
        "seconds": interval,
        "step_seconds": shape.step_seconds,
    }
    data["save"] |= {
        "size_bytes": NUM_PARAMETERS * 14,
        "num_parameters": NUM_PARAMETERS,
        "blocking_seconds": shape.blocking_seconds,
        "persist_seconds_p95": shape.persist_seconds,
        "num_writers": shape.world_size,
        "writer_bandwidth_bytes_per_second": NUM_PARAMETERS * 14 / shape.persist_seconds / shape.world_size,
    }
    data["job"] = {
        "num_nodes": shape.num_nodes,
        "planned_seconds": shape.num_steps * shape.step_seconds * 1.05,
        "step_seconds_p99": shape.step_seconds * 1.1,
        "min_num_nodes": shape.num_nodes,
    }
    data["retention"]["error_detection_seconds"] = 2 * interval
    data["detection"][-1]["timeout_seconds"] = interval
    if shape.num_nodes == 1:
        del data["tiers"][0]
    for tier in data["tiers"]:
        tier["interval_seconds"] = interval
    data["recovery_point_seconds"] = interval + shape.persist_seconds + shape.step_seconds
    data["effective_training_time_target"] = 0.9
    return data
