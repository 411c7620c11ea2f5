"""Describes the state as boxes of global tensors, which PyTorch's library writes, and digests it whoever holds them.

The library takes a second to load, and a worker that replaces another trains before it needs any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

from trainspec_reference.common.weights import state_digest, tensor_digest
from trainspec_reference.torch.groups import Groups
from trainspec_reference.torch.parts import plain_shape

if TYPE_CHECKING:
    from trainspec_reference.torch.replica import Replica
    from trainspec_reference.torch.sharded import ShardedReplica

UPDATES, NUM_RANKS = "optimizer/count", "layout/num_ranks"
"""Names of the steps that the moments hold, and of the number of ranks that wrote the checkpoint."""
PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS = "parameters", "optimizer/first", "optimizer/second"
"""First words of the names of tensors in a checkpoint; the name of the parameter follows."""


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a global tensor; PyTorch's checkpoints take it as a DTensor where ranks of a group hold the others."""

    tensor: torch.Tensor
    whole_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    group: dist.ProcessGroup | None = None
    """Ranks that divide the tensor along one axis; None where this rank holds it whole."""

    @classmethod
    def whole(cls, tensor: torch.Tensor) -> Box:
        """A tensor that one rank holds alone."""
        return cls(tensor, tuple(tensor.shape), (0,) * tensor.ndim)


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """Boxes of the state that this rank answers for; later optimizer steps do not change them."""

    boxes: Mapping[str, Box]


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory, page-locked where it comes from a device."""
    if tensor.device.type == "cpu":
        return tensor.clone()
    copied = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copied.copy_(tensor)
    return copied


def library() -> ModuleType:
    """The module that drives PyTorch's checkpoints, loaded when one is read or written."""
    return import_module("trainspec_reference.torch.distributed_checkpoint")


_WORDS = {4: torch.int32, 8: torch.int64}


def digest(
    state: Replica | ShardedReplica, shapes: Mapping[str, tuple[int, ...]], groups: Groups, dtype: torch.dtype
) -> str:
    """State digest, of whole tensors from this rank's own copies, and of split ones from the boxes of all ranks.

    `shapes` are those of all global parameters, in the same order on every rank.
    """
    digests = [tensor_digest(UPDATES, np.array(state.num_updates, np.int64))]
    digests += [_one(name, box.tensor) for name, box in state.whole_tensors()]
    for kind in state.split_kinds():
        for name, tensor in global_tensors(kind, state, shapes, groups, dtype):
            digests.append(_one(f"{kind}/{name}", tensor))
    return state_digest(digests)


def global_tensors(
    kind: str,
    state: Replica | ShardedReplica,
    shapes: Mapping[str, tuple[int, ...]],
    groups: Groups,
    dtype: torch.dtype,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Global tensors of a kind, by the name of the parameter, in host memory; all ranks call it."""
    if kind not in state.split_kinds():
        for name, box in state.whole_tensors():
            if name.startswith(f"{kind}/"):
                yield name.removeprefix(f"{kind}/"), box.tensor.detach().cpu()
        return
    boxes = state.split_tensors()
    for name, shape in shapes.items():
        yield name, assembled(boxes.get(f"{kind}/{name}"), shape, groups, dtype).cpu()


def assembled(box: Box | None, whole_shape: tuple[int, ...], groups: Groups, dtype: torch.dtype) -> torch.Tensor:
    """A global tensor, on every rank, from the boxes of all ranks: words are summed, so that no bit is rounded away."""
    whole = torch.zeros(whole_shape, dtype=dtype, device=groups.device)
    if box is not None:
        place = tuple(slice(at, at + size) for at, size in zip(box.offsets, box.tensor.shape, strict=True))
        whole[place] = box.tensor
    groups.sum_of(whole.view(_WORDS[dtype.itemsize]))
    return whole


def _one(name: str, tensor: torch.Tensor) -> str:
    return tensor_digest(name, plain_shape(name, tensor.detach().cpu().numpy()))
