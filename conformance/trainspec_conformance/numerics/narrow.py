"""Inputs for numbers of 8 and 4 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_conformance.arrays import packed
from trainspec_conformance.numerics import case

NUM_VALUES, BLOCK = 2048, 32


def _question(seed: int, recipe: dict[str, Any]) -> dict[str, Any]:
    """Values of many magnitudes, zeros, ties of each format, and one block that is zero throughout."""
    chance = np.random.default_rng([seed, 16])
    values = chance.standard_normal(NUM_VALUES) * 2.0 ** chance.uniform(-6, 6, NUM_VALUES)
    values[:BLOCK] = 0
    values[BLOCK : 2 * BLOCK] = np.round(values[BLOCK : 2 * BLOCK] * 4) / 4
    values[2 * BLOCK :: 97] = 0
    return {
        "operation": "quantise",
        "values": packed(values.astype(np.float32)),
        "rounding": "nearest",
        "num_draws": 1,
        "arrays": "base64",
        **recipe,
    }


@case("narrow-e4m3")
def e4m3(seed: int) -> dict[str, Any]:
    """One scale for all values, by the largest magnitude of now."""
    return _question(seed, {"format": "fp8-e4m3", "scaling": "current"})


@case("narrow-e5m2")
def e5m2(seed: int) -> dict[str, Any]:
    """The format of gradients."""
    return _question(seed, {"format": "fp8-e5m2", "scaling": "current"})


@case("narrow-mxfp8")
def mxfp8(seed: int) -> dict[str, Any]:
    """A power of two for each block of 32."""
    return _question(seed, {"format": "mxfp8", "scaling": "block", "block_size": BLOCK})


@case("narrow-mxfp4")
def mxfp4(seed: int) -> dict[str, Any]:
    """The same with four bits."""
    return _question(seed, {"format": "mxfp4", "scaling": "block", "block_size": BLOCK})
