"""Judges numbers of 8 and 4 bits: their scales, and the values after a round trip."""

# ruff: noqa: N803, N806 - shapes stand in names: B blocks, E entries of one block, N numbers of a format

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainspec_conformance.answers import Answer, answer_of
from trainspec_conformance.arrays import Array
from trainspec_conformance.criteria import Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion

EXACT = 2.0**-22
"""Relative error of a scale that is held in fp32."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of a format that are not negative, by its bits."""

    num_exponent_bits: int
    num_mantissa_bits: int
    largest: float

    @property
    def bias(self) -> int:
        """Of the exponent."""
        return int(2 ** (self.num_exponent_bits - 1) - 1)

    @property
    def smallest_normal(self) -> float:
        """Below it, errors are absolute."""
        return float(2.0 ** (1 - self.bias))

    def all(self) -> Array:
        """Every number in order, zero and subnormal ones included."""
        steps = 2**self.num_mantissa_bits
        fractions = np.arange(steps) / steps
        normal = [(1 + fractions) * 2.0 ** (code - self.bias) for code in range(1, 2**self.num_exponent_bits)]
        found = np.concatenate([fractions * self.smallest_normal, *normal])
        return found[found <= self.largest]


E4M3, E5M2, E2M1 = Numbers(4, 3, 448.0), Numbers(5, 2, 57344.0), Numbers(2, 1, 6.0)
FORMATS = {"fp8-e4m3": E4M3, "fp8-e5m2": E5M2, "mxfp8": E4M3, "mxfp4": E2M1}


def _blocks(answer: Answer) -> tuple[Array, Array, Array]:
    """Values, what came back of them, and scales, by blocks."""
    values = answer.asked("values")
    blocks_BE = values.reshape(-1, answer.question.get("block_size", values.size))
    found_BE = answer.array("dequantised", (1, values.size)).reshape(blocks_BE.shape)
    return blocks_BE, found_BE, answer.array("scales", (len(blocks_BE),))


@check("scales-as-defined")
def scales_as_defined(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Scales turn the largest magnitude into the largest number, or are the power of two that the block asks for."""
    answer = answer_of(case, criterion)
    numbers = FORMATS[answer.question["format"]]
    blocks_BE, _, scales_B = _blocks(answer)
    largest_B = np.abs(blocks_BE).max(1)
    if not (np.isfinite(scales_B) & (scales_B > 0)).all():
        yield Problem("a scale is not finite, or not above zero", (answer.entry,))
        return
    allowed = [numbers.largest / np.where(largest_B > 0, largest_B, np.inf)]
    if answer.question["scaling"] == "block":
        allowed = _powers_of_two(numbers, largest_B)
    fits_B = np.any([np.abs(scales_B - one) <= EXACT * one for one in allowed], axis=0) | (largest_B == 0)
    if not fits_B.all():
        block = int(np.argmin(fits_B))
        message = f"the scale of block {block} is {scales_B[block]:.6g}, its largest magnitude "
        yield Problem(f"{message}{largest_B[block]:.6g} asks for {allowed[0][block]:.6g}", (answer.entry,))


def _powers_of_two(numbers: Numbers, largest_B: Array) -> list[Array]:
    """By the exponent of the largest magnitude, which may then be cut, or rounded up so that nothing is cut.

    Sources: OCP Microscaling Formats 1.0, section 6.3; arXiv:2506.08027.
    """
    safe_B = np.where(largest_B > 0, largest_B, 1.0)
    cut_B = np.floor(np.log2(numbers.largest)) - np.floor(np.log2(safe_B))
    whole_B = np.floor(np.log2(numbers.largest / safe_B))
    return [np.exp2(cut_B), np.exp2(whole_B)]


@check("nearest-of-format")
def nearest_of_format(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Returned values, times the scale, are the nearest numbers of the format; the tolerance is for normal numbers."""
    answer = answer_of(case, criterion)
    numbers = FORMATS[answer.question["format"]]
    blocks_BE, found_BE, scales_B = _blocks(answer)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted_BE, coded_BE = blocks_BE * scales_B[:, None], found_BE * scales_B[:, None]
        nearest_BE = _distance(numbers.all(), np.clip(wanted_BE, -numbers.largest, numbers.largest))
        clipped_BE = np.clip(wanted_BE, -numbers.largest, numbers.largest)
        slack_BE = EXACT * np.abs(clipped_BE)
        is_right = (np.abs(coded_BE - clipped_BE) <= nearest_BE + slack_BE) & (
            _distance(numbers.all(), coded_BE) <= slack_BE
        )
    if not is_right.all():
        yield Problem(f"{_first(blocks_BE, found_BE, is_right)}, which is not the nearest number", (answer.entry,))
    is_normal = (np.abs(wanted_BE) >= numbers.smallest_normal) & (np.abs(wanted_BE) <= numbers.largest)
    off_BE = np.abs(found_BE - blocks_BE) / np.where(is_normal, np.abs(blocks_BE), 1)
    is_near = ~is_normal | (off_BE <= (criterion.tolerance or 0) + EXACT)
    if not is_near.all():
        yield Problem(f"{_first(blocks_BE, found_BE, is_near)}, further off than the format allows", (answer.entry,))


def _distance(numbers_N: Array, values_BE: Array) -> Array:
    """How far values are from the nearest number."""
    magnitudes = np.abs(values_BE)
    places = np.clip(np.searchsorted(numbers_N, magnitudes), 1, len(numbers_N) - 1)
    below, above = np.abs(magnitudes - numbers_N[places - 1]), np.abs(magnitudes - numbers_N[places])
    return np.asarray(np.minimum(below, above))


def _first(values_BE: Array, found_BE: Array, is_right_BE: npt.NDArray[np.bool_]) -> str:
    place = np.unravel_index(int(np.argmin(is_right_BE)), is_right_BE.shape)
    return f"{values_BE[place]:.6g} was returned as {found_BE[place]:.6g}"
