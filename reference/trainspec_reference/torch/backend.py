"""Implements the backend protocol of the trainer with PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from trainspec_reference.common.backend import Backend, Formation, Gradients, MicroBatch, Snapshot, Weights
from trainspec_reference.common.data import uncounted
from trainspec_reference.common.job import Job
from trainspec_reference.common.offers import refuse
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.torch.checkpoint import NUM_RANKS, PARAMETERS, UPDATES, Box, HostSnapshot, library
from trainspec_reference.torch.groups import Groups, gather_noise, let_go
from trainspec_reference.torch.models import make_model
from trainspec_reference.torch.models.blocks import keeper
from trainspec_reference.torch.models.transformer import TransformerModel
from trainspec_reference.torch.parallel import ContextSplit, ExpertSplit
from trainspec_reference.torch.parts import plain_shape
from trainspec_reference.torch.passes import Passes
from trainspec_reference.torch.precision import (
    generator_states,
    parameter_dtype,
    prepare,
    restore_generators,
    seed_generators,
)
from trainspec_reference.torch.replica import Replica
from trainspec_reference.torch.state import State


class TorchBackend:
    """A worker's model, in PyTorch."""

    can_rejoin = True

    def __init__(self, job: Job) -> None:
        refuse("torch", job)
        parameter_dtype(job.plan.precision)  # a format that it refuses is refused before anything is written
        self._job, self._plan = job, job.plan
        self._device = torch.device(job.device)
        self._groups: Groups | None = None
        self._replica: State | None = None
        self._norm = 0.0
        prepare(job.plan.precision)

    def join(self, formation: Formation) -> None:
        """Form the groups of the plan; a whole replica that is there keeps its state."""
        self._groups = Groups(formation, RankGrid(self._plan.parallelism, formation.num_ranks), self._device)
        if self._replica is not None:
            self._connect(self._replica)

    def leave(self) -> None:
        """Give the groups up; a gradient that was under way is lost, and a model of which others hold parts."""
        if self._groups is None:
            return
        with let_go(self._groups.made):
            if self._replica is not None:
                self._replica.disconnect()
                del self._passes
                if self._is_divided:
                    self._replica = None
                    del self._model
                elif isinstance(self._model, TransformerModel):
                    self._model.connect(ContextSplit(), ExpertSplit())
            self._groups.leave()
            self._groups = None

    def abort(self) -> None:
        """Abort the communicators of a device, for whose kernels the thread of the loop may wait."""
        groups = self._groups
        if groups is not None:
            groups.abort()

    def build(self, weights: Weights) -> None:
        """Make the model from global weights, with fresh moments and a random state of this rank."""
        part = self._joined().part
        self._model = make_model(self._job.model, part).to(self._device)
        self._model.keep = keeper(self._plan.memory.activation_policy if self._plan.memory else "none")
        self._replica = self._kind()(self._job, self._model, part, weights)
        self._connect(self._replica)
        self._seed()

    def gradients(
        self,
        micro_batches: Sequence[MicroBatch],
        *,
        num_targets: int,
        loss_scale: float,
        measure_noise: bool,
        arrived: Callable[[], None],
    ) -> Gradients:
        """Forward and backward pass over the micro-batches, overlapped with the exchange."""
        groups, replica = self._joined(), self._built()
        exchange = replica.exchange
        self._model.train()
        micro_batches = self._evened(micro_batches)
        exchange.begin(len(micro_batches), loss_scale, measures_noise=measure_noise)
        loss = self._passes.train(micro_batches, loss_scale / num_targets, exchange).cpu()
        arrived()
        exposed_seconds = exchange.wait()
        counts = groups.part.is_last and not groups.part.tensor_rank
        sums = torch.stack((loss / num_targets * counts, replica.squared_norm().cpu()))
        total_loss, squared_norm = groups.sum_of(sums.to(self._device)).tolist()
        self._norm = squared_norm**0.5
        known = Gradients(total_loss, self._norm, math.isfinite(squared_norm), exposed_seconds=exposed_seconds)
        if not measure_noise:
            return known
        num_each = [micro_batch.num_targets for micro_batch in micro_batches]
        sizes, norms = gather_noise(groups, num_each, exchange.squared_norms, num_targets)
        return replace(known, group_sizes=sizes, group_squared_norms=norms)

    def update(self, learning_rate: float, clip_norm: float | None) -> None:
        """Clip, apply the optimizer, and clear the gradient."""
        factor = clip_norm / self._norm if clip_norm is not None and self._norm > clip_norm else 1.0
        self._built().update(learning_rate, factor)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # else the time of the optimizer counts for the next step

    def discard(self) -> None:
        """Clear the gradient, where there is a model: a peer can be lost before."""
        if self._replica is not None:
            self._replica.discard()

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[MicroBatch], *, num_targets: int) -> float:
        """Mean loss over all ranks; without dropout, so that no random number is drawn."""
        groups = self._joined()
        self._model.eval()
        micro_batches = self._evened(micro_batches)
        counts = groups.part.tensor_rank == 0
        return float(groups.sum_of(self._passes.evaluate(micro_batches) * counts)) / num_targets

    def snapshot(self) -> HostSnapshot:
        """Copy this rank's boxes to the host."""
        groups, replica = self._joined(), self._built()
        boxes = replica.copied_boxes()
        rank = groups.formation.rank
        for kind, state in generator_states(self._device).items():
            boxes[f"random/{rank}/{kind}"] = Box.whole(state)
        if rank == 0:
            boxes[UPDATES] = Box.whole(torch.tensor([replica.num_updates]))
            boxes[NUM_RANKS] = Box.whole(torch.tensor([groups.formation.num_ranks]))
        return boxes

    def write(self, snapshot: Snapshot, directory: Path) -> None:
        """Write a snapshot as a distributed checkpoint, with the exchange on a group of its own."""
        if not isinstance(snapshot, dict):
            raise TypeError("the snapshot is of another backend")
        library().write(snapshot, directory, self._joined().files)

    def restore(self, directory: Path) -> None:
        """Read this rank's boxes; another number of ranks gets fresh random states."""
        groups, replica = self._joined(), self._built()
        rank, num_ranks = groups.formation.rank, groups.formation.num_ranks
        facts = {name: Box.whole(torch.zeros(1, dtype=torch.int64)) for name in (UPDATES, NUM_RANKS)}
        library().read(facts, directory)
        replica.restore(directory)
        replica.set_num_updates(int(facts[UPDATES].tensor))
        replica.discard()
        if int(facts[NUM_RANKS].tensor) == num_ranks:
            states = generator_states(self._device)
            library().read({f"random/{rank}/{kind}": Box.whole(state) for kind, state in states.items()}, directory)
            restore_generators(states, self._device)
        else:
            self._seed()

    def share(self, source: int) -> None:
        """Copy the whole replica of one rank to the others; each keeps its random state."""
        self._built().share(source)

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """Global parameters by name."""
        whole = self._built().global_tensors(PARAMETERS)
        return {name: plain_shape(name, tensor.numpy()).astype(np.float32) for name, tensor in whole}

    def digest(self) -> str:
        """State digest, of tensors that this rank holds whole from its own copies."""
        return self._built().digest()

    def agree(self, value: float) -> tuple[float, ...]:
        """The value of each rank."""
        local = torch.tensor(value, dtype=torch.float64, device=self._device)
        return tuple(self._joined().all_of(local).tolist())

    def _connect(self, replica: State) -> None:
        groups = self._joined()
        replica.connect(groups)
        if isinstance(self._model, TransformerModel):
            self._model.connect(groups.context, groups.experts)
        self._passes = Passes(self._job, self._model, groups)

    @property
    def _is_divided(self) -> bool:
        return self._plan.parallelism.sharding in ("gradients", "parameters") or self._joined().part.num_parts > 1

    def _kind(self) -> type[State]:
        if self._plan.parallelism.sharding not in ("gradients", "parameters") or self._joined().copies is None:
            return Replica
        from trainspec_reference.torch.sharded import ShardedReplica  # noqa: PLC0415 - it takes a second to load

        return ShardedReplica

    def _evened(self, micro_batches: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """As many on every rank where all take part in each pass: to gather parameters, or with experts for others.

        What is added counts for nothing.
        """
        if isinstance(self._replica, Replica) and self._joined().part.expert_degree == 1:
            return micro_batches
        counts = self._joined().all_of(torch.tensor(float(len(micro_batches)), device=self._device))
        return [*micro_batches, *[uncounted(self._job.model, 1)] * (int(counts.max()) - len(micro_batches))]

    def _seed(self) -> None:
        place, num_updates = self._joined().place, self._built().num_updates
        words = (self._job.seed, place["data"], place["pipeline"], num_updates)
        # Ranks that hold the same activations drop the same of them; by sequence or context each holds others.
        plan = self._plan.parallelism
        others = [*([place["tensor"]] if plan.sequence else []), *([place["context"]] if plan.context > 1 else [])]
        seed_generators(*words, *others)

    def _joined(self) -> Groups:
        if self._groups is None:
            raise RuntimeError("the backend has not joined a formation: call join first")
        return self._groups

    def _built(self) -> State:
        if self._replica is None:
            raise RuntimeError("the backend has no model: build one first")
        return self._replica


def make(job: Job) -> Backend:
    """The backend of a job."""
    return TorchBackend(job)
