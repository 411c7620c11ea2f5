"""Turns settings of MaxText, by their names, into parts of a plan."""

from __future__ import annotations

import math

from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._latent_attention import count_latent
from trainspec_validate.interop.readers._maxtext_mesh import Axes
from trainspec_validate.interop.readers._optimizer_plan import put_name, share_of
from trainspec_validate.interop.readers._plan_parts import LARGEST, Default, Draft, like, name_of, shown
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

BASE = "AI-Hypercomputer/maxtext@000e9355:MaxText/configs/base.yml"
_FORMATS = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
_POLICIES = {"full": "full", "minimal_offloaded": "offload", "qkv_proj_offloaded": "offload", "none": "none"}
_SELECTIVE = ("minimal", "save_", "custom_save")


_BLOCKS = "AI-Hypercomputer/maxtext@e591f30c:src/maxtext/models/gemma2.py"
_PLAIN_BLOCKS = frozenset(
    {
        *("default", "llama2", "mistral", "mixtral", "deepseek", "gemma", "gemma3", "qwen2", "qwen3", "qwen3_moe"),
        *("qwen3_custom_moe", "gpt3", "gpt_oss", "llama4", "olmo3", "envy", "gemma2"),
    }
)
"""Kinds of blocks whose parameters follow from their sizes."""
_LATENT_NAMES = {"head": "qk_nope_head_dim", "rotary": "qk_rope_head_dim", "value": "v_head_dim"}
_RATE = ("optimizer", "learning_rate")
_KINDS = {"cosine": "cosine", "wsd": "warmup-stable-decay", "constant": "constant"}
_SHARES = ("cosine_learning_rate_final_fraction", "learning_rate_final_fraction")
_TOTAL = "learning_rate_schedule_steps"
_ALL = ("opt_type", "gradient_clipping_threshold", "warmup_steps_fraction", _SHARES[0], _TOTAL)
"""Settings that a file has together which states everything, such as base.yml or a log."""


def write_plan(draft: Draft, axes: Axes) -> None:
    """Everything that settings say of model, degrees, batch, formats and memory."""
    write_model(draft)
    _write_degrees(draft, axes)
    _write_batch(draft, axes)
    _write_precision(draft)
    _write_memory(draft)
    run = draft.word("run_name")
    if run and name_of(run):
        draft.put(("metadata", "name"), name_of(run))
    inherits = draft.look("steps") == -1
    draft.copy(("job", "num_steps"), "learning_rate_schedule_steps" if inherits else "steps")
    _write_optimizer(draft)
    draft.copy(("job", "seed"), "init_weights_seed", least=0)
    period = draft.count("checkpoint_period")
    if period and draft.flag("enable_checkpointing") is not False:
        draft.remark(f"a checkpoint every {period} steps; it belongs into a checkpoint policy", "checkpoint_period")


def follows_from_defaults(draft: Draft, axes: Axes) -> list[Pointer]:
    """Facts that rest on settings which the source does not name."""
    given = {name for name, value in draft.values.items() if value is not None}
    found: list[Pointer] = []
    if not axes.stated >= axes.degrees.keys():
        found += [("parallelism", "data"), ("parallelism", "sharding_degree"), ("parallelism", "num_accelerators")]
    if not axes.stated >= {"tensor", "context", "pipeline"}:
        found.append(("batch", "micro_sequences"))
    if "fsdp" not in axes.stated:
        found.append(("parallelism", "sharding"))
    if "gradient_accumulation_steps" not in given or "pipeline" not in axes.stated:
        found.append(("batch", "accumulation_steps"))
    if "dtype" not in given:
        found.append(("precision", "high_precision_operations"))
    if "weight_dtype" not in given:
        keys = ("parameters", "master_parameters", "gradients", "reduction", "accumulation", "optimizer_state")
        found += [("precision", key) for key in keys]
    return [place for place in found if draft.get(*map(str, place)) is not None]


_SIZES = (
    ("num_layers", "num_decoder_layers", 0),
    ("hidden_size", "emb_dim", 1),
    ("num_attention_heads", "num_query_heads", 2),
    ("num_key_value_heads", "num_kv_heads", 2),
    ("ffn_hidden_size", "mlp_dim", 2),
)
"""Key, setting without `base_`, and from which remainder of the scale on it doubles once more."""
SIZES = tuple(key for key, _, _ in _SIZES)


