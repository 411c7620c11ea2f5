"""Reads files of Hugging Face: model configurations, Trainer arguments and accelerate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._abbreviations import complete_options, tell_completed
from trainspec_validate.interop.readers._accelerate_plan import put_context, write_accelerate
from trainspec_validate.interop.readers._composed import leave_composed_open
from trainspec_validate.interop.readers._foreign_splits import (
    leave_micro_batch_open,
    leave_split_reduction_open,
    leave_splits_open,
)
from trainspec_validate.interop.readers._huggingface_launch import (
    ACCELERATE,
    DEEPSPEED,
    add_launch_variables,
    carried,
    forget_launch,
    laid_over,
    launch_options,
    launch_variables,
    launched_ranks,
    leave_loaded_open,
    leave_mismatches_open,
    put_launched,
)
from trainspec_validate.interop.readers._huggingface_model import write_model
from trainspec_validate.interop.readers._huggingface_open import (
    leave_factory_open,
    leave_launch_open,
    leave_loading_open,
)
from trainspec_validate.interop.readers._huggingface_training import (
    WITHOUT_TRAINER,
    drop_unknown_program,
    is_example,
    leave_groups_open,
    leave_unstated_open,
    put_section_sharding,
    write_training,
)
from trainspec_validate.interop.readers._huggingface_weights import is_factory, leave_adapters_open, leave_trl_open
from trainspec_validate.interop.readers._launched_ranks import LAUNCHER, launched, started_ranks
from trainspec_validate.interop.readers._optimizer_plan import put_lora
from trainspec_validate.interop.readers._overriding import ACCELERATE as ACCELERATED
from trainspec_validate.interop.readers._overriding import DEEPSPEED as CONFIGURED
from trainspec_validate.interop.readers._overriding import TRAINER, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete, keep_model
from trainspec_validate.interop.readers._plan_parts import Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, top_keys
from trainspec_validate.interop.readers._preference_pairs import count_pairs
from trainspec_validate.interop.readers._setting_places import place_of
from trainspec_validate.interop.readers._shell_documents import written_mapping
from trainspec_validate.interop.readers._shell_found import COMMAND, PROGRAM
from trainspec_validate.interop.readers._shell_options import Started, options_of_script
from trainspec_validate.interop.readers._shell_unread import leave_configuration_open
from trainspec_validate.interop.readers._training_programs import PADDLE, ROLL
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_HEAD = 256 * 1024
_KINDS = frozenset({"model_type", "ssm_cfg", "text_config"})
"""Keys at the top of a model's configuration; other programs keep such a configuration inside their own."""
_SHAPE = re.compile(r'"(?:hidden_size|n_embd|d_model|num_hidden_layers|n_layer)"\s*:')
_TRAINER = re.compile(r'(?m)^[ \t{]*"?(?:per_device_train_batch_size|per_gpu_train_batch_size)"?[ \t]*:')
_BATCHES = frozenset({"per_device_train_batch_size", "per_gpu_train_batch_size"})
_MODELS = frozenset({"model_name_or_path", "model_name", "model_path"})
_OPTION = re.compile(r"""--per_device_train_batch_size["']?[\s=,]""")
_FORMATS = frozenset({"bf16", "fp16", "torch_dtype", "dtype", "mixed_precision", "pure_bf16"})
"""Settings that name a format; without one of them the configuration of accelerate decides."""
_SWIFT = re.compile(r"\bswift(?:/cli/|[ \t]+)(?:sft|pt|rlhf|main)\b|\bmegatron[ \t]+(?:sft|pt|rlhf)\b")
"""Commands of ms-swift, which takes arguments of the Trainer with other defaults."""
_NAMED = re.compile(r"(?:accelerate|deepspeed|ds|fsdp)_config(?:_(?:file|path|name))?|(?:accelerate|deepspeed)_file")
"""Arguments that name a file of accelerate, DeepSpeed or FSDP; `deepspeed` and `fsdp` are the Trainer's own."""
_PADDLE, _ROLL = re.compile(PADDLE), re.compile(ROLL)
_ACCELERATE = re.compile(r'(?m)^[ \t]*"?(?:distributed_type|compute_environment)"?[ \t]*:')
_CONTESTED: tuple[Pointer, ...] = (
    *(("batch", key) for key in ("micro_sequences", "accumulation_steps", "global_sequences")),
    *(("optimizer", "learning_rate", key) for key in ("peak", "kind", "warmup_steps", "final")),
    *(("optimizer", "name"), ("optimizer", "clipping", "kind"), ("optimizer", "clipping", "threshold")),
)
"""What each section of a configuration with several trainings may state."""
_INSIDE = "text_config."
"""Where models that also see or hear keep the shape of their language model."""


