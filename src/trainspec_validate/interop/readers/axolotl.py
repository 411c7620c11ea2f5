"""Reads configurations of axolotl, which hands most of its settings to the transformers Trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._huggingface_launch import (
    forget_launch,
    laid_over,
    leave_mismatches_open,
)
from trainspec_validate.interop.readers._huggingface_open import leave_launch_open
from trainspec_validate.interop.readers._huggingface_training import write_training
from trainspec_validate.interop.readers._huggingface_weights import STORED
from trainspec_validate.interop.readers._optimizer_plan import share_of
from trainspec_validate.interop.readers._overriding import AXOLOTL, DEEPSPEED, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, leave_offload_open, why_open
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._preference_pairs import count_pairs
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_SOURCE = "axolotl-ai-cloud/axolotl@067b021c:src/axolotl/utils/schemas"
_BUILDER = "axolotl-ai-cloud/axolotl@067b021c:src/axolotl/core/builders/base.py"
_HEAD = 256 * 1024
_BASE = re.compile(r"(?m)^base_model[ \t]*:")
_BESIDE = re.compile(r"(?m)^(?:micro_batch_size|sequence_len|num_epochs|sample_packing|adapter)[ \t]*:")
_NAMES = {
    "base_model": "model_name_or_path",
    "micro_batch_size": "per_device_train_batch_size",
    "sequence_len": "max_seq_length",
    "num_epochs": "num_train_epochs",
    "optimizer": "optim",
    "bfloat16": "pure_bf16",
    "peft_use_rslora": "use_rslora",
    "peft_use_dora": "use_dora",
}
"""Names of axolotl for arguments of the Trainer and of PEFT."""
_LINEAR = "lora_target_linear: every linear layer, which the model's code names"
_BRAIN = "deepspeed.bf16.enabled"
"""A format of DeepSpeed, with which transformers refuses a job whose device has none; `auto` is it where it starts."""
_STEPS: Pointer = ("job", "num_steps")
_USUAL = {
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "max_seq_length": 512,
    "lr_scheduler": "cosine",
}
"""Defaults that differ from those of the Trainer, or that the Trainer has none for."""


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the names of axolotl for a model and a batch or a length."""
    head = text.text[:_HEAD]
    return bool(_BASE.search(head)) and bool(_BESIDE.search(head))


def read(text: ForeignText, launch: Mapping[str, Any] | None = None) -> Fragment:
    """The plan that a configuration describes; `launch` are settings of the file of DeepSpeed that it names.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)
    written = {_NAMES.get(name, name): name for name in flatten(source.data)}
    values = {_NAMES.get(name, name): value for name, value in flatten(source.data).items()}
    if values.get("bf16") == "full":
        values["bf16"] = True
    kind = _offloading(values.get("gradient_checkpointing"))
    if kind:
        values["gradient_checkpointing"] = True

    def make(given: dict[str, Any]) -> Draft:
        adapters = [name for name in given if name.startswith("lora_") and _is_off(given.get("adapter"))]
        draft = Draft(
            {name: value for name, value in given.items() if name not in adapters}, lines_in(source, written), written
        )
        draft.used.update(adapters)
        if kind:
            draft.put(("memory", "activation_policy"), "full", f"gradient_checkpointing: {kind}")
            draft.lacks(("memory", "offload"), f"gradient_checkpointing is {kind}: the version decides what")
        _write(draft)
        return draft

    draft = settled(_with(launch, values) if launch else values, make)
    if launch:
        forget_launch(draft)
    draft.told = [(_in_words_of(written, message), place) for message, place in draft.told]
    return draft.fragment("axolotl-yaml", text)


def _with(launch: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of DeepSpeed, whose `auto` they fill in, or else the defaults of axolotl."""
    usual = {name: value for name, value in _USUAL.items() if values.get(name) is None}
    stated = {"bf16": True} if launch.get(_BRAIN) is True and values.get("bf16") in {None, "auto"} else {}
    laid = laid_over({**values, **stated, **usual, **launch})
    return {name: value for name, value in laid.items() if name not in usual}


