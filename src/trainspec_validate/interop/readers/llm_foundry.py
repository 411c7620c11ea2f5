"""Reads configurations of LLM Foundry, which trains with Composer: model, batch, formats, sharding and schedule."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import CLIPPING, put_clipping
from trainspec_validate.interop.readers._composed import leave_composed_open
from trainspec_validate.interop.readers._composer_words import AUTOCAST, leave_ranks_open, put_sharding
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_rate, share_of
from trainspec_validate.interop.readers._overriding import COMPOSER, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import LARGEST, Default, Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, resolved
from trainspec_validate.interop.readers._position_encoding import POSITIONS
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import bare, cut_to

_MPT = "mosaicml/llm-foundry@8c8dd48f:llmfoundry/models/mpt/configuration_mpt.py"
_FSDP = "mosaicml/composer@64051888:composer/distributed/mosaic_parallelism.py"
_SCHEDULER = "mosaicml/composer@64051888:composer/optim/scheduler.py"
_HEAD = 256 * 1024
_MARKS = tuple(
    re.compile(rf"(?m)^{name}[ \t]*:")
    for name in ("model", "train_loader", "max_duration", "global_train_batch_size", "optimizer", "scheduler")
)
"""Settings at the top that each training of LLM Foundry has; a job of MosaicML's platform has them below another."""
_SHAPE = {
    "num_layers": "n_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "vocabulary_size": "vocab_size",
    "head_size": "head_dim",
}
_GATED = {"mptmlp": False, "mptglu": True}
_RATE = ("optimizer", "learning_rate")
_KINDS = {
    "cosine_with_warmup": "cosine",
    "linear_decay_with_warmup": "linear",
    "constant_with_warmup": "constant",
    "inv_sqrt_with_warmup": "inverse-square-root",
}
_TIME = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>ba|tok)")
"""A time of Composer in optimizer steps or tokens; epochs, samples and shares follow from the data or the job."""
_UNITS = {"ba": "steps", "tok": "tokens"}


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the settings of a training of LLM Foundry."""
    return all(mark.search(text.text[:_HEAD]) for mark in _MARKS)


def read(text: ForeignText) -> Fragment:
    """The plan that a configuration describes; the number of ranks is that of whatever starts it.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        run = draft.word("run_name")
        if run and name_of(run):
            draft.put(("metadata", "name"), name_of(run), "run_name")
        _write_model(draft)
        _write_batch(draft)
        _write_formats(draft)
        _write_sharding(draft)
        _write_optimizer(draft)
        _write_rest(draft)
        leave_composed_open(draft)
        complete(draft)
        leave_overridden_open(draft, COMPOSER)
        return draft

    return settled(resolved(flatten(source.data)), make).fragment("llm-foundry-yaml", text)


def _write_model(draft: Draft) -> None:
    draft.copy(("model", "sequence_length"), "max_seq_len", "train_loader.dataset.max_seq_len")
    kind = draft.word("model.name") or ""
    if kind == "mpt_causal_lm":
        _write_mpt(draft)
        return
    if kind == "hf_t5":
        draft.lacks(("batch", "global_tokens"), "the encoder and the decoder have sequences of their own")
    name = name_of(draft.word("model.pretrained_model_name_or_path") or "")
    if name:
        draft.put(("model", "name"), name, "pretrained_model_name_or_path")
    why = "the model's code or its pretrained configuration holds it, and is not read"
    for key in ("family", *_SHAPE, "ffn_hidden_size"):
        if key != "head_size":
            draft.lacks(("model", key), why)
    _write_adapters(draft)


