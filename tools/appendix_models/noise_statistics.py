"""Statistics of gradient noise: the estimate from two batches, deviations of readings, and confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist, fmean
from typing import NamedTuple

from trainspec_reference.common.noise_scale import NoiseAverages

from trainspec_record.noise.estimate import Norms


class GradientNoise(NamedTuple):
    """One reading of signal and noise, both of squared gradients; a reading of the signal may be negative."""

    signal_sq: float
    """Unbiased estimate of the squared norm of the true gradient."""
    noise_trace: float
    """Unbiased estimate of the trace of the gradient covariance of one noise unit."""
    num_units: float
    """Noise units (tokens, sequences or micro-batches) of the step."""

    @property
    def noise_scale(self) -> float | None:
        """Noise units at which noise equals signal; None while the signal is not above 0."""
        return self.noise_trace / self.signal_sq if self.signal_sq > 0 else None


def gradient_noise(
    group_sizes: Sequence[float], group_squared_norms: Sequence[float], mean_squared_norm: float
) -> GradientNoise:
    """Unbiased signal and noise from the gradients of groups that may differ in size, as the recorder estimates them.

    `group_squared_norms` are those of the mean gradient of each group, `mean_squared_norm` is that of the mean over
    the whole step, in which each group weighs as much as its size. With W groups of sizes b and sum B, m the
    weighted mean of the group norms and q the norm of the mean: signal (W q - m) / (W - 1), noise
    B (m - q) / (W - 1), because E[m] is signal + W noise / B and E[q] is signal + noise / B. For equal groups it is
    the pair of arXiv:1812.06162, appendix A.1. Groups of 1 and 3 units with gradients 5 and 1, mean 2:

    >>> reading = gradient_noise([1, 3], [25, 1], 4)
    >>> reading.signal_sq, reading.noise_trace, reading.noise_scale
    (1.0, 12.0, 12.0)

    Raises:
        ValueError: fewer than two groups, sizes that are not above 0, norms that are negative or not finite, or a
            mean whose norm is larger than its parts allow (a sum instead of a mean).
    """
    if not all(size > 0 for size in group_sizes):
        raise ValueError("every group size must be above 0")
    norms = Norms.of_groups(group_sizes, group_squared_norms, mean_squared_norm)
    if norms.problem:
        raise ValueError(norms.problem)
    return GradientNoise(norms.signal_sq, norms.noise_trace, norms.num_units)


def num_effective_steps(averages: NoiseAverages) -> float:
    """Steps of a plain mean with the same variance, (1 + decay) / (1 - decay) in the long run."""
    return (1 + averages.decay) / (1 - averages.decay) * averages.weight / (2 - averages.weight)


def two_batch_noise(
    small_units: float, small_squared_norm: float, large_units: float, large_squared_norm: float
) -> GradientNoise:
    """Unbiased signal and noise from the gradient norms of a small and a large batch.

    Source: arXiv:1812.06162, appendix A.1. A norm of 1 + 50/b at 1 and 100 units:

    >>> reading = two_batch_noise(1, 51, 100, 1.5)
    >>> round(reading.signal_sq, 9), round(reading.noise_trace, 9)
    (1.0, 50.0)

    Raises:
        ValueError: a batch is not positive, the large one is not larger, or a norm is negative or not finite.
    """
    if not 0 < small_units < large_units < math.inf:
        raise ValueError(f"batches of {small_units} and {large_units}, wanted a small and a larger one")
    if not (0 <= small_squared_norm < math.inf and 0 <= large_squared_norm < math.inf):
        raise ValueError("a squared norm is negative or not finite")
    signal = (large_units * large_squared_norm - small_units * small_squared_norm) / (large_units - small_units)
    noise = (small_squared_norm - large_squared_norm) / (1 / small_units - 1 / large_units)
    return GradientNoise(signal, noise, large_units)


def norm_test(reading: GradientNoise, mean_squared_norm: float) -> float:
    """Noise in the mean gradient over its squared norm; a batch grows where this passes a chosen eta squared.

    Source: arXiv:2402.11215 (norm test for adaptive batches).

    >>> norm_test(GradientNoise(signal_sq=1, noise_trace=50, num_units=100), 1.5)
    0.3333333333333333

    Raises:
        ValueError: the squared norm is not above 0.
    """
    if not mean_squared_norm > 0:
        raise ValueError(f"the squared norm of the mean is {mean_squared_norm}, wanted a number above 0")
    return reading.noise_trace / reading.num_units / mean_squared_norm


def relative_sd_of_noise(num_groups: int, effective_dimension: float) -> float:
    """Standard deviation of one reading of the noise over its value, for Gaussian gradients of any group sizes.

    The effective dimension is tr(Sigma)^2 / tr(Sigma^2). The residuals of W groups are a Wishart sum of W - 1
    degrees of freedom, whatever the sizes.

    >>> round(relative_sd_of_noise(8, 2000), 4)
    0.012

    Raises:
        ValueError: fewer than two groups, or a dimension below 1.
    """
    if num_groups < 2 or not effective_dimension >= 1:
        raise ValueError("wanted two or more groups and an effective dimension of 1 or more")
    return math.sqrt(2 / (effective_dimension * (num_groups - 1)))


def relative_sd_of_signal(
    noise_scale: float, num_units: float, num_groups: int, effective_dimension: float, alignment: float | None = None
) -> float:
    """Standard deviation of one reading of the signal over its value, for Gaussian gradients of any group sizes.

    The signal is q - noise / B with q and noise independent, so its variance is
    4 G'Sigma G / B + 2 tr(Sigma^2) W / (B^2 (W - 1)). `alignment` is G'Sigma G / (G'G tr(Sigma)); None means
    isotropic noise, 1 / effective_dimension. Eight groups of four units at a noise scale of 3,200:

    >>> round(relative_sd_of_signal(3200, 32, 8, 2000), 2)
    3.41

    Raises:
        ValueError: a size is not above 0, or as `relative_sd_of_noise`.
    """
    relative_sd_of_noise(num_groups, effective_dimension)
    if not (noise_scale > 0 and num_units > 0):
        raise ValueError("wanted a noise scale and a batch above 0")
    ratio = noise_scale / num_units
    along = 1 / effective_dimension if alignment is None else alignment
    return math.sqrt(4 * along * ratio + 2 * ratio**2 * num_groups / (effective_dimension * (num_groups - 1)))


def steps_to_average(relative_sd: float, relative_error: float) -> int:
    """Steps whose mean has the wanted relative standard error, when one step has `relative_sd`.

    >>> steps_to_average(relative_sd_of_signal(3200, 32, 8, 2000), 0.1)
    1163

    Raises:
        ValueError: an argument is not above 0.
    """
    if not (relative_sd > 0 and relative_error > 0):
        raise ValueError("wanted a deviation and an error above 0")
    return math.ceil((relative_sd / relative_error) ** 2)


def student_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t by its expansion about the normal; within 1 % from 5 degrees of freedom on.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.

    >>> round(student_quantile(0.975, 10), 3)
    2.228

    Raises:
        ValueError: the probability is not in (0, 1), or there are fewer than 5 degrees of freedom.
    """
    if not 0 < probability < 1 or not degrees >= 5:
        raise ValueError("wanted a probability in (0, 1) and 5 degrees of freedom or more")
    z = NormalDist().inv_cdf(probability)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def noise_scale_interval(readings: Sequence[GradientNoise], confidence: float = 0.95) -> tuple[float, float] | None:
    """Confidence interval of the noise scale from readings of independent steps; None where there is no finite one.

    It is Fieller's interval of the ratio of two correlated means, which stays valid where the signal is weak: there
    it has no upper end, and the noise scale is not known.
    Source: E. C. Fieller, Some problems in interval estimation, J. R. Stat. Soc. B 16(2), 1954.

    >>> low, high = noise_scale_interval([GradientNoise(2 + 0.1 * (-1) ** i, 100, 16) for i in range(20)])
    >>> round(low, 1), round(high, 1)
    (48.8, 51.2)

    Raises:
        ValueError: fewer than six readings, or a confidence that is not between 0 and 1.
    """
    count = len(readings)
    if count < 6 or not 0 < confidence < 1:
        raise ValueError(f"{count} readings, wanted 6 or more, and a confidence between 0 and 1")
    signals, noises = [r.signal_sq for r in readings], [r.noise_trace for r in readings]
    signal, noise = fmean(signals), fmean(noises)
    square = student_quantile((1 + confidence) / 2, count - 1) ** 2 / (count * (count - 1))
    spread = [(s - signal, n - noise) for s, n in zip(signals, noises, strict=True)]
    signal_part = signal**2 - square * math.fsum(s * s for s, _ in spread)
    if signal <= 0 or signal_part <= 0:
        return None
    middle = signal * noise - square * math.fsum(s * n for s, n in spread)
    noise_part = noise**2 - square * math.fsum(n * n for _, n in spread)
    half = math.sqrt(max(0.0, middle**2 - signal_part * noise_part))
    return (middle - half) / signal_part, (middle + half) / signal_part


def running(readings: Sequence[GradientNoise], half_life_steps: float) -> Iterator[NoiseAverages]:
    """The averages after each reading in turn.

    >>> [round(a.signal_sq, 2) for a in running([GradientNoise(1, 1, 1), GradientNoise(3, 1, 1)], 1)]
    [1.0, 2.33]

    Raises:
        ValueError: the half-life is not above 0.
    """
    averages = NoiseAverages(half_life_steps)
    for reading in readings:
        averages = averages.after(reading.signal_sq, reading.noise_trace)
        yield averages
