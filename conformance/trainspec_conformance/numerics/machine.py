"""Inputs for the machine behind training: memory, kernels and energy."""

# ruff: noqa: ARG001 - shapes and times are not drawn

from __future__ import annotations

from typing import Any

from trainspec_conformance.numerics import case

_SHAPE = {"num_layers": 2, "hidden_size": 128, "sequence_length": 1024, "global_sequences": 8}
"""So large that an interpreter and its libraries are less than half of what is taken."""
_SMALL = {"num_layers": 2, "hidden_size": 128, "sequence_length": 256, "global_sequences": 8}
LOAD_SECONDS = 6.0


def _memory(**changes: int) -> dict[str, Any]:
    return {"operation": "memory", **_SHAPE, **changes}


@case("memory-base")
def memory_base(seed: int) -> dict[str, Any]:
    """The shape from which one factor at a time is varied."""
    return _memory()


@case("memory-layers")
def memory_layers(seed: int) -> dict[str, Any]:
    """More layers."""
    return _memory(num_layers=8)


@case("memory-sequence")
def memory_sequence(seed: int) -> dict[str, Any]:
    """Longer sequences."""
    return _memory(sequence_length=2048)


@case("memory-batch")
def memory_batch(seed: int) -> dict[str, Any]:
    """More samples at once."""
    return _memory(global_sequences=16)


@case("peaks-short")
def peaks_short(seed: int) -> dict[str, Any]:
    """Three steps."""
    return {"operation": "peaks", **_SMALL, "num_steps": 3}


@case("peaks-long")
def peaks_long(seed: int) -> dict[str, Any]:
    """Thirty steps of the same."""
    return {"operation": "peaks", **_SMALL, "num_steps": 30}


def _shards(sharding: str, seed: int) -> dict[str, Any]:
    sizes = {"num_ranks": 2, "num_parameters": 32_000_000, "num_steps": 3}
    return {"operation": "shards", "sharding": sharding, **sizes, "seed": seed % 1000}


@case("shards-none")
def shards_none(seed: int) -> dict[str, Any]:
    """Two ranks that each hold all of the state."""
    return _shards("none", seed)


@case("shards-parameters")
def shards_parameters(seed: int) -> dict[str, Any]:
    """Two ranks that hold half each: parameters, gradients and both moments, of four bytes each."""
    return _shards("parameters", seed)


@case("kernels")
def kernels(seed: int) -> dict[str, Any]:
    """Kernels of a training step, and the best that the same device reaches in the same run."""
    return {"operation": "kernels"}


@case("energy")
def energy(seed: int) -> dict[str, Any]:
    """A load that is longer than the window of any meter."""
    return {"operation": "energy", "seconds": LOAD_SECONDS, "interval_seconds": 0.1}
