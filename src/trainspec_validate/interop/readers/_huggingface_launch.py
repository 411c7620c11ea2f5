"""Lays settings of accelerate and DeepSpeed, which are in files of their own, over arguments of the Trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.readers._accelerate_plan import write_accelerate
from trainspec_validate.interop.readers._huggingface_training import is_example
from trainspec_validate.interop.readers._huggingface_weights import STORED
from trainspec_validate.interop.readers._launched_ranks import LAUNCHER
from trainspec_validate.interop.readers._plan_parts import Draft, is_count, shown, word_value
from trainspec_validate.interop.readers._shell_choices import has_marks
from trainspec_validate.interop.readers._shell_found import PROGRAM, Option
from trainspec_validate.interop.readers._shell_options import Started
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

ACCELERATE, DEEPSPEED = "accelerate.", "deepspeed."
"""Before the names of settings that come from such a file."""
_INLINE = f"{ACCELERATE}deepspeed_config."
_AUTO = ("bf16.enabled", "fp16.enabled", "train_micro_batch_size_per_gpu")
_FROM_INLINE = {
    "zero_optimization.stage": ("zero_stage", 2),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", "auto"),
    "gradient_clipping": ("gradient_clipping", "auto"),
    "zero_optimization.offload_optimizer.device": ("offload_optimizer_device", None),
    "zero_optimization.offload_param.device": ("offload_param_device", None),
}
"""Settings of DeepSpeed, with the ones of accelerate that they are made of and accelerate's defaults."""
_FILLED = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "scheduler.params.warmup_num_steps": "warmup_steps",
    "fp16.enabled": "fp16",
    "bf16.enabled": "bf16",
}
"""Settings of DeepSpeed that the Trainer fills in where they say `auto` (transformers/integrations/deepspeed.py)."""
_LAUNCHED: tuple[Pointer, ...] = (
    *(("parallelism", key) for key in ("sharding", "sharding_degree", "tensor", "context", "pipeline", "data")),
    ("communication", "overlap_parameters"),
    ("memory", "activation_policy"),
)
"""What a configuration of accelerate decides for a job of the Trainer."""
_FORMAT = "ACCELERATE_MIXED_PRECISION"
_FSDP = (
    *("sharding_strategy", "offload_params", "version", "reshard_after_forward", "backward_prefetch"),
    *("activation_checkpointing",),
)
_OVERRIDING = re.compile(r"fsdp_\w+|zero_stage|offload_(?:optimizer|param)_device|deepspeed_config_file|num_machines")
"""Options of `accelerate launch` that go before its configuration and that no program has beside them."""
_FILLING = frozenset({*_FILLED.values(), "mixed_precision"})
"""Arguments of which another file's settings have taken the value."""
_USUAL = {
    "max_grad_norm": 1.0,
    "gradient_accumulation_steps": 1,
    "learning_rate": 5e-5,
    "per_device_train_batch_size": 8,
}
_MATCHED: dict[str, tuple[str, tuple[Pointer, ...]]] = {
    "train_micro_batch_size_per_gpu": ("per_device_train_batch_size", (("batch", "micro_sequences"),)),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", (("batch", "accumulation_steps"),)),
    "gradient_clipping": ("max_grad_norm", (("optimizer", "clipping"),)),
    "optimizer.params.lr": ("learning_rate", (("optimizer", "learning_rate", "peak"),)),
    "bf16.enabled": ("bf16", tuple(("precision", key) for key in ("compute", *STORED))),
    "fp16.enabled": ("fp16", tuple(("precision", key) for key in ("compute", *STORED))),
}
"""Settings that transformers refuses where an argument of the Trainer says otherwise, and what follows from them."""