def write_model(draft: Draft) -> None:
    """The shape of the model, where the settings hold it."""
    name = draft.word("model_name")
    if name and name != "default" and name_of(name):
        draft.put(("model", "name"), name_of(name))
    _write_sizes(draft)
    _write_block(draft)
    if draft.copy(("model", "head_size"), "head_dim") is None and draft.get("model", "hidden_size"):
        told = "head_dim is in the file of the model or in base.yml; MaxText does not divide the width by the heads"
        draft.lacks(("model", "head_size"), told)
    draft.copy(("model", "vocabulary_size"), "vocab_size")
    draft.copy(("model", "sequence_length"), "max_target_length")
    activations = draft.look("mlp_activations")
    if isinstance(activations, list):
        draft.put(("model", "gated_ffn"), len(activations) > 1, "two activations make a gate")
    elif draft.get("model", "ffn_hidden_size"):
        draft.lacks(("model", "gated_ffn"), "mlp_activations is in the file of the model or in base.yml")
    tied = draft.flag("logits_via_embedding")
    if tied is not None:
        draft.put(("model", "tied_embeddings"), tied)
    kind = draft.word("attention_type")
    if kind == "mla":
        _write_latent(draft)
    layers, size = draft.counted("model", "num_layers"), draft.counted("model", "head_size")
    normed = sum(draft.flag(name) is True for name in ("use_post_attn_norm", "use_post_ffw_norm"))
    width = normed * (draft.counted("model", "hidden_size") or 0)
    width += 2 * (size or 0) if draft.flag("use_qk_norm") else 0
    draft.more_parameters = (layers or 0) * width, (layers or 0) * width
    if draft.count("sliding_window_size") and draft.word("decoder_block") not in _WHOLE_BLOCKS:
        told = f"some layers have a window of {draft.count('sliding_window_size')} tokens, the others have none"
        draft.lacks(("model", "attention"), told)
    _write_experts(draft)


def settings_of_a_model() -> frozenset[str]:
    """The settings that describe a model whatever its kind: those that a file of a model is read for."""
    draft = Draft({"base_emb_dim": 1})
    write_model(draft)
    return frozenset(draft.used)


def _write_sizes(draft: Draft) -> None:
    """The sizes of the model, with the factor of global_parameter_scale where only the base is set."""
    scale = draft.count("global_parameter_scale") or 1
    thirds, rest = divmod(scale.bit_length() - 1, 3)
    if scale & (scale - 1):
        draft.remark(f"global_parameter_scale is {scale}, where a power of 2 belongs", "global_parameter_scale")
    for key, setting, order in _SIZES:
        if draft.copy(("model", key), setting) is None:
            value = draft.copy(("model", key), f"base_{setting}")
            factor = 2 ** min(thirds + (rest > 0 if order == 2 else rest > 1 if order == 1 else 0), 40)
            if value and scale > 1 and value * factor <= LARGEST:
                draft.put(
                    ("model", key), value * factor, f"base_{setting} x {factor}, by global_parameter_scale {scale}"
                )
        if draft.get("model", key) is None and key != "num_key_value_heads":
            draft.lacks(("model", key), "it is in the file of the model or in base.yml, which are not read")


_WHOLE_BLOCKS = frozenset({None, "llama2", "mistral", "mixtral", "gpt3", "deepseek", "qwen3", "qwen3_moe", "gemma"})
"""Kinds of blocks without windows, whatever their size is set to."""


def _write_block(draft: Draft) -> None:
    """What the kind of block changes: two layers in one of gemma2, or a block that is no plain transformer."""
    block = draft.word("decoder_block")
    layers = draft.counted("model", "num_layers")
    if block == "gemma2" and layers and layers <= LARGEST // 2:
        how = f"{layers} blocks of gemma2, each a layer with local and one with global attention ({_BLOCKS})"
        draft.put(("model", "num_layers"), 2 * layers, how)
    elif block is not None and block not in _PLAIN_BLOCKS:
        draft.lacks(("model", "family"), f"decoder_block {block[:40]!r} is no plain transformer block")
    if draft.look("vision_encoder_block"):
        draft.remark("only the decoder of several parts is read", "vision_encoder_block")


def _write_latent(draft: Draft) -> None:
    draft.put(("model", "attention"), "latent")
    count_latent(draft, lambda key: _LATENT_NAMES.get(key, key))


