"""Answers to numeric questions that no stack gave, right ones, and ways to spoil them, for tests of what checks say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
from trainspec_conformance.arrays import Array, packed, unpacked
from trainspec_conformance.criteria.numbers_narrow import E4M3
from trainspec_conformance.criteria.numbers_planning import operations
from trainspec_conformance.criteria.numbers_training import scales
from trainspec_conformance.numerics import case_input
from trainspec_conformance.records import Entry, Probed

MEGABYTE = 1_000_000
SEED = 1
Answer = dict[str, Any]
Maker = Callable[[Answer], Answer]
"""Gives the right answer to a question."""


# --- noise ----------------------------------------------------------------------------------------------------


def noise(asked: Answer) -> Answer:
    gradients, sizes = unpacked(asked["gradients"]), np.array(asked["group_sizes"], float)
    shares, num_groups = sizes / sizes.sum(), len(sizes)
    of_mean = np.square(np.einsum("g,sge->se", shares, gradients)).sum(1)
    of_groups = np.square(gradients).sum(2) @ shares
    signal = (num_groups * of_mean - of_groups) / (num_groups - 1)
    trace = sizes.sum() * (of_groups - of_mean) / (num_groups - 1)
    averages = {"signal_sq": corrected(signal, asked), "noise_trace": corrected(trace, asked)}
    averages["noise_scale"] = averages["noise_trace"] / averages["signal_sq"]
    told = {"signal_sq": packed(signal), "noise_trace": packed(trace), "norms": packed(np.sqrt(of_mean))}
    return {**told, "averages": averages}


def corrected(readings: Array, asked: Answer) -> float:
    """Average in which each reading counts less with its age, corrected for its start."""
    kept, average = 0.5 ** (1 / asked["half_life_steps"]), 0.0
    for reading in readings:
        average = kept * average + (1 - kept) * float(reading)
    return average / (1 - kept ** len(readings))


# --- training -------------------------------------------------------------------------------------------------


def accumulate(asked: Answer) -> Answer:
    samples = [{"loss": 3.0 + number / 10, "num_targets": number + 1} for number in range(len(asked["sample_ids"]))]
    total = sum(one["num_targets"] for one in samples)
    mean = sum(one["loss"] * one["num_targets"] for one in samples) / total
    return {"results": [{"loss": mean, "gradient": [0.6, 0.8]} for _ in asked["layouts"]], "samples": samples}


def loss_scale(asked: Answer) -> Answer:
    *of_steps, after = scales(asked["loss_scaling"], asked["overflows"])
    overflows = np.array(asked["overflows"])
    updates = np.cumsum(~overflows)
    rates = 0.1 * 0.9 ** (updates - ~overflows)
    told = {"scales": of_steps, "next_scale": after, "skipped": overflows.tolist(), "unchanged": overflows.tolist()}
    return {**told, "updates": updates.tolist(), "learning_rates": rates.tolist()}


def update(asked: Answer) -> Answer:
    gradient = np.array([0.003, 0.004])
    return {"updates": packed(np.stack([gradient * factor for factor in asked["factors"]]))}


def converge(asked: Answer) -> Answer:
    dense = np.linspace(4, 2, asked["num_steps"]) + np.array([[0.0], [0.05], [-0.05]])
    return {"dense": packed(dense), "compressed": packed(dense + 0.08)}


# --- arithmetic -----------------------------------------------------------------------------------------------


def largest(vectors: Array, density: float) -> Array:
    """The entries of each vector that are largest, and zeros."""
    num_kept = round(vectors.shape[1] * density)
    least = np.sort(np.abs(vectors), axis=1)[:, -num_kept, None]
    return np.where(np.abs(vectors) >= least, vectors, 0)


def feedback(asked: Answer) -> Answer:
    gradients = unpacked(asked["gradients"])
    return {"sent": packed(gradients / 2), "residual": packed(gradients.sum(0) / 2)}


def contraction(asked: Answer) -> Answer:
    return {"sent": packed(largest(unpacked(asked["gradients"]), asked["compression"]["density"]))}


def wire(asked: Answer) -> Answer:
    gradients, density = unpacked(asked["gradients"]), asked["compression"]["density"]
    num_steps, num_entries = gradients.shape
    told = {"sent": packed(largest(gradients, density)), "dense_bytes": 4 * num_entries}
    return {**told, "wire_bytes": [8 * num_entries * density] * num_steps}


def draws(asked: Answer) -> Answer:
    values = unpacked(asked["values"]).astype(np.float32)
    chance = np.random.default_rng(0).integers(0, 2**16, (asked["num_draws"], len(values)), dtype=np.uint32)
    drawn = (values.view(np.uint32) + chance) & np.uint32(0xFFFF0000)
    return {"dequantised": packed(drawn.view(np.float32))}


def copies(asked: Answer) -> Answer:
    """The numbers of bf16 on both sides of 1.1, in the shares that give it in the mean."""
    above = asked["num_copies"] * 4 // 5
    return {"values": [1.1015625] * above + [1.09375] * (asked["num_copies"] - above)}


def total(asked: Answer) -> Answer:
    return {"sum": packed(unpacked(asked["gradients"]).sum((0, 1)))}


def narrow(asked: Answer) -> Answer:
    values, numbers = unpacked(asked["values"]), E4M3.all()
    scale = float(E4M3.largest / np.abs(values).max())
    codes = numbers[np.abs(np.abs(values * scale)[:, None] - numbers).argmin(1)] * np.sign(values)
    return {"dequantised": packed((codes / scale)[None]), "scales": [scale]}


# --- plans ----------------------------------------------------------------------------------------------------


def elastic(asked: Answer) -> Answer:
    found = {}
    for micro in asked["micro_sequences"]:
        for world in range(asked["min_accelerators"], asked["max_accelerators"] + 1):
            steps, rest = divmod(asked["global_sequences"], world * micro)
            if not rest:
                way = {"data": world, "micro_sequences": micro, "accumulation_steps": steps}
                found[world] = {"world_size": world, **way}
    return {"world_sizes": sorted(found), "scales": list(found.values())}


def speeds(asked: Answer) -> Answer:
    quotas = np.array(asked["speeds"]) / sum(asked["speeds"]) * asked["global_sequences"]
    shares = np.floor(quotas).astype(int)
    shares[np.argsort(shares - quotas)[: asked["global_sequences"] - shares.sum()]] += 1
    return {"shares": shares.tolist()}


def flops(asked: Answer) -> Answer:
    return {"flops_per_token": operations(asked)}


# --- machine --------------------------------------------------------------------------------------------------


def memory(asked: Answer) -> Answer:
    return {"memory": "host", "predicted_bytes": 50 * MEGABYTE * asked["num_layers"]}


def peaks(asked: Answer) -> Answer:
    return {"peak_bytes": [100] * asked["num_steps"]}


def shards(asked: Answer) -> Answer:
    return {"memory": "host", "losses": [3.0, 2.0, 1.0]}


def kernel(operation: str, dimensions: list[int], seconds: float) -> Answer:
    return {"operation": operation, "dimensions": dimensions, "median_seconds": seconds}


def kernels(**changes: Any) -> Answer:
    """A device of 600 TFLOP/s and 2 TB/s."""
    return {
        "format": "bfloat16",
        "num_warmup_runs": 50,
        "num_timed_runs": 100,
        "rooflines": [
            kernel("roofline-matmul", [1000, 1000, 1000], 2e9 / 6e14),
            kernel("device-copy", [1000, 1000], 4e6 / 2e12),
        ],
        "kernels": [
            kernel("matmul", [1000, 500, 2000], 2e9 / 5e14),
            kernel("attention", [1, 8, 1000, 100], 5.6e9 / 2e14),
            kernel("normalization", [1000, 1000], 4e6 / 1e12),
            kernel("activation", [1000, 1000], 4e6 / 1e12),
        ],
        **changes,
    }


def energy(**changes: Any) -> Answer:
    """A load of 300 W, read every tenth of a second; some readings of power are missing."""
    seconds = [number / 10 for number in range(62)]
    watts = [None if number % 7 == 3 else 300.0 for number in range(62)]
    return {"seconds": seconds, "joules": [5000 + 300 * one for one in seconds], "watts": watts, **changes}


# --- all of them ----------------------------------------------------------------------------------------------

MAKERS: dict[str, Maker] = {
    "noise-even": noise,
    "accumulate": accumulate,
    "loss-scale": loss_scale,
    "update-unclipped": update,
    "converge-top-k": converge,
    "feedback": feedback,
    "contraction": contraction,
    "wire-top-k": wire,
    "rounding-draws": draws,
    "updates-by-chance": copies,
    "reduce-fp32": total,
    "narrow-e4m3": narrow,
    "elastic-flat": elastic,
    "speeds": speeds,
    "flops-dense": flops,
    "memory-base": memory,
    "memory-layers": memory,
    "peaks-short": peaks,
    "peaks-long": peaks,
    "shards-none": shards,
    "shards-parameters": shards,
    "kernels": lambda _: kernels(),
    "energy": lambda _: energy(),
}
PEAKS = {"memory-base": 150, "memory-layers": 450, "peaks-short": 1000, "peaks-long": 1020}
PEAKS |= {"shards-none": 2000, "shards-parameters": 1500}
"""Megabytes that the suite saw taken."""


@cache
def question(case: str) -> bytes:
    return msgspec.json.encode(case_input(case, SEED))


@cache
def right(case: str) -> bytes:
    return msgspec.json.encode(MAKERS[case](msgspec.json.decode(question(case))))


def probed(case: str, text: bytes | None = None, peak: float | None = None) -> Entry:
    """The answer to a case, the right one where none is given."""
    output = msgspec.Raw(right(case) if text is None else text)
    told = {"status": 0, "input": msgspec.Raw(question(case)), "output": output}
    taken = int((PEAKS.get(case, 0) if peak is None else peak) * MEGABYTE)
    return Entry(seconds=0.0, record=Probed(case=case, peak_bytes=taken, **told))
