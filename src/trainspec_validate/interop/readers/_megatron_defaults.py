"""Withdraws defaults of Megatron-LM's command line where they do not hold."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Draft, without_empty


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
    draft.facts = without_empty(draft.facts)