def looks_like_model(text: ForeignText) -> bool:
    """Whether a text is a `config.json` of a model."""
    head = text.text[:_HEAD]
    return head.lstrip()[:1] == "{" and bool(_SHAPE.search(head)) and bool(top_keys(head) & _KINDS)


def looks_like_trainer(text: ForeignText) -> bool:
    """Whether a text holds arguments of the Trainer: YAML, JSON or a launch script."""
    head = text.text[:_HEAD]
    brace = head.lstrip()[:1] == "{"
    found = top_keys(head) & _BATCHES if brace else _TRAINER.search(head) or _OPTION.search(head)
    others = any(mark.search(head) for mark in (_ACCELERATE, _PADDLE, _ROLL))
    return bool(found) and not others and not looks_like_model(text)


def looks_like_accelerate(text: ForeignText) -> bool:
    """Whether a text is a configuration of accelerate."""
    return bool(_ACCELERATE.search(text.text[:_HEAD]))


def read_model(text: ForeignText) -> Fragment:
    """The model that a `config.json` describes.

    Raises:
        ForeignFormatError: it is no JSON object, or describes no model.
    """
    source = load_mapping(text)
    flat = flatten(source.data)
    prefix = _INSIDE if "num_hidden_layers" not in flat and f"{_INSIDE}num_hidden_layers" in flat else ""
    draft = Draft(flat, lines_in(source))
    write_model(draft, prefix)
    if draft.get("model", "hidden_size") is None and draft.get("model", "num_layers") is None:
        raise ForeignFormatError("the file gives no width and no layers", 1, "name the config.json of a language model")
    if prefix:
        draft.remark("only the language model of several parts is read")
    keep_model(draft)
    return draft.fragment("huggingface-model-config", text)


def read_trainer(text: ForeignText, launch: Mapping[str, Any] | None = None) -> Fragment:
    """The plan that arguments of the Trainer describe, with the DeepSpeed configuration that they may hold.

    `launch` are settings of accelerate and DeepSpeed that other files give for the same job.

    Raises:
        ForeignFormatError: it is neither a mapping nor a script with such arguments.
    """
    script = bool(_OPTION.search(text.text[:_HEAD]))
    draft = (_of_script if script else _of_file)(text, launch or {})
    forget_launch(draft)
    return draft.fragment("huggingface-trainer-arguments", text)


def _of_script(text: ForeignText, launch: Mapping[str, Any]) -> Draft:
    started = options_of_script(text.text, _OPTION, 1)
    if started is None:
        raise ForeignFormatError("no command has arguments of the Trainer", help="give the launch script")
    shortened = complete_options(started)
    swift = bool(_SWIFT.search(text.text))
    if swift:
        add_launch_variables(started)
    launch = launch or _written(started, text.text) or launch_options(started.values)
    launch = launch or launch_variables(started.values, started.script.variables)

    def make(values: dict[str, Any]) -> Draft:
        draft = started.draft(values)
        draft.carried.update(carried(launch, draft.values))
        _trained(draft, *started_ranks(draft, text.text), swift=swift)
        leave_configuration_open(draft, ("config_file",))
        _leave_launcher_open(draft, launch)
        drop_unknown_program(draft, draft.word(PROGRAM))
        leave_unstated_open(draft, draft.word(PROGRAM))
        leave_loading_open(draft, draft.word(PROGRAM))
        launcher = started.values.get(LAUNCHER)
        leave_launch_open(draft, launcher if isinstance(launcher, str) else str(draft.values.get(LAUNCHER)))
        leave_split_reduction_open(draft)
        return draft

    draft = settled(laid_over({**started.values, **launch}) if launch else started.values, make)
    _tell_idle(draft)
    tell_completed(draft, shortened)
    started.tell(draft)
    return draft


def _tell_idle(draft: Draft) -> None:
    """A remark on arguments by which a program of the Trainer trains nothing."""
    if draft.values.get("do_train") in {False, "False", "false"}:
        draft.remark("do_train is false: a program of the Trainer then evaluates or prepares data", "do_train")


