"""Scales tensors into formats of 8 and 4 bits with PyTorch, and back."""

# ruff: noqa: N806 - shapes stand in names: B blocks, E entries of one block

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainspec_conformance.testbed.recipes import NUMBERS, block_entries
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

_LARGEST_SCALE = 2.0**127
"""A scale has eight bits of exponent. Source: OCP Microscaling Formats 1.0, section 5.4."""


def narrowed(values: torch.Tensor, recipe: LowPrecisionRecipe) -> tuple[torch.Tensor, torch.Tensor]:
    """Values as a product reads them, in fp32, and the scale of each block, which they were multiplied with.

    Raises:
        ValueError: there is no such recipe here.
    """
    size = block_entries(recipe, values.numel())
    numbers, blocks_BE = NUMBERS[recipe.format], values.float().reshape(-1, size)
    magnitudes_B = blocks_BE.abs().amax(1)
    if numbers.has_power_of_two:
        exponents_B = torch.frexp(magnitudes_B).exponent - 1
        scales_B = torch.ldexp(torch.ones_like(magnitudes_B), numbers.max_exponent - exponents_B)
        scales_B = scales_B.clamp(1 / _LARGEST_SCALE, _LARGEST_SCALE)
    else:
        scales_B = numbers.largest / magnitudes_B
    scales_B = torch.where(magnitudes_B > 0, scales_B, 1.0)
    scaled_BE = (blocks_BE * scales_B[:, None]).clamp(-numbers.largest, numbers.largest)
    found_BE = _ROUNDED[recipe.format](scaled_BE) / scales_B[:, None]
    return found_BE.reshape(values.shape), scales_B


def _to_e2m1(values: torch.Tensor) -> torch.Tensor:
    """The nearest numbers of four bits, ties to even; PyTorch has the format, and no conversion to it."""
    exponents = (torch.frexp(values).exponent - 1).clamp(min=0)
    last_bits = torch.ldexp(torch.full_like(values, 0.5), exponents)
    return torch.round(values / last_bits) * last_bits


_ROUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fp8-e4m3": lambda values: values.to(torch.float8_e4m3fn).float(),
    "fp8-e5m2": lambda values: values.to(torch.float8_e5m2).float(),
    "mxfp8": lambda values: values.to(torch.float8_e4m3fn).float(),
    "mxfp4": _to_e2m1,
}


class _Narrowed(torch.autograd.Function):
    """A matrix that is narrowed for a product, and gets the gradient of the product as it is."""

    @staticmethod
    def forward(ctx: Any, matrix: torch.Tensor, recipe: LowPrecisionRecipe) -> torch.Tensor:  # noqa: ARG004
        """As `narrowed`."""
        return narrowed(matrix, recipe)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004
        """Past the rounding, which has no derivative."""
        return gradients[0], None


def reader(recipe: LowPrecisionRecipe | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """The operand that a product reads of a matrix: the matrix itself, or its rounded form by a recipe."""
    if recipe is None:
        return lambda matrix: matrix
    return lambda matrix: _Narrowed.apply(matrix, recipe)  # type: ignore[no-untyped-call]
