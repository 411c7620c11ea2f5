"""Counts the operations of an optimizer step by a convention, and the model FLOPs utilisation (MFU) that follows."""

from __future__ import annotations

from typing import Literal

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import (
    Shape,
    attention_flops_per_token,
    megatron_2021_flops_per_token,
    megatron_2022_flops_per_token,
    model_flops_per_token,
    parameters,
)

Convention = Literal[
    "6n", "6n-full-attention", "6n-causal-attention", "palm", "megatron-2022-model", "megatron-2021-hardware"
]


def model_flops_per_step(shape: Shape, layout: Layout, convention: Convention) -> float:
    """Operations of one optimizer step of all ranks, as the convention of a training plan counts them.

    Source: spec/v1/04-performance.md, "Operations of a token"; `transformer` cites each formula.

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> layout = Layout(data=16, tensor=8, pipeline=8, num_micro_batches=96, sequence_length=2048)
    >>> round(model_flops_per_step(gpt3, layout, "megatron-2021-hardware") / 1e18, 2)
    4.51

    Raises:
        ValueError: the convention is not known.
    """
    tokens = layout.data * layout.num_micro_batches * layout.micro_sequences * layout.sequence_length
    s = layout.sequence_length
    if convention == "megatron-2021-hardware":
        return tokens * megatron_2021_flops_per_token(shape, s)
    if convention == "megatron-2022-model":
        return tokens * megatron_2022_flops_per_token(shape, s)
    active = parameters(shape).active
    if convention == "6n":
        return tokens * model_flops_per_token(active, 0.0)
    if convention in {"6n-full-attention", "palm"}:
        return tokens * model_flops_per_token(active, attention_flops_per_token(shape, s, causal=False))
    if convention == "6n-causal-attention":
        table = 0 if shape.tied_embeddings else shape.embedding_parameters
        return tokens * model_flops_per_token(active, attention_flops_per_token(shape, s, causal=True), table)
    raise ValueError(f"unknown convention {convention!r}")


def model_flops_utilisation(
    shape: Shape,
    layout: Layout,
    seconds: float,
    peak_flops_per_second: float,
    convention: Convention = "6n-causal-attention",
) -> float:
    """Operations of a step over what all ranks could do in its time: a share of the peak.

    Source: arXiv:2204.02311, appendix B. Example: GPT-3 with 1,536 sequences on 1,024 A100 in 31.9 s does 138e12
    operations per second on each, full recomputation counted (NVIDIA/Megatron-LM, README of 2021).

    >>> gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    >>> layout = Layout(data=16, tensor=8, pipeline=8, num_micro_batches=96, sequence_length=2048)
    >>> round(model_flops_utilisation(gpt3, layout, 31.92, 312e12, "megatron-2021-hardware") * 312)
    138

    Raises:
        ValueError: the time or the peak is not positive, or the convention is not known.
    """
    if seconds <= 0 or peak_flops_per_second <= 0:
        raise ValueError("time and peak are positive")
    done = model_flops_per_step(shape, layout, convention)
    return done / (seconds * layout.num_ranks * peak_flops_per_second)
