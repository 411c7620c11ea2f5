"""Lists the parallelism that each backend supports, so that other plans are refused before a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from trainspec_reference.common.backend import BACKENDS
from trainspec_reference.common.job import Job
from trainspec_reference.common.reading import NotTrainableError
from trainspec_validate.documents.types.communication import CollectiveChoice, Communication

_SCHEDULES = {"torch": ("gpipe", "1f1b"), "jax": ("gpipe",)}
"""Orders of a pipeline's passes. What JAX differentiates by itself begins no backward pass before the last forward pass
has ended: it is GPipe, and holds the activations of all micro-batches, as the memory of a plan counts them for it."""

_ALL_REDUCES = ("automatic", "hierarchical")
"""How gradients are summed: as the library chooses, or inside each host first."""
COUNT_SECONDS = 120.0
_COUNT = "import jax; jax.config.update('jax_platforms', 'cuda'); print(jax.local_device_count())"


def refuse(backend: str, job: Job) -> None:
    """Let pass what a backend has.

    Raises:
        NotTrainableError: the plan divides the model as this backend does not; the message names the key.
    """
    checks = (_split, _shared, _of_experts, _sharded, _staged)
    found = [(f"parallelism.{key}", why) for check in checks for key, why in check(backend, job)]
    for key, why in [*found, *_summed(job)]:
        raise NotTrainableError(f"{backend} does not support {key} of this plan: {why}")


def all_reduce_algorithm(communication: Communication | None, num_bytes: int) -> str:
    """The plan's choice for an all-reduce of gradients of that size, one of `_ALL_REDUCES`."""
    for choice in _choices(communication):
        if choice.min_bytes <= num_bytes and (choice.max_bytes is None or num_bytes < choice.max_bytes):
            return choice.algorithm
    return "hierarchical" if communication is not None and communication.hierarchical_reduction else "automatic"


def _choices(communication: Communication | None) -> list[CollectiveChoice]:
    """What the plan chooses for sums of gradients."""
    collectives = communication.collectives if communication is not None else ()
    return [one for one in collectives if (one.operation, one.axis) == ("all-reduce", "data")]


def refuse_shared_devices(backend: str, job: Job) -> None:
    """Let pass what has a device for each rank: a process of JAX takes a device for itself.

    Raises:
        NotTrainableError: there are more ranks than devices; the message names the key.
    """
    if backend != "jax" or job.device != "cuda":
        return
    num_ranks, num_devices = job.plan.parallelism.num_accelerators, num_devices_of_jax()
    if num_ranks > num_devices:
        fewer = f"give --ranks {num_devices}, or " if num_devices else ""
        raise NotTrainableError(
            f"{backend} does not support parallelism.num_accelerators of this plan: {num_ranks} ranks need a device"
            f" each, and JAX sees {num_devices} here;"
            f" {fewer}train with torch, whose ranks share a device, or on --device cpu"
        )


def num_devices_of_jax() -> int:
    """Accelerators of this host that JAX sees, counted in a process that ends: JAX reserves memory of each.

    Raises:
        NotTrainableError: they cannot be counted in time.
    """
    command = [sys.executable, "-c", _COUNT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COUNT_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise NotTrainableError(f"JAX did not count its devices within {COUNT_SECONDS:g} s") from error
    return int(done.stdout) if done.returncode == 0 else 0


def _split(backend: str, job: Job) -> Iterator[tuple[str, str]]:
    plan, key = job.plan.parallelism, "tensor or pipeline"
    if plan.tensor * plan.pipeline == 1:
        return
    if backend not in BACKENDS:
        yield key, "it has data ranks alone; set both to 1"
    if job.model.family == "convolution":
        yield key, "a convolutional network is not split over tensor or pipeline ranks; set both to 1"
    if backend == "torch" and job.model.family == "state-space" and plan.tensor > 1:
        yield key, "a state-space network is not split over tensor ranks; set tensor to 1"


def _shared(backend: str, job: Job) -> Iterator[tuple[str, str]]:
    plan, family = job.plan.parallelism, job.model.family
    if plan.context == 1:
        return
    if backend not in BACKENDS:
        yield "context", "set it to 1"
    if family != "transformer":
        why = f"ranks share a sequence by the keys of attention, which a {family} network has not; set it to 1"
        yield "context", why
    if plan.context_method not in (None, "all-gather"):
        yield "context_method", "attention gathers keys and values; set it to all-gather"


def _of_experts(backend: str, job: Job) -> Iterator[tuple[str, str]]:
    plan, num_experts, order = job.plan.parallelism, job.model.num_experts, job.plan.parallelism.order
    if not num_experts:
        if plan.expert > 1:
            yield "expert", "the model has no experts; set it to 1"
        return
    if backend != "torch":
        yield "expert", "it has no mixture of experts; train with torch, or without model.experts"
    if num_experts % plan.expert:
        yield "expert", f"{plan.expert} ranks do not divide {num_experts} experts"
    if plan.tensor > 1:
        yield "tensor", "experts are not split over tensor ranks; set it to 1"
    if plan.expert_tensor not in (None, 1):
        yield "expert_tensor", "experts are not split; set it to 1"
    if plan.expert > 1 and "expert" in order and order.index("expert") != order.index("data") - 1:
        yield "order", "expert ranks are neighbours of data; name them before it"


def _sharded(backend: str, job: Job) -> Iterator[tuple[str, str]]:
    plan, communication = job.plan.parallelism, job.plan.communication
    if plan.sharding in ("gradients", "parameters"):
        if backend == "torch" and plan.tensor * plan.pipeline > 1:
            yield "sharding", "with tensor or pipeline ranks the optimizer alone is sharded"
        if plan.expert > 1:
            yield "sharding", "with expert ranks the optimizer alone is sharded"
    if backend == "jax" and plan.sharding == "parameters" and plan.pipeline > 1:
        yield "sharding", "with a pipeline the optimizer is sharded, or gradients"
    compression = communication.compression if communication is not None else None
    allowed = ("none", "optimizer") if backend == "torch" else ("none",)
    is_whole = plan.tensor * plan.pipeline * plan.expert == 1 and plan.sharding in allowed
    if not is_whole and compression is not None and compression.method != "none":
        needs = f"needs whole replicas: set sharding to {' or '.join(allowed)}, tensor, pipeline and expert to 1"
        yield "tensor, pipeline or sharding", f"compression by {compression.method} {needs}"


def _staged(backend: str, job: Job) -> Iterator[tuple[str, str]]:
    plan, num_layers = job.plan.parallelism, job.model.num_layers
    if plan.pipeline == 1:
        return
    offered = _SCHEDULES.get(backend, ())
    if plan.schedule is not None and plan.schedule not in offered:
        yield "schedule", f"a pipeline runs by {' or '.join(offered)}, not by {plan.schedule}"
    if plan.num_virtual_stages > 1:
        yield "num_virtual_stages", "set it to 1"
    each, more = divmod(num_layers, plan.pipeline)
    layers = tuple(each + (stage < more) for stage in range(plan.pipeline))
    if plan.stage_layers not in ((), layers):
        yield "stage_layers", f"its stages hold {layers} layers"
    if backend == "jax" and more:
        yield "pipeline", f"{plan.pipeline} stages do not divide {num_layers} layers evenly"


def _summed(job: Job) -> Iterator[tuple[str, str]]:
    asked = {choice.algorithm for choice in _choices(job.plan.communication)}
    if unknown := asked - set(_ALL_REDUCES):
        why = f"gradients are summed by {' or '.join(_ALL_REDUCES)}, not by {', '.join(sorted(unknown))}"
        yield "communication.collectives", why
