"""Turns arguments of the transformers Trainer into parts of a plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainspec_validate.interop.readers import _deepspeed_plan, _optimizer_plan
from trainspec_validate.interop.readers._huggingface_weights import (
    STORED,
    drop_untrained,
    leave_frozen_open,
    loaded_format,
    write_loaded,
)
from trainspec_validate.interop.readers._launched_ranks import launched
from trainspec_validate.interop.readers._plan_parts import (
    LONGEST_NAME,
    Default,
    Draft,
    is_placeholder,
    leave_offload_open,
    like,
    name_of,
)
from trainspec_validate.interop.readers._sequence_length import write_length
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import bare, cut_to
from trainspec_validate.system.digits import is_digits

VERSION = "transformers 5.23.0, TrainingArguments"
AUTOCAST = "torch.autocast runs these in fp32 (pytorch/pytorch docs/source/amp.rst)"
FP32_STORED = "torch.autocast casts operands; parameters and their gradients stay in fp32"
MOMENTS_STORED = "moments have the format of the stored parameters"
NO_FORMAT = "neither bf16 nor fp16 is set"
OVERLAPPED = "DDP and FSDP reduce gradients during the backward pass"
_BY_ARGUMENTS = frozenset({_optimizer_plan.OTHER_OPTIMIZER, _optimizer_plan.OTHER_SCHEDULE})
"""How facts came about that the arguments state and a configuration of DeepSpeed may replace."""
_MEBIBYTE = 1024**2
_BUILT_IN = re.compile(r"zero([0-3])(?:_offload)?")
"""Names of configurations of ms-swift. Source: modelscope/ms-swift:swift/arguments/sft_args.py."""
_STAGES = ("none", "optimizer", "gradients", "parameters")
_SECOND = 2
"""Version of FSDP without a policy for prefetches."""
_PREFETCH = (
    *("fsdp_config.fsdp_backward_prefetch", "fsdp_config.fsdp_backward_prefetch_policy"),
    *("fsdp_config.backward_prefetch", "fsdp_config.backward_prefetch_policy", "fsdp_backward_prefetch"),
)
_PREFETCHED = frozenset({"BACKWARD_PRE", "BACKWARD_POST", "1", "2"})
_STRATEGIES = {
    "full_shard": "parameters",
    "shard_grad_op": "gradients",
    "no_shard": "none",
    "hybrid_shard": "parameters",
    "hybrid_shard_zero2": "gradients",
    "_hybrid_shard_zero2": "gradients",
}
_ANY_STRATEGY = (
    "fsdp names no strategy, so that FSDP_SHARDING_STRATEGY or the version of accelerate decides: parameters, "
    "gradients or none"
)
_NUMBERED = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
_DECIDED = frozenset({"precision", "optimizer", "communication"})
"""Groups of a plan in which a configuration of DeepSpeed or accelerate goes before the Trainer's defaults."""
_EIGHT_BIT = frozenset({"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit"})
_MOMENTS = {"sgd": 1, "adafactor": 1, "lion_32bit": 1, "lion_8bit": 1, "paged_lion_8bit": 1, "adagrad": 1}


_TRAINER_ALONE = frozenset(
    {
        *("do_train", "do_eval", "overwrite_output_dir", "eval_strategy", "evaluation_strategy", "eval_steps"),
        *("save_strategy", "save_steps", "save_total_limit", "logging_steps", "logging_strategy", "logging_dir"),
        *("logging_first_step", "warmup_ratio", "warmup_steps", "max_steps", "bf16", "fp16", "tf32", "ddp_timeout"),
        *("ddp_find_unused_parameters", "dataloader_num_workers", "remove_unused_columns", "fsdp", "fsdp_config"),
        *("adam_beta2", "group_by_length", "load_best_model_at_end", "label_names", "torch_compile", "optim"),
        *("max_grad_norm", "disable_tqdm", "run_name", "logging_nan_inf_filter", "predict_with_generate"),
    }
)
"""Arguments that programs with a parser of their own seldom have beside the common ones."""


WITHOUT_TRAINER = frozenset({"with_tracking", "checkpointing_steps", "num_warmup_steps", "max_train_steps"})
"""Arguments of programs with a training loop of their own, after the examples of transformers."""


