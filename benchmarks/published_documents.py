"""Writes the training plan and the cluster profile of a published row, as a user would write them for that run.

A row of `published/training_runs.csv` holds what its source says. Facts that no source prints are assumed, for all rows
alike:

- micro-batch: all sequences of a data rank where there is one pipeline stage, else one sequence;
- data-parallel traffic overlaps, unless the source says that it does not;
- machines: `MACHINES`, with the NIC rates of the usual node of each accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, read

Row = Mapping[str, str]
Kind = TypeVar("Kind")

# Accelerators of a node and of a scale-up domain, the rate of their links in one direction and that of a NIC for each
# accelerator: DGX A100 and H100 (arXiv:2104.04473 section 5; vendor data sheets), HGX B200 and B300, NVL72 racks
# (coreweave/nccl-tests@cb865533), TPU (jax-ml/scaling-book@0819a7d8).
MACHINES: dict[str, tuple[int, str, float, float]] = {
    "nvidia-a100-sxm-40gb": (8, "8", 300e9, 25e9),
    "nvidia-a100-sxm-80gb": (8, "8", 300e9, 25e9),
    "nvidia-h100-sxm-80gb": (8, "8", 450e9, 50e9),
    "nvidia-h200-sxm-141gb": (8, "8", 450e9, 50e9),
    "nvidia-b200-sxm-180gb": (8, "8", 900e9, 50e9),
    "nvidia-b300-sxm-288gb": (8, "8", 900e9, 100e9),
    "nvidia-gb200-186gb": (4, "72", 900e9, 50e9),
    "nvidia-gb300-288gb": (4, "72", 900e9, 100e9),
    "amd-mi300x-192gb": (8, "8", 448e9, 50e9),
    "amd-mi325x-256gb": (8, "8", 448e9, 50e9),
    "amd-mi350x-288gb": (8, "8", 537e9, 50e9),
    "amd-mi355x-288gb": (8, "8", 537e9, 50e9),
    "google-tpu-v5e": (4, "16x16", 180e9, 3.125e9),
    "google-tpu-v5p": (4, "8x16x16", 540e9, 6.25e9),
    "google-tpu-v6e": (4, "16x16", 360e9, 12.5e9),
    "google-tpu-v7x": (4, "4x8x8", 600e9, 12.5e9),
}
_RECIPES = {
    "fp8": {"format": "fp8-hybrid"},
    "mxfp8": {"format": "mxfp8", "scaling": "block"},
    "nvfp4": {"format": "nvfp4", "scaling": "block"},
    "int8": {"format": "int8"},
}


def cluster_of(row: Row) -> ClusterProfile:
    """The machine of a row, as many nodes of it as the run took."""
    per_node, usual, link, usual_nic = MACHINES[row["accelerator"]]
    num = int(row["num_accelerators"])
    dimensions = [int(each) for each in (row["domain"] or usual).split("x")]
    domain = 1
    for each in dimensions:
        domain *= each
    per_node = min(per_node, num)
    accelerator: dict[str, Any] = {"model": row["accelerator"]}
    if row["memory_bandwidth"]:
        accelerator["memory_bandwidth_bytes_per_second"] = float(row["memory_bandwidth"])
    transport = row["transport"] or "infiniband"
    num_nodes = -(-max(num, min(domain, num)) // per_node)
    group = {
        "name": "nodes",
        "num_nodes": num_nodes,
        "num_accelerators_per_node": per_node,
        "accelerator": accelerator,
        "scale_up": _scale_up(row["accelerator"], dimensions, min(domain, num_nodes * per_node), link),
        "nics": [
            {
                "name": "compute",
                "role": "compute",
                "fabric": "fabric",
                "num_per_node": per_node,
                "num_accelerators_served": 1,
                "technology": {"infiniband": "infiniband", "dcn": "dcn"}.get(transport, "ethernet"),
                "rate_bytes_per_second": float(row["nic_bytes_per_second"] or usual_nic),
            }
        ],
    }
    return _typed(
        ClusterProfile,
        {
            "apiVersion": "trainspec/v1",
            "kind": "ClusterProfile",
            "metadata": {"name": "published"},
            "num_nodes": num_nodes,
            "num_accelerators": num_nodes * per_node,
            "node_groups": [group],
            "fabrics": [{"name": "fabric", "transport": transport, "topology": "other"}],
        },
    )


def _scale_up(accelerator: str, dimensions: list[int], domain: int, link: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "technology": "nvlink",
        "topology": "switched",
        "domain_num_accelerators": domain,
        "bandwidth_bytes_per_second": link,
    }
    if accelerator.startswith("google"):
        torus = {"technology": "ici", "topology": "torus", "dimensions": dimensions}
        found |= {**torus, "wraparound": [True] * len(dimensions), "latency_seconds": 1e-6}
    elif accelerator.startswith("amd"):
        found |= {"technology": "xgmi", "topology": "full-mesh"}
    else:
        found["in_network_reduction"] = not accelerator.startswith("nvidia-a100")
    return found


def plan_of(row: Row) -> TrainingPlan:
    """The plan of a row."""
    count = {key: int(row[key] or 1) for key in ("tensor", "pipeline", "context", "expert", "num_virtual_stages")}
    data = int(row["num_accelerators"]) // (count["tensor"] * count["pipeline"] * count["context"])
    each = int(row["global_sequences"]) / data
    micro = int(row["micro_sequences"] or (1 if count["pipeline"] > 1 else max(1, round(each))))
    accumulation = max(1, round(each / micro))
    chunks = count["num_virtual_stages"] if count["pipeline"] > 1 else 1
    parallelism: dict[str, Any] = {
        **count,
        "num_accelerators": int(row["num_accelerators"]),
        "data": data,
        "num_virtual_stages": chunks,
        "sequence": bool(row["sequence"]) and count["tensor"] > 1,
        "sharding": row["sharding"],
        "order": ("tensor", "context", "expert", "data", "pipeline"),
    }
    if count["pipeline"] > 1:
        parallelism["schedule"] = "interleaved-1f1b" if chunks > 1 else "1f1b"
    if row["num_experts"]:
        parallelism["expert_tensor"] = int(row["expert_tensor"] or 1)
    if row["sharding_degree"]:
        parallelism["sharding_degree"] = int(row["sharding_degree"]) * count["context"]
    document: dict[str, Any] = {
        "apiVersion": "trainspec/v1",
        "kind": "TrainingPlan",
        "metadata": {"name": "published"},
        "model": model_of(row),
        "parallelism": parallelism,
        "batch": {
            "global_sequences": data * micro * accumulation,
            "micro_sequences": micro,
            "accumulation_steps": accumulation,
            "global_tokens": data * micro * accumulation * int(row["sequence_length"]),
        },
        "precision": _precision(row),
        "communication": _communication(row),
    }
    if row["recompute"]:
        policy, *kept = row["recompute"].split()
        document["memory"] = {"activation_policy": policy}
        if kept == ["offload"]:
            document["memory"]["offload"] = [{"what": "activations", "target": "host", "fraction": 1.0}]
    if row["adapter_rank"]:
        # mlcommons/training_policies:training_rules.adoc: adapters on the projections of attention.
        document["lora"] = {"rank": int(row["adapter_rank"]), "targets": ["query-key-value", "output"]}
    if row["framework"]:
        version = {"version": row["framework_version"]} if row["framework_version"] else {}
        document["framework"] = {"name": row["framework"], **version}
    return _typed(TrainingPlan, document)


def _communication(row: Row) -> dict[str, Any]:
    overlap = row["overlap_gradients"] != "no"
    found = {"overlap_gradients": overlap, "overlap_parameters": overlap}
    stated = {key: row[key] == "yes" for key in ("overlap_tensor", "overlap_expert") if row[key]}
    return found | stated


def _precision(row: Row) -> dict[str, Any]:
    wide = "fp16" if row["number_format"] == "fp16" else "bf16"
    # NVIDIA-NeMo/Automodel@36044ad3:nemo_automodel/_transformers/auto_model.py: weights of 16 bits, and Adam on them.
    narrow = row["framework"] == "automodel" or row["variant"] == "weights of 16 bits"
    # torch.autocast casts weights of fp32 for each product; Adam steps on those, as it does on weights of 16 bits.
    held = "fp32" if row["variant"] == "autocast" else wide
    found: dict[str, Any] = {
        "compute": wide,
        "parameters": held,
        "gradients": row["reduction_format"],
        "reduction": row["reduction_format"],
        "optimizer_state": wide if narrow else "fp32",
    }
    if not narrow and held == wide:
        found["master_parameters"] = "fp32"
    if row["number_format"] in _RECIPES:
        found["recipe"] = _RECIPES[row["number_format"]]
    return found


def model_of(row: Row) -> dict[str, Any]:
    """The model section of a row; heads share the hidden size unless the row says otherwise."""
    hidden, heads = int(row["hidden_size"]), int(row["num_heads"])
    found: dict[str, Any] = {
        "name": "published",
        "family": "moe-transformer" if row["num_experts"] else "dense-transformer",
        "num_parameters": float(row["num_parameters"] or 1e9),
        "num_layers": int(row["num_layers"]),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": int(row["num_key_value_heads"] or heads),
        "head_size": int(row["head_size"] or hidden // heads),
        "gated_ffn": bool(row["gated_ffn"]),
        "tied_embeddings": bool(row["tied_embeddings"]),
        "vocabulary_size": int(row["vocabulary_size"]),
        "sequence_length": int(row["sequence_length"]),
    }
    if row["ffn_hidden_size"]:
        found["ffn_hidden_size"] = int(row["ffn_hidden_size"])
    if row["latent"]:
        found["attention"] = "latent"
    if row["num_experts"]:
        found["experts"] = {
            "num_experts": int(row["num_experts"]),
            "num_active_experts": int(row["num_active_experts"]),
            "num_shared_experts": int(row["num_shared_experts"] or 0),
            "ffn_hidden_size": int(row["expert_hidden_size"]),
            "num_layers": int(row["num_expert_layers"]),
        }
    return found


def _typed(kind: type[Kind], document: dict[str, Any]) -> Kind:
    found = read(kind.__name__, document)
    if not isinstance(found, kind):
        raise TypeError(f"a {kind.__name__} was written, and something else was read")
    return found
