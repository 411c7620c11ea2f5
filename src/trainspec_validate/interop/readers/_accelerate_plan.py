"""Turns a configuration of accelerate into parts of a plan."""

from __future__ import annotations

from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._huggingface_training import (
    numbered_strategy,
    put_prefetch,
    put_strategy,
    write_deepspeed_formats,
    write_formats,
)
from trainspec_validate.interop.readers._plan_parts import Default, Draft, shown
from trainspec_validate.model.values import cut_to

_KINDS = (
    *("NO", "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP", "TPU", "XLA", "MULTI_CPU", "MULTI_GPU", "MULTI_HPU", "MULTI_MLU"),
    *("MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA", "MULTI_XPU"),
)
"""Words of `distributed_type`. Source: huggingface/accelerate:src/accelerate/utils/dataclasses.py."""
_STAGES = {0: "none", 1: "optimizer", 2: "gradients", 3: "parameters"}
_FORMATS = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
_EIGHT = {"E4M3": "fp8-e4m3", "HYBRID": "fp8-hybrid"}
_PLACES = {"cpu": "host", "nvme": "local-disk"}
_CONFIG = "parallelism_config."
NAMES_DEEPSPEED = "the settings of DeepSpeed are in"
"""How the remark begins that names a file of DeepSpeed."""
_LONG = f"{_CONFIG}parallelism_config_"


def write_accelerate(draft: Draft) -> int | None:
    """Everything that a configuration says; the number of processes where it is one."""
    kind = draft.known(_KINDS, "distributed_type") or ""
    world = draft.copy(("parallelism", "num_accelerators"), "num_processes")
    machines = draft.count("num_machines")
    if world and machines and world % machines:
        draft.remark(f"{world} processes do not divide over {machines} machines", "num_processes")
    _write_degrees(draft)
    sections = {"FSDP": _write_fsdp, "DEEPSPEED": _write_deepspeed, "MEGATRON_LM": _write_megatron}
    if kind in sections:
        sections[kind](draft)
    elif kind == "TP" and not draft.counted("parallelism", "tensor"):
        told = draft.unknown.get(("parallelism", "tensor"), "distributed_type is TP, and no tp_config.tp_size is given")
        draft.lacks(("parallelism", "tensor"), told)
        draft.lacks(("parallelism", "data"), told)
    elif draft.get("parallelism", "sharding") is None:
        how = f"distributed_type {kind or 'NO'} keeps whole copies"
        draft.put(("parallelism", "sharding"), "none", how if kind else Default(how))
    _write_precision(draft, kind)
    draft.copy(
        ("batch", "accumulation_steps"), "gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps"
    )
    return world


def _write_degrees(draft: Draft) -> None:
    draft.copy(("parallelism", "tensor"), f"{_LONG}tp_size", f"{_CONFIG}tp_size", "tp_config.tp_size")
    put_context(draft, _LONG, _CONFIG)
    outer = draft.count(f"{_LONG}dp_replicate_size", f"{_CONFIG}dp_replicate_size")
    inner = draft.count(f"{_LONG}dp_shard_size", f"{_CONFIG}dp_shard_size")
    if outer is None and inner is None:
        return
    draft.put(("parallelism", "data"), (outer or 1) * (inner or 1), f"{outer or 1} replicas x {inner or 1} shards")
    if outer and outer > 1 and inner and inner > 1:
        context = draft.counted("parallelism", "context") or 1
        draft.put(("parallelism", "sharding_degree"), inner * context, "shards x context, over which FSDP shards")


def put_context(draft: Draft, *prefixes: str) -> None:
    """Ranks that share a sequence, by ring attention or by Ulysses, of which accelerate takes one in a job."""
    ring, ulysses = ([f"{prefix}{name}" for prefix in prefixes] for name in ("cp_size", "sp_size"))
    alone = draft.look(*ring) in (None, 1) and not draft.reasons(*ring)
    draft.copy(("parallelism", "context"), *(ulysses if alone and draft.look(*ulysses) is not None else ring))


def _write_fsdp(draft: Draft) -> None:
    version = draft.count("fsdp_config.fsdp_version") or 1
    reshard = draft.look("fsdp_config.fsdp_reshard_after_forward")
    strategy = draft.look("fsdp_config.fsdp_sharding_strategy")
    if version >= 2 or (strategy is None and isinstance(reshard, bool)):
        kept = reshard is False
        usual = Default("fsdp_version 2 reshards by default")
        how = "fsdp_reshard_after_forward" if reshard is not None else usual
        draft.put(("parallelism", "sharding"), "gradients" if kept else "parameters", how)
    else:
        words = numbered_strategy(strategy if strategy is not None else reshard)
        put_strategy(draft, words, "fsdp_config.fsdp_sharding_strategy")
        if not words:
            usual = Default("full_shard, the default of accelerate 1.15.0, FSDP plugin")
            draft.put(("parallelism", "sharding"), "parameters", usual)
    if draft.flag("fsdp_config.fsdp_offload_params"):
        entries = [
            {"what": what, "target": "host", "fraction": 1.0} for what in ("parameters", "gradients", "optimizer")
        ]
        draft.put_records(("memory", "offload"), entries, "fsdp_offload_params: all three, as FSDP steps on the host")
    recomputed = draft.flag("fsdp_config.fsdp_activation_checkpointing")
    if recomputed:
        draft.put(("memory", "activation_policy"), "full", "fsdp_activation_checkpointing")
    elif draft.get("memory", "offload"):
        draft.lacks(("memory", "activation_policy"), "the training program may turn recomputation on itself")
    how = "FSDP reduces gradients during the backward pass"
    draft.put(("communication", "overlap_gradients"), value=True, how=how)
    if draft.get("parallelism", "sharding") == "parameters":
        put_prefetch(draft, second=version >= 2)


