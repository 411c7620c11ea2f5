"""The only place that says which numbers a probe asks of a backend: what its training code does to a few arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainspec_validate.documents.communication import Compression

Array = npt.NDArray[Any]


class UnsupportedError(Exception):
    """The backend has no code for what is asked; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Number formats of a gradient on its way: as written, as added up over micro-batches, and over ranks."""

    gradients: str = "fp32"
    accumulation: str = "fp32"
    reduction: str = "fp32"


class Compressor(Protocol):
    """One tensor's compressor with its memory of what it has not sent."""

    def sent(self, gradient: Array) -> tuple[Array, int]:
        """What receivers decode of this step's gradient, and the bytes on the wire."""
        ...

    @property
    def residual(self) -> Array:
        """What is kept for the next step; zeros without error feedback."""
        ...


class Probes(Protocol):
    """The arithmetic of one backend, by the very functions that its training calls.

    A module `trainspec_reference.<backend>.probes` has it as the class `BackendProbes`, made without arguments.
    """

    def reduced(self, terms: Sequence[Sequence[Array]], formats: Formats) -> Array:
        """Sum of a vector over ranks and their micro-batches, `terms[rank][micro_batch]`, as every rank holds it."""
        ...

    def group_squared_norms(self, terms: Sequence[Array], weights: Sequence[float], formats: Formats) -> list[float]:
        """Squared norm of the mean gradient of each group.

        `terms` are as the backward pass of a micro-batch leaves them: the mean times its weight, which is its part of
        the targets times the loss scale.
        """
        ...

    def compressor(self, settings: Compression, shape: tuple[int, ...]) -> Compressor:
        """A new compressor of a tensor.

        Raises:
            UnsupportedError: there is no such method.
        """
        ...

    def rounded(self, values: Array, number_format: str, rounding: str, random: np.random.Generator) -> Array:
        """Values as a tensor of the format holds them, rounded `nearest` or `stochastic`, and read back.

        Raises:
            UnsupportedError: there is no such format or rounding.
        """
        ...

    def updated(self, values: Array, increment: float, number_format: str, rounding: str, seed: int) -> Array:
        """Parameters of the format after an update by the increment, as the optimizer applies one.

        Raises:
            UnsupportedError: the optimizer has no such parameters.
        """
        ...
