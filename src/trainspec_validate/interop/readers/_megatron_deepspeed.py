"""Reads the arguments of Megatron-DeepSpeed, a fork of Megatron-LM, by its own rules, and what a script writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.readers import _deepspeed_plan
from trainspec_validate.interop.readers._plan_parts import Default, Draft, is_count, shown
from trainspec_validate.interop.readers._setting_places import MAX_LISTED
from trainspec_validate.interop.readers._worlds import leaves
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import bare, cut_to

FORK = "deepspeedai/Megatron-DeepSpeed@207b2d5a:megatron/arguments.py"
_STARTS = ("deepspeed", "deepspeed_config", "zero_stage")
_OWN = (*_STARTS, "moe_expert_parallel_size", "topk", "expert_interval", "train_tokens", "ds_sequence_parallel_size")
"""Arguments that Megatron-LM does not have."""
_DECIDED = (
    ("precision", "compute"),
    ("precision", "parameters"),
    ("optimizer", "clipping"),
    ("communication", "overlap_gradients"),
    ("communication", "overlap_parameters"),
    ("communication", "timeout_seconds"),
    ("precision", "nonfinite_action"),
    ("precision", "gradients"),
    ("precision", "accumulation"),
    ("precision", "reduction"),
    ("precision", "master_parameters"),
    ("precision", "optimizer_state"),
)
"""What the file that `deepspeed_config` names decides, whatever Megatron-LM does by default."""
_ASKED = frozenset({"compute", "parameters"})
"""What arguments of Megatron-LM ask for as well."""
_WHY = "with DeepSpeed the file that deepspeed_config names decides"
_WHOLE: Pointer = ("batch", "global_sequences")
_COMPARED: tuple[Pointer, ...] = (
    _WHOLE,
    ("batch", "micro_sequences"),
    ("batch", "accumulation_steps"),
    ("parallelism", "sharding"),
    ("precision", "compute"),
)
"""What arguments and configuration both state."""
_FORMATS = (
    *("compute", "parameters", "master_parameters", "gradients", "accumulation", "reduction", "optimizer_state"),
    *("loss_scaling", "nonfinite_action"),
)
_TAKEN = ("precision", "communication", "memory")
_PIPELINE = "DeepSpeed switches overlap_comm off for a PipelineModule, which no_pipeline_parallel alone avoids"


def is_fork(draft: Draft) -> bool:
    """Whether the arguments are those of Megatron-DeepSpeed."""
    draft.used.update(_OWN)
    experts = draft.values.get("num_experts")
    return isinstance(experts, list) or any(draft.values.get(name) not in (None, False) for name in _OWN)


def num_experts(value: object) -> object:
    """The number of experts of a layer, of which the fork takes a list; the list itself where its items differ.

    >>> num_experts([64, 64]), num_experts(128), num_experts([32, 64])
    (64, 128, [32, 64])
    """
    alike = isinstance(value, list) and value and all(item == value[0] for item in value)
    return value[0] if alike and isinstance(value, list) else value


def write_experts(draft: Draft, layers: int | None) -> None:
    """Experts of each layer, in every second layer unless stated otherwise, of which a token visits one."""
    pointer: Pointer = ("model", "experts", "num_experts")
    count = num_experts(draft.look("num_experts"))
    if is_count(count):
        draft.put(pointer, count)
    else:
        draft.lacks(pointer, "the layers differ in their experts, or the ranks decide on their number")
    draft.copy(("model", "experts", "num_active_experts"), "topk")
    draft.default(("model", "experts", "num_active_experts"), 1, f"the default of {FORK}")
    width = draft.counted("model", "ffn_hidden_size")
    if width:
        how = Default(f"as ffn_hidden_size, after {FORK}")
        draft.follow(("model", "experts", "ffn_hidden_size"), width, how, ("model", "ffn_hidden_size"))
    if draft.word("mlp_type") not in {None, "standard"}:
        draft.lacks(("model", "experts", "num_shared_experts"), "mlp_type: an expert that every token visits")
    interval, place = draft.count("expert_interval"), ("model", "experts", "num_layers")
    for reason in draft.reasons("expert_interval"):
        draft.lacks(place, reason)
        return
    if layers and layers // (interval or 2):
        every = f"every {interval or 2} layers one with experts"
        draft.put(place, layers // (interval or 2), every if interval else Default(f"{every}, the default of {FORK}"))


def write_degrees(draft: Draft) -> None:
    """The degree over experts, and one of Ulysses, which takes ranks from the data degree."""
    experts = draft.get("model", "experts", "num_experts")
    if draft.get("model", "experts") is not None and experts != 1:
        why = "no moe_expert_parallel_size: it is the smaller of the experts and the ranks"
        draft.lacks(("parallelism", "expert"), f"{why}, after {FORK}")
    ulysses = draft.look("ds_sequence_parallel_size")
    if ulysses not in {None, 1} or draft.reasons("ds_sequence_parallel_size"):
        draft.lacks(("parallelism", "context"), "ds_sequence_parallel_size: DeepSpeed splits sequences over ranks")


def sharding(draft: Draft) -> str | None:
    """State that the stage of ZeRO shards, where the arguments name it; otherwise it is left open."""
    stage = draft.look("zero_stage")
    if stage in (1, 2, 3) and not isinstance(stage, bool):
        return ("optimizer", "gradients", "parameters")[int(stage) - 1]
    if stage == 0 and not draft.flag("bf16"):
        return "none"
    why = f"{_WHY}; with bf16 its optimizer shards at stage 0 too" if stage == 0 else _WHY
    draft.lacks(("parallelism", "sharding"), why)
    return None


def write_tokens(draft: Draft) -> None:
    """`train_tokens` ends the run, or `train_iters` where those are done before."""
    tokens, steps = draft.count("train_tokens"), draft.counted("job", "num_steps")
    place: Pointer = ("job", "num_tokens")
    if tokens is None:
        for reason in draft.reasons("train_tokens"):
            draft.lacks(place, reason)
        return
    whole, length = draft.counted("batch", "global_sequences"), draft.counted("model", "sequence_length")
    draft.facts.get("job", {}).pop("num_tokens", None)
    if steps and (not whole or not length or steps * whole * length < tokens):
        draft.lacks(place, f"the run ends after {tokens} tokens or {steps} steps, whichever comes first")
    else:
        draft.put(place, tokens, "train_tokens, which end the run")
    if steps and ("job", "num_tokens") not in draft.unknown:
        del draft.facts["job"]["num_steps"]
        draft.lacks(("job", "num_steps"), f"train_tokens end the run before its {steps} steps are done")


def settle(draft: Draft, source: str, written: Mapping[str, Any] | None = None) -> None:
    """Leave open what a file of DeepSpeed decides, and name the fork for defaults that it shares with `source`.

    `written` are the settings of such a file that the script itself writes.
    """
    if not is_fork(draft):
        return
    for group, key in _DECIDED:
        if group == "communication" and not isinstance(draft.derived.get((group, key)), Default):
            continue  # an argument says so
        value = draft.facts.get(group, {}).pop(key, None)
        draft.derived.pop((group, key), None)
        said = f"{bare(value)} by the arguments, but " if key in _ASKED and value is not None else ""
        draft.lacks((group, key), f"{said}{_WHY}")
    steps: Pointer = ("batch", "accumulation_steps")
    named = draft.word("deepspeed_config")
    if written and draft.values.get("deepspeed_config") is not None:
        for pointer in [at for at in draft.unknown if at in _DECIDED or at[:2] == ("precision", "loss_scaling")]:
            del draft.unknown[pointer]
        _lay_over(draft, written, str(draft.values["deepspeed_config"]).rpartition("/")[2][:80])
    elif named:
        told = f"deepspeed_config names the file {cut_to(named, 120)}, which decides what these arguments leave open"
        draft.remark(told, "deepspeed_config")
    if named and isinstance(draft.derived.get(steps), Default):
        draft.drop([steps], f"no global batch is given, and {_WHY}")
    _leave_curriculum_open(draft, written or {})
    for pointer, how in list(draft.derived.items()):
        if isinstance(how, Default) and source in how:
            draft.derived[pointer] = Default(how.replace(source, FORK))


def _leave_curriculum_open(draft: Draft, written: Mapping[str, Any]) -> None:
    """Leave open the tokens of a step where a curriculum shortens sequences, or a file that is not read may do so."""
    named = draft.values.get("deepspeed_config")
    settings = {name: value for name, value in written.items() if "curriculum" in name}
    asked = [name for name, value in settings.items() if name.endswith(".enabled") and value is not False]
    asked += [name for name, value in draft.values.items() if "curriculum" in name and value not in (None, False)]
    if asked:
        why = f"{cut_to(asked[0], 60)}: a curriculum may train on shorter sequences first"
        draft.remark(f"{why}; a plan has no place for it")
    elif named is not None and not written:
        why = f"a curriculum in {cut_to(bare(named), 80)}, which is not read, may train on shorter sequences first"
    else:
        return
    draft.lacks(("batch", "global_tokens"), why)
    if draft.derived.get(("job", "num_tokens"), "").startswith("samples x"):
        draft.drop([("job", "num_tokens")], why)


def _lay_over(draft: Draft, settings: Mapping[str, Any], file: str) -> None:
    """Facts of a configuration, in the place of those that arguments of Megatron-LM would decide without DeepSpeed."""
    stated = {at: draft.get(*map(str, at)) for at in _COMPARED}
    asked = [half for half in ("fp16", "bf16") if draft.flag(half)]
    stated["precision", "compute"] = asked[0] if len(asked) == 1 else None
    inner = Draft(settings)
    _deepspeed_plan.write_plan(inner)
    draft.drop(
        [("precision", key) for key in _FORMATS if ("precision", key) in _places(draft, "precision")], f"see {file}"
    )
    for group in _TAKEN:
        for at, value in leaves(inner.facts.get(group, {}), (group,)):
            how = inner.derived.get(at)
            if at == ("memory", "offload"):
                draft.put_records(at, value, f"{file}, which the script writes")
            elif group == "precision" or draft.get(*map(str, at)) is None or at in draft.derived:
                draft.put(at, value, f"{file}, which the script writes" if not how else type(how)(f"{how}, {file}"))
    for at, why in inner.unknown.items():
        if at[0] in _TAKEN and at != ("precision", "high_precision_operations"):
            draft.unknown[at] = f"{file}: {why}"
    _write_clipping(draft, inner, file)
    _write_overlap(draft, inner)
    _compare(draft, stated, inner, file)
    unread = [name for name, value in settings.items() if name not in inner.used and value not in (None, {}, [])]
    if unread:
        draft.remark(f"not read of {file}: {', '.join(unread[:MAX_LISTED])}", "deepspeed_config")
    for message, _ in inner.told:
        draft.remark(f"{file}: {message}", "deepspeed_config")


def _places(draft: Draft, group: str) -> set[Pointer]:
    return {(group, key) for key in draft.facts.get(group, {})}


def _write_clipping(draft: Draft, inner: Draft, file: str) -> None:
    """The bound of the configuration: DeepSpeed does not see the one of the arguments."""
    place = ("optimizer", "clipping")
    draft.drop([place], f"{file} gives no gradient_clipping, and DeepSpeed does not see clip_grad")
    for key, value in (inner.get(*place) or {}).items():
        draft.put((*place, key), value, f"gradient_clipping of {file}")


def _write_overlap(draft: Draft, inner: Draft) -> None:
    place, stage = ("communication", "overlap_gradients"), inner.values.get("zero_optimization.stage")
    if stage in (1, 2) and not draft.flag("no_pipeline_parallel") and not isinstance(stage, bool):
        draft.put(place, value=False, how=_PIPELINE)


def _compare(draft: Draft, stated: Mapping[Pointer, Any], inner: Draft, file: str) -> None:
    """Take what the configuration alone states, and leave open what it states in another way than the arguments."""
    for at, said in stated.items():
        configured = inner.get(*map(str, at))
        weak = at in inner.derived and at != ("parallelism", "sharding")
        open_sharding = at == ("parallelism", "sharding") and configured == "none"
        if configured is None or (weak and at[0] == "batch") or open_sharding:
            continue
        if said is None and at not in draft.unknown and at[0] != "precision":
            draft.put(at, configured, f"{file}, which the script writes")
        elif said is not None and said != configured:
            told = f"{shown(said)} by the arguments, {shown(configured)} by {file}, which the script writes"
            draft.drop([at, *(_following(draft) if at == _WHOLE else [])], told)
            if at == ("precision", "compute"):
                draft.drop(sorted(_places(draft, "precision")), told)
            draft.remark(f"{'.'.join(map(str, at))}: {told}", "deepspeed_config")


def _following(draft: Draft) -> list[Pointer]:
    """What was computed from the batch of the arguments."""
    made = [at for at, how in draft.derived.items() if "sequences of a step" in how]
    kept = {("batch", "accumulation_steps"), ("batch", "ramp"), *made}
    return [at for at in kept if draft.get(*map(str, at)) is not None]
