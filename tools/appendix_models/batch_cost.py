"""Steps that a batch ramp saves, and its cost relative to the critical batch.

Batches, noise scales and positions of one call share one unit; the examples use tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appendix_models.critical_batch import samples_ratio, steps_ratio
from trainspec_validate.performance.costs.batch_schedule import Stage, num_steps, pieces


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
    """Cost of a ramp, and the minimum cost of the same progress."""

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
    for piece in pieces(stages, total):
        width = (piece.end - piece.start) / num_points
        for point in range(num_points):
            share = (point + 0.5) / num_points
            batch = piece.first + (piece.last - piece.first) * share
            noise = noise_scale(piece.start + share * (piece.end - piece.start))
            least_steps += width / batch / steps_ratio(batch, noise)
            least_samples += width / samples_ratio(batch, noise)
            worst = max(worst, samples_ratio(batch, noise))
    return ScheduleCost(num_steps(stages, total), least_steps, least_samples, worst)
