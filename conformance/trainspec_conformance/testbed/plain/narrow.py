"""Scales numbers into formats of 8 and 4 bits, and back."""

# ruff: noqa: N803, N806 - shapes stand in names: B blocks, E entries of one block

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainspec_validate.documents.types.precision import LowPrecisionRecipe

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class NarrowFormat:
    """A floating-point format with subnormal numbers and without infinity."""

    num_mantissa_bits: int
    min_exponent: int
    """Of the smallest normal number."""
    largest: float

    @property
    def max_exponent(self) -> int:
        """Of the largest number."""
        return int(np.floor(np.log2(self.largest)))


E4M3, E5M2, E2M1 = NarrowFormat(3, -6, 448.0), NarrowFormat(2, -14, 57344.0), NarrowFormat(1, 0, 6.0)
_SCALED = {"fp8-e4m3": E4M3, "fp8-e5m2": E5M2, "fp8-hybrid": E4M3}
"""One scale for a whole tensor; in the forward pass."""
_SHARED_EXPONENT = {"mxfp8": E4M3, "mxfp4": E2M1}
"""One power of two for each block."""


def narrowed(values: Array, recipe: LowPrecisionRecipe) -> tuple[Array, Array]:
    """Values as a product reads them, in float32, and the scales that they were multiplied with.

    Raises:
        ValueError: there is no such recipe here.
    """
    if recipe.scaling == "current" and recipe.format in _SCALED:
        blocks_BE, number_format = values.reshape(1, -1), _SCALED[recipe.format]
        scales_B = _to_largest(_magnitudes(blocks_BE), number_format)
    elif recipe.scaling == "block" and recipe.format in _SHARED_EXPONENT and recipe.block_size:
        if values.size % recipe.block_size:
            raise ValueError(f"{values.size} values are no whole blocks of {recipe.block_size}")
        blocks_BE, number_format = values.reshape(-1, recipe.block_size), _SHARED_EXPONENT[recipe.format]
        scales_B = _to_power_of_two(_magnitudes(blocks_BE), number_format)
    else:
        raise ValueError(f"the plain backend has no {recipe.format} with {recipe.scaling} scaling")
    exact_BE = blocks_BE.astype(np.float64) * scales_B[:, None]
    found_BE = _to_nearest(exact_BE, number_format) / scales_B[:, None]
    return found_BE.reshape(values.shape).astype(np.float32), scales_B


def _magnitudes(blocks_BE: Array) -> Array:
    return np.asarray(np.abs(blocks_BE.astype(np.float32)).max(1), np.float64)


def _to_largest(magnitudes_B: Array, number_format: NarrowFormat) -> Array:
    """Scales that turn the largest magnitude into the largest number; 1 where all are zero."""
    return np.asarray(number_format.largest / np.where(magnitudes_B > 0, magnitudes_B, number_format.largest))


def _to_power_of_two(magnitudes_B: Array, number_format: NarrowFormat) -> Array:
    """Scales by the exponent of the largest magnitude. Source: OCP Microscaling Formats 1.0, section 6.3."""
    exponents_B = np.frexp(magnitudes_B)[1] - 1
    scales_B = np.ldexp(1.0, np.clip(number_format.max_exponent - exponents_B, -127, 127))
    return np.asarray(np.where(magnitudes_B > 0, scales_B, 1.0))


def _to_nearest(values: Array, number_format: NarrowFormat) -> Array:
    """The nearest numbers of the format, ties to even; too large ones become the largest."""
    clipped = np.clip(values, -number_format.largest, number_format.largest)
    exponents = np.maximum(np.frexp(clipped)[1] - 1, number_format.min_exponent)
    last_bits = np.ldexp(1.0, exponents - number_format.num_mantissa_bits)
    return np.asarray(np.round(clipped / last_bits) * last_bits)
