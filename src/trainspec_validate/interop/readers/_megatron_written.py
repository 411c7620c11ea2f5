"""Lays a configuration of DeepSpeed that a script writes itself over its arguments of Megatron-DeepSpeed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.readers import _deepspeed_plan
from trainspec_validate.interop.readers._plan_parts import Draft, shown
from trainspec_validate.interop.readers._setting_places import MAX_LISTED
from trainspec_validate.interop.readers._worlds import leaves
from trainspec_validate.model.finding import Pointer

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


def lay_over(draft: Draft, settings: Mapping[str, Any], file: str) -> None:
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
