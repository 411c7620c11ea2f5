"""Turns a task of the conformance suite into a job of the reference trainers, and starts it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from trainspec_reference.common.controller import hosts, launch
from trainspec_reference.common.job import Data, Job, ModelShape, Rates
from trainspec_reference.common.reading import write_documents
from trainspec_reference.common.run_settings import IN_USE, Assignment, Settings

from trainspec_conformance.testbed import backend_named
from trainspec_conformance.testbed.hosts import HostsController
from trainspec_conformance.testbed.places import Place
from trainspec_conformance.testbed.planted import PlantedFault, planted
from trainspec_conformance.testbed.worker import WORKER
from trainspec_validate.documents import types as documents
from trainspec_validate.documents.types.checkpoint import CheckpointPolicy
from trainspec_validate.documents.types.conformance import Task, TestJob
from trainspec_validate.documents.types.plan import TrainingPlan

_SIZES: dict[str, Any] = {"num_layers": 2, "hidden_size": 32, "vocabulary_size": 128, "sequence_length": 32}


@dataclass(frozen=True, slots=True)
class Network:
    """A network that tasks are trained with: for the trainer, and as the model of a plan."""

    shape: ModelShape
    model: Mapping[str, Any]
    expert: int = 1
    """Ranks that divide the experts, where the ranks of a task do."""

    @property
    def num_parameters(self) -> int:
        """All parameters."""
        return int(self.model["num_parameters"])


NETWORKS = {
    "state-space": Network(
        ModelShape(family="state-space", **_SIZES),
        {"name": "tiny-state-space", "family": "state-space", "num_parameters": 10_560},
    ),
    "experts": Network(
        ModelShape(**_SIZES, num_heads=2, ffn_hidden_size=32, num_experts=4, num_active_experts=2),
        {
            "name": "tiny-experts",
            "family": "moe-transformer",
            "num_parameters": 30_272,
            "num_attention_heads": 2,
            "experts": {"num_experts": 4, "num_active_experts": 2, "ffn_hidden_size": 32},
        },
        expert=2,
    ),
}
STATE_SPACE = NETWORKS["state-space"]
DEVICES = ("cpu", "cuda")
USAGE = (
    "usage: python -m trainspec_conformance.testbed.conform BACKEND TASK.json"
    f" [{' | '.join(NETWORKS)}] [{' | '.join(DEVICES)}]"
)


def main(arguments: list[str]) -> int:
    """Train as a task says; gives the exit status."""
    backend, path, *named = arguments if len(arguments) >= 2 else ("", "", USAGE)
    networks, devices = ([one for one in named if one in known] for known in (NETWORKS, DEVICES))
    if len(networks) + len(devices) < len(named) or max(len(networks), len(devices)) > 1:
        print(USAGE, file=sys.stderr)  # noqa: T201 - the answer to wrong use
        return IN_USE
    network = NETWORKS[networks[0]] if networks else STATE_SPACE
    task = msgspec.json.decode(Path(path).read_bytes(), type=Task)
    return run(backend, task, WORKER, network, *devices)


def run(
    backend: str, task: Task, worker: tuple[str, ...], network: Network = STATE_SPACE, device: str = DEVICES[0]
) -> int:
    """Train as a task says, with workers that a command starts."""
    job = replace(job_of(task.job, network), device=device)
    out = Path(task.trace_directory).parent / "run"
    out.mkdir(parents=True, exist_ok=True)
    stream = Path(task.stream_directory)
    stream.mkdir(parents=True, exist_ok=True)
    checkpoints = Path(task.checkpoint_directory)
    papers = write_documents(job, None, out)
    assignment = Assignment(backend_named(backend), job, checkpoints, Path(task.trace_directory), papers)
    settings = Settings(
        hosts=_hosts(task),
        directory=out,
        checkpoint_directory=checkpoints,
        trace_directory=Path(task.trace_directory),
        run=task.run,
        first_attempt=task.attempt,
    )
    if not task.hosts:
        return launch(assignment, settings, worker)
    places = {one.name: Place(one.address, one.interface, one.enter) for one in task.hosts}
    return launch(assignment, settings, worker, partial(HostsController, places=places, address=task.address))


def _hosts(task: Task) -> tuple[str, ...]:
    """Host of each rank: one of the task's, or a name for a part of this one."""
    ranks, names = task.job.num_ranks, [one.name for one in task.hosts]
    if not names:
        return hosts(ranks, task.job.num_hosts)
    return tuple(names[rank * len(names) // ranks] for rank in range(ranks))


def job_of(test: TestJob, network: Network = STATE_SPACE) -> Job:
    """The job of the reference trainers that a test asks for."""
    faults = tuple(
        PlantedFault(one.kind, one.rank, one.step, one.num_steps, one.seconds, one.every_attempt) for one in test.faults
    )
    job = Job(
        plan=_plan(test, network),
        policy=_policy(test, network),
        num_steps=test.num_steps,
        seed=test.seed,
        model=replace(network.shape, dropout=test.dropout),
        rates=Rates(
            peak=3e-3 * test.learning_rate_factor,
            warmup_steps=10,
            decay_steps=test.num_steps,
            weight_decay=0.1,
            clip_norm=1.0,
        ),
        data=Data(num_samples=test.samples_per_epoch, seed=test.seed, is_shuffled=test.sample_order == "any"),
        evaluation_interval_steps=test.evaluation_interval_steps,
        replica_check_steps=test.checkpoint_interval_steps,
        rebalance_interval_steps=test.rebalance_interval_steps,
        min_step_seconds=test.step_seconds,
    )
    return planted(job, faults)


def _plan(test: TestJob, network: Network) -> TrainingPlan:
    degrees = {"data": test.num_ranks, "expert": math.gcd(test.num_ranks, network.expert)}
    return msgspec.convert(
        {
            "apiVersion": "trainspec/v1",
            "kind": "TrainingPlan",
            "metadata": {"name": "conformance"},
            "model": {**_SIZES, **network.model, "tied_embeddings": True},
            "parallelism": {"num_accelerators": test.num_ranks, **degrees},
            "batch": _batch(test),
            "precision": _precision(test),
            "telemetry": {"profile": "core", "step_interval": 1},
            "job": {"num_steps": test.num_steps, "seed": test.seed},
            **_compression(test),
            **_performance(test),
        },
        TrainingPlan,
    )


def _batch(test: TestJob) -> dict[str, Any]:
    return {
        "global_sequences": test.global_sequences,
        "micro_sequences": -(-test.global_sequences // (test.num_ranks * test.accumulation_steps)),
        "accumulation_steps": test.accumulation_steps,
        **({"ramp": _ramp(test)} if test.batch_ramp else {}),
        **_noise_scale(test),
    }


def _precision(test: TestJob) -> dict[str, Any]:
    precision: dict[str, Any] = {
        "compute": test.precision,
        "parameters": test.precision,
        "gradients": test.precision,
        "accumulation": "fp32",
        "reduction": "fp32",
        "nonfinite_action": "skip-step",
        "deterministic": True,
    }
    if test.precision != "fp32":
        precision["master_parameters"] = "fp32"
    if test.precision == "fp16":
        precision["loss_scaling"] = {"mode": "dynamic", "initial_scale": 65536, "growth_factor": 2,
                                     "backoff_factor": 0.5, "growth_interval_steps": 20}  # fmt: skip
    return precision


def _performance(test: TestJob) -> dict[str, Any]:
    """What utilisation is told against; the network is no transformer, so that parameters alone are counted."""
    if test.peak_flops_per_second is None:
        return {}
    told = {"kind": "predicted", "flops_convention": "6n", "peak_flops_per_second": test.peak_flops_per_second}
    return {"performance": told}


def _noise_scale(test: TestJob) -> dict[str, Any]:
    if test.gradient_noise_half_life_steps is None:
        return {}
    settings = {
        "noise_unit": "sequence",
        "tap": "after-unscale-before-clip",
        "num_groups": test.num_ranks * test.accumulation_steps,
        "estimator": "size-weighted",
        "ema_half_life_steps": test.gradient_noise_half_life_steps,
        "bias_corrected": True,
    }
    return {"noise_scale": settings}


def _compression(test: TestJob) -> dict[str, Any]:
    if test.compression == "none":
        return {}
    found: dict[str, Any] = {"method": test.compression, "error_feedback": True, "residual_checkpointed": True}
    found |= {"rank": 4} if test.compression == "power-sgd" else {}
    found |= {"density": 0.1} if test.compression == "top-k" else {}
    return {"communication": {"compression": found}}


def _ramp(test: TestJob) -> list[dict[str, Any]]:
    stages, tokens, step, sequences = [], 0, 0, test.global_sequences
    for one in ((0, test.global_sequences), *((s.from_step, s.global_sequences) for s in test.batch_ramp)):
        tokens += (one[0] - step) * sequences * int(_SIZES["sequence_length"])
        step, sequences = one
        stages.append({"from_tokens": float(tokens), "global_sequences": sequences})
    return stages


def _policy(test: TestJob, network: Network) -> CheckpointPolicy:
    """The reference policy, with the interval, the number and the mode of the test."""
    step_seconds = max(test.step_seconds, 0.005)
    mode = "asynchronous" if test.asynchronous_saves else "synchronous"
    fault = {"action": "restart-in-place", "budget_seconds": 30, "decide_seconds": 0.5, "restart_seconds": 10,
             "restore_seconds": 2, "first_step_seconds": 2}  # fmt: skip
    policy = {
        "apiVersion": "trainspec/v1",
        "kind": "CheckpointPolicy",
        "metadata": {"name": "conformance"},
        "interval": {"steps": test.checkpoint_interval_steps, "step_seconds": step_seconds},
        "save": {"mode": mode, "size_bytes": network.num_parameters * 12.0, "blocking_seconds": 0.01},
        "tiers": [{"name": "durable", "failure_domain": "cluster"}],
        "commit": {"protocol": "rename", "pointer": "after-commit", "durable_before_commit": True},
        "retention": {"num_kept": test.num_kept, "error_detection_seconds": 1},
        "state": {
            "items": ["model", "optimizer", "learning-rate-schedule", "rng", "data-position", "step",
                      "samples-or-tokens", "layout", "config-digest"],
            "resume_class": "bitwise",
        },
        "integrity": {"digest": "sha256", "manifest": True, "verified_on_restore": True, "format": "tensor-only"},
        "detection": [
            {"layer": "controller", "timeout_seconds": 1, "faults": ["process-loss", "node-loss"], "signal": "exit"},
            {"layer": "progress", "timeout_seconds": 4, "faults": ["hang"], "signal": "progress"},
        ],
        "recovery": [{"fault": one, **fault} for one in ("process-loss", "hang", "node-loss")],
        "recovery_point_seconds": 60,
        "restart": {"max_restarts": 100, "max_restarts_without_progress": 3},
    }  # fmt: skip
    return documents.part(CheckpointPolicy, policy)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
