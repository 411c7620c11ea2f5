"""Turns a plan into settings of MaxText, in YAML as its `base.yml` has them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from trainspec_validate.interop.writers._target import (
    GPU_VENDORS,
    Exported,
    Format,
    Job,
    NotExpressible,
    global_clipping,
    header,
    joined,
    left_to_program,
)

FILE = "maxtext.yml"
CHECKED = "MaxText 0.2.4 (AI-Hypercomputer/maxtext@e591f30c:src/maxtext/configs/base.yml)"
_FORMATS = {"bf16": "bfloat16", "fp32": "float32"}
_POLICIES = {"none": "none", "full": "full", "selective": "minimal", "offload": "minimal_offloaded"}
_STRATEGIES = {"all-gather": "all_gather", "ring": "ring", "head-parallel": "ulysses"}
_OPTIMIZERS = {"adamw": "adamw", "sgd": "sgd", "muon": "muon"}
_SCHEDULES = {"cosine": "cosine", "warmup-stable-decay": "wsd"}

Settings = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Mesh:
    """Ranks of the axes that plans join under `data`, and slices between which ranks talk over the network."""

    data: int
    fsdp: int
    num_slices: int


def _model(job: Job, notes: list[str]) -> Settings:
    model = job.plan.model
    if model.family not in {"dense-transformer", "moe-transformer"}:
        raise NotExpressible(f"MaxText has decoders, the model is a {model.family}")
    notes.append("model: set decoder_block, activations and normalization, or the model_name that MaxText has for it")
    settings: Settings = {
        "base_num_decoder_layers": model.num_layers,
        "base_emb_dim": model.hidden_size,
        "base_num_query_heads": model.num_attention_heads,
        "base_num_kv_heads": model.num_key_value_heads or model.num_attention_heads,
        "head_dim": model.head_size,
        "base_mlp_dim": model.ffn_hidden_size,
        "vocab_size": model.vocabulary_size,
        "max_target_length": model.sequence_length,
        "logits_via_embedding": model.tied_embeddings,
    }
    if model.gated_ffn is not None:
        settings["mlp_activations"] = ["silu", "linear"] if model.gated_ffn else ["gelu"]
    if model.attention == "latent":
        notes.append("model.latent_attention: set attention_type: mla and its ranks")
    if model.experts:
        settings |= _experts(job, notes)
    return settings


def _experts(job: Job, notes: list[str]) -> Settings:
    model, experts = job.plan.model, job.plan.model.experts
    if experts is None:
        return {}
    settings: Settings = {
        "num_experts": experts.num_experts,
        "num_experts_per_tok": experts.num_active_experts,
        "base_moe_mlp_dim": experts.ffn_hidden_size,
        "shared_experts": experts.num_shared_experts or None,
    }
    if experts.num_layers and experts.num_layers != model.num_layers:
        notes.append("model.experts.num_layers: set first_num_dense_layers or interleave_moe_layer_step")
    return settings


def _mesh(job: Job) -> _Mesh:
    """How the data ranks of a plan, experts taken out, are copies and shards."""
    p = job.plan.parallelism
    if p.data % p.expert:
        raise NotExpressible(f"{p.expert} EP ranks do not divide {p.data} DP ranks, as the mesh of MaxText needs")
    rest, inner = p.data // p.expert, p.expert * p.context
    fsdp = 1
    if p.sharding == "parameters":
        shards = p.sharding_degree or p.data * p.context
        if shards % inner or rest % (shards // inner):
            message = f"{shards} ranks share the weights, and MaxText shards them over all EP and CP ranks"
            raise NotExpressible(message, f"choose a multiple of {inner} that divides {p.data * p.context}")
        fsdp = shards // inner
    domain = job.nodes.domain_num_ranks
    num_slices = p.num_accelerators // domain if domain and p.num_accelerators > domain else 1
    return _Mesh(rest // fsdp, fsdp, num_slices)


def _axes(job: Job, notes: list[str]) -> Settings:
    p = job.plan.parallelism
    if p.pipeline > 1:
        message = f"MaxText repeats stages in a circle, and has no {p.schedule or '1f1b'} pipeline"
        raise NotExpressible(message, "leave the pipeline out")
    if p.sharding == "gradients":
        message = "MaxText shards optimizers or parameters, and no gradients alone"
        raise NotExpressible(message, "set sharding: parameters")
    mesh, tensor = _mesh(job), "tensor_sequence" if p.sequence else "tensor"
    between = {"data": math.gcd(mesh.data, mesh.num_slices)}
    between["fsdp"] = mesh.num_slices // between["data"]
    if mesh.fsdp % between["fsdp"]:
        message = f"copies and shards of the weights do not divide over {mesh.num_slices} slices"
        raise NotExpressible(message, "choose a sharding degree that keeps shards inside a slice")
    settings: Settings = {f"dcn_{axis}_parallelism": degree for axis, degree in between.items()}
    inside = {"data": mesh.data // between["data"], "fsdp": mesh.fsdp // between["fsdp"], "expert": p.expert}
    inside |= {"context": p.context, tensor: p.tensor}
    for axis, degree in inside.items():
        settings[f"ici_{axis}_parallelism"] = degree
    settings["shard_optimizer_over_data"] = True if p.sharding == "optimizer" else None
    if p.context > 1 and p.context_method in _STRATEGIES:
        settings["context_parallel_strategy"] = _STRATEGIES[p.context_method]
    elif p.context > 1:
        notes.append(f"parallelism.context_method: no context_parallel_strategy is {p.context_method}")
    if p.expert_tensor not in {None, p.tensor}:
        notes.append("parallelism.expert_tensor: the tensor axis of MaxText also splits experts")
    if p.order:
        notes.append("parallelism.order: mesh_axes of base.yml places the axes, and XLA the devices")
    return settings


def _batch(job: Job, notes: list[str]) -> Settings:
    plan, batch, wanted = job.plan, job.plan.batch, job.plan.job
    changing = [key for key in ("ramp", "controller", "worker_shares") if getattr(batch, key)]
    notes.extend(f"batch.{key}: not written; one global batch is kept" for key in changing)
    each = batch.micro_sequences / (plan.parallelism.tensor * plan.parallelism.context)
    steps, length = (wanted.num_steps if wanted else None), plan.model.sequence_length
    if wanted and not steps and wanted.num_tokens and length and not batch.ramp:
        steps = math.ceil(wanted.num_tokens / (batch.global_sequences * length))
    return {
        "per_device_batch_size": int(each) if each == int(each) else each,
        "gradient_accumulation_steps": batch.accumulation_steps,
        "steps": steps,
        "init_weights_seed": wanted.seed if wanted else None,
    }


def _precision(job: Job, notes: list[str]) -> Settings:
    precision = job.plan.precision
    stored = precision.master_parameters or precision.parameters
    for name in (precision.compute, stored):
        if name not in _FORMATS:
            raise NotExpressible(f"MaxText computes and stores in bf16 or fp32, the plan in {name}")
    settings: Settings = {"dtype": _FORMATS[precision.compute], "weight_dtype": _FORMATS[stored]}
    if precision.gradients in _FORMATS and precision.gradients != stored:
        settings["grad_dtype"] = _FORMATS[precision.gradients]
    if precision.recipe and precision.recipe.format == "int8":
        settings["quantization"] = "int8"
        notes.append("precision.recipe.high_precision_layers: a file for quant_cfg_path lists them")
    elif precision.recipe:
        notes.append(f"precision.recipe: set quantization for {precision.recipe.format}; scaling is the library's")
    return settings


def _memory(job: Job, notes: list[str]) -> Settings:
    memory = job.plan.memory
    if memory is None:
        return {}
    moved = {item.what for item in memory.offload if item.target == "host" and item.fraction == 1}
    notes += [
        f"memory.offload[{item.what}]: MaxText moves all of the optimizer or of the parameters to the host"
        for item in memory.offload
        if item.what == "gradients" or (item.what != "activations" and item.what not in moved)
    ]
    if memory.activation_policy not in _POLICIES:
        notes.append(f"memory.activation_policy is {memory.activation_policy}: choose a remat_policy")
    elif memory.activation_policy == "selective":
        notes.append("memory.activation_policy: minimal keeps most products; other policies of MaxText keep less")
    return {
        "remat_policy": _POLICIES.get(memory.activation_policy),
        "optimizer_memory_host_offload": True if "optimizer" in moved else None,
        "parameter_memory_host_offload": True if "parameters" in moved else None,
    }


def _optimizer(job: Job, notes: list[str]) -> Settings:
    optimizer = job.plan.optimizer
    if optimizer is None:
        notes.append("the plan has no optimizer: set opt_type, learning_rate, its schedule and the clipping")
        return {}
    settings: Settings = {"opt_type": _OPTIMIZERS.get(optimizer.name)}
    if optimizer.name not in _OPTIMIZERS:
        notes.append(f"optimizer.name: no opt_type is {optimizer.name}")
    if (norm := global_clipping(job)) is not None:
        settings["gradient_clipping_threshold"] = norm
    elif optimizer.clipping:
        notes.append(f"optimizer.clipping: {optimizer.clipping.kind} is not written; MaxText clips the global norm")
    rate = optimizer.learning_rate
    if rate is None:
        return settings
    settings |= {"learning_rate": rate.peak, "learning_rate_schedule_steps": rate.total_steps}
    settings["lr_schedule_type"] = _SCHEDULES.get(rate.kind)
    if rate.kind not in _SCHEDULES:
        notes.append(f"optimizer.learning_rate.kind: no lr_schedule_type is {rate.kind}")
    if rate.final is not None:
        settings["learning_rate_final_fraction"] = rate.final / rate.peak
    if rate.total_steps and rate.warmup_steps is not None:
        settings["warmup_steps_fraction"] = rate.warmup_steps / rate.total_steps
    if rate.total_steps and rate.decay_steps and rate.kind == "warmup-stable-decay":
        settings["wsd_decay_steps_fraction"] = rate.decay_steps / rate.total_steps
    if not rate.total_steps:
        notes.append("optimizer.learning_rate: set learning_rate_schedule_steps and the fractions of warm-up and decay")
    return settings


def _checkpoints(job: Job, notes: list[str]) -> Settings:
    policy = job.policy
    if policy is None:
        return {}
    notes.append("the checkpoint policy: tiers and digests are not written")
    return {
        "enable_checkpointing": True,
        "async_checkpointing": policy.save.mode == "asynchronous",
        "checkpoint_period": policy.interval.steps,
        "max_num_checkpoints_to_keep": policy.retention.num_kept,
    }


def write(job: Job) -> Exported:
    """The settings, to be given with `base_config: base.yml` in the same directory.

    Raises:
        NotExpressible: the accelerators are neither TPUs nor GPUs, or MaxText has no such pipeline, mesh or format.
    """
    if job.vendor not in {*GPU_VENDORS, "google"}:
        raise NotExpressible(f"MaxText is for TPUs and GPUs; the job runs on {job.nodes.group.accelerator.model}")
    notes: list[str] = []
    settings: Settings = {"base_config": "base.yml", "run_name": job.plan.metadata.name}
    settings["hardware"] = "tpu" if job.vendor == "google" else "gpu"
    for part in (_model, _axes, _batch, _precision, _memory, _optimizer, _checkpoints):
        settings |= part(job, notes)
    lines = [f"{name}: {json.dumps(value)}" for name, value in settings.items() if value is not None]
    left = [note for note in left_to_program(job) if not note.startswith("optimizer")]
    return Exported(FILE, joined([*header(job, CHECKED), *lines]), (*notes, *left))


FORMATS = (Format("maxtext", f"settings of MaxText, YAML ({CHECKED.partition(' (')[0]})", write),)
