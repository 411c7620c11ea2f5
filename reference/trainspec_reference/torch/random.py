"""Holds the random state of a rank."""

from __future__ import annotations

import hashlib

import torch


def seed(*words: int) -> None:
    """Start the generators of this process anew, from numbers that differ between ranks."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def states(device: torch.device) -> dict[str, torch.Tensor]:
    """State of each generator, as bytes."""
    found = {"host": torch.get_rng_state()}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_rng_state(device)
    return found


def restore(found: dict[str, torch.Tensor], device: torch.device) -> None:
    """Go on from these states."""
    torch.set_rng_state(found["host"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(found["device"], device)
