"""Assigns the state that each rank stores, and rebuilds a rank's state from the files of all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainspec_reference.common.backend import CheckpointUnreadableError
from trainspec_reference.common.job import Job
from trainspec_reference.jax.checkpoint import JaxSnapshot, Saved, Stored
from trainspec_reference.jax.layout import Part, kept
from trainspec_reference.jax.state import Arrays, State, StateMaker

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
