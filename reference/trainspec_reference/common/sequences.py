"""Computes which positions of a sequence a context rank holds."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


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
    """What a rank holds of an array whose last axis is positions, in 2 x degree pieces of some multiple of positions.

    It is filled up at the end. No position attends to a later one, so that what fills it up changes nothing.

    >>> own_positions(np.arange(7), 0, 2, filler=-1)
    array([ 0,  1,  6, -1])
    """
    missing = -whole_T.shape[-1] % (2 * degree * multiple)
    padded_T = np.pad(whole_T, [(0, 0)] * (whole_T.ndim - 1) + [(0, missing)], constant_values=filler)
    pieces = np.split(padded_T, 2 * degree, axis=-1)
    return np.concatenate([pieces[number] for number in pieces_of(rank, degree)], axis=-1)
