"""Finds arguments of a program of its own that split the ranks of a job in a way that no reader knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.interop.readers._huggingface_training import OVERLAPPED
from trainspec_validate.interop.readers._plan_parts import Draft, shown
from trainspec_validate.model.values import cut_to

_SIZE = r"(?:_(?:world_|group_)?(?:size|degree|dim|num|n))?\Z"
_PARALLEL = r"_?(?:model_?)?parallel(?:ism)?(?:_(?:world_|group_)?(?:size|degree|dim|num|mode))?\Z"
_AXES = {
    "tensor": re.compile(
        rf"(?:^|_)(?:(?:auto)?tp|mp|tensor_mp)_(?:world_|group_)?(?:size|degree|dim)\Z|^(?:num_|n_)?tp\Z"
        rf"|(?:^|_)(?:tensor|model){_PARALLEL}|(?:^|_)tensor_shard(?:ing)?{_SIZE}"
    ),
    "pipeline": re.compile(
        rf"(?:^|_)pp_(?:world_|group_)?(?:size|degree|dim)\Z|^(?:num_|n_)?pp\Z|(?:^|_)pipe(?:line)?{_PARALLEL}"
        r"|(?:^|_)(?:num_)?pipe(?:line)?_stages\Z"
    ),
    "context": re.compile(
        rf"(?:^|_)[cs]p_(?:world_|group_)?(?:size|degree|dim|mode)\Z|^(?:num_|n_)?cp\Z|(?:^|_)(?:context|seq(?:uence)?)"
        rf"{_PARALLEL}|(?:^|_)ulysses\w*?(?:_size|_degree)\Z|(?:^|_)(?:use_)?ulysses{_SIZE}"
        rf"|(?:^|_)ring_att(?:n|ention)\w*?(?:_size|_degree)\Z|^(?:use_)?ring_att(?:n|ention){_SIZE}"
    ),
    "expert": re.compile(rf"(?:^|_)ep_(?:world_|group_)?(?:size|degree|dim)\Z|(?:^|_)(?:moe_)?expert{_PARALLEL}"),
}
"""Names that speak of the ranks over which something is split, by what it is."""
_OTHERS = re.compile(
    r"(?:^|[._])(?:vllm|sglang|rollout|generat\w*|infer\w*|eval\w*|critic|ref|reward|teacher|draft|vocab|overlap)(?:[._]|\Z)"
)
"""Parts of the names of arguments about another program than the one that trains."""
_READ = ("accelerate.", "deepspeed.", "parallelism_config.", "$")
"""Before the names of settings of which a reader knows what they split."""
_MICRO = re.compile(r"(?:^|_)micro_(?:\w{1,20}_)?(?:batch|bsz|bs)(?:_?size)?(?:_\w{1,20})?\Z")
_IDLE = (None, False, 0, 1, "", "none", "None", "no", "False", "false")


def split_of(name: str) -> str:
    """Dimension that a setting of this name splits over ranks; empty where the name speaks of no split.

    >>> [split_of(name) for name in ("tensor_parallel_size", "pp_size", "ulysses_size", "ep_size", "vllm_tp_size")]
    ['tensor', 'pipeline', 'context', 'expert', '']
    """
    plain = name.lower().replace("-", "_")[:200]
    if name.startswith(_READ) or _OTHERS.search(plain):
        return ""
    last = plain.rpartition(".")[2]
    return next((axis for axis, words in _AXES.items() if words.search(last)), "")


def _split(draft: Draft) -> Iterator[tuple[str, str]]:
    """What arguments split over ranks in a way of the program's own, each with the reason for what stays open."""
    for name in [*draft.values]:
        axis = split_of(name)
        if not axis:
            continue
        size = draft.look(name)
        reason = next(iter(draft.reasons(name)), "")
        if not reason and (size is not True and size in _IDLE):
            continue
        told = (
            f"{reason or f'{cut_to(name, 60)} is {shown(size)}'}: the program splits ranks in a way of its own ({axis})"
        )
        yield axis, told


def leave_splits_open(draft: Draft) -> None:
    """Leave open the degrees of ranks that an argument splits in a way of the program's own, and the sharding."""
    for axis, told in _split(draft):
        draft.lacks(("parallelism", axis), told)
        if axis == "expert":  # its ranks may be data ranks, or ranks that share sequences
            draft.lacks(("parallelism", "context"), told)
        # Ranks that hold one replica are no data ranks, and nothing says how the replicas share their weights.
        draft.lacks(("parallelism", "data"), told)
        if draft.get("parallelism", "sharding") in {None, "none"}:
            draft.drop([("parallelism", "sharding")], told)
            draft.unknown["parallelism", "sharding"] = told


def leave_split_reduction_open(draft: Draft) -> None:
    """Leave open how gradients are reduced where ranks are split so; another reason for it stays."""
    for _, told in _split(draft):
        if draft.derived.get(("communication", "overlap_gradients")) == OVERLAPPED:
            draft.drop([("communication", "overlap_gradients")], told)


def leave_micro_batch_open(draft: Draft) -> None:
    """Leave the micro-batch open where a further argument that no one reads names one of another size."""
    stated = draft.get("batch", "micro_sequences")
    for name, value in draft.values.items():
        another = _MICRO.search(name.lower().replace("-", "_")) and name not in draft.used and "." not in name
        if another and stated is not None and value not in (None, stated):
            told = f"{stated} by per_device_train_batch_size, and {cut_to(name, 60)} is {shown(value)}"
            draft.drop([("batch", "micro_sequences")], f"{told}; the program decides")
            return
