"""Turns a plan into a configuration file for torchtitan, in a small subset of TOML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from trainspec_validate.documents.types.model import Model
from trainspec_validate.interop.writers._target import (
    Exported,
    Format,
    Job,
    NotExpressible,
    global_clipping,
    header,
    joined,
    left_to_program,
    require_gpus,
)

FILE = "torchtitan.toml"
CHECKED = "torchtitan 0.2.2 (torchtitan/config/job_config.py), the last version that reads TOML"
_FLAVORS = {
    (32, 4096, 32): ("llama3", "8B"),
    (80, 8192, 64): ("llama3", "70B"),
    (126, 16384, 128): ("llama3", "405B"),
}
"""Layers, hidden size and heads of the models that torchtitan knows by name (torchtitan/models/llama3)."""
_SCHEDULES = {
    "gpipe": ("GPipe", 1),
    "1f1b": ("1F1B", 1),
    "interleaved-1f1b": ("Interleaved1F1B", 2),
    "zero-bubble": ("InterleavedZeroBubble", 2),
    "dual-pipe": ("DualPipeV", 2),
}
"""Name in torch.distributed.pipelining, and the fewest chunks of a rank that it runs with."""
_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_ORDER = ("tensor", "context", "data", "pipeline")
"""Axes from adjacent ranks outwards in torchtitan (torchtitan/distributed/parallel_dims.py)."""

Value = str | int | float | bool
Table = dict[str, Value]


def _string(text: str) -> str:
    """A basic string: TOML takes JSON's escapes and wants one for DEL too (https://toml.io/en/v1.0.0#string)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(tables: Mapping[str, Table]) -> list[str]:
    """Tables of plain values; empty tables are left out."""
    lines: list[str] = []
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]"]
        for key, value in table.items():
            written = _string(value) if isinstance(value, str) else json.dumps(value)
            lines.append(f"{key} = {written}")
    return lines


def _shards(job: Job) -> int:
    """Data ranks that share one copy of the weights; the sharding degree of a plan counts context ranks too."""
    p = job.plan.parallelism
    if p.sharding == "none":
        return 1
    return p.sharding_degree // p.context if p.sharding_degree else p.data


def _refuse(job: Job) -> None:
    """Copies of a split model, which torchtitan makes only where data or context ranks shard the weights too."""
    p = job.plan.parallelism
    if p.sharding != "none" and p.sharding_degree and p.sharding_degree % p.context:
        message = f"{p.sharding_degree} ranks share a copy, which {p.context} context ranks do not divide"
        raise NotExpressible(message, "torchtitan shards over all context ranks: choose a multiple of them")
    if p.data > 1 and _shards(job) * p.context == 1 and p.tensor * p.pipeline > 1:
        message = f"torchtitan makes no {p.data} copies of a model that tensor or pipeline ranks split"
        raise NotExpressible(message, "shard it over data ranks: sharding: parameters")


def _model(model: Model, notes: list[str]) -> Table:
    shape = (model.num_layers or 0, model.hidden_size or 0, model.num_attention_heads or 0)
    if model.family == "dense-transformer" and shape in _FLAVORS:
        name, flavor = _FLAVORS[shape]
        return {"name": name, "flavor": flavor}
    notes.append(f"model: {model.name} is none of the shapes that are known by name; set model.name and model.flavor")
    return {}


def _training(job: Job, notes: list[str]) -> Table:
    plan, batch = job.plan, job.plan.batch
    # A pipeline takes its micro-batches out of one local batch; without one, torchtitan accumulates.
    local = batch.micro_sequences * (batch.accumulation_steps if plan.parallelism.pipeline > 1 else 1)
    table: Table = {"local_batch_size": local, "global_batch_size": batch.global_sequences}
    if (norm := global_clipping(job)) is not None:
        table["max_norm"] = norm
    if plan.model.sequence_length:
        table["seq_len"] = plan.model.sequence_length
    steps = _steps(job, notes)
    if steps:
        table["steps"] = steps
    table |= _precision(job, notes)
    moved = {item.what: item for item in (plan.memory.offload if plan.memory else ()) if item.what != "activations"}
    whole = {what for what, item in moved.items() if item.target == "host" and item.fraction == 1}
    if {"parameters", "gradients", "optimizer"} <= whole:
        table["enable_cpu_offload"] = True
    elif moved:
        notes.append("memory.offload: torchtitan moves parameters, gradients and optimizer together or nothing")
    return table


