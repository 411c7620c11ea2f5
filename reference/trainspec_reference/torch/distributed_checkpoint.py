"""Drives PyTorch's distributed checkpoints; `checkpoint.library` loads it when one is read or written."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from trainspec_reference.common.backend import CheckpointUnreadableError, PeerLostError
from trainspec_reference.common.checkpoints import sync
from trainspec_reference.torch.checkpoint import Box, HostSnapshot
from trainspec_reference.torch.groups import peers_needed


def _tensors(boxes: Mapping[str, Box]) -> dict[str, Any]:
    """The boxes as tensors that the library divides and joins by itself."""
    return {name: box.tensor if box.group is None else _shard(box, box.group) for name, box in boxes.items()}


def _shard(box: Box, group: dist.ProcessGroup) -> DTensor:
    """A box of a tensor that the ranks of a group divide along the axis in which the box is shorter."""
    axis = next(axis for axis, size in enumerate(box.whole_shape) if size != box.tensor.shape[axis])
    mesh = DeviceMesh.from_group(group, "cpu")
    strides = torch.empty(box.whole_shape, device="meta").stride()
    return DTensor.from_local(box.tensor, mesh, [Shard(axis)], shape=torch.Size(box.whole_shape), stride=strides)


class _IndexUnpickler(pickle.Unpickler):
    """Makes what an index of boxes is made of, and calls nothing else: the file may come from anywhere."""

    _DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "int64", "uint8"})
    _PLAIN = frozenset(
        {
            ("torch", "Size"),
            ("torch.serialization", "_get_layout"),
            ("pathlib", "PosixPath"),
            ("pathlib", "PurePosixPath"),
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
            *(
                ("torch.distributed.checkpoint.metadata", name)
                for name in (
                    "Metadata",
                    "TensorStorageMetadata",
                    "TensorProperties",
                    "ChunkStorageMetadata",
                    "MetadataIndex",
                    "StorageMeta",
                    "_MEM_FORMAT_ENCODING",
                )
            ),
        }
    )

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) in self._PLAIN or (module_name == "torch" and global_name in self._DTYPES):
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"the index asks for {module_name}.{global_name}, which no checkpoint needs")


class IndexReader(FileSystemReader):
    """PyTorch's reader, with an index that is read without running it."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index of the checkpoint."""
        with (Path(self.path) / ".metadata").open("rb") as file:
            index = _unpickled(file)
        if not isinstance(index, Metadata):
            raise pickle.UnpicklingError("the index is not one of PyTorch's distributed checkpoints")
        index.storage_meta = StorageMeta(load_id=self.load_id)
        return index


def _unpickled(file: BinaryIO) -> Any:
    return _IndexUnpickler(file).load()


def write(snapshot: HostSnapshot, directory: Path, group: dist.ProcessGroup | None) -> None:
    """Write the boxes of all ranks of the group into one checkpoint, forced to storage.

    Raises:
        OSError: this rank, or another one, cannot write.
        PeerLostError: a rank is gone.
    """
    writer = FileSystemWriter(directory, single_file_per_rank=True, sync_files=True)
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        with peers_needed():
            tensors, is_alone = _tensors(snapshot), group is None
            save(tensors, storage_writer=writer, planner=planner, process_group=group, no_dist=is_alone)
    except CheckpointException as error:  # no Exception in PyTorch, and it hides what each rank met
        causes = {rank: failure[0] for rank, failure in error.failures.items()}
        words = "; ".join(f"rank {rank}: {cause}" for rank, cause in sorted(causes.items()))
        if all(isinstance(cause, PeerLostError) for cause in causes.values()):
            raise PeerLostError(words) from error
        raise OSError(words) from error
    sync(directory)


def names_in(directory: Path) -> frozenset[str]:
    """Names of the global tensors of a checkpoint.

    Raises:
        CheckpointUnreadableError: there is no readable index.
    """
    try:
        return frozenset(IndexReader(directory).read_metadata().state_dict_metadata)
    except Exception as error:  # a damaged pickle raises what it likes
        raise CheckpointUnreadableError(f"{directory / '.metadata'}: {error or type(error).__name__}") from error


def read(boxes: Mapping[str, Box], directory: Path) -> None:
    """Fill the boxes from a checkpoint, however the ranks that wrote it had divided its tensors.

    Raises:
        CheckpointUnreadableError: a file is missing, damaged or of another model.
    """
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # it is so by intention
        load(_tensors(boxes), storage_reader=IndexReader(directory), planner=planner, no_dist=True)
    except CheckpointException as error:
        causes = "; ".join(str(failure[0]) for failure in error.failures.values())
        raise CheckpointUnreadableError(f"{directory}: {causes}") from error
    except Exception as error:
        raise CheckpointUnreadableError(f"{directory}: {error or type(error).__name__}") from error
