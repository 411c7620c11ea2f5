"""Turns settings of launch configurations into the optimizer, clipping, learning-rate schedule and LoRA of a plan."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from trainspec_validate.interop.readers._clipping_plan import CLIPPING, put_clipping
from trainspec_validate.interop.readers._plan_parts import Default, Draft, is_count, like
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_RATE = ("optimizer", "learning_rate")
_OPTIMIZERS = (
    (r"(paged_?)?adamw(_?(8bit|32bit)|_(bnb_8bit|torch\w*|hf|apex_fused|anyprecision))?", "adamw"),
    (r"(fused|distributed_fused|megatron_fused|cpu)_?adam", "adamw"),  # adam_w_mode of Apex and DeepSpeed is on
    (r"(onebit|zeroone|zero_one)_?adam|adam", "adam"),
    (r"(dist_|adaptive_)?muon", "muon"),
    (r"(paged_?)?lion(_?(8bit|32bit))?", "lion"),
    (r"(mcore_)?adafactor", "adafactor"),
    (r"(distributed_|dist_)?shampoo", "shampoo"),
    (r"soap", "soap"),
    (r"sgd", "sgd"),
)
OTHER_OPTIMIZER = "optim; an optimizer in the configuration of DeepSpeed goes before it"
OTHER_SCHEDULE = "lr_scheduler_type; a scheduler in the configuration of DeepSpeed goes before it"
_TRAINER = "transformers 5.23.0, TrainingArguments"
_TRAINER_KINDS = {
    "linear": "linear",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
    "constant": "constant",
    "constant_with_warmup": "constant",
    "polynomial": "polynomial",
    "inverse_sqrt": "inverse-square-root",
    "warmup_stable_decay": "warmup-stable-decay",
}
_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64:megatron/training/arguments.py"
_ADAM = "FusedAdam with adam_w_mode (Megatron-LM@d98e8a64:megatron/core/optimizer/__init__.py)"
_MEGATRON_KINDS = {
    "constant": "constant",
    "linear": "linear",
    "cosine": "cosine",
    "inverse-square-root": "inverse-square-root",
    "wsd": "warmup-stable-decay",
}
_TORCHTITAN = "pytorch/torchtitan@000204a4:torchtitan/config/job_config.py"
_NEOX = "EleutherAI/gpt-neox@ea7aefd8:configs/neox_arguments.md"
_NEMO_KINDS = {
    "cosineannealing": "cosine",
    "inversesquarerootannealing": "inverse-square-root",
    "polynomialdecayannealing": "polynomial",
    "polynomialholddecayannealing": "polynomial",
    "squareannealing": "polynomial",
    "warmupannealing": "linear",
}
_TARGETS = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "out_proj": "output",
    "qkv_proj": "query-key-value",
    "query_key_value": "query-key-value",
    "c_attn": "query-key-value",
    "wqkv": "query-key-value",
    "w_pack": "query-key-value",
    "attention_qkv": "query-key-value",
    "linear_qkv": "query-key-value",
    "linear_proj": "output",
    "attention_dense": "output",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "gate_up_proj": "gate-up",
    "mlp_fc2": "down",
    "linear_fc2": "down",
    "lm_head": "output-head",
    "embed_tokens": "embedding",
}


def optimizer_name(word: str) -> str:
    """The name that a plan has for an optimizer.

    >>> [optimizer_name(word) for word in ("adamw_torch_fused", "PagedAdamW32bit", "paged_lion_8bit", "galore_adamw")]
    ['adamw', 'adamw', 'lion', 'other']
    """
    plain = word.casefold()[:100]
    return next((name for pattern, name in _OPTIMIZERS if re.fullmatch(pattern, plain)), "other")


def share_of(share: float, peak: float) -> float:
    """A share of a rate without the last digits of binary floating point.

    >>> share_of(0.1, 4e-05)
    4e-06
    """
    return float(f"{share * peak:.12g}")


def put_name(draft: Draft, usual: tuple[str, str], *names: str) -> None:
    """The optimizer that a setting names; `usual` is the framework's own one, with its source, or empty."""
    pointer = ("optimizer", "name")
    word = draft.word(*names)
    if word:
        name = optimizer_name(word)
        draft.put(pointer, name, "" if name == word else f"the optimizer {cut_to(word, 60)}")
    elif any(draft.reasons(*names)):
        draft.lacks(pointer, draft.reasons(*names)[0])
    elif usual[0]:
        draft.default(pointer, usual[0], f"the default of {usual[1]}")