_EXAMPLES = re.compile(
    r"(?:run_(?:clm|mlm|plm|fim|swag|qa|qa_beam_search|seq2seq_qa|summarization|translation|glue|xnli|ner"
    r"|(?:audio_|image_)?classification|mim|semantic_segmentation|(?:object_detection|instance_segmentation)"
    r"|speech_recognition_(?:ctc|ctc_adapter|seq2seq))|finetune_trainer"
    r"|(?:sft|dpo|kto|orpo|cpo|ppo|rloo|grpo|gkd|online_dpo|dpo_online|nash_md|xpo)(?:_vlm|_tldr)?|reward_modeling)\.py"
)
"""Programs among the examples of transformers and TRL that run the Trainer with its own arguments."""


def shows_trainer(draft: Draft) -> bool:
    """Whether arguments show that the program takes those of the Trainer."""
    names = {name for name, value in draft.values.items() if value is not None}
    own = len(names & _TRAINER_ALONE) >= 2 and not names & WITHOUT_TRAINER
    return own and draft.values.get("deepspeed") is not True


def drop_unknown_program(draft: Draft, program: str | None, *, own: bool = False) -> None:
    """Leave open what the Trainer's own defaults say, where nothing shows that the program takes its arguments.

    A parser of its own takes `--deepspeed` without a file, which the Trainer's arguments do not; `own` says that the
    arguments are in a section of a program's own configuration.
    """
    if not own and shows_trainer(draft):
        return
    names = {name for name, value in draft.values.items() if value is not None}
    named = program[:60] if program else "the command"
    why = f"nothing shows that {named} is a program of the Trainer, so that defaults of its own may hold"
    draft.drop_defaults(why, launched(draft))
    draft.drop([pointer for pointer, how in draft.derived.items() if "transformers 5.23.0" in how], why)
    if draft.values.get("config_file") is None:
        draft.unknown["parallelism", "sharding"] = why
    foreign = [name for name in ("zero_stage", "offload", "deepspeed", "max_seq_len") if name in names - draft.used]
    told = f"; not known of this program: {', '.join(foreign)}" if foreign else ""
    draft.remark(f"{why}; its defaults are left open{told}")


def leave_unstated_open(draft: Draft, program: str | None) -> None:
    """Leave open what only defaults of the Trainer say, where the program is none of transformers or TRL.

    Programs of others take the Trainer's arguments with defaults of their own.
    """
    if is_example(program):
        return
    stated = {name for name, value in draft.values.items() if value is not None}
    kept: set[Pointer] = {("memory", "activation_policy")} if "gradient_checkpointing" in stated else set()
    weak = {at: how for at, how in draft.derived.items() if isinstance(how, Default)}
    unstated = [at for at, how in weak.items() if VERSION in how and at not in kept]
    if ("precision", "compute") in unstated and not {"bf16", "fp16"} <= stated:
        unstated += [at for at in weak if at[0] == "precision" and at not in unstated]
    elif ("precision", "compute") in unstated:
        unstated = [at for at in unstated if at[0] != "precision"]
    while further := [at for at, of in draft.inputs.items() if at not in unstated and set(of) & set(unstated)]:
        unstated += further
    named = program[:60] if program else "the program"
    for place, value in [(place, draft.get(*map(str, place))) for place in unstated]:
        draft.drop([place], f"{bare(value)} by default of transformers, and {named} may have defaults of its own")


def is_example(program: str | None) -> bool:
    """Whether a program is an example of transformers or TRL, whose defaults are those of their configurations.

    >>> is_example("run_clm.py"), is_example("sft.py"), is_example("run_clm_no_trainer.py"), is_example("train.py")
    (True, True, False, False)
    """
    return bool(program and _EXAMPLES.fullmatch(program))


def leave_groups_open(draft: Draft, file: str, groups: frozenset[str] = _DECIDED) -> None:
    """Leave open what a configuration of DeepSpeed or accelerate may set, where the Trainer's defaults say it."""
    weak = [place for place, how in draft.derived.items() if isinstance(how, Default) and place[0] in groups]
    for place, value in [(place, draft.get(*map(str, place))) for place in weak]:
        by = "by the arguments" if draft.derived.get(place) in _BY_ARGUMENTS else "by default"
        draft.drop([place], f"{bare(value)} {by}, and {cut_to(file, 120)}, which is not read, may set it")


