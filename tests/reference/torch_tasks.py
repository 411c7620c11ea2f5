"""What the tests of the PyTorch backend let each rank do."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch_crew import free_port
from trainspec_conformance.testbed.planted import corrupt
from trainspec_conformance.testbed.torch import algorithms
from trainspec_reference.common.backend import (
    CheckpointUnreadableError,
    Formation,
    Gradients,
    MicroBatch,
    PeerLostError,
    Weights,
)
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Data, Job, ModelShape, Rates
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.common.weights import initial_weights
from trainspec_reference.torch.backend import TorchBackend
from trainspec_reference.torch.groups import Groups

from trainspec_validate.documents.types.plan import TrainingPlan

SHAPE = ModelShape(
    num_layers=2, hidden_size=32, num_heads=4, ffn_hidden_size=64, vocabulary_size=100, sequence_length=16
)
CONVOLUTION = ModelShape(family="convolution", num_layers=2, hidden_size=16, vocabulary_size=100, image_size=8)
STATE_SPACE = ModelShape(family="state-space", num_layers=2, hidden_size=32, vocabulary_size=100, sequence_length=16)
GLOBAL_SAMPLES = 8
RATES = Rates(weight_decay=0.1)


def make_plan(**parts: Any) -> TrainingPlan:
    """A plan in fp64, with parts of it as given."""
    document: dict[str, Any] = {
        "apiVersion": "trainspec/v1",
        "kind": "TrainingPlan",
        "metadata": {"name": "torch-test"},
        "model": {"name": "tiny", "family": "dense-transformer", "num_parameters": 20_000},
        "parallelism": {"num_accelerators": 1},
        "batch": {"global_sequences": GLOBAL_SAMPLES, "micro_sequences": 2, "accumulation_steps": 4},
        "precision": {"compute": "fp64", "parameters": "fp64", "gradients": "fp64", "reduction": "fp64"},
    }
    return msgspec.convert(document | parts, TrainingPlan)


@dataclass(frozen=True)
class Setup:
    """A job, and how a step's samples are cut into micro-batches."""

    parts: Mapping[str, Any] = field(default_factory=dict)
    shape: ModelShape = SHAPE
    rates: Rates = RATES
    micro_samples: int = 2
    variable_length: bool = False

    def job(self) -> Job:
        """The job."""
        return Job(make_plan(**self.parts), None, num_steps=10, seed=3, model=self.shape, rates=self.rates)

    def weights(self) -> Weights:
        """Its initial weights."""
        return initial_weights(self.shape, 3)

    def backend(self, formation: Formation) -> TorchBackend:
        """A backend that has joined and has its model."""
        backend = TorchBackend(self.job())
        backend.join(formation)
        backend.build(self.weights())
        return backend

    def batches(self, step: int, data_rank: int, num_data_ranks: int) -> tuple[list[MicroBatch], int]:
        """Micro-batches of a data rank at a step, and targets of all ranks."""
        samples = Samples(self.shape, Data(), self.variable_length)
        everyone = range(step * GLOBAL_SAMPLES, (step + 1) * GLOBAL_SAMPLES)
        own = np.array_split(np.array(everyone), num_data_ranks)[data_rank].tolist()
        cuts = [own[at : at + self.micro_samples] for at in range(0, len(own), self.micro_samples)]
        return [samples.batch(cut) for cut in cuts], samples.num_targets(everyone)


def train(
    backend: TorchBackend,
    setup: Setup,
    steps: Sequence[int],
    *,
    clip_norm: float | None = None,
    loss_scale: float = 1.0,
) -> list[Gradients]:
    """Train at these steps."""
    place, degrees = backend._joined().place, backend._joined().grid.degrees
    found = []
    for step in steps:
        batches, num_targets = setup.batches(step, place["data"], degrees["data"])
        result = backend.gradients(
            batches, num_targets=num_targets, loss_scale=loss_scale, measure_noise=False, arrived=int
        )
        backend.update(1e-3, clip_norm)
        found.append(result)
    return found


def steps_of(formation: Formation, setup: Setup, num_steps: int, clip_norm: float | None = None) -> Any:
    """Losses, norms and the digest after a few steps."""
    backend = setup.backend(formation)
    try:
        found = train(backend, setup, range(num_steps), clip_norm=clip_norm)
        return [result.loss for result in found], [result.norm for result in found], backend.digest()
    finally:
        backend.leave()


