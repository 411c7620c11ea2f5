"""Reads configurations of nanotron: model, degrees, batch, formats and schedule."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._huggingface_hybrid import write_own
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_final, put_rate
from trainspec_validate.interop.readers._overriding import NANOTRON, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._position_encoding import POSITIONS
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_SOURCE = "huggingface/nanotron@2411b022:src/nanotron"
_HEAD = 256 * 1024
_MARKS = (r"(?m)^tokens[ \t]*:", r"(?m)^parallelism[ \t]*:", r"(?m)^[ \t]+micro_batch_size[ \t]*:")
_MODEL = "model.model_config."
_SHAPE = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_key_value_heads",
    "ffn_hidden_size": "intermediate_size",
}
_RANK = f"{_MODEL}ssm_cfg.dt_rank"
_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe"}
_GROUPS = frozenset(
    {
        *("checkpoints", "data_stages", "general", "learning_rate_scheduler", "lighteval", "logging"),
        *("metrics_logging", "model", "optimizer", "parallelism", "profiler", "s3_upload", "tokenizer", "tokens"),
    }
)
"""Groups of a configuration of nanotron itself, whose forks have more."""
_RATE = ("optimizer", "learning_rate")
_SCHEDULE = "optimizer.learning_rate_scheduler."
_EARLIER = "learning_rate_scheduler."
"""The schedule in the earlier layout, whose rate is `optimizer.learning_rate`."""
_PEAK = (f"{_SCHEDULE}learning_rate", "optimizer.learning_rate")


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the groups of a job of nanotron at its top."""
    return all(re.search(mark, text.text[:_HEAD]) for mark in _MARKS)


