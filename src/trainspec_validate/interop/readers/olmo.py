"""Reads configurations of the OLMo trainer: model, batch, formats, sharding and schedule."""

from __future__ import annotations

import math
import re
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._composer_words import AUTOCAST, leave_ranks_open, put_sharding
from trainspec_validate.interop.readers._optimizer_plan import optimizer_name, put_rate, share_of
from trainspec_validate.interop.readers._overriding import OLMO, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import LARGEST, Default, Draft, name_of
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping
from trainspec_validate.interop.readers._position_encoding import POSITIONS
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

_SOURCE = "allenai/OLMo@59a53e3f:olmo/config.py"
_HEAD = 256 * 1024
_MARKS = (
    r"(?m)^model[ \t]*:",
    r"(?m)^global_train_batch_size[ \t]*:",
    r"(?m)^max_duration[ \t]*:",
    r"(?m)^[ \t]+activation_type[ \t]*:",
    r"(?m)^[ \t]+(?:block_type|layer_norm_type)[ \t]*:",
)
"""Settings of which programs of Composer, which have the second and the third too, have not the others."""
_SHAPE = {"num_layers": "n_layers", "hidden_size": "d_model", "num_attention_heads": "n_heads"}
_RATE = ("optimizer", "learning_rate")
_KINDS = {
    "cosine_with_warmup": "cosine",
    "linear_with_warmup": "linear",
    "inverse_sqrt_with_warmup": "inverse-square-root",
    "constant": "constant",
    "constant_with_warmup": "constant",
}


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the settings of a job of the OLMo trainer."""
    return all(re.search(mark, text.text[:_HEAD]) for mark in _MARKS)


def read(text: ForeignText) -> Fragment:
    """The plan that a configuration describes; the number of ranks is that of whatever starts it.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text)

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines_in(source))
        run = name_of(draft.word("run_name") or "")
        if run:
            draft.put(("metadata", "name"), run, "run_name")
        _write_model(draft)
        _write_batch(draft)
        _write_formats(draft)
        _write_sharding(draft)
        _write_optimizer(draft)
        _write_rest(draft)
        complete(draft)
        leave_overridden_open(draft, OLMO)
        return draft

    return settled(flatten(source.data), make).fragment("olmo-yaml", text)


def _write_model(draft: Draft) -> None:
    for key, name in _SHAPE.items():
        draft.copy(("model", key), f"model.{name}")
    draft.copy(("model", "sequence_length"), "model.max_sequence_length")
    heads, groups = draft.counted("model", "num_attention_heads"), draft.look("model.n_kv_heads")
    if draft.flag("model.multi_query_attention"):
        draft.put(("model", "num_key_value_heads"), 1, "multi_query_attention")
    elif groups is not None:
        draft.copy(("model", "num_key_value_heads"), "model.n_kv_heads")
    elif heads:
        draft.default(("model", "num_key_value_heads"), heads, f"no n_kv_heads, the default of {_SOURCE}")
    table = "model.embedding_size" if draft.look("model.embedding_size") is not None else "model.vocab_size"
    draft.look("model.vocab_size")
    draft.copy(("model", "vocabulary_size"), table)
    tied = draft.flag("model.weight_tying")
    how = Default(f"the default of {_SOURCE}") if tied is None else ""
    draft.put(("model", "tied_embeddings"), tied is not False, how)
    _write_positions(draft)
    kind = draft.word("model.block_type") or "sequential"
    if kind not in {"sequential", "llama"}:
        for key in ("family", "ffn_hidden_size", "num_parameters"):
            draft.lacks(("model", key), f"blocks of type {cut_to(kind, 40)} are not read")
        return
    draft.put(("model", "family"), "dense-transformer", f"block_type {kind}")
    _write_ffn(draft)
    _count_more(draft)


def _write_positions(draft: Draft) -> None:
    """Rotary positions or a linear bias where one is on, and a table where both are said to be off."""
    rotary, biased = draft.flag("model.rope"), draft.flag("model.alibi")
    if rotary or biased:
        draft.put(POSITIONS, "rotary" if rotary else "linear-bias", "rope" if rotary else "alibi")
    elif rotary is False and biased is False:
        draft.put(POSITIONS, "learned", "neither rope nor alibi")


def _write_ffn(draft: Draft) -> None:
    """The width after the gate: `mlp_hidden_size` counts the gate and what it is multiplied with."""
    kind = draft.known(("gelu", "relu", "swiglu"), "model.activation_type") or "swiglu"
    hidden = draft.counted("model", "hidden_size")
    ratio, width = draft.count("model.mlp_ratio"), draft.count("model.mlp_hidden_size")
    if width is None and hidden:
        width = hidden * (ratio or 4)
    draft.put(("model", "gated_ffn"), kind == "swiglu", f"activation_type {cut_to(kind, 40)}")
    if width and kind == "swiglu":
        draft.divide(("model", "ffn_hidden_size"), width, 2, "half of mlp_hidden_size, which counts the gate too")
    elif width:
        draft.put(("model", "ffn_hidden_size"), width)


