"""Turns readings of a power meter into energy, and says how well they cover the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median


@dataclass(frozen=True, slots=True)
class SampledEnergy:
    """Energy from samples, without the energy of gaps."""

    joules: float
    span_seconds: float
    """From the first to the last time stamp."""
    covered_seconds: float
    median_interval_seconds: float
    longest_gap_seconds: float
    """Between two readings that are there."""
    num_missing: int
    """Samples without a value."""

    @property
    def coverage(self) -> float:
        """Share of the span with readings."""
        return self.covered_seconds / self.span_seconds

    @property
    def mean_watts(self) -> float:
        """Mean power of the time that is covered."""
        return self.joules / self.covered_seconds if self.covered_seconds else math.nan


def sampled_energy(
    seconds: Sequence[float], watts: Sequence[float | None], max_gap_seconds: float = math.inf
) -> SampledEnergy:
    """Energy as the sum of each reading times the time until the next one that is there.

    A missing reading is None, never 0, and widens the gap; a gap longer than `max_gap_seconds` is left out.
    As in the MLPerf training power rules, which give each reading the time since the one before instead
    (mlcommons/training_policies:power_measurement.adoc).

    >>> found = sampled_energy([0, 1, 2, 3, 10], [100, 110, None, 120, 130], max_gap_seconds=5)
    >>> found.joules, found.coverage, found.num_missing, found.longest_gap_seconds
    (320.0, 0.3, 1, 7)

    Raises:
        ValueError: lengths differ, fewer than two readings are there, time does not go forward, or a reading is
            negative or not finite.
    """
    if len(seconds) != len(watts):
        raise ValueError(f"{len(seconds)} times and {len(watts)} readings")
    if any(not later > earlier for earlier, later in pairwise(seconds)):
        raise ValueError("time stamps must rise from sample to sample")
    there = [(second, watt) for second, watt in zip(seconds, watts, strict=True) if watt is not None]
    if len(there) < 2:
        raise ValueError("wanted two readings or more")
    if not all(0 <= watt < math.inf for _, watt in there):
        raise ValueError("a reading is negative or not finite")
    steps = [(later - earlier, watt) for (earlier, watt), (later, _) in pairwise(there)]
    kept = [(step, watt) for step, watt in steps if step <= max_gap_seconds]
    return SampledEnergy(
        joules=math.fsum(step * watt for step, watt in kept),
        span_seconds=seconds[-1] - seconds[0],
        covered_seconds=math.fsum(step for step, _ in kept),
        median_interval_seconds=median(step for step, _ in steps),
        longest_gap_seconds=max(step for step, _ in steps),
        num_missing=len(watts) - len(there),
    )
