"""Writes the state that each rank stores with Orbax, and rebuilds a rank's state from the files of all ranks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainspec_reference.common.backend import CheckpointUnreadableError
from trainspec_reference.common.checkpoints import sync
from trainspec_reference.common.job import Job
from trainspec_reference.jax.layout import Part, Piece, Shape, kept
from trainspec_reference.jax.state import Arrays, State, StateMaker

ARRAYS = "arrays"
"""Directory of a rank's arrays, as Orbax writes a tree."""
INDEX = "pieces.json"
"""Kind of these arrays."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """One array of a checkpoint: a piece of a tensor of some kind, or, without a piece, a value of its own."""

    kind: str
    """`parameters`, `first`, `second`, `residual/{number among the copies}`, `count`, `key` or `basis`."""
    piece: Piece | None


@dataclass(frozen=True, slots=True)
class JaxSnapshot:
    """Arrays that one rank writes, in host memory."""

    rank: int
    num_ranks: int
    num_data: int
    """Data ranks, their context ranks counted."""
    stored: tuple[Stored, ...]
    arrays: tuple[npt.NDArray[Any], ...]


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
            sync(Path(folder, file))
        sync(Path(folder))
    sync(directory)


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
                raise CheckpointUnreadableError(f"{self._directory}: {kind} of {name!r} is incomplete")
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


SHARED = ("parameters", "first", "second")
"""Kinds of tensor that belong to the model, whoever holds them."""
ALIKE = ("count", "key", "basis")
"""Values that are equal on every rank; rank 0 stores them."""


def stored(state: State, maker: StateMaker) -> JaxSnapshot:
    """A copy of what this rank stores: together, all ranks store each entry once."""
    ranks, layout = maker.ranks, maker.layout
    found: list[tuple[Stored, npt.NDArray[Any]]] = []
    pieces = list(layout.pieces(maker.row, ranks.part))
    if layout.num_shards == 1:
        pieces = kept(iter(pieces), ranks.copy, ranks.num_copies, layout.width)
    for kind in SHARED:
        row = np.asarray(getattr(state, kind)[0])
        row = row[maker.row] if row.ndim == 2 else row
        found += [(Stored(kind, piece), row[columns].copy()) for columns, piece in pieces]
    if maker.residual_size:
        own = np.asarray(state.residual[0])
        kind = f"residual/{ranks.copy}"
        found += [(Stored(kind, piece), own[columns].copy()) for columns, piece in layout.pieces(0, Part())]
    if ranks.rank == 0:
        found += [(Stored(kind, None), np.array(getattr(state, kind)[0])) for kind in ALIKE]
    kinds, arrays = zip(*found, strict=True) if found else ((), ())
    return JaxSnapshot(ranks.rank, ranks.num_ranks, ranks.num_copies, kinds, arrays)


def restored(saved: Saved, maker: StateMaker, job: Job) -> State:
    """This rank's state, from whatever ranks have stored it.

    Raises:
        CheckpointUnreadableError: something is missing, or of another model.
    """
    shapes, formats = maker.layout.shapes, maker.formats
    dtypes = {"parameters": formats.parameters, "first": formats.optimizer, "second": formats.optimizer}
    whole = {kind: saved.whole(kind, shapes, dtypes[kind]) for kind in SHARED}
    others = {kind: saved.value(kind) for kind in ALIKE}
    if others["basis"].shape != maker.first_basis.shape:
        others["basis"] = maker.first_basis
    others["residual"] = _residual(saved, maker, job)
    return maker.from_whole(whole, others)


def whole_tensors(arrays: Sequence[Arrays], maker: StateMaker) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Whole parameters and moments, from the arrays of this rank, or of all ranks in order of rank."""
    layout, ranks = maker.layout, maker.ranks
    is_alone = len(arrays) == 1
    names = {"parameters": "parameters", "first": "optimizer/first", "second": "optimizer/second"}
    for kind in arrays[0]:
        dtype = arrays[0][kind].dtype
        whole = {name: np.empty(shape, dtype) for name, shape in layout.shapes.items()}
        marks = {name: np.zeros(shape, np.bool_) for name, shape in layout.shapes.items()}
        for rank, own in enumerate(arrays):
            holder = ranks.rank if is_alone else rank
            row = ranks.copy_of(holder) if layout.num_shards > 1 else 0
            entries = own[kind][row] if own[kind].ndim == 2 else own[kind]
            for columns, piece in layout.pieces(row, ranks.part_of(holder)):
                piece.put(entries[columns], whole[piece.name], marks[piece.name])
        yield from ((f"{names[kind]}/{name}", tensor) for name, tensor in whole.items())


def _residual(saved: Saved, maker: StateMaker, job: Job) -> npt.NDArray[Any]:
    """This rank's residual; on another number of ranks, what the plan says."""
    communication = job.plan.communication
    plan = communication.compression if communication is not None else None
    nothing = np.zeros(max(1, maker.residual_size), maker.formats.wide)
    if plan is None or not maker.residual_size or not saved.has("residual/0"):
        return nothing
    if saved.num_data == maker.ranks.num_copies:
        return _residual_of(saved, maker, maker.ranks.copy)
    match plan.residual_on_resize:
        case "refuse":
            raise CheckpointUnreadableError(
                f"residuals of {saved.num_data} data ranks, here are {maker.ranks.num_copies}: the plan refuses that"
            )
        case "reset":
            return nothing
        case _:
            total = sum((_residual_of(saved, maker, rank) for rank in range(saved.num_data)), nothing)
            return np.asarray(total / maker.ranks.num_copies, maker.formats.wide)


def _residual_of(saved: Saved, maker: StateMaker, rank: int) -> npt.NDArray[Any]:
    tensors = saved.whole(f"residual/{rank}", maker.layout.shapes, maker.formats.wide)
    return np.asarray(maker.layout.join(tensors, np)).reshape(-1)