def _count_more(draft: Draft) -> None:
    """Norms of queries and keys; what else the shape leaves out leaves the parameters open."""
    affine = draft.flag("model.layer_norm_with_affine") is not False
    biased = draft.flag("model.include_bias") is not False or draft.flag("model.bias_for_layer_norm") is not False
    rotary, kind = draft.flag("model.rope"), draft.word("model.layer_norm_type")
    norms, weighed = (draft.flag(f"model.attention_layer_norm{end}") for end in ("", "_with_affine"))
    if biased or not affine or not rotary or kind not in {"rms", "default"}:
        draft.more_parameters = "biases, norms and positions with these settings are not counted"
    elif norms and weighed is not False:
        hidden, heads = draft.counted("model", "hidden_size"), draft.counted("model", "num_attention_heads")
        groups, layers = draft.counted("model", "num_key_value_heads"), draft.counted("model", "num_layers")
        if hidden and heads and groups and layers:
            more = layers * (hidden + hidden // heads * groups)
            draft.more_parameters = (more, more)


def _write_batch(draft: Draft) -> None:
    draft.copy(("batch", "global_sequences"), "global_train_batch_size")
    draft.copy(("batch", "micro_sequences"), "device_train_microbatch_size")
    leave_ranks_open(draft)
    draft.lacks(("batch", "loss_reduction"), "the trainer decides how losses are averaged")


def _write_formats(draft: Draft) -> None:
    word = draft.word("precision") or ""
    found, sharded = AUTOCAST.get(word), draft.word("distributed_strategy") in {None, "fsdp"}
    mixed, given = draft.word("fsdp.precision"), any(name.startswith("fsdp.") for name in draft.values)
    if word == "fp32":
        for key in ("compute", "parameters", "gradients"):
            draft.put(("precision", key), "fp32", "precision fp32")
        return
    if found is None or not (sharded and given) or mixed not in {"mixed", "pure"}:
        for key in ("parameters", "gradients"):
            draft.lacks(("precision", key), "precision and fsdp.precision decide it, and one of them is not known")
        if found:
            draft.put(("precision", "compute"), found, f"precision {word}")
        return
    for key in ("compute", "parameters", "gradients"):
        draft.put(("precision", key), found, f"precision {word}, to which FSDP casts shards ({_SOURCE})")
    draft.put(("precision", "master_parameters"), "fp32", "FSDP keeps shards in the format that they are made in")
    draft.put(("precision", "reduction"), "fp32" if mixed == "mixed" else found, f"fsdp.precision {mixed}")


def _write_sharding(draft: Draft) -> None:
    strategy = draft.known(("ddp", "fsdp", "single"), "distributed_strategy")
    kind = draft.word("fsdp.sharding_strategy")
    if strategy in {"ddp", "single"}:
        draft.put(("parallelism", "sharding"), "none", f"distributed_strategy {strategy}")
    else:
        put_sharding(draft, kind or "", ("parameters", f"FULL_SHARD, the default of {_SOURCE}"))


def _write_optimizer(draft: Draft) -> None:
    name = (draft.word("optimizer.name") or "").removesuffix("w") or "adam"
    word = draft.word("optimizer.name")
    if word:
        draft.put(("optimizer", "name"), "lion" if name == "lion" else optimizer_name(word))
    put_clipping(draft, (0.0, ""), "max_grad_norm")
    if draft.look("max_grad_norm_ratio") is not None:
        draft.lacks(("optimizer", "clipping"), "max_grad_norm_ratio bounds the norm by its own mean")
    peak = put_rate(draft, "optimizer.learning_rate")
    if peak is not None:
        _write_schedule(draft, peak)


def _write_schedule(draft: Draft, peak: float) -> None:
    word, units = draft.word("scheduler.name") or "cosine_with_warmup", draft.word("scheduler.units") or "steps"
    kind = _KINDS.get(word, "other")
    draft.put((*_RATE, "kind"), kind, f"the schedule {cut_to(word, 60)}")
    if units not in {"steps", "tokens"}:
        return
    for key, name in (("warmup", "t_warmup"), ("total", "t_max")):
        if kind != "constant" or (key == "warmup" and word != "constant"):
            draft.copy((*_RATE, f"{key}_{units}"), f"scheduler.{name}", least=0)
    share = draft.number("scheduler.alpha_f")
    if kind in {"cosine", "linear"}:
        how = f"alpha_f {0.1 if share is None else share:g} of the peak"
        final = share_of(0.1 if share is None else share, peak)
        draft.put((*_RATE, "final"), final, Default(f"{how}, the default") if share is None else how)


def _write_rest(draft: Draft) -> None:
    draft.copy(("job", "seed"), "seed", least=0)
    length = draft.look("max_duration")
    tokens = re.fullmatch(r"([0-9.]{1,20}(?:e[0-9]{1,2})?)T", length) if isinstance(length, str) else None
    whole = _number(tokens[1]) if tokens else None
    if isinstance(length, int):
        draft.copy(("job", "num_steps"), "max_duration")
    elif whole and (draft.look("load_path") is None or draft.flag("reset_trainer_state")):
        draft.put(("job", "num_tokens"), whole, f"max_duration {length}")
    else:
        draft.lacks(
            ("job", "num_steps"), f"max_duration {cut_to(str(length), 40)}: data or tokens of an earlier job decide"
        )
    mode = draft.look("activation_checkpointing")
    if "activation_checkpointing" in draft.values:
        policy = {None: "none", "none": "none", False: "none", "whole_layer": "full", True: "full"}
        found = policy.get(mode) if isinstance(mode, str | bool | None) else None
        if found:
            draft.put(("memory", "activation_policy"), found, f"activation_checkpointing {mode}")
        else:
            draft.lacks(
                ("memory", "activation_policy"), f"activation_checkpointing {cut_to(str(mode), 40)}: some layers"
            )


def _number(word: str) -> int | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and 1 <= value <= LARGEST else None


FORMATS = (Format("olmo-yaml", "configuration of the OLMo trainer", "TrainingPlan", looks_like, read),)