def write_training(draft: Draft) -> None:
    """Batch, formats, sharding, recomputation and length of a Trainer's job."""
    _write_batch(draft)
    # Of accelerate's format the Trainer says: "it will override the one specified in the accelerate config".
    launched = None if draft.flag("fp16") or draft.flag("bf16") else draft.look("mixed_precision")
    half = launched if launched in {"fp16", "bf16"} else "fp32"
    compute = "fp16" if draft.flag("fp16") else "bf16" if draft.flag("bf16") else half
    # A Trainer whose two switches are off takes the format of accelerate, so this states nothing.
    how = Default(f"{NO_FORMAT}, the default of {VERSION}") if compute == "fp32" else ""
    embedded = any(name.startswith("deepspeed.") for name in draft.values)
    path = draft.word("deepspeed") or draft.word("accelerate.deepspeed_config.deepspeed_config_file")
    if embedded:
        loaded_format(draft)  # DeepSpeed casts the weights, whatever they are loaded in
        _deepspeed_plan.write_plan(draft, "deepspeed.")
    elif path:
        _name_configuration(draft, path)
        for pointer in (("parallelism", "sharding"), ("communication", "overlap_gradients")):
            draft.lacks(pointer, f"the file {cut_to(path, 120)} decides it, which is not read")
        if compute != "fp32" or not write_loaded(draft):
            write_deepspeed_formats(draft, compute, how)
            why = (
                f"the communication_data_type of {cut_to(path, 120)}, which is not read, or the format of the products"
            )
            draft.drop([("precision", "reduction")], why)
    else:
        _write_sharding(draft)
        if compute != "fp32" or not write_loaded(draft):
            write_formats(draft, compute, how, loaded_format(draft))
    adapted = drop_untrained(draft)
    _write_rest(draft)
    _optimizer_plan.write_trainer(draft)
    if path and not embedded:
        leave_groups_open(draft, path)
    leave_frozen_open(draft)
    if adapted and draft.word("finetuning_type") in {None, "lora"}:
        _optimizer_plan.write_peft(draft)


def _name_configuration(draft: Draft, path: str) -> None:
    """Name the configuration of DeepSpeed that is not read; the name of one that ms-swift has states its ZeRO stage."""
    built_in = _BUILT_IN.fullmatch(path)
    if built_in is None:
        draft.remark(f"deepspeed names the file {cut_to(path, 120)}, which is not read: import it as well", "deepspeed")
        return
    how = f"{path}, the name of a configuration that ms-swift has"
    draft.put(("parallelism", "sharding"), _STAGES[int(built_in[1])], how)
    draft.remark(f"deepspeed: {how}; beyond its ZeRO stage it is not read", "deepspeed")


def _write_batch(draft: Draft) -> None:
    draft.copy(("batch", "micro_sequences"), "per_device_train_batch_size")
    draft.default(("batch", "micro_sequences"), 8, f"the default of {VERSION}")
    draft.copy(("batch", "accumulation_steps"), "gradient_accumulation_steps")
    draft.default(("batch", "accumulation_steps"), 1, f"the default of {VERSION}")
    across = draft.flag("average_tokens_across_devices")
    if across:
        draft.put(("batch", "loss_reduction"), "global-token-mean", "average_tokens_across_devices")
    else:
        draft.lacks(("batch", "loss_reduction"), "the version of transformers decides how losses are averaged")


def write_deepspeed_formats(draft: Draft, compute: str, how: str) -> None:
    """Formats where DeepSpeed trains and its own configuration is another file."""
    draft.put(("precision", "compute"), compute, how)
    why = like(how, "DeepSpeed stores parameters in the compute format and steps on a copy in fp32")
    for key in ("parameters", "reduction"):
        draft.put(("precision", key), compute, why)
    sharding = draft.get("parallelism", "sharding")
    if compute != "bf16" or sharding not in {None, "none"}:
        draft.put(("precision", "gradients"), compute, why)
    elif sharding == "none":
        draft.lacks(("precision", "gradients"), _deepspeed_plan.WITHOUT_ZERO)
    else:
        draft.lacks(("precision", "gradients"), f"bf16 with ZeRO; {_deepspeed_plan.WITHOUT_ZERO}")
    if compute != "fp32":
        draft.put(("precision", "master_parameters"), "fp32", why)
        draft.lacks(("precision", "high_precision_operations"), "kernels of the training program decide, not this file")
    if compute == "fp16":
        draft.lacks(("precision", "loss_scaling"), "the configuration of DeepSpeed decides")


