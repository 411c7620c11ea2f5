"""Turns arguments of Megatron-LM on formats, communication and memory into parts of a plan."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Default, Draft, Habit, leave_offload_open, like
from trainspec_validate.interop.readers._recomputation import policy_of_layers
from trainspec_validate.model.values import cut_to

_SOURCE = "NVIDIA/Megatron-LM@d98e8a64:megatron/training/arguments.py"
_MIXED = "NVIDIA/Megatron-LM@d98e8a64:megatron/core/optimizer"
_FUSED_ADAM = "NVIDIA/TransformerEngine@04912bf0:transformer_engine/pytorch/optimizers/fused_adam.py"
_FUSED = Habit("fused kernels do these in fp32, and the loss casts its input (NVIDIA/Megatron-LM@d98e8a64)")
_LINEAR = "Transformer Engine replaces the linear layers only"
_DTYPES = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "uint8": "fp8",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_MOMENTS = {"adam": 2, "adamw": 2, "sgd": 1, "muon": 1, "dist_muon": 1, "lion": 1}
_FSDP_FORMATS = ("megatron_fsdp_main_grads_dtype", "megatron_fsdp_grad_comm_dtype")
"""The formats of the buffer in which gradients are added up, and on the wire."""
_FP8_RECIPES = ("delayed", "tensorwise", "mxfp8", "blockwise")
_RECIPES = {"mxfp8": "mxfp8", "blockwise": "fp8-block"}
_BLOCKS = {"mxfp8": 32, "fp8-block": 128, "nvfp4": 16}


def write_precision(draft: Draft, *, logged: bool) -> None:
    """Formats, recipe, loss scaling, overlap, buckets, time-out, recomputation and offload."""
    _write_formats(draft)
    _write_recipe(draft)
    _write_communication(draft)
    _write_memory(draft, logged=logged)


def _write_formats(draft: Draft) -> None:
    half, brain = draft.flag("fp16"), draft.flag("bf16")
    compute = "fp16" if half else "bf16" if brain else "fp32"
    if half and brain:
        draft.doubt("fp16", "fp16 and bf16 are both set, which Megatron-LM refuses", [False])
    how = "" if half or brain else Default(f"neither fp16 nor bf16 is set, the default of {_SOURCE}")
    draft.put(("precision", "compute"), compute, how)
    if draft.flag("fp8_param_gather"):
        gathered = f"fp8_param_gather: products read parameters that are kept in fp8 ({_SOURCE})"
        draft.put(("precision", "parameters"), "fp8", gathered)
    else:
        draft.put(("precision", "parameters"), compute, how or Habit("stored in the compute format"))
    sums, why = _sums(draft, compute)
    for key in ("gradients", "accumulation", "reduction"):
        if sums is None:
            draft.lacks(("precision", key), why)
        draft.put(("precision", key), sums, why)
    if draft.flag("use_megatron_fsdp"):
        _write_fsdp_sums(draft)
    if compute != "fp32":
        _write_optimizer(draft)
        operations = ["softmax", "normalization", *([] if draft.flag("fp16_lm_cross_entropy") else ["loss"])]
        if draft.known(("fp32", "fp64"), "moe_router_dtype"):
            operations.append("router")
        draft.put(("precision", "high_precision_operations"), operations, _FUSED)
    if half:
        _write_loss_scaling(draft)
    moments = _MOMENTS.get((draft.word("optimizer") or "adam").lower())
    if moments not in {None, 2}:
        draft.put(("precision", "num_optimizer_moments"), moments, "moments of the optimizer")
    if draft.flag("deterministic_mode"):
        draft.put(("precision", "deterministic"), value=True)
    _write_nonfinite(draft, dynamic=bool(half) and draft.look("loss_scale") is None)


def _sums(draft: Draft, compute: str) -> tuple[str | None, str]:
    """The format in which gradients are written, added up and reduced, and why; None where it cannot be told.

    bf16 gradients are widened unless they are to be reduced in bf16 or `main_grads_dtype` keeps them narrow.
    """
    names = ("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32")
    wide, main = draft.flag(*names), _dtype(draft, "main_grads_dtype")
    if compute == "fp32":
        return "fp32", Default(f"neither fp16 nor bf16 is set, the default of {_SOURCE}")
    if draft.flag("grad_reduce_in_bf16"):
        return "bf16", "grad_reduce_in_bf16"
    if wide:
        return "fp32", "gradients are accumulated and reduced in fp32"
    for reason in draft.reasons(*names, "grad_reduce_in_bf16", "main_grads_dtype"):
        return None, reason
    given = draft.word("main_grads_dtype")
    if given and main is None:
        return None, f"main_grads_dtype is {cut_to(given, 40)}, which is not known"
    if compute == "bf16" and main not in {None, "fp32"}:
        return compute, f"main_grads_dtype is {main}, and nothing asks for sums in fp32 ({_SOURCE})"
    if compute == "bf16" and "grad_reduce_in_fp32" not in draft.values:
        if main:
            return "fp32", f"main_grads_dtype is fp32 ({_SOURCE})"
        return "fp32", Default(f"bf16 gradients are summed in fp32 by default ({_SOURCE})")
    if "grad_reduce_in_fp32" in draft.values:
        return compute, "grad_reduce_in_fp32 is false: gradients stay in the compute format"
    return compute, Default("gradients stay in the compute format by default")


def _dtype(draft: Draft, name: str) -> str | None:
    """The format that a setting names, also as torch writes it."""
    word = draft.known((*_DTYPES, *(f"torch.{word}" for word in _DTYPES)), name)
    return _DTYPES[word.removeprefix("torch.")] if word else None


def _write_fsdp_sums(draft: Draft) -> None:
    """The formats that Megatron-FSDP has arguments for.

    With bf16 they hold beside `grad_reduce_in_bf16` alone: without it some versions keep every gradient in fp32.
    `auto` is the format of the parameters for the first and that of the first for the second.
    """
    if draft.flag("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32"):
        return
    open_formats = bool(draft.flag("bf16")) and not draft.flag("grad_reduce_in_bf16")
    buffer, wire = _FSDP_FORMATS
    sent = wire if draft.values.get(wire) is not None else buffer
    for key, name in (("gradients", buffer), ("accumulation", buffer), ("reduction", sent)):
        given, why = draft.word(name), next(iter(draft.reasons(name)), None)
        if given is None and why is None:
            continue
        if why is None and open_formats and given != "fp32":
            why = f"{name} is {given}, but without grad_reduce_in_bf16 some versions keep gradients in fp32"
        if why is None:
            draft.put(("precision", key), given, name)
        else:
            draft.facts["precision"].pop(key, None)
            draft.derived.pop(("precision", key), None)
            draft.lacks(("precision", key), why)


def _write_nonfinite(draft: Draft, *, dynamic: bool) -> None:
    unchecked = draft.flag("no_check_for_nan_in_loss_and_grad") or draft.flag("check_for_nan_in_loss_and_grad") is False
    if dynamic:
        draft.put(
            ("precision", "nonfinite_action"), "skip-step", Habit(f"dynamic loss scaling skips the step ({_MIXED})")
        )
    elif draft.flag("check_for_nan_in_loss_and_grad"):
        draft.put(("precision", "nonfinite_action"), "stop", "check_for_nan_in_loss_and_grad")
    elif not unchecked:
        why = f"releases differ in whether a loss that is not finite ends the run, as in {_SOURCE}"
        draft.lacks(("precision", "nonfinite_action"), why)


def _write_optimizer(draft: Draft) -> None:
    aware = draft.flag("use_precision_aware_optimizer")
    master = _dtype(draft, "main_params_dtype") if aware else None
    mixed = Default(f"mixed precision of {_MIXED}")
    if master in {None, "fp32"}:
        draft.put(("precision", "master_parameters"), "fp32", "" if master else mixed)
    else:
        told = f"main_params_dtype is {master}, kept with a scale for each tensor ({_FUSED_ADAM}); a plan has no scale"
        draft.lacks(("precision", "master_parameters"), told)
        draft.remark(told, "main_params_dtype")
    names = ("exp_avg_dtype", "exp_avg_sq_dtype")
    given = [_dtype(draft, name) if draft.look(name) is not None else "fp32" for name in names]
    states = set(given) if aware else {"fp32"}
    if aware and draft.reasons(*names):
        draft.lacks(("precision", "optimizer_state"), draft.reasons(*names)[0])
    elif len(states) == 1 and None not in states:
        stated = aware and any(draft.look(name) is not None for name in names)
        draft.put(("precision", "optimizer_state"), states.pop(), "" if stated else mixed)
    else:
        draft.lacks(("precision", "optimizer_state"), "the two moments have different formats, or one is not known")


def _write_loss_scaling(draft: Draft) -> None:
    pointer = ("precision", "loss_scaling")
    if draft.flag("deepspeed"):
        draft.lacks(pointer, "with --deepspeed the file that deepspeed_config names decides")
        return
    static = draft.number("loss_scale")
    if static:
        draft.put((*pointer, "mode"), "static")
        draft.put((*pointer, "initial_scale"), static)
        return
    draft.put((*pointer, "mode"), "dynamic", Default("no loss_scale is given"))
    default = Default(f"the default of {_SOURCE}")
    numbers = {"initial_loss_scale": ("initial_scale", 2.0**32), "min_loss_scale": ("min_scale", 1.0)}
    for name, (key, usual) in numbers.items():
        value = draft.number(name)
        draft.put((*pointer, key), usual if value is None else value, default if value is None else "")
    counts = {"loss_scale_window": ("growth_interval_steps", 1000), "hysteresis": ("hysteresis_steps", 2)}
    for name, (key, steps) in counts.items():
        value = draft.number(name)
        draft.put((*pointer, key), steps if value is None else int(value), default if value is None else "")
    draft.put((*pointer, "growth_factor"), 2.0, Habit(f"fixed in {_MIXED}"))
    draft.put((*pointer, "backoff_factor"), 0.5, Habit(f"fixed in {_MIXED}"))


def _write_recipe(draft: Draft) -> None:
    eight, four = draft.word("fp8_format", "fp8"), draft.word("fp4_format", "fp4")
    kind = draft.known(_FP8_RECIPES, "fp8_recipe")
    if four:
        kind = draft.known(("nvfp4",), "fp4_recipe") or kind
    for reason in draft.reasons("fp8_format", "fp8", "fp4_format", "fp4", "fp8_recipe"):
        draft.lacks(("precision", "recipe"), reason)
        return
    if not eight and not four:
        return
    pointer, default = ("precision", "recipe"), Default(f"the default of {_SOURCE}")
    name = "nvfp4" if four else _RECIPES.get(kind or "", f"fp8-{eight}")
    draft.put((*pointer, "format"), name)
    if name in _BLOCKS:
        draft.put((*pointer, "scaling"), "block")
        draft.put((*pointer, "block_size"), _BLOCKS[name], "part of the format")
    elif kind == "tensorwise":
        draft.put((*pointer, "scaling"), "current")
    else:
        draft.put((*pointer, "scaling"), "delayed", "" if kind else default)
        if draft.copy((*pointer, "amax_history_steps"), "fp8_amax_history_len") is None:
            draft.put((*pointer, "amax_history_steps"), 1, default)
        scope = "rank" if draft.flag("no_fp8_reduce_amax", "fp8_no_reduce_amax") else "group"
        draft.put((*pointer, "amax_scope"), scope, default if scope == "group" else "")
        how = Habit("Transformer Engine keeps scales and histories as extra state of its modules")
        draft.put((*pointer, "scaling_state_checkpointed"), value=True, how=how)
    draft.put((*pointer, "high_precision_layers"), _kept(draft), Habit(_LINEAR))
    if name in _BLOCKS or kind == "tensorwise":
        draft.put(
            (*pointer, "scaling_state_checkpointed"), value=False, how="scales follow from the tensors at each step"
        )
    if four:
        draft.put((*pointer, "gradient_rounding"), "stochastic", Habit("part of Transformer Engine's nvfp4 recipe"))


def _kept(draft: Draft) -> list[str]:
    layers = ["embedding", "output-head"]
    if draft.flag("first_last_layers_bf16"):
        layers += ["first-layers", "last-layers"]
    return layers


def _write_communication(draft: Draft) -> None:
    gradients, gathered = draft.flag("overlap_grad_reduce"), draft.flag("overlap_param_gather")
    off = Default(f"the default of {_SOURCE}: off")
    if draft.word("DDP_impl") == "torch":
        how = "DDP_impl torch: PyTorch's DDP reduces gradients during the backward pass"
        draft.put(("communication", "overlap_gradients"), value=True, how=how)
    else:
        draft.put(("communication", "overlap_gradients"), bool(gradients), "" if gradients is not None else off)
    draft.put(("communication", "overlap_parameters"), bool(gathered), "" if gathered is not None else off)
    _write_tensor_overlap(draft)
    elements = draft.count("ddp_bucket_size", "bucket_size")
    size = _BYTES.get(draft.get("precision", "reduction") or "")
    if elements and size:
        how = f"{elements} elements of {size} bytes"
        draft.follow(("communication", "bucket_bytes"), elements * size, how, ("precision", "reduction"))
    minutes = draft.number("distributed_timeout_minutes")
    draft.put(
        ("communication", "timeout_seconds"),
        60 * (10 if minutes is None else minutes),
        Default(f"10 minutes, the default of {_SOURCE}") if minutes is None else "minutes x 60",
    )
    backend = draft.word("distributed_backend")
    if backend in {None, "nccl"}:
        draft.put(("communication", "library", "name"), "nccl", "" if backend else Default(f"the default of {_SOURCE}"))


def _write_tensor_overlap(draft: Draft) -> None:
    """Messages of tensor ranks behind matrix products, which only sequence parallelism makes possible.

    Source: NVIDIA/NeMo: nemo/collections/nlp/models/language_modeling/megatron_base_model.py, which switches it off
    without it and with FSDP; Megatron-LM refuses it.
    """
    pointer, asked = ("communication", "overlap_tensor"), draft.flag("tp_comm_overlap")
    sequence = draft.get("parallelism", "sequence")
    if asked and sequence is None:
        draft.lacks(pointer, "whether tensor ranks split the sequence is not known, without which it is off")
    elif asked and (not sequence or draft.values.get("fsdp") is True):
        why = "with FSDP" if sequence else "without sequence parallelism"
        draft.remark(f"tp_comm_overlap has no effect {why}", "tp_comm_overlap")
        draft.put(pointer, value=False, how=like(draft.derived.get(("parallelism", "sequence"), ""), why))
    elif asked is not None:
        draft.put(pointer, asked)


def _write_memory(draft: Draft, *, logged: bool) -> None:
    granularity = draft.known(("full", "selective"), "recompute_granularity")
    full = granularity == "full" or draft.flag("checkpoint_activations") or False
    if not granularity and draft.word("activations_checkpoint_method"):
        full = True  # in 2021 the method alone asked for it
    selective = granularity == "selective" or draft.flag("recompute_activations") or False
    policy: str | None = "selective" if selective else "none"
    said = granularity or full or selective
    how = "" if said else Default(f"nothing is asked for; the default of {_SOURCE}")
    if full:
        policy, how = policy_of_layers(draft)
    draft.used.update(("recompute_method", "recompute_num_layers"))  # without granularity they have no effect
    if draft.flag("cpu_offloading"):
        policy, how = "offload", "cpu_offloading"
    for reason in draft.reasons("recompute_granularity"):
        draft.lacks(("memory", "activation_policy"), reason)
    if ("memory", "activation_policy") not in draft.unknown:
        draft.put(("memory", "activation_policy"), policy, how)
    value = draft.look("recompute_modules")
    if value is not None and (policy != "none" or not logged):
        message = "recompute_modules: which parts are recomputed has no place in a plan beyond the policy"
        draft.remark(message, "recompute_modules")
    if draft.flag("optimizer_cpu_offload"):
        fraction = draft.number("optimizer_offload_fraction")
        entry = {"what": "optimizer", "target": "host", "fraction": 1.0 if fraction is None else fraction}
        overlapped = draft.flag("overlap_cpu_optimizer_d2h_h2d")
        draft.put_records(("memory", "offload"), [entry if overlapped is None else {**entry, "overlapped": overlapped}])
    leave_offload_open(draft, "fine_grained_activation_offloading")
    draft.copy(("memory", "num_loader_workers"), "num_workers", least=0)
