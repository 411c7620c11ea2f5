"""Parameters of low-rank adapters (LoRA) by the matrices of a transformer that have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainspec_validate.performance.costs.transformer import Shape


def target_sides(shape: Shape) -> Mapping[str, tuple[tuple[int, int], int]]:
    """Inputs and outputs of each matrix that can have an adapter, and how many of them there are.

    Matrices of experts are counted in every routed and shared expert.
    """
    hidden, layers, width = shape.hidden_size, shape.num_layers, shape.attention_width
    keys, dense = shape.num_key_value_heads * shape.head_size, shape.num_layers - shape.num_expert_layers
    experts = shape.num_expert_layers * (shape.num_experts + shape.num_shared_experts)
    found: dict[str, tuple[tuple[int, int], int]] = {
        "query": ((hidden, width), layers),
        "key": ((hidden, keys), layers),
        "value": ((hidden, keys), layers),
        "query-key-value": ((hidden, width + 2 * keys), layers),
        "output": ((width, hidden), layers),
        "output-head": ((hidden, shape.vocabulary_size), 1),
        "embedding": ((shape.vocabulary_size, hidden), 1),
    }
    for name, inner, count in (("", shape.ffn_hidden_size, dense), ("expert-", shape.expert_hidden_size, experts)):
        if count and inner:
            found |= {f"{name}up": ((hidden, inner), count), f"{name}down": ((inner, hidden), count)}
            if shape.gated_ffn:
                found |= {f"{name}gate": ((hidden, inner), count), f"{name}gate-up": ((hidden, 2 * inner), count)}
    return found


def adapter_parameters(shape: Shape, rank: int, targets: Collection[str]) -> float:
    """Parameters of adapters of a rank: `r (inputs + outputs)` for each matrix.

    Source: arXiv:2106.09685, section 4.1. The adapters of MLPerf's Llama 2 70B, rank 16 on the joint projection of
    queries, keys and values and on the output of attention
    (mlcommons/training_results_v4.0:NVIDIA/benchmarks/llama2_70b_lora):

    >>> llama2_70b = Shape(80, 8192, 64, 8, 128, 28672, 32000, gated_ffn=True)
    >>> adapter_parameters(llama2_70b, 16, ("query-key-value", "output"))
    44564480.0

    Raises:
        ValueError: the rank is below 1, or the model has no such matrix.
    """
    if rank < 1:
        raise ValueError(f"adapters of rank {rank}; 1 is the least")
    sides = target_sides(shape)
    absent = [target for target in targets if target not in sides]
    if absent:
        raise ValueError(f"the model has no matrix {absent[0]!r}; it has {', '.join(sorted(sides))}")
    return float(sum(rank * sum(sides[target][0]) * sides[target][1] for target in targets))