def _precision(job: Job, notes: list[str]) -> Table:
    """Formats; without ranks that shard, a split model is computed as stored and plain copies under autocast."""
    precision, p, table = job.plan.precision, job.plan.parallelism, Table()
    shards = _shards(job) * p.context > 1
    stored = precision.master_parameters or precision.parameters
    if stored in _DTYPES:
        table["dtype"] = _DTYPES[stored]
    else:
        notes.append(f"precision: parameters are kept in {stored}; torchtitan keeps them in bf16 or fp32")
    if not shards and p.tensor * p.pipeline > 1:
        notes.append("precision.compute: without ranks that shard, torchtitan computes a split model as it is stored")
    elif precision.compute in _DTYPES:
        table["mixed_precision_param"] = _DTYPES[precision.compute]
    else:
        notes.append(f"precision.compute is {precision.compute}; torchtitan computes in bf16 or fp32")
    if not shards and precision.gradients != stored:
        notes.append(f"precision.gradients: without ranks that shard they have the format of parameters, {stored}")
    if precision.reduction == "fp32":
        table["mixed_precision_reduce"] = "float32"
    else:
        notes.append(f"precision.reduction is {precision.reduction}; torchtitan reduces in fp32")
    if precision.recipe:
        notes.append(f"precision.recipe: choose a converter for {precision.recipe.format} in model.converters")
    return table


def _steps(job: Job, notes: list[str]) -> int | None:
    plan, wanted = job.plan, job.plan.job
    if plan.batch.ramp:
        notes.append("batch.ramp: torchtitan keeps one batch, so the ramp is left out and steps are not derived")
    if plan.batch.controller:
        notes.append("batch.controller: torchtitan keeps one batch")
    if wanted and wanted.num_steps:
        return wanted.num_steps
    if wanted and wanted.num_tokens and plan.model.sequence_length and not plan.batch.ramp:
        return math.ceil(wanted.num_tokens / (plan.batch.global_sequences * plan.model.sequence_length))
    return None


