"""Declares the numbers that a probe asks of a backend: results of its training code on a few arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.job import Job

from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

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
        """This step's gradient as receivers decode it, and the bytes on the wire."""
        ...

    @property
    def residual(self) -> Array:
        """Residual for the next step; zeros without error feedback."""
        ...


class Machine:
    """Interface of a backend to memory, kernels and narrow formats; unsupported by default.

    Each method raises UnsupportedError where the backend, or the machine, has no such thing.
    """

    def narrowed(self, values: Array, recipe: LowPrecisionRecipe) -> tuple[Array, Array]:  # noqa: ARG002
        """Values as a product below 16 bits reads them, and the scales that they were multiplied with."""
        raise UnsupportedError(f"no product runs in {recipe.format}")

    def peak_bytes(self) -> int:
        """Most memory that was in use since the last call; the first call begins to count."""
        raise UnsupportedError("memory that is in use is not counted on this device")

    def predicted_bytes(self, job: Job) -> int:  # noqa: ARG002
        """Memory of one rank in a training step, by what the backend knows of its arrays."""
        raise UnsupportedError("no prediction of memory is made for this backend")

    def kernels(self) -> dict[str, Any]:
        """Rates of kernels and of their rooflines, from one run."""
        raise UnsupportedError("this backend measures no kernels")

    def device_uuid(self) -> str | None:
        """Name of the device that `work` loads, as NVML has it; None where it is not known."""
        return None

    def work(self) -> None:
        """A few milliseconds of matrix products on the device that trains, complete on return."""
        raise UnsupportedError("this backend puts no load on a device")


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
        """Parameters of the format after an optimizer step by the increment, as the optimizer applies one.

        Raises:
            UnsupportedError: the optimizer has no such parameters.
        """
        ...

    def narrowed(self, values: Array, recipe: LowPrecisionRecipe) -> tuple[Array, Array]:
        """As `Machine.narrowed`."""
        ...

    def peak_bytes(self) -> int:
        """As `Machine.peak_bytes`."""
        ...

    def predicted_bytes(self, job: Job) -> int:
        """As `Machine.predicted_bytes`."""
        ...

    def kernels(self) -> dict[str, Any]:
        """As `Machine.kernels`."""
        ...

    def device_uuid(self) -> str | None:
        """As `Machine.device_uuid`."""
        ...

    def work(self) -> None:
        """As `Machine.work`."""
        ...
