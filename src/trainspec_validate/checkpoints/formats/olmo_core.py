"""Reads which parts of a checkpoint of OLMo-core are there: model and optimizer, state of each rank, and its mark."""

from __future__ import annotations

import re

from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.view import Checkpoint

# https://github.com/allenai/OLMo-core/blob/fa6c5014c/src/olmo_core/train/checkpoint.py, save and dir_is_checkpoint
_MARK = ".metadata.json"
_MODEL = "model_and_optim"
_TRAINER = "train"
_RANK = re.compile(rf"^{_TRAINER}/rank(?P<rank>[0-9]{{1,7}})\.pt$")
_VERSION = "version"
_EARLIER = "resume from an earlier checkpoint"


def read(checkpoint: Checkpoint) -> None:
    """Add which of the three parts are missing that OLMo-core asks for, where two of them are there."""
    folders = {path.split("/")[0] for path in checkpoint.files if "/" in path}
    ranks = {int(match["rank"]): path for path in checkpoint.files if (match := _RANK.match(path))}
    is_marked = _MARK in checkpoint.files and _is_mark(checkpoint)
    if (_MODEL in folders) + bool(ranks) + is_marked < 2:  # one alone is of other programs too
        return
    checkpoint.formats.append("OLMo-core")
    checkpoint.examined |= {"mark", "resume-state", "rng"}
    if not is_marked:
        words = f"{_MARK}, which OLMo-core writes after all state, is missing"
        checkpoint.report("mark", "", words, f"the save was interrupted: {_EARLIER}")
    lacks = []
    if _MODEL not in folders:
        lacks.append(f"no state of model and optimizer is there: {_MODEL} is missing")
    if not ranks:
        lacks.append(f"no state of the trainer is there: {_TRAINER}/rank0.pt is missing")
    if lacks:
        checkpoint.report("resume-state", "", "; ".join(lacks), _EARLIER)
    _check_ranks(checkpoint, ranks)


def _is_mark(checkpoint: Checkpoint) -> bool:
    try:
        value = read_json(read_small(checkpoint.root / _MARK))
    except (LimitError, UnreadableError):
        return False
    return isinstance(value, dict) and _VERSION in value


def _check_ranks(checkpoint: Checkpoint, ranks: dict[int, str]) -> None:
    """The state of the trainer says how many ranks saved theirs, and at which step."""
    wanted = max(ranks, default=-1) + 1
    for path in ranks.values():
        said = checkpoint.said.get(path)
        if said is not None:
            wanted = max(wanted, min(said.count("world_size") or 0, 10_000_000))
            checkpoint.claim(path, said.count("global_step"), f"{path} (global_step)")
    absent = wanted - len(ranks)
    if ranks and 0 not in ranks:
        words = f"{_TRAINER}/rank0.pt, which OLMo-core looks for, is missing"
        checkpoint.report("mark", "", words, _EARLIER)
    elif ranks and absent > 0:
        words = f"{absent:,} of {wanted:,} files {_TRAINER}/rankN.pt are missing"
        checkpoint.report("rng", "", words, "ranks without one resume with the random state of rank 0")