_VARIABLES = {
    **{f"FSDP_{name.upper()}": f"fsdp_config.fsdp_{name}" for name in _FSDP},
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "deepspeed_config.zero_stage",
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": "deepspeed_config.deepspeed_config_file",
    "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "deepspeed_config.offload_optimizer_device",
    "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "deepspeed_config.offload_param_device",
    "ACCELERATE_GRADIENT_CLIPPING": "deepspeed_config.gradient_clipping",
    "ACCELERATE_MIXED_PRECISION": "mixed_precision",
}
"""Variables that accelerate reads where its launcher has not set them (accelerate 1.15.0, utils/dataclasses.py)."""
_KINDS = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DEEPSPEED"}


def launch_variables(values: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Settings of accelerate that a script sets as variables; a configuration that is named goes before them.

    >>> launch_variables({}, {"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "SHARD_GRAD_OP"})
    {'accelerate.distributed_type': 'FSDP', 'accelerate.fsdp_config.fsdp_sharding_strategy': 'SHARD_GRAD_OP'}
    """
    if values.get("config_file") is not None:
        return {}
    started = "accelerate" in str(values.get(LAUNCHER))
    asked = [kind for name, kind in _KINDS.items() if variables.get(name, "").lower() not in {"", "false", "0", "no"}]
    found: dict[str, Any] = {f"{ACCELERATE}distributed_type": asked[0]} if len(asked) == 1 else {}
    for name, setting in _VARIABLES.items():
        # The launcher of accelerate sets the format anew.
        if name in variables and (asked or name == _FORMAT) and not (started and name == _FORMAT):
            text = variables[name]
            found[f"{ACCELERATE}{setting}"] = word_value(text) if not has_marks(text) else f"${{{name}}}"
    return found


_OPTIONS = {
    **{f"fsdp_{name}": f"fsdp_config.fsdp_{name}" for name in _FSDP},
    **{name: f"deepspeed_config.{name}" for name in ("zero_stage", "deepspeed_config_file", "gradient_clipping")},
    **{f"offload_{part}_device": f"deepspeed_config.offload_{part}_device" for part in ("optimizer", "param")},
    "mixed_precision": "mixed_precision",
}
"""Options of `accelerate launch` by the settings of its configuration that they stand for."""
_ASKED = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU"}


def launch_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of accelerate that the command gives its launcher in place of a configuration.

    >>> launch_options({"$launcher": "accelerate launch", "use_fsdp": True, "fsdp_sharding_strategy": "FULL_SHARD"})
    {'accelerate.distributed_type': 'FSDP', 'accelerate.fsdp_config.fsdp_sharding_strategy': 'FULL_SHARD'}
    """
    asked = [kind for name, kind in _ASKED.items() if values.get(name) is True]
    kinds = [kind for kind in asked if kind != "MULTI_GPU"] or asked
    if values.get("config_file") is not None or "accelerate" not in str(values.get(LAUNCHER)) or len(kinds) != 1:
        return {}
    found = {f"{ACCELERATE}{setting}": values[name] for name, setting in _OPTIONS.items() if name in values}
    return {f"{ACCELERATE}distributed_type": kinds[0], **found}


def carried(launch: Mapping[str, Any], values: Mapping[str, Any]) -> set[str]:
    """Variables of which every value went into settings."""
    known = {f"{ACCELERATE}{setting}": name for name, setting in _VARIABLES.items()}
    kind = launch.get(f"{ACCELERATE}distributed_type")
    return {known[name] for name in launch if name in known and name in values} | {
        name for name, word in _KINDS.items() if word == kind
    }


def laid_over(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the Trainer, with a DeepSpeed configuration for one inside accelerate's, and `auto` filled in.

    >>> laid_over({"bf16": True, "deepspeed.bf16.enabled": "auto"})["deepspeed.bf16.enabled"]
    True
    """
    found = dict(values)
    for name in [name for name in found if name.startswith(ACCELERATE)]:
        own = name.rpartition(".")[2]
        if _OVERRIDING.fullmatch(own) and found.get(own) is not None:
            found[name] = found[own]
    if uses_deepspeed(found) and not embeds_deepspeed(found) and f"{_INLINE}deepspeed_config_file" not in found:
        found |= {f"{DEEPSPEED}{name}": "auto" for name in _AUTO}
        for name, (own, usual) in _FROM_INLINE.items():
            found[f"{DEEPSPEED}{name}"] = found.get(f"{_INLINE}{own}", usual)
    half = found.get(f"{ACCELERATE}mixed_precision")
    if half is not None:
        found.setdefault("mixed_precision", "no" if half is False else half)
    if found.get(f"{DEEPSPEED}train_batch_size") == "auto":
        found[f"{DEEPSPEED}train_batch_size"] = None  # filled in with ranks x micro-batch x accumulation steps
    for setting, argument in _FILLED.items():
        name = f"{DEEPSPEED}{setting}"
        if found.get(name) == "auto":
            found[name] = _filled(found, argument)
    return found


def _filled(found: Mapping[str, Any], argument: str) -> Any:
    value = found.get(argument)
    if value is not None:
        return value
    if argument in {"bf16", "fp16"} and not _switched(found) and _has_unknown_program(found):
        return "auto"
    if argument in {"bf16", "fp16"}:
        # With a format of accelerate and neither switch of the Trainer transformers finds that the two do not match.
        return "auto" if found.get("mixed_precision") in {"bf16", "fp16"} and not _switched(found) else False
    return "auto" if _has_unknown_program(found) else _USUAL.get(argument, "auto")


def _has_unknown_program(found: Mapping[str, Any]) -> bool:
    """Whether a script starts a program that may have defaults of its own."""
    program = found.get(PROGRAM)
    return program is not None and not (isinstance(program, str) and is_example(program))


def _switched(found: Mapping[str, Any]) -> bool:
    return bool(found.get("bf16") or found.get("fp16"))


def uses_deepspeed(values: Mapping[str, Any]) -> bool:
    """Whether a configuration of accelerate starts DeepSpeed."""
    return str(values.get(f"{ACCELERATE}distributed_type")).upper() == "DEEPSPEED"


def embeds_deepspeed(values: Mapping[str, Any]) -> bool:
    """Whether settings of DeepSpeed are among the values."""
    return any(name.startswith(DEEPSPEED) for name in values)


def put_launched(draft: Draft) -> Any:
    """Sharding and offload by a configuration of accelerate; the sharding of FSDP or ZeRO, if it has one."""
    inner = {n.removeprefix(ACCELERATE): value for n, value in draft.values.items() if n.startswith(ACCELERATE)}
    if not inner:
        return None
    draft.used.update(name for name in draft.values if name.startswith((ACCELERATE, DEEPSPEED)))
    draft.used.add("mixed_precision")
    launched = Draft(inner)
    write_accelerate(launched)
    own = _asked_by_program(draft)
    if own and launched.get("parallelism", "sharding") == "none":
        launched.drop([("parallelism", "sharding")], own)
        draft.unknown["parallelism", "sharding"] = own
    for place in _LAUNCHED:
        if (value := launched.get(*map(str, place))) is not None:
            draft.put(place, value, launched.derived.get(place, ""))
        elif place in launched.unknown:
            draft.lacks(place, launched.unknown[place])
    if offload := launched.get("memory", "offload"):
        draft.put_records(("memory", "offload"), offload, launched.derived.get(("memory", "offload"), ""))
    sharded = str(inner.get("distributed_type")).upper() in {"FSDP", "DEEPSPEED"}
    return launched.get("parallelism", "sharding") if sharded else None


def _asked_by_program(draft: Draft) -> str:
    """Why the program shards whatever its launcher says: arguments of its own ask for it; empty where none does."""
    for name in ("deepspeed", "fsdp"):
        asked = draft.values.get(name)
        if asked not in (None, False, "", [], {}):
            what = f" {cut_to(asked, 120)}" if isinstance(asked, str) else ""
            return f"{name}{what} of the program goes before the launcher, and what it asks for is not read here"
    return ""


def launched_ranks(draft: Draft, world: int | None, source: str) -> tuple[int | None, str]:
    """Ranks of a job that accelerate may start: its configuration counts where the command gives no number."""
    configured = draft.values.get(f"{ACCELERATE}num_processes")
    if world is not None or configured is None:
        return world, source
    if draft.values.get("num_processes") is None:
        found = draft.count(f"{ACCELERATE}num_processes")
        return found, "num_processes of the configuration of accelerate"
    draft.look("num_processes")
    why = next(iter(draft.reasons("num_processes")), "its value is no number")
    shown_default = configured if is_count(configured) else "the value"
    told = f"num_processes of the command goes before {shown_default} of the configuration of accelerate: {why}"
    draft.lacks(("parallelism", "num_accelerators"), told)
    return None, ""


def leave_mismatches_open(draft: Draft, launched: Any) -> None:
    """Leave open what the Trainer and accelerate or DeepSpeed say differently."""
    sharding = draft.get("parallelism", "sharding")
    if launched is not None and sharding is not None and sharding != launched:
        why = f"{sharding} by the arguments of the Trainer, {launched} by the configuration of accelerate"
        draft.drop([("parallelism", "sharding"), *(("precision", key) for key in STORED)], why)
    for setting, argument in _FILLED.items():
        name, value = f"{DEEPSPEED}{setting}", draft.values.get(argument)
        if name in draft.used and value is not None and draft.values.get(name) == value:
            draft.used.add(argument)  # its value was filled in
    for name, (argument, places) in _MATCHED.items():
        inner, outer = draft.values.get(f"{DEEPSPEED}{name}"), draft.values.get(argument)
        plain = all(isinstance(value, bool | int | float) for value in (inner, outer))
        if plain and inner != outer:
            told = f"{argument} is {shown(outer)} and {name} of DeepSpeed is {shown(inner)}"
            draft.used.add(argument)
            draft.drop(places, f"{told}, which transformers refuses")
            draft.remark(f"{told}; transformers refuses to start such a job", argument)


def forget_launch(draft: Draft) -> None:
    """Say nothing of settings of other files, of which the fragments of those files speak."""
    marks = (ACCELERATE, DEEPSPEED)
    if any(name.startswith(marks) for name in draft.values):
        draft.idle = [name for name in draft.idle if name not in _FILLING and not name.startswith(marks)]
        draft.unfit = {name for name in draft.unfit if not name.startswith(marks)}
        draft.told = [entry for entry in draft.told if not str(entry[1]).startswith(marks)]


def leave_loaded_open(draft: Draft) -> None:
    """Leave open how weights loaded in 16 bits are stored where nothing says what runs the job.

    DDP keeps them so; FSDP of accelerate and DeepSpeed make a copy in fp32 on which the optimizer steps.
    """
    stored = draft.get("precision", "optimizer_state")
    known = draft.get("parallelism", "sharding") or draft.get("precision", "master_parameters")
    if known or stored not in {"bf16", "fp16"} or draft.get("precision", "compute") == "fp32":
        return
    why = f"{stored} with DDP, fp32 for the copy and its moments with FSDP or DeepSpeed; how the job starts decides"
    draft.drop([("precision", key) for key in STORED], why)


def add_launch_variables(started: Started) -> None:
    """The processes of a node and the nodes, which ms-swift takes from the environment and hands to torchrun."""
    variables, places = started.script.variables, started.script.places
    if "NPROC_PER_NODE" not in variables:
        return
    for name, option in (("NPROC_PER_NODE", "nproc_per_node"), ("NNODES", "nnodes")):
        text = variables.get(name, "1")
        value = word_value(text) if not has_marks(text) else f"${{{name}}}"
        started.options.setdefault(option, Option(value, places.get(name, 0)))
