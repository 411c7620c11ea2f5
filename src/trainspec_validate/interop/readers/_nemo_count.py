"""Counts parameters of NeMo's models that the shape leaves out, or says which setting leaves the count open."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers._megatron_count import count_biases
from trainspec_validate.interop.readers._plan_parts import Default, Draft, shown
from trainspec_validate.model.values import cut_to

_SIZED = re.compile(
    r"bias|norm(?!al)|embedding(?!s\Z)|head|expert|mtp|nextn|predict|lora|adapter|ffn|feed_?forward|intermediate|vocab|hidden|width"
    r"|layers?(?:_|\Z)|tied?(?:_|\Z)|shared?(?:_|\Z)|rank|gate|conv|memory|prefix|prompt|emha|block_type|sink|highway|mlp"
)
"""Words in the names of settings that may give a model weights."""
_WEIGHTLESS = re.compile(
    r"dropout|epsilon|_eps\Z|fusion|weight_decay|persist|init|_std\Z|checkpoint|scaling|recompute|offload|overlap|parallel"
    r"|loss|dtype|precision|zero_centered|wgrad|pipeline|cuda|grouped_gemm|capacity|dispatcher|coeff|router|freeze|sync"
    r"|interval|interpolation|save_|timers|log_level"
)
"""Words in the names of settings that change no weight."""
_USUAL = {"transformer_block_type": "pre_ln", "attention_type": "multihead"}
_SOURCES = {
    "add_bias_linear": "biases",
    "normalization": "norms with an offset",
    "position_embedding_type": "a table of positions",
}
"""Settings that say what is beside the matrices, with what NeMo has where one is not given."""
_OFF = (None, False, 0, 0.0, "", "none", "None", "null")


def count_more(draft: Draft) -> None:
    """Add biases, norms and positions of a NeMo model to its parameters; a setting that no one knows leaves them open.

    Whether there are biases, and which norms and positions, are the defaults of NeMo where the file does not say.
    """
    count_biases(draft)
    for name, value in draft.values.items():
        origin = draft.origins.get(name, name)
        section, _, key = origin.partition(".")
        if section != "model" or "." in key or name in draft.used or value in _OFF or isinstance(value, dict | list):
            continue
        if _SIZED.search(key) and not _WEIGHTLESS.search(key) and _USUAL.get(key) != value:
            why = "which this reader does not know and which may give the model weights"
            draft.more_parameters = f"{cut_to(origin, 60)} is {shown(value)}, {why}"
            return


def count_stated(draft: Draft) -> None:
    """Add what a configuration of Megatron Bridge states of biases, norms and positions, where it states it all."""
    stated = [name for name in _SOURCES if draft.values.get(name) is not None]
    if len(stated) == len(_SOURCES):
        count_biases(draft)
    elif draft.flag("add_bias_linear") or "layernorm" in str(draft.values.get("normalization")).casefold():
        left = next(name for name in _SOURCES if name not in stated)
        draft.more_parameters = f"the file does not state {left}, and the recipe or the model provider decides it"


def mark_usual(draft: Draft) -> None:
    """Mark a count as a default where the file leaves biases, norms or positions to NeMo, and the name made of it."""
    left = [name for name in _SOURCES if draft.values.get(name) is None]
    for place in (("model", "num_parameters"), ("model", "name")):
        how = draft.derived.get(place, "")
        if left and how and ("counted from" in how or "made of its number" in how):
            draft.derived[place] = Default(f"{how}; {', '.join(_SOURCES[name] for name in left)} by default of NeMo")
