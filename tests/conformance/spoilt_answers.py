"""For every check of an answer, answers that it has to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from made_answers import right
from trainspec_conformance.arrays import packed, unpacked


@dataclass(frozen=True)
class Spoilt:
    """An answer that a check has to fail."""

    check: str
    scenario: str
    case: str
    changes: dict[str, Callable[[Any], Any]]
    """By key: from the right value to the wrong one."""
    words: str
    peak: float | None = None
    beside: tuple[str, ...] = ()
    """Cases that it is compared with."""

    def text(self) -> bytes:
        told = msgspec.json.decode(right(self.case))
        return msgspec.json.encode({**told, **{key: change(told[key]) for key, change in self.changes.items()}})


def times(factor: float) -> Callable[[Any], Any]:
    """Every number of an array is so many times larger."""
    return lambda value: packed(unpacked(value) * factor)


ANSWERS = [
    Spoilt("noise-readings", "noise-of-equal-groups", "noise-even", {"norms": times(1.1)}, "norm of step"),
    Spoilt("noise-truth", "noise-of-equal-groups", "noise-even", {"noise_trace": times(1.1)}, "the mean noise is"),
    Spoilt("noise-truth", "noise-of-equal-groups", "noise-even", {"signal_sq": times(2)}, "the mean signal is"),
    Spoilt("noise-averages", "noise-of-equal-groups", "noise-even",
           {"averages": lambda told: {**told, "noise_scale": told["noise_scale"] * 1.1}}, "noise_scale is"),
    Spoilt("same-gradient", "accumulation", "accumulate",
           {"results": lambda told: [*told[:-1], {**told[-1], "gradient": [0.6, 0.9]}]}, "differs by 0.1 of its norm"),
    Spoilt("loss-is-token-mean", "accumulation", "accumulate",
           {"results": lambda told: [{**one, "loss": 3.5} for one in told]}, "is 3.5, the mean over targets"),
    Spoilt("loss-scale", "loss-scale-path", "loss-scale", {"scales": times(2)}, "the scale of step 0 is 2048"),
    Spoilt("skips-overflows", "loss-scale-path", "loss-scale", {"skipped": times(0)}, "not those that overflowed"),
    Spoilt("skips-overflows", "loss-scale-path", "loss-scale", {"unchanged": times(0)}, "the state changed"),
    Spoilt("skips-overflows", "loss-scale-path", "loss-scale",
           {"learning_rates": lambda told: list(range(len(told)))}, "the learning rate changes"),
    Spoilt("updates-as-declared", "updates-as-declared", "update-unclipped",
           {"updates": lambda told: packed(np.array([[0.003, 0.004]] * 2))}, "no clipping is declared"),
    Spoilt("converges", "compression-converges", "converge-top-k", {"compressed": times(1.5)}, "allow a gap of"),
    Spoilt("conserves", "feedback-conserves", "feedback", {"residual": times(2)}, "differ by"),
    Spoilt("contracts", "contractive-compression", "contraction", {"sent": times(0)}, "1.0000 of the square"),
    Spoilt("wire-bytes", "wire-bytes", "wire-top-k", {"wire_bytes": times(0.25)}, "200 bytes are reported"),
    Spoilt("unbiased", "unbiased-rounding", "rounding-draws",
           {"dequantised": lambda told: packed(unpacked(told)[:1].repeat(1000, 0))}, "times the expected error"),
    Spoilt("unbiased", "unbiased-rounding", "rounding-draws", {"dequantised": times(1.001)}, "not a value of the"),
    Spoilt("small-updates", "stochastic-rounding", "updates-by-chance",
           {"values": lambda told: [1.0] * len(told)}, "the mean of copies is 1.000000"),
    Spoilt("sum-as-declared", "reduction-precision", "reduce-fp32", {"sum": times(1.001)}, "differs by 0.001"),
    Spoilt("scales-as-defined", "narrow-formats", "narrow-e4m3", {"scales": times(0.5)}, "the scale of block 0"),
    Spoilt("nearest-of-format", "narrow-formats", "narrow-e4m3", {"dequantised": times(1.2)}, "not the nearest"),
    Spoilt("world-sizes", "elastic-sizes", "elastic-flat", {"world_sizes": lambda told: [*told, 7]}, "[7] are too"),
    Spoilt("world-sizes", "elastic-sizes", "elastic-flat",
           {"scales": lambda told: [{**told[0], "accumulation_steps": 0}]}, "does not make a batch"),
    Spoilt("shares-by-speed", "uneven-load", "speeds", {"shares": lambda told: [32] * len(told)}, "gets 32, by its"),
    Spoilt("operations", "operations-of-a-token", "flops-dense", {"flops_per_token": lambda told: told * 3}, "counted"),
    Spoilt("memory-predicted", "memory-by-factor", "memory-base", {}, "4e+08 bytes were taken", 400),
    Spoilt("memory-differences", "memory-by-factor", "memory-layers", {}, "bytes more were taken", 200,
           ("memory-base",)),
    Spoilt("state-held", "state-sharded", "shards-none", {}, "their state alone takes", 700),
    Spoilt("state-sharded", "state-sharded", "shards-parameters", {}, "one copy of the moments", 2000,
           ("shards-none",)),
    Spoilt("state-sharded", "state-sharded", "shards-parameters", {"losses": times(2)}, "losses are", None,
           ("shards-none",)),
    Spoilt("steady-steps", "steady-memory", "peaks-long", {"peak_bytes": lambda told: [*told[1:], 110]}, "step 30"),
    Spoilt("steady-process", "steady-memory", "peaks-short", {}, "were taken for 30 steps", 900, ("peaks-long",)),
    Spoilt("kernels-above-floors", "kernel-floors", "kernels", {"num_timed_runs": lambda _: 10}, "100 runs"),
    Spoilt("energy-counted", "energy-counted", "energy",
           {"joules": lambda told: [2 * one for one in told]}, "add up to"),
]  # fmt: skip
