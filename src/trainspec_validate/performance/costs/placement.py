"""Computes how far apart the numbered ranks of a parallel group are placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Span:
    """A group of `degree` ranks whose neighbours are `stride` ranks apart."""

    stride: int
    degree: int

    @property
    def num_ranks(self) -> int:
        """Consecutive ranks from the first member of a group to the end of its stretch."""
        return self.stride * self.degree


def span(order: Sequence[str], degrees: Mapping[str, int], axis: str) -> Span:
    """Stride and degree of the groups of one axis, when `order` names the axes from adjacent ranks outwards.

    This is how Megatron-LM numbers ranks (megatron/core/parallel_state.py, `RankGenerator`, default order
    `tp-cp-ep-dp-pp`). Llama 3 405B on 16,384 ranks, order tensor, context, pipeline, data:

    >>> degrees = {"tensor": 8, "pipeline": 16, "data": 128}
    >>> span(["tensor", "context", "pipeline", "data"], degrees, "pipeline")
    Span(stride=8, degree=16)

    Raises:
        ValueError: the axis is not in the order, or a degree is below 1.
    """
    if axis not in order:
        raise ValueError(f"{axis} is not in the order {', '.join(order)}")
    if min(degrees.values(), default=1) < 1:
        raise ValueError("a degree is below 1")
    inner = order[: order.index(axis)]
    return Span(prod(degrees.get(name, 1) for name in inner), degrees.get(axis, 1))


def holds_whole_groups(group: Span, block: int, num_ranks: int) -> bool:
    """Whether every group is inside one aligned block of `block` ranks, in a job of `num_ranks`.

    >>> holds_whole_groups(Span(1, 8), 8, 128), holds_whole_groups(Span(1, 16), 72, 2304)
    (True, False)

    Raises:
        ValueError: the block or the job has no rank.
    """
    _positive(block, num_ranks)
    return num_ranks <= block or block % group.num_ranks == 0


def members_in_block(group: Span, block: int) -> int:
    """Members of one group that share a block of `block` ranks, at most.

    With tensor 8 inside eight accelerators, a data group has one member per node; with tensor 2, four:

    >>> members_in_block(Span(8, 16), 8), members_in_block(Span(2, 64), 8)
    (1, 4)

    Raises:
        ValueError: the block has no rank.
    """
    _positive(block)
    return min(group.degree, max(1, block // group.stride))


def _positive(*values: int) -> None:
    if min(values) < 1:
        raise ValueError("a number of ranks is below 1")