def write_formats(draft: Draft, compute: str, how: str, loaded: tuple[str, str] = ("", "")) -> None:
    """Formats of mixed precision: operands that are cast, or shards that are cast as they are gathered.

    `loaded` is the format in which the weights are loaded, and the setting that says so.
    """
    draft.put(("precision", "compute"), compute, how)
    sharded = draft.get("parallelism", "sharding") in {"parameters", "gradients"}
    if compute != "fp32" and _asks_for_fsdp(draft) and draft.get("parallelism", "sharding") is None:
        told = f"{compute} where FSDP shards, else the format in which the weights are loaded; {_ANY_STRATEGY}"
        draft.drop([("precision", key) for key in STORED], told)
        draft.lacks(("precision", "high_precision_operations"), told)
        return
    if compute == "fp32":
        for key in ("parameters", "gradients", "reduction"):
            draft.put(("precision", key), "fp32", how or "one format throughout")
        return
    if sharded:
        why = "FSDP gathers fp32 shards in the compute format and reduces in it (accelerate 1.15.0, FSDP plugin)"
        draft.put(("precision", "parameters"), compute, why)
        draft.put(("precision", "master_parameters"), "fp32", why)
        draft.put(("precision", "gradients"), compute, why)
        draft.put(("precision", "reduction"), compute, why)
        draft.put(("precision", "optimizer_state"), "fp32", "moments have the format of the stored parameters")
    else:
        _write_autocast(draft, *loaded)
    how = AUTOCAST if draft.get("parallelism", "sharding") else Default(AUTOCAST)
    if "zero_1" in draft.values:  # an argument of optimum-neuron's Trainer
        draft.lacks(("precision", "high_precision_operations"), "optimum-neuron casts operands in a way of its own")
    else:
        draft.put(("precision", "high_precision_operations"), ["softmax", "normalization", "loss"], how)
    if compute == "fp16":
        _write_scaler(draft)


def _write_autocast(draft: Draft, loaded: str, name: str) -> None:
    """Formats where operands are cast: what is stored has the format in which the weights are loaded."""
    if name and not loaded:
        why = f"{name} does not name the format in which the weights are loaded, and the program keeps them so"
        draft.drop([("precision", key) for key in STORED], why)
        return
    why = FP32_STORED
    if loaded:
        why = f"{name} loads the parameters in {loaded}; torch.autocast casts operands alone"
    moments = MOMENTS_STORED if not loaded else f"moments have the format in which {name} loads the parameters"
    if draft.get("parallelism", "sharding") is None:
        why, moments = Default(why), Default(moments)
        if loaded not in {"", "fp32"}:
            told = "a configuration of accelerate or DeepSpeed may keep a copy in fp32; the arguments name none"
            draft.lacks(("precision", "master_parameters"), told)
    for key in ("parameters", "gradients", "reduction"):
        draft.put(("precision", key), loaded or "fp32", why)
    draft.put(("precision", "optimizer_state"), loaded or "fp32", moments)


def _write_scaler(draft: Draft) -> None:
    scaler = "torch.amp.GradScaler, defaults of torch 2.13.0"
    values = {"mode": "dynamic", "initial_scale": 2.0**16, "growth_factor": 2.0, "backoff_factor": 0.5}
    for key, value in {**values, "growth_interval_steps": 2000}.items():
        draft.put(("precision", "loss_scaling", key), value, scaler)
    draft.put(("precision", "nonfinite_action"), "skip-step", scaler)


def put_strategy(draft: Draft, words: Sequence[str], setting: str) -> None:
    """The sharding of FSDP by its words, such as `full_shard auto_wrap offload`, or by a number of accelerate."""
    named = [word.lower() for word in words]
    found = next((word for word in named if word in _STRATEGIES), None)
    if found:
        draft.put(("parallelism", "sharding"), _STRATEGIES[found], f"{setting}: {found}")
        if "hybrid" in found:
            draft.lacks(
                ("parallelism", "sharding_degree"), "hybrid sharding keeps a copy in each node; the node is not stated"
            )
    elif named:
        draft.remark(f"{setting} is {' '.join(named)[:80]!r}, which names no known strategy", setting)
    if "offload" in named:
        entries = [
            {"what": what, "target": "host", "fraction": 1.0} for what in ("parameters", "gradients", "optimizer")
        ]
        draft.put_records(("memory", "offload"), entries, f"{setting}: offload")


def numbered_strategy(value: object) -> list[str]:
    """A strategy of FSDP as words; accelerate also takes a number from 1 on.

    >>> numbered_strategy(1), numbered_strategy("FULL_SHARD"), numbered_strategy(None)
    (['full_shard'], ['full_shard'], [])
    """
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= len(_NUMBERED):
        return [_NUMBERED[value - 1]]
    if isinstance(value, str) and is_digits(value) and len(value) == 1:
        return numbered_strategy(int(value))
    return [value.lower()] if isinstance(value, str) else []


