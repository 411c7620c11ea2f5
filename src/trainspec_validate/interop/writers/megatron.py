"""Turns a plan into arguments of Megatron-LM, as its `pretrain_gpt.py` reads them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from itertools import groupby

from trainspec_validate.documents.types.memory import Offload
from trainspec_validate.interop.writers._target import (
    Exported,
    Format,
    Job,
    NotExpressible,
    header,
    joined,
    left_to_program,
    require_gpus,
)

FILE = "megatron-arguments.sh"
CHECKED = "Megatron Core 0.20.0 (NVIDIA/Megatron-LM@d98e8a64:megatron/training/arguments.py)"
_METHODS = {"ring": "p2p", "all-gather": "all_gather", "head-parallel": "a2a", "head-parallel-ring": "a2a+p2p"}
_STRATEGIES = {"gradients": "optim_grads", "parameters": "optim_grads_params"}
_ORDER = ["tensor", "context", "expert", "data", "pipeline"]
_STAGES_INSIDE = ["tensor", "context", "expert", "pipeline", "data"]
_RECIPES = {"delayed": "delayed", "current": "tensorwise", "block": "blockwise"}
_FORMATS = {"fp8-hybrid": "hybrid", "fp8-e4m3": "e4m3"}

Options = list[tuple[str, object]]
"""Names of arguments without their dashes, and values; `True` for a switch."""


def _model(job: Job, notes: list[str]) -> Options:
    model = job.plan.model
    if model.family not in {"dense-transformer", "moe-transformer"}:
        raise NotExpressible(f"pretrain_gpt.py trains decoders, the model is a {model.family}")
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    options: Options = [
        ("num-layers", model.num_layers),
        ("hidden-size", model.hidden_size),
        ("num-attention-heads", heads),
        ("group-query-attention", bool(groups and groups != heads)),
        ("num-query-groups", groups if groups != heads else None),
        ("kv-channels", model.head_size),
        ("ffn-hidden-size", model.ffn_hidden_size),
        ("swiglu", bool(model.gated_ffn)),
        ("seq-length", model.sequence_length),
        ("max-position-embeddings", model.sequence_length),
        ("untie-embeddings-and-output-weights", model.tied_embeddings is False),
    ]
    if model.vocabulary_size:
        notes.append(f"model.vocabulary_size: the tokenizer decides it; choose one of {model.vocabulary_size}")
    notes.append("model: activation, normalization, positions and dropout are not in a plan; set them for your model")
    if model.attention == "latent":
        notes.append("model.latent_attention: set --multi-latent-attention and its ranks")
    if model.experts:
        options += [
            ("num-experts", model.experts.num_experts),
            ("moe-router-topk", model.experts.num_active_experts),
            ("moe-ffn-hidden-size", model.experts.ffn_hidden_size),
        ]
        if model.experts.num_shared_experts:
            notes.append("model.experts.num_shared_experts: set --moe-shared-expert-intermediate-size")
        if model.experts.num_layers and model.experts.num_layers != model.num_layers:
            notes.append("model.experts.num_layers: set --moe-layer-freq")
    return options


def _parallelism(job: Job, notes: list[str]) -> Options:
    p = job.plan.parallelism
    options: Options = [
        ("tensor-model-parallel-size", p.tensor),
        ("sequence-parallel", bool(p.sequence) and p.tensor > 1),
        ("pipeline-model-parallel-size", p.pipeline),
        ("context-parallel-size", p.context),
        *_pipeline(job),
    ]
    if p.context > 1 and p.context_method in _METHODS:
        options.append(("cp-comm-type", _METHODS[p.context_method]))
    elif p.context > 1 and p.context_method:
        notes.append(f"parallelism.context_method: no --cp-comm-type is {p.context_method}")
    if job.plan.model.experts:
        options += [("expert-model-parallel-size", p.expert), ("expert-tensor-parallel-size", p.expert_tensor)]
        if p.expert > 1:
            options.append(("moe-token-dispatcher-type", "alltoall"))
        notes.append("model.experts: products of experts run one by one; set --moe-grouped-gemm to run them together")
    order = [axis for axis in p.order if getattr(p, axis, 1) > 1]
    if order == [axis for axis in _STAGES_INSIDE if getattr(p, axis) > 1] and p.pipeline > 1 and p.data > 1:
        options.append(("use-tp-pp-dp-mapping", True))
    elif order and order != [axis for axis in _ORDER if getattr(p, axis) > 1]:
        notes.append(f"parallelism.order: Megatron-LM numbers ranks {', '.join(_ORDER)}")
    return [*options, *_sharding(job)]


def _pipeline(job: Job) -> Options:
    p = job.plan.parallelism
    if p.pipeline == 1:
        return []
    wanted = "interleaved-1f1b" if p.num_virtual_stages > 1 else "1f1b"
    if p.schedule not in {None, wanted}:
        raise NotExpressible(f"Megatron-LM runs {wanted} here, the plan says {p.schedule}", f"set schedule: {wanted}")
    if p.stage_layers:
        return [("pipeline-model-parallel-layout", layout(p.stage_layers))]
    if p.num_virtual_stages > 1:
        return [("num-virtual-stages-per-pipeline-rank", p.num_virtual_stages)]
    return []


def layout(stage_layers: Sequence[int]) -> str:
    """Layers of each chunk as --pipeline-model-parallel-layout has them.

    >>> layout([7, 8, 8, 7])
    'Et*7|(t*8|)*2t*7L'
    >>> layout([3, 4])
    'Et*3|t*4L'
    """
    first, *middle, last = stage_layers
    parts = []
    for num_layers, same in groupby(middle):
        count, chunk = len(list(same)), f"{_layers(num_layers)}|"
        parts.append(f"({chunk})*{count}" if count > 1 else chunk)
    return f"E{_layers(first)}|{''.join(parts)}{_layers(last)}L"


def _layers(num_layers: int) -> str:
    return {0: "", 1: "t"}.get(num_layers, f"t*{num_layers}")


def _sharding(job: Job) -> Options:
    p = job.plan.parallelism
    if p.sharding == "none":
        return []
    options: Options = [("use-distributed-optimizer", True)]
    if p.sharding in _STRATEGIES:
        if p.pipeline > 1:
            message = f"Megatron-LM shards {p.sharding} with Megatron-FSDP, which has no pipeline"
            raise NotExpressible(message, "shard optimizers only, or leave the pipeline out")
        options += [("use-megatron-fsdp", True), ("data-parallel-sharding-strategy", _STRATEGIES[p.sharding])]
    copies = p.data * p.context
    if p.sharding_degree and p.sharding_degree != copies:
        options.append(("num-distributed-optimizer-instances", copies // p.sharding_degree))
    return options


def _batch(job: Job, notes: list[str]) -> Options:
    batch, wanted, length = job.plan.batch, job.plan.job, job.plan.model.sequence_length
    changing = [key for key in ("ramp", "controller", "worker_shares") if getattr(batch, key)]
    notes.extend(f"batch.{key}: not written; one global batch is kept" for key in changing)
    steps = wanted.num_steps if wanted else None
    if wanted and not steps and wanted.num_tokens and length and not batch.ramp:
        steps = math.ceil(wanted.num_tokens / (batch.global_sequences * length))
    return [
        ("micro-batch-size", batch.micro_sequences),
        ("global-batch-size", batch.global_sequences),
        ("calculate-per-token-loss", batch.loss_reduction == "global-token-mean"),
        ("train-iters", steps),
        ("seed", wanted.seed if wanted else None),
    ]


def _precision(job: Job, notes: list[str]) -> Options:
    precision = job.plan.precision
    if precision.compute not in {"bf16", "fp16", "fp32"}:
        raise NotExpressible(f"Megatron-LM computes in bf16, fp16 or fp32, the plan in {precision.compute}")
    narrow = precision.compute != "fp32"
    options: Options = [(precision.compute, narrow)]
    if narrow and precision.reduction == "fp32":
        options.append(("accumulate-allreduce-grads-in-fp32", True))
    elif precision.compute == "bf16" and precision.reduction == "bf16":
        options.append(("grad-reduce-in-bf16", True))
    kept = "fp32" if precision.reduction == "fp32" else precision.compute
    if narrow and precision.gradients != kept:
        notes.append(f"precision.gradients is {precision.gradients}; Megatron-LM keeps them in {kept}, as it sums them")
    if precision.recipe:
        kind, scaling = _FORMATS.get(precision.recipe.format), _RECIPES.get(precision.recipe.scaling or "")
        options += [("fp8-format", kind), ("fp8-recipe", scaling if kind else None)]
        if kind and scaling == "delayed" and precision.recipe.amax_history_steps:
            options.append(("fp8-amax-history-len", precision.recipe.amax_history_steps))
            notes.append("precision.recipe: set --fp8-amax-compute-algo; its default takes the most recent step alone")
        if kind is None or scaling is None:
            notes.append("precision.recipe: choose --fp8-format and --fp8-recipe, or --fp4-format")
    if precision.loss_scaling:
        notes.append("precision.loss_scaling: set --initial-loss-scale, --loss-scale-window and --hysteresis")
    return options


def _memory(job: Job, notes: list[str]) -> Options:
    memory = job.plan.memory
    policy = memory.activation_policy if memory else None
    moved = [option for entry in (memory.offload if memory else ()) for option in _offload(job, entry, notes)]
    if policy == "selective":
        return [("recompute-granularity", "selective"), *moved]
    if policy == "full":
        whole: Options = [
            ("recompute-granularity", "full"),
            ("recompute-method", "uniform"),
            ("recompute-num-layers", 1),
        ]
        return [*whole, *moved]
    if policy not in {None, "none"}:
        notes.append(f"memory.activation_policy is {policy}: no argument is written")
    return moved


def _offload(job: Job, entry: Offload, notes: list[str]) -> Options:
    """Arguments for what leaves the device: the optimizer alone, which has to be the distributed one."""
    if entry.what != "optimizer" or entry.target != "host":
        other = "; for activations set --cpu-offloading-num-layers" if entry.what == "activations" else ""
        notes.append(f"memory.offload[{entry.what}]: Megatron-LM moves the optimizer to the host{other}")
        return []
    if job.plan.parallelism.sharding == "none":
        notes.append("memory.offload[optimizer]: Megatron-LM moves a sharded optimizer only")
        return []
    return [
        ("use-precision-aware-optimizer", True),
        ("optimizer-cpu-offload", True),
        ("optimizer-offload-fraction", None if entry.fraction == 1 else entry.fraction),
        ("overlap-cpu-optimizer-d2h-h2d", entry.overlapped),
    ]


def _communication(job: Job, notes: list[str]) -> Options:
    talk = job.plan.communication
    if talk is None:
        return []
    if talk.collectives:
        notes.append("communication.collectives: write --to nccl-env for the library")
    minutes = math.ceil(talk.timeout_seconds / 60) if talk.timeout_seconds else None
    return [
        ("overlap-grad-reduce", bool(talk.overlap_gradients)),
        ("overlap-param-gather", bool(talk.overlap_parameters) and job.plan.parallelism.sharding != "none"),
        ("distributed-timeout-minutes", minutes),
    ]


def options(job: Job, notes: list[str]) -> Options:
    """Every argument of a job, those without a value too; `notes` receives what they cannot express.

    Raises:
        NotExpressible: Megatron-LM has no such model, schedule, sharding or format.
    """
    parts = (_model, _parallelism, _batch, _precision, _memory, _communication)
    return [option for part in parts for option in part(job, notes)]


def _written(given: Options) -> list[str]:
    lines = []
    for name, value in given:
        if value is True:
            lines.append(f"  --{name}")
        elif value not in {None, False}:
            lines.append(f"  --{name} {shlex.quote(str(value))}")
    return lines


def write(job: Job) -> Exported:
    """The arguments as a Bash array, to be given to `pretrain_gpt.py` as "${MEGATRON_ARGUMENTS[@]}".

    Raises:
        NotExpressible: the accelerators are no GPUs, or Megatron-LM has no such model, schedule, sharding or format.
    """
    require_gpus(job)
    notes: list[str] = []
    lines = ["MEGATRON_ARGUMENTS=(", *_written(options(job, notes))]
    if not job.plan.optimizer:
        notes.append("the plan has no optimizer: set --lr, its schedule, --clip-grad and --weight-decay")
    if not job.plan.data:
        notes.append("the plan has no data: set --data-path and --split")
    if job.policy:
        notes.append("the checkpoint policy: set --save, --save-interval and --async-save")
    return Exported(FILE, joined([*header(job, CHECKED), *lines, ")"]), (*notes, *left_to_program(job)))


FORMATS = (Format("megatron-lm", f"arguments of Megatron-LM, a Bash array ({CHECKED.partition(' (')[0]})", write),)
