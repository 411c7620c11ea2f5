"""Says whether the number in the name of a directory is an optimizer step, or counts epochs or saves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from trainspec_validate.checkpoints import bundles
from trainspec_validate.checkpoints.save_names import STEP_NAME
from trainspec_validate.checkpoints.view import Checkpoint

_WORD = re.compile(r"^[A-Za-z_]*(?<!_)", re.ASCII)
_NEVER = frozenset({"epoch", "save"})
_ALWAYS = frozenset({"step", "global_step", "iter"})
_TRAINER = "trainer_state.json"
"""The Trainer of Hugging Face names each of its directories by the step."""
_ACCELERATE = re.compile(r"pytorch_model(?:_[0-9]{1,3})?", re.ASCII)
_AUTOMATIC = re.compile(r"checkpoint_[0-9]+", re.ASCII)
"""Accelerate writes DeepSpeed to such a directory, and with automatic names counts saves from 0:
https://github.com/huggingface/accelerate/blob/v1.2.0/src/accelerate/accelerator.py, `save_state`."""


def step_of_name(one: Checkpoint, others: Iterable[Checkpoint]) -> int | None:
    """The optimizer step that a name says; None where it says none, or counts epochs or saves.

    Args:
        one: as it was read.
        others: the checkpoints next to it, which are read only where the word of the name decides nothing.
    """
    if one.is_bundle:
        return None if bundles.counts_saves(one.bundle) else bundles.step_of(one.bundle)
    match = STEP_NAME.match(one.root.name)
    word = _word(one)
    if match is None or word in _NEVER:
        return None
    step = int(match["step"])
    is_open = word not in _ALWAYS and _TRAINER not in one.files and _said(one) not in {None, step}
    return None if is_open and _counts_saves(one, others) else step


def _counts_saves(one: Checkpoint, others: Iterable[Checkpoint]) -> bool:
    """Whether the contents of all with names of one word are on one side of their names, and grow with them."""
    counted = {}
    for each in (one, *others):
        match, said = STEP_NAME.match(each.root.name), _said(each)
        if match and said is not None and not each.is_bundle and _word(each) == _word(one):
            counted[int(match["step"])] = said
    signs = {(said > number) - (said < number) for number, said in counted.items()}
    grow = all(first[1] < second[1] for first, second in pairwise(sorted(counted.items())))
    if len(counted) == 1:
        is_automatic = _AUTOMATIC.fullmatch(one.root.name) is not None and any(map(_ACCELERATE.fullmatch, one.folders))
        return is_automatic and signs == {1}
    return grow and signs in ({1}, {-1})


def _word(one: Checkpoint) -> str:
    match = _WORD.match(one.root.name)
    return match[0] if match else ""


def _said(one: Checkpoint) -> int | None:
    return max((claim.step for claim in one.claims), default=None)
