"""Recognises the remains of unfinished saves."""

from __future__ import annotations

import re

from trainspec_validate.checkpoints.leftovers import forgiven
from trainspec_validate.checkpoints.save_names import is_unfinished
from trainspec_validate.checkpoints.view import Checkpoint

_RESIDUE = re.compile(
    r"(^|/)[^/]*(\.tmp|\.partial|\.incomplete|\.dirty|\.orbax-checkpoint-tmp[^/]*|\._dlrover_ckpt_stage|~)(/|$)"
)
_FULL = re.compile(r"^tmp-checkpoint-|(\.tmp|\.orbax-checkpoint-tmp.*)$")
"""The first form is that of Hugging Face Transformers before 4.43."""


def read(checkpoint: Checkpoint) -> None:
    """Report files of staging, and a directory that itself is one."""
    checkpoint.examined.add("residue")
    if _FULL.search(checkpoint.root.name) or is_unfinished(checkpoint.label):
        what = "file" if checkpoint.is_bundle else "directory"
        words = f"the {what} still has the name that it is written under"
        checkpoint.report("residue", "", words, "the save was not committed; remove it, or rename it if it is whole")
    told = set(forgiven(checkpoint))
    for path in (*checkpoint.folders, *checkpoint.files):
        if path not in told and _RESIDUE.search(path) and not any(path.startswith(f"{folder}/") for folder in told):
            told.add(path)
            words = "an unfinished save has left this behind"
            checkpoint.report("residue", path, words, "remove it once the checkpoint is known to be whole")
