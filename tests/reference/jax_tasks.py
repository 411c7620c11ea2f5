"""What the tests of the JAX backend let each rank do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from trainspec_reference.common.backend import Formation, Gradients, MicroBatch, PeerLostError, Weights
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Data, Job, ModelShape, Rates
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.common.weights import initial_weights
from trainspec_reference.jax.backend import JaxBackend
from trainspec_validate.documents.plan import TrainingPlan

TRANSFORMER = ModelShape(
    num_layers=2, hidden_size=32, num_heads=4, ffn_hidden_size=64, vocabulary_size=99, sequence_length=16
)
CONVOLUTION = ModelShape(family="convolution", num_layers=2, hidden_size=16, vocabulary_size=10, image_size=8)
STATE_SPACE = ModelShape(family="state-space", num_layers=2, hidden_size=32, vocabulary_size=99, sequence_length=16)
FAMILIES = {shape.family: shape for shape in (TRANSFORMER, CONVOLUTION, STATE_SPACE)}
GLOBAL_SAMPLES = 8
DOUBLE = {"compute": "fp64", "parameters": "fp64", "gradients": "fp64", "reduction": "fp64", "optimizer_state": "fp64"}
SINGLE = {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}


@dataclass(frozen=True)
class Setup:
    """A job, and how a step's samples are cut into micro-batches."""

    parts: Mapping[str, Any] = field(default_factory=dict)
    shape: ModelShape = TRANSFORMER
    rates: Rates = Rates(peak=1e-2, weight_decay=0.1, clip_norm=1.0)
    shares: tuple[int, ...] = ()
    """Samples of each data rank; empty for even shares."""
    seed: int = 3

    def job(self) -> Job:
        """The job."""
        document: dict[str, Any] = {
            "apiVersion": "trainspec/v1",
            "kind": "TrainingPlan",
            "metadata": {"name": "jax-test"},
            "model": {"name": "tiny", "family": "dense-transformer", "num_parameters": 20_000},
            "parallelism": {"num_accelerators": 1},
            "batch": {"global_sequences": GLOBAL_SAMPLES, "micro_sequences": 2, "accumulation_steps": 4},
            "precision": DOUBLE,
        }
        plan = msgspec.convert(document | dict(self.parts), TrainingPlan)
        return Job(plan, None, num_steps=10, seed=self.seed, model=self.shape, rates=self.rates)

    def weights(self) -> Weights:
        """Its initial weights."""
        return initial_weights(self.shape, self.seed)

    def backend(self, formation: Formation) -> JaxBackend:
        """A backend that has joined and has its model."""
        backend = JaxBackend(self.job())
        backend.join(formation)
        backend.build(self.weights())
        return backend

    def batches(self, formation: Formation, step: int) -> tuple[list[MicroBatch], int]:
        """Micro-batches of two samples that a rank computes in a step, and the targets of all ranks."""
        grid = RankGrid(self.job().plan.parallelism, formation.num_ranks)
        num_data, own = grid.degrees["data"], grid.place(formation.rank)["data"]
        shares = self.shares or (GLOBAL_SAMPLES // num_data,) * num_data
        ids = range(step * GLOBAL_SAMPLES, (step + 1) * GLOBAL_SAMPLES)
        begin = sum(shares[:own])
        samples = Samples(self.shape, Data(), variable_length=True)
        mine = ids[begin : begin + shares[own]]
        batches = [samples.batch(mine[place : place + 2]) for place in range(0, len(mine), 2)]
        return batches, samples.num_targets(ids)


def step(backend: JaxBackend, setup: Setup, formation: Formation, number: int, **asked: Any) -> Gradients:
    """One step up to the gradient."""
    batches, num_targets = setup.batches(formation, number)
    options = {"loss_scale": 1.0, "measure_noise": False, "arrived": lambda: None} | asked
    return backend.gradients(batches, num_targets=num_targets, **options)


def train(formation: Formation, setup: Setup, num_steps: int, measure: bool = False) -> tuple[list[Gradients], str]:
    """Steps from the beginning: what each told, and the digest at the end."""
    backend = setup.backend(formation)
    told = []
    for number in range(num_steps):
        told.append(step(backend, setup, formation, number, measure_noise=measure))
        backend.update(setup.rates.peak, setup.rates.clip_norm)
    return told, backend.digest()


def gradient(formation: Formation, setup: Setup) -> dict[str, Any]:
    """The global gradient of the first step by name, of a rank that holds it whole."""
    backend = setup.backend(formation)
    step(backend, setup, formation, 0)
    assert backend._gradient is not None
    return {name: np.array(found) for name, found in backend._programs.layout.divide(backend._gradient[0]).items()}


def save(formation: Formation, setup: Setup, directory: Path, num_steps: int) -> tuple[str, int]:
    """Train and write a checkpoint; gives the digest, and the bytes that the snapshot told."""
    backend = setup.backend(formation)
    for number in range(num_steps):
        step(backend, setup, formation, number)
        backend.update(setup.rates.peak, setup.rates.clip_norm)
    snapshot, digest = backend.snapshot(), backend.digest()
    step(backend, setup, formation, num_steps)
    backend.update(setup.rates.peak, setup.rates.clip_norm)
    backend.write(snapshot, directory)
    return digest, snapshot.num_bytes


def resume(
    formation: Formation, setup: Setup, directory: Path, begin: int, end: int
) -> tuple[str, list[Gradients], str]:
    """Restore a checkpoint in fresh state and go on; gives the digests before and after, and what steps told."""
    backend = setup.backend(formation)
    backend.restore(directory)
    before, told = backend.digest(), []
    for number in range(begin, end):
        told.append(step(backend, setup, formation, number))
        backend.update(setup.rates.peak, setup.rates.clip_norm)
    return before, told, backend.digest()
