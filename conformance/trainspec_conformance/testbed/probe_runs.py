"""Runs the whole loop for a probe: optimizer steps, convergence and memory."""

# ruff: noqa: N806 - shapes stand in names: R seeds, S steps

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import numpy as np
from trainspec_reference.common import backend as backends
from trainspec_reference.common.backend import Backend, Gradients
from trainspec_reference.common.job import Data, Job, ModelShape, Rates
from trainspec_reference.common.weights import initial_weights

from trainspec_conformance.testbed import backend_named
from trainspec_conformance.testbed.probe_arrays import Array, ProbeInputError, Request
from trainspec_conformance.testbed.probe_parts import Probes, UnsupportedError
from trainspec_conformance.testbed.probe_ranks import MAX_RANKS, Member, on_ranks
from trainspec_conformance.testbed.rehearsal import NoPorts, StepMemory, built, only_rank, rehearse, trainer_of
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.plan import TrainingPlan

_SHAPE = ModelShape(family="state-space", num_layers=2, hidden_size=32, vocabulary_size=64, sequence_length=16)
_FLAT_EPSILON, _FLAT_RATE = 1e8, 1e12
"""AdamW with them and without momentum is gradient descent: its step is their ratio times the gradient."""
_FIRST_STEPS = 3
_WIDE = 1024
"""Width of a model whose parameters are most of what its training takes."""
_MAX_STEPS, _MAX_SEEDS, _MAX_ENTRIES, _MAX_PARAMETERS = 10_000, 64, 1 << 30, 1 << 30


