"""Compares the files of a checkpoint with those of older ones, where nothing else says what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from trainspec_validate.checkpoints.bundles import form_of
from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.inventory import STEP_NAME, inventory
from trainspec_validate.checkpoints.view import Checkpoint

NUM_COMPARED = 2
"""Older checkpoints whose files a newer one is expected to have."""
_NUM_FORMS = 4
"""Numbers in a path that are equal to the step and each may be something else."""
_OF_STEP = "N"


def lacking(checkpoint: Checkpoint, older: Sequence[Path]) -> Iterator[str]:
    """Without mark, manifest and index, only older checkpoints say which files belong to one; what lacks, in words.

    Args:
        checkpoint: as it was read.
        older: directories of the checkpoints before it, from the newest on.
    """
    older = [root for root in older if STEP_NAME.match(root.name) and form_of(root.name) == form_of(checkpoint.label)]
    if checkpoint.marks or checkpoint.manifest or checkpoint.is_bundle or not older:
        return
    if not STEP_NAME.match(checkpoint.root.name):
        return  # directories of other names are of other runs
    present = {form for path in _state(checkpoint) for form in _forms(path, checkpoint.step)}
    first, *others = [_absent(inventory(root), present) for root in older]
    both = [forms for forms in first if all(any(forms & found for found in other) for other in others)]
    absent = sorted(min(forms, key=lambda form: (-form.count(_OF_STEP), form)) for forms in both)
    if absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if len(absent) > 3 else "")
        yield f"{shown} is missing, which older checkpoints next to it have"


def _state(checkpoint: Checkpoint) -> list[str]:
    return [path for path in checkpoint.files if path.lower().endswith(STATE_SUFFIXES)]


def _absent(older: Checkpoint, present: Set[str]) -> list[set[str]]:
    """The forms of each file of state of an older checkpoint that is there in none of them."""
    return [forms for path in _state(older) if present.isdisjoint(forms := _forms(path, older.step))]


def _forms(path: str, step: int | None) -> set[str]:
    """A path, and the same with a sign in place of the step: a number that is equal may be the rank of a process."""
    if step is None:
        return {path}
    *parts, last = re.split(rf"(?<!\d)(0*{step})(?!\d)", path)
    if len(parts) > 2 * _NUM_FORMS:
        return {path, "".join([*(_OF_STEP if n % 2 else part for n, part in enumerate(parts)), last])}
    forms = {""}
    for n, part in enumerate(parts):
        forms = {form + word for form in forms for word in ((part, _OF_STEP) if n % 2 else (part,))}
    return {form + last for form in forms}
