"""Says by names of files what the Trainer of Hugging Face left in a directory: a point to resume from, or a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MARK = "trainer_state.json"
RNG = re.compile(r"^rng_state(?:_(?P<rank>[0-9]{1,7}))?\.pth$")
OPTIMIZERS = ("optimizer.pt", "optimizer.bin", "pytorch_model_fsdp_0", "optimizer_0")
SCHEDULE = "scheduler.pt"
RANDOM_STATES = re.compile(r"^random_states_(?P<rank>[0-9]{1,7})\.pkl$")
_OF_ACCELERATE = frozenset({"optimizer.bin", "scheduler.bin"})
"""Names of both in Accelerate; the Trainer has `scheduler.pt`."""
_NAMED = re.compile(r"^checkpoint-[0-9]+$")
_WEIGHTS = re.compile(r"^(model|pytorch_model|adapter_model)[^/]*\.(safetensors|bin)$")
_OTHER_WEIGHTS = re.compile(r"^(?:pytorch_)?model[^/]*\.(?:pt|pth)$")
"""Names of a model that the Trainer does not give, and loops of programs do."""
_SETTINGS = "training_args.bin"
"""The Trainer writes it after the model, and before the optimizer."""
_DEEPSPEED, _FSDP = "global_step", "pytorch_model_fsdp"
_FSDP_OPTIMIZER = re.compile(r"optimizer_[0-9]+|optimizer\.bin")
_SHARDED = (_DEEPSPEED, _FSDP, "optimizer_")


def is_step_name(name: str) -> bool:
    """Whether the Trainer gives the name to a directory that a run resumes from."""
    return _NAMED.match(name) is not None


def weights(held: Collection[str]) -> list[str]:
    """The files of the model among the names of a directory."""
    return sorted(name for name in held if _WEIGHTS.match(name))


def other_weights(held: Collection[str]) -> list[str]:
    """The files of a model by names that the Trainer does not give, among the names of a directory."""
    return sorted(name for name in held if _OTHER_WEIGHTS.match(name))


def is_of_a_loop(held: Collection[str]) -> bool:
    """Whether the loop of a program wrote a model and its optimizer, and nothing is there that the Trainer writes too.

    The Trainer writes settings, optimizer, schedule, random numbers and log, in this order, after the model.

    >>> is_of_a_loop(["model.pt", "optimizer.pt", "scheduler.pt", "trainer_state.json"])
    True
    >>> is_of_a_loop(["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"])
    False
    """
    if _SETTINGS in held or any(map(RNG.match, held)) or sharded_state(held) or "optimizer.pt" not in held:
        return False
    return bool(other_weights(held)) if SCHEDULE in held else bool(weights(held) or other_weights(held))


def sharded_state(held: Collection[str]) -> list[str]:
    """Where DeepSpeed and PyTorch FSDP keep weights and optimizer, among the names of a directory."""
    return sorted(name for name in held if name.startswith(_SHARDED))


def fsdp_state(held: Collection[str]) -> tuple[list[str], list[str]]:
    """Where PyTorch FSDP keeps weights and optimizer; DeepSpeed keeps both, and its schedule, in one place.

    >>> fsdp_state(["pytorch_model_fsdp_0", "optimizer_0", "scheduler.pt"]), fsdp_state(["global_step9", "optimizer_0"])
    ((['pytorch_model_fsdp_0'], ['optimizer_0']), ([], []))
    """
    if any(name.startswith(_DEEPSPEED) for name in held):
        return [], []
    models = sorted(name for name in held if name.startswith(_FSDP))
    return models, sorted(name for name in held if _FSDP_OPTIMIZER.fullmatch(name))


def resume_state(held: Collection[str]) -> list[str]:
    """The optimizer, schedule and random state among the names of a directory; a model for use has none."""
    named = {*OPTIMIZERS, SCHEDULE}
    return sorted({name for name in held if name in named or RNG.match(name)} | set(sharded_state(held)))


def is_of_accelerate(held: Collection[str]) -> bool:
    """Whether Accelerate wrote what is among the names of a directory, whose own names of state the Trainer has not.

    >>> is_of_accelerate(["model.safetensors", "optimizer.bin", "random_states_0.pkl"])
    True
    >>> is_of_accelerate(["model.safetensors", "optimizer.bin", "scheduler.pt"])
    False
    """
    is_of_trainer = bool({MARK, "optimizer.pt", SCHEDULE}.intersection(held)) or any(map(RNG.match, held))
    return not is_of_trainer and (set(held) >= _OF_ACCELERATE or any(map(RANDOM_STATES.match, held)))


def is_checkpoint(directory: str, held: Collection[str]) -> bool:
    """Whether a directory with the log of the Trainer is a checkpoint, and no place where only the log was copied to.

    >>> is_checkpoint("viewer", ["trainer_state.json", "index.html"])
    False
    >>> is_checkpoint("checkpoint-60", ["trainer_state.json"])
    True
    """
    return MARK in held and (is_step_name(directory) or bool(weights(held) or resume_state(held)))


_OF_DEEPSPEED = re.compile(
    r"(?:^|/)(?:bf16_|fp16_)?zero_pp_rank_(?P<data>[0-9]{1,7})_mp_rank_(?P<model>[0-9]{1,7})_(?:optim|model)_states\.pt$"
)
_OF_FSDP = re.compile(r"(?:^|/)(?:pytorch_model_fsdp|optimizer)_[0-9]+/__(?P<rank>[0-9]{1,7})_[0-9]+\.distcp$")


def num_ranks(paths: Iterable[str]) -> int:
    """The ranks that shards of DeepSpeed and PyTorch FSDP are of, by their names; 0 where there are none.

    >>> num_ranks(["global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt"]), num_ranks(["model.safetensors"])
    (2, 0)
    """
    data = model = sharded = 0
    for path in paths:
        if match := _OF_DEEPSPEED.search(path):
            data, model = max(data, int(match["data"]) + 1), max(model, int(match["model"]) + 1)
        elif match := _OF_FSDP.search(path):
            sharded = max(sharded, int(match["rank"]) + 1)
    return max(data * model, sharded)
