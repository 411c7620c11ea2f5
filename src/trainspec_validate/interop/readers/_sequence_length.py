"""Turns bounds on the length of samples into the sequence length of a plan, for programs of the Trainer."""

from __future__ import annotations

from trainspec_validate.interop.readers._huggingface_weights import is_factory
from trainspec_validate.interop.readers._plan_parts import Draft, shown
from trainspec_validate.model.finding import Pointer

_PLACE: Pointer = ("model", "sequence_length")
_TOKENS: Pointer = ("batch", "global_tokens")
_DIFFER = "samples differ in length"
_LENGTHS = ("max_seq_length", "max_length", "model_max_length", "cutoff_len")
"""Arguments at which programs cut samples; `block_size` is that into which they pack them."""
_FILLED = ("packing", "neat_packing", "sample_packing", "pad_to_sequence_len", "pad_to_max_length")
"""Arguments that fill each sequence up to its bound. LLaMA-Factory packs in its stage `pt` without being asked."""
_GENERATED = ("max_completion_length", "response_length", "max_new_tokens")
"""Arguments that bound what a trainer of TRL or ms-swift generates."""


def write_length(draft: Draft) -> None:
    """The longest sequence; a trainer that generates has one bound for prompts and another for what it generates.

    Samples that are neither packed nor padded to the bound are shorter than it: their tokens are not known.
    """
    draft.copy(_PLACE, *_LENGTHS, "block_size")
    is_bound = any(draft.values.get(name) is not None for name in _LENGTHS)
    filled = [draft.flag(name) for name in _FILLED]
    pretrains = is_factory(draft) and draft.values.get("stage") == "pt" and draft.flag("packing") is None
    if is_bound and not pretrains and not any(filled):
        draft.lacks(_TOKENS, _DIFFER)
        if draft.get("model", "sequence_length") is not None and _PLACE not in draft.derived:
            draft.derived[_PLACE] = f"the longest that is trained on; {_DIFFER}"
    bound = next((name for name in _GENERATED if draft.values.get(name) is not None), None)
    if bound is not None and draft.get("model", "sequence_length") is not None:
        length = draft.get("model", "sequence_length")
        told = f"{bound} {shown(draft.values[bound])} bounds what is generated; {length} may bound the prompt alone"
        draft.drop([_PLACE], told)
