"""The only place for inputs about training steps: how a batch is divided, and how the loss is scaled."""

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
