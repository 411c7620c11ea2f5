"""Turns the optimizer, clipping and scheduler of a DeepSpeed configuration into parts of a plan."""

from __future__ import annotations

from trainspec_validate.interop.readers._clipping_plan import put_clipping
from trainspec_validate.interop.readers._optimizer_plan import put_final, put_kind, put_name, share_of
from trainspec_validate.interop.readers._plan_parts import Default, Draft
from trainspec_validate.model.values import cut_to

_RATE = ("optimizer", "learning_rate")
_DEEPSPEED = "deepspeedai/DeepSpeed@edaa7221:deepspeed/runtime/lr_schedules.py"
_OPTIMIZER = "deepspeedai/DeepSpeed@edaa7221:deepspeed/runtime/config.py"
_USUAL_PEAK = 1e-3
_DEEPSPEED_KINDS = {"warmuplr": "constant", "warmupdecaylr": "linear", "warmupcosinelr": "cosine"}
_BY_OPTIMIZER = frozenset({"warmupcosinelr", "onecycle", "lrrangetest"})
"""Kinds whose largest rate is one of the optimizer, unless they name another one."""


def write_deepspeed(draft: Draft, prefix: str) -> None:
    """Optimizer, clipping and scheduler of a DeepSpeed configuration; without an entry the program decides."""
    _put_deepspeed_name(draft, prefix)
    if draft.get("optimizer", "name") is None and not prefix:
        draft.lacks(("optimizer", "name"), "the training program makes the optimizer")
    put_clipping(draft, (0.0, ""), f"{prefix}gradient_clipping")
    kind = (draft.word(f"{prefix}scheduler.type") or "").casefold()
    if not kind:
        if not prefix:
            rate = draft.number("optimizer.params.lr")
            stated = f"optimizer.params.lr is {rate:g}, and " if rate is not None else ""
            draft.lacks(_RATE, f"{stated}the training program makes the schedule")
        return
    _put_deepspeed_peak(draft, prefix, kind)
    put_kind(draft, _DEEPSPEED_KINDS, ("", ""), f"{prefix}scheduler.type")
    parameters = f"{prefix}scheduler.params."
    _put_deepspeed_warmup(draft, f"{parameters}warmup_num_steps", is_least_two=kind in _DEEPSPEED_KINDS)
    draft.copy((*_RATE, "total_steps"), f"{parameters}total_num_steps")
    if kind == "warmupdecaylr":
        put_final(draft, f"{parameters}warmup_min_lr")
        draft.default((*_RATE, "final"), 0.0, f"WarmupDecayLR falls to warmup_min_lr, by default zero ({_DEEPSPEED})")
    if kind in _DEEPSPEED_KINDS and not draft.reasons(f"{parameters}warmup_num_steps"):
        draft.default((*_RATE, "warmup_steps"), 1000, f"the default of {_DEEPSPEED}")
    if kind == "warmupcosinelr":
        _put_share(draft, f"{parameters}cos_min_ratio", (1e-4, _DEEPSPEED))


def _put_deepspeed_warmup(draft: Draft, name: str, *, is_least_two: bool) -> None:
    """Steps of warm-up, of which the schedules WarmupLR, WarmupDecayLR and WarmupCosineLR have at least two."""
    place, steps = (*_RATE, "warmup_steps"), draft.copy((*_RATE, "warmup_steps"), name, least=0)
    if not is_least_two or steps is None or steps > 1:
        return
    if steps == 1:
        draft.put(place, 2, f"{name} 1, of which these schedules make 2 ({_DEEPSPEED})")
        return
    draft.drop([place], f"{name} is 0, of which some versions of DeepSpeed make 2 steps and others refuse it")


def _put_deepspeed_name(draft: Draft, prefix: str) -> None:
    """The optimizer; Adam decouples weight decay, as AdamW does, unless `adam_w_mode` is false."""
    word, mode = f"{prefix}optimizer.type", f"{prefix}optimizer.params.adam_w_mode"
    is_coupled = draft.flag(mode) is False
    if (draft.word(word) or "").casefold() != "adam" or is_coupled:
        put_name(draft, ("", ""), word)
    elif draft.reasons(mode):
        draft.lacks(("optimizer", "name"), draft.reasons(mode)[0])
    else:
        draft.put(("optimizer", "name"), "adamw", f"Adam with adam_w_mode, the default of {_OPTIMIZER}")


def _put_deepspeed_peak(draft: Draft, prefix: str, kind: str) -> None:
    """The largest learning rate, which WarmupLR, WarmupDecayLR and OneCycle set in place of the optimizer."""
    own, rate = f"{prefix}scheduler.params.warmup_max_lr", f"{prefix}optimizer.params.lr"
    cycle = f"{prefix}scheduler.params.cycle_max_lr"
    name = own if kind in {"warmuplr", "warmupdecaylr"} else cycle if draft.values.get(cycle) is not None else rate
    peak = draft.number(name)
    draft.look(rate)
    if kind not in _BY_OPTIMIZER | _DEEPSPEED_KINDS.keys():
        stated = f"; the rate of the optimizer is {peak:g}" if peak is not None else ""
        draft.lacks((*_RATE, "peak"), f"the schedule {cut_to(kind, 40)} is not known, and may change the rate{stated}")
    elif peak is not None and peak > 0:
        draft.put((*_RATE, "peak"), peak)
    elif draft.reasons(name):
        draft.lacks((*_RATE, "peak"), draft.reasons(name)[0])
    elif name == own and peak is None and draft.number(rate) in {None, _USUAL_PEAK}:
        draft.put((*_RATE, "peak"), _USUAL_PEAK, Default(f"warmup_max_lr, the default of {_DEEPSPEED}"))
    elif name == own and peak is None:
        told = (
            f"without warmup_max_lr it is 0.001 ({_DEEPSPEED}), and {draft.number(rate):g}, the rate of the optimizer"
        )
        draft.lacks((*_RATE, "peak"), f"{told}, in later releases")
    else:
        draft.lacks((*_RATE, "peak"), "no learning rate is given")


def _put_share(draft: Draft, name: str, usual: tuple[float, str]) -> None:
    """The last learning rate as a share of the peak; `usual` is the framework's own share, with its source."""
    share, peak = draft.number(name), draft.get(*_RATE, "peak")
    how = Default(f"{usual[0]:g} of the peak, the default of {usual[1]}") if share is None else "a share of the peak"
    for reason in draft.reasons(name):
        draft.lacks((*_RATE, "final"), reason)
        return
    if peak:
        draft.put((*_RATE, "final"), share_of(usual[0] if share is None else share, peak), how)
