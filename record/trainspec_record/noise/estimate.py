"""Estimates gradient noise for the recorder: from squared norms to averages and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

ROUNDING = 1e-3
"""How much the squared norm of the mean may pass the mean of the squared norms, relative, by rounding."""
LEAST_STEPS = 6.0
"""Independent optimizer steps that an interval needs."""
Z = NormalDist().inv_cdf(0.975)
Interval = tuple[float, float]


class Norms(NamedTuple):
    """Squared norms of one step, whose groups may differ in size; gradients are those of means."""

    num_groups: float
    """W, groups that are compared."""
    num_units: float
    """B, noise units of all groups."""
    mean_of_squares: float
    """m, squared norms of the groups' mean gradients, averaged with the sizes of the groups as weights."""
    square_of_mean: float
    """q, squared norm of the mean gradient of the update."""

    @classmethod
    def of_groups(cls, sizes: Sequence[float], squares: Sequence[float], square_of_mean: float) -> Norms:
        """From sizes of groups and the squared norms of their mean gradients.

        >>> Norms.of_groups([1, 3], [25, 1], 4)
        Norms(num_groups=2, num_units=4.0, mean_of_squares=7.0, square_of_mean=4)
        """
        units = math.fsum(sizes)
        mean = math.fsum(size * square for size, square in zip(sizes, squares, strict=True)) / units
        return cls(len(sizes), units, mean, square_of_mean)

    @property
    def problem(self) -> str | None:
        """Why nothing can be estimated from these; None where it can."""
        if not all(map(math.isfinite, self)):
            return "a squared norm is not finite"
        if self.num_groups < 2 or not self.num_units > 0:
            return "noise needs two groups or more, and units in them"
        if not 0 <= self.square_of_mean <= self.mean_of_squares * (1 + ROUNDING):
            return (
                "the mean gradient is larger than its groups allow; the gradient of a step must be the mean over "
                "its units, and be read before it is scaled or clipped"
            )
        return None

    @property
    def signal_sq(self) -> float:
        """Squared norm of the true gradient, without bias; it can be negative. Source: arXiv:1812.06162, appendix A."""
        return (self.num_groups * self.square_of_mean - self.mean_of_squares) / (self.num_groups - 1)

    @property
    def noise_trace(self) -> float:
        """Trace of the covariance of the gradient of one noise unit, without bias."""
        return self.num_units * (self.mean_of_squares - self.square_of_mean) / (self.num_groups - 1)


class Reading(NamedTuple):
    """Averages up to now, each with its 95 % interval; None where there is none."""

    noise_trace: float
    signal_sq: float
    applied_variance: float
    """Variance of the mean gradient of the update."""
    noise_scale: float | None
    """Noise units at which noise equals signal; None while the signal is not above 0."""
    snr: float
    """Signal over the variance of the mean gradient; infinite without noise."""
    norm_test: float | None
    """Variance of the mean gradient over its squared norm; None where that is 0."""
    noise_interval: Interval | None
    signal_interval: Interval | None
    scale_interval: Interval | None


class Averages:
    """Moving averages of noise and signal, corrected for their start; nothing is raised to 0.

    The weights of steps halve every `half_life_steps`. Steps are taken as independent readings of what changes
    slowly. The ratio is one of averages, and its interval is Fieller's, which has no upper end where the signal is not
    surely above 0. Source: E. C. Fieller, J. R. Stat. Soc. B 16(2), 1954.
    """

    def __init__(self, half_life_steps: float, every: int = 1) -> None:
        self.num_readings = 0
        self._decay = 2.0 ** (-every / half_life_steps) if half_life_steps > 0 else 0.0
        self._weight = self._square_weight = 0.0
        self._noise = self._signal = 0.0
        self._spread = (0.0, 0.0, 0.0)
        """Weighted squares about the averages: of noise, of signal, and of both."""
        self._last: Norms | None = None

    def add(self, norms: Norms) -> None:
        """One more optimizer step, whose norms have no `problem`."""
        kept = self._decay * self._weight
        self._weight = kept + 1
        self._square_weight = self._decay**2 * self._square_weight + 1
        of_noise, of_signal = norms.noise_trace - self._noise, norms.signal_sq - self._signal
        self._noise += of_noise / self._weight
        self._signal += of_signal / self._weight
        part = kept / self._weight
        parts = (of_noise**2 * part, of_signal**2 * part, of_noise * of_signal * part)
        self._spread = (
            self._decay * self._spread[0] + parts[0],
            self._decay * self._spread[1] + parts[1],
            self._decay * self._spread[2] + parts[2],
        )
        self.num_readings += 1
        self._last = norms

    @property
    def num_effective(self) -> float:
        """Optimizer steps of a plain mean with the same variance."""
        return self._weight**2 / self._square_weight if self._square_weight else 0.0

    def reading(self) -> Reading | None:
        """The averages; None before the first update."""
        last = self._last
        if last is None:
            return None
        noise, signal = self._noise, self._signal
        applied = noise / last.num_units
        squares = self._squares()
        return Reading(
            noise_trace=noise,
            signal_sq=signal,
            applied_variance=applied,
            noise_scale=noise / signal if signal > 0 else None,
            snr=signal / applied if applied else math.inf,
            norm_test=applied / last.square_of_mean if last.square_of_mean > 0 else None,
            noise_interval=_about(noise, squares[0]) if squares else None,
            signal_interval=_about(signal, squares[1]) if squares else None,
            scale_interval=_fieller(noise, signal, *squares) if squares else None,
        )

    def _squares(self) -> tuple[float, float, float] | None:
        """Variances and covariance of both averages, times the square of the quantile; None with too few updates."""
        count = self.num_effective
        if count < LEAST_STEPS:
            return None
        factor = student_quantile(count - 1) ** 2 / (count * (self._weight - self._square_weight / self._weight))
        return factor * self._spread[0], factor * self._spread[1], factor * self._spread[2]


def student_quantile(degrees: float) -> float:
    """Quantile 0.975 of Student's t by its expansion about the normal; within 1 % from 5 degrees of freedom on.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.

    >>> round(student_quantile(10), 3)
    2.228
    """
    first, second = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / degrees + second / degrees**2 + third / degrees**3


def _about(middle: float, square: float) -> Interval:
    half = math.sqrt(square)
    return middle - half, middle + half


def _fieller(noise: float, signal: float, of_noise: float, of_signal: float, of_both: float) -> Interval | None:
    below = signal**2 - of_signal
    if signal <= 0 or below <= 0:
        return None
    middle = noise * signal - of_both
    half = math.sqrt(max(0.0, middle**2 - below * (noise**2 - of_noise)))
    return (middle - half) / below, (middle + half) / below
