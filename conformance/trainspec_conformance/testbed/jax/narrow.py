"""Scales arrays into formats of 8 and 4 bits with JAX, and back."""

# ruff: noqa: N806 - shapes stand in names: B blocks, E entries of one block

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from trainspec_conformance.testbed.recipes import NUMBERS, block_entries
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

_FORMATS = {
    "fp8-e4m3": jnp.float8_e4m3fn,
    "fp8-e5m2": jnp.float8_e5m2,
    "mxfp8": jnp.float8_e4m3fn,
    "mxfp4": jnp.float4_e2m1fn,
}
_LARGEST_EXPONENT = 127
"""A scale has eight bits of exponent. Source: OCP Microscaling Formats 1.0, section 5.4."""


def narrowed(values: jax.Array, recipe: LowPrecisionRecipe) -> tuple[jax.Array, jax.Array]:
    """Values as a product reads them, in fp32, and the scale of each block, which they were multiplied with.

    Raises:
        ValueError: there is no such recipe here.
    """
    size = block_entries(recipe, values.size)
    numbers, blocks_BE = NUMBERS[recipe.format], values.astype(jnp.float32).reshape(-1, size)
    magnitudes_B = jnp.abs(blocks_BE).max(1)
    if numbers.has_power_of_two:
        exponents_B = numbers.max_exponent - (jnp.frexp(magnitudes_B)[1] - 1)
        scales_B = jnp.ldexp(jnp.float32(1), jnp.clip(exponents_B, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    else:
        scales_B = numbers.largest / magnitudes_B
    scales_B = jnp.where(magnitudes_B > 0, scales_B, 1).astype(jnp.float32)
    scaled_BE = jnp.clip(blocks_BE * scales_B[:, None], -numbers.largest, numbers.largest)
    return (_rounded(scaled_BE, recipe.format) / scales_B[:, None]).reshape(values.shape), scales_B


def _rounded(values: jax.Array, name: str) -> jax.Array:
    """The nearest numbers of a format, in fp32: XLA leaves out a conversion and its way back on a GPU."""
    of = jnp.finfo(_FORMATS[name])  # type: ignore[no-untyped-call]
    exponents = jnp.maximum(jnp.frexp(values)[1] - 1, int(of.minexp))
    steps = jnp.ldexp(jnp.float32(1), exponents - int(of.nmant))
    return jnp.round(values / steps) * steps


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def read(matrix: jax.Array, recipe: LowPrecisionRecipe) -> jax.Array:
    """The operand that a product reads of a matrix, which gets the gradient of the product unchanged."""
    return narrowed(matrix, recipe)[0]


def _forward(matrix: jax.Array, recipe: LowPrecisionRecipe) -> tuple[jax.Array, None]:
    return read(matrix, recipe), None


def _backward(recipe: LowPrecisionRecipe, kept: None, gradient: jax.Array) -> tuple[Any]:  # noqa: ARG001
    return (gradient,)


read.defvjp(_forward, _backward)
