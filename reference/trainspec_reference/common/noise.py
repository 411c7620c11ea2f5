"""Turns the norms of one step into a reading of gradient noise, in the unit of the plan."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_reference.common.backend import Gradients
from trainspec_reference.common.noise_scale import GradientNoise, gradient_noise
from trainspec_validate.documents.types.batch import NoiseScale


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