def _write_experts(draft: Draft) -> None:
    experts = draft.count("num_experts") or 1
    known = ("model", "family") not in draft.unknown
    if experts == 1:
        if known and draft.get("model", "num_layers") is not None:
            draft.put(("model", "family"), "dense-transformer", Default("no experts are asked for"))
        return
    if known:
        draft.put(("model", "family"), "moe-transformer")
    draft.put(("model", "experts", "num_experts"), experts)
    draft.copy(("model", "experts", "num_active_experts"), "num_experts_per_tok")
    width, dense = draft.count("moe_mlp_dim", "base_moe_mlp_dim"), draft.counted("model", "ffn_hidden_size")
    how = "" if width else Default("as the feed-forward width")
    draft.put(("model", "experts", "ffn_hidden_size"), width or dense, how)
    shared = draft.count("shared_experts")
    if shared:
        draft.put(("model", "experts", "num_shared_experts"), shared)
    first, layers = draft.count("first_num_dense_layers"), draft.counted("model", "num_layers")
    if first and layers and first < layers:
        draft.put(("model", "experts", "num_layers"), layers - first, "layers without the first dense ones")
    step = draft.count("interleave_moe_layer_step") or 1
    if step > 1 and layers:
        draft.put(("model", "experts", "num_layers"), layers // step, f"every {step}th layer has experts")


def _write_degrees(draft: Draft, axes: Axes) -> None:
    degrees = axes.degrees
    why = "an axis takes the devices that are left over, and the settings do not say how many there are"
    for axis in ("tensor", "context", "pipeline", "expert"):
        if degrees[axis] is None:
            draft.lacks(("parallelism", axis), why)
        elif axis != "expert" or draft.get("model", "experts") or (degrees[axis] or 1) > 1:
            how = "inside slices x between slices"
            draft.put(("parallelism", axis), degrees[axis], how if axis in axes.stated else Default(how))
    if (degrees["expert"] or 1) > 1 and not draft.get("model", "experts"):
        draft.drop([("model", "family"), ("model", "experts")], "an axis of experts is asked for, but no experts are")
    parts = [degrees[kind] for kind in ("data", "fsdp", "expert")]
    if None in parts:
        draft.lacks(("parallelism", "data"), why)
    else:
        how = "data x fsdp x expert axes"
        how = how if axes.stated & {"data", "fsdp", "expert"} else Default(how)
        draft.put(("parallelism", "data"), math.prod(part for part in parts if part), how)
    if axes.splits_sequence:
        draft.put(("parallelism", "sequence"), value=True, how="the axis tensor_sequence")
    _write_sharding(draft, axes)
    stages = degrees["pipeline"] or 1
    if stages > 1:
        repeats = draft.count("num_pipeline_repeats")
        per_stage = draft.count("num_layers_per_pipeline_stage") or 1
        layers = draft.counted("model", "num_layers")
        if repeats is None and layers:
            how = "layers over stages and layers of a stage"
            repeats = draft.divide(("parallelism", "num_virtual_stages"), layers, stages * per_stage, how)
        elif repeats:
            draft.put(("parallelism", "num_virtual_stages"), repeats)
        if repeats is None:
            draft.lacks(("parallelism", "schedule"), "the number of repeats of the stages is not known")
        else:
            schedule = "gpipe" if repeats == 1 else "other"
            draft.put(("parallelism", "schedule"), schedule, "MaxText repeats stages in a circle")


def _write_sharding(draft: Draft, axes: Axes) -> None:
    degrees = axes.degrees
    shards = degrees["fsdp"]
    if shards == 1 and (degrees["expert"] != 1 or degrees["context"] != 1):
        why = "logical_axis_rules of base.yml say whether axes of experts or sequences shard parameters, as fsdp does"
        draft.lacks(("parallelism", "sharding"), why)
    elif shards == 1:
        how = "no fsdp axis"
        draft.put(("parallelism", "sharding"), "none", how if "fsdp" in axes.stated else Default(how))
    else:
        draft.put(("parallelism", "sharding"), "parameters", "the fsdp axes")
        copies = degrees["data"] != 1
        if shards and copies and degrees["expert"] == degrees["context"] == 1:
            draft.put(("parallelism", "sharding_degree"), shards, "the fsdp axes; the data axis holds copies")
        elif copies:
            why = "the data axis holds copies; logical_axis_rules say which axes besides fsdp share one"
            draft.lacks(("parallelism", "sharding_degree"), why)


def _write_batch(draft: Draft, axes: Axes) -> None:
    each = draft.number("per_device_batch_size")
    pieces = draft.count("gradient_accumulation_steps") or 1
    stages = axes.degrees["pipeline"] or 1
    if stages > 1:
        pieces *= draft.count("num_pipeline_microbatches") or stages
    inner = [axes.degrees[kind] for kind in ("tensor", "context", "pipeline")]
    if draft.get("batch", "accumulation_steps") is None:
        how = "gradient accumulation x micro-batches of the pipeline" if stages > 1 else "gradient accumulation"
        draft.put(("batch", "accumulation_steps"), pieces, how)
    if draft.flag("enable_rampup_batch_size"):
        draft.remark("the batch grows at the start; the ramp is not taken over", "enable_rampup_batch_size")
    if each is None:
        draft.copy(("batch", "micro_sequences"), "per_device_batch_size")
        return
    if None in inner:
        return
    split = draft.count("num_pipeline_microbatches") or stages if stages > 1 else 1
    micro = each * math.prod(part for part in inner if part) / split
    if micro >= 1 and micro == int(micro) and micro <= LARGEST:
        how = f"{each:g} sequences of a device x devices that share a sequence"
        draft.put(("batch", "micro_sequences"), int(micro), how)
    else:
        why = f"{each:g} sequences of a device make {micro:g} sequences of a data rank, which is no whole number"
        draft.lacks(("batch", "micro_sequences"), why)
        draft.remark(why, "per_device_batch_size")


def _write_precision(draft: Draft) -> None:
    compute, stored = draft.word("dtype"), draft.word("weight_dtype")
    usual = Default(f"the default of {BASE}")
    how = {"compute": "" if compute else usual, "stored": "" if stored else usual}
    compute_format, stored_format = _FORMATS.get(compute or "bfloat16"), _FORMATS.get(stored or "float32")
    if compute_format is None or stored_format is None:
        draft.remark(f"the number format {compute} or {stored} is not known")
        draft.lacks(("precision", "compute"), "the number format is not known")
        return
    draft.put(("precision", "compute"), compute_format, how["compute"])
    if compute_format != stored_format:
        draft.put(("precision", "parameters"), compute_format, like(how["compute"], "cast where a layer reads them"))
        draft.put(("precision", "master_parameters"), stored_format, how["stored"] or "the stored format")
    else:
        draft.put(("precision", "parameters"), stored_format, how["stored"])
    cast = _FORMATS.get(draft.word("grad_dtype") or "")
    same = like(how["stored"], "gradients have the format of the stored parameters")
    for key in ("gradients", "reduction"):
        draft.put(("precision", key), stored_format, same)
    if cast not in {None, stored_format} and stored_format == "fp32":
        draft.put(("precision", "gradients"), cast, "grad_dtype, to which the step casts them once they are summed")
        draft.put(("precision", "accumulation"), stored_format, same)
    moments = _FORMATS.get(draft.word("mu_dtype") or "")
    words = "the format of the stored parameters"
    if moments in {None, stored_format}:
        draft.put(("precision", "optimizer_state"), stored_format, words if moments else like(how["stored"], words))
    else:
        told = f"mu_dtype {moments} is the format of the first moment alone; the second has {stored_format}"
        draft.lacks(("precision", "optimizer_state"), told)
    if compute_format != "fp32":
        words = "MaxText normalises in fp32 and casts logits to fp32; the attention kernel keeps its softmax there"
        draft.put(("precision", "high_precision_operations"), ["softmax", "normalization", "loss"], words)
    _write_recipe(draft)


def _write_recipe(draft: Draft) -> None:
    kind = draft.word("quantization")
    if kind == "int8":
        draft.put(("precision", "recipe", "format"), "int8")
        draft.put(("precision", "recipe", "scaling"), "current", "the largest magnitude is found on the spot")
        draft.put(("precision", "recipe", "scaling_state_checkpointed"), value=False, how="there is no scaling state")
    elif kind and kind.startswith(("fp8", "nanoo_fp8")):
        draft.put(("precision", "recipe", "format"), "fp8-hybrid", f"quantization {kind}")
        draft.lacks(("precision", "recipe", "scaling"), f"the library behind quantization {kind} decides")
    elif kind:
        draft.remark(f"quantization {kind[:40]!r} is not known", "quantization")
        draft.lacks(("precision", "recipe"), f"quantization {kind[:40]!r} is not known")
        return
    if kind:
        layers = ("precision", "recipe", "high_precision_layers")
        draft.lacks(layers, "the settings do not list the layers that are left out")


def _write_memory(draft: Draft) -> None:
    policy = draft.word("remat_policy")
    entries = [
        {"what": what, "target": "host", "fraction": 1.0}
        for what, name in (
            ("optimizer", "optimizer_memory_host_offload"),
            ("parameters", "parameter_memory_host_offload"),
        )
        if draft.flag(name)
    ]
    if entries:
        draft.put_records(("memory", "offload"), entries)
    if policy in _POLICIES:
        draft.put(("memory", "activation_policy"), _POLICIES[policy])
    elif policy and policy.startswith(_SELECTIVE):
        draft.put(("memory", "activation_policy"), "selective", f"remat_policy {cut_to(policy, 60)} keeps some results")
    elif policy or entries:
        draft.lacks(("memory", "activation_policy"), f"remat_policy is {shown(policy)}")


def _write_optimizer(draft: Draft) -> None:
    """Everything that settings say of the optimizer; what they leave out is in base.yml, and stays open."""
    draft.lacks(("job", "num_steps"), _missing("steps"))
    put_name(draft, ("", ""), "opt_type")
    draft.lacks(("optimizer", "name"), _missing("opt_type"))
    put_clipping(draft, (0.0, ""), "gradient_clipping_threshold")
    if draft.values.get("gradient_clipping_threshold") is None:
        draft.lacks(("optimizer", "clipping"), _missing("gradient_clipping_threshold"))
    peak = draft.number("learning_rate")
    if peak is not None and peak > 0:
        draft.put((*_RATE, "peak"), peak)
    for reason in draft.reasons("learning_rate"):
        draft.lacks((*_RATE, "peak"), reason)
    draft.lacks((*_RATE, "peak"), _missing("learning_rate"))
    kind = _put_kind(draft)
    total = _put_total(draft)
    _put_warmup(draft, total)
    _put_final(draft, kind)


def _missing(name: str) -> str:
    return f"the settings do not state {name}; base.yml or another file that the job starts from decides it"


def _put_kind(draft: Draft) -> str | None:
    """The form of the schedule, which was a cosine before MaxText had a setting for it."""
    word = draft.word("lr_schedule_type")
    for reason in draft.reasons("lr_schedule_type"):
        draft.lacks((*_RATE, "kind"), reason)
        return None
    if word:
        kind = _KINDS.get(word.casefold(), "other")
        draft.put((*_RATE, "kind"), kind, "" if kind == word else f"the schedule {cut_to(word, 60)}")
        return kind
    if all(draft.values.get(name) is not None for name in _ALL):
        draft.put((*_RATE, "kind"), "cosine", "no lr_schedule_type among all settings: a version with cosines alone")
        return "cosine"
    draft.lacks((*_RATE, "kind"), _missing("lr_schedule_type"))
    return None


def _put_total(draft: Draft) -> int | None:
    """Steps over which the learning rate is scheduled; -1 takes those of the job."""
    place = (*_RATE, "total_steps")
    if draft.look(_TOTAL) == -1:
        steps = draft.counted("job", "num_steps")
        if steps:
            draft.follow(place, steps, f"{_TOTAL} -1: the steps of the job", ("job", "num_steps"))
        else:
            draft.lacks(place, f"{_TOTAL} is -1, which takes the steps of the job; {_missing('steps')}")
        return steps
    found = draft.copy(place, _TOTAL)
    draft.lacks(place, _missing(_TOTAL))
    return found


def _put_warmup(draft: Draft, total: int | None) -> None:
    place, share = (*_RATE, "warmup_steps"), draft.number("warmup_steps_fraction")
    if share is not None and total and 0 <= share <= 1:
        draft.follow(place, int(total * share), f"{share:g} of {total} steps", (*_RATE, "total_steps"))
    elif share is not None:
        draft.lacks(place, f"{share:g} of the steps of the schedule, whose number is not stated")
    reason = next(iter(draft.reasons("warmup_steps_fraction")), _missing("warmup_steps_fraction"))
    draft.lacks(place, reason)


def _put_final(draft: Draft, kind: str | None) -> None:
    """The last learning rate as a share of the peak."""
    place, share, peak = (*_RATE, "final"), draft.number(*_SHARES), draft.get(*_RATE, "peak")
    if kind == "constant":
        return
    if share is not None and peak and kind == "cosine":
        draft.put(place, share_of(share, peak), "a share of the peak")
    elif share is not None:
        draft.lacks(place, f"{share:g} of the peak where the schedule is a cosine and the peak is stated")
    draft.lacks(place, next(iter(draft.reasons(*_SHARES)), _missing(_SHARES[0])))
