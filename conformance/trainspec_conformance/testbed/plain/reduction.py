"""Sums a gradient over ranks, dense or compressed, and measures its groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.backend import MicroBatch

from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.plain.exchange import Exchange
from trainspec_conformance.testbed.plain.formats import summed

Array = npt.NDArray[Any]


def total(
    exchange: Exchange, vector: Array, loss_scale: float, number_format: str, compressor: GradientCompressor | None
) -> Array:
    """Sum of the vectors of all ranks in a format, loss scale removed; the same bits on every rank.

    The residual is kept without a loss scale, which may be another one in the next step.
    """
    if compressor is None:
        return exchange.total(vector, number_format) / np.float32(loss_scale)
    payloads = exchange.gather(compressor.encoded(vector / np.float32(loss_scale)))
    return summed([compressor.decoded(payload) for payload in payloads], number_format)


def group_squared_norm(term: Array, weight: float) -> float:
    """Squared norm of the mean gradient of a group, in float64, of its term in the sum: the mean times its weight."""
    squared = float(np.square(term, dtype=np.float64).sum())
    return squared / weight**2 if weight else 0.0


def groups(
    exchange: Exchange, micro_batches: Sequence[MicroBatch], terms: Sequence[Array], weight_per_target: float
) -> list[tuple[int, float]]:
    """Size and squared norm of each micro-batch of each rank, in order of rank."""
    mine: list[float] = []
    for batch, term in zip(micro_batches, terms, strict=True):
        mine += [batch.num_targets, group_squared_norm(term, weight_per_target * batch.num_targets)]
    gathered = exchange.gather_numbers(mine)
    return [(int(numbers[at]), numbers[at + 1]) for numbers in gathered for at in range(0, len(numbers), 2)]
