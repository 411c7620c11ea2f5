"""Estimates gradient noise from squared norms: signal, noise, and their averages, in the unit of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_reference.common.backend import Gradients
from trainspec_validate.documents.types.batch import NoiseScale

ROUNDING = 1e-3
"""How much the squared norm of the mean may pass the mean of the squared norms, relative, by rounding."""


@dataclass(frozen=True, slots=True)
class GradientNoise:
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

    @property
    def applied_variance(self) -> float:
        """Squared noise that is left in the mean gradient of the step."""
        return self.noise_trace / self.num_units


def gradient_noise(
    group_sizes: Sequence[float], group_squared_norms: Sequence[float], mean_squared_norm: float
) -> GradientNoise:
    """Unbiased signal and noise from the gradients of groups that may differ in size.

    `group_squared_norms` are those of the mean gradient of each group, `mean_squared_norm` is that of the mean over
    the whole step, in which each group weighs as much as its size. With W groups of sizes b and sum B, m the
    weighted mean of the group norms and q the norm of the mean: signal (W q - m) / (W - 1), noise
    B (m - q) / (W - 1), because E[m] is signal + W noise / B and E[q] is signal + noise / B. For equal groups it is
    the pair of arXiv:1812.06162, appendix A.1. Groups of 1 and 3 units with gradients 5 and 1, mean 2:

    >>> reading = gradient_noise([1, 3], [25, 1], 4)
    >>> reading.signal_sq, reading.noise_trace, reading.noise_scale
    (1.0, 12.0, 12.0)

    Raises:
        ValueError: fewer than two groups, sizes that are not positive, norms that are negative or not finite, or a
            mean whose norm is larger than its parts allow (a sum instead of a mean).
    """
    num_groups = len(group_sizes)
    if num_groups < 2 or num_groups != len(group_squared_norms):
        raise ValueError(f"{num_groups} sizes and {len(group_squared_norms)} norms, wanted two or more of each")
    if not all(size > 0 and math.isfinite(size) for size in group_sizes):
        raise ValueError("every group size must be finite and above 0")
    if not all(norm >= 0 and math.isfinite(norm) for norm in (*group_squared_norms, mean_squared_norm)):
        raise ValueError("a squared norm is negative or not finite: leave this step out")
    units = math.fsum(group_sizes)
    mean = math.fsum(size * norm for size, norm in zip(group_sizes, group_squared_norms, strict=True)) / units
    if mean_squared_norm > mean * (1 + ROUNDING):
        raise ValueError(
            f"the mean gradient has the squared norm {mean_squared_norm:g}, above the weighted mean of {mean:g} of "
            "its groups; take the mean weighted by size, not the sum"
        )
    return GradientNoise(
        signal_sq=(num_groups * mean_squared_norm - mean) / (num_groups - 1),
        noise_trace=units * (mean - mean_squared_norm) / (num_groups - 1),
        num_units=units,
    )


@dataclass(frozen=True, slots=True)
class NoiseAverages:
    """Moving averages of signal and noise, corrected for their start at zero; `after` returns the next state.

    The ratio is that of the averages, since an average of ratios is biased. Source: arXiv:1812.06162, appendix A.1.

    >>> averages = NoiseAverages(half_life_steps=10)
    >>> averages.noise_scale is None
    True
    >>> averages = averages.after(GradientNoise(2, 50, 16)).after(GradientNoise(-1, 50, 16))
    >>> round(averages.signal_sq, 3), round(averages.noise_trace, 3), round(averages.noise_scale, 1)
    (0.448, 50.0, 111.6)

    Raises:
        ValueError: the half-life is not above 0.
    """

    half_life_steps: float
    num_steps: int = 0
    raw_signal: float = 0.0
    raw_noise: float = 0.0

    def __post_init__(self) -> None:
        if not self.half_life_steps > 0:
            raise ValueError(f"the half-life is {self.half_life_steps} steps, wanted a number above 0")

    @property
    def decay(self) -> float:
        """Share of the average that one step keeps."""
        return float(2 ** (-1 / self.half_life_steps))

    @property
    def weight(self) -> float:
        """Sum of the weights of all readings so far; 0 before the first."""
        return -math.expm1(-math.log(2) * self.num_steps / self.half_life_steps)

    def after(self, reading: GradientNoise) -> NoiseAverages:
        """The averages once this reading is in them."""
        keep, new = self.decay, 1 - self.decay
        return NoiseAverages(
            self.half_life_steps,
            self.num_steps + 1,
            keep * self.raw_signal + new * reading.signal_sq,
            keep * self.raw_noise + new * reading.noise_trace,
        )

    @property
    def signal_sq(self) -> float | None:
        """Averaged signal; None before the first reading."""
        return self.raw_signal / self.weight if self.num_steps else None

    @property
    def noise_trace(self) -> float | None:
        """Averaged noise; None before the first reading."""
        return self.raw_noise / self.weight if self.num_steps else None

    @property
    def noise_scale(self) -> float | None:
        """Averaged noise over averaged signal; None while the signal is not above 0."""
        return self.raw_noise / self.raw_signal if self.raw_signal > 0 else None

    @property
    def num_effective_steps(self) -> float:
        """Steps of a plain mean with the same variance, (1 + decay) / (1 - decay) in the long run."""
        return (1 + self.decay) / (1 - self.decay) * self.weight / (2 - self.weight)


@dataclass(frozen=True, slots=True)
class NoiseMeter:
    """Readings by the settings of a plan.

    Raises:
        ValueError: the plan wants a tap or an estimator that readings of this trainer do not have.
    """

    settings: NoiseScale
    sequence_length: int
    micro_sequences: int

    def __post_init__(self) -> None:
        if self.settings.tap != "after-unscale-before-clip" or self.settings.estimator != "size-weighted":
            raise ValueError("gradient noise is read after-unscale-before-clip, by the size-weighted estimator")

    @property
    def targets_per_unit(self) -> float:
        """Targets of one noise unit."""
        of_sequence = float(self.sequence_length)
        units = {"token": 1.0, "sequence": of_sequence, "micro-batch": of_sequence * self.micro_sequences}
        return units[self.settings.noise_unit]

    def groups(self, gradients: Gradients) -> tuple[list[float], list[float]]:
        """Noise units of each group that has targets, and the squared norm of its mean gradient."""
        found = [
            (size / self.targets_per_unit, norm)
            for size, norm in zip(gradients.group_sizes, gradients.group_squared_norms, strict=True)
            if size > 0
        ]
        return [size for size, _ in found], [norm for _, norm in found]

    def reading(self, gradients: Gradients) -> GradientNoise | None:
        """Signal and noise of a step; None where the step says nothing of them, as with fewer than two groups."""
        sizes, norms = self.groups(gradients)
        if len(sizes) < 2 or not gradients.is_finite:
            return None
        try:
            return gradient_noise(sizes, norms, gradients.norm**2)
        except ValueError:
            return None  # rounding of a gradient without noise, or a norm that has overflown