def _offloading(value: object) -> str:
    """The word for recomputation whose inputs are kept elsewhere; empty for a truth value.

    >>> _offloading("offload_disk"), _offloading("false"), _offloading(True)
    ('offload_disk', '', '')
    """
    word = value if isinstance(value, str) and not why_open(value) else ""
    return "" if word.lower() in {"true", "false", "none"} else word[:40]


def _in_words_of(written: Mapping[str, str], message: str) -> str:
    """A remark with the name that the file has for the setting that it begins with."""
    name = re.match(r"\w+", message)
    return message if name is None else written.get(name[0], name[0]) + message[name.end() :]


def _is_off(value: object) -> bool:
    return value is None or value is False or value in ("", "none")


def _write(draft: Draft) -> None:
    _write_before(draft)
    write_training(draft)
    leave_mismatches_open(draft, None)
    count_pairs(draft, None)
    _leave_auto_open(draft)
    for name, pointer in (("tensor_parallel_size", "tensor"), ("sequence_parallel_degree", "context")):
        draft.copy(("parallelism", pointer), *(["context_parallel_size"] if pointer == "context" else []), name)
    shards, copies = draft.count("dp_shard_size"), draft.count("dp_replicate_size")
    if shards:
        draft.put(("parallelism", "data"), shards * (copies or 1), f"{shards} shards x {copies or 1} replicas")
        if copies and copies > 1:
            context = draft.counted("parallelism", "context") or 1
            how = "shards x context, over which FSDP shards"
            draft.put(("parallelism", "sharding_degree"), shards * context, how)
    if draft.flag("lora_target_linear") and draft.get("lora"):
        draft.drop([("lora", "targets")], _LINEAR)
    _write_fsdp(draft)
    leave_offload_open(draft, "activation_offloading", "layer_offloading")
    _write_weights(draft)
    _write_schedule(draft)
    if not draft.word("deepspeed"):
        leave_launch_open(draft)
    complete(draft, draft.count("world_size"), "world_size of the file")
    leave_overridden_open(draft, AXOLOTL)
    leave_overridden_open(draft, DEEPSPEED, "deepspeed.")


def _leave_auto_open(draft: Draft) -> None:
    """Leave the format open that the device decides: bf16 where it has it, else fp16."""
    if draft.look("bf16") is not None or draft.look("fp16", "float16", "pure_bf16"):
        return
    why = "bf16 is auto: the device decides"
    if not draft.reasons("bf16"):
        why = f"bf16 is auto, the default of {_SOURCE}: the device decides"
    path = draft.word("deepspeed")
    if path:
        why = f"{why}, and {cut_to(path, 120)}, which is not read, may set it"
    draft.drop([("precision", key) for key in ("compute", "parameters", "gradients", "reduction")], why)
    draft.unknown["precision", "compute"] = why


def _write_before(draft: Draft) -> None:
    """What axolotl decides before the Trainer's own defaults apply."""
    usual = Default(f"the default of {_SOURCE}")
    if draft.flag("lora_target_linear") and draft.word("adapter"):
        draft.lacks(("lora", "targets"), _LINEAR)
    if draft.look("batch_size") is not None:
        draft.lacks(("batch", "accumulation_steps"), "batch_size of all ranks decides it")
    for pointer, name in (
        (("batch", "micro_sequences"), "per_device_train_batch_size"),
        (("batch", "accumulation_steps"), "gradient_accumulation_steps"),
        (("model", "sequence_length"), "max_seq_length"),
    ):
        if draft.values.get(name) is None:
            draft.default(pointer, _USUAL[name], usual)
    if draft.look("selective_checkpointing") not in (None, False):
        draft.put(("memory", "activation_policy"), "selective", "selective_checkpointing")
    for name in ("adapter", "load_in_8bit", "load_in_4bit"):
        draft.look(name)
    for name in ("unfrozen_parameters", "freeze_mm_modules", "lora_modules_to_save"):
        if draft.look(name) not in (None, False, "", []):
            draft.lacks(("num_parameters_trained",), f"{name} says which parts of the model are trained")


def _fsdp(name: str) -> tuple[str, str]:
    """A setting of FSDP in the names of both versions."""
    return f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}"