def resumed(formation: Formation, setup: Setup, directory: Path, num_before: int, num_after: int) -> Any:
    """Losses and digest of an uninterrupted run, and of one that goes on from its checkpoint."""
    backend = setup.backend(formation)
    train(backend, setup, range(num_before))
    snapshot = backend.snapshot()
    saved_digest = backend.digest()
    after = range(num_before, num_before + num_after)
    first = train(backend, setup, after)
    backend.write(snapshot, directory)
    first_digest = backend.digest()
    backend.build(setup.weights())
    backend.restore(directory)
    restored_digest = backend.digest()
    second = train(backend, setup, after)
    second_digest = backend.digest()
    backend.leave()
    losses = [result.loss for result in first], [result.loss for result in second]
    return losses, (first_digest, second_digest), (saved_digest, restored_digest)


def lose_last(formation: Formation, setup: Setup, signal_number: int, ports: tuple[int, int], next_size: int) -> Any:
    """Train; the last rank is killed or stopped in step 2, and the others form anew and go on from the best of them."""
    backend = setup.backend(formation)
    train(backend, setup, range(2))
    if signal_number == signal.SIGSTOP:
        # The connections of a killed peer are closed; a stopped one is told by the time-out alone. It is short in a
        # formation whose ranks have loaded all that they need, so that none waits for another one that still loads.
        backend.leave()
        backend.join(replace(formation, number=1, address=f"127.0.0.1:{ports[0]}", timeout_seconds=8.0))
    if formation.rank == formation.num_ranks - 1:
        os.kill(os.getpid(), signal_number)
    with pytest.raises(PeerLostError):
        train(backend, setup, [2])
    backend.leave()
    place = replace(formation, number=2, hosts=formation.hosts[:next_size], address=f"127.0.0.1:{ports[1]}")
    backend.join(place)
    updates = backend.agree(backend._built().num_updates)
    backend.share(updates.index(max(updates)))
    shared_digest = backend.digest()
    found = train(backend, setup, range(2, 5))
    backend.leave()
    return [result.loss for result in found], shared_digest


def saved(formation: Formation, setup: Setup, directory: Path, num_steps: int) -> None:
    """Train from the start, and write a checkpoint."""
    backend = setup.backend(formation)
    train(backend, setup, range(num_steps))
    backend.write(backend.snapshot(), directory)
    backend.leave()


def restored(formation: Formation, setup: Setup, directory: Path, steps: Sequence[int]) -> Any:
    """Losses of steps from a checkpoint on, and the digest of what was restored."""
    backend = setup.backend(formation)
    backend.restore(directory)
    digest = backend.digest()
    found = train(backend, setup, steps)
    backend.leave()
    return [result.loss for result in found], digest


def refusal(formation: Formation, setup: Setup, directory: Path) -> str:
    """Why a checkpoint cannot be restored."""
    backend = setup.backend(formation)
    try:
        with pytest.raises(CheckpointUnreadableError) as caught:
            backend.restore(directory)
    finally:
        backend.leave()
    return str(caught.value)


def sums_inside_the_pass(formation: Formation, setup: Setup) -> tuple[int, int]:
    """Buckets whose sum was complete before the last gradient of the last pass was computed, and all buckets."""
    backend = setup.backend(formation)
    exchange = backend._built().exchange
    num_complete = 0

    def wait_for_sums(_: Any) -> None:
        nonlocal num_complete
        for job in exchange._turn.jobs:
            job.result(timeout=600)
            num_complete += 1

    backend._built().flat.tensors[-1].register_hook(wait_for_sums)
    train(backend, setup, [0])
    backend.leave()
    return num_complete, len(exchange.buckets)


def summed_by(formation: Formation, name: str) -> tuple[list[float], list[float]]:
    """A vector summed over the ranks by an algorithm of the testbed, and by the library."""
    groups = Groups(formation, RankGrid(make_plan().parallelism, formation.num_ranks), torch.device("cpu"))
    own = torch.randn(101, dtype=torch.float64, generator=torch.Generator().manual_seed(formation.rank))
    library = groups.sum_of(own.clone())
    getattr(algorithms, name)(own, groups.sharers)
    groups.leave()
    return own.tolist(), library.tolist()


