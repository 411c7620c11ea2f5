"""Describes a checkpoint as boxes of global tensors, which PyTorch's library writes.

The library takes a second to load, and a worker that replaces another trains before it needs any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
    from torch.distributed.checkpoint.planner import WriteItem

UPDATES, NUM_RANKS = "optimizer/count", "layout/num_ranks"
"""Names of the updates that the moments hold, and of the number of ranks that wrote the checkpoint."""
PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS = "parameters", "optimizer/first", "optimizer/second"
"""First words of the names of tensors in a checkpoint; the name of the parameter follows."""


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a global tensor, in host memory; PyTorch's planners ask it for its place by these three names."""

    tensor: torch.Tensor
    whole_shape: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def whole(cls, tensor: torch.Tensor) -> Box:
        """A tensor that one rank holds alone."""
        return cls(tensor, tuple(tensor.shape), (0,) * tensor.ndim)

    def size(self) -> torch.Size:
        """Shape of the global tensor."""
        return torch.Size(self.whole_shape)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata  # noqa: PLC0415 - as below

        return [ChunkStorageMetadata(offsets=torch.Size(self.offsets), sizes=self.tensor.shape)]

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties  # noqa: PLC0415
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType  # noqa: PLC0415

        data = TensorWriteData(
            chunk=self.__create_chunk_list__()[0],
            properties=TensorProperties.create_from_tensor(self.tensor),
            size=self.size(),
        )
        index = MetadataIndex(name, torch.Size(self.offsets))
        return [WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)]


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """Boxes of the state that this rank answers for; later updates do not change them."""

    boxes: Mapping[str, Box]

    @property
    def num_bytes(self) -> int:
        """Bytes of all boxes."""
        return sum(box.tensor.nbytes for box in self.boxes.values())


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
