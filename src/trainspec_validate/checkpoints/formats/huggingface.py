"""Reads the files that the Trainer of Hugging Face leaves in `checkpoint-N`."""

from __future__ import annotations

import re

from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.view import Checkpoint

MARK = "trainer_state.json"
_NAMED = re.compile(r"^checkpoint-\d+$")
_RNG = re.compile(r"^rng_state(?:_(?P<rank>\d{1,7}))?\.pth$")
_WEIGHTS = re.compile(r"^(model|pytorch_model|adapter_model)[^/]*\.(safetensors|bin)$")
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin", "pytorch_model_fsdp_0", "optimizer_0")
_MAX_COMPARED_BYTES = 10_000_000


def read(checkpoint: Checkpoint) -> None:
    """Add what the files of the Trainer say."""
    held = {path.split("/")[0] for path in checkpoint.files}
    weights = sorted(name for name in held if _WEIGHTS.match(name))
    is_named = bool(_NAMED.match(checkpoint.root.name)) and not any(name.endswith(".distcp") for name in held)
    if MARK not in checkpoint.files and not (is_named and (weights or "optimizer.pt" in held)):
        return
    checkpoint.formats.append("Hugging Face Trainer")
    checkpoint.examined |= {"mark", "resume-state"}
    if MARK not in checkpoint.files:
        words = f"{MARK}, which the Trainer writes after the state, is missing"
        checkpoint.report("mark", "", words, "the save was interrupted: resume from an earlier checkpoint")
    else:
        checkpoint.marks.append(MARK)
        _read_state(checkpoint)
    _check_state(checkpoint, held, weights)
    _check_rng(checkpoint)


def _read_state(checkpoint: Checkpoint) -> None:
    checkpoint.examined |= {"container", "limits"}
    try:
        state = read_json(read_small(checkpoint.root / MARK))
    except LimitError as error:
        checkpoint.report("limits", MARK, f"the state {error}")
        return
    except UnreadableError as error:
        checkpoint.report("container", MARK, f"the state {error}", "resume from an earlier checkpoint")
        return
    step = state.get("global_step") if isinstance(state, dict) else None
    if not checkpoint.claim(MARK, step, f"{MARK} (global_step)"):
        checkpoint.report("container", MARK, "the state has no global_step that is a whole number from 0")


def _check_state(checkpoint: Checkpoint, held: set[str], weights: list[str]) -> None:
    # DeepSpeed keeps weights and optimizer below global_stepN, PyTorch FSDP in directories of their own.
    sharded = any(name.startswith(("global_step", "pytorch_model_fsdp", "optimizer_")) for name in held)
    if not weights and not sharded:
        checkpoint.report("resume-state", "", "no file of the model is there", "resume from an earlier checkpoint")
    if not sharded and not held.intersection(_OPTIMIZERS):
        words = "no state of the optimizer is there: optimizer.pt is missing"
        checkpoint.report("resume-state", "", words, "save it too (save_only_model: false), or do not resume from here")
    if not sharded and "scheduler.pt" not in held:
        words = "no state of the learning rate schedule is there: scheduler.pt is missing"
        checkpoint.report("resume-state", "", words, "save it too (save_only_model: false), or do not resume from here")
    if not any(_RNG.match(name) for name in held):
        words = "no state of random numbers is there: rng_state.pth or rng_state_0.pth is missing"
        checkpoint.report("resume-state", "", words, "save it too (save_only_model: false), or do not resume from here")


def _check_rng(checkpoint: Checkpoint) -> None:
    ranks = {int(m["rank"]): path for path in checkpoint.files if (m := _RNG.match(path)) and m["rank"] is not None}
    layout = checkpoint.manifest.layout if checkpoint.manifest else None
    wanted = layout.num_ranks if layout and layout.num_ranks else max(ranks, default=-1) + 1
    if not ranks or (wanted == 1 and "rng_state.pth" in checkpoint.files):
        return
    checkpoint.examined.add("rng")
    absent = wanted - sum(rank < wanted for rank in ranks)
    if absent > 0:
        words = f"{absent:,} of {wanted:,} files rng_state_N.pth are missing"
        checkpoint.report("rng", "", words, "ranks without one resume on a wrong stream of random numbers")
    small = [path for path in ranks.values() if checkpoint.files[path].size_bytes <= _MAX_COMPARED_BYTES]
    sums = digests(checkpoint.root, small)
    if len(small) > 1 and len(set(sums.values())) == 1:
        words = f"all {len(small):,} files rng_state_N.pth hold the same bytes"
        checkpoint.report("rng", "", words, "save the state of each rank, not that of one rank under every name")
