"""AdamW over flat vectors, as torch.optim.AdamW computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.job import Rates

from trainspec_conformance.testbed.plain.formats import rounded, stochastically_rounded

Array = npt.NDArray[Any]


@dataclass(slots=True)
class AdamW:
    """Moments of all parameters, in one vector each, and the steps so far."""

    rates: Rates
    decays: Array
    """1 where weights decay, 0 elsewhere."""
    first: Array
    second: Array
    num_updates: int = 0

    def update(self, parameters: Array, gradient: Array, learning_rate: float) -> None:
        """One step of the parameters in place, with decoupled weight decay and bias correction."""
        rates = self.rates
        self.num_updates += 1
        parameters *= 1 - np.float32(learning_rate * rates.weight_decay) * self.decays
        self.first += np.float32(1 - rates.beta1) * (gradient - self.first)
        self.second *= np.float32(rates.beta2)
        self.second += np.float32(1 - rates.beta2) * gradient * gradient
        root = np.sqrt(self.second) / np.float32((1 - rates.beta2**self.num_updates) ** 0.5) + np.float32(rates.epsilon)
        parameters -= np.float32(learning_rate / (1 - rates.beta1**self.num_updates)) * self.first / root


def stored(parameters: Array, number_format: str, rounding: str, random: np.random.Generator) -> Array:
    """Parameters after an optimizer step as their format holds them.

    Raises:
        ValueError: there is no such format, or it is not rounded so.
    """
    if rounding == "stochastic":
        return stochastically_rounded(parameters, number_format, random)
    return rounded(parameters, number_format)
