"""Rounds numbers to narrow formats, and adds them up in the format of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def rounded(values: Array, number_format: str) -> Array:
    """Values rounded to the nearest number of a format, ties to even, in float32 or wider; too large ones overflow.

    Raises:
        ValueError: the format is not one of fp64, fp32, bf16, fp16.
    """
    match number_format:
        case "fp64":
            return values.astype(np.float64)
        case "fp32":
            return values.astype(np.float32)
        case "fp16":
            with np.errstate(over="ignore"):
                return values.astype(np.float16).astype(np.float32)
        case "bf16":
            return _to_bfloat16(values.astype(np.float32))
        case _:
            raise ValueError(f"the plain backend has no numbers of {number_format}: one of fp64, fp32, bf16, fp16")


def _to_bfloat16(values: Array) -> Array:
    bits = values.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), nearest.view(np.float32), values)


def stochastically_rounded(values: Array, number_format: str, random: np.random.Generator) -> Array:
    """Values rounded up or down to bf16 by chance, so that the mean of many is the value.

    Raises:
        ValueError: the format is not bf16.
    """
    if number_format != "bf16":
        raise ValueError(f"the plain backend rounds to bf16 by chance, not to {number_format}")
    exact = values.astype(np.float32)
    chances = random.integers(0, 1 << 16, exact.shape, np.uint32)
    found: Array = ((exact.view(np.uint32) + chances) & np.uint32(0xFFFF0000)).view(np.float32)
    return found


def summed(parts: Sequence[Array], number_format: str) -> Array:
    """Sum of arrays in their order, each term and each partial sum rounded to a format."""
    terms = [rounded(part, number_format) for part in parts]
    with np.errstate(invalid="ignore", over="ignore"):
        return reduce(lambda total, term: rounded(total + term, number_format), terms)
