"""What the tests of the JAX backend let each rank do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from trainspec_conformance.testbed import backend_named, rehearsal
from trainspec_conformance.testbed.planted import corrupt
from trainspec_reference.common.backend import Backend, Formation, Gradients, MicroBatch, PeerLostError, Weights, make
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Data, Job, ModelShape, Rates
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.common.weights import initial_weights
from trainspec_reference.jax import arithmetic
from trainspec_reference.jax.backend import JaxBackend
from trainspec_reference.jax.compression import Carried, Compressor
from trainspec_reference.jax.exchange import summed
from trainspec_reference.jax.storage import JaxSnapshot

from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.plan import TrainingPlan
from trainspec_validate.documents.types.trace import StepDone

TRANSFORMER = ModelShape(
    num_layers=1, hidden_size=32, num_heads=4, ffn_hidden_size=64, vocabulary_size=99, sequence_length=16
)
CONVOLUTION = ModelShape(family="convolution", num_layers=1, hidden_size=16, vocabulary_size=10, image_size=8)
STATE_SPACE = ModelShape(family="state-space", num_layers=1, hidden_size=32, vocabulary_size=99, sequence_length=16)
FAMILIES = {shape.family: shape for shape in (TRANSFORMER, CONVOLUTION, STATE_SPACE)}
GLOBAL_SAMPLES = 8
DOUBLE = {"compute": "fp64", "parameters": "fp64", "gradients": "fp64", "reduction": "fp64", "optimizer_state": "fp64"}
SINGLE = {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}
RATES = Rates(peak=1e-2, weight_decay=0.1, clip_norm=1.0)

_BACKENDS: dict[str, list[JaxBackend]] = {}
"""Those that this process has compiled already; `build` gives them fresh state."""


@dataclass(frozen=True)
class Setup:
    """A job, and how a step's samples are cut into micro-batches."""

    parts: Mapping[str, Any] = field(default_factory=dict)
    shape: ModelShape = TRANSFORMER
    rates: Rates = RATES
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
        kept = _BACKENDS.setdefault(repr((self, formation.hosts)), [])
        if not kept:
            kept.append(JaxBackend(self.job()))
            kept[0].join(formation)
        backend = kept[0]
        arithmetic.configure(self.job().plan.precision, "cpu")
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


def step(backend: Backend, setup: Setup, formation: Formation, number: int, **asked: Any) -> Gradients:
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
    assert backend._exchanged is not None
    divided = backend._programs.layout.divide(backend._exchanged.gradient)
    return {name: np.array(found) for name, found in divided.items()}


def save(formation: Formation, setup: Setup, directory: Path, num_steps: int) -> tuple[str, int]:
    """Train and write a checkpoint; gives the digest, and the bytes of the arrays of the snapshot."""
    backend = setup.backend(formation)
    for number in range(num_steps):
        step(backend, setup, formation, number)
        backend.update(setup.rates.peak, setup.rates.clip_norm)
    snapshot, digest = backend.snapshot(), backend.digest()
    step(backend, setup, formation, num_steps)
    backend.update(setup.rates.peak, setup.rates.clip_norm)
    backend.write(snapshot, directory)
    assert isinstance(snapshot, JaxSnapshot)
    return digest, sum(array.nbytes for array in snapshot.arrays)


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


def train_of_many(formation: Formation, setups: dict[str, Setup], num_steps: int) -> dict[str, Any]:
    """What `train` gives for each setup."""
    return {name: train(formation, setup, num_steps) for name, setup in setups.items()}


def residuals(formation: Formation, setup: Setup, directory: Path) -> Any:
    """The residual of a rank after it has restored a checkpoint."""
    backend = setup.backend(formation)
    backend.restore(directory)
    return np.array(backend._state.residual[0])


def shared_residual(formation: Formation, setup: Setup) -> tuple[Any, Any, str]:
    """The residual of a rank before and after it has taken the state of rank 0, and the digest of that state."""
    backend = setup.backend(formation)
    for number in range(2):
        step(backend, setup, formation, number)
        backend.update(setup.rates.peak, setup.rates.clip_norm)
    before = np.array(backend._state.residual[0])
    backend.share(0)
    return before, np.array(backend._state.residual[0]), backend.digest()