def _parallelism(job: Job, notes: list[str]) -> Table:
    p = job.plan.parallelism
    shards = _shards(job)
    table: Table = {"data_parallel_replicate_degree": p.data // shards, "data_parallel_shard_degree": shards}
    if p.sharding in {"gradients", "parameters"}:
        table["fsdp_reshard_after_forward"] = "always" if p.sharding == "parameters" else "never"
    elif p.sharding == "optimizer":
        notes.append("parallelism.sharding: torchtitan shards parameters too, there is no sharding of optimizers alone")
    table |= {"tensor_parallel_degree": p.tensor, "context_parallel_degree": p.context}
    if p.tensor > 1 and not p.sequence:
        stated = "absent" if p.sequence is None else "false"
        notes.append(f"parallelism.sequence is {stated}; torchtitan's tensor ranks always split the sequence too")
    if p.expert > 1:
        table |= {"expert_parallel_degree": p.expert, "expert_tensor_parallel_degree": p.expert_tensor or p.tensor}
    table["pipeline_parallel_degree"] = p.pipeline
    if p.pipeline > 1:
        table |= _pipeline(job, notes)
    used = [axis for axis in p.order if axis in _ORDER and getattr(p, axis) > 1]
    if used != [axis for axis in _ORDER if getattr(p, axis) > 1]:
        notes.append(
            f"parallelism.order: torchtitan numbers ranks {', '.join(_ORDER)}, the plan says {', '.join(used)}"
        )
    return table


def _pipeline(job: Job, notes: list[str]) -> Table:
    p = job.plan.parallelism
    table: Table = {"pipeline_parallel_microbatch_size": job.plan.batch.micro_sequences}
    name, fewest = _SCHEDULES.get(p.schedule or "", ("", 1))
    if not name:
        notes.append(
            f"parallelism.schedule is {p.schedule}, which no schedule of torch.distributed.pipelining is called"
        )
    elif (p.num_virtual_stages > 1) != (fewest > 1):
        notes.append(f"parallelism.schedule: {name} does not run with {p.num_virtual_stages} chunks of a rank")
    else:
        table["pipeline_parallel_schedule"] = name
    split = _split(job)
    if split is None:
        notes.append("parallelism.stage_layers: set module_fqns_per_model_part, torchtitan has no shorter form for it")
        return table
    first, last, middle = split
    return table | {
        "pipeline_parallel_first_stage_less_layers": first,
        "pipeline_parallel_last_stage_less_layers": last,
        "pipeline_parallel_layers_per_stage": middle,
    }


def _split(job: Job) -> tuple[int, int, int] | None:
    """Layers that first and last stage hold less, and layers of the stages between; None where this cannot say it."""
    p, num_layers = job.plan.parallelism, job.plan.model.num_layers
    layers = p.stage_layers
    if not layers:
        stages = p.pipeline * p.num_virtual_stages
        return None if not num_layers or num_layers % stages else (0, 0, num_layers // stages)
    most = max(layers)
    return None if set(layers[1:-1]) - {most} else (most - layers[0], most - layers[-1], most)


def _activations(job: Job, notes: list[str]) -> Table:
    memory = job.plan.memory
    if memory is None:
        return {}
    if memory.activation_policy == "offload":
        notes.append("memory.activation_policy is offload; torchtitan recomputes or keeps activations")
        return {}
    if any(item.what == "activations" for item in memory.offload):
        notes.append("memory.offload: torchtitan recomputes or keeps activations, and moves none away")
    return {"mode": memory.activation_policy}


def _loader(job: Job) -> Table:
    memory, table = job.plan.memory, Table()
    if memory and memory.num_loader_workers is not None:
        table["num_workers"] = memory.num_loader_workers
    if memory and memory.pinned_input is not None:
        table["pin_memory"] = memory.pinned_input
    return table


def _checkpoint(job: Job, notes: list[str]) -> Table:
    policy = job.policy
    if policy is None:
        return {}
    table: Table = {"enable": True}
    interval = policy.interval
    if interval.steps:
        table["interval"] = interval.steps
    elif interval.seconds and interval.step_seconds:
        table["interval"] = max(1, int(interval.seconds // interval.step_seconds))
    else:
        notes.append("interval: torchtitan saves by steps, and the policy does not say how long one takes")
    table["async_mode"] = "async" if policy.save.mode == "asynchronous" else "disabled"
    if policy.retention.num_kept > 1:
        table["keep_latest_k"] = policy.retention.num_kept
    else:
        notes.append("retention.num_kept is 1; torchtitan keeps two or more, or all")
    if "optimizer" in policy.state.items:
        table["last_save_model_only"] = False
    if len(policy.tiers) > 1:
        notes.append("tiers: torchtitan writes to one folder")
    if policy.integrity.digest != "none":
        notes.append(f"integrity.digest: torchtitan writes no {policy.integrity.digest} digests (TS-CKP-028)")
    return table


def _debug(job: Job) -> Table:
    table = Table()
    if job.plan.job and job.plan.job.seed is not None:
        table["seed"] = job.plan.job.seed
    if job.plan.precision.deterministic is not None:
        table["deterministic"] = job.plan.precision.deterministic
    return table


def _comm(job: Job) -> Table:
    talk = job.plan.communication
    return {"train_timeout_seconds": math.ceil(talk.timeout_seconds)} if talk and talk.timeout_seconds else {}


def write(job: Job) -> Exported:
    """The configuration as TOML.

    Raises:
        NotExpressible: the accelerators are no GPUs, or the plan copies a split model without sharding it.
    """
    require_gpus(job)
    _refuse(job)
    notes: list[str] = []
    tables: dict[str, Table] = {
        "job": {"description": job.plan.metadata.name},
        "model": _model(job.plan.model, notes),
        "training": _training(job, notes),
        "training.dataloader": _loader(job),
        "parallelism": _parallelism(job, notes),
        "activation_checkpoint": _activations(job, notes),
        "checkpoint": _checkpoint(job, notes),
        "comm": _comm(job),
        "debug": _debug(job),
    }
    return Exported(FILE, joined([*header(job, CHECKED), *_toml(tables)]), (*notes, *left_to_program(job)))


FORMATS = (Format("torchtitan", f"configuration file of torchtitan, TOML ({CHECKED.partition(' (')[0]})", write),)
