"""Says by names of files what the Trainer of Hugging Face left in a directory: a point to resume from, or a model."""

from __future__ import annotations

import re
from collections.abc import Collection

MARK = "trainer_state.json"
RNG = re.compile(r"^rng_state(?:_(?P<rank>\d{1,7}))?\.pth$")
OPTIMIZERS = ("optimizer.pt", "optimizer.bin", "pytorch_model_fsdp_0", "optimizer_0")
SCHEDULE = "scheduler.pt"
_NAMED = re.compile(r"^checkpoint-\d+$")
_WEIGHTS = re.compile(r"^(model|pytorch_model|adapter_model)[^/]*\.(safetensors|bin)$")
_SHARDED = ("global_step", "pytorch_model_fsdp", "optimizer_")


def is_step_name(name: str) -> bool:
    """Whether the Trainer gives the name to a directory that a run resumes from."""
    return _NAMED.match(name) is not None


def weights(held: Collection[str]) -> list[str]:
    """The files of the model among the names of a directory."""
    return sorted(name for name in held if _WEIGHTS.match(name))


def sharded_state(held: Collection[str]) -> list[str]:
    """Where DeepSpeed and PyTorch FSDP keep weights and optimizer, among the names of a directory."""
    return sorted(name for name in held if name.startswith(_SHARDED))


def resume_state(held: Collection[str]) -> list[str]:
    """The optimizer, schedule and random state among the names of a directory; a model for use has none."""
    named = {*OPTIMIZERS, SCHEDULE}
    return sorted({name for name in held if name in named or RNG.match(name)} | set(sharded_state(held)))


def is_checkpoint(directory: str, held: Collection[str]) -> bool:
    """Whether a directory with the log of the Trainer is a checkpoint, and no place where only the log was copied to.

    >>> is_checkpoint("viewer", ["trainer_state.json", "index.html"])
    False
    >>> is_checkpoint("checkpoint-60", ["trainer_state.json"])
    True
    """
    return MARK in held and (is_step_name(directory) or bool(weights(held) or resume_state(held)))