def _write_mpt(draft: Draft) -> None:
    for key, name in _SHAPE.items():
        draft.copy(("model", key), f"model.{name}")
    usual = Default(f"the default of {_MPT}")
    tied = draft.flag("model.tie_word_embeddings")
    draft.put(("model", "tied_embeddings"), tied is not False, usual if tied is None else "")
    draft.more_parameters = "biases, norms and positions of MPT are not counted"
    _write_positions(draft)
    word = draft.word("model.ffn_config.ffn_type")
    gated = _GATED.get(word or "mptmlp")
    if gated is None or any(name.startswith("model.block_overrides") for name in draft.values):
        for key in ("family", "ffn_hidden_size", "gated_ffn", "num_key_value_heads", "num_parameters"):
            draft.lacks(("model", key), "layers of other types than mptmlp and mptglu, or unlike ones, are not read")
        return
    draft.put(("model", "family"), "dense-transformer", f"ffn_type {word}" if word else usual)
    draft.put(("model", "gated_ffn"), gated, f"ffn_type {word}" if word else usual)
    _write_heads(draft, usual)
    if draft.look("model.ffn_config.ffn_hidden_size") is not None:
        draft.copy(("model", "ffn_hidden_size"), "model.ffn_config.ffn_hidden_size")
        return
    hidden, ratio = draft.counted("model", "hidden_size"), draft.number("model.expansion_ratio")
    if hidden and not draft.reasons("model.expansion_ratio"):
        how = f"{4 if ratio is None else ratio:g} times the hidden size"
        width = int(hidden * (4 if ratio is None else ratio))
        draft.put(("model", "ffn_hidden_size"), width, Default(f"{how}, {usual}") if ratio is None else how)


def _write_positions(draft: Draft) -> None:
    """A linear bias or rotary positions, which switch off the table; the table where it is asked for."""
    rotary, table = draft.flag("model.attn_config.rope"), draft.flag("model.learned_pos_emb")
    if draft.flag("model.attn_config.alibi") or rotary:
        draft.put(POSITIONS, "rotary" if rotary else "linear-bias", f"attn_config.{'rope' if rotary else 'alibi'}")
    elif table is not None:
        draft.put(POSITIONS, "learned" if table else "none", f"learned_pos_emb {str(table).lower()}")


def _write_heads(draft: Draft, usual: Default) -> None:
    """Heads of keys and values, by the type of attention."""
    kind = draft.word("model.attn_config.attn_type")
    heads = draft.counted("model", "num_attention_heads")
    if kind == "grouped_query_attention":
        draft.copy(("model", "num_key_value_heads"), "model.attn_config.kv_n_heads")
    elif kind == "multiquery_attention":
        draft.put(("model", "num_key_value_heads"), 1, f"attn_type {kind}")
    elif kind in {None, "multihead_attention"} and heads:
        draft.put(("model", "num_key_value_heads"), heads, f"attn_type {kind}" if kind else usual)
    elif kind:
        draft.lacks(("model", "num_key_value_heads"), f"attn_type {cut_to(kind, 40)} is not read")


def _write_adapters(draft: Draft) -> None:
    if (draft.word("model.peft_config.peft_type") or "").upper() == "LORA":
        draft.copy(("lora", "rank"), "model.peft_config.r")
        alpha = draft.number("model.peft_config.lora_alpha")
        if alpha is not None:
            draft.put(("lora", "alpha"), alpha)
        draft.lacks(("lora", "targets"), "target_modules are names of the model's code, which is not read")


def _write_batch(draft: Draft) -> None:
    draft.copy(("batch", "global_sequences"), "global_train_batch_size")
    if draft.look("device_train_microbatch_size") == "auto":
        draft.lacks(("batch", "micro_sequences"), "device_train_microbatch_size is auto: found while the job runs")
    else:
        draft.copy(("batch", "micro_sequences"), "device_train_microbatch_size")
        if draft.get("batch", "micro_sequences") is not None:
            draft.remark(
                "the program lowers it where a rank's share of the global batch is smaller",
                "device_train_microbatch_size",
            )
    leave_ranks_open(draft)
    draft.lacks(("batch", "loss_reduction"), "the release of Composer decides how losses are averaged")


def _write_formats(draft: Draft) -> None:
    word, mixed = draft.word("precision") or "", (draft.word("fsdp_config.mixed_precision") or "").upper()
    found = AUTOCAST.get(word)
    if word == "fp32":
        draft.put(("precision", "compute"), "fp32", "precision fp32")
    elif found:
        draft.put(("precision", "compute"), found, f"precision {word}")
    if found and mixed in {"PURE", "DEFAULT"}:
        how = f"fsdp_config.mixed_precision {mixed} ({_FSDP})"
        for key in ("parameters", "gradients"):
            draft.put(("precision", key), found, how)
        draft.put(("precision", "reduction"), found if mixed == "PURE" else "fp32", how)
    else:
        why = "precision and fsdp_config.mixed_precision decide it, and one of them is not known"
        for key in ("parameters", "gradients", "reduction"):
            draft.lacks(("precision", key), why)
    for key in ("master_parameters", "optimizer_state", "accumulation"):
        draft.lacks(("precision", key), "the format in which the model is made decides it, and is not stated")


