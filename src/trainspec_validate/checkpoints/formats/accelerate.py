"""Reads what `Accelerator.save_state` leaves in a directory: which items of state it has, and for which ranks."""

from __future__ import annotations

import re

from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.trainer_files import MARK, RANDOM_STATES, is_of_accelerate, num_ranks
from trainspec_validate.checkpoints.view import Checkpoint

# https://github.com/huggingface/accelerate/blob/16cb6eb8/src/accelerate/checkpointing.py, save_accelerator_state
_OPTIMIZER = re.compile(r"^optimizer(_[0-9]+)?(\.bin|/)")
_SCHEDULE = re.compile(r"^scheduler(_[0-9]+)?\.bin$")
_CUSTOM = re.compile(r"^custom_checkpoint_[0-9]+\.pkl$")
_OF_NO_MODEL = re.compile(
    r"^(optimizer(_[0-9]+)?(\.bin|/.*)|(scheduler|sampler|dl_state_dict)(_[0-9]+)?\.bin|scaler\.pt|random_states_[0-9]+\.pkl"
    r"|custom_checkpoint_[0-9]+\.pkl)$"
)
_ITEM = re.compile(
    r"^(?P<stem>model|pytorch_model|optimizer|scheduler)(?:_(?P<number>[1-9][0-9]{0,3}))?(?P<end>\.safetensors|\.bin)$"
)
_MOST_ITEMS = 1_000
_STATE = (*STATE_SUFFIXES, ".distcp")
_EARLIER = "resume from an earlier checkpoint"


def read(checkpoint: Checkpoint) -> None:
    """Add which items are missing without which `load_state` fails, or continues with other state."""
    ranks = {int(match["rank"]): path for path in checkpoint.files if (match := RANDOM_STATES.match(path))}
    if MARK in checkpoint.files or not (ranks or is_of_accelerate(checkpoint.files)):
        return
    checkpoint.formats.append("Accelerate")
    checkpoint.examined |= {"resume-state", "rng"}
    state = [path for path in checkpoint.files if path.lower().endswith(_STATE)]
    models = [path for path in state if not _OF_NO_MODEL.match(path)]
    is_joint = any("/" in path for path in models)  # of DeepSpeed, Megatron, or a hook of the program
    _check_state(checkpoint, has_model=bool(models), has_optimizer=is_joint or any(map(_OPTIMIZER.match, state)))
    _check_numbers(checkpoint)
    if not ranks:
        words = "no state of random numbers is there, without which load_state continues with others"
        checkpoint.doubts[""] = (words, "look for random_states_0.pkl in the source of the checkpoint")
        return
    wanted = max(max(ranks) + 1, num_ranks(checkpoint.files))
    absent = wanted - sum(rank < wanted for rank in ranks)
    if absent > 0:
        words = f"{absent:,} of {wanted:,} files random_states_N.pkl are missing"
        checkpoint.report("rng", "", words, "ranks without one resume on a wrong stream of random numbers")


def _check_numbers(checkpoint: Checkpoint) -> None:
    """The first model, optimizer and schedule has no number, and those after it are numbered from 1."""
    held: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, map(_ITEM.match, checkpoint.files)):
        held.setdefault((match["stem"], match["end"]), set()).add(int(match["number"] or 0))
    for (stem, end), numbers in sorted(held.items()):
        absent = [number for number in range(min(max(numbers), _MOST_ITEMS)) if number not in numbers]
        if absent:
            name = f"{stem}{f'_{absent[0]}' if absent[0] else ''}{end}"
            words = f"{name} is missing, and {stem}_{max(numbers)}{end} after it is there"
            checkpoint.report("shards", "", words, _EARLIER)


def _check_state(checkpoint: Checkpoint, *, has_model: bool, has_optimizer: bool) -> None:
    """A model that a program registers itself is among custom objects; one that only predicts has no optimizer."""
    names = checkpoint.files.keys()
    lacks = []
    if not has_model and any(map(_CUSTOM.match, names)):
        what = "no file of the model is there, unless custom_checkpoint_N.pkl holds it"
        checkpoint.doubts[""] = (what, "look for model.safetensors in the source of the checkpoint")
    elif not has_model:
        lacks.append("no file of the model is there: model.safetensors is missing")
    if not has_optimizer and any(map(_SCHEDULE.match, names)):
        lacks.append("no state of the optimizer is there, and one of its schedule is: optimizer.bin is missing")
    elif not has_optimizer and not lacks:
        what = "no state of an optimizer is there, which a model that is only used has none of"
        checkpoint.doubts[""] = (what, "a run that trains resumes from an earlier checkpoint")
    if lacks:
        checkpoint.report("resume-state", "", "; ".join(lacks), _EARLIER)