def put_rate(draft: Draft, *names: str) -> float | None:
    """The largest learning rate; where none is given, the schedule is left open. Returns whether there is one."""
    peak = draft.number(*names)
    reasons = draft.reasons(*names)
    if peak is None or peak <= 0:
        elsewhere = draft.values.get("deepspeed_config") is not None
        none = "no learning rate is given" + (
            " here; the configuration of DeepSpeed may state one" if elsewhere else ""
        )
        draft.lacks((*_RATE, "peak") if reasons else _RATE, reasons[0] if reasons else none)
        return None
    draft.put((*_RATE, "peak"), peak)
    return peak


def put_kind(draft: Draft, kinds: Mapping[str, str], usual: tuple[str, str], *names: str) -> str | None:
    """The form of the schedule by the framework's word for it."""
    pointer = (*_RATE, "kind")
    word = draft.word(*names)
    if word:
        kind = kinds.get(word.casefold(), "other")
        draft.put(pointer, kind, "" if kind == word else f"the schedule {cut_to(word, 60)}")
    elif draft.reasons(*names):
        draft.lacks(pointer, draft.reasons(*names)[0])
    elif usual[0]:
        draft.put(pointer, usual[0], Default(f"the default of {usual[1]}"))
    else:
        peak = draft.get(*_RATE, "peak")
        draft.drop([_RATE], f"the learning rate is {peak:g}, and the file names no schedule" if peak else "no schedule")
        return None
    return str(draft.get(*pointer)) if draft.get(*pointer) else None


def put_final(draft: Draft, *names: str) -> None:
    value = draft.number(*names)
    if value is not None:
        draft.put((*_RATE, "final"), value)
    for reason in draft.reasons(*names):
        draft.lacks((*_RATE, "final"), reason)


def _put_least(draft: Draft, kind: str | None, name: str = "min_lr") -> None:
    """The rate at the end of the decay: the least one, but where nothing decays, or where the decay ends elsewhere.

    Source: megatron/core/optimizer_param_scheduler.py of NVIDIA/Megatron-LM, megatron/learning_rates.py of
    EleutherAI/gpt-neox, nemo/core/optim/lr_scheduler.py of NVIDIA/NeMo.
    """
    if kind == "constant":
        draft.look(name)
    elif kind in {"other", "inverse-square-root"}:
        least = draft.number(name)
        if least is not None:
            draft.lacks((*_RATE, "final"), f"min_lr {least:g} bounds the schedule, which may end above it")
    else:
        put_final(draft, name)


def _put_warmup(draft: Draft, steps: Sequence[str], shares: Sequence[str], whole_at: Pointer, of: str = "") -> None:
    """Steps of warm-up, given as such or as a share of a number of steps; `of` names that number where it is open."""
    whole = draft.counted(*map(str, whole_at))
    pointer = (*_RATE, "warmup_steps")
    given, ratio = draft.look(*steps), draft.number(*shares)
    if isinstance(given, int) and (given > 0 or not ratio):
        draft.copy(pointer, *steps, least=0)
    elif isinstance(given, float) and 0 < given < 1:
        ratio = given
    elif isinstance(given, float) and given >= 1:
        draft.copy(pointer, *steps, least=0)
    elif draft.reasons(*steps, *shares):
        draft.lacks(pointer, draft.reasons(*steps, *shares)[0])
    if draft.get(*pointer) is None and ratio:
        if whole:
            draft.follow(pointer, math.ceil(ratio * whole), f"{ratio:g} of {whole} steps", whole_at)
        else:
            draft.lacks(pointer, f"{ratio:g} of {of or 'the steps, whose number is not stated'}")


