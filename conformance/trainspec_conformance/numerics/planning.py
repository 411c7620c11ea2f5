"""Inputs for the plans of a stack: world sizes, shares and operations."""

# ruff: noqa: ARG001 - shapes of models are not drawn

from __future__ import annotations

import random
from typing import Any

from trainspec_conformance.numerics import case


@case("elastic-flat")
def elastic_flat(seed: int) -> dict[str, Any]:
    """A batch with many divisors, and micro-batches that do not divide each other."""
    chance = random.Random(seed)  # noqa: S311 - repeatable choices, nothing secret
    return {
        "operation": "elastic",
        "global_sequences": chance.choice((720, 960, 1008, 1260)),
        "micro_sequences": [4, 6, 9],
        "min_accelerators": 3,
        "max_accelerators": 300,
    }


@case("elastic-nodes")
def elastic_nodes(seed: int) -> dict[str, Any]:
    """Whole nodes of eight, and four accelerators for each replica."""
    chance = random.Random(seed)  # noqa: S311 - repeatable choices, nothing secret
    return {
        "operation": "elastic",
        "global_sequences": chance.choice((768, 1024, 1536)),
        "micro_sequences": [2, 8],
        "min_accelerators": 16,
        "max_accelerators": 512,
        "model_parallel": 4,
        "ranks_per_node": 8,
    }


@case("speeds")
def speeds(seed: int) -> dict[str, Any]:
    """Eight workers, one of them at half speed."""
    chance = random.Random(seed)  # noqa: S311 - repeatable choices, nothing secret
    found = [round(chance.uniform(95, 105), 3) for _ in range(8)]
    found[chance.randrange(8)] = 50.0
    return {"operation": "elastic", "global_sequences": 256, "speeds": found}


_DENSE = {
    "name": "dense",
    "family": "dense-transformer",
    "num_parameters": 1,
    "num_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "ffn_hidden_size": 3072,
    "vocabulary_size": 50304,
    "tied_embeddings": True,
}
_GROUPED = {**_DENSE, "name": "grouped", "num_key_value_heads": 4, "attention": "grouped-query"}
_GATED = {
    **_GROUPED,
    "name": "gated",
    "gated_ffn": True,
    "ffn_hidden_size": 2048,
    "head_size": 128,
    "tied_embeddings": False,
}
_EXPERTS = {
    **_GATED,
    "name": "experts",
    "family": "moe-transformer",
    "experts": {
        "num_experts": 16,
        "num_active_experts": 2,
        "num_shared_experts": 1,
        "ffn_hidden_size": 512,
        "num_layers": 10,
    },
}


def _flops(model: dict[str, Any], convention: str, sequence_length: int = 1024) -> dict[str, Any]:
    return {"operation": "flops", "model": model, "convention": convention, "sequence_length": sequence_length}


@case("flops-dense")
def flops_dense(seed: int) -> dict[str, Any]:
    """Plain attention and a plain feed-forward block; one table for input and output."""
    return _flops(_DENSE, "6n-full-attention")


@case("flops-grouped")
def flops_grouped(seed: int) -> dict[str, Any]:
    """Fewer keys than queries."""
    return _flops(_GROUPED, "6n-causal-attention")


@case("flops-gated")
def flops_gated(seed: int) -> dict[str, Any]:
    """Three matrices in a block, wide heads, two tables."""
    return _flops(_GATED, "6n-causal-attention")


@case("flops-experts")
def flops_experts(seed: int) -> dict[str, Any]:
    """Experts, of which a token visits a few."""
    return _flops(_EXPERTS, "6n-causal-attention")


@case("flops-long")
def flops_long(seed: int) -> dict[str, Any]:
    """Sequences so long that attention is most of the work."""
    return _flops(_GATED, "6n-causal-attention", 131_072)
