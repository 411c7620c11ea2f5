"""Counts the steps of a batch ramp, and what a ramp costs against the critical batch.

Batches, noise scales and positions of one call share one unit; the examples use tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainspec_validate.costs.critical_batch import samples_ratio, steps_ratio


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
class _Piece:
    """A stretch of the run and the batches at its ends."""

    start: float
    end: float
    first: float
    last: float


def _pieces(stages: Sequence[Stage], total: float) -> Iterator[_Piece]:
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
            yield _Piece(stage.start, total, stage.batch, stage.batch)
            continue
        end, last = min(following.start, total), stage.batch
        if stage.linear:
            last += (following.batch - stage.batch) * (end - stage.start) / (following.start - stage.start)
        yield _Piece(stage.start, end, stage.batch, last)


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
    return math.fsum(_steps(piece) for piece in _pieces(stages, total))


def _steps(piece: _Piece) -> float:
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
    pieces = list(_pieces(stages, math.nextafter(after_start, math.inf)))
    last = next((piece for piece in pieces if position < piece.end), pieces[-1])
    return last.first + (last.last - last.first) * (position - last.start) / (last.end - last.start)


def steps_saved(stages: Sequence[Stage], total: float) -> float:
    """Share of the steps that a ramp saves against its first batch for the whole run.

    >>> ramp = [Stage(0, 2**22), Stage(168e9, 2**23), Stage(503e9, 2**24)]
    >>> round(steps_saved(ramp, 655e9), 2)
    0.43

    Raises:
        ValueError: as `num_steps`.
    """
    return 1 - num_steps(stages, total) * stages[0].batch / total


@dataclass(frozen=True, slots=True)
class ScheduleCost:
    """What a ramp takes, and what the same progress takes at the least."""

    num_steps: float
    least_steps: float
    """Steps of the same progress with batches without noise."""
    least_samples: float
    """Samples of the same progress with batches far below the noise scale."""
    largest_samples_ratio: float
    """Samples over the fewest possible, at the worst moment."""


def schedule_cost(
    stages: Sequence[Stage], total: float, noise_scale: Callable[[float], float], num_points: int = 1000
) -> ScheduleCost:
    """Cost of a ramp against a noise scale that changes with the tokens seen.

    Progress of a step at batch B is 1 / (1 + noise / B) of that of a step without noise (arXiv:1812.06162, section
    2.3). The midpoint rule takes `num_points` in each stage. A batch of the noise scale throughout takes twice the
    fewest steps and samples:

    >>> cost = schedule_cost([Stage(0, 1000.0)], 1e6, lambda tokens: 1000.0)
    >>> round(cost.num_steps), round(cost.least_steps), round(cost.least_samples), cost.largest_samples_ratio
    (1000, 500, 500000, 2.0)

    Raises:
        ValueError: there is no point, a noise scale is not above 0, or as `num_steps`.
    """
    if num_points < 1:
        raise ValueError(f"{num_points} points, wanted 1 or more")
    least_steps, least_samples, worst = 0.0, 0.0, 1.0
    for piece in _pieces(stages, total):
        width = (piece.end - piece.start) / num_points
        for point in range(num_points):
            share = (point + 0.5) / num_points
            batch = piece.first + (piece.last - piece.first) * share
            noise = noise_scale(piece.start + share * (piece.end - piece.start))
            least_steps += width / batch / steps_ratio(batch, noise)
            least_samples += width / samples_ratio(batch, noise)
            worst = max(worst, samples_ratio(batch, noise))
    return ScheduleCost(num_steps(stages, total), least_steps, least_samples, worst)