def noise_of(formation: Formation, setup: Setup) -> Any:
    """Sizes and norms of the groups of a step, the same computed one group at a time, and the norm of the mean."""
    backend = setup.backend(formation)
    batches, num_targets = setup.batches(0, formation.rank, formation.num_ranks)
    found = backend.gradients(batches, num_targets=num_targets, loss_scale=4.0, measure_noise=True, arrived=int)
    backend.discard()
    backend.leave()
    alone = setup.backend(replace(formation, rank=0, hosts=("alone",), address=f"127.0.0.1:{free_port()}"))
    sizes, norms = [], []
    for rank in range(formation.num_ranks):
        for batch in setup.batches(0, rank, formation.num_ranks)[0]:
            group = alone.gradients(
                [batch], num_targets=batch.num_targets, loss_scale=1.0, measure_noise=False, arrived=int
            )
            alone.discard()
            sizes.append(batch.num_targets)
            norms.append(group.norm**2)
    alone.leave()
    return found.group_sizes, found.group_squared_norms, tuple(sizes), tuple(norms), found.norm


def scaled_step(formation: Formation, setup: Setup, loss_scale: float) -> Any:
    """Losses, norms and digest of two steps with a loss scale."""
    backend = setup.backend(formation)
    found = train(backend, setup, range(2), loss_scale=loss_scale)
    digest = backend.digest()
    backend.leave()
    return [(result.loss, result.norm) for result in found], digest


def spoilt_step(formation: Formation, setup: Setup, fault: str) -> Any:
    """Digests around a step that rank 1 spoils, and whether it and the next one were finite."""
    backend = setup.backend(formation)
    before = backend.digest()
    if formation.rank == 1:
        corrupt(backend, fault)
    batches, num_targets = setup.batches(0, formation.rank, formation.num_ranks)
    spoilt = backend.gradients(batches, num_targets=num_targets, loss_scale=1.0, measure_noise=False, arrived=int)
    backend.discard()
    after = backend.digest()
    healthy = train(backend, setup, [0])[0]
    backend.leave()
    return before, after, spoilt.is_finite, healthy.is_finite


def flipped(formation: Formation, setup: Setup) -> Any:
    """Digests before and after rank 1 flips a bit of a parameter."""
    backend = setup.backend(formation)
    before = backend.digest()
    if formation.rank == 1:
        corrupt(backend, "flip-parameter-bit")
    after = backend.digest()
    backend.leave()
    return before, after


def everything_of(formation: Formation, setup: Setup, num_steps: int) -> Any:
    """Losses, norms, a loss without training, groups of the noise, and the digest."""
    backend = setup.backend(formation)
    place, degrees = backend._joined().place, backend._joined().grid.degrees
    batches, num_targets = setup.batches(0, place["data"], degrees["data"])
    measured = backend.gradients(batches, num_targets=num_targets, loss_scale=1.0, measure_noise=True, arrived=int)
    backend.discard()
    found = train(backend, setup, range(num_steps), clip_norm=0.5)
    evaluated = backend.evaluate(batches, num_targets=num_targets)
    digest = backend.digest()
    backend.leave()
    noise = measured.group_sizes, measured.group_squared_norms
    return [result.loss for result in found], [result.norm for result in found], evaluated, noise, digest


def weights_of(formation: Formation, setup: Setup) -> Any:
    """Global parameters after they were divided among the ranks."""
    backend = setup.backend(formation)
    found = backend.weights()
    backend.leave()
    return found


def evaluated(formation: Formation, setup: Setup, step: int) -> float:
    """Loss of the samples of a step without training."""
    backend = setup.backend(formation)
    place, degrees = backend._joined().place, backend._joined().grid.degrees
    batches, num_targets = setup.batches(step, place["data"], degrees["data"])
    found = backend.evaluate(batches, num_targets=num_targets)
    backend.leave()
    return found


def refused_noise(formation: Formation, setup: Setup) -> str:
    """Why the gradient noise of a step is not measured."""
    backend = setup.backend(formation)
    batches, num_targets = setup.batches(0, formation.rank, formation.num_ranks)
    with pytest.raises(ValueError, match="experts") as caught:
        backend.gradients(batches, num_targets=num_targets, loss_scale=1.0, measure_noise=True, arrived=int)
    backend.leave()
    return str(caught.value)


def held_groups(formation: Formation, setup: Setup, directory: Path) -> int:
    """Groups that something still holds after a rank trained, saved, restored and left."""
    backend = setup.backend(formation)
    train(backend, setup, range(2))
    backend.write(backend.snapshot(), directory)
    backend.restore(directory)
    assert backend._groups is not None
    made = backend._groups.made
    backend.leave()
    return sum(group() is not None for group in made)
