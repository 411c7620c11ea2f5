"""Inputs for the arithmetic of gradients: compressors, roundings and sums."""

# ruff: noqa: N803, N806 - shapes stand in names: S steps, R ranks, M micro-batches, E entries

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_conformance.arrays import Array, packed
from trainspec_conformance.numerics import case

NUM_DRAWS = 1000
DENSITY = 0.05


def _gradients(seed: int, num_steps: int, num_entries: int) -> Array:
    chance = np.random.default_rng([seed, num_steps, num_entries])
    return chance.standard_normal(num_entries) + chance.standard_normal((num_steps, num_entries))


def _compress(gradients_SE: Array, compression: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "operation": "compress",
        "compression": compression,
        "shape": [gradients_SE.shape[1]],
        "gradients": packed(gradients_SE.astype(np.float32)),
        "arrays": "base64",
        **more,
    }


@case("feedback")
def feedback(seed: int) -> dict[str, Any]:
    """200 steps of a compressor that sends a twentieth and remembers the rest."""
    compression = {"method": "top-k", "density": DENSITY, "error_feedback": True}
    return _compress(_gradients(seed, 200, 256), compression)


@case("contraction")
def contraction(seed: int) -> dict[str, Any]:
    """100 random vectors, and ten that no choice of entries is good for: all of one magnitude."""
    chance = np.random.default_rng(seed)
    random_SE = chance.standard_normal((100, 200))
    flat_SE = np.sign(chance.standard_normal((10, 200))) * chance.uniform(0.1, 10, (10, 1))
    compression = {"method": "top-k", "density": DENSITY, "error_feedback": False}
    return _compress(np.concatenate((random_SE, flat_SE)), compression, independent=True)


@case("wire-top-k")
def wire_top_k(seed: int) -> dict[str, Any]:
    """A hundredth of the entries, whose places travel too."""
    compression = {"method": "top-k", "density": 0.01, "error_feedback": True}
    return _compress(_gradients(seed, 3, 10_000), compression)


@case("wire-fp16")
def wire_fp16(seed: int) -> dict[str, Any]:
    """Half of each number."""
    return _compress(_gradients(seed, 3, 10_000), {"method": "fp16"})


@case("rounding-draws")
def rounding_draws(seed: int) -> dict[str, Any]:
    """1,000 values, each rounded to bf16 by chance 1,000 times."""
    chance = np.random.default_rng(seed)
    return {
        "operation": "quantise",
        "values": packed(chance.standard_normal(1000).astype(np.float32)),
        "format": "bf16",
        "rounding": "stochastic",
        "num_draws": NUM_DRAWS,
        "seed": seed,
        "arrays": "base64",
    }


def _stored(seed: int, rounding: str) -> dict[str, Any]:
    return {
        "operation": "stochastic-rounding",
        "format": "bf16",
        "start": 1.0,
        "increment": 1e-4,
        "num_steps": 1000,
        "num_copies": 2000,
        "rounding": rounding,
        "seed": seed,
        "arrays": "base64",
    }


@case("updates-by-chance")
def updates_by_chance(seed: int) -> dict[str, Any]:
    """1,000 updates that are too small for the format, rounded by chance."""
    return _stored(seed, "stochastic")


@case("updates-to-nearest")
def updates_to_nearest(seed: int) -> dict[str, Any]:
    """The same, rounded to the nearest number."""
    return _stored(seed, "nearest")


@case("reduce-fp32")
def reduce_wide(seed: int) -> dict[str, Any]:
    """Four ranks of 32 micro-batches, whose terms bf16 holds exactly, added up in fp32."""
    chance = np.random.default_rng([seed, 14])
    terms_RME = 1 + 0.5 * chance.standard_normal((4, 32, 128))
    coarse_RME = np.round(terms_RME * 64) / 64
    return {
        "operation": "reduce",
        "gradients": packed(coarse_RME.astype(np.float32)),
        "gradient_format": "fp32",
        "accumulation_format": "fp32",
        "reduction_format": "fp32",
        "arrays": "base64",
    }
