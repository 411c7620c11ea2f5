"""Describes the state as boxes of global tensors, which PyTorch's library writes.

The library takes a second to load, and a worker that replaces another trains before it needs any of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import torch
import torch.distributed as dist

UPDATES, NUM_RANKS = "optimizer/count", "layout/num_ranks"
"""Names of the steps that the moments hold, and of the number of ranks that wrote the checkpoint."""
KINDS = PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS = "parameters", "optimizer/first", "optimizer/second"
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


HostSnapshot = dict[str, Box]
"""Boxes of the state that this rank answers for, in host memory; later optimizer steps do not change them."""


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
