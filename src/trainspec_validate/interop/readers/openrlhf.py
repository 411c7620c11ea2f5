"""Reads commands of OpenRLHF: the model that DeepSpeed trains, and the rollouts that it learns from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _deepspeed_plan
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._launched_ranks import started_ranks
from trainspec_validate.interop.readers._optimizer_plan import put_kind, put_lora, put_rate, share_of
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, name_of
from trainspec_validate.interop.readers._shell_options import Started, options_of_script
from trainspec_validate.interop.readers._shell_unread import leave_unread_open
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_SOURCE = "OpenRLHF/OpenRLHF@3c3be623:openrlhf"
_HEAD = 1024 * 1024
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_PROGRAM = re.compile(r"\bopenrlhf\.cli\.(train_\w{1,40})")
_OPTION = re.compile(
    r"--(?:(?:micro_)?train_batch_size|train\.(?:micro_)?batch_size|(?:ds\.)?zero_stage|pretrain|max_epochs"
    r"|train\.max_epochs|(?:\w+\.)?model_name_or_path|(?:actor_)?learning_rate|(?:\w+\.)?adam\.lr) "
)
_OLDER = {
    "train.batch_size": "train_batch_size",
    "train.micro_batch_size": "micro_train_batch_size",
    "train.dynamic_batch_enable": "use_dynamic_batch",
    "train.seed": "seed",
    "train.max_epochs": "max_epochs",
    "train.colocate_all": "colocate_all_models",
    "train.async_enable": "async_train",
    "rollout.batch_size": "rollout_batch_size",
    "rollout.micro_batch_size": "micro_rollout_batch_size",
    "rollout.n_samples_per_prompt": "n_samples_per_prompt",
    "ds.zero_stage": "zero_stage",
    "ds.param_dtype": "param_dtype",
    "ds.adam_offload": "adam_offload",
    "ds.grad_accum_dtype": "grad_accum_dtype",
    "ds.overlap_comm": "overlap_comm",
    "ds.packing_samples": "packing_samples",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size",
    "ds.load_in_4bit": "load_in_4bit",
    "ds.lora.rank": "lora_rank",
    "ds.lora.alpha": "lora_alpha",
    "ds.lora.target_modules": "target_modules",
    "vllm.num_engines": "vllm_num_engines",
    "vllm.tensor_parallel_size": "vllm_tensor_parallel_size",
    "data.max_len": "max_len",
    **{f"actor.num_{part}": f"actor_num_{part}" for part in ("nodes", "gpus_per_node")},
    **{f"{model}.model_name_or_path": "pretrain" for model in ("actor", "model")},
    **{f"{model}.gradient_checkpointing_enable": "gradient_checkpointing" for model in ("actor", "model")},
    **{f"actor.{name}": name for name in ("lr_scheduler", "lr_warmup_ratio", "min_lr_ratio", "max_norm", "optim")},
    "actor.adam.lr": "learning_rate",
    "adam.lr": "learning_rate",
    "actor_learning_rate": "learning_rate",
}
"""Options of releases since 0.10, with the names that they had before."""
_PAIRED = frozenset({"train_rm", "train_dpo"})
"""Programs whose samples are a chosen and a rejected answer, both of which go through the model."""
_PLAIN = frozenset({"train_sft", "train_prm", "train_kd", "train_ppo", "train_ppo_ray"})
_COUNTED_APART = frozenset({"train_kto"})
"""Programs of OpenRLHF that make sequences of a sample in their own way."""
_OTHERS = re.compile(r"(?:critic|ref|reward|vllm|logger|ckpt|eval|wandb)[._]|(?:critic|remote_rm|reward)_|use_wandb\Z")
"""Options about other models, or about what a plan has no place for."""
_RATE = ("optimizer", "learning_rate")
_KINDS = {"cosine": "cosine", "cosine_with_min_lr": "cosine", "linear": "linear", "constant": "constant"}
_KINDS |= {"constant_with_warmup": "constant"}
_TAKEN: tuple[Pointer, ...] = (
    ("parallelism", "sharding"),
    *(("precision", key) for key in ("compute", "parameters", "master_parameters", "gradients", "accumulation")),
    *(("precision", key) for key in ("reduction", "optimizer_state")),
    ("communication", "overlap_gradients"),
    ("communication", "overlap_parameters"),
)
"""Facts that follow from the configuration of DeepSpeed that the program makes of its options."""


def looks_like(text: ForeignText) -> bool:
    """Whether a text starts a training of OpenRLHF."""
    head = _COMMENT.sub("", text.text[:_HEAD])
    return head.lstrip()[:1] not in {"{", "<"} and bool(_PROGRAM.search(head)) and bool(_OPTION.search(head))


def read(text: ForeignText) -> Fragment:
    """The plan of the model that the command trains; a critic is another model, which a plan has no place for.

    Raises:
        ForeignFormatError: no command has such options, or several programs are started.
    """
    programs = sorted(set(_PROGRAM.findall(_COMMENT.sub("", text.text))))
    if len(programs) > 1:
        told = cut_to(", ".join(programs), 200)
        raise ForeignFormatError(f"starts several trainings: {told}", help="give one of them")
    started = options_of_script(text.text, _OPTION, 2)
    if started is None or not programs:
        raise ForeignFormatError("no command has options of OpenRLHF", help="give the launch script")
    newer = any("." in name for name in started.options)
    started, origins = _renamed(started)
    others = [name for name in started.options if _OTHERS.match(name)]

    def make(values: dict[str, Any]) -> Draft:
        draft = started.draft(values)
        draft.origins = origins
        _write_model(draft, programs[0])
        _write_batch(draft, programs[0])
        _write_engine(draft, newer=newer)
        _write_optimizer(draft)
        _write_rollouts(draft)
        draft.copy(("job", "seed"), "seed", least=0)
        draft.look("max_epochs", "num_episodes", "max_samples")
        draft.lacks(("job", "num_steps"), "epochs of data whose size is not stated")
        draft.used.update(others)
        if programs[0] not in _PAIRED | _PLAIN | _COUNTED_APART:
            draft.drop_defaults(f"{programs[0]} is no program of OpenRLHF itself, and may have defaults of its own")
        complete(draft, *started_ranks(draft, text.text))
        return draft

    draft = settled(started.values, make)
    leave_unread_open(draft, started)
    started.tell(draft)
    if any(name.startswith("critic") for name in others):
        draft.remark("the critic is a second model of the job; the plan is that of the actor")
    return draft.fragment("openrlhf-arguments", text)


def _renamed(started: Started) -> tuple[Started, Mapping[str, str]]:
    """The options by the names that all releases know them by, and the names of the command where they differ."""
    options, origins = {}, {}
    for name, option in started.options.items():
        known = _OLDER.get(name, name)
        options[known] = option
        if known != name:
            origins[known] = name
    return replace(started, options=options), origins


def _write_model(draft: Draft, program: str) -> None:
    named = draft.word("pretrain")
    if named and name_of(named):
        draft.put(("model", "name"), name_of(named), f"pretrain {cut_to(named, 120)}")
    prompt, answer = draft.count("prompt_max_len"), draft.count("generate_max_len")
    how = "the longest that is trained on; samples differ in length"
    length: Pointer = ("model", "sequence_length")
    if "ppo" in program and prompt and answer:
        draft.put(length, prompt + answer, f"prompt_max_len + generate_max_len, {how}")
    elif draft.copy(length, "max_len"):
        draft.derived[length] = how
    for name in ("prompt_max_len", "generate_max_len", "max_len"):
        for reason in draft.reasons(name):
            draft.lacks(length, f"{name}: {reason}")
    draft.lacks(length, "no length is given, and releases have other defaults")
    draft.lacks(("batch", "global_tokens"), "samples differ in length")
    why = "the configuration of the pretrained model holds it, and is not read"
    for key in ("family", "num_layers", "hidden_size", "num_attention_heads", "vocabulary_size", "ffn_hidden_size"):
        draft.lacks(("model", key), why)
    rank = draft.look("lora_rank")
    if draft.reasons("lora_rank"):
        draft.lacks(("lora",), draft.reasons("lora_rank")[0])
    elif rank not in (None, 0):
        put_lora(draft, "lora_rank", "lora_alpha", "target_modules")
        if draft.flag("load_in_4bit"):
            draft.lacks(("precision", "frozen_parameters"), "load_in_4bit stores the linear layers in NF4")


def _write_batch(draft: Draft, program: str) -> None:
    """Counts of samples, which are two sequences where a program compares a chosen answer with a rejected one."""
    for axis, name in (("tensor", "ds_tensor_parallel_size"), ("context", "ring_attn_size")):
        draft.copy(("parallelism", axis), name)
        draft.default(("parallelism", axis), 1, f"the default of {_SOURCE}/cli")
    if draft.counted("parallelism", "context") not in {None, 1}:
        draft.put(("parallelism", "context_method"), "ring", "ring_attn_size")
    for key, name in (("global_sequences", "train_batch_size"), ("micro_sequences", "micro_train_batch_size")):
        number = draft.copy(("batch", key), name)
        if number and program in _PAIRED:
            how = f"{number} pairs of a chosen and a rejected answer ({_SOURCE}/models)"
            draft.put(("batch", key), 2 * number, how)
        elif number and program not in _PLAIN:
            draft.drop([("batch", key)], f"{number} samples, of which {program} makes sequences in its own way")
    if draft.flag("use_dynamic_batch"):
        why = "a micro-batch takes as many samples as fit into its tokens"
        draft.drop([("batch", "micro_sequences")], why)
        draft.lacks(("batch", "accumulation_steps"), why)
    if draft.flag("packing_samples") or draft.flag("use_dynamic_batch"):
        draft.put(("batch", "variable_length"), value=True, how="samples are packed without padding")
    draft.lacks(("batch", "loss_reduction"), "the loss of the program decides how it is averaged")


def _engine(draft: Draft, *, newer: bool) -> dict[str, Any]:
    """The configuration of DeepSpeed that the program makes of its options; empty where one of them is open."""
    stage, word, brain = draft.look("zero_stage"), draft.word("param_dtype"), draft.flag("bf16")
    accumulation, offload, overlap = draft.word("grad_accum_dtype"), draft.flag("adam_offload"), "overlap_comm"
    if draft.reasons("zero_stage", "param_dtype", "bf16", "grad_accum_dtype", "adam_offload"):
        return {}
    half = {"fp16.enabled": word == "fp16", "bf16.enabled": bool(brain) if word is None else word == "bf16"}
    engine: dict[str, Any] = dict(half)
    if newer and word is None:
        engine |= {"bf16.enabled": "auto", "fp16.enabled": "auto"}
    given = {
        "zero_optimization.stage": stage,
        "zero_optimization.offload_optimizer.device": "cpu" if offload else None,
        "zero_optimization.overlap_comm": True if draft.flag(overlap) else None,
        "data_types.grad_accum_dtype": accumulation,
    }
    return engine | {name: value for name, value in given.items() if value is not None}


def _write_engine(draft: Draft, *, newer: bool) -> None:
    """Formats, sharding and offload, which follow from the configuration of DeepSpeed, and recomputation."""
    recomputed = draft.flag("gradient_checkpointing")
    for reason in draft.reasons("gradient_checkpointing"):
        draft.lacks(("memory", "activation_policy"), reason)
    policy, how = ("full", "gradient_checkpointing") if recomputed else ("none", "no gradient_checkpointing is given")
    draft.default(("memory", "activation_policy"), policy, how)
    engine = _engine(draft, newer=newer)
    if not engine:
        for place in _TAKEN:
            draft.lacks(place, "an option of DeepSpeed that the script does not settle decides it")
        return
    inner = Draft(engine)
    _deepspeed_plan.write_plan(inner)
    for place in _TAKEN:
        if "zero_optimization.stage" not in engine and place[0] != "precision":
            draft.lacks(place, "no zero_stage is given: 2 by default, in other trees of the program another")
        elif (value := inner.get(*map(str, place))) is not None:
            draft.put(place, value, inner.derived.get(place, "") or "the configuration of DeepSpeed that it makes")
        elif place in inner.unknown:
            draft.lacks(place, inner.unknown[place])
    if offload := inner.get("memory", "offload"):
        draft.put_records(("memory", "offload"), offload, "adam_offload")


def _write_optimizer(draft: Draft) -> None:
    word = draft.word("optim")
    usual = Default(f"FusedAdam or DeepSpeedCPUAdam, which decouple decay ({_SOURCE}/utils/deepspeed)")
    if word in {None, "adam"} and not draft.reasons("optim"):
        draft.put(("optimizer", "name"), "adamw", usual)
    elif word:
        draft.put(("optimizer", "name"), "muon" if word == "muon" else "other", f"optim {cut_to(word, 40)}")
    put_clipping(draft, (1.0, f"{_SOURCE}/cli"), "max_norm")
    peak = put_rate(draft, "learning_rate")
    if peak is None:
        return
    kind = put_kind(draft, _KINDS, ("cosine", f"{_SOURCE}/cli"), "lr_scheduler")
    share = draft.number("min_lr_ratio")
    if share is not None and draft.word("lr_scheduler") in {None, "cosine_with_min_lr"}:
        draft.put((*_RATE, "final"), share_of(share, peak), f"min_lr_ratio {share:g} of the peak")
    elif kind == "cosine" and draft.word("lr_scheduler") in {None, "cosine_with_min_lr"}:
        draft.put((*_RATE, "final"), share_of(0.1, peak), Default(f"a tenth of the peak ({_SOURCE}/trainer)"))
    ratio = draft.number("lr_warmup_ratio")
    draft.lacks((*_RATE, "warmup_steps"), f"{'a share' if ratio is None else f'{ratio:g}'} of an unknown number")


def _write_rollouts(draft: Draft) -> None:
    """Prompts and responses of a rollout, the steps on it, and the accelerators that generate alone."""
    prompts, responses = draft.count("rollout_batch_size"), draft.count("n_samples_per_prompt")
    if prompts is None or (responses is None and draft.reasons("n_samples_per_prompt")):
        return
    draft.look("micro_rollout_batch_size")
    passes = draft.count("max_epochs") or 1
    draft.put(("rollout", "num_prompts"), prompts)
    usual = Default(f"the default of {_SOURCE}/cli")
    draft.put(("rollout", "num_responses_per_prompt"), responses or 1, "" if responses else usual)
    if passes > 1:
        draft.put(("rollout", "num_passes"), passes, "max_epochs")
    whole = draft.counted("batch", "global_sequences")
    updates = None
    if whole:
        how = f"{prompts} prompts x {responses or 1} responses x {passes} passes over the sequences of a step"
        updates = draft.divide(("rollout", "num_updates"), prompts * (responses or 1) * passes, whole, how)
    engines, each = draft.count("vllm_num_engines"), draft.count("vllm_tensor_parallel_size") or 1
    apart = bool(engines) and not draft.flag("colocate_all_models") and not draft.reasons("colocate_all_models")
    if engines and apart:
        how = f"{engines} engines x {each} accelerators, without colocate_all_models"
        draft.put(("rollout", "num_accelerators"), engines * each, how)
    if updates and not draft.flag("async_train") and not draft.reasons("async_train"):
        draft.put(("rollout", "max_staleness_steps"), updates - 1, "generation waits for the steps of a rollout")
    draft.lacks(("rollout", "max_staleness_steps"), "async_train: generation does not wait for the steps of a rollout")


FORMATS = (Format("openrlhf-arguments", "command of OpenRLHF", "TrainingPlan", looks_like, read),)