def _job(
    shape: ModelShape, rates: Rates, *, num_steps: int, sequences: int = 8, num_ranks: int = 1, **more: Any
) -> Job:
    plan = {
        "apiVersion": "trainspec/v1",
        "kind": "TrainingPlan",
        "metadata": {"name": "probe"},
        "model": {"name": "probe", "family": "state-space", "num_parameters": 4000},
        "parallelism": {"num_accelerators": num_ranks, "data": num_ranks},
        "batch": {
            "global_sequences": sequences,
            "micro_sequences": sequences // num_ranks,
            "accumulation_steps": 1,
        },
        "precision": {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"},
        **more,
    }
    return Job(msgspec.convert(plan, TrainingPlan), None, num_steps, 0, shape, rates, Data())


# --- step ---------------------------------------------------------------------------------------------------


class _Louder:
    """A backend each of whose targets weighs a factor more."""

    def __init__(self, inner: Backend, factor: int) -> None:
        self._inner, self._factor = inner, factor

    def gradients(self, *batches: Any, num_targets: int, **more: Any) -> Gradients:
        """As `Backend.gradients`, of the loss times the factor."""
        if num_targets % self._factor:
            raise ProbeInputError(f"a factor divides {num_targets}, and {self._factor} does not")
        return self._inner.gradients(*batches, num_targets=num_targets // self._factor, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def update(request: Request, backend: str) -> dict[str, Any]:
    """Change of all parameters in the first step of the loop, over its rate, with the loss times each factor."""
    factors = request.get("factors", list[int])
    clip_norm = None if request.values.get("clip_norm") is None else request.get("clip_norm", float)
    rates = Rates(peak=_FLAT_RATE, beta1=0.0, epsilon=_FLAT_EPSILON, clip_norm=clip_norm)
    job = replace(_job(_SHAPE, rates, num_steps=1, sequences=64), seed=request.get("seed", int, 0))
    return {"updates": request.written(np.array([_update(backend, job, factor) for factor in factors]))}


def _update(name: str, job: Job, factor: int) -> Array:
    formation = only_rank()
    with built(name, job, formation) as backend:
        before = backend.weights()
        louder = cast("Backend", _Louder(backend, factor))
        trainer_of(job, louder, formation, NoPorts(), StepMemory()).run()
        after = backend.weights()
    change = [(before[name].astype(np.float64) - after[name]).ravel() for name in sorted(before)]
    return np.asarray(np.concatenate(change) / (_FLAT_RATE / _FLAT_EPSILON))


# --- converge -------------------------------------------------------------------------------------------------


def converge(request: Request, backend: str) -> dict[str, Any]:
    """Losses of the same jobs by gradient descent, of several seeds, without compression and with it.

    A backend that compresses nothing where one rank trains alone trains on two, in processes of their own.
    """
    seeds, num_steps = request.get("seeds", list[int]), request.get("num_steps", int)
    if not 1 <= num_steps <= _MAX_STEPS or not 1 <= len(seeds) <= _MAX_SEEDS:
        raise ProbeInputError(f"between 1 and {_MAX_STEPS} steps and {_MAX_SEEDS} seeds are trained")
    settings = request.record("compression", Compression)
    compressed = {"communication": {"compression": msgspec.to_builtins(settings)}}
    for num_ranks in (1, 2):
        dense, other = (_descents(seeds, num_steps, num_ranks, **more) for more in ({}, compressed))
        if num_steps == 1 or _differ(backend, dense[0], other[0]):
            dense_RS, compressed_RS = _losses(backend, dense), _losses(backend, other)
            return {"dense": request.written(dense_RS), "compressed": request.written(compressed_RS)}
    raise UnsupportedError(f"the {backend} backend compresses nothing, neither on one rank nor on two")


def _descents(seeds: Sequence[int], num_steps: int, num_ranks: int, **more: Any) -> list[Job]:
    """A job of each seed."""
    rates = Rates(peak=_FLAT_EPSILON, beta1=0.0, epsilon=_FLAT_EPSILON, warmup_steps=10, clip_norm=1.0)
    job = _job(_SHAPE, rates, num_steps=num_steps, num_ranks=num_ranks, **more)
    return [replace(job, seed=seed, data=Data(seed=seed)) for seed in seeds]


def _differ(backend: str, *jobs: Job) -> bool:
    """Whether two jobs differ in their first losses."""
    one, other = (_losses(backend, [replace(job, num_steps=_FIRST_STEPS)]) for job in jobs)
    return bool((one != other).any())


def _losses(backend: str, jobs: Sequence[Job]) -> Array:
    """Losses of each job in each of its steps."""
    num_ranks = jobs[0].plan.parallelism.data
    try:
        if num_ranks == 1:
            of_jobs = [[float(step.loss) for step in rehearse(backend, job)] for job in jobs]
        else:
            of_jobs = on_ranks(_trained, [(backend, jobs)] * num_ranks)
    except ValueError as error:
        raise UnsupportedError(str(error)) from error
    return np.array(of_jobs, np.float64)


def _trained(member: Member, told: tuple[str, Sequence[Job]]) -> list[list[float]]:
    """Losses of jobs that this rank trains with others, one after the other."""
    backend, jobs = told
    return [[float(step.loss) for step in rehearse(backend, job, member.next_formation())] for job in jobs]


# --- memory ---------------------------------------------------------------------------------------------------


def _shaped(request: Request) -> Job:
    layers, hidden, length = (request.get(key, int) for key in ("num_layers", "hidden_size", "sequence_length"))
    sequences, num_steps = request.get("global_sequences", int), request.get("num_steps", int, 2)
    if min(layers, hidden, length, sequences) < 1 or layers * hidden * length * sequences > _MAX_ENTRIES:
        raise ProbeInputError(f"sizes are positive, and their product is at most {_MAX_ENTRIES}")
    if not 1 <= num_steps <= _MAX_STEPS:
        raise ProbeInputError(f"between 1 and {_MAX_STEPS} steps are trained")
    shape = replace(_SHAPE, num_layers=layers, hidden_size=hidden, sequence_length=length)
    return _job(shape, Rates(), num_steps=num_steps, sequences=sequences)


def memory(request: Request, backend: str, probes: Probes) -> dict[str, Any]:
    """Predicted memory of a training step of a shape; the suite measures the process."""
    job = _shaped(request)
    predicted = probes.predicted_bytes(job)
    rehearse(backend, job)
    return {"predicted_bytes": predicted, "memory": "host"}


def sharded_job(request: Request) -> Job:
    """A job with at least so many parameters, in layers that are gathered one at a time where they are sharded."""
    num_ranks, num_parameters = request.get("num_ranks", int), request.get("num_parameters", int)
    num_steps = request.get("num_steps", int)
    if not (1 <= num_ranks <= MAX_RANKS and 1 <= num_parameters <= _MAX_PARAMETERS and 1 <= num_steps <= _MAX_STEPS):
        raise ProbeInputError(
            f"at most {MAX_RANKS} ranks, {_MAX_PARAMETERS} parameters, {_MAX_STEPS} steps are trained"
        )
    num_layers = -(-num_parameters // (3 * _WIDE * _WIDE))
    shape = replace(_SHAPE, num_layers=num_layers, hidden_size=_WIDE)
    layout = {"num_accelerators": num_ranks, "data": num_ranks, "sharding": request.get("sharding", str)}
    try:
        job = _job(shape, Rates(), num_steps=num_steps, sequences=num_ranks, num_ranks=num_ranks, parallelism=layout)
    except msgspec.ValidationError as error:
        raise ProbeInputError(f"sharding: {error}") from error
    return replace(job, seed=request.get("seed", int, 0))


def shards(request: Request, backend: str) -> dict[str, Any]:
    """Losses of a job whose ranks share their state as asked; the suite sees what their processes take."""
    job = sharded_job(request)
    try:
        backends.make(backend_named(backend), job)
    except ValueError as error:
        raise UnsupportedError(str(error)) from error
    (losses,) = on_ranks(_trained, [(backend, [job])] * job.plan.parallelism.data)
    num_parameters = sum(array.size for array in initial_weights(job.model, job.seed).values())
    return {"losses": losses, "num_parameters": num_parameters, "memory": "host"}


class _Peaks(NoPorts):
    """Ports that ask for the peak of each step."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self.found: list[int] = []
        probes.peak_bytes()

    def done(self, step: int) -> None:  # noqa: ARG002 - steps are in order
        """A step has ended."""
        self.found.append(self._probes.peak_bytes())


def peaks(request: Request, backend: str, probes: Probes) -> dict[str, Any]:
    """Most memory that was in use in each step of one loop."""
    job, formation = _shaped(request), only_rank()
    ports = _Peaks(probes)
    with built(backend, job, formation) as found:
        trainer_of(job, found, formation, ports, StepMemory()).run()
    return {"peak_bytes": ports.found}
