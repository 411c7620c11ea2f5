"""Counts the steps of a batch ramp, and gives its batch at a position.

Batches and positions of one call share one unit; the examples use tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Stage:
    """A batch from a position on.

    Raises:
        ValueError: the position is negative, or the batch is not a finite number above 0.
    """

    start: float
    """Tokens seen when this stage begins."""
    batch: float
    """Tokens of one step."""
    linear: bool = False
    """Whether the batch grows linearly, in tokens seen, to that of the next stage."""

    def __post_init__(self) -> None:
        if not (0 <= self.start < math.inf and 0 < self.batch < math.inf):
            raise ValueError(f"{self} needs a position of 0 or more and a finite batch above 0")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the run and the batches at its ends."""

    start: float
    end: float
    first: float
    last: float


def pieces(stages: Sequence[Stage], total: float) -> Iterator[Piece]:
    """Stretches of a run over `total` tokens, one for each stage that it reaches.

    Raises:
        ValueError: as `num_steps`.
    """
    if not stages or stages[0].start != 0 or not 0 < total < math.inf:
        raise ValueError("wanted stages of which the first begins at 0, and a finite total above 0")
    if any(later.start <= earlier.start for earlier, later in pairwise(stages)):
        raise ValueError("stages must begin one after the other")
    if stages[-1].linear:
        raise ValueError("the last stage grows linearly, but there is no next stage")
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        if stage.start >= total:
            return
        if following is None:
            yield Piece(stage.start, total, stage.batch, stage.batch)
            continue
        end, last = min(following.start, total), stage.batch
        if stage.linear:
            last += (following.batch - stage.batch) * (end - stage.start) / (following.start - stage.start)
        yield Piece(stage.start, end, stage.batch, last)


def num_steps(stages: Sequence[Stage], total: float) -> float:
    """Optimizer steps of a run over `total` tokens: the integral of one over the batch.

    A linear piece of n tokens from a to b takes n ln(b / a) / (b - a) steps. OLMo 1B with 4, 8 and 16 million tokens
    (arXiv:2505.23971), over 600 billion tokens:

    >>> ramp = [Stage(0, 2**22), Stage(168e9, 2**23), Stage(503e9, 2**24)]
    >>> round(num_steps(ramp, 600e9))
    85771

    Raises:
        ValueError: there is no stage, the first does not begin at 0, they are out of order, the last grows, or the
            total is not a finite number above 0.
    """
    return math.fsum(_steps(piece) for piece in pieces(stages, total))


def _steps(piece: Piece) -> float:
    growth = (piece.last - piece.first) / piece.first
    # log1p(x) / x is 1 for a flat piece, and loses all its digits when computed near there.
    slowdown = math.log1p(growth) / growth if abs(growth) > 1e-9 else 1.0
    return (piece.end - piece.start) / piece.first * slowdown


def batch_at(stages: Sequence[Stage], position: float) -> float:
    """Batch after so many tokens.

    GPT-3 grew its batch linearly from 32 thousand tokens; to 3.2 million over the first 12 billion, half-way:

    >>> batch_at([Stage(0, 32e3, linear=True), Stage(12e9, 3.2e6)], 6e9)
    1616000.0

    Raises:
        ValueError: the position is negative, or as `num_steps`.
    """
    if not 0 <= position < math.inf:
        raise ValueError(f"a position of {position}, wanted 0 or more")
    after_start = max(position, stages[-1].start if stages else 0.0)
    found = list(pieces(stages, math.nextafter(after_start, math.inf)))
    last = next((piece for piece in found if position < piece.end), found[-1])
    return last.first + (last.last - last.first) * (position - last.start) / (last.end - last.start)
