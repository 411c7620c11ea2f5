"""Computes device memory: model state, its sharding, and micro-batches in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

FORMAT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
"""Bytes of one number."""
FROZEN_BYTES = {**FORMAT_BYTES, "nf4": 0.5, "int4": 0.5, "fp4": 0.5}
"""Bytes of one frozen number, scales of its block left out; NF4 is of arXiv:2305.14314, section 3."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """Bytes of one parameter by class of tensor, before sharding."""

    weights: float
    master: float
    gradients: float
    moments: float
    """All state of the optimizer but the master copy."""

    @property
    def total(self) -> float:
        """All classes together."""
        return self.weights + self.master + self.gradients + self.moments

    @property
    def optimizer(self) -> float:
        """Master copy and moments: what the optimizer alone reads and writes."""
        return self.master + self.moments


def model_state(parameters: str, master: str | None, gradients: str, moments: str, num_moments: int = 2) -> ModelState:
    """Bytes of one parameter that number formats imply.

    The 16 bytes of mixed-precision Adam with 16-bit gradients are those of arXiv:1910.02054, section 3.1;
    with gradients kept in fp32 they are 18 (stas00/ml-engineering@744d01e1:training/performance/README.md).

    >>> model_state("fp16", "fp32", "fp16", "fp32").total
    16
    >>> model_state("bf16", "fp32", "fp32", "fp32").total
    18

    Raises:
        KeyError: a format is not in `FORMAT_BYTES`.
        ValueError: the number of moments is negative.
    """
    if num_moments < 0:
        raise ValueError(f"an optimizer cannot keep {num_moments} moments")
    return ModelState(
        weights=FORMAT_BYTES[parameters],
        master=FORMAT_BYTES[master] if master else 0,
        gradients=FORMAT_BYTES[gradients],
        moments=num_moments * FORMAT_BYTES[moments],
    )


def sharded_bytes_per_parameter(state: ModelState, stage: int, degree: float) -> float:
    """Bytes of one parameter that one rank holds when `degree` data ranks share a copy.

    Stage 0 shards nothing, 1 the optimizer, 2 gradients too, 3 weights too: arXiv:1910.02054, Table 1, which
    this reproduces. Its row of 7.5e9 parameters on 64 ranks at stage 1 is 31.4 GB:

    >>> sharded_bytes_per_parameter(model_state("fp16", "fp32", "fp16", "fp32"), 1, 64) * 7.5
    31.40625

    Raises:
        ValueError: the stage is not 0 to 3, or the degree is below 1.
    """
    if stage not in range(4):
        raise ValueError(f"stage {stage} is not one of 0, 1, 2, 3")
    if degree < 1:
        raise ValueError(f"a copy cannot be shared by {degree} ranks")
    kept = (state.weights if stage < 3 else 0) + (state.gradients if stage < 2 else 0)
    kept += state.optimizer if stage < 1 else 0
    return kept + (state.total - kept) / degree


def micro_batches_in_flight(
    schedule: str, num_stages: int, num_micro_batches: int, num_virtual_stages: int = 1
) -> int | None:
    """Micro-batches whose activations live at once on the first stage; None for a schedule without a formula.

    GPipe holds all of them, 1F1B one per stage (arXiv:2104.04473, section 2.2). The interleaved schedule
    holds 1 + (p - 1)/(p v) times as much (arXiv:2205.05198, section 4.2.3), rounded up to whole ones here.

    >>> micro_batches_in_flight("1f1b", 35, 64)
    35
    >>> micro_batches_in_flight("interleaved-1f1b", 35, 64, 3)
    47

    Raises:
        ValueError: a count is below 1.
    """
    if min(num_stages, num_micro_batches, num_virtual_stages) < 1:
        raise ValueError("stages and micro-batches are counted from 1")
    if num_stages == 1:
        return 1
    match schedule:
        case "gpipe":
            return num_micro_batches
        case "1f1b":
            return min(num_micro_batches, num_stages)
        case "interleaved-1f1b":
            extra = (num_stages - 1) / num_virtual_stages
            return min(num_micro_batches, math.ceil(num_stages + extra))
        case _:
            return None


def attention_score_bytes(heads: float, sequence: float, micro_batch: float) -> float:
    """Bytes that one layer keeps for attention scores when the kernel is not fused, in 16 bits.

    The softmax, the mask of its dropout and what the dropout leaves take 2 + 1 + 2 bytes for each pair of tokens and
    head: arXiv:2205.05198, section 4.1.

    >>> attention_score_bytes(heads=96, sequence=2048, micro_batch=1)
    2013265920

    Raises:
        ValueError: a factor is not positive.
    """
    if min(heads, sequence, micro_batch) <= 0:
        raise ValueError("heads, sequence and micro-batch are positive")
    return 5 * heads * sequence**2 * micro_batch
