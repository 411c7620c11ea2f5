"""Leaves open what the program of a Trainer's job and its launcher decide, where they are not given."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers._huggingface_training import (
    AUTOCAST,
    FP32_STORED,
    MOMENTS_STORED,
    NO_FORMAT,
    OVERLAPPED,
    is_example,
)
from trainspec_validate.interop.readers._huggingface_weights import loaded_format
from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_STARTS_RANKS = re.compile(r"torchrun|torch[._]distributed|mpirun|mpiexec|deepspeed")
"""Launchers after which the Trainer runs on several ranks without a configuration of accelerate."""
_WITHOUT_ACCELERATE = re.compile(rf"{_STARTS_RANKS.pattern}|\bpython[0-9.]{{0,6}}\b")
_PLAIN: tuple[Pointer, ...] = tuple(("precision", key) for key in ("compute", "parameters", "gradients", "reduction"))


def leave_factory_open(draft: Draft) -> None:
    """Leave open what LLaMA-Factory decides: recomputation, which has a switch of its own, and the optimizer.

    Source: hiyouga/LLaMA-Factory:src/llamafactory/model/model_utils/checkpointing.py and train/trainer_utils.py.
    """
    policy, name = ("memory", "activation_policy"), ("optimizer", "name")
    if draft.flag("disable_gradient_checkpointing") is not True and not draft.flag("gradient_checkpointing"):
        why = "LLaMA-Factory recomputes unless disable_gradient_checkpointing is true: full if the model can, else none"
        draft.drop([policy], why)
        draft.unknown[policy] = why
    if draft.get(*name) is None and not draft.reasons("optim"):
        own = "use_galore, use_apollo, use_badam, use_adam_mini, use_muon and loraplus_lr_ratio replace it"
        draft.unknown[name] = f"adamw by default of transformers; in LLaMA-Factory {own}"


def leave_loading_open(draft: Draft, program: str | None) -> None:
    """Leave open the formats of stored tensors that follow from the format in which the program loads the weights.

    An example of transformers or TRL is known to take that format from its arguments.
    """
    if is_example(program):
        return
    named = program[:60] if program else "the program, which the file does not name,"
    kept = draft.get("precision", "master_parameters") is not None
    how_stored = {FP32_STORED} if kept else {FP32_STORED, MOMENTS_STORED}
    stored = [at for at, how in draft.derived.items() if at[0] == "precision" and how in how_stored]
    draft.drop(stored, f"fp32 where {named} loads the weights in fp32; its own code decides")
    no_format = draft.derived.get(("precision", "compute"), "").startswith(NO_FORMAT)
    if no_format and loaded_format(draft)[0] != "fp32":
        plain = [at for at in _PLAIN if draft.get(*map(str, at)) is not None]
        draft.drop(plain, f"no autocast is asked for; {named} decides in which format the weights are loaded")


def leave_launch_open(draft: Draft, started: str = "") -> None:
    """Leave open what a configuration of accelerate decides, where neither it nor another launcher is given.

    `started` is what starts the program, empty where the file does not say.
    """
    if draft.get("parallelism", "sharding") is not None:
        return
    accelerate = "accelerate" in started
    why = "a configuration of accelerate, which is not given, says what runs the job"
    if not started:
        why = "what starts the job is not given: DDP, FSDP, DeepSpeed and a single process differ"
    overlap, kept = ("communication", "overlap_gradients"), ("precision", "high_precision_operations")
    if draft.derived.get(overlap) == OVERLAPPED and (accelerate or not _STARTS_RANKS.search(started)):
        alone = started and not accelerate
        draft.drop([overlap], f"{cut_to(started, 60)} starts one process, which may reduce nothing" if alone else why)
    if draft.derived.get(kept) == AUTOCAST and (accelerate or not _WITHOUT_ACCELERATE.search(started)):
        draft.drop([kept], why)