def write_trainer(draft: Draft) -> None:
    """Optimizer and schedule of the transformers Trainer; those of an embedded DeepSpeed configuration go first."""
    elsewhere = draft.word("deepspeed") and not any(name.startswith("deepspeed.") for name in draft.values)
    if draft.get("optimizer", "name") is None:
        put_name(draft, ("adamw", _TRAINER), "optim")
        if elsewhere and draft.get("optimizer", "name"):
            stated = not isinstance(draft.derived.get(("optimizer", "name")), Default)
            usual = Default("the configuration of DeepSpeed may have another")
            draft.derived["optimizer", "name"] = Default(OTHER_OPTIMIZER) if stated else usual
    if draft.get(*CLIPPING) is None:
        put_clipping(draft, (1.0, _TRAINER), "max_grad_norm")
    if draft.get(*_RATE) is not None:
        return
    if draft.look("learning_rate") is None and not draft.reasons("learning_rate"):
        draft.put((*_RATE, "peak"), 5e-5, Default(f"the default of {_TRAINER}"))
    elif put_rate(draft, "learning_rate") is None:
        draft.lacks((*_RATE, "peak"), draft.unknown.pop(_RATE, "no learning rate is given"))
    kind = put_kind(draft, _TRAINER_KINDS, ("linear", _TRAINER), "lr_scheduler_type", "lr_scheduler")
    if elsewhere and kind:
        derived = draft.derived.get((*_RATE, "kind"), "")
        draft.derived[*_RATE, "kind"] = derived if isinstance(derived, Default) else Default(OTHER_SCHEDULE)
    if draft.word("lr_scheduler_type", "lr_scheduler") == "constant":
        _ignore_warmup(draft)
    else:
        _put_warmup(draft, ("warmup_steps",), ("warmup_ratio",), ("job", "num_steps"))
    put_final(draft, "lr_scheduler_kwargs.min_lr")
    share, peak = (
        draft.number("lr_scheduler_kwargs.min_lr_rate"),
        draft.get(*_RATE, "peak"),
    )
    if share is not None and draft.get(*_RATE, "final") is None and peak:
        draft.put((*_RATE, "final"), share_of(share, peak), "a share of the peak")
    elif kind in {"linear", "cosine"} and draft.get(*_RATE, "final") is None:
        end = f"{_TRAINER}: the schedule ends at zero"
        weak = elsewhere or isinstance(draft.derived.get((*_RATE, "kind")), Default)
        if draft.leaves_decided((*_RATE, "final")):
            draft.put((*_RATE, "final"), 0.0, Default(end) if weak else end)


def _ignore_warmup(draft: Draft) -> None:
    """The schedule `constant` of transformers has no warm-up, whatever is asked for."""
    asked = [name for name in ("warmup_steps", "warmup_ratio") if draft.look(name)]
    if asked or draft.reasons("warmup_steps", "warmup_ratio"):
        how = "lr_scheduler_type constant has no warm-up (transformers 5.23.0, get_scheduler)"
        draft.put((*_RATE, "warmup_steps"), 0, how)
    for name in asked:
        told = f"{name} has no effect: lr_scheduler_type constant has no warm-up; constant_with_warmup has one"
        draft.remark(told, name)


def write_megatron(draft: Draft, *, defaults: bool = True) -> None:
    """Optimizer and schedule of Megatron-LM's arguments."""
    _put_megatron_name(draft, defaults=defaults)
    put_clipping(draft, (1.0 if defaults else 0.0, _MEGATRON), "clip_grad")
    if put_rate(draft, "lr") is None and not draft.reasons("lr"):
        return
    styles = ("lr_decay_style", "scheduler.lr_decay_style")
    if defaults or draft.look(*styles) is not None or draft.reasons(*styles):
        kind = put_kind(draft, _MEGATRON_KINDS, ("linear", _MEGATRON), *styles)
        _put_least(draft, kind)
    else:  # a recipe names the form, on which the rate at the end depends
        kind, least = None, draft.number("min_lr")
        draft.lacks((*_RATE, "kind"), "the file names no lr_decay_style; the recipe decides")
        if least is not None:
            told = f"min_lr {least:g}, unless the form of the schedule, which the recipe decides, ends above it"
            draft.lacks((*_RATE, "final"), told)
    ends = kind not in {"constant", "other", "inverse-square-root"} and not draft.reasons("min_lr")
    if defaults and ends and draft.get(*_RATE, "final") is None:
        draft.put((*_RATE, "final"), 0.0, Default(f"the default of {_MEGATRON}"))
    _put_megatron_total(draft, defaults=defaults)
    warmup = ("lr_warmup_iters", "scheduler.lr_warmup_iters")
    length = draft.counted("job", "num_steps")
    usual = f"the {length} steps of the job unless the recipe sets it"
    of = f"lr_decay_iters, which is not given: {usual}" if length else ""
    _put_warmup(draft, warmup, ("lr_warmup_fraction", "scheduler.lr_warmup_fraction"), (*_RATE, "total_steps"), of)
    _put_samples(draft, "warmup", "lr_warmup_samples")
    if kind == "warmup-stable-decay":
        draft.copy((*_RATE, "decay_steps"), "lr_wsd_decay_iters", "scheduler.lr_wsd_decay_iters")
        _put_samples(draft, "decay", "lr_wsd_decay_samples")


