"""Turns a plan into a configuration of Accelerate, for FSDP or plain copies."""

from __future__ import annotations

import json

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

FILE = "accelerate.yaml"
CHECKED = "Accelerate 1.15.0 (accelerate/commands/config/config_args.py, accelerate/commands/launch.py)"
_RESHARDS = {"parameters": True, "gradients": False}
"""`fsdp_reshard_after_forward` of each sharding; FSDP shards weights and their gradients together."""
_FORMATS = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}

Settings = dict[str, object]


def _refuse(job: Job) -> None:
    p = job.plan.parallelism
    if p.pipeline > 1 or p.expert > 1:
        what = "pipeline stages" if p.pipeline > 1 else "expert ranks"
        raise NotExpressible(f"Accelerate trains without {what}", "leave them out, or choose another framework")
    if p.sharding == "optimizer":
        raise NotExpressible("FSDP shards no optimizer alone", "set sharding: parameters or gradients")
    if p.sharding == "none" and p.tensor * p.context > 1:
        raise NotExpressible("FSDP shards a model that tensor or context ranks split", "set sharding: parameters")
    if p.sharding_degree and p.sharding_degree % p.context:
        message = f"{p.sharding_degree} ranks share a copy, which {p.context} context ranks do not divide"
        raise NotExpressible(message, "FSDP shards over all context ranks: choose a multiple of them")
    if job.plan.precision.compute not in _FORMATS:
        raise NotExpressible(f"mixed_precision has no {job.plan.precision.compute}", "compute in bf16, fp16 or fp32")


def _degrees(job: Job, notes: list[str]) -> Settings:
    """Axes of the mesh; ranks that hold the same shard are replicas, and context ranks share shards."""
    p = job.plan.parallelism
    if p.sharding == "none":
        return {}
    shards = p.sharding_degree // p.context if p.sharding_degree else p.data
    found: Settings = {
        "parallelism_config_dp_replicate_size": p.data // shards,
        "parallelism_config_dp_shard_size": shards,
        "parallelism_config_tp_size": p.tensor,
        "parallelism_config_cp_size": p.context,
    }
    if p.tensor > 1:
        notes.append("parallelism.tensor: load the model with tp_plan: auto, and see that it has such a plan")
    if p.context > 1 and p.context_method not in {None, "all-gather"}:
        notes.append(f"parallelism.context_method is {p.context_method}: parallelism_config_cp_comm_strategy sets it")
    return found


def _fsdp(job: Job, notes: list[str]) -> Settings:
    memory, sharding = job.plan.memory, job.plan.parallelism.sharding
    if sharding not in _RESHARDS:
        if memory and memory.activation_policy == "full":
            notes.append("memory.activation_policy: set gradient_checkpointing in the training program")
        return {}
    policy = memory.activation_policy if memory else None
    if policy in {"selective", "offload"}:
        notes.append(f"memory.activation_policy is {policy}: Accelerate recomputes whole layers or nothing")
    offload = memory.offload if memory else ()
    moved = {item.what for item in offload if item.target == "host" and item.fraction == 1}
    if offload and (moved != {"parameters", "gradients", "optimizer"} or len(moved) < len(offload)):
        notes.append("memory.offload: FSDP moves parameters, gradients and optimizer together or nothing")
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": _RESHARDS[sharding],
        "fsdp_activation_checkpointing": policy == "full",
        "fsdp_offload_params": {"parameters", "gradients", "optimizer"} <= moved,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _left_out(job: Job) -> list[str]:
    """Facts of the plan that the training program sets."""
    plan, p = job.plan, job.plan.precision
    batch = plan.batch
    notes = [
        f"batch.micro_sequences: give the training program {batch.micro_sequences} sequences for each rank",
        f"batch.accumulation_steps: give the Accelerator gradient_accumulation_steps={batch.accumulation_steps}",
        f"model: {plan.model.name} is loaded by the training program, whose layers FSDP wraps",
    ]
    if (norm := global_clipping(job)) is not None:
        notes.append(f"optimizer.clipping: call accelerator.clip_grad_norm_ with {norm:g}")
    if plan.parallelism.sharding != "none" and {p.gradients, p.reduction} != {p.compute}:
        notes.append(f"precision: FSDP reduces gradients in {p.compute}; a MixedPrecisionPolicy says otherwise")
    if p.recipe:
        notes.append(f"precision.recipe: {p.recipe.format} needs mixed_precision fp8 and a section fp8_config")
    if job.policy:
        notes.append("the checkpoint policy: the training program saves; see accelerator.save_state")
    return notes


def write(job: Job) -> Exported:
    """The configuration, for `accelerate launch --config_file`.

    Raises:
        NotExpressible: the accelerators are no GPUs, or FSDP has no such sharding, or Accelerate no such ranks.
    """
    require_gpus(job)
    _refuse(job)
    notes: list[str] = []
    plan = job.plan
    fsdp, degrees = _fsdp(job, notes), _degrees(job, notes)
    settings: Settings = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if fsdp else "MULTI_GPU",
        "num_machines": job.num_nodes,
        "num_processes": plan.parallelism.num_accelerators,
        "machine_rank": 0,
        "mixed_precision": _FORMATS[plan.precision.compute],
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in settings.items()]
    for section, table in (("fsdp_config", fsdp), ("parallelism_config", degrees)):
        lines += [f"{section}:", *(f"  {name}: {json.dumps(value)}" for name, value in table.items())] if table else []
    if job.num_nodes > 1:
        notes.append(
            "main_process_ip, main_process_port, machine_rank: set them on each node, as the launcher knows them"
        )
    return Exported(FILE, joined([*header(job, CHECKED), *lines]), (*notes, *_left_out(job), *left_to_program(job)))


FORMATS = (Format("accelerate", f"configuration of Accelerate for FSDP, YAML ({CHECKED.partition(' (')[0]})", write),)
