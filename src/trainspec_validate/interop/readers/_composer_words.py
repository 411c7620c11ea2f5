"""Reads what LLM Foundry and the OLMo trainer name alike, by the words of Composer: formats, sharding and ranks."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Default, Draft
from trainspec_validate.model.values import cut_to

AUTOCAST = {"amp_bf16": "bf16", "amp_fp16": "fp16"}
"""Formats of products by the word of `precision`."""
_SHARDING = {"full_shard": "parameters", "shard_grad_op": "gradients", "no_shard": "none"}
_SHARDED = ("parallelism", "sharding")
_RANKS = "the launcher decides the number of ranks, over which the trainer divides the batch"


def put_sharding(draft: Draft, kind: str, usual: tuple[str, str] = ("", "")) -> None:
    """Put the state that a `sharding_strategy` shards; `usual` is a default with its source, or empty with a reason."""
    if not kind and usual[0]:
        draft.put(_SHARDED, usual[0], Default(usual[1]))
    elif not kind:
        draft.lacks(_SHARDED, usual[1])
    elif kind.casefold() in _SHARDING:
        draft.put(_SHARDED, _SHARDING[kind.casefold()], f"sharding_strategy {kind}")
    else:
        draft.lacks(_SHARDED, f"sharding_strategy {cut_to(kind, 40)} shards in groups whose size the ranks decide")


def leave_ranks_open(draft: Draft) -> None:
    """Leave open what follows from the number of ranks, which no setting states."""
    for pointer in (("parallelism", "num_accelerators"), ("parallelism", "data"), ("batch", "accumulation_steps")):
        draft.lacks(pointer, _RANKS)
