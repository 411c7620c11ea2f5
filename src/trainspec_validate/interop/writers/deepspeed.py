"""Turns a plan into a configuration file for DeepSpeed."""

from __future__ import annotations

import json
import math
from typing import Any

from trainspec_validate.documents.types.memory import Offload
from trainspec_validate.documents.types.precision import LossScaling
from trainspec_validate.interop.writers._target import (
    Exported,
    Format,
    Job,
    NotExpressible,
    global_clipping,
    left_to_program,
    require_gpus,
)

FILE = "ds_config.json"
CHECKED = "DeepSpeed 0.19.5"
_STAGES = {"none": 0, "optimizer": 1, "gradients": 2, "parameters": 3}
_AUTOCAST = {"bf16": "bfloat16", "fp16": "float16"}
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Formats that DeepSpeed reduces and accumulates in, with the bytes of one element."""

Section = dict[str, Any]


def _batch(job: Job, notes: list[str]) -> Section:
    batch = job.plan.batch
    if batch.worker_shares:
        notes.append("batch.worker_shares: DeepSpeed gives every rank the same share")
    if batch.ramp:
        notes.append("batch.ramp: DeepSpeed keeps one batch; the training program has to follow the ramp")
    if batch.controller:
        notes.append("batch.controller: DeepSpeed keeps one batch")
    return {
        "train_batch_size": batch.global_sequences,
        "train_micro_batch_size_per_gpu": batch.micro_sequences,
        "gradient_accumulation_steps": batch.accumulation_steps,
    }


def _zero(job: Job, notes: list[str]) -> Section:
    p, talk = job.plan.parallelism, job.plan.communication
    stage = _STAGES[p.sharding]
    zero: Section = {"stage": stage}
    if talk and talk.overlap_gradients is not None:
        zero["overlap_comm"] = talk.overlap_gradients
    if talk and talk.bucket_bytes is not None and job.plan.precision.reduction in _BYTES:
        zero["reduce_bucket_size"] = int(talk.bucket_bytes // _BYTES[job.plan.precision.reduction])
    if p.sharding_degree is not None and p.sharding_degree != p.data * p.context:
        if stage == 3:
            zero["mics_shard_size"] = p.sharding_degree
            notes.append(
                "parallelism.sharding_degree: mics_shard_size works for models made in deepspeed.zero.MiCS_Init"
            )
        else:
            notes.append("parallelism.sharding_degree: DeepSpeed shards stages 1 and 2 over all data ranks")
    for item in job.plan.memory.offload if job.plan.memory else ():
        zero |= _offload(item, stage, notes)
    return zero


def _offload(item: Offload, stage: int, notes: list[str]) -> Section:
    if item.target != "host":
        notes.append(f"memory.offload[{item.what}]: a local disk needs nvme_path, which the plan does not state")
    elif item.what == "optimizer" and (stage == 3 or (stage > 0 and item.fraction == 1)):
        return {"offload_optimizer": {"device": "cpu"} | ({"ratio": item.fraction} if item.fraction < 1 else {})}
    elif item.what == "parameters" and stage == 3 and item.fraction == 1:
        return {"offload_param": {"device": "cpu"}}
    elif item.what != "activations":
        notes.append(f"memory.offload[{item.what}]: DeepSpeed cannot move this share at ZeRO stage {stage}")
    return {}


def _parallel(job: Job, notes: list[str]) -> Section:
    p = job.plan.parallelism
    if p.pipeline > 1:
        if p.num_virtual_stages > 1 or p.schedule not in {None, "1f1b"}:
            message = f"DeepSpeed's pipeline engine runs 1F1B with one chunk on a stage, the plan says {p.schedule}"
            raise NotExpressible(message, "set schedule: 1f1b, without num_virtual_stages")
        if _STAGES[p.sharding] > 1:
            message = f"DeepSpeed's pipeline engine refuses ZeRO stage {_STAGES[p.sharding]}"
            raise NotExpressible(message, "shard optimizers only, or leave the pipeline out")
        notes.append("parallelism.pipeline: stages are given to deepspeed.pipe.PipelineModule in the program")
    for axis, degree in (("context", p.context), ("expert", p.expert)):
        if degree > 1:
            notes.append(f"parallelism.{axis}: the training program makes these groups")
    return {"tensor_parallel": {"autotp_size": p.tensor}} if p.tensor > 1 else {}


def _precision(job: Job, notes: list[str]) -> Section:
    precision, stage = job.plan.precision, _STAGES[job.plan.parallelism.sharding]
    config: Section = {}
    if precision.compute in _AUTOCAST and precision.parameters == "fp32":
        config["torch_autocast"] = {"enabled": True, "dtype": _AUTOCAST[precision.compute]}
        if precision.reduction == "fp32":
            # The modules listed here send gradients in the format of the products.
            config["torch_autocast"]["lower_precision_safe_modules"] = []
        if precision.loss_scaling:
            notes.append("precision.loss_scaling: with torch_autocast PyTorch's own gradient scaler decides")
    elif precision.compute == "bf16":
        config["bf16"] = {"enabled": True}
        if precision.parameters == "bf16" and precision.master_parameters in {None, "bf16"} and stage > 0:
            config["bf16"]["bf16_master_weights_and_grads"] = True
            config["bf16"]["bf16_optimizer_states"] = precision.optimizer_state == "bf16"
    elif precision.compute == "fp16":
        config["fp16"] = {"enabled": True} | _scaling(precision.loss_scaling, notes)
    elif precision.compute != "fp32":
        notes.append(f"precision.compute is {precision.compute}; DeepSpeed knows fp32, bf16 and fp16")
    if precision.reduction in _BYTES:
        config["communication_data_type"] = precision.reduction
    else:
        notes.append(f"precision.reduction is {precision.reduction}; DeepSpeed reduces in fp32, bf16 or fp16")
    accumulation = precision.accumulation or precision.gradients
    if accumulation in _BYTES:
        config["data_types"] = {"grad_accum_dtype": accumulation}
    else:
        notes.append(f"precision.accumulation is {accumulation}; DeepSpeed adds up in fp32, bf16 or fp16")
    if precision.recipe:
        notes.append(f"precision.recipe: products in {precision.recipe.format} belong to the model's layers")
    return config


def _scaling(scaling: LossScaling | None, notes: list[str]) -> Section:
    if scaling is None:
        return {}
    if scaling.mode != "dynamic":
        return {"loss_scale": scaling.initial_scale or 1.0}
    section: Section = {"loss_scale": 0}
    if scaling.initial_scale is not None:
        power = math.log2(scaling.initial_scale)
        if power.is_integer():
            section["initial_scale_power"] = int(power)
        else:
            notes.append("precision.loss_scaling.initial_scale is no power of two, as initial_scale_power is")
    if scaling.growth_interval_steps is not None:
        section["loss_scale_window"] = scaling.growth_interval_steps
    if scaling.hysteresis_steps is not None:
        section["hysteresis"] = scaling.hysteresis_steps
    if scaling.min_scale is not None and scaling.min_scale >= 1:
        section["min_loss_scale"] = int(scaling.min_scale)
    if {scaling.growth_factor, scaling.backoff_factor} - {None, 2.0, 0.5}:
        notes.append("precision.loss_scaling: DeepSpeed doubles and halves the scale, other factors have no key")
    return section


def _elastic(job: Job, notes: list[str]) -> Section:
    """The elastic section; DeepSpeed finds a batch of its own below the largest that it is given."""
    p, elastic = job.plan.parallelism, job.plan.batch.elastic
    if elastic is None:
        return {}
    others = p.tensor * p.pipeline
    if p.context > 1 or job.ranks_per_node % others:
        notes.append("batch.elastic: DeepSpeed resizes only jobs whose tensor and pipeline ranks divide a node")
        return {}
    most = job.plan.batch.global_sequences
    notes.append(f"batch.elastic: DeepSpeed computes the batch itself, at most {most}; compare what it logs")
    return {
        "elasticity": {
            "enabled": True,
            "max_train_batch_size": most,
            "micro_batch_sizes": sorted(elastic.micro_sequences),
            "min_gpus": min(elastic.data_degrees) * others,
            "max_gpus": max(elastic.data_degrees) * others,
            "model_parallel_size": others,
            "num_gpus_per_node": job.ranks_per_node,
            "ignore_non_elastic_batch_info": True,
            "version": 0.2,
        }
    }


def _rest(job: Job, notes: list[str]) -> Section:
    plan, config = job.plan, Section()
    talk, memory = plan.communication, plan.memory
    if (norm := global_clipping(job)) is not None:
        config["gradient_clipping"] = norm
    averaging, whole = talk.gradient_averaging if talk else None, plan.parallelism.sharding == "none"
    if averaging in {"divide-before", "divide-after"} and whole:
        config["prescale_gradients"] = averaging == "divide-before"
    elif averaging == "weighted" or (averaging and plan.parallelism.sharding == "optimizer"):
        notes.append(f"communication.gradient_averaging is {averaging}; the version and optimizer of DeepSpeed decide")
    elif averaging == "divide-after":
        notes.append(
            "communication.gradient_averaging is divide-after; ZeRO 2 and 3 of DeepSpeed divide before the sum"
        )
    if talk and talk.timeout_seconds is not None:
        minutes = math.ceil(talk.timeout_seconds / 60)
        notes.append(f"communication.timeout_seconds: DeepSpeed takes whole minutes from DEEPSPEED_TIMEOUT={minutes}")
    if talk and talk.compression and talk.compression.method != "none":
        notes.append(f"communication.compression: {talk.compression.method} is chosen with the optimizer in DeepSpeed")
    activations = any(
        item.what == "activations" and item.target == "host" for item in (memory.offload if memory else ())
    )
    if memory and (memory.activation_policy == "offload" or activations):
        config["activation_checkpointing"] = {"cpu_checkpointing": True}
    elif memory and memory.activation_policy != "none":
        notes.append(f"memory.activation_policy: which layers recompute ({memory.activation_policy}) the model decides")
    if plan.synchrony.mode != "synchronous":
        notes.append(f"synchrony.mode is {plan.synchrony.mode}; DeepSpeed steps together")
    if job.policy:
        notes.append("the checkpoint policy: the program calls save_checkpoint, DeepSpeed has no interval")
    return config


def write(job: Job) -> Exported:
    """The configuration as JSON, which has no comments.

    Raises:
        NotExpressible: the accelerators are no GPUs, or a pipeline is to shard gradients.
    """
    require_gpus(job)
    notes: list[str] = []
    config = _batch(job, notes) | {"zero_optimization": _zero(job, notes)} | _parallel(job, notes)
    config |= _precision(job, notes) | _rest(job, notes) | _elastic(job, notes)
    return Exported(FILE, json.dumps(config, indent=2) + "\n", (*notes, *left_to_program(job)))


FORMATS = (Format("deepspeed", f"configuration file of DeepSpeed, JSON ({CHECKED})", write),)
