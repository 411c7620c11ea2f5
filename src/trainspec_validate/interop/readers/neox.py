"""Reads configuration files of GPT-NeoX, which hold settings of DeepSpeed next to its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from trainspec_validate.documents.load import Source
from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import _deepspeed_plan
from trainspec_validate.interop.readers._optimizer_plan import write_neox
from trainspec_validate.interop.readers._overriding import DEEPSPEED, leave_overridden_open
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Default, Draft, Lines
from trainspec_validate.interop.readers._plan_settings import flatten, lines_in, load_mapping, top_keys
from trainspec_validate.interop.readers._position_encoding import put_word
from trainspec_validate.interop.readers._preference_pairs import double
from trainspec_validate.interop.readers._shell_unread import leave_open
from trainspec_validate.interop.readers._state_space_layers import Layers, Names, put_layers, put_state
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.values import cut_to

SOURCE = "EleutherAI/gpt-neox@ea7aefd8:configs/neox_arguments.md"
WIDTHS = "EleutherAI/gpt-neox@ea7aefd8:megatron/model/transformer.py"
_HEAD = 256 * 1024
_KEY = re.compile(r"""(?m)^[ \t{]*["']?([a-z][a-z0-9_-]{2,60})["']?[ \t]*:""")
_TOP_KEY = re.compile(r"""(?m)^["']?([a-z][a-z0-9_-]{2,60})["']?[ \t]*:""")
_BRACE = re.compile(r"(?:\s|#[^\n]*\n|---[ \t]*\n)*+\{")
"""Begin of a file whose settings stand in braces, with any indentation."""
_DEGREES = frozenset({"pipe_parallel_size", "model_parallel_size"})
_OWN = frozenset(
    {
        *("num_layers", "hidden_size", "pos_emb", "no_weight_tying", "gpt_j_residual", "attention_config"),
        *("checkpoint_factor", "lr_decay_iters", "train_iters", "train_data_paths", "output_layer_init_method"),
        *("hidden_dropout", "data_impl", "checkpoint_activations", "rotary_pct", "init_method", "norm"),
    }
)
"""Settings beside the degrees, of which a file has several."""
_SURE = frozenset(
    {
        *("checkpoint_factor", "checkpoint_validation_with_forward_pass", "keep_last_n_checkpoints"),
        *("no_weight_tying", "gpt_j_residual", "output_layer_parallelism", "output_layer_init_method"),
        *("extra_save_iters", "scaled_upper_triang_masked_softmax_fusion", "deepspeed_slurm", "deepspeed_mpi"),
        *("deepspeed_jsrun", "train_data_paths", "valid_data_paths", "test_data_paths"),
    }
)
"""Settings that no other program has; a file without the degrees has one of them."""
_OF_A_PART = frozenset(
    {
        *("data_path", "vocab_file", "merge_file", "tokenizer_type", "save", "load", "launcher", "hostfile"),
        *("tensorboard_dir", "log_dir", "use_wandb", "wandb_host", "wandb_project", "seq_length", "min_lr"),
    }
)
"""Settings of a file that holds the paths or the schedule of a job, and leaves its model to another one."""
_FEWEST = 3
_SHAPE = ("num_layers", "hidden_size")
_BATCH = ("train_micro_batch_size_per_gpu", "train_batch_size")
_NO_ATTENTION = frozenset({"mamba", "rwkv", "gmlp", "amlp"})
"""Kinds of layers of `attention_config` that have no attention of several heads."""
_KINDS = re.compile(r"(?:operator|mixer|layers?|blocks?)_(?:config|types?|kinds?|pattern)\Z|hybrid_\w*pattern\Z")
"""Names of settings of forks that list the kinds of layers, as `attention_config` does in GPT-NeoX itself."""
_OPTIMIZERS = "EleutherAI/gpt-neox@ea7aefd8:megatron/training.py"
_MAMBA = "EleutherAI/gpt-neox@ea7aefd8:megatron/model/mamba/mamba.py"
_MOST_LAYERS = 10_000
_ACTIVATIONS = ("bilinear", "geglu", "gelu", "glu", "mish", "reglu", "relu", "silu", "softsign", "swiglu", "swish")
"""Source: EleutherAI/gpt-neox@ea7aefd8:megatron/model/activations.py."""
_GATED = frozenset({"geglu", "reglu", "swiglu", "bilinear", "glu"})

PRECISION = "EleutherAI/gpt-neox@ea7aefd8:megatron/neox_arguments/arguments.py"
_SWITCHES = {"fp16": "fp16.enabled", "bfloat16": "bf16.enabled"}
"""What `precision` sets in the settings of DeepSpeed. Source: PRECISION, `calculate_derived`."""
_BUCKET = ("communication", "bucket_bytes")
_PAIRED = {"normal": False, "kto": False, "reinforce": False, "dpo": True, "rm": True}
"""Values of `train_impl`, and whether a sample is a chosen and a rejected answer.

Source: EleutherAI/gpt-neox:megatron/training.py, get_batch.
"""


def looks_like(text: ForeignText) -> bool:
    """Whether a text has the degrees of GPT-NeoX at its top, or what only it has, with other settings of it."""
    head = text.text[:_HEAD]
    found = (_KEY if _BRACE.match(head) else _TOP_KEY).findall(head)
    if head.lstrip()[:1] == "{":  # results of evaluations hold the settings of the model deep inside
        found = [*top_keys(head)] or found
    keys = {name.replace("-", "_") for name in found}
    if keys & _DEGREES:
        return len(keys & _OWN) >= _FEWEST
    return bool(keys & _SURE) and len(keys & (_SURE | _OWN | _OF_A_PART)) >= _FEWEST


def settings_of(text: ForeignText) -> dict[str, tuple[str, Any]]:
    """The settings of a file under their names with underscores, each with its own name and its value.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    return _settings(load_mapping(text, "yaml"))


def _settings(source: Source) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for name, value in flatten(source.data).items():
        plain = name.replace("-", "_")
        found["gradient_accumulation_steps" if plain == "gas" else plain] = name, value
    return found


def read(text: ForeignText, others: Mapping[str, tuple[str, Any]] = MappingProxyType({})) -> Fragment:
    """The plan that a configuration of GPT-NeoX describes, together with settings of other files of the same job.

    Raises:
        ForeignFormatError: it is no mapping.
    """
    source = load_mapping(text, "yaml")
    own = _settings(source)
    each = {**others, **own}
    values = {name: value for name, (_, value) in each.items()}
    origins = {**_switches(each), **{name: written for name, (written, _) in each.items()}}
    lines = _lines(lines_in(source), {**_switches(own), **{name: written for name, (written, _) in own.items()}})

    def make(given: dict[str, Any]) -> Draft:
        draft = Draft(_with_precision(_with_bf16(given)), lines, origins)
        _deepspeed_plan.write_plan(draft)
        draft.unknown.pop(("parallelism", "pipeline"), None)
        _write_model(draft)
        _write_degrees(draft)
        _write_overlap(draft)
        _write_precision(draft)
        _write_rest(draft)
        write_neox(draft)
        if draft.flag("use_bnb_optimizer"):
            why = "use_bnb_optimizer takes an optimizer of bitsandbytes, whose moments have 8 bits"
            draft.drop([("optimizer", "name"), ("precision", "optimizer_state")], why)
        _name_adam(draft)
        _count_pairs(draft)
        complete(draft)
        leave_overridden_open(draft, DEEPSPEED)
        _leave_part_open(draft)
        return draft

    return settled(values, make).fragment("gpt-neox-yaml", text)


def _leave_part_open(draft: Draft) -> None:
    """A file without a model or without a batch is one of several, which GPT-NeoX joins before it fills in defaults."""
    absent = [] if all(name in draft.values for name in _SHAPE) else [" and ".join(_SHAPE)]
    if not any(name in draft.values for name in _BATCH):
        absent.append(" or ".join(_BATCH))
    if not absent:
        return
    draft.remark(f"there is no {', and no '.join(absent)}: GPT-NeoX joins several files of a job; import them together")
    why = "GPT-NeoX joins this file with others of its job, which may set it"
    if draft.look("pipe_parallel_size") is None:
        draft.drop([("communication", "overlap_gradients")], why)
    leave_open(draft, why)


def _name_adam(draft: Draft) -> None:
    """Cite GPT-NeoX for its Adam, which it makes itself and does not leave to DeepSpeed."""
    name = ("optimizer", "name")
    if "adam_w_mode" in draft.derived.get(name, ""):
        draft.put(name, draft.get(*name), f"FusedAdam with adam_w_mode, the default of {_OPTIMIZERS}")
    if draft.flag("use_mup"):
        draft.drop([name], f"use_mup takes the optimizer of mup ({_OPTIMIZERS})")


def _with_bf16(given: dict[str, Any]) -> dict[str, Any]:
    """The values with a section `fp16` of the type bfloat16 under the name that DeepSpeed has for it.

    https://github.com/EleutherAI/gpt-neox/blob/main/megatron/neox_arguments/arguments.py
    """
    if str(given.get("fp16.type")).casefold() not in {"bfloat16", "bf16"}:
        return given
    return {(f"bf16.{name[5:]}" if name.startswith("fp16.") else name): value for name, value in given.items()}


def _switches(each: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """The switches of DeepSpeed that `precision` sets, with its name."""
    return dict.fromkeys(_SWITCHES.values(), each["precision"][0]) if "precision" in each else {}


def _with_precision(given: dict[str, Any]) -> dict[str, Any]:
    """The values with the switch of DeepSpeed that `precision` sets.

    It enables a section `fp16` whatever that says; a section `bf16` that is there stays as it is (PRECISION).
    """
    switch = _SWITCHES.get(str(given.get("precision")))
    is_half = switch == "fp16.enabled" and not given.get("bf16.enabled")
    is_brain = switch == "bf16.enabled" and not any(name.startswith(("fp16.", "bf16.")) for name in given)
    return {**given, switch: True} if switch and (is_half or is_brain) else given


def _lines(find: Lines, origins: Mapping[str, str]) -> Lines:
    def lines(names: Iterable[str]) -> Mapping[str, int]:
        known = [name for name in names if name in origins]
        found = find([origins[name] for name in known])
        return {name: found[origins[name]] for name in known if origins[name] in found}

    return lines


def _write_model(draft: Draft) -> None:
    if draft.look("num_layers", "hidden_size") is None:
        draft.lacks(("model", "family"), "the file does not describe the model")
        return
    experts, kinds = draft.count("moe_num_experts", "num_experts"), draft.look("attention_config")
    words = set(re.findall(r"[a-z_]+", str(kinds)[:4096]))
    others = {word for word in words if word in _NO_ATTENTION}
    plain = not others
    if experts and experts > 1:
        draft.lacks(("model", "family"), "layers with experts are not read from this file")
        draft.lacks(("model", "experts"), f"{experts} experts; their layers and widths are not read from this file")
    elif plain:
        usual = Default(f"one expert, the default of {SOURCE}")
        draft.put(("model", "family"), "dense-transformer", "" if experts else usual)
    else:
        _write_without_attention(draft, words)
    _leave_other_layers_open(draft)
    for key, names in (
        ("num_layers", ("num_layers",)),
        ("hidden_size", ("hidden_size",)),
        ("num_attention_heads", ("num_attention_heads",)),
        ("sequence_length", ("seq_length",)),
        ("num_key_value_heads", ("num_kv_heads",)),
    ):
        if ("model", key) not in draft.unknown:
            draft.copy(("model", key), *names)
    heads, hidden = draft.counted("model", "num_attention_heads"), draft.counted("model", "hidden_size")
    if heads and ("model", "num_key_value_heads") not in draft.unknown:
        draft.default(("model", "num_key_value_heads"), heads, f"no num_kv_heads, the default of {SOURCE}")
    if ("model", "gated_ffn") not in draft.unknown:
        _write_ffn(draft, hidden)
    encoding = draft.word("pos_emb")
    put_word(draft, encoding, f"pos_emb {cut_to(encoding or '', 40)}")
    untied = draft.flag("no_weight_tying")
    how = Default(f"the default of {SOURCE}") if untied is None else ""
    draft.put(("model", "tied_embeddings"), not untied, how)
    if draft.copy(("model", "vocabulary_size"), "padded_vocab_size") is None:
        draft.look("make_vocab_size_divisible_by")
        draft.lacks(("model", "vocabulary_size"), "the tokenizer defines it; the file only names the tokenizer")


def _leave_other_layers_open(draft: Draft) -> None:
    """Leave open what a list of kinds of layers decides that GPT-NeoX itself does not have."""
    name = next((name for name, value in draft.values.items() if _KINDS.search(name) and value), None)
    if name is None or name == "attention_config":
        return
    told = f"{name} names the kinds of layers, which are not those of GPT-NeoX"
    draft.look(name)
    draft.remark(told, name)
    draft.drop([("model", "family"), ("model", "attention"), ("model", "num_key_value_heads")], told)


def _write_without_attention(draft: Draft, words: set[str]) -> None:
    """The model of a file with layers that are no attention, of which `words` names all or some."""
    why = "attention_config names layers that are no attention"
    if words & _NO_ATTENTION == {"mamba"} and (layers := _of_mamba(draft)):
        if put_layers(draft, layers, "attention_config") == "hybrid" and not words <= {
            "mamba",
            "global",
            "flash",
            "all",
        }:
            draft.lacks(("model", "attention"), f"{why}, and others that are not read")
        names = Names("mamba", "d_state", "d_conv", "expansion_factor", "intermediate_size", rank="dt_rank")
        put_state(draft, names, draft.count("hidden_size"), {"d_state": 16, "d_conv": 4, "expansion_factor": 2}, _MAMBA)
        return
    draft.put(("model", "family"), "other", why)
    draft.lacks(("model", "attention"), why)
    if all(word in _NO_ATTENTION for word in words):
        for name in ("num_attention_heads", "num_kv_heads"):
            draft.look(name)
        for key in ("num_attention_heads", "num_key_value_heads", "ffn_hidden_size", "gated_ffn"):
            draft.lacks(("model", key), f"{why}: every layer is one of {', '.join(sorted(words))}")


def _of_mamba(draft: Draft) -> Layers | None:
    """The layers of `attention_config`, lists of kinds with how often each list is repeated."""
    config, whole = draft.look("attention_config"), draft.count("num_layers") or 0
    found: list[str] = []
    for part in config if isinstance(config, list) and len(config) <= _MOST_LAYERS else ():
        if not (isinstance(part, list) and len(part) == 2 and isinstance(part[0], list) and part[0]):
            return None
        kinds, times = part
        times = whole / len(kinds) if times == "all" else times
        if not (isinstance(times, int | float) and times == int(times) and 0 < times * len(kinds) <= _MOST_LAYERS):
            return None
        found += [str(kind) for kind in kinds] * int(times)
    if not found or len(found) != whole:
        return None
    attention = sum(kind != "mamba" for kind in found)
    return Layers(whole, whole - attention, attention, attention)


def _write_ffn(draft: Draft, hidden: int | None) -> None:
    """The feed-forward layer, and whether it is gated: by activation, in some versions by `mlp_type`."""
    activation, kind = draft.known(_ACTIVATIONS, "activation"), draft.word("mlp_type") or "regular"
    if kind != "regular":
        for key in ("gated_ffn", "ffn_hidden_size"):
            draft.lacks(("model", key), f"the version decides what mlp_type {cut_to(kind, 40)} is")
        return
    gated = activation in _GATED
    draft.put(("model", "gated_ffn"), gated, "" if activation else Default(f"gelu, the default of {SOURCE}"))
    _write_width(draft, activation if gated else None, hidden)


def _write_degrees(draft: Draft) -> None:
    stages = draft.look("pipe_parallel_size")
    if stages == 0:
        draft.put(("parallelism", "pipeline"), 1, "pipe_parallel_size 0: no pipeline")
    else:
        draft.copy(("parallelism", "pipeline"), "pipe_parallel_size")
        draft.default(("parallelism", "pipeline"), 1, f"no pipeline, the default of {SOURCE}")
    draft.copy(("parallelism", "tensor"), "model_parallel_size")
    draft.default(("parallelism", "tensor"), 1, f"the default of {SOURCE}")
    draft.copy(("parallelism", "context"), "context_parallel_size")
    sequence = draft.flag("sequence_parallel")
    if sequence is not None:
        draft.put(("parallelism", "sequence"), sequence)
    if (draft.counted("parallelism", "pipeline") or 1) > 1:
        draft.put(("parallelism", "schedule"), "1f1b", "DeepSpeed's pipeline runs 1F1B")
        method = draft.word("pipe_partition_method")
        draft.lacks(("parallelism", "stage_layers"), f"pipe_partition_method {method or 'type:transformer|mlp'} splits")


def _write_overlap(draft: Draft) -> None:
    """No overlap with a module of pipeline stages, which GPT-NeoX makes from one stage on.

    https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py (`_configure_zero_optimizer`)
    """
    pointer, name = ("communication", "overlap_gradients"), "zero_optimization.overlap_comm"
    if not draft.count("pipe_parallel_size") or draft.look("zero_optimization.stage") not in (1, 2):
        return
    why = "DeepSpeed switches overlap_comm off for a PipelineModule, which pipe_parallel_size of 1 and more makes"
    already = draft.get(*pointer) is False
    draft.put(pointer, value=False, how=why)
    if draft.flag(name) and not already:
        draft.remark(f"overlap_comm has no effect: {why}", name)


def _write_width(draft: Draft, gate: str | None, hidden: int | None) -> None:
    """The width of a feed-forward block; `intermediate_size` counts three matrices of a gated one as two."""
    key, size = ("model", "ffn_hidden_size"), draft.count("intermediate_size")
    if gate and size:
        multiple = draft.count("mlp_multiple_of") or 1
        width = multiple * -(-(2 * size // 3 // 2) // multiple)
        draft.put(key, width, f"a third of intermediate_size {size}, up to a multiple of {multiple}, after {WIDTHS}")
    elif draft.copy(key, "intermediate_size", "ffn_hidden_size") is not None:
        return
    elif gate:
        draft.lacks(key, f"the version decides on the width of {gate}")
    elif hidden:
        draft.default(key, 4 * hidden, f"4 times the hidden size, the default of {SOURCE}")


def _write_precision(draft: Draft) -> None:
    """`precision` sets the switches of DeepSpeed where these are left out; other words than its own stay open."""
    word = draft.word("precision")
    stated = [_SWITCHES[word]] if word in _SWITCHES else [*_SWITCHES.values()]
    if word and word != "fp32" and not any(draft.values.get(name) for name in stated):
        keys = ("compute", "parameters", "master_parameters", "gradients", "reduction", "optimizer_state")
        why = f"precision is {cut_to(word, 40)}, and no section of DeepSpeed enables it"
        draft.drop([("precision", key) for key in keys], why)
    if draft.flag("fp32_allreduce"):
        draft.put(("precision", "reduction"), "fp32", "fp32_allreduce")
        if draft.get(*_BUCKET) is not None:
            told = "fp32_allreduce: gradients are cast after they are put into buckets"
            draft.drop([_BUCKET], told)


def _count_pairs(draft: Draft) -> None:
    """Count two sequences for each sample of pairs; an unknown value of `train_impl` leaves the counts open."""
    word = draft.word("train_impl")
    for reason in draft.reasons("train_impl"):
        double(draft, f"train_impl: {reason}", sure=False)
    if word and _PAIRED.get(word) is not False:
        double(draft, f"train_impl: {cut_to(word, 40)}", sure=word in _PAIRED)


def _write_rest(draft: Draft) -> None:
    draft.copy(("job", "num_steps"), "train_iters")
    draft.copy(("job", "seed"), "seed", least=0)
    recomputed = draft.flag("checkpoint_activations")
    if recomputed and draft.look("checkpoint_num_layers") == 0:
        recomputed = False  # the interval of DeepSpeed's PipelineModule, which recomputes nothing with 0
    for reason in draft.reasons("checkpoint_activations"):
        draft.lacks(("memory", "activation_policy"), reason)
        return
    usual = Default(f"nothing is asked for; the default of {SOURCE}")
    draft.put(
        ("memory", "activation_policy"), "full" if recomputed else "none", "" if recomputed is not None else usual
    )
    draft.copy(("memory", "num_loader_workers"), "num_workers", least=0)
    interval = draft.count("checkpoint_factor")
    if interval:
        draft.remark(f"checkpoint_factor: {interval} steps between checkpoints; it belongs into a checkpoint policy")


FORMATS = (Format("gpt-neox-yaml", "configuration of GPT-NeoX", "TrainingPlan", looks_like, read),)
