"""Turns the sections of a DeepSpeed configuration into parts of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainspec_validate.interop.readers._deepspeed_schedule import write_deepspeed
from trainspec_validate.interop.readers._plan_parts import Default, Draft, is_count, shown

MAX_BATCH = 10**7
MAX_MICRO = 64
_HIGHLY_COMPOSITE = (
    *(1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560, 10080, 15120),
    *(20160, 25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400),
    *(665280, 720720),
)
"""Numbers with more divisors than any smaller one."""


def elastic_sizes(
    max_batch: int, micro_sizes: Sequence[int], least: int, most: int, *, larger: bool = True
) -> tuple[int, list[int]]:
    """The batch in sequences and the numbers of accelerators that reach it, version 0.1.

    Each micro-batch and their least common multiple is multiplied by the largest highly composite number that keeps
    it at or below `max_batch`; the batch with the most accelerator counts between `least` and `most` wins, ties go to
    the larger one. Source: deepspeedai/DeepSpeed@edaa7221:deepspeed/elasticity/elasticity.py; its test expects a
    batch of 9,792 and 23 counts for this example.

    >>> batch, counts = elastic_sizes(10000, [8, 12, 16, 17], 32, 1500)
    >>> batch, len(counts)
    (9792, 23)

    Raises:
        ValueError: a size is below 1, above the batch, or beyond what is computed.
    """
    if not micro_sizes or len(micro_sizes) > MAX_MICRO or min(micro_sizes) < 1 or max(micro_sizes) > max_batch:
        raise ValueError("micro-batches are at least 1 and at most the batch")
    if max_batch > MAX_BATCH:
        raise ValueError(f"a batch above {MAX_BATCH} sequences is not computed")
    bases = {*micro_sizes, math.lcm(*micro_sizes)}
    candidates = {
        base if base >= max_batch else base * max(number for number in _HIGHLY_COMPOSITE if number <= max_batch // base)
        for base in bases
        if base <= MAX_BATCH
    }
    best: tuple[int, list[int]] = (min(micro_sizes), [])
    for batch in sorted(candidates):
        counts = _counts(batch, micro_sizes, least, most)
        if len(counts) > len(best[1]) or (len(counts) == len(best[1]) and larger and batch > best[0]):
            best = batch, counts
    return best


def _counts(batch: int, micro_sizes: Sequence[int], least: int, most: int) -> list[int]:
    found: set[int] = set()
    for whole in {batch // micro for micro in micro_sizes if batch % micro == 0}:
        for divisor in range(1, math.isqrt(whole) + 1):
            if whole % divisor == 0:
                found |= {divisor, whole // divisor}
    return sorted(count for count in found if least <= count <= most)


PAGE = "deepspeedai/DeepSpeed@edaa7221:docs/_pages/config-json.md"
ENGINE = "get_data_types in DeepSpeed@edaa7221:deepspeed/runtime/engine.py"
WITHOUT_ZERO = f"fp32 before DeepSpeed 0.17.6, bf16 since, where ZeRO is off ({ENGINE})"
CAST = "DeepSpeed@edaa7221:deepspeed/runtime/zero/stage_1_and_2.py and bf16_optimizer.py"
_AVERAGED = "DeepSpeed@edaa7221:deepspeed/runtime/zero and comm/coalesced_collectives.py"
_ENGINE = "the backward pass, in DeepSpeed@edaa7221:deepspeed/runtime/engine.py"
_ENGINE_ELEMENTS = 500_000_000
_REDUCTION = ("precision", "reduction")
"""Elements of a bucket where ZeRO is off: MEMORY_OPT_ALLREDUCE_SIZE of the engine."""
_STAGE_OF_GRADIENTS, _LAST_STAGE = 2, 3
_OLDER_OFFLOAD = {"optimizer": "cpu_offload", "parameters": "cpu_offload_params"}
"""Switches of DeepSpeed before 0.3.16 that move to the host what the sections of today name."""
_STAGES = {0: "none", 1: "optimizer", 2: "gradients", 3: "parameters"}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_FORMATS = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "bfp16": "bf16"}
_AUTOCAST = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}
_PLACES = {"cpu": "host", "nvme": "local-disk"}
_ONE_BIT = {"onebitadam": "one-bit", "zerooneadam": "one-bit", "onebitlamb": "one-bit"}
_MOMENTS = {"sgd": 1, "lion": 1, "muon": 1}


def write_plan(draft: Draft, prefix: str = "") -> None:
    """Everything that a DeepSpeed configuration says; `prefix` is for one inside another configuration."""
    _write_batch(draft, prefix)
    _write_formats(draft, prefix)
    _write_sharding(draft, prefix)
    _write_communication(draft, prefix)
    _write_offload(draft, prefix)
    _write_elastic(draft, prefix)
    _leave_curriculum_open(draft, prefix)
    write_deepspeed(draft, prefix)
    steps = draft.count(f"{prefix}scheduler.params.total_num_steps")
    if steps:
        draft.remark(f"the learning rate falls over {steps} steps; the length of the job is set elsewhere")


def _write_batch(draft: Draft, prefix: str) -> None:
    whole = draft.copy(("batch", "global_sequences"), f"{prefix}train_batch_size")
    micro = draft.copy(("batch", "micro_sequences"), f"{prefix}train_micro_batch_size_per_gpu")
    steps = draft.copy(("batch", "accumulation_steps"), f"{prefix}gradient_accumulation_steps")
    if micro and draft.get("batch", "global_sequences") is None and not draft.reasons(f"{prefix}train_batch_size"):
        draft.default(("batch", "accumulation_steps"), 1, f"the default of {PAGE}")
    degrees = {"tensor": "tensor_parallel.autotp_size", "context": "sequence_parallel_size"}
    for axis, name in degrees.items():
        draft.copy(("parallelism", axis), f"{prefix}{name}")
    if whole and micro and steps:
        if whole % (micro * steps):
            draft.remark(
                f"train_batch_size {whole} is no multiple of {micro} sequences x {steps} accumulation steps, "
                "so no number of accelerators fits",
                f"{prefix}train_batch_size",
            )
        elif draft.get("parallelism", "data") is None:
            how = "train_batch_size over micro-batch and accumulation steps"
            draft.put(("parallelism", "data"), whole // (micro * steps), how)
    if not prefix:
        unknown = "the configuration does not say what else the ranks split; it is in the training program"
        draft.lacks(("parallelism", "pipeline"), unknown)


def _leave_curriculum_open(draft: Draft, prefix: str) -> None:
    """Leave open the tokens of a step where a curriculum trains on shorter sequences first."""
    for name in ("curriculum_learning", "data_efficiency.data_sampling.curriculum_learning"):
        if draft.flag(f"{prefix}{name}.enabled"):
            why = f"{name}: sequences are shorter, or other ones, at first"
            draft.remark(f"{why}; a plan has no place for it", f"{prefix}{name}.enabled")
            draft.lacks(("batch", "global_tokens"), why)
            draft.lacks(("job", "num_tokens"), why)
            draft.used.update(key for key in draft.values if key.startswith(f"{prefix}{name}."))


def _write_formats(draft: Draft, prefix: str) -> None:
    half, brain = draft.flag(f"{prefix}fp16.enabled"), draft.flag(f"{prefix}bf16.enabled", f"{prefix}bfloat16.enabled")
    unresolved = any(draft.values.get(f"{prefix}{name}.enabled") == "auto" for name in ("fp16", "bf16"))
    if half is None and brain is None and unresolved:
        sent = _format(draft, f"{prefix}communication_data_type")
        draft.put(("precision", "reduction"), sent)
        for key in ("compute", "parameters", "gradients", "reduction"):
            draft.lacks(("precision", key), "fp16 or bf16 says auto: the program that starts the job fills it in")
        return
    if half and brain:
        draft.doubt(f"{prefix}fp16.enabled", "fp16 and bf16 are both enabled, which DeepSpeed refuses", [False])
    if not half and not brain and draft.flag(f"{prefix}torch_autocast.enabled"):
        _write_autocast(draft, prefix)
        return
    compute = "fp16" if half else "bf16" if brain else "fp32"
    how = "" if half or brain else "neither fp16 nor bf16 is enabled"
    if how and (half is None or brain is None):
        how = Default(how)
    draft.put(("precision", "compute"), compute, how)
    draft.put(("precision", "parameters"), compute, how or "stored in the compute format")
    if compute != "fp32":
        _write_masters(draft, prefix, compute)
    _write_gradients(draft, prefix, compute, how)
    regime = Default(f"by the regime, as {PAGE} says")
    reduction = _format(draft, f"{prefix}communication_data_type")
    draft.put(("precision", "reduction"), reduction or compute, "" if reduction else how or regime)
    if half:
        _write_loss_scaling(draft, f"{prefix}fp16.")
    moments = _MOMENTS.get((draft.word(f"{prefix}optimizer.type") or "").lower())
    if moments:
        draft.put(("precision", "num_optimizer_moments"), moments, "moments of the optimizer")
    draft.lacks(("precision", "high_precision_operations"), "kernels of the training program decide, not this file")


def _format(draft: Draft, name: str) -> str | None:
    word = draft.known(_FORMATS, name)
    return _FORMATS[word] if word else None


def _write_masters(draft: Draft, prefix: str, compute: str) -> None:
    """The copy on which the optimizer steps and its moments, which settings of the regime may keep as narrow.

    Source: deepspeed/runtime/precision_config.py.
    """
    regimes = ("bf16", "bfloat16") if compute == "bf16" else ("fp16",)
    kept = [f"{prefix}{regime}.{compute}_master_weights_and_grads" for regime in regimes]
    moments = [f"{prefix}{regime}.{compute}_optimizer_states" for regime in regimes]
    master = "the optimizer steps on a copy in fp32 (deepspeed/runtime/zero and fp16, DeepSpeed@edaa7221)"
    narrow, narrow_moments = draft.flag(*kept), draft.flag(*moments)
    if draft.reasons(*kept, *moments):
        told = f"{compute}_master_weights_and_grads or {compute}_optimizer_states is not resolved"
        for key in ("master_parameters", "optimizer_state"):
            draft.lacks(("precision", key), told)
    elif not narrow:
        draft.put(("precision", "master_parameters"), "fp32", master)
        draft.put(("precision", "optimizer_state"), "fp32", master)
    else:
        draft.put(("precision", "master_parameters"), compute, f"{compute}_master_weights_and_grads")
        if narrow_moments:
            draft.put(("precision", "optimizer_state"), compute, f"{compute}_optimizer_states")
        elif compute == "bf16":
            draft.put(("precision", "optimizer_state"), "fp32", Default("bf16_optimizer_states is not set"))
        else:
            draft.lacks(("precision", "optimizer_state"), "the optimizer on the host decides it, not this file")


def _write_gradients(draft: Draft, prefix: str, compute: str, how: str) -> None:
    """Gradients keep the compute format, except where `grad_accum_dtype` gives another one to add them up in."""
    accumulation = _format(draft, f"{prefix}data_types.grad_accum_dtype")
    stage = draft.look(f"{prefix}zero_optimization.stage")
    reason = next(iter(draft.reasons(f"{prefix}zero_optimization.stage")), None)
    if accumulation:
        draft.put(("precision", "accumulation"), accumulation)
    if accumulation and accumulation != compute and reason:
        either = f"{accumulation} below stage 3 of ZeRO, {compute} at stage 3"
        draft.lacks(("precision", "gradients"), f"{either}; {reason}")
    elif accumulation and accumulation != compute and stage != _LAST_STAGE:
        draft.put(("precision", "gradients"), accumulation, f"grad_accum_dtype, to which each one is cast ({CAST})")
    elif accumulation is None and compute == "bf16" and (reason or not stage):
        for key in ("gradients", "accumulation"):
            draft.lacks(("precision", key), f"{WITHOUT_ZERO}; {reason}" if reason else WITHOUT_ZERO)
    else:
        draft.put(("precision", "gradients"), compute, how or "stored in the compute format")


def _write_autocast(draft: Draft, prefix: str) -> None:
    """`torch_autocast`: operands are cast; parameters, their gradients and moments stay in fp32."""
    name = f"{prefix}torch_autocast.dtype"
    word = draft.word(name)
    compute = _AUTOCAST.get((word or "bfloat16").removeprefix("torch."))
    if compute is None:
        draft.remark(f"torch_autocast.dtype is {shown(word)}, which is not known", name)
        draft.lacks(("precision", "compute"), "the dtype of torch_autocast is not known")
    draft.put(("precision", "compute"), compute, "" if word else Default(f"the default of {PAGE}"))
    why = "torch_autocast casts operands; parameters and their gradients stay in fp32"
    for key in ("parameters", "gradients", "optimizer_state"):
        draft.put(("precision", key), "fp32", why)
    modules = draft.look(f"{prefix}torch_autocast.lower_precision_safe_modules")
    if modules == []:
        draft.put(("precision", "reduction"), "fp32", "no module sends its gradients in the format of the products")
    else:
        told = "linear and convolution layers" if modules is None else "the modules of lower_precision_safe_modules"
        draft.put(("precision", "reduction"), compute, f"the format in which {told} send their gradients ({PAGE})")
    draft.lacks(("precision", "high_precision_operations"), "kernels of the training program decide, not this file")


def _write_loss_scaling(draft: Draft, prefix: str) -> None:
    pointer = ("precision", "loss_scaling")
    static = draft.number(f"{prefix}loss_scale")
    if static:
        draft.put((*pointer, "mode"), "static")
        draft.put((*pointer, "initial_scale"), static)
        return
    default = Default(f"the default of {PAGE}")
    draft.put(
        (*pointer, "mode"), "dynamic", "loss_scale is 0" if static is not None else Default("no loss_scale is given")
    )
    power = draft.number(f"{prefix}initial_scale_power")
    exponent = 16 if power is None else min(max(power, -64.0), 64.0)
    how = "2 to the power of initial_scale_power"
    draft.put((*pointer, "initial_scale"), 2.0**exponent, how if power is not None else Default(f"2^16, {default}"))
    counts = {"loss_scale_window": ("growth_interval_steps", 1000), "hysteresis": ("hysteresis_steps", 2)}
    for name, (key, usual) in counts.items():
        if draft.copy((*pointer, key), f"{prefix}{name}", least=0) is None and draft.get(*pointer, key) is None:
            draft.put((*pointer, key), usual, default)
    least = draft.number(f"{prefix}min_loss_scale")
    draft.put((*pointer, "min_scale"), 1.0 if least is None else least, default if least is None else "")
    scaler = "fixed in DeepSpeed@edaa7221:deepspeed/runtime/fp16/loss_scaler.py"
    draft.put((*pointer, "growth_factor"), 2.0, scaler)
    draft.put((*pointer, "backoff_factor"), 0.5, scaler)
    draft.put(("precision", "nonfinite_action"), "skip-step", "dynamic loss scaling skips the step")


PARTITIONED = (
    "none for parameters and gradients at stage 0; with bf16 DeepSpeed may step with BF16_Optimizer, which keeps a "
    "part of the copy in fp32 and of the moments on each data rank (deepspeed/runtime/bf16_optimizer.py)"
)


def _write_sharding(draft: Draft, prefix: str) -> None:
    stage = draft.look(f"{prefix}zero_optimization.stage")
    if reasons := draft.reasons(f"{prefix}zero_optimization.stage"):
        draft.lacks(("parallelism", "sharding"), reasons[0])
    elif stage in (None, 0) and draft.flag(f"{prefix}bf16.enabled", f"{prefix}bfloat16.enabled"):
        draft.lacks(("parallelism", "sharding"), PARTITIONED)
    elif stage is None:
        if draft.get("parallelism", "sharding") is None:
            draft.put(("parallelism", "sharding"), "none", Default(f"stage 0, the default of {PAGE}"))
    elif isinstance(stage, int) and stage in _STAGES:
        draft.put(("parallelism", "sharding"), _STAGES[stage], f"stage {int(stage)} of ZeRO")
    else:
        draft.put(("parallelism", "sharding"), stage)
        draft.remark(
            f"zero_optimization.stage is {shown(stage)}, where 0 to 3 belongs", f"{prefix}zero_optimization.stage"
        )
    group = draft.count(f"{prefix}zero_optimization.mics_shard_size")
    if group:
        draft.put(("parallelism", "sharding_degree"), group)
    hierarchy = draft.count(f"{prefix}zero_optimization.zero_hpz_partition_size")
    if hierarchy and hierarchy > 1:
        name = f"{prefix}zero_optimization.zero_hpz_partition_size"
        draft.remark(f"a second copy of the parameters is in groups of {hierarchy}; a plan has no place for it", name)


def _write_communication(draft: Draft, prefix: str) -> None:
    zero = f"{prefix}zero_optimization."
    _write_buckets(draft, prefix)
    _write_averaging(draft, prefix)
    kind = (draft.word(f"{prefix}optimizer.type") or "").lower()
    if kind in _ONE_BIT:
        pointer = ("communication", "compression")
        draft.put((*pointer, "method"), _ONE_BIT[kind], "the optimizer sends one bit for each gradient")
        draft.put((*pointer, "error_feedback"), value=True, how="part of the optimizer (arXiv:2102.02888)")
        draft.copy((*pointer, "start_step"), f"{prefix}optimizer.params.freeze_step")
        draft.lacks((*pointer, "residual_checkpointed"), "the training program decides what it saves")
        for key in ("wire_ratio", "exposed_fraction_before", "exposed_fraction_after"):
            draft.lacks((*pointer, key), "it is measured, not configured")
    elif draft.flag(f"{zero}zero_quantized_gradients"):
        draft.put(("communication", "compression", "method"), "quantised", "zero_quantized_gradients")
    for name in ("zero_quantized_weights", "zero_quantized_nontrainable_weights"):
        if draft.flag(f"{zero}{name}"):
            draft.remark(f"{name}: parameters travel in fewer bits; a plan has no place for it", f"{zero}{name}")


def _reducing_engine(draft: Draft, prefix: str) -> str | None:
    """In which case the engine reduces gradients, which settings of ZeRO do not reach.

    Source: `_do_optimizer_sanity_check` and `allreduce_gradients` of DeepSpeed@007cca6a:deepspeed/runtime/engine.py:
    stage 1 with gradients that are added up in fp32 has BF16_Optimizer, unless its optimizer is on the host.
    """
    stage = draft.look(f"{prefix}zero_optimization.stage")
    if isinstance(stage, bool) or stage not in (0, 1):
        return None
    if stage == 0:
        return "at stage 0 of ZeRO"
    brain = draft.flag(f"{prefix}bf16.enabled", f"{prefix}bfloat16.enabled")
    wide = _format(draft, f"{prefix}data_types.grad_accum_dtype") == "fp32"
    zero = f"{prefix}zero_optimization."
    host = draft.word(f"{zero}offload_optimizer.device") == "cpu" or draft.flag(f"{zero}cpu_offload")
    return "with BF16_Optimizer" if brain and wide and not host else None


def _write_buckets(draft: Draft, prefix: str) -> None:
    """Overlap and buckets of the reduction, which settings of ZeRO decide from stage 1 on."""
    zero = f"{prefix}zero_optimization."
    overlap, elements = draft.flag(f"{zero}overlap_comm"), draft.number(f"{zero}reduce_bucket_size")
    size = _BYTES.get(draft.get("precision", "reduction") or "")
    engine = _reducing_engine(draft, prefix)
    if engine:
        draft.put(
            ("communication", "overlap_gradients"), value=False, how=f"{engine}, gradients are reduced after {_ENGINE}"
        )
        if elements and size:
            how = f"{_ENGINE_ELEMENTS} elements of {size} bytes: reduce_bucket_size has no effect {engine}"
            draft.follow(("communication", "bucket_bytes"), float(_ENGINE_ELEMENTS * size), how, _REDUCTION)
        for name in ("overlap_comm", "reduce_bucket_size"):
            if draft.values.get(f"{zero}{name}"):
                draft.remark(f"{name} has no effect {engine} (DeepSpeed@edaa7221)", f"{zero}{name}")
        return
    whole = draft.get("parallelism", "sharding") == "parameters"
    how = "" if overlap is not None else Default(f"the default of {PAGE}: on at stage 3 only")
    resolved = not draft.reasons(f"{zero}overlap_comm")
    for reason in draft.reasons(f"{zero}stage"):
        told = f"on at stage 3 of ZeRO only, unless overlap_comm says otherwise: {reason}"
        draft.lacks(("communication", "overlap_parameters"), told)
        if overlap is None:
            draft.lacks(("communication", "overlap_gradients"), told)
            resolved = False
    if resolved:
        draft.put(("communication", "overlap_gradients"), whole if overlap is None else overlap, how)
    if whole and resolved:
        draft.put(("communication", "overlap_parameters"), whole if overlap is None else overlap, how or "overlap_comm")
    if elements and size:
        how = f"{elements:.0f} elements of {size} bytes"
        draft.follow(("communication", "bucket_bytes"), elements * size, how, _REDUCTION)
    elif elements:
        why = f"reduce_bucket_size is {elements:.0f} elements, and the format that they are reduced in is not known"
        draft.lacks(("communication", "bucket_bytes"), why)


def _write_averaging(draft: Draft, prefix: str) -> None:
    """Whether gradients are divided before or after their sum, which from stage 1 of ZeRO on its own code decides.

    Source: DeepSpeed@edaa7221, v0.9.5, v0.5.10 and v0.3.16: `average_tensor` of deepspeed/runtime/zero/stage*.py,
    `reduce_scatter_coalesced` of deepspeed/runtime/comm and `allreduce_bucket` of deepspeed/runtime/engine.py.
    """
    zero, place = f"{prefix}zero_optimization.", ("communication", "gradient_averaging")
    before, scattered = draft.flag(f"{prefix}prescale_gradients"), draft.flag(f"{zero}reduce_scatter")
    stage = draft.look(f"{zero}stage")
    reason = next(iter(draft.reasons(f"{zero}stage", f"{zero}reduce_scatter", f"{prefix}prescale_gradients")), None)
    if reason:
        draft.lacks(place, f"divide-before or divide-after: {reason}")
    elif before or not stage or _reducing_engine(draft, prefix):
        how = "" if before is not None else Default(f"the default of {PAGE}: no prescaling")
        draft.put(place, "divide-before" if before else "divide-after", how)
    elif stage not in (_STAGE_OF_GRADIENTS, _LAST_STAGE):
        told = (
            "divide-before by the optimizer of ZeRO since DeepSpeed 0.5, divide-after before it and by BF16_Optimizer"
        )
        draft.lacks(place, told)
    elif draft.flag(f"{zero}zero_quantized_gradients"):
        draft.lacks(place, "zero_quantized_gradients: the reduction of quantised gradients averages in its own way")
    elif scattered is not False:
        how = f"ZeRO divides gradients, then scatters their sums ({_AVERAGED})"
        draft.put(place, "divide-before", how if scattered else Default(f"{how}; reduce_scatter is on by default"))
    elif stage == _STAGE_OF_GRADIENTS:
        how = "" if before is not None else Default(f"the default of {PAGE}: no prescaling")
        draft.put(place, "divide-after", how or "prescale_gradients")
    else:
        draft.lacks(place, "divide-before or divide-after: without reduce_scatter the version of DeepSpeed decides")


def _write_offload(draft: Draft, prefix: str) -> None:
    entries: list[dict[str, object]] = []
    for what, name in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
        device = draft.word(f"{prefix}zero_optimization.{name}.device")
        older = f"{prefix}zero_optimization.{_OLDER_OFFLOAD[what]}"
        if draft.flag(older) and device is None:
            device = "cpu"
            draft.remark(f"{_OLDER_OFFLOAD[what]} is the older name of {name} to the host", older)
        if device in _PLACES:
            stage = draft.look(f"{prefix}zero_optimization.stage")
            if what == "parameters" and isinstance(stage, int) and stage != _LAST_STAGE:
                place = f"{prefix}zero_optimization.{name}.device"
                draft.remark(f"{name} has an effect at stage 3 of ZeRO alone ({PAGE}), and the stage is {stage}", place)
                continue
            share = draft.number(f"{prefix}zero_optimization.{name}.ratio")
            entries.append({"what": what, "target": _PLACES[device], "fraction": 1.0 if share is None else share})
        elif device not in {None, "none"}:
            draft.remark(
                f"{name} goes to {device[:60]!r}, which is not known", f"{prefix}zero_optimization.{name}.device"
            )
    if entries:
        draft.put_records(("memory", "offload"), entries)
        section = any(name.startswith(f"{prefix}activation_checkpointing.") for name in draft.values)
        asked = "the configuration sets up recomputation, but the model decides which layers use it"
        why = asked if section else "the training program decides on recomputation"
        draft.lacks(("memory", "activation_policy"), why)
    for name in ("partition_activations", "cpu_checkpointing"):
        place = f"{prefix}activation_checkpointing.{name}"
        if draft.flag(place):
            draft.remark(
                f"{name} is set; the model decides which layers are recomputed: see memory.activation_policy", place
            )


def _write_elastic(draft: Draft, prefix: str) -> None:
    if not draft.flag(f"{prefix}elasticity.enabled"):
        return
    section = f"{prefix}elasticity."
    pointer = ("batch", "elastic")
    refused = _leave_replaced_open(draft, prefix)
    micro = draft.look(f"{section}micro_batch_sizes")
    most = draft.look(f"{section}max_train_batch_size")
    low, high = draft.look(f"{section}min_gpus"), draft.look(f"{section}max_gpus")
    larger = draft.flag(f"{section}prefer_larger_batch") is not False
    if micro is not None:
        draft.put((*pointer, "micro_sequences"), micro)
    bounds = {"max_train_batch_size": most, "min_gpus": low, "max_gpus": high}
    wrong = [name for name, value in bounds.items() if value is not None and not is_count(value)]
    listed = isinstance(micro, list) and all(is_count(item) for item in micro)
    if not listed:
        wrong.insert(0, "micro_batch_sizes")
    for name in wrong:
        kind = "a list of whole numbers" if name == "micro_batch_sizes" else "a whole number"
        value = draft.values.get(f"{section}{name}")
        draft.remark(f"elasticity.{name} is {shown(value)}, where {kind} belongs", f"{section}{name}")
    why = f"it follows from elasticity.{', '.join(wrong) or 'max_train_batch_size'}, which cannot be used"
    by_node = any((draft.count(f"{section}{key}") or 1) > 1 for key in ("num_gpus_per_node", "model_parallel_size"))
    if by_node and not wrong:
        why = "elasticity 0.2 computes it by num_gpus_per_node and model_parallel_size, which this reader does not"
    if wrong or most is None or by_node:
        draft.lacks((*pointer, "data_degrees"), why)
        return
    try:
        batch, counts = elastic_sizes(most, micro, low or 1, high or most, larger=larger)
    except ValueError as error:
        draft.lacks((*pointer, "data_degrees"), str(error))
        return
    how = "the world sizes that DeepSpeed's elasticity 0.1 computes from batch, micro-batches and bounds"
    draft.put((*pointer, "data_degrees"), counts, how)
    if draft.get("batch", "global_sequences") is None and not refused:
        draft.put(("batch", "global_sequences"), batch, "the batch that DeepSpeed's elasticity 0.1 computes")


def _leave_replaced_open(draft: Draft, prefix: str) -> bool:
    """Leave open the batch that elasticity replaces; whether DeepSpeed refuses one that is stated.

    Source: deepspeedai/DeepSpeed@edaa7221:deepspeed/runtime/config.py, `DeepSpeedConfig`.
    """
    settings = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    stated = [name for name in settings if f"{prefix}{name}" in draft.values]
    if not stated and not prefix:
        return False
    ignores = draft.flag(f"{prefix}elasticity.ignore_non_elastic_batch_info") or not stated
    told = "elasticity is enabled and replaces it"
    if not ignores:
        told = f"elasticity is enabled, with which DeepSpeed refuses {', '.join(stated)}"
        draft.remark(f"{told}, unless ignore_non_elastic_batch_info is true", f"{prefix}elasticity.enabled")
    draft.drop([*(("batch", key) for key in ("global_sequences", "micro_sequences", "accumulation_steps"))], told)
    draft.drop([("parallelism", "data")], told)
    return not ignores
