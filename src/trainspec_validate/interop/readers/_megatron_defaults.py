"""Withdraws defaults of Megatron-LM's command line where they do not hold."""

from __future__ import annotations

from typing import Any

from trainspec_validate.interop.readers._plan_parts import Draft


def drop_defaults(draft: Draft) -> None:
    """Defaults of Megatron-LM's own command line, which hold for nobody else."""
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


def drop_all_defaults(draft: Draft, why: str) -> None:
    """Every fact that stands on a default, where another program than Megatron-LM's command line sets its own."""
    for pointer, how in list(draft.derived.items()):
        if "megatron/training/arguments.py" not in how:
            continue
        inner = draft.facts
        for key in pointer[:-1]:
            inner = inner.get(str(key), {})
        inner.pop(str(pointer[-1]), None)
        del draft.derived[pointer]
        draft.lacks(pointer, why)
    draft.facts = _full(draft.facts)


def _full(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts without groups that hold nothing."""
    inner = {key: _full(value) if isinstance(value, dict) else value for key, value in facts.items()}
    return {key: value for key, value in inner.items() if value != {}}
