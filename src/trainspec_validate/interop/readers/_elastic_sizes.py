"""Computes the batch and the world sizes of an elastic job as DeepSpeed does."""

from __future__ import annotations

import math
from collections.abc import Sequence

MAX_BATCH = 10**7
MAX_MICRO = 64
_HIGHLY_COMPOSITE = (
    *(1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560, 10080, 15120),
    *(20160, 25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400),
    *(665280, 720720),
)
"""Numbers with more divisors than any smaller one."""


def elastic_sizes(
    max_batch: int, micro_sizes: Sequence[int], least: int, most: int, *, larger: bool = True
) -> tuple[int, list[int]]:
    """The batch in sequences and the numbers of accelerators that reach it, version 0.1.

    Each micro-batch and their least common multiple is multiplied by the largest highly composite number that keeps
    it at or below `max_batch`; the batch with the most accelerator counts between `least` and `most` wins, ties go to
    the larger one. Source: deepspeedai/DeepSpeed@edaa7221:deepspeed/elasticity/elasticity.py; its test expects a
    batch of 9,792 and 23 counts for this example.

    >>> batch, counts = elastic_sizes(10000, [8, 12, 16, 17], 32, 1500)
    >>> batch, len(counts)
    (9792, 23)

    Raises:
        ValueError: a size is below 1, above the batch, or beyond what is computed.
    """
    if not micro_sizes or len(micro_sizes) > MAX_MICRO or min(micro_sizes) < 1 or max(micro_sizes) > max_batch:
        raise ValueError("micro-batches are at least 1 and at most the batch")
    if max_batch > MAX_BATCH:
        raise ValueError(f"a batch above {MAX_BATCH} sequences is not computed")
    bases = {*micro_sizes, math.lcm(*micro_sizes)}
    candidates = {
        base if base >= max_batch else base * max(number for number in _HIGHLY_COMPOSITE if number <= max_batch // base)
        for base in bases
        if base <= MAX_BATCH
    }
    best: tuple[int, list[int]] = (min(micro_sizes), [])
    for batch in sorted(candidates):
        counts = _counts(batch, micro_sizes, least, most)
        if len(counts) > len(best[1]) or (len(counts) == len(best[1]) and larger and batch > best[0]):
            best = batch, counts
    return best


def _counts(batch: int, micro_sizes: Sequence[int], least: int, most: int) -> list[int]:
    found: set[int] = set()
    for whole in {batch // micro for micro in micro_sizes if batch % micro == 0}:
        for divisor in range(1, math.isqrt(whole) + 1):
            if whole % divisor == 0:
                found |= {divisor, whole // divisor}
    return sorted(count for count in found if least <= count <= most)
