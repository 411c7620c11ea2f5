"""Implements the backend protocol of the trainer in plain Python and NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.backend import (
    Backend,
    CheckpointUnreadableError,
    Formation,
    Gradients,
    MicroBatch,
    Snapshot,
    Weights,
)
from trainspec_reference.common.job import Job
from trainspec_reference.common.weights import state_digest, tensor_digest

from trainspec_conformance.testbed.plain import reduction, storage
from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.plain.exchange import Exchange
from trainspec_conformance.testbed.plain.formats import rounded, summed
from trainspec_conformance.testbed.plain.model import loss_alone, loss_and_gradients
from trainspec_conformance.testbed.plain.narrow import narrowed
from trainspec_conformance.testbed.plain.optimizer import AdamW, stored
from trainspec_conformance.testbed.plain.parameters import FlatParameters

Array = npt.NDArray[Any]


class PlainBackend:
    """Whole replicas of a state-space model, whose gradients are summed through rank 0.

    Raises:
        ValueError: the job asks for what this backend does not have.
    """

    can_rejoin = True
    _formation: Formation

    def __init__(self, job: Job) -> None:
        plan = job.plan.parallelism
        if job.model.family != "state-space" or plan.tensor * plan.pipeline * plan.context != 1:
            raise ValueError("the plain backend trains state-space models, with data parallelism alone")
        if plan.sharding != "none" or job.device != "cpu":
            raise ValueError("the plain backend keeps whole replicas, on the CPU")
        self.job, self._precision = job, job.plan.precision
        self._connections = ExitStack()
        self._planted: str | None = None
        self._gradient: Array | None = None
        self._compressor: GradientCompressor | None = None

    def join(self, formation: Formation) -> None:
        """Connect to the other ranks."""
        if self._compressor is not None:
            self._compressor.resize(self._formation.num_ranks, formation.num_ranks)
        self._formation = formation
        self._exchange = self._connections.enter_context(closing(Exchange(formation)))

    def leave(self) -> None:
        """Close all connections; there are none where no join has succeeded."""
        self._connections.close()

    def abort(self) -> None:
        """Nothing: every wait for a peer is bounded."""

    def build(self, weights: Weights) -> None:
        """Take the weights, fresh moments, and a random state of this rank's own."""
        self._parameters = FlatParameters.of(weights)
        zeros = np.zeros_like(self._parameters.vector)
        self._optimizer = AdamW(self.job.rates, self._parameters.decays, zeros, zeros.copy())
        self._random = self._fresh_random()
        plan = self.job.plan.communication
        settings = plan.compression if plan is not None else None
        is_dense = settings is None or settings.method == "none"
        self._compressor = None if is_dense or not settings else GradientCompressor(settings, zeros.size)

    def _fresh_random(self) -> np.random.Generator:
        return np.random.Generator(np.random.Philox([self.job.seed, self._formation.rank]))

    def _dropout(self, shape: tuple[int, ...]) -> Array | None:
        share = self.job.model.dropout
        if not share:
            return None
        return (self._random.random(shape, np.float32) >= share) * np.float32(1 / (1 - share))

    # --- a step ---------------------------------------------------------------------------------------------

    def gradients(
        self,
        micro_batches: Sequence[MicroBatch],
        *,
        num_targets: int,
        loss_scale: float,
        measure_noise: bool,
        arrived: Callable[[], None],
    ) -> Gradients:
        """As `Backend.gradients`; gradients are rounded to the plan's format as soon as they are computed."""
        weight, total_loss, weights = loss_scale / num_targets, 0.0, self._compute_weights()
        parts: list[Array] = []
        for batch in micro_batches:
            loss, found = loss_and_gradients(weights, batch, weight, self._dropout)
            total_loss += loss
            parts.append(rounded(self._parameters.flattened(found), self._precision.gradients))
        self._damage(parts)
        mine = summed(parts, self._precision.accumulation or self._precision.gradients)
        arrived()
        with np.errstate(invalid="ignore", over="ignore"):
            compressor, reduced = self._compressor_now(), self._precision.reduction
            self._gradient = reduction.total(self._exchange, mine, loss_scale, reduced, compressor)
            groups = reduction.groups(self._exchange, micro_batches, parts, weight) if measure_noise else []
            norm = math.sqrt(float(np.square(self._gradient, dtype=np.float64).sum()))
        losses = self._exchange.gather_numbers([total_loss])
        return Gradients(
            loss=math.fsum(value for (value,) in losses) / num_targets,
            norm=norm,
            is_finite=bool(np.isfinite(self._gradient).all()),
            group_sizes=tuple(size for size, _ in groups),
            group_squared_norms=tuple(norm for _, norm in groups),
        )

    def _compressor_now(self) -> GradientCompressor | None:
        """The compressor, from the step on that the plan names."""
        plan = self.job.plan.communication
        first = (plan.compression.start_step if plan is not None and plan.compression is not None else None) or 1
        return self._compressor if self._optimizer.num_updates + 1 >= first else None

    def _compute_weights(self) -> dict[str, Array]:
        """Weights as the forward pass reads them; products are added up in fp32, or wider."""
        compute, named = self._precision.compute, self._parameters.named
        return {name: self._read(name, rounded(value, compute)) for name, value in named.items()}

    def _read(self, name: str, value: Array) -> Array:
        """A weight, below 16 bits where it is the matrix of a product and the plan has a recipe."""
        recipe = self._precision.recipe
        return narrowed(value, recipe)[0] if recipe is not None and name.endswith("_proj") else value

    def _damage(self, parts: list[Array]) -> None:
        """Do what was planted to this rank's part of the gradient."""
        if self._planted is not None:
            parts[0][0] = np.nan if self._planted == "nan-gradient" else np.inf
            self._planted = None

    def update(self, learning_rate: float, clip_norm: float | None) -> None:
        """As `Backend.update`."""
        gradient = self._taken()
        if clip_norm is not None:
            norm = math.sqrt(float(np.square(gradient, dtype=np.float64).sum()))
            gradient *= np.float32(clip_norm / norm if norm > clip_norm else 1.0)
        vector, precision = self._parameters.vector, self._precision
        self._optimizer.update(vector, gradient, learning_rate)
        held = precision.master_parameters or precision.parameters
        vector[...] = stored(vector, held, precision.parameter_rounding, self._random)
        if self._compressor is not None:
            self._compressor.commit()

    def _taken(self) -> Array:
        if self._gradient is None:
            raise RuntimeError("there is no gradient: call gradients() first")
        gradient, self._gradient = self._gradient.astype(np.float32), None
        return gradient

    def discard(self) -> None:
        """Forget the gradient."""
        self._gradient = None

    def evaluate(self, micro_batches: Sequence[MicroBatch], *, num_targets: int) -> float:
        """As `Backend.evaluate`: nothing is dropped, so that no random number is drawn."""
        weights = self._compute_weights()
        mine = math.fsum(loss_alone(weights, batch) for batch in micro_batches)
        return math.fsum(value for (value,) in self._exchange.gather_numbers([mine])) / num_targets

    # --- state ----------------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, Array]:
        """The whole state by name, random state left out."""
        optimizer = self._optimizer
        vectors = {"parameters": self._parameters.vector, "optimizer/first": optimizer.first}
        vectors["optimizer/second"] = optimizer.second
        return {
            "optimizer/count": np.asarray(optimizer.num_updates, np.int64),
            **{
                f"{kind}/{name}": part
                for kind, v in vectors.items()
                for name, part in self._parameters.views(v).items()
            },
        }

    def snapshot(self) -> Snapshot:
        """Copy the part of the replica that this rank writes, and its random state."""
        rank, num_ranks = self._formation.rank, self._formation.num_ranks
        mine = {
            name: array.copy()
            for number, (name, array) in enumerate(self._arrays().items())
            if number % num_ranks == rank
        }
        state = json.dumps(self._random.bit_generator.state, default=np.ndarray.tolist)
        if self._compressor is not None:
            mine[f"residual/{rank}-of-{num_ranks}"] = self._compressor.residual.copy()
        mine[f"random/{rank}"] = np.frombuffer(state.encode(), np.uint8)
        return storage.PlainSnapshot(rank, num_ranks, mine)

    def write(self, snapshot: Snapshot, directory: Path) -> None:
        """As `Backend.write`."""
        cast("storage.PlainSnapshot", snapshot).write(directory)

    def restore(self, directory: Path) -> None:
        """As `Backend.restore`; a rank that the checkpoint does not know begins a random state of its own."""
        found = storage.read(directory)
        for name, array in self._arrays().items():
            if name not in found or found[name].shape != array.shape or found[name].dtype != array.dtype:
                raise CheckpointUnreadableError(f"{directory} lacks {name} as {array.dtype}{list(array.shape)}")
        self._take(found)
        if self._compressor is not None:
            self._compressor.restore(found, self._formation.rank, self._formation.num_ranks)
        state = found.get(f"random/{self._formation.rank}")
        self._random = self._fresh_random()
        if state is not None:
            self._random.bit_generator.state = _random_state(state, directory)

    def _take(self, found: dict[str, Array]) -> None:
        self._optimizer.num_updates = int(found["optimizer/count"])
        for name, array in self._arrays().items():
            if name != "optimizer/count":
                array[...] = found[name]

    def share(self, source: int) -> None:
        """As `Backend.share`; random states and residuals are each rank's own, and stay."""
        arrays, num_updates = self._arrays(), self._optimizer.num_updates
        payload = b"".join(array.tobytes() for array in arrays.values())
        received, offset = self._exchange.copy_from(source, payload), 0
        found = {}
        for name, array in arrays.items():
            found[name] = np.frombuffer(received, array.dtype, array.size, offset).reshape(array.shape)
            offset += array.nbytes
        self._take(found)
        if self._compressor is not None:
            self._compressor.catch_up(self._optimizer.num_updates - num_updates)

    def weights(self) -> dict[str, Array]:
        """A copy of all parameters."""
        return {name: value.copy() for name, value in self._parameters.named.items()}

    def digest(self) -> str:
        """As `Backend.digest`, of this rank's own replica."""
        return state_digest(tensor_digest(name, array) for name, array in self._arrays().items())

    def agree(self, value: float) -> tuple[float, ...]:
        """As `Backend.agree`."""
        return tuple(found for (found,) in self._exchange.gather_numbers([value]))


def _random_state(stored: Array, directory: Path) -> dict[str, Any]:
    """Random state from its bytes, of the one generator that this backend has."""
    try:
        state = json.loads(stored.tobytes())
        inner = state["state"]
        state["state"] = {key: np.array(inner[key], np.uint64) for key in ("counter", "key")}
        state["buffer"] = np.array(state["buffer"], np.uint64)
        np.random.Philox().state = state
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnreadableError(f"{directory} holds a random state that cannot be read: {error}") from error
    return cast("dict[str, Any]", state)


def make(job: Job) -> Backend:
    """The backend of a job."""
    return PlainBackend(job)