def _put_megatron_name(draft: Draft, *, defaults: bool) -> None:
    """The optimizer; what Megatron-LM calls Adam decouples weight decay, as AdamW does, in all releases."""
    put_name(draft, ("adamw" if defaults else "", f"{_MEGATRON}, {_ADAM}"), "optimizer")
    if (draft.word("optimizer") or "").casefold() == "adam":
        draft.put(("optimizer", "name"), "adamw", f"the optimizer adam: {_ADAM}")


def _put_megatron_total(draft: Draft, *, defaults: bool) -> None:
    """Steps over which the learning rate falls: those of the job where nothing else is said."""
    pointer = (*_RATE, "total_steps")
    draft.copy(pointer, "lr_decay_iters", "scheduler.lr_decay_iters")
    _put_samples(draft, "total", "lr_decay_samples")
    steps = draft.get("job", "num_steps")
    if defaults and steps and not draft.reasons("lr_decay_iters"):
        draft.default(pointer, steps, f"the length of the job, the default of {_MEGATRON}", ("job", "num_steps"))
    tokens, given = draft.get("job", "num_tokens"), draft.reasons("lr_decay_samples") or draft.look("lr_decay_samples")
    if defaults and tokens and not steps and draft.get("batch", "ramp") and not given:
        usual = f"the length of the job, the default of {_MEGATRON}"
        draft.default((*_RATE, "total_tokens"), tokens, usual, ("job", "num_tokens"))


