"""Lists the parallelism that each backend supports, so that other plans are refused before a run."""

from __future__ import annotations

import subprocess
import sys

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
    found = {
        **_split(backend, job),
        **_shared(backend, job),
        **_of_experts(backend, job),
        **_sharded(backend, job),
        **_staged(backend, job),
    }
    wrong = {f"parallelism.{key}": why for key, why in found.items()} | {"communication.collectives": _summed(job)}
    for key, why in wrong.items():
        if why is not None:
            raise NotTrainableError(f"{backend} does not support {key} of this plan: {why}")


def all_reduce_algorithm(communication: Communication | None, num_bytes: int) -> str:
    """The plan's choice for an all-reduce of gradients of that size, one of `_ALL_REDUCES`."""
    if communication is None:
        return "automatic"
    for choice in _choices(communication):
        if choice.min_bytes <= num_bytes and (choice.max_bytes is None or num_bytes < choice.max_bytes):
            return choice.algorithm
    return "hierarchical" if communication.hierarchical_reduction else "automatic"


def _choices(communication: Communication) -> list[CollectiveChoice]:
    """What the plan chooses for sums of gradients."""
    return [one for one in communication.collectives if (one.operation, one.axis) == ("all-reduce", "data")]


def _summed(job: Job) -> str | None:
    asked = {choice.algorithm for choice in _choices(job.plan.communication)} if job.plan.communication else set()
    unknown = ", ".join(sorted(asked - set(_ALL_REDUCES)))
    return f"gradients are summed by {' or '.join(_ALL_REDUCES)}, not by {unknown}" if unknown else None


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


def _split(backend: str, job: Job) -> dict[str, str | None]:
    plan, family = job.plan.parallelism, job.model.family
    wrong = None
    if plan.tensor * plan.pipeline > 1 and backend not in BACKENDS:
        wrong = "it has data ranks alone; set both to 1"
    elif plan.tensor * plan.pipeline > 1 and family == "convolution":
        wrong = "a convolutional network is not split over tensor or pipeline ranks; set both to 1"
    elif backend == "torch" and family == "state-space" and plan.tensor > 1:
        wrong = "a state-space network is not split over tensor ranks; set tensor to 1"
    return {"tensor or pipeline": wrong}


def _shared(backend: str, job: Job) -> dict[str, str | None]:
    family, method, wrong = job.model.family, job.plan.parallelism.context_method, None
    if job.plan.parallelism.context == 1:
        return {}
    if backend not in BACKENDS:
        wrong = "set it to 1"
    elif family != "transformer":
        wrong = f"ranks share a sequence by the keys of attention, which a {family} network has not; set it to 1"
    is_other = method not in (None, "all-gather")
    other = "attention gathers keys and values; set it to all-gather" if is_other else None
    return {"context": wrong, "context_method": other}


def _of_experts(backend: str, job: Job) -> dict[str, str | None]:
    plan, model = job.plan.parallelism, job.model
    if not model.num_experts:
        return {"expert": None if plan.expert == 1 else "the model has no experts; set it to 1"}
    wrong, order = None, plan.order
    if backend != "torch":
        wrong = "it has no mixture of experts; train with torch, or without model.experts"
    elif model.num_experts % plan.expert:
        wrong = f"{plan.expert} ranks do not divide {model.num_experts} experts"
    is_inner = "expert" not in order or order.index("expert") == order.index("data") - 1
    return {
        "expert": wrong,
        "tensor": None if plan.tensor == 1 else "experts are not split over tensor ranks; set it to 1",
        "expert_tensor": None if plan.expert_tensor in (None, 1) else "experts are not split; set it to 1",
        "order": None if is_inner or plan.expert == 1 else "expert ranks are neighbours of data; name them before it",
    }


def _sharded(backend: str, job: Job) -> dict[str, str | None]:
    plan, wrong = job.plan.parallelism, None
    if backend == "torch" and plan.sharding in ("gradients", "parameters") and plan.tensor * plan.pipeline > 1:
        wrong = "with tensor or pipeline ranks the optimizer alone is sharded"
    elif plan.expert > 1 and plan.sharding in ("gradients", "parameters"):
        wrong = "with expert ranks the optimizer alone is sharded"
    elif backend == "jax" and plan.sharding == "parameters" and plan.pipeline > 1:
        wrong = "with a pipeline the optimizer is sharded, or gradients"
    return {"sharding": wrong, "tensor, pipeline or sharding": _compressed(backend, job)}


def _compressed(backend: str, job: Job) -> str | None:
    plan, communication = job.plan.parallelism, job.plan.communication
    compression = communication.compression if communication is not None else None
    allowed = ("none", "optimizer") if backend == "torch" else ("none",)
    is_whole = plan.tensor * plan.pipeline * plan.expert == 1 and plan.sharding in allowed
    if is_whole or compression is None or compression.method == "none":
        return None
    return (
        f"compression by {compression.method} needs whole replicas: set sharding to {' or '.join(allowed)}, "
        "tensor, pipeline and expert to 1"
    )


def _staged(backend: str, job: Job) -> dict[str, str | None]:
    plan, num_layers = job.plan.parallelism, job.model.num_layers
    if plan.pipeline == 1:
        return {}
    offered, asked = _SCHEDULES.get(backend, ()), plan.schedule
    each, more = divmod(num_layers, plan.pipeline)
    layers = tuple(each + (stage < more) for stage in range(plan.pipeline))
    is_known, is_even = asked is None or asked in offered, backend != "jax" or not more
    return {
        "schedule": None if is_known else f"a pipeline runs by {' or '.join(offered)}, not by {asked}",
        "num_virtual_stages": "set it to 1" if plan.num_virtual_stages > 1 else None,
        "stage_layers": None if plan.stage_layers in ((), layers) else f"its stages hold {layers} layers",
        "pipeline": None if is_even else f"{plan.pipeline} stages do not divide {num_layers} layers evenly",
    }
