"""Runs the real loop, or real ranks, for a probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from trainspec_reference.common.backend import Backend, MicroBatch
from trainspec_reference.common.batch_schedule import fitted
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Data, Job, ModelShape, Rates
from trainspec_reference.common.ports import Wish

from trainspec_conformance.testbed.planted import corrupt
from trainspec_conformance.testbed.probe_arrays import Array, ProbeInputError, Request
from trainspec_conformance.testbed.probe_ranks import MAX_RANKS, Member, on_ranks
from trainspec_conformance.testbed.rehearsal import NoPorts, StepMemory, built, only_rank, trainer_of
from trainspec_validate.documents.types.plan import TrainingPlan
from trainspec_validate.documents.types.precision import LossScaling

_SHAPE = ModelShape(family="state-space", num_layers=1, hidden_size=16, vocabulary_size=128, sequence_length=16)
_LARGE_EPSILON, _LARGE_RATE = 1e4, 1e8
"""With them the first step of AdamW is its gradient times their ratio, so that the gradient can be read off."""


def _job(num_data_ranks: int = 1, *, variable_length: bool = False, seed: int = 0, **precision: Any) -> Job:
    plan = {
        "apiVersion": "trainspec/v1",
        "kind": "TrainingPlan",
        "metadata": {"name": "probe"},
        "model": {"name": "probe", "family": "state-space", "num_parameters": 4000},
        "parallelism": {"num_accelerators": num_data_ranks, "data": num_data_ranks},
        "batch": {"global_sequences": 4, "micro_sequences": 4, "accumulation_steps": 1},
        "precision": {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32", **precision},
    }
    plan["batch"]["variable_length"] = variable_length  # type: ignore[index]
    rates = Rates(peak=_LARGE_RATE, epsilon=_LARGE_EPSILON)
    return Job(msgspec.convert(plan, TrainingPlan), None, 1, seed, _SHAPE, rates, Data())


# --- accumulate ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Share:
    """What one rank computes of one layout."""

    backend: str
    job: Job
    batches: tuple[MicroBatch, ...]
    num_targets: int


def accumulate(request: Request, backend: str) -> dict[str, Any]:
    """Loss and gradient of the same samples, divided over ranks and micro-batches in several ways."""
    ids, layouts = request.get("sample_ids", list[int]), request.get("layouts", list[dict[str, int]])
    settings: dict[str, Any] = {
        "variable_length": request.get("variable_length", bool, False),
        "seed": request.get("seed", int, 0),
        "compute": request.get("precision", str, "fp32"),
    }
    results = []
    for layout in layouts:
        data, micro = layout.get("data", 1), layout.get("micro_sequences", 1)
        if not 1 <= data <= min(MAX_RANKS, len(ids)) or micro < 1:
            raise ProbeInputError(f"layout {layout}: data is between 1 and {MAX_RANKS} and no more than the samples")
        loss, gradient = _of_ranks(backend, _job(data, **settings), ids, micro)
        num_targets = _samples(_job(**settings)).num_targets(ids)
        results.append({"loss": loss, "gradient": request.written(gradient), "num_targets": num_targets})
    alone = _alone(backend, _job(**settings), ids)
    return {"results": results, "samples": alone}


def _samples(job: Job) -> Samples:
    return Samples(job.model, job.data, job.plan.batch.variable_length)


def _of_ranks(backend: str, job: Job, ids: Sequence[int], micro: int) -> tuple[float, Array]:
    """Start the ranks of a layout, and take what the first of them tells."""
    samples, num_ranks = _samples(job), job.plan.parallelism.data
    shares, start = [], 0
    for size in fitted(len(ids), (1.0,) * num_ranks):
        mine = ids[start : start + size]
        start += size
        batches = tuple(samples.batch(mine[at : at + micro]) for at in range(0, len(mine), micro))
        shares.append(_Share(backend, job, batches, samples.num_targets(ids)))
    return on_ranks(_work, shares)


def _work(member: Member, share: _Share) -> tuple[float, Array]:
    with built(share.backend, share.job, member.next_formation()) as backend:
        before = backend.weights()
        found = backend.gradients(
            share.batches, num_targets=share.num_targets, loss_scale=1.0, measure_noise=False, arrived=lambda: None
        )
        backend.update(_LARGE_RATE, None)
        after = backend.weights()
        backend.agree(0.0)
    change = [before[name].astype(np.float64) - after[name] for name in sorted(before)]
    return found.loss, np.concatenate([part.ravel() for part in change]) / (_LARGE_RATE / _LARGE_EPSILON)


def _alone(backend: str, job: Job, ids: Sequence[int]) -> list[dict[str, float]]:
    """Mean loss of each sample alone."""
    found = []
    with built(backend, job, only_rank()) as found_backend:
        for sample_id in ids:
            batch = _samples(job).batch([sample_id])
            loss = found_backend.evaluate([batch], num_targets=batch.num_targets)
            found.append({"loss": loss, "num_targets": batch.num_targets})
    return found


# --- loss-scale ---------------------------------------------------------------------------------------------


class _Script(NoPorts):
    """Ports that plant an infinity in each step that the script names, and compare states."""

    def __init__(self, backend: Backend, overflows: Sequence[bool]) -> None:
        self.unchanged: list[bool] = []
        self._backend, self._overflows = backend, list(overflows)
        self._before = backend.digest()

    def wishes(self) -> Wish:
        """Asked before each step."""
        if len(self.unchanged) == len(self._overflows):
            return Wish.STOP
        if self._overflows[len(self.unchanged)]:
            corrupt(self._backend, "inf-gradient")
        return Wish.NONE

    def done(self, step: int) -> None:  # noqa: ARG002 - skipped steps have the number of the one before
        """The state after the step against that before it."""
        after = self._backend.digest()
        self.unchanged.append(after == self._before)
        self._before = after


def loss_scale(request: Request, backend: str) -> dict[str, Any]:
    """The scale of each step of a real run whose gradients overflow when the script says so."""
    rule, overflows = request.record("loss_scaling", LossScaling), request.get("overflows", list[bool])
    plain = _job(loss_scaling=msgspec.to_builtins(rule))
    job = Job(plain.plan, None, len(overflows) + 1, model=plain.model, rates=Rates(warmup_steps=100), data=Data())
    formation, trace = only_rank(), StepMemory()
    with built(backend, job, formation) as found:
        script = _Script(found, overflows)
        trainer = trainer_of(job, found, formation, script, trace)
        trainer.run()
    return {
        "scales": [step.loss_scale for step in trace.steps],
        "next_scale": trainer.state.loss_scale.scale,
        "skipped": [step.skipped is not None for step in trace.steps],
        "unchanged": script.unchanged,
        "updates": [step.step for step in trace.steps],
        "learning_rates": [step.learning_rate for step in trace.steps],
    }
