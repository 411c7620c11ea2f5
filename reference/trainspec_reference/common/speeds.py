"""Measures how fast each data rank is, and shares the batch by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from trainspec_reference.common import batch_schedule

SLOW_RATIO = 1.5
"""A data rank is a straggler when the median of the others is so many times faster."""
LEAST_CHANGE = 0.1
"""Shares stay as they are while none would change by more than this part of the even share."""


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """New shares, and the data rank that made them necessary, where one stands out."""

    shares: tuple[int, ...]
    straggler: int | None


class Stopwatch:
    """Samples per second of this rank's own work in the last steps, without waiting for others."""

    def __init__(self, num_steps: int) -> None:
        self._rates: deque[float] = deque(maxlen=num_steps)

    def note(self, num_samples: int, seconds: float) -> None:
        """A step took so long for so many samples."""
        self._rates.append(num_samples / max(seconds, 1e-9))

    def samples_per_second(self) -> float:
        """Median over the last steps; measuring begins anew."""
        found = median(self._rates)
        self._rates.clear()
        return found


def of_data_ranks(samples_per_second: Sequence[float], data_ranks: Sequence[int]) -> tuple[float, ...]:
    """Speed of each data rank: that of its slowest rank, for its ranks wait for each other.

    >>> of_data_ranks([9.0, 8.0, 7.0, 6.0], [0, 0, 1, 1])
    (8.0, 6.0)
    """
    slowest: dict[int, float] = {}
    for speed, rank in zip(samples_per_second, data_ranks, strict=True):
        slowest[rank] = min(speed, slowest.get(rank, speed))
    return tuple(slowest[rank] for rank in sorted(slowest))


def rebalanced(shares: tuple[int, ...], samples_per_second: tuple[float, ...]) -> Rebalanced | None:
    """Shares in proportion to speed, by data rank; None where those of now are near enough.

    >>> rebalanced((8, 8), (100.0, 50.0))
    Rebalanced(shares=(11, 5), straggler=1)
    >>> rebalanced((8, 8), (100.0, 95.0)) is None
    True
    """
    if len(shares) < 2:
        return None
    wanted = batch_schedule.fitted(sum(shares), samples_per_second)
    even = sum(shares) / len(shares)
    if max(abs(new - old) for new, old in zip(wanted, shares, strict=True)) <= LEAST_CHANGE * even:
        return None
    slowest, *others = sorted(samples_per_second)
    is_slow = median(others) > SLOW_RATIO * slowest
    return Rebalanced(wanted, samples_per_second.index(slowest) if is_slow else None)