def _put_samples(draft: Draft, key: str, name: str) -> None:
    """A length that a setting gives in samples: in steps, or in tokens where the batch grows."""
    pointer, names = (*_RATE, f"{key}_steps"), (name, f"scheduler.{name}")
    samples = draft.look(*names)
    draft.count(*names)
    for reason in draft.reasons(*names):
        draft.lacks(pointer, reason)
    whole = draft.counted("batch", "global_sequences")
    if not is_count(samples) or draft.get(*pointer):
        return
    grows = bool(draft.get("batch", "ramp")) or ("batch", "ramp") in draft.unknown
    length = draft.counted("model", "sequence_length")
    if grows and length and not draft.get("batch", "variable_length"):
        draft.put((*_RATE, f"{key}_tokens"), samples * length, f"{name} x sequence length")
    elif grows:
        draft.lacks(pointer, f"{name} is {samples}, and the batch grows")
    elif whole is None:
        draft.lacks(pointer, f"{name} is {samples}, and the global batch is not known")
    elif samples >= whole:
        draft.put(pointer, samples // whole, f"{name} over {whole} sequences of a step")
    else:
        draft.lacks(pointer, f"{name} is {samples}, less than one batch")


def write_neox(draft: Draft) -> None:
    """Clipping and schedule of a GPT-NeoX configuration; its optimizer is the one of DeepSpeed."""
    if draft.look("gradient_clipping") is None:
        put_clipping(draft, (1.0, _NEOX), "gradient_clipping")
    draft.unknown.pop(_RATE, None)
    if put_rate(draft, "optimizer.params.lr", "lr") is None:
        return
    kind = put_kind(draft, _MEGATRON_KINDS, ("linear", _NEOX), "lr_decay_style")
    _put_least(draft, kind)
    if draft.get(*_RATE, "final") is None and not draft.reasons("min_lr") and kind in {"linear", "cosine"}:
        draft.put((*_RATE, "final"), 0.0, Default(f"the default of {_NEOX}"))
    steps = draft.counted("job", "num_steps")
    share = draft.number("lr_decay_fraction")
    if share is not None:
        told = f"lr_decay_fraction {share:g} of the steps"
        total_at = (*_RATE, "total_steps")
        draft.follow(total_at, int(share * steps), told, ("job", "num_steps")) if steps else draft.lacks(total_at, told)
    else:
        draft.copy((*_RATE, "total_steps"), "lr_decay_iters")
        if steps:
            draft.default((*_RATE, "total_steps"), steps, f"train_iters, the default of {_NEOX}", ("job", "num_steps"))
    total, warm = draft.counted(*_RATE, "total_steps"), draft.number("warmup")
    if warm is None and not draft.reasons("warmup") and total:
        usual = Default(f"1 % of the steps, the default of {_NEOX}")
        draft.follow((*_RATE, "warmup_steps"), int(0.01 * total), usual, (*_RATE, "total_steps"))
    elif warm is not None and total:
        draft.follow((*_RATE, "warmup_steps"), int(warm * total), f"{warm:g} of {total} steps", (*_RATE, "total_steps"))
    else:
        draft.lacks((*_RATE, "warmup_steps"), next(iter(draft.reasons("warmup")), "a share of an unknown number"))


def write_torchtitan(draft: Draft) -> None:
    """Optimizer and schedule of a torchtitan job."""
    put_name(draft, ("adamw", _TORCHTITAN), "optimizer.name")
    put_clipping(draft, (1.0, _TORCHTITAN), "training.max_norm")
    if draft.look("optimizer.lr") is None and not draft.reasons("optimizer.lr"):
        draft.put((*_RATE, "peak"), 8e-4, Default(f"the default of {_TORCHTITAN}"))
    elif put_rate(draft, "optimizer.lr") is None:
        return
    steps = draft.counted("job", "num_steps")
    draft.copy((*_RATE, "warmup_steps"), "lr_scheduler.warmup_steps", "training.warmup_steps", least=0)
    draft.default((*_RATE, "warmup_steps"), 200, f"the default of {_TORCHTITAN}")
    _put_torchtitan_kind(draft, steps)
    least, peak = draft.number("lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"), draft.get(*_RATE, "peak")
    if least is not None and peak:
        draft.put((*_RATE, "final"), share_of(least, peak), "a share of the peak")
    elif reason := next(iter(draft.reasons("lr_scheduler.min_lr_factor", "lr_scheduler.lr_min")), ""):
        draft.lacks((*_RATE, "final"), reason)
    elif draft.get(*_RATE, "kind") not in {None, "constant"}:
        draft.default((*_RATE, "final"), 0.0, f"min_lr_factor 0, the default of {_TORCHTITAN}")
    if steps:
        draft.follow((*_RATE, "total_steps"), steps, "training.steps", ("job", "num_steps"))
        _clamp_warmup(draft, steps)


def _put_torchtitan_kind(draft: Draft, steps: int | None) -> None:
    """The form of the schedule: a share of the steps decays, and what neither warms up nor decays is stable."""
    share, warmup = draft.number("lr_scheduler.decay_ratio"), draft.counted(*_RATE, "warmup_steps") or 0
    decay = round(steps * share) if steps and share is not None else 0
    fills = bool(steps and warmup < steps <= warmup + decay)
    if share is None or share >= 1 or fills:
        kinds = {"linear": "linear", "cosine": "cosine", "sqrt": "other"}
        put_kind(draft, kinds, ("linear", _TORCHTITAN), "lr_scheduler.decay_type")
    elif share == 0:
        draft.look("lr_scheduler.decay_type")
        draft.put((*_RATE, "kind"), "constant", "decay_ratio 0: nothing decays")
    else:
        draft.look("lr_scheduler.decay_type")
        draft.put((*_RATE, "kind"), "warmup-stable-decay", f"decay_ratio {share:g} leaves a stable part")
        if steps:
            draft.follow((*_RATE, "decay_steps"), max(1, decay), f"{share:g} of {steps} steps", ("job", "num_steps"))


def _clamp_warmup(draft: Draft, steps: int) -> None:
    """Cut a warmup to the job, and a decay to what is left, after torchtitan/components/optimizer/lr_scheduler.py."""
    warmup, decay = draft.counted(*_RATE, "warmup_steps") or 0, draft.counted(*_RATE, "decay_steps") or 0
    place = (*_RATE, "warmup_steps")
    if warmup > steps:
        how = f"{warmup} steps, which torchtitan cuts to the {steps} steps of the job"
        draft.put(place, steps, like(draft.derived.get(place, ""), how))
        warmup = steps
    if warmup + decay > steps and decay:
        how = f"{decay} steps, which torchtitan cuts to the {steps - warmup} steps after the warmup"
        if steps > warmup:
            draft.put((*_RATE, "decay_steps"), steps - warmup, how)
        else:
            draft.drop([(*_RATE, "decay_steps")], how)


def write_nemo(draft: Draft) -> None:
    """Optimizer, schedule and adapters of a NeMo configuration."""
    put_name(draft, ("", ""), "model.optim.name")
    if draft.word("model.optim.name") in {"mcore_distributed_optim", "distributed_adam"}:
        draft.put(("optimizer", "name"), "adamw", f"the distributed optimizer of Megatron runs {_ADAM}")
    nested = [name for name in draft.values if re.fullmatch(r"trainer\.\w+\.gradient_clip_val", name)]
    put_clipping(draft, (0.0, ""), "trainer.gradient_clip_val", *nested)
    if put_rate(draft, "model.optim.lr") is not None:
        put_kind(draft, _NEMO_KINDS, ("", ""), "model.optim.sched.name")
    if draft.get(*_RATE) is not None:
        draft.copy((*_RATE, "warmup_steps"), "model.optim.sched.warmup_steps", least=0)
        _put_least(draft, draft.get(*_RATE, "kind"), "model.optim.sched.min_lr")
        draft.copy((*_RATE, "total_steps"), "model.optim.sched.max_steps")
    scheme = draft.word("model.peft.peft_scheme", "peft.peft_scheme")
    if scheme and scheme.casefold() not in {"lora", "none", "null"}:
        draft.lacks(("lora",), f"peft_scheme is {cut_to(scheme, 40)}, whose adapters are not read")
    if scheme == "lora":
        tuning = "model.peft.lora_tuning." if "model.peft.peft_scheme" in draft.values else "peft.lora_tuning."
        put_lora(draft, f"{tuning}adapter_dim", f"{tuning}alpha", f"{tuning}target_modules")


def put_lora(draft: Draft, rank: str, alpha: str, targets: str) -> None:
    """Low-rank adapters; matrices that only the model's own code names stay open."""
    draft.copy(("lora", "rank"), rank)
    reason = next(iter(draft.reasons(rank)), "")
    draft.lacks(("lora", "rank"), reason or f"no {rank} is given: the program's own default")
    scale = draft.number(alpha)
    stabilised = f"{alpha.rpartition('.')[0]}.use_rslora".lstrip(".")
    if draft.flag(stabilised):
        draft.lacks(("lora", "alpha"), f"{stabilised} divides alpha by the root of the rank, a plan by the rank")
    elif scale is not None and scale > 0:
        draft.put(("lora", "alpha"), scale)
    listed = draft.look(targets)
    names = listed.split(",") if isinstance(listed, str) else listed if isinstance(listed, list) else []
    plain = [name.strip() for name in names if isinstance(name, str)]
    found = [_TARGETS.get(name.rpartition(".")[2].casefold()) for name in plain]
    pointer = ("lora", "targets")
    if found and None not in found:
        draft.put(pointer, sorted({word for word in found if word}), f"{targets}, in the words of a plan")
    else:
        odd = next((name for name, word in zip(plain, found, strict=True) if word is None), "")
        why = f"{odd[:60]!r} is no matrix that a plan has a word for; the model's code decides" if odd else ""
        if odd in {"all", "all-linear"}:
            why = f"{targets} {odd!r}: every linear layer, which the model's code names"
        reason = next(iter(draft.reasons(targets)), "")
        draft.lacks(pointer, why or reason or f"no {targets} is given: the program's own default")


def write_peft(draft: Draft) -> None:
    """LoRA as arguments of training programs on top of the Trainer name it."""
    draft.look("use_peft", "use_lora", "lora_enable")
    for prefix in ("", "peft_config.", "lora_config.", "lora."):
        alpha, targets = f"{prefix}lora_alpha", [f"{prefix}{name}" for name in ("lora_target_modules", "lora_target")]
        targets += [f"{prefix}target_modules"]
        ranks = [f"{prefix}{name}" for name in ("lora_r", "lora_rank", *(["r"] if prefix else []))]
        rank = next((name for name in ranks if name in draft.values), None)
        target = next((name for name in targets if name in draft.values), None)
        if rank or target or alpha in draft.values:
            put_lora(draft, rank or ranks[0], alpha, target or targets[0])
            return
    draft.lacks(
        ("lora",),
        "adapters are asked for, or weights that are quantised, and no setting that is read describes the adapter",
    )