def _write_fsdp(draft: Draft) -> None:
    """Offload and recomputation of FSDP, and the sharding of FSDP 2, which has a section and no list of words."""
    if not any(name.startswith("fsdp_config.") for name in draft.values):
        return
    if draft.flag(*_fsdp("offload_params")):
        parts = ("parameters", "gradients", "optimizer")
        entries = [{"what": what, "target": "host", "fraction": 1.0} for what in parts]
        draft.put_records(("memory", "offload"), entries, "offload_params: all three, as FSDP steps on the host")
    if draft.flag(*_fsdp("activation_checkpointing")):
        draft.put(("memory", "activation_policy"), "full", "activation_checkpointing of FSDP")
    if draft.get("parallelism", "sharding") is not None:
        return
    stated = draft.flag(*_fsdp("reshard_after_forward"))
    if draft.count("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version") == 2:
        how = "reshard_after_forward" if stated is not None else Default("FSDP 2 reshards after forward by default")
        draft.put(("parallelism", "sharding"), "gradients" if stated is False else "parameters", how)
    else:
        draft.lacks(("parallelism", "sharding"), "fsdp_config without a list of words or fsdp_version: 2")


def _write_weights(draft: Draft) -> None:
    """Formats of stored tensors: axolotl loads weights in the compute format, and what is kept beside depends."""
    half = draft.get("precision", "compute") in {"bf16", "fp16"}
    if half and not draft.word("deepspeed"):
        why = "axolotl loads weights in the compute format; FSDP, DDP and the launcher differ in what is kept in fp32"
        kept = {"optimizer_state"} if draft.get("precision", "optimizer_state") == "int8" else set()
        draft.drop([("precision", key) for key in STORED if key not in kept], why)
    if draft.flag("fp8"):
        draft.lacks(("precision", "recipe"), "fp8 of torchao, whose recipe the version decides")


def _write_schedule(draft: Draft) -> None:
    rate = ("optimizer", "learning_rate")
    if draft.get(*rate, "peak") is None:
        return
    if draft.look("lr_scheduler") is None and not draft.reasons("lr_scheduler"):
        draft.put((*rate, "kind"), _USUAL["lr_scheduler"], Default(f"the default of {_SOURCE}"))
    share, kind = draft.number("cosine_min_lr_ratio"), draft.get(*rate, "kind")
    if share is not None and kind == "cosine":
        draft.put((*rate, "final"), share_of(share, float(draft.get(*rate, "peak"))), "a share of the peak")
    steps = draft.counted("job", "num_steps")
    if draft.word("lr_scheduler", "lr_scheduler_type") == "constant":
        return
    _write_warmup(draft, (*rate, "warmup_steps"), steps)


def _write_warmup(draft: Draft, place: Pointer, steps: int | None) -> None:
    """Steps of warm-up, of which axolotl rounds a share down and makes 2 of 1."""
    if draft.reasons("warmup_steps", "warmup_ratio"):
        return
    ratio = draft.number("warmup_ratio")
    if draft.look("warmup_steps") is not None:
        if draft.get(*map(str, place)) == 1:
            draft.put(place, 2, f"warmup_steps 1, of which {_BUILDER} makes 2")
    elif ratio is not None:
        if steps:
            draft.follow(
                place, _warmup(ratio * steps), f"{ratio:g} of {steps} steps, rounded down ({_BUILDER})", _STEPS
            )
    elif steps:
        usual = f"0.03 of {steps} steps, at most 100, the default of {_BUILDER}"
        draft.default(place, _warmup(min(0.03 * steps, 100)), usual, _STEPS)
    else:
        draft.lacks(place, f"0.03 of the steps, at most 100, the default of {_BUILDER}")


def _warmup(steps: float) -> int:
    """Steps that a share gives: 1 counts as 2.

    >>> _warmup(49.9), _warmup(1.2), _warmup(0.4)
    (49, 2, 0)
    """
    return 2 if int(steps) == 1 else int(steps)


FORMATS = (Format("axolotl-yaml", "configuration of axolotl", "TrainingPlan", looks_like, read),)
