"""Averages the gradient noise of a run, in the unit of a plan; the recorder estimates that of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainspec_record.noise.estimate import Norms
from trainspec_reference.common.backend import Gradients
from trainspec_validate.documents.types.batch import NoiseScale


@dataclass(frozen=True, slots=True)
class NoiseAverages:
    """Moving averages of signal and noise, corrected for their start at zero; `after` returns the next state.

    The ratio is that of the averages, since an average of ratios is biased. Source: arXiv:1812.06162, appendix A.1.

    >>> averages = NoiseAverages(half_life_steps=10)
    >>> averages.noise_scale is None
    True
    >>> averages = averages.after(2, 50).after(-1, 50)
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

    def after(self, signal_sq: float, noise_trace: float) -> NoiseAverages:
        """The averages once the readings of a step are in them; a reading of the signal may be negative."""
        keep, new = self.decay, 1 - self.decay
        return NoiseAverages(
            self.half_life_steps,
            self.num_steps + 1,
            keep * self.raw_signal + new * signal_sq,
            keep * self.raw_noise + new * noise_trace,
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

    def norms(self, gradients: Gradients) -> Norms | None:
        """Norms of a step in noise units, of groups that have targets; None with fewer than two, as without noise."""
        of_groups = zip(gradients.group_sizes, gradients.group_squared_norms, strict=True)
        found = [(size / self.targets_per_unit, norm) for size, norm in of_groups if size > 0]
        if len(found) < 2 or not gradients.is_finite:
            return None
        norms = Norms.of_groups([size for size, _ in found], [norm for _, norm in found], gradients.norm**2)
        return None if norms.problem else norms