def _written(started: Started, text: str) -> dict[str, Any]:
    """Settings of the configurations of DeepSpeed and accelerate that the script writes before it names them."""

    def settings(mark: str, name: object) -> dict[str, Any]:
        found = written_mapping(started.script, text, name) if isinstance(name, str) else {}
        return {f"{mark}{key}": value for key, value in found.items()}

    found = settings(ACCELERATE, started.values.get("config_file"))
    inner = found.get(f"{ACCELERATE}deepspeed_config.deepspeed_config_file")
    return found | settings(DEEPSPEED, started.values.get("deepspeed", inner))


def _of_file(text: ForeignText, launch: Mapping[str, Any]) -> Draft:
    loaded = load_mapping(text)
    flat, section = _unnested(flatten(loaded.data))
    written = dict(zip(flat, flatten(loaded.data), strict=True))

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(loaded, written), written)
        _trained(draft, draft.count("world_size", "num_processes"), "world_size of the arguments")
        if section:
            drop_unknown_program(draft, f"the reader of the section {section}", own=True)
            _leave_stated_twice_open(draft)
            put_section_sharding(draft)
        if not _FORMATS & draft.values.keys():
            leave_groups_open(draft, "a configuration of accelerate", frozenset({"precision"}))
        _leave_named_open(draft, launch)
        leave_loaded_open(draft)
        if not section and WITHOUT_TRAINER & draft.values.keys():
            drop_unknown_program(draft, None)
        leave_loading_open(draft, None)
        leave_launch_open(draft)
        leave_split_reduction_open(draft)
        leave_composed_open(draft)
        return draft

    return settled(laid_over({**flat, **launch}), make)


def _leave_stated_twice_open(draft: Draft) -> None:
    """Leave open what another section of a program's own configuration states as well."""
    for name, value in draft.values.items():
        place = tuple((place_of(name) or "").split(".")) if "." in name and value is not None else ()
        if place and place[0] in {"batch", "optimizer"}:
            stated = [at for at in [*_CONTESTED] if tuple(map(str, at))[: len(place)] == place]
            told = f"{name.lstrip('.')} states it as well, and the program decides"
            draft.drop([at for at in stated if draft.get(*map(str, at)) is not None], told)