def _write_sharding(draft: Draft) -> None:
    kind = draft.word("fsdp_config.sharding_strategy") or ""
    put_sharding(draft, kind, ("", "no sharding_strategy is given: the release of Composer has a default"))
    if any(name.startswith(("tp_config", "fsdp_config.te_")) for name in draft.values):
        draft.lacks(("parallelism", "tensor"), "tp_config sets it, and is not read")
    flag = draft.flag("fsdp_config.activation_checkpointing")
    partly = draft.look("model.activation_checkpointing_target", "fsdp_config.activation_cpu_offload")
    if flag is None or partly not in (None, False):
        why = "activation_checkpointing, its target or an offload leaves open which layers are recomputed"
        draft.lacks(("memory", "activation_policy"), why)
    else:
        draft.put(("memory", "activation_policy"), "full" if flag else "none", f"activation_checkpointing {flag}")


def _write_optimizer(draft: Draft) -> None:
    word = draft.word("optimizer.name")
    if word:
        plain = word.removeprefix("decoupled_")
        draft.put(("optimizer", "name"), optimizer_name("lion" if plain == "lionw" else plain), f"the optimizer {word}")
    kind = draft.word("algorithms.gradient_clipping.clipping_type")
    if kind == "norm":
        put_clipping(draft, (0.0, ""), "algorithms.gradient_clipping.clipping_threshold")
    elif kind:
        draft.lacks(CLIPPING, f"clipping_type {cut_to(kind, 40)} is no bound on the global norm")
    peak = put_rate(draft, "optimizer.lr")
    if peak is None:
        return
    word = draft.word("scheduler.name") or ""
    form = _KINDS.get(word, "other")
    draft.put((*_RATE, "kind"), form, f"the schedule {cut_to(word, 60)}")
    _put_time(draft, "warmup", "scheduler.t_warmup")
    if form in {"cosine", "linear"}:
        share = draft.number("scheduler.alpha_f")
        how = f"alpha_f {share or 0:g} of the peak"
        how = Default(f"{how}, the default of {_SCHEDULER}") if share is None else how
        draft.put((*_RATE, "final"), share_of(share or 0.0, peak), how)
        whole = draft.look("scheduler.t_max") in (None, "1dur")
        _put_time(draft, "total", "max_duration" if whole else "scheduler.t_max")


def _put_time(draft: Draft, key: str, name: str) -> None:
    """A time of the schedule in steps or tokens; one in epochs, samples or a share of the job is left open."""
    value = draft.look(name)
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found and int(found["number"]) <= LARGEST:
        draft.put((*_RATE, f"{key}_{_UNITS[found['unit']]}"), int(found["number"]), f"{name} {value}")
    elif value is not None:
        draft.lacks(
            (*_RATE, f"{key}_steps"), f"{name} {cut_to(bare(value), 40)}: the data or the length of the job decides"
        )


def _write_rest(draft: Draft) -> None:
    draft.copy(("job", "seed"), "seed", least=0)
    draft.copy(("memory", "num_loader_workers"), "train_loader.num_workers", least=0)
    draft.copy(("communication", "timeout_seconds"), "dist_timeout")
    length = draft.look("max_duration")
    found = _TIME.fullmatch(length) if isinstance(length, str) else None
    resumed = draft.look("load_path") is not None and not draft.flag("load_weights_only")
    if found and 1 <= int(found["number"]) <= LARGEST and not resumed:
        key = "num_steps" if found["unit"] == "ba" else "num_tokens"
        draft.put(("job", key), int(found["number"]), f"max_duration {length}")
    else:
        draft.lacks(
            ("job", "num_steps"), f"max_duration {cut_to(str(length), 40)}: data or steps of an earlier job decide"
        )


FORMATS = (Format("llm-foundry-yaml", "configuration of LLM Foundry", "TrainingPlan", looks_like, read),)
