"""Withdraws defaults of Megatron-LM's command line where they do not hold."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from trainspec_validate.interop.readers._plan_parts import Default, Draft, Habit
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import bare, cut_to

_LOADED = "NVIDIA/Megatron-LM@d98e8a64:megatron/training/checkpointing.py"
_FORCED = ("gated_ffn", "tied_embeddings", "num_key_value_heads", "attention", "positions", "num_parameters")
"""Keys of the model that follow from arguments which the checkpoint overwrites."""
_COUNTS_EXPERTS = re.compile(
    r"(?:^|_)(?:num|n|number_of|total)_(?:\w+_)?experts?\Z|(?:^|_)moe_num_|(?:^|_)expert_(?:model_)?parallel"
)
_OTHER_SHAPE: Final = re.compile(
    r"(?:^|_)(?:m?bridge|hf_(?:model|config|checkpoint))(?:_|\Z)|auto_model|from_pretrained"
)
"""Parts of names that options of forks have which take the shape of the model from elsewhere."""
_SIZES: Final = (("model", "num_parameters"), ("model", "num_active_parameters"))


def drop_defaults(draft: Draft) -> None:
    """Defaults of Megatron-LM's own command line, which no other program shares."""
    for group, key in (
        ("communication", "timeout_seconds"),
        ("communication", "overlap_gradients"),
        ("communication", "overlap_parameters"),
        ("precision", "nonfinite_action"),
        ("batch", "accumulation_steps"),
    ):
        how = draft.derived.get((group, key), "")
        if "megatron/training/arguments.py" in how:
            del draft.derived[group, key]
            del draft.facts[group][key]
            draft.lacks((group, key), "the file does not say, and the default depends on the version")


_GROUPS = ("experts", "state_space")
"""Groups of the model whose settings a checkpoint replaces."""


def drop_from_checkpoint(draft: Draft) -> None:
    """Settings of `--use-checkpoint-args` from the checkpoint: sizes that are not given, and switches in any case."""
    if not draft.flag("use_checkpoint_args"):
        return
    source = f"use_checkpoint_args takes it from the checkpoint ({_LOADED})"
    draft.drop(
        [place for place, how in draft.derived.items() if place[0] == "model" and isinstance(how, Default)], source
    )
    for key in _FORCED:
        value = draft.get("model", key)
        if value is not None and not isinstance(value, dict):
            draft.drop(
                [("model", key)],
                f"{json.dumps(value) if isinstance(value, bool) else value} by the arguments, but {source}",
            )
    inner = [(("model", group, key), value) for group in _GROUPS for key, value in _items(draft, group)]
    for place, value in inner:
        draft.drop([place], f"{bare(value)} by the arguments, but {source}")


def _items(draft: Draft, group: str) -> Iterator[tuple[str, Any]]:
    """The facts of a group of the model."""
    found = draft.get("model", group)
    yield from found.items() if isinstance(found, dict) else ()


def leave_foreign_model_open(draft: Draft) -> None:
    """Keys of the model that depend on options which only a changed Megatron-LM has."""
    counts = [name for name in _unknown_names(draft) if _COUNTS_EXPERTS.search(name)]
    if counts and draft.look("num_experts", "num_moe_experts") is None:
        why = f"{counts[0]} may give the model experts, and is no option of Megatron-LM that this reader knows"
        draft.drop([("model", "family"), ("model", "experts"), ("parallelism", "expert"), *_SIZES], why)
    spec = draft.values.get("spec")
    if isinstance(spec, str) and not spec.startswith("megatron.core."):
        why = f"spec takes the layers from {cut_to(spec, 80)}, which is not read"
        draft.drop([("model", "family"), ("model", "attention"), *_SIZES], why)
    elsewhere = next((name for name in _unknown_names(draft) if _OTHER_SHAPE.search(name)), None)
    if elsewhere:
        why = f"{elsewhere} may take the model from elsewhere, and is no option of Megatron-LM that this reader knows"
        draft.drop([("model", key) for key in draft.facts.get("model", {})], why)
    made = "made of its number of parameters" in draft.derived.get(("model", "name"), "")
    if made and draft.get("model", "num_parameters") is None:
        draft.drop([("model", "name")], "no setting that is read names the model")


def _unknown_names(draft: Draft) -> Iterator[str]:
    return (name for name, value in draft.values.items() if name not in draft.used and value not in (None, False))


def drop_all_defaults(draft: Draft, why: str, kept: Collection[Pointer] = ()) -> None:
    """Every fact that comes from a default or from code of Megatron-LM, where another program has its own."""
    foreign = [
        at
        for at, how in draft.derived.items()
        if at not in kept and (isinstance(how, Default | Habit) or "NVIDIA/Megatron-LM@" in how)
    ]
    draft.drop(foreign, why)


def leave_chunks_open(draft: Draft, why: str) -> None:
    """Leave the schedule open where another file may split the stages into chunks that this one does not state."""
    stated = draft.count("virtual_pipeline_model_parallel_size") or draft.values.get("pipeline_model_parallel_layout")
    if stated or draft.values.keys() >= {"virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout"}:
        return
    draft.drop([("parallelism", "schedule")], why)
    for key in ("schedule", "num_virtual_stages", "stage_layers"):
        draft.lacks(("parallelism", key), why)


def drop_model_defaults(draft: Draft, why: str) -> None:
    """Keys of the model that Megatron-LM's defaults decide, where a program makes the model in its own code."""
    weak = [at for at, how in draft.derived.items() if at[0] == "model" and isinstance(how, Default)]
    draft.drop(weak, why)


def drop_after_exit(draft: Draft) -> None:
    """The length of a job that `--exit-interval` ends before its last step."""
    steps, end = draft.counted("job", "num_steps"), draft.count("exit_interval")
    reason = next(iter(draft.reasons("exit_interval")), "")
    if not reason and (end is None or (steps is not None and steps <= end)):
        return
    why = f"exit_interval: {reason}" if reason else f"exit_interval ends each run at a multiple of {end} steps"
    places = [("job", "num_steps"), ("job", "num_tokens")]
    draft.drop([at for at in places if at in draft.unknown or draft.get(*at) is not None], why)
    draft.lacks(("job", "num_steps"), why)
