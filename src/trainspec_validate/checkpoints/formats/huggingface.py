"""Reads the files that the Trainer of Hugging Face leaves in `checkpoint-N`, and next to a model for use."""

from __future__ import annotations

from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.trainer_files import (
    MARK,
    OPTIMIZERS,
    RNG,
    SCHEDULE,
    fsdp_state,
    is_checkpoint,
    is_of_a_loop,
    is_of_accelerate,
    is_step_name,
    num_ranks,
    other_weights,
    resume_state,
    sharded_state,
    weights,
)
from trainspec_validate.checkpoints.view import Checkpoint, StepClaim, is_count

_SETTINGS = "training_args.bin"
_CONFIG = frozenset({"config.json", "adapter_config.json"})
_MOST_COMPARED = 1_000
_MAX_COMPARED_BYTES = 10_000_000


def read(checkpoint: Checkpoint) -> None:
    """Add what the files of the Trainer say."""
    held = {path.split("/")[0] for path in checkpoint.files}
    state = [path for path in checkpoint.files if path.lower().endswith(STATE_SUFFIXES)]
    if state == [_SETTINGS] and _CONFIG.intersection(held):
        checkpoint.unread[_SETTINGS] = "holds settings of the Trainer, and no file with weights is next to it"
    is_of_others = is_of_accelerate(held) or any(name.endswith(".distcp") for name in held)
    is_named = is_step_name(checkpoint.root.name) and not is_of_others
    is_whole = MARK in checkpoint.files
    if is_of_a_loop(held):
        if is_whole:
            _read_state(checkpoint, is_own=False)
        return
    if not (is_checkpoint(checkpoint.root.name, held) if is_whole else is_named and _holds_state(held)):
        return
    if not is_whole and _is_adapter_alone(checkpoint, held):
        words = "holds an adapter alone, as next to it no checkpoint has the state of a Trainer: it is for use"
        checkpoint.doubts[""] = (words, "save the optimizer too to resume from it")
        return
    checkpoint.formats.append("Hugging Face Trainer")
    if is_whole:
        _read_state(checkpoint)
    if not is_step_name(checkpoint.root.name) and not resume_state(held):
        checkpoint.is_for_use = True
        return
    checkpoint.examined |= {"mark", "resume-state"}
    if is_whole:
        checkpoint.marks.append(MARK)
    else:
        words = f"{MARK}, which the Trainer writes after the state, is missing"
        checkpoint.report("mark", "", words, "the save was interrupted: resume from an earlier checkpoint")
    _check_state(checkpoint, held)
    _check_rng(checkpoint)


def _is_adapter_alone(checkpoint: Checkpoint, held: set[str]) -> bool:
    """Whether only an adapter of PEFT was saved, as scripts do, in each checkpoint of a directory."""
    models = weights(held)
    if not models or resume_state(held) or not all(name.startswith("adapter_model") for name in models):
        return False
    beside = [path for path in checkpoint.root.parent.iterdir() if is_step_name(path.name) and path.is_dir()]
    names = [{path.name for path in each.iterdir()} for each in beside[:_MOST_COMPARED]]
    return len(beside) <= _MOST_COMPARED and not any(MARK in each or resume_state(each) for each in names)


def _holds_state(held: set[str]) -> bool:
    """Whether names are those of the Trainer; Accelerate gives those of PyTorch FSDP to its own checkpoints too."""
    is_of_fsdp = any(fsdp_state(held)) and (SCHEDULE in held or any(map(RNG.match, held)))
    return bool(weights(held)) or "optimizer.pt" in held or is_of_fsdp


def _read_state(checkpoint: Checkpoint, *, is_own: bool = True) -> None:
    """Add the step of the log; one of the loop of a program may count something else, or nothing."""
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
    words = f"{MARK} (global_step)"
    if not is_own:
        checkpoint.own_steps += [StepClaim(MARK, step, words)] if is_count(step) else []
    elif not checkpoint.claim(MARK, step, words):
        checkpoint.report("container", MARK, "the state has no global_step that is a whole number from 0")


def _check_state(checkpoint: Checkpoint, held: set[str]) -> None:
    """Report all state that is missing at once; where the directory is named by no step, with what asks for it."""
    sharded = sharded_state(held)
    models, optimizers = fsdp_state(held)
    lacks = []
    remedy = "save it too (save_only_model: false), or do not resume from here"
    if not weights(held) and not other_weights(held) and (optimizers if sharded and not models else not sharded):
        lacks.append("no file of the model is there")
        remedy = "resume from an earlier checkpoint"
    if not sharded and not held.intersection(OPTIMIZERS):
        lacks.append("no state of the optimizer is there: optimizer.pt is missing")
    elif models and not optimizers and "optimizer.pt" not in held:
        lacks.append("no state of the optimizer is there: optimizer_0 is missing")
    if (not sharded or models or optimizers) and SCHEDULE not in held:
        lacks.append(f"no state of the learning rate schedule is there: {SCHEDULE} is missing")
    if not any(RNG.match(name) for name in held):
        lacks.append("no state of random numbers is there: rng_state.pth or rng_state_0.pth is missing")
    if lacks and not is_step_name(checkpoint.root.name):
        lacks.append(f"{resume_state(held)[0]} makes the directory one to resume from")
    if lacks:
        checkpoint.report("resume-state", "", "; ".join(lacks), remedy)


def _check_rng(checkpoint: Checkpoint) -> None:
    ranks = {int(m["rank"]): path for path in checkpoint.files if (m := RNG.match(path)) and m["rank"] is not None}
    layout = checkpoint.manifest.layout if checkpoint.manifest else None
    named = max(max(ranks, default=-1) + 1, num_ranks(checkpoint.files))
    wanted = layout.num_ranks if layout and layout.num_ranks else named
    if not ranks or (wanted == 1 and "rng_state.pth" in checkpoint.files):
        return
    checkpoint.examined.add("rng")
    if wanted == 1 and checkpoint.manifest is None:
        words = "is there alone, and transformers gives the name where several processes run"
        checkpoint.doubts[ranks[0]] = (
            words,
            "look for rng_state_1.pth; older versions named that of one process so too",
        )
    absent = wanted - sum(rank < wanted for rank in ranks)
    if absent > 0:
        words = f"{absent:,} of {wanted:,} files rng_state_N.pth are missing"
        checkpoint.report("rng", "", words, "ranks without one resume on a wrong stream of random numbers")
    small = [path for path in ranks.values() if checkpoint.files[path].size_bytes <= _MAX_COMPARED_BYTES]
    sums = digests(checkpoint.root, small)
    if len(small) > 1 and len(set(sums.values())) == 1:
        words = f"all {len(small):,} files rng_state_N.pth hold the same bytes"
        checkpoint.report("rng", "", words, "save the state of each rank, not that of one rank under every name")