def read(text: ForeignText) -> Fragment:
    """The plan that a configuration describes.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        run = name_of(draft.word("general.run") or "")
        if run and "%" not in (draft.word("general.run") or ""):
            draft.put(("metadata", "name"), run, "general.run")
        _write_degrees(draft)
        _write_model(draft)
        _write_formats(draft)
        _write_optimizer(draft)
        draft.copy(("batch", "micro_sequences"), "tokens.micro_batch_size")
        draft.copy(("batch", "accumulation_steps"), "tokens.batch_accumulation_per_replica")
        draft.lacks(("batch", "loss_reduction"), "the model's code decides how losses are averaged")
        draft.copy(("job", "num_steps"), "tokens.train_steps")
        draft.copy(("job", "seed"), "general.seed", least=0)
        recomputed = draft.flag("parallelism.recompute_layer")
        if recomputed is not None:
            draft.put(("memory", "activation_policy"), "full" if recomputed else "none", "recompute_layer")
        complete(draft)
        leave_overridden_open(draft, NANOTRON)
        return draft

    values = flatten(source.data)
    if values.get(_RANK) == "auto":  # nanotron itself resolves it, and no launcher
        del values[_RANK]
    return settled(values, make).fragment("nanotron-yaml", text)


def _write_degrees(draft: Draft) -> None:
    axes = {"tensor": "tp", "pipeline": "pp", "context": "context_parallel_size"}
    for axis, name in axes.items():
        draft.copy(("parallelism", axis), f"parallelism.{name}")
    draft.default(("parallelism", "context"), 1, f"the default of {_SOURCE}/config/parallelism_config.py")
    experts = draft.count("parallelism.expert_parallel_size") or 1
    if experts > 1:
        why = f"expert_parallel_size is {experts}, and versions of nanotron differ in the ranks that it multiplies"
        for pointer in (("parallelism", "data"), ("parallelism", "expert"), ("batch", "global_sequences")):
            draft.lacks(pointer, why)
        draft.lacks(("parallelism", "num_accelerators"), why)
    else:
        draft.copy(("parallelism", "data"), "parallelism.dp")
    engine = draft.word("parallelism.pp_engine")
    if engine and (draft.counted("parallelism", "pipeline") or 1) > 1:
        draft.put(("parallelism", "schedule"), _SCHEDULES.get(engine, "other"), f"pp_engine {engine}")
    mode = draft.known(("ALL_REDUCE", "REDUCE_SCATTER"), "parallelism.tp_mode")
    if mode and (draft.counted("parallelism", "tensor") or 1) > 1:
        draft.put(("parallelism", "sequence"), mode == "REDUCE_SCATTER", f"tp_mode {mode}")
    stage = draft.look("optimizer.zero_stage")
    if stage in (0, 1) and not isinstance(stage, bool):
        draft.put(("parallelism", "sharding"), "optimizer" if stage else "none", f"zero_stage {stage}")
    else:
        draft.lacks(("parallelism", "sharding"), "zero_stage is not 0 or 1, which nanotron has")


def _write_model(draft: Draft) -> None:
    for key, name in _SHAPE.items():
        draft.copy(("model", key), f"{_MODEL}{name}")
    if draft.flag(f"{_MODEL}grouped_query"):
        draft.copy(("model", "num_key_value_heads"), f"{_MODEL}num_kv_heads")
    draft.copy(("model", "sequence_length"), "tokens.sequence_length")
    draft.look(f"{_MODEL}max_position_embeddings")  # nanotron takes the length of tokens in its place
    tied = draft.flag(f"{_MODEL}tie_word_embeddings")
    if tied is not None:
        draft.put(("model", "tied_embeddings"), tied)
    words, rest = draft.count(f"{_MODEL}vocab_size"), draft.count("model.make_vocab_size_divisible_by") or 1
    multiple = rest * (draft.counted("parallelism", "tensor") or 1)
    if words:
        padded = -(-words // multiple) * multiple
        how = "" if padded == words else f"{words}, padded to a multiple of {multiple} ({_SOURCE}/helpers.py)"
        draft.put(("model", "vocabulary_size"), padded, how)
    if draft.flag(f"{_MODEL}is_mamba_config"):
        draft.copy(("model", "hidden_size"), f"{_MODEL}d_model")
        write_own(draft, _MODEL)
        return
    kinds = [name for name in ("llama", "qwen2", "starcoder2") if draft.flag(f"{_MODEL}is_{name}_config")]
    experts = [name for name in draft.values if name.startswith(_MODEL) and re.search(r"moe|expert", name)]
    given = [name for name in experts if draft.look(name) is not None]
    if given or len(kinds) != 1:
        why = f"{given[0]}: layers with experts are not read" if given else "no kind of model that is known is named"
        for key in ("family", "experts", "gated_ffn", "num_parameters"):
            draft.lacks(("model", key), why)
        return
    draft.put(("model", "family"), "dense-transformer", f"is_{kinds[0]}_config")
    draft.put(("model", "gated_ffn"), kinds[0] != "starcoder2", f"is_{kinds[0]}_config")
    if kinds[0] != "qwen2" or draft.look(f"{_MODEL}no_rope_layer") is None:
        draft.put(POSITIONS, "rotary", f"is_{kinds[0]}_config")
    more = next((name for name in draft.values if name.partition(".")[0] not in _GROUPS), None)
    if more is not None:
        why = f"{cut_to(more.partition('.')[0], 60)} is no group of nanotron itself, and may change the model"
        draft.lacks(("model", "attention"), why)
        draft.more_parameters = why
    if kinds[0] != "llama":
        draft.more_parameters = f"biases and norms of {kinds[0]} with these settings are not counted"


def _write_formats(draft: Draft) -> None:
    found = _FORMATS.get(draft.word("model.dtype") or "")
    copied = draft.flag("optimizer.accumulate_grad_in_fp32")
    if found is None:
        for key in ("compute", "parameters", "gradients"):
            draft.lacks(("precision", key), "model.dtype names no format that is known")
        return
    for key in ("compute", "parameters"):
        draft.put(("precision", key), found, f"dtype {draft.word('model.dtype')}")
    how = f"accumulate_grad_in_fp32: gradients and weights have a copy in FP32 ({_SOURCE}/optim)"
    if copied:
        draft.put(("precision", "accumulation"), "fp32", how)
        if found != "fp32":
            draft.put(("precision", "master_parameters"), "fp32", how)
    draft.lacks(("precision", "gradients"), "the program decides whether gradients of the format of weights are kept")


def _write_optimizer(draft: Draft) -> None:
    name = draft.word("optimizer.optimizer_factory.name")
    if name:
        draft.put(
            ("optimizer", "name"),
            optimizer_name(name),
            "" if name == "adamw" else f"the optimizer {cut_to(name, 60)}",
        )
    put_clipping(draft, (0.0, ""), "optimizer.clip_grad")
    if draft.flag("model.init_method.use_mup"):
        draft.look(*_PEAK)
        draft.lacks(_RATE, "use_mup: each matrix has a learning rate of its own")
    elif put_rate(draft, *_PEAK) is not None:
        _write_schedule(draft)


def _write_schedule(draft: Draft) -> None:
    """Warm-up, an optional stable phase, and a decay, as `lr_scheduler_builder` has them."""
    earlier = not any(name.startswith(_SCHEDULE) for name in draft.values)
    at = _EARLIER if earlier else _SCHEDULE
    whole, warmup = draft.count("tokens.train_steps"), draft.look(f"{at}lr_warmup_steps")
    begin, decay = draft.look(f"{at}lr_decay_starting_step"), draft.look(f"{at}lr_decay_steps")
    style = draft.word(f"{at}lr_decay_style")
    steps = [value for value in (warmup, begin, decay) if value is not None]
    if not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in steps):
        draft.lacks((*_RATE, "kind"), "a length of the schedule is no number of steps")
        return
    put_final(draft, f"{at}min_decay_lr")
    rise = draft.word(f"{at}lr_warmup_style")
    if warmup and rise == "constant":
        draft.lacks((*_RATE, "warmup_steps"), "lr_warmup_style constant: the warm-up has the full rate")
    elif warmup is not None:
        draft.put((*_RATE, "warmup_steps"), warmup, f"lr_warmup_style {rise}" if rise else "")
    stable = begin is not None and begin > (warmup or 0)
    kind = "warmup-stable-decay" if stable else {"cosine": "cosine", "linear": "linear"}.get(style or "linear", "other")
    how = "lr_decay_starting_step" if stable else f"lr_decay_style {style}" if style else Default("the default: linear")
    draft.put((*_RATE, "kind"), kind, how)
    if earlier:
        draft.lacks((*_RATE, "total_steps"), "the release that has this layout decides where its decay starts")
        return
    if decay is None and whole:
        decay = whole - (warmup or 0) - (begin or 0)
    if decay is None or decay <= 0:
        draft.lacks((*_RATE, "total_steps"), "lr_decay_steps and the steps of the job leave no decay")
        return
    length = f"the decay starts at {begin if begin is not None else warmup or 0} ({_SOURCE}/helpers.py)"
    draft.put((*_RATE, "decay_steps"), decay, length)
    draft.put((*_RATE, "total_steps"), (begin if begin is not None else warmup or 0) + decay, length)


FORMATS = (Format("nanotron-yaml", "configuration of nanotron", "TrainingPlan", looks_like, read),)
