"""Computes the coordinates of a rank in the grid of a plan, and the positions of a sequence that it holds."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trainspec_validate.documents.types.parallelism import Axis, Parallelism


@dataclass(frozen=True, slots=True)
class RankGrid:
    """Ranks as a grid, whose axes the plan orders from adjacent ranks outwards.

    The data axis takes what ranks there are, so that a formation may be smaller than the plan. Expert ranks are
    neighbours along the data axis, which they are taken from: each holds a share of the experts.

    Raises:
        ValueError: the ranks do not fill whole replicas, or the data ranks no groups that hold all experts.
    """

    parallelism: Parallelism
    num_ranks: int
    degrees: Mapping[Axis, int] = field(init=False)
    """Ranks along each axis, in the order of the plan."""

    def __post_init__(self) -> None:
        plan = self.parallelism
        sizes: dict[Axis, int] = {"tensor": plan.tensor, "pipeline": plan.pipeline, "context": plan.context}
        replica = plan.tensor * plan.pipeline * plan.context
        if self.num_ranks % replica:
            raise ValueError(f"{self.num_ranks} ranks do not fill replicas of {replica} ranks each")
        sizes["data"] = self.num_ranks // replica
        if sizes["data"] % plan.expert:
            raise ValueError(f"{sizes['data']} data ranks do not make groups of {plan.expert} expert ranks")
        object.__setattr__(self, "degrees", {axis: sizes[axis] for axis in plan.order if axis in sizes})

    def place(self, rank: int) -> dict[Axis, int]:
        """Number of the rank along each axis.

        >>> RankGrid(Parallelism(num_accelerators=4, tensor=2, data=2), 4).place(1)
        {'tensor': 1, 'context': 0, 'data': 0, 'pipeline': 0}
        """
        place: dict[Axis, int] = {}
        for axis, degree in self.degrees.items():
            rank, place[axis] = divmod(rank, degree)
        if self.parallelism.expert > 1:
            place["expert"] = place["data"] % self.parallelism.expert
        return place

    def groups(self, *axes: Axis) -> list[tuple[int, ...]]:
        """Groups of ranks that differ along these axes alone, each in order; every rank is in one of them.

        >>> RankGrid(Parallelism(num_accelerators=4, tensor=2, data=2), 4).groups("data")
        [(0, 2), (1, 3)]
        """
        members: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.num_ranks):
            place = self.place(rank)
            members.setdefault(tuple(place[axis] for axis in self.degrees if axis not in axes), []).append(rank)
        return [tuple(group) for group in members.values()]

    def expert_groups(self) -> list[tuple[int, ...]]:
        """Groups of ranks that hold all experts together, each in order of its shares.

        >>> RankGrid(Parallelism(num_accelerators=4, data=4, expert=2), 4).expert_groups()
        [(0, 1), (2, 3)]
        """
        size = self.parallelism.expert
        return [ranks[at : at + size] for ranks in self.groups("data") for at in range(0, len(ranks), size)]

    def copy_groups(self) -> list[tuple[int, ...]]:
        """Groups of ranks that hold the same parameters, experts included, each in order.

        >>> RankGrid(Parallelism(num_accelerators=4, data=4, expert=2), 4).copy_groups()
        [(0, 2), (1, 3)]
        """
        return [
            tuple(rank for rank in ranks if self.place(rank).get("expert", 0) == expert)
            for ranks in self.groups("data", "context")
            for expert in range(self.parallelism.expert)
        ]


def pieces_of(rank: int, degree: int) -> tuple[int, int]:
    """The two of 2 x degree even pieces that a rank holds: one from each end.

    A later position attends to more keys than an earlier one, so all ranks have the same work.

    >>> pieces_of(0, 2), pieces_of(1, 2)
    ((0, 3), (1, 2))
    """
    return rank, 2 * degree - 1 - rank


def own_positions(
    whole_T: npt.NDArray[Any], rank: int, degree: int, filler: int = 0, multiple: int = 1
) -> npt.NDArray[Any]:
    """A rank's part of an array whose last axis is positions, cut into 2 x degree pieces of equal length.

    The array is padded at the end. No position attends to a later one, so that padding changes no result.

    >>> own_positions(np.arange(7), 0, 2, filler=-1)
    array([ 0,  1,  6, -1])
    """
    missing = -whole_T.shape[-1] % (2 * degree * multiple)
    padded_T = np.pad(whole_T, [(0, 0)] * (whole_T.ndim - 1) + [(0, missing)], constant_values=filler)
    pieces = np.split(padded_T, 2 * degree, axis=-1)
    return np.concatenate([pieces[number] for number in pieces_of(rank, degree)], axis=-1)
