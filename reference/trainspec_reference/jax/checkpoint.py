"""Writes a rank's state with Orbax, and reads the states of all ranks back as whole tensors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainspec_reference.common.backend import CheckpointUnreadableError
from trainspec_reference.jax.layout import Piece, Shape

ARRAYS = "arrays"
"""Directory of a rank's arrays, as Orbax writes a tree."""
INDEX = "pieces.json"
"""What these arrays are."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """One array of a checkpoint: a piece of a tensor of some kind, or, without a piece, a value of its own."""

    kind: str
    """`parameters`, `first`, `second`, `residual/{number among the copies}`, `count`, `key` or `basis`."""
    piece: Piece | None


@dataclass(frozen=True, slots=True)
class JaxSnapshot:
    """What one rank writes, in host memory."""

    rank: int
    num_ranks: int
    num_data: int
    """Data ranks, their context ranks counted."""
    stored: tuple[Stored, ...]
    arrays: tuple[npt.NDArray[Any], ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays)


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    num_ranks: int
    num_data: int
    stored: tuple[Stored, ...]


def write(snapshot: JaxSnapshot, directory: Path) -> None:
    """Write this rank's directory, durable when the call returns; no other rank is asked or waited for."""
    home = directory / directory_of(snapshot.rank)
    home.mkdir()
    named = {_key(number): _replicated(array) for number, array in enumerate(snapshot.arrays)}
    with _checkpointer() as checkpointer:
        checkpointer.save(home.absolute() / ARRAYS, named)
    index = {
        "format": _FORMAT,
        "num_ranks": snapshot.num_ranks,
        "num_data": snapshot.num_data,
        "stored": [asdict(stored) for stored in snapshot.stored],
    }
    (home / INDEX).write_text(json.dumps(index), encoding="utf-8")
    for folder, _, files in os.walk(home, topdown=False):
        for file in files:
            _sync(Path(folder, file))
        _sync(Path(folder))
    _sync(directory)


class Saved:
    """A checkpoint of any number of ranks.

    Raises:
        CheckpointUnreadableError: it is not whole.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        first = self._index(0)
        self.num_data = first.num_data
        self._indexes = [first, *(self._index(rank) for rank in range(1, first.num_ranks))]
        self._arrays: dict[int, Mapping[str, npt.NDArray[Any]]] = {}

    def value(self, kind: str) -> npt.NDArray[Any]:
        """The value of that kind, which one rank has written whole."""
        for rank, number, stored in self._of_kind(kind):
            if stored.piece is None:
                return self._read(rank, number)
        raise CheckpointUnreadableError(f"{self._directory}: no rank has written {kind!r}")

    def has(self, kind: str) -> bool:
        """Whether there is anything of that kind."""
        return bool(self._of_kind(kind))

    def whole(self, kind: str, shapes: Mapping[str, Shape], dtype: Any) -> dict[str, npt.NDArray[Any]]:
        """Whole tensors of a kind by name, put together from the pieces of all ranks."""
        found = {name: np.empty(shape, dtype) for name, shape in shapes.items()}
        filled = {name: np.zeros(shape, np.bool_) for name, shape in shapes.items()}
        for rank, number, stored in self._of_kind(kind):
            piece = stored.piece
            if piece is None or piece.name not in found or math.prod(piece.view) != found[piece.name].size:
                named = piece.name if piece else kind
                raise CheckpointUnreadableError(f"{self._home(rank)}: {named!r} is no tensor of this model's shape")
            entries = self._read(rank, number)
            if entries.dtype != found[piece.name].dtype or entries.size != piece.end - piece.begin:
                raise CheckpointUnreadableError(
                    f"{self._home(rank)}: {kind} of {piece.name!r} holds {entries.size} of {entries.dtype}, "
                    f"wanted {piece.end - piece.begin} of {found[piece.name].dtype}"
                )
            piece.put(entries, found[piece.name], filled[piece.name])
        for name, marks in filled.items():
            if not marks.all():
                raise CheckpointUnreadableError(f"{self._directory}: {kind} of {name!r} is not there in full")
        return found

    def _of_kind(self, kind: str) -> Sequence[tuple[int, int, Stored]]:
        return [
            (rank, number, stored)
            for rank, index in enumerate(self._indexes)
            for number, stored in enumerate(index.stored)
            if stored.kind == kind
        ]

    def _home(self, rank: int) -> Path:
        return self._directory / directory_of(rank)

    def _index(self, rank: int) -> _Index:
        path = self._home(rank) / INDEX
        try:
            index = msgspec.json.decode(path.read_bytes(), type=_Index)
        except (OSError, msgspec.MsgspecError) as error:
            raise CheckpointUnreadableError(f"{path}: {error}") from error
        if index.format != _FORMAT or index.num_ranks < 1:
            raise CheckpointUnreadableError(f"{path}: format {index.format} of {index.num_ranks} ranks is not known")
        return index

    def _read(self, rank: int, number: int) -> npt.NDArray[Any]:
        if rank not in self._arrays:
            self._arrays[rank] = self._restored(rank)
        try:
            return self._arrays[rank][_key(number)]
        except KeyError:
            raise CheckpointUnreadableError(f"{self._home(rank) / ARRAYS}: array {_key(number)} is missing") from None

    def _restored(self, rank: int) -> Mapping[str, npt.NDArray[Any]]:
        import orbax.checkpoint as ocp  # noqa: PLC0415

        path = self._home(rank).absolute() / ARRAYS
        wanted = {_key(number): 0 for number in range(len(self._indexes[rank].stored))}
        as_numpy = {key: ocp.RestoreArgs(restore_type=np.ndarray) for key in wanted}
        try:
            with _checkpointer() as checkpointer:
                found: Mapping[str, npt.NDArray[Any]] = checkpointer.restore(
                    path, args=ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy)
                )
        except Exception as error:  # damage shows as any kind of exception
            raise CheckpointUnreadableError(f"{path}: {str(error).splitlines()[0][:300]}") from error
        return found


def directory_of(rank: int) -> str:
    """Name of the directory that a rank writes.

    >>> directory_of(3)
    'rank-00003'
    """
    return f"rank-{rank:05}"


def _key(number: int) -> str:
    return f"{number:06}"


def _devices() -> tuple[list[jax.Device], int]:
    """A host device of each process, and the place of this process's own."""
    devices = {device.process_index: device for device in jax.devices("cpu")}
    processes = sorted(devices)
    return [devices[process] for process in processes], processes.index(jax.process_index())


def _replicated(array: npt.NDArray[Any]) -> jax.Array:
    """The array as this process's replica of one that all processes hold: Orbax takes no other array of one process."""
    devices, own = _devices()
    sharding = NamedSharding(Mesh(np.array(devices), ("process",)), PartitionSpec())
    held = jax.device_put(array, devices[own])
    return jax.make_array_from_single_device_arrays(array.shape, sharding, [held])


def _checkpointer() -> Any:
    """A checkpointer of this process alone: it writes its own replica, and meets no other process at a barrier."""
    import orbax.checkpoint as ocp  # noqa: PLC0415

    own, place = jax.process_index(), _devices()[1]
    handlers = ocp.type_handlers
    writer = handlers.ArrayHandler(primary_host=own, replica_id=place, use_replica_parallel=False)
    registry = handlers.create_type_handler_registry((jax.Array, writer), (np.ndarray, handlers.NumpyHandler()))
    options = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=options, type_handler_registry=registry)
    return ocp.Checkpointer(handler, multiprocessing_options=options)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