def _write_deepspeed(draft: Draft) -> None:
    path = draft.word("deepspeed_config.deepspeed_config_file")
    if path:
        place = "deepspeed_config.deepspeed_config_file"
        draft.remark(f"{NAMES_DEEPSPEED} {cut_to(path, 120)}, which is not read: import it as well", place)
        draft.lacks(("parallelism", "sharding"), f"the file {cut_to(path, 120)} decides it, which is not read")
        return
    stage = draft.look("deepspeed_config.zero_stage")
    if isinstance(stage, int) and stage in _STAGES:
        draft.put(("parallelism", "sharding"), _STAGES[stage], f"stage {int(stage)} of ZeRO")
    elif stage is not None:
        draft.put(("parallelism", "sharding"), stage)
        draft.remark(f"zero_stage is {shown(stage)}, where 0 to 3 belongs", "deepspeed_config.zero_stage")
    put_clipping(draft, (0.0, ""), "deepspeed_config.gradient_clipping")
    entries = []
    for what, name in (("optimizer", "offload_optimizer_device"), ("parameters", "offload_param_device")):
        device = draft.word(f"deepspeed_config.{name}")
        if device in _PLACES:
            entries.append({"what": what, "target": _PLACES[device], "fraction": 1.0})
    if entries:
        draft.put_records(("memory", "offload"), entries)
        draft.lacks(("memory", "activation_policy"), "the training program may turn recomputation on itself")


def _write_megatron(draft: Draft) -> None:
    section = "megatron_lm_config.megatron_lm_"
    for axis, name in (("tensor", "tp_degree"), ("pipeline", "pp_degree"), ("context", "context_parallel_size")):
        draft.copy(("parallelism", axis), f"{section}{name}")
    if (draft.counted("parallelism", "pipeline") or 1) > 1:
        draft.put(("parallelism", "schedule"), "1f1b", "Megatron-LM runs 1F1B")
        pieces = draft.count(f"{section}num_micro_batches")
        if pieces:
            draft.put(("batch", "accumulation_steps"), pieces, "micro-batches of the pipeline")
    sharded = draft.flag(f"{section}use_distributed_optimizer")
    how = "" if sharded is not None else Default("no use_distributed_optimizer is given")
    draft.put(("parallelism", "sharding"), "optimizer" if sharded else "none", how)
    if (draft.counted("parallelism", "tensor") or 1) > 1:
        split = draft.flag(f"{section}sequence_parallelism")
        how = "" if split is not None else Default("no sequence_parallelism is given")
        draft.put(("parallelism", "sequence"), bool(split), how)
    if draft.flag(f"{section}recompute_activations"):
        draft.put(("memory", "activation_policy"), "selective", "megatron_lm_recompute_activations")
    granularity = draft.known(("full", "selective"), f"{section}recompute_granularity")
    if granularity:
        draft.put(("memory", "activation_policy"), granularity, "megatron_lm_recompute_granularity")


def _write_precision(draft: Draft, kind: str) -> None:
    word = draft.look("mixed_precision")
    said = "no" if word is False else word
    if said is None or kind == "MEGATRON_LM":
        why = "the training program decides" if said is None else "Megatron-LM's own arguments decide"
        draft.lacks(("precision", "compute"), why)
        return
    if said == "no":
        why = "mixed_precision no turns autocast off; the program decides in which format the weights are loaded"
        for key in ("compute", "parameters", "gradients", "reduction"):
            draft.lacks(("precision", key), why)
        return
    compute = _FORMATS.get(said) if isinstance(said, str) else None
    if compute is None:
        draft.lacks(("precision", "compute"), f"mixed_precision is {shown(said)}, which is not known")
        return
    how = ""
    if said == "fp8":
        how = "mixed_precision fp8: operations outside of the recipe run in bf16"
        _write_recipe(draft)
    if kind == "DEEPSPEED":
        write_deepspeed_formats(draft, compute, how)
        return
    write_formats(draft, compute, how)


def _write_recipe(draft: Draft) -> None:
    """The recipe of Transformer Engine, where the file names that library and the format; other libraries decide.

    Source: huggingface/accelerate:src/accelerate/utils/dataclasses.py, TERecipeKwargs, whose fields are those of
    DelayedScaling in Transformer Engine.
    """
    pointer, section = ("precision", "recipe"), "fp8_config."
    backend = (draft.word(f"{section}backend") or "").upper()
    form = (draft.word(f"{section}fp8_format") or "").upper()
    draft.look(
        *(f"{section}{name}" for name in ("margin", "interval", "use_autocast_during_eval", "amax_compute_algo"))
    )
    kept = draft.look(f"{section}override_linear_precision")
    blocks = draft.look(f"{section}use_mxfp8_block_scaling")
    steps = draft.count(f"{section}amax_history_len")
    if backend != "TE" or form not in _EIGHT or blocks not in (None, False) or kept not in (None, [False] * 3):
        draft.remark("fp8: the library behind it decides on the recipe; see precision.recipe", "mixed_precision")
        draft.lacks(pointer, "fp8_config and its library decide on the recipe")
        return
    draft.put((*pointer, "format"), _EIGHT[form])
    draft.put((*pointer, "scaling"), "delayed", "the recipe DelayedScaling of Transformer Engine, backend TE")
    if steps:
        draft.put((*pointer, "amax_history_steps"), steps)
    else:
        draft.lacks((*pointer, "amax_history_steps"), "no amax_history_len is given, and releases have other defaults")
