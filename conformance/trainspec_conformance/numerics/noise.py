"""Inputs for gradient noise: groups of gradients of a known signal and covariance."""

# ruff: noqa: N806 - shapes stand in names: S steps, G groups, E entries

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_conformance.arrays import Array, packed
from trainspec_conformance.numerics import case

HALF_LIFE_STEPS = 200
LARGE_SCALE = 65536
_ENTRIES = 32


def true_signal() -> Array:
    """The true gradient."""
    return np.asarray(np.cos(np.arange(_ENTRIES)) / np.sqrt(_ENTRIES / 2))


def true_variances() -> Array:
    """Variance of each entry for one noise unit: the covariance is diagonal."""
    return np.asarray(np.linspace(4.0, 12.0, _ENTRIES))


def _question(seed: int, num_steps: int, sizes: tuple[int, ...], **more: Any) -> dict[str, Any]:
    chance = np.random.default_rng([seed, num_steps, *sizes])
    drawn_SGE = chance.standard_normal((num_steps, len(sizes), _ENTRIES))
    spread_GE = np.sqrt(true_variances() / np.array(sizes)[:, None])
    gradients_SGE = true_signal() + drawn_SGE * spread_GE
    return {
        "operation": "noise",
        "gradients": packed(gradients_SGE.astype(np.float32)),
        "group_sizes": list(sizes),
        "half_life_steps": HALF_LIFE_STEPS,
        **more,
    }


@case("noise-even")
def even(seed: int) -> dict[str, Any]:
    """Eight groups of equal size, 2,000 steps."""
    return _question(seed, 2000, (4,) * 8)


@case("noise-uneven")
def uneven(seed: int) -> dict[str, Any]:
    """Groups of 1, 2, 4 and 9 units."""
    return _question(seed, 2000, (1, 2, 4, 9))


@case("noise-plain")
def plain(seed: int) -> dict[str, Any]:
    """Base of the following four variants."""
    return _question(seed, 50, (4,) * 8)


@case("noise-scaled")
def scaled(seed: int) -> dict[str, Any]:
    """The loss is scaled."""
    return _question(seed, 50, (4,) * 8, loss_scale=LARGE_SCALE)


@case("noise-clipped")
def clipped(seed: int) -> dict[str, Any]:
    """Gradients are clipped to a norm far below theirs."""
    return _question(seed, 50, (4,) * 8, clip_norm=0.01)


@case("noise-bf16")
def narrow(seed: int) -> dict[str, Any]:
    """Gradients are held in bf16."""
    return _question(seed, 50, (4,) * 8, gradient_format="bf16")


@case("noise-bf16-scaled")
def narrow_and_scaled(seed: int) -> dict[str, Any]:
    """Gradients are held in bf16, and the loss is scaled."""
    return _question(seed, 50, (4,) * 8, gradient_format="bf16", loss_scale=LARGE_SCALE)