def _unnested(flat: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Settings with the arguments of the Trainer at the top, and the section that a program of its own has them in.

    >>> _unnested({"training.per_device_train_batch_size": 2, "lora.r": 8})
    ({'per_device_train_batch_size': 2, 'lora.r': 8}, 'training')
    """
    found = {name.rpartition(".")[0] for name in flat if name.rpartition(".")[2] in _BATCHES}
    if len(found) != 1 or "" in found:
        return flat, ""
    [section] = found
    # Other settings at the top are those of the program, and mean what it makes of them.
    kept = {name: name if "." in name or name in _MODELS else f".{name}" for name in flat}
    short = {name: kept[name].removeprefix(f"{section}.") for name in flat}
    if len(set(short.values())) < len(flat):
        return flat, ""
    return {short[name]: value for name, value in flat.items()}, section


def _leave_named_open(draft: Draft, launch: Mapping[str, Any]) -> None:
    """What a file of accelerate, DeepSpeed or FSDP may set that an argument names."""
    for name, value in draft.values.items():
        if name.partition("_")[0] in {mark.partition(".")[0] for mark in launch}:
            continue
        if _NAMED.fullmatch(name) and isinstance(value, str) and value and name not in draft.used:
            draft.used.add(name)
            # A file of accelerate is YAML; settings of FSDP alone, for the Trainer, fit no format.
            alone = name.startswith("fsdp") and not value.endswith((".yaml", ".yml"))
            way = ", and settings of FSDP alone fit no format" if alone else ": import it as well"
            draft.remark(f"{name} names the file {cut_to(value, 120)}, which is not read{way}", name)
            leave_groups_open(draft, value)


def _leave_launcher_open(draft: Draft, launch: Mapping[str, Any]) -> None:
    """What files of accelerate and DeepSpeed may set that the command names."""
    file = draft.word("config_file")
    if any(name.startswith(ACCELERATE) for name in launch):
        _leave_named_open(draft, launch)
        formats = _FORMATS | {f"{ACCELERATE}mixed_precision"}
        if "accelerate" in (draft.word(LAUNCHER) or "") and not file and not formats & draft.values.keys():
            leave_groups_open(draft, "a configuration of accelerate", frozenset({"precision"}))
        return
    if "accelerate" in (draft.word(LAUNCHER) or ""):
        leave_loaded_open(draft)
    if file and "accelerate" in (draft.word(LAUNCHER) or ""):
        told = f"config_file names the file {cut_to(file, 120)}, which is not read: import it as well"
        draft.remark(told, "config_file")
        leave_groups_open(draft, file)
    elif "accelerate" in (draft.word(LAUNCHER) or "") and not _FORMATS & draft.values.keys():
        leave_groups_open(draft, "a configuration of accelerate", frozenset({"precision"}))
    _leave_named_open(draft, launch)


def _trained(draft: Draft, world: int | None, source: str, *, swift: bool = False) -> Draft:
    configured = put_launched(draft)
    world, source = launched_ranks(draft, world, source)
    write_training(draft)
    leave_mismatches_open(draft, configured)
    draft.copy(("parallelism", "tensor"), "parallelism_config.tp_size")
    put_context(draft, "parallelism_config.")
    leave_splits_open(draft)
    leave_micro_batch_open(draft)
    program = draft.word(PROGRAM) if PROGRAM in draft.values else None
    count_pairs(draft, program or draft.word(COMMAND))
    outer = draft.count("parallelism_config.dp_replicate_size")
    inner = draft.count("parallelism_config.dp_shard_size")
    if outer and inner:
        draft.put(("parallelism", "data"), outer * inner, f"{outer} replicas x {inner} shards")
    complete(draft, world, source)
    if PROGRAM not in draft.values or is_example(program):
        # A program of its own has defaults of its own, whatever its arguments are called.
        leave_trl_open(draft, program)
    if swift:
        _name_swift_model(draft)
    if swift or is_factory(draft):
        owner = "ms-swift" if swift else "LLaMA-Factory"
        draft.drop_defaults(f"{owner} has defaults of its own", launched(draft))
        leave_adapters_open(draft, owner)
    if is_factory(draft) and not swift:
        leave_factory_open(draft)
    for table, prefix in ((TRAINER, ""), (ACCELERATED, ACCELERATE), (CONFIGURED, DEEPSPEED)):
        leave_overridden_open(draft, table, prefix)
    return draft


def _name_swift_model(draft: Draft) -> None:
    """The model of a command of ms-swift, whose `model_name` is what the model says of itself."""
    place, name = ("model", "name"), draft.word("model", "model_id_or_path")
    if draft.values.get("model_name") is not None:
        draft.drop([place], "model_name of ms-swift is no name of the model that is trained")
    if name and name_of(name):
        draft.put(place, name_of(name), "" if name_of(name) == name else f"made of {name[:120]!r}")


def read_accelerate(text: ForeignText) -> Fragment:
    """The ranks, degrees, formats and sharding that a configuration of accelerate describes.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        complete(draft, write_accelerate(draft), "num_processes")
        leave_loading_open(draft, None)
        leave_overridden_open(draft, ACCELERATED)
        return draft

    draft = settled(flatten(source.data), make)
    return draft.fragment("huggingface-accelerate", text)


def looks_like_adapter(text: ForeignText) -> bool:
    """Whether a text is an `adapter_config.json` of PEFT."""
    return "peft_type" in top_keys(text.text[:_HEAD])


def read_adapter(text: ForeignText) -> Fragment:
    """The low-rank adapters that an `adapter_config.json` describes.

    Raises:
        ForeignFormatError: it is no JSON object, or describes adapters of another kind.
    """
    source = load_mapping(text)
    draft = Draft(flatten(source.data), lines_in(source))
    kind = draft.look("peft_type")
    if kind != "LORA":
        raise ForeignFormatError(f"peft_type is {str(kind)[:40]!r}, and a plan has low-rank adapters only")
    put_lora(draft, "r", "lora_alpha", "target_modules")
    base = draft.word("base_model_name_or_path")
    if base and name_of(base):
        draft.put(("model", "name"), name_of(base), "base_model_name_or_path")
    return draft.fragment("peft-adapter-config", text)


FORMATS = (
    Format("peft-adapter-config", "adapter_config.json of PEFT", "TrainingPlan", looks_like_adapter, read_adapter),
    Format(
        "huggingface-accelerate", "configuration of accelerate", "TrainingPlan", looks_like_accelerate, read_accelerate
    ),
    Format("huggingface-model-config", "config.json of a model", "TrainingPlan", looks_like_model, read_model),
    Format(
        *("huggingface-trainer-arguments", "arguments of the transformers Trainer", "TrainingPlan"),
        *(looks_like_trainer, read_trainer),
    ),
)
