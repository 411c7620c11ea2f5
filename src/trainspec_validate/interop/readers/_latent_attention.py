"""Counts the projections of latent attention, which the shape of a plan does not hold."""

from __future__ import annotations

from collections.abc import Callable

from trainspec_validate.interop.readers._plan_parts import Draft

_LARGEST = 10**8
KEYS = ("kv_lora_rank", "q_lora_rank", "head", "rotary", "value")


def latent_parameters(hidden: int, heads: int, ranks: tuple[int, int | None], sizes: tuple[int, int, int]) -> int:
    """Parameters of one layer's attention; `ranks` of keys and queries, `sizes` of a head, its rotary part, values.

    Queries `h q + q a (k + r)`, or `h a (k + r)` without a rank; keys and values `h (c + r) + c a (k + v)`; output
    `a v h`. Source: arXiv:2412.19437 section 2.1.1. Example: DeepSeek-V3, 187 million in each of 61 layers.

    >>> latent_parameters(7168, 128, (512, 1536), (128, 64, 128))
    187105280
    """
    key_rank, query_rank = ranks
    key, rotary, value = sizes
    width = heads * (key + rotary)
    queries = hidden * width if query_rank is None else query_rank * (hidden + width)
    return queries + hidden * (key_rank + rotary) + key_rank * heads * (key + value) + heads * value * hidden


def count_latent(draft: Draft, names: Callable[[str], str]) -> None:
    """Note the attention parameters of a layer by settings of the given names, and leave out keys that mislead."""
    hidden, heads = draft.counted("model", "hidden_size"), draft.counted("model", "num_attention_heads")
    key_rank, query_rank, *sizes = (draft.count(names(key)) for key in KEYS)
    for key in ("num_key_value_heads", "head_size"):
        draft.facts["model"].pop(key, None)
        draft.unknown.pop(("model", key), None)
    known = [value for value in (hidden, heads, key_rank, *sizes) if value and value <= _LARGEST]
    if len(known) == len(sizes) + 3 and (query_rank or 1) <= _LARGEST:
        width, num_heads, rank, head, rotary, value = known
        draft.attention_parameters = latent_parameters(width, num_heads, (rank, query_rank), (head, rotary, value))
