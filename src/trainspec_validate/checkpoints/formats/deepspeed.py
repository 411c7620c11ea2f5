"""Reads the files of a DeepSpeed checkpoint: which of them exist for each rank, and their contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainspec_validate.checkpoints.formats.torch_zip import state_of
from trainspec_validate.checkpoints.limits import POINTER_BYTES
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_small
from trainspec_validate.checkpoints.paths import fault
from trainspec_validate.checkpoints.trainer_files import MARK, is_step_name, resume_state
from trainspec_validate.checkpoints.view import Checkpoint

# https://github.com/deepspeedai/DeepSpeed/blob/edaa72212/deepspeed/runtime/engine.py, _get_zero_ckpt_name and others
_OPTIMIZER = re.compile(
    r"^(?P<kind>(?:bf16_|fp16_)?zero_pp_rank)_(?P<data>[0-9]+)_mp_rank_(?P<model>[0-9]+)_optim_states\.pt$"
)
_MODEL = re.compile(r"^mp_rank_(?P<model>[0-9]+)(?:_[0-9]+)?_model_states\.pt$")
_SHARD = re.compile(r"^(?P<kind>zero_pp_rank)_(?P<data>[0-9]+)_mp_rank_(?P<model>[0-9]+)_model_states\.pt$")
# https://github.com/deepspeedai/DeepSpeed/blob/edaa72212/deepspeed/runtime/pipe/module.py, ckpt_layer_path, and
# engine.py, _get_expert_ckpt_name
_LAYER = re.compile(r"^layer_(?P<layer>[0-9]{1,6})-model_(?P<model>[0-9]{1,6})-model_states\.pt$")
_EXPERT = re.compile(
    r"^layer_(?P<layer>[0-9]{1,6})_expert_(?P<expert>[0-9]{1,6})_mp_rank_(?P<model>[0-9]{1,6})_model_states\.pt$"
)
# https://github.com/deepspeedai/DeepSpeed/blob/edaa72212/deepspeed/runtime/engine.py, load_checkpoint
_LATEST = "latest"
_TAG = re.compile(r"^global_step[0-9]+/[^/]+_states\.pt$")
"""State under the tag that the Trainer of Hugging Face leaves to DeepSpeed, and asks for by no name."""
_SCRIPT = "zero_to_fp32.py"
"""Written next to it, as is the log of the Trainer of Hugging Face."""
_ENDS = ("_model_states.pt", "_optim_states.pt")
_SHOWN = 3


def read(checkpoint: Checkpoint) -> None:
    """Add what the files of DeepSpeed say, in each directory that holds some."""
    folders = {path.rpartition("/")[0] for path in checkpoint.files if path.endswith(_ENDS)}
    _check_latest(checkpoint)
    if folders:
        checkpoint.formats.append("DeepSpeed")
    without = []
    for folder in sorted(folders):
        held = {name for parent, _, name in (path.rpartition("/") for path in checkpoint.files) if parent == folder}
        checkpoint.examined |= {"shards", "resume-state"}
        first = _first_model(checkpoint, folder, held)
        degrees = _degree(first, "dp_world_size"), _degree(first, "mp_world_size")
        for pattern in (_OPTIMIZER, _SHARD):
            _check_grid(checkpoint, folder, held, pattern, degrees)
        _check_model(checkpoint, folder, held, degrees[1])
        _check_layers(checkpoint, folder, held)
        is_apart = any(_OPTIMIZER.match(name) or "optim_states" in name for name in held)
        if first and not is_apart and first.get("optimizer") is None:  # without ZeRO it is in the file of the model
            without.append(folder)
    if without:
        _report_optimizer(checkpoint, without)


def _check_latest(checkpoint: Checkpoint) -> None:
    """The directory that `latest` names is there, which `load_checkpoint` opens; a model for use needs none."""
    path = checkpoint.files.get(_LATEST)
    has_state = any(_TAG.match(one) for one in checkpoint.files)
    if path is None and has_state and MARK in checkpoint.files and is_step_name(checkpoint.root.name):
        words = (
            f"{_LATEST}, which DeepSpeed writes after all state, is missing, and without it load_checkpoint loads none"
        )
        checkpoint.report("mark", "", words, "the save was interrupted: resume from an earlier checkpoint")
    if path is None or path.kind != "file" or not {_SCRIPT, MARK} & checkpoint.files.keys():
        return
    try:
        tag = read_small(checkpoint.root / _LATEST, POINTER_BYTES).decode("ascii").strip()
    except (LimitError, UnreadableError, UnicodeDecodeError):
        return
    if not tag.strip("\0") and has_state and MARK in checkpoint.files:
        words = f"{_LATEST} names no directory of state, and load_checkpoint loads the one that it names"
        checkpoint.report("mark", _LATEST, words, "the save was interrupted: resume from an earlier checkpoint")
    if len(tag.split()) != 1 or fault(tag) or any(one.startswith(f"{tag}/") for one in checkpoint.tree):
        return
    words = f"names {tag}, with the state of DeepSpeed, and there is no such directory"
    if is_step_name(checkpoint.root.name) or resume_state({one.split("/")[0] for one in checkpoint.files}):
        checkpoint.report("files", _LATEST, f"the file {words}", "resume from an earlier checkpoint")
    else:
        checkpoint.doubts[_LATEST] = (words, "resume from another checkpoint: here is a model for use only")


def _first_model(checkpoint: Checkpoint, folder: str, held: set[str]) -> dict[str, Any]:
    """The state of the first file of the model, which also says steps and degrees."""
    names = sorted(name for name in held if _MODEL.match(name) or _SHARD.match(name))
    if not names:
        return {}
    path = f"{folder}/{names[0]}" if folder else names[0]
    state = state_of(checkpoint, path)
    checkpoint.claim(path, state.get("global_steps"), f"{names[0]} (global_steps)")
    return state


def _degree(state: dict[str, Any], key: str) -> int:
    """A degree that the state says; 0 where it says none."""
    value = state.get(key)
    return value if type(value) is int and 0 < value <= 1_000_000 else 0


def _check_grid(
    checkpoint: Checkpoint, folder: str, held: set[str], pattern: re.Pattern[str], degrees: tuple[int, int]
) -> None:
    """There is a file for each data-parallel and each model-parallel rank."""
    matches = [match for match in map(pattern.match, sorted(held)) if match]
    if not matches:
        return
    pairs = {(int(match["data"]), int(match["model"])) for match in matches}
    data = max(degrees[0], *(pair[0] + 1 for pair in pairs))
    model = max(degrees[1], *(pair[1] + 1 for pair in pairs))
    absent = data * model - len(pairs)
    if absent > 0:
        first = ", ".join(_absent(pairs, data, model))
        kind = matches[0][0].rpartition("_mp_rank_")[2].partition("_")[2]
        words = f"{absent:,} of {data:,} x {model:,} files {matches[0]['kind']}_*_mp_rank_*_{kind} are missing: {first}"
        checkpoint.report("shards", folder, words, "resume from an earlier checkpoint: state of these ranks is lost")


def _absent(pairs: set[tuple[int, int]], data: int, model: int) -> Iterator[str]:
    num_told = 0
    for rank in range(data):
        for part in range(model):
            if (rank, part) not in pairs:
                if num_told == _SHOWN:
                    yield "…"
                    return
                num_told += 1
                yield f"rank {rank} of part {part}"


def _check_model(checkpoint: Checkpoint, folder: str, held: set[str], degree: int) -> None:
    parts = {int(match["model"]) for match in map(_MODEL.match, held) if match}
    of_optimizer = {int(match["model"]) for match in map(_OPTIMIZER.match, held) if match}
    wanted = max([degree, *(part + 1 for part in parts | of_optimizer)])
    if not any(name.endswith(_ENDS[0]) for name in held):
        words = "no file *_model_states.pt is there, without which DeepSpeed loads nothing"
        checkpoint.report("shards", folder, words, "resume from an earlier checkpoint: weights are lost")
    elif parts and len(parts) < wanted:
        words = f"{wanted - len(parts):,} of {wanted:,} files mp_rank_*_model_states.pt are missing"
        checkpoint.report("shards", folder, words, "resume from an earlier checkpoint: weights are lost")


def _check_layers(checkpoint: Checkpoint, folder: str, held: set[str]) -> None:
    """Each layer of a pipeline has all model-parallel parts, and each layer of experts all of its experts."""
    parts: dict[str, set[int]] = {}
    experts: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, map(_LAYER.match, held)):
        parts.setdefault(match["layer"], set()).add(int(match["model"]))
    for match in filter(None, map(_EXPERT.match, held)):
        experts.setdefault((match["layer"], match["model"]), set()).add(int(match["expert"]))
    num_parts = max((max(those) + 1 for those in parts.values()), default=0)
    absent = sum(num_parts - len(those) for those in parts.values())
    absent += sum(max(those) + 1 - len(those) for those in experts.values())
    if absent > 0:
        words = f"{absent:,} files layer_*_model_states.pt of parts or experts are missing, which others show"
        checkpoint.report("shards", folder, words, "resume from an earlier checkpoint: weights are lost")


def _report_optimizer(checkpoint: Checkpoint, folders: Sequence[str]) -> None:
    """Report once that there is no optimizer, in whichever directories that is."""
    words = "no state of the optimizer is there: neither *_optim_states.pt nor a part of *_model_states.pt"
    if len(folders) > 1:
        shown = ", ".join(folders[:_SHOWN]) + (", …" if len(folders) > _SHOWN else "")
        words += f", in {len(folders):,} directories: {shown}"
    place = folders[0] if len(folders) == 1 else ""
    checkpoint.report("resume-state", place, words, "resume from an earlier checkpoint")
