"""Implements the backend protocol of the trainer with JAX, each call in a few lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from trainspec_reference.common.backend import (
    PROGRAMS_DIRECTORY,
    Backend,
    Formation,
    Gradients,
    MicroBatch,
    Snapshot,
    Weights,
)
from trainspec_reference.common.job import Job
from trainspec_reference.common.offers import refuse
from trainspec_reference.common.weights import state_digest, tensor_digest
from trainspec_reference.jax import arithmetic, storage
from trainspec_reference.jax.exchange import Exchanged
from trainspec_reference.jax.mesh import AXES, Ranks
from trainspec_reference.jax.processes import BUILD_SECONDS, Processes
from trainspec_reference.jax.programs import Programs, keep_programs
from trainspec_reference.jax.state import Arrays, State
from trainspec_reference.jax.storage import SHARED, JaxSnapshot, restored, stored, whole_tensors


class JaxBackend:
    """One rank of JAX: a process with one device.

    Raises:
        ValueError: the plan asks for what this trainer does not have with JAX.
    """

    can_rejoin = False

    def __init__(self, job: Job) -> None:
        refuse("jax", job)
        self._job = job
        self._formats = arithmetic.Formats.of(job.plan.precision)
        self._processes = Processes()
        self._shapes: dict[str, tuple[int, ...]] = {}
        arithmetic.configure(job.plan.precision, job.device)
        keep_programs(os.environ.get(PROGRAMS_DIRECTORY))

    def join(self, formation: Formation) -> None:
        """Connect to the peers, and lay the mesh."""
        self._processes.join(formation)
        self._ranks = Ranks(formation, self._job.plan.parallelism)
        self._gathered = self._ranks.everyone.program(_gathered_bits)
        self.agree(0.0)

    def leave(self) -> None:
        """Give the group up, within a second."""
        self._processes.leave()

    def abort(self) -> None:
        """Nothing: every wait for a peer is bounded."""

    def build(self, weights: Weights) -> None:
        """Lay the state out, and compile the step for micro-batches of the planned shape."""
        shapes = {name: array.shape for name, array in weights.items()}
        if self._shapes != shapes:
            self._programs, self._shapes = Programs(self._job, self._formats, self._ranks, shapes), shapes
        self._state: State = self._programs.maker.fresh(weights)
        self._exchanged: Exchanged | None = None
        self._processes.wait(lambda: self._programs.warm(self._state), BUILD_SECONDS)

    def gradients(
        self,
        micro_batches: Sequence[MicroBatch],
        *,
        num_targets: int,
        loss_scale: float,
        measure_noise: bool,
        arrived: Callable[[], None],
    ) -> Gradients:
        """Add up the gradients of this rank's micro-batches, then exchange the sum."""
        programs, weight = self._programs, loss_scale / num_targets
        batches = self._in_step(micro_batches)
        sums, squares = self._run(lambda: programs.backward(self._state, batches, weight, measure_noise))
        arrived()
        begin = time.perf_counter()
        found: Exchanged = self._processes.wait(lambda: programs.exchange(self._state, sums, loss_scale))
        exposed_seconds = time.perf_counter() - begin
        self._exchanged = found
        groups: tuple[tuple[int, ...], tuple[float, ...]] = ((), ())
        if measure_noise:
            sizes = [batch.num_targets for batch in batches]
            groups = self._groups(sizes, [float(value[0]) / weight**2 for value in squares])
        loss, norm, bad = float(found.loss[0]), float(found.norm[0]), float(found.num_not_finite[0])
        return Gradients(loss, norm, bad == 0, *groups, exposed_seconds)

    def update(self, learning_rate: float, clip_norm: float | None) -> None:
        """Apply AdamW to this rank's row, and keep what compression carries on."""
        found = self._exchanged
        if found is None:
            raise ValueError("optimizer step without a gradient: call gradients first")
        norm = float(found.norm[0])
        factor = clip_norm / norm if clip_norm is not None and norm > clip_norm else 1.0
        state = replace(self._state, residual=found.carried.residual, basis=found.carried.basis)
        self._state = self._processes.wait(lambda: self._programs.update(state, found.gradient, learning_rate, factor))
        self._exchanged = None

    def discard(self) -> None:
        """Drop the gradient, and the residual of its exchange."""
        self._exchanged = None

    def evaluate(self, micro_batches: Sequence[MicroBatch], *, num_targets: int) -> float:
        """Mean loss over all ranks."""
        batches = self._in_step(micro_batches)
        own = self._run(lambda: self._programs.forward(self._state, batches, 1 / num_targets))
        return sum(self.agree(own)) / self._ranks.num_parts

    def snapshot(self) -> Snapshot:
        """Copy what this rank writes: its share of what others hold as well, and all that it holds alone."""
        return stored(self._state, self._programs.maker)

    def write(self, snapshot: Snapshot, directory: Path) -> None:
        """Write this rank's directory with Orbax."""
        if not isinstance(snapshot, JaxSnapshot):
            raise TypeError(f"{type(snapshot).__name__} is no snapshot of this backend")
        storage.write(snapshot, directory)

    def restore(self, directory: Path) -> None:
        """Read this rank's part of the pieces of all ranks that wrote."""
        self._state = restored(storage.Saved(directory), self._programs.maker, self._job)

    def share(self, source: int) -> None:
        """Copy the state of a rank bit by bit; what it has not sent yet is each rank's own, and stays."""
        if not self._programs.are_replicas_whole:
            raise ValueError("share needs whole replicas: the plan shards or splits the state")
        arrays = self._state.arrays()
        for name, array in arrays.items():
            if name != "residual":
                arrays[name] = self._gather(array)[source]
        self._state = self._programs.maker.blocks(arrays)

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """Whole parameters by name."""
        found = whole_tensors(self._arrays_of_ranks(("parameters",)), self._programs.maker)
        return {name.partition("/")[2]: tensor.astype(np.float32) for name, tensor in found}

    def digest(self) -> str:
        """Digest of the whole state; only sharded or split state is gathered for it."""
        digests = [tensor_digest("optimizer/count", np.array(self._state.count[0], np.int64))]
        for name, tensor in whole_tensors(self._arrays_of_ranks(SHARED), self._programs.maker):
            # NumPy's word for the two bytes of bfloat16 is the one that ml_dtypes has given it.
            digests.append(tensor_digest(name, tensor, tensor.dtype.name))
        return state_digest(digests)

    def _arrays_of_ranks(self, kinds: Sequence[str]) -> list[Arrays]:
        """This rank's own arrays where they are whole, else those of all ranks in order."""
        own = {kind: np.asarray(getattr(self._state, kind)[0]) for kind in kinds}
        if self._programs.are_replicas_whole:
            return [own]
        gathered = {kind: self._gather(array) for kind, array in own.items()}
        return [{kind: rows[rank] for kind, rows in gathered.items()} for rank in range(self._ranks.num_ranks)]

    def agree(self, value: float) -> tuple[float, ...]:
        """Exchange the bits of one number."""
        return tuple(float(row) for row in self._gather(np.float64(value)))

    def _run(self, work: Callable[[], Any]) -> Any:
        return self._processes.wait(work) if self._programs.meets_peers else work()

    def _gather(self, array: Any) -> Any:
        """The array of each rank, bit by bit, as [ranks, ...]."""
        plain = np.asarray(array, order="C")
        bits = self._ranks.everyone.own(plain.reshape(-1).view(np.uint8))
        rows = self._processes.wait(lambda: np.asarray(self._gathered(bits)[0]))
        found = np.ascontiguousarray(self._ranks.by_rank(rows)).view(plain.dtype)
        return found.reshape(self._ranks.num_ranks, *plain.shape)

    def _groups(self, sizes: list[int], squares: list[float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
        longest = int(max(self.agree(len(sizes))))
        rows = np.zeros((longest, 2))
        rows[: len(sizes)] = np.transpose([sizes, squares])
        by_rank = self._gather(rows)[self._ranks.first_of_data].reshape(-1, 2)
        there = by_rank[by_rank[:, 0] > 0]
        return tuple(int(size) for size in there[:, 0]), tuple((there[:, 1] / there[:, 0] ** 2).tolist())

    def _in_step(self, batches: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """Where parameters are gathered from all ranks, each runs as many micro-batches of as many samples."""
        if not self._programs.shares_parameters or self._ranks.num_data == 1:
            return batches
        samples = max((len(batch.inputs) for batch in batches), default=0)
        wanted = self._gather(np.array([len(batches), samples])).max(axis=0)
        return self._programs.padded(batches, int(wanted[0]), int(wanted[1]))


def _gathered_bits(bits: jax.Array) -> Any:
    return jax.lax.all_gather(bits, AXES)


def make(job: Job) -> Backend:
    """The backend of a job."""
    return JaxBackend(job)
