"""Inputs for training steps: divided batches, scaled losses, optimizer steps, and their results."""

from __future__ import annotations

import random
from typing import Any

from trainspec_conformance.numerics import case

LAYOUTS = ((1, 11), (1, 1), (2, 3), (3, 2))
"""Data ranks and largest micro-batch of eleven samples, which neither two ranks nor three share evenly."""


def _accumulate(seed: int, precision: str, layouts: tuple[tuple[int, int], ...] = LAYOUTS) -> dict[str, Any]:
    chance = random.Random(seed)  # noqa: S311 - repeatable choices, nothing secret
    return {
        "operation": "accumulate",
        "sample_ids": chance.sample(range(4000), 11),
        "variable_length": True,
        "layouts": [{"data": data, "micro_sequences": micro} for data, micro in layouts],
        "precision": precision,
        "seed": seed,
        "arrays": "base64",
    }


@case("accumulate")
def accumulate(seed: int) -> dict[str, Any]:
    """The same samples, of several lengths, divided in four ways."""
    return _accumulate(seed, "fp32")


@case("accumulate-bf16")
def accumulate_narrow(seed: int) -> dict[str, Any]:
    """The same in bf16."""
    return _accumulate(seed, "bf16", LAYOUTS[::2])


@case("loss-scale")
def loss_scale(seed: int) -> dict[str, Any]:
    """Overflows by chance, among them two in a row, and long stretches without one."""
    chance = random.Random(seed)  # noqa: S311 - repeatable choices, nothing secret
    drawn = [chance.random() < 0.4 for _ in range(30)]
    return {
        "operation": "loss-scale",
        "loss_scaling": {
            "mode": "dynamic",
            "initial_scale": 1024,
            "growth_factor": 2,
            "backoff_factor": 0.5,
            "growth_interval_steps": 3,
            "hysteresis_steps": 1,
            "min_scale": 256,
        },
        "overflows": [True, True, *[False] * 7, True, *drawn],
    }


LOUDER = 1024
"""How many times larger a loss is made, so that its gradient is above what stacks clip at."""


def _update(seed: int, clip_norm: float | None) -> dict[str, Any]:
    return {
        "operation": "update",
        "factors": [1, LOUDER],
        "clip_norm": clip_norm,
        "seed": seed,
        "arrays": "base64",
    }


@case("update-unclipped")
def update_unclipped(seed: int) -> dict[str, Any]:
    """One update with a gradient, and with one that is 1,024 times larger; nothing is to be clipped."""
    return _update(seed, None)


@case("update-clipped")
def update_clipped(seed: int) -> dict[str, Any]:
    """The same, clipped at a norm that the larger one exceeds."""
    return _update(seed, 0.25)


@case("converge-top-k")
def converge(seed: int) -> dict[str, Any]:
    """The same small job of several seeds, dense, and with a twentieth of each gradient."""
    return {
        "operation": "converge",
        "compression": {"method": "top-k", "density": 0.05, "error_feedback": True},
        "seeds": [3 * seed + one for one in range(3)],
        "num_steps": 200,
        "arrays": "base64",
    }