def compressed(formation: Formation, method: str, num_steps: int) -> tuple[Any, Any, Any]:
    """Exchange random gradients: those of this rank, the sums that came out, and the residual at the end."""
    plan = Compression(method=method, error_feedback=True, density=0.1, rank=2)  # type: ignore[arg-type]
    compressor = Compressor(plan, {"bias": (5,), "matrix": (24, 20)})
    backend = Setup().backend(formation)
    group = backend._ranks.everyone

    def body(vector: Any, residual: Any, basis: Any) -> Any:
        return compressor.exchange(vector, Carried(residual, basis), np.True_, lambda v: summed(v, "automatic"))

    run = group.program(body)
    residual, basis = group.own(np.zeros(485)), group.own(compressor.first_basis(0).astype(np.float64))
    own = np.random.default_rng(formation.rank).standard_normal((num_steps, 485))
    sums = []
    for vector in own:
        whole, (residual, basis) = run(group.own(vector), residual, basis)
        sums.append(np.array(whole[0]))
    return own, np.array(sums), np.array(residual[0])


def flipped(formation: Formation) -> tuple[str, str]:
    """Digest of a rank after a bit of rank 1 has flipped, and after rank 0 has shared its state."""
    backend = Setup().backend(formation)
    if formation.rank == 1:
        corrupt(backend, "flip-parameter-bit")
    before = backend.digest()
    backend.share(0)
    return before, backend.digest()


def overflowed(formation: Formation) -> tuple[Gradients, bool, Gradients]:
    """A step with damage on the last rank, whether the state stayed, and the same step without damage."""
    setup = Setup()
    backend = setup.backend(formation)
    before = backend.digest()
    if formation.rank == formation.num_ranks - 1:
        corrupt(backend, "inf-gradient")
    told = step(backend, setup, formation, 0, loss_scale=1024.0)
    backend.discard()
    return told, backend.digest() == before, step(backend, setup, formation, 0, loss_scale=1024.0)


def lose_a_peer(formation: Formation, is_stopped: bool, timeout_seconds: float) -> tuple[str, float]:
    """Steps until the last rank has ended itself, and leaves; the error, and seconds until it.

    The time-out is that of the steps after the first: until then ranks may wait for one that still compiles.
    """
    setup = Setup()
    backend = setup.backend(formation)
    step(backend, setup, formation, 0)
    backend._processes._timeout_seconds = timeout_seconds
    if formation.rank == formation.num_ranks - 1:
        os.kill(os.getpid(), signal.SIGSTOP if is_stopped else signal.SIGKILL)
    begin = time.monotonic()
    try:
        step(backend, setup, formation, 1)
        error = "none"
    except PeerLostError as lost:
        error = str(lost)
    seconds = time.monotonic() - begin
    backend.leave()
    return error, seconds


def losses(formation: Formation, name: str, setup: Setup, num_steps: int) -> tuple[str, list[float]]:
    """Digest before the first step, and the loss of each, with a backend of that name."""
    backend = make(backend_named(name), setup.job())
    backend.join(formation)
    backend.build(setup.weights())
    digest, told = backend.digest(), []
    for number in range(num_steps):
        found = step(backend, setup, formation, number)
        told.append(found.loss)
        backend.update(setup.rates.peak, setup.rates.clip_norm)
    return digest, told


def rehearsed(formation: Formation, job: Job) -> list[StepDone]:
    """What a rank tells of each step of a job that is trained to its end."""
    memory, backend = rehearsal.StepMemory(), JaxBackend(job)
    backend.join(formation)  # and never leaves, for other tests go on in the group
    arithmetic.configure(job.plan.precision, "cpu")
    backend.build(initial_weights(job.model, job.seed))
    rehearsal.trainer_of(job, backend, formation, rehearsal.NoPorts(), memory).run()
    return memory.steps
