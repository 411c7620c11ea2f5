"""Reads the file that nanotron writes last, which says the step and without which it loads nothing."""

from __future__ import annotations

import re

from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.view import Checkpoint

# https://github.com/huggingface/nanotron/blob/06468b637/src/nanotron/serialize/main.py, save and load
_METADATA = "checkpoint_metadata.json"
_OWN = re.compile(
    r"^(?:model/(?:[^/]+/)*model_[^/]*_pp-rank-[0-9]+-of-[0-9]+_tp-rank-[0-9]+-of-[0-9]+\.safetensors|optimizer/optimizer_pp-[0-9]+-of-[0-9]+_"
    r"[^/]*\.pt)$"
)
_EARLIER = "resume from an earlier checkpoint"


def read(checkpoint: Checkpoint) -> None:
    """Add the step that nanotron says, or that it is not there."""
    if checkpoint.is_bundle or not any(map(_OWN.match, checkpoint.files)):
        return
    checkpoint.formats.append("nanotron")
    checkpoint.examined |= {"mark", "container", "limits"}
    if _METADATA not in checkpoint.files:
        words = f"{_METADATA}, which nanotron writes after all state and reads first, is missing"
        checkpoint.report("mark", "", words, f"the save was interrupted: {_EARLIER}")
        return
    try:
        content = read_json(read_small(checkpoint.root / _METADATA))
    except LimitError as error:
        checkpoint.report("limits", _METADATA, f"the file {error}")
        return
    except UnreadableError as error:
        checkpoint.report("container", _METADATA, f"the file {error}", _EARLIER)
        return
    said = content.get("metas") if isinstance(content, dict) else None
    step = said.get("last_train_step") if isinstance(said, dict) else None
    if not checkpoint.claim(_METADATA, step, f"{_METADATA} (last_train_step)"):
        words = "the file has no last_train_step that is a whole number from 0"
        checkpoint.report("container", _METADATA, words, _EARLIER)