def _asks_for_fsdp(draft: Draft) -> bool:
    return bool(draft.look("fsdp")) or bool(draft.reasons("fsdp"))


def _write_sharding(draft: Draft) -> None:
    fsdp = draft.look("fsdp")
    if fsdp is True:
        draft.put(("parallelism", "sharding"), "parameters", "fsdp: true")
    words = fsdp.split() if isinstance(fsdp, str) else fsdp if isinstance(fsdp, list) else []
    put_strategy(draft, [word for word in words if isinstance(word, str)], "fsdp")
    if draft.get("parallelism", "sharding") is None and _asks_for_fsdp(draft):
        draft.lacks(("parallelism", "sharding"), _ANY_STRATEGY)
    elif reason := next(iter(draft.reasons("deepspeed")), ""):
        draft.lacks(("parallelism", "sharding"), f"deepspeed: {reason}")
    elif draft.get("parallelism", "sharding") is None:
        draft.lacks(
            ("parallelism", "sharding"),
            "the arguments ask for none, but a configuration or variables of accelerate may",
        )
    else:
        recomputed = draft.flag("fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
        if recomputed:
            draft.put(("memory", "activation_policy"), "full", "fsdp_config.activation_checkpointing")
        _leave_reshard_open(draft, stated=fsdp is not True)


def _leave_reshard_open(draft: Draft, *, stated: bool) -> None:
    """The sharding by `reshard_after_forward`; open where the strategy that `fsdp` names is another one."""
    place, names = ("parallelism", "sharding"), [f"fsdp_config.{mark}reshard_after_forward" for mark in ("", "fsdp_")]
    word = str(draft.look(*names)).lower()
    found = {"true": "parameters", "false": "gradients"}.get(word, _STRATEGIES.get(word))
    if found in (None, draft.get(*place)):
        return
    if not stated:
        draft.put(place, found, "reshard_after_forward of fsdp_config")
    else:
        draft.drop([place], f"reshard_after_forward of fsdp_config is {word}, and fsdp names another strategy")


def _write_rest(draft: Draft) -> None:
    steps = draft.look("max_steps")
    if isinstance(steps, int | float) and steps > 0:
        draft.copy(("job", "num_steps"), "max_steps")
    for reason in draft.reasons("max_steps"):
        draft.lacks(("job", "num_steps"), f"max_steps goes before the epochs: {reason}")
    epochs = draft.number("num_train_epochs")
    if epochs and not draft.get("job", "num_steps"):
        draft.lacks(("job", "num_steps"), f"{epochs:g} epochs of data whose size is not stated")
    draft.copy(("job", "seed"), "seed", least=0)
    write_length(draft)
    # ms-swift calls what the model says of itself `model_name`, next to `model_author`.
    own = ("model",) if draft.values.get("model_author") is not None else ("model_name", "model_path")
    names = ("model_name_or_path", *own, "hub_model_id")
    name = draft.word(*names)
    for reason in draft.reasons(*names):
        draft.lacks(("model", "name"), reason)
    if name and is_placeholder(name):
        draft.lacks(("model", "name"), f"{cut_to(name, 60)} is to be replaced by the model")
    elif name and name_of(name):
        draft.put(("model", "name"), name_of(name), "" if name_of(name) == name else f"made of {name[:120]!r}")
    run = draft.word("run_name")
    if run and name_of(run):
        cut = f"cut to the {LONGEST_NAME} characters that a name may have" if len(run) > LONGEST_NAME else ""
        draft.put(("metadata", "name"), name_of(run), cut)
    _write_memory(draft)
    _write_communication(draft)
    optimizer = draft.word("optim") or "adamw_torch"
    if optimizer in _EIGHT_BIT:
        draft.put(("precision", "optimizer_state"), "int8", f"optim {optimizer}")
    elif optimizer.endswith(("8bit", "4bit", "fp8")):
        draft.drop([("precision", "optimizer_state")], f"optim {cut_to(optimizer, 60)} stores moments in fewer bits")
    if optimizer in _MOMENTS:
        draft.put(("precision", "num_optimizer_moments"), _MOMENTS[optimizer], f"optim {optimizer}")
    saved = draft.number("save_steps")
    if saved and draft.word("save_strategy") not in {"no", "epoch"}:
        unit = "steps" if saved >= 1 else "of the job"
        draft.remark(f"a checkpoint every {saved:g} {unit}; it belongs into a checkpoint policy", "save_steps")


def _write_memory(draft: Draft) -> None:
    recomputed = draft.flag("activation_checkpointing", "gradient_checkpointing")
    wanted = (
        recomputed is not None or draft.get("memory", "offload") or draft.look("dataloader_num_workers") is not None
    )
    inside = next((name for name, value in draft.values.items() if _asks_inside(name, value)), None)
    if inside is not None and recomputed is None:
        why = (
            f"{cut_to(inside, 60)} asks for gradient_checkpointing, which the version of transformers may take from it"
        )
        draft.lacks(("memory", "activation_policy"), why)
    elif wanted and draft.get("memory", "activation_policy") is None:
        # FSDP has a switch of its own, so that this one is off states nothing.
        off = Default(f"no gradient_checkpointing, the default of {VERSION}")
        name = (
            "gradient_checkpointing"
            if draft.values.get("activation_checkpointing") is None
            else "activation_checkpointing"
        )
        how = name if recomputed else off
        draft.put(("memory", "activation_policy"), "full" if recomputed else "none", how)
    leave_offload_open(draft, "activation_offloading")
    if draft.get("memory") is not None:
        draft.copy(("memory", "num_loader_workers"), "dataloader_num_workers", least=0)
        pinned = draft.flag("dataloader_pin_memory")
        if pinned is not None:
            draft.put(("memory", "pinned_input"), pinned)
        draft.copy(("memory", "prefetch_depth"), "dataloader_prefetch_factor", least=0)


def _asks_inside(name: str, value: object) -> bool:
    """Whether the value of another setting asks for recomputation, as in `n_layer=2,gradient_checkpointing=true`."""
    asked = isinstance(value, str) and re.search(r"gradient_checkpointing['\"]?\s*[=:]\s*true", value, re.IGNORECASE)
    return bool(asked) and name != "gradient_checkpointing"


def _write_communication(draft: Draft) -> None:
    seconds = draft.number("ddp_timeout")
    if seconds:
        draft.put(("communication", "timeout_seconds"), seconds)
    size = draft.number("ddp_bucket_cap_mb")
    if size:
        draft.put(("communication", "bucket_bytes"), size * _MEBIBYTE, "ddp_bucket_cap_mb, in units of 2^20 bytes")
    deepspeed = any(name.partition(".")[0] == "deepspeed" for name in draft.values)
    if draft.get("communication", "overlap_gradients") is None and not deepspeed:
        draft.put(("communication", "overlap_gradients"), value=True, how=Default(OVERLAPPED))
    known = draft.get("communication", "overlap_parameters") is not None
    if draft.get("parallelism", "sharding") == "parameters" and not known and not deepspeed:
        put_prefetch(draft, second=draft.count("fsdp_config.fsdp_version", "fsdp_config.version") == _SECOND)


def put_prefetch(draft: Draft, *, second: bool) -> None:
    """Whether FSDP gathers parameters during computation; `second` says that it is FSDP 2, which always does."""
    place = ("communication", "overlap_parameters")
    name = next((name for name in _PREFETCH if draft.values.get(name) is not None), _PREFETCH[0])
    policy = draft.look(name)
    if second:
        draft.put(place, value=True, how="FSDP 2 (fsdp_version) gathers parameters ahead of computation")
    elif str(policy).upper() in _PREFETCHED:
        draft.put(place, value=True, how=f"{name}: {policy}")
    else:
        told = (
            f"{name} is {cut_to(str(policy), 40)}"
            if policy is not None
            else "NO_PREFETCH by default, accelerate 1.15.0"
        )
        draft.lacks(place, f"{told}: the forward pass overlaps as far as the host runs ahead, the backward pass not")


def put_section_sharding(draft: Draft) -> None:
    """Sharding that a section of its own states, as that of Oumi does (oumi-ai/oumi:src/oumi/core/configs/params)."""
    found = _STRATEGIES.get((draft.word("fsdp.sharding_strategy") or "").lower())
    if found is None or not draft.flag("fsdp.enable_fsdp"):
        return
    draft.put(("parallelism", "sharding"), found, "fsdp.sharding_strategy")
    if "hybrid" in str(draft.look("fsdp.sharding_strategy")).lower():
        draft.lacks(
            ("parallelism", "sharding_degree"), "hybrid sharding keeps a copy in each node; the node is not stated"
        )
