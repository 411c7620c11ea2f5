"""Turns a plan into overrides of a recipe of Megatron Bridge, in YAML as its training scripts read them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainspec_validate.documents.types.precision import Precision
from trainspec_validate.interop.writers import megatron
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

FILE = "megatron-bridge.yaml"
CHECKED = "Megatron Bridge 0.7.0 (NVIDIA-NeMo/Megatron-Bridge@067f987d:src/megatron/bridge/training/config.py)"
_OF_STEPS = ("micro-batch-size", "global-batch-size", "train-iters")
_OF_COPIES = (
    *("use-distributed-optimizer", "use-megatron-fsdp", "data-parallel-sharding-strategy"),
    *("num-distributed-optimizer-instances", "overlap-grad-reduce", "overlap-param-gather"),
)
_OF_OPTIMIZERS = (
    *("use-precision-aware-optimizer", "optimizer-cpu-offload"),
    *("optimizer-offload-fraction", "overlap-cpu-optimizer-d2h-h2d"),
)
_OF_RANKS = ("use-tp-pp-dp-mapping", "distributed-timeout-minutes")
_SECTIONS: Mapping[str, str] = {
    **dict.fromkeys(_OF_STEPS, "train"),
    **dict.fromkeys(_OF_COPIES, "ddp"),
    **dict.fromkeys(_OF_RANKS, "dist"),
    **dict.fromkeys(_OF_OPTIMIZERS, "optimizer"),
    "seed": "rng",
}
"""Sections of options that are not of the model."""
_NAMES = {
    "num-experts": "num_moe_experts",
    "num-virtual-stages-per-pipeline-rank": "virtual_pipeline_model_parallel_size",
}
_LEFT_OUT = frozenset(
    {
        *("group-query-attention", "max-position-embeddings"),  # follow from other settings
        *("untie-embeddings-and-output-weights", "swiglu"),  # written where the plan states them
        *("bf16", "fp16", "fp32", "accumulate-allreduce-grads-in-fp32", "grad-reduce-in-bf16"),
        *("fp8-format", "fp8-recipe", "fp8-amax-history-len"),
    }
)
"""Arguments of Megatron-LM that have no setting of their own, those of number formats among them."""
_RECIPES = {
    ("fp8-hybrid", "delayed"): "fp8_delayed_scaling",
    ("fp8-hybrid", "current"): "fp8_current_scaling",
    ("fp8-hybrid", "block"): "fp8_subchannel_scaling",
    ("mxfp8", "block"): "mxfp8",
    ("nvfp4", "block"): "nvfp4",
}
"""Words in the names of `training/mixed_precision.py`, by format and scaling."""

Settings = dict[str, object]


def _mixed_precision(precision: Precision, notes: list[str]) -> str:
    """The recipe of numbers that a plan asks for.

    Raises:
        NotExpressible: there is none.
    """
    wide, narrow = precision.compute, precision.recipe
    if wide not in {"bf16", "fp16"}:
        raise NotExpressible(f"recipes of Megatron Bridge compute in bf16 or fp16, the plan in {wide}")
    summed = "fp32" if wide == "bf16" else "fp16"
    if precision.reduction != summed:
        wanted = str(precision.reduction == "fp32").lower()
        notes.append(f"precision.reduction: the recipe sums in {summed}; set grad_reduce_in_fp32 to {wanted} in it")
    if narrow is None:
        return f"{wide}_mixed"
    words = _RECIPES.get((narrow.format, narrow.scaling or ""))
    if words is None or (words == "nvfp4" and wide == "fp16"):
        wanted = f"{narrow.format} with {narrow.scaling or 'unknown'} scaling"
        raise NotExpressible(f"Megatron Bridge has no recipe of {wanted} in {wide}")
    notes.append("precision.recipe: the recipe decides on layers in high precision and on the history of scales")
    return f"{wide}_with_{words}_mixed"


def _stated(job: Job) -> dict[str, Settings]:
    """What a recipe may have otherwise, and Megatron-LM has unless it is told."""
    model, memory = job.plan.model, job.plan.memory
    switches = {"share_embeddings_and_output_weights": model.tied_embeddings, "gated_linear_unit": model.gated_ffn}
    settings: Settings = {key: value for key, value in switches.items() if value is not None}
    settings |= {"sequence_parallel": False, "virtual_pipeline_model_parallel_size": None}
    settings["pipeline_model_parallel_layout"] = None
    if memory and memory.activation_policy == "none":
        settings["recompute_granularity"] = None
    return {"model": settings, "ddp": {"use_distributed_optimizer": False, "use_megatron_fsdp": False}}


def _overrides(job: Job, notes: list[str]) -> dict[str, Settings]:
    found, said = _stated(job), list[str]()
    for name, value in megatron.options(job, said):
        if value not in {None, False} and name not in _LEFT_OUT:
            section = found.setdefault(_SECTIONS.get(name, "model"), {})
            section[_NAMES.get(name, name.replace("-", "_"))] = value
    notes.extend(note for note in said if not note.startswith("precision."))
    return found


def write(job: Job) -> Exported:
    """Overrides for the recipe of the model, to be given to its script with `--config-file`.

    Raises:
        NotExpressible: the accelerators are no GPUs, or Megatron has no such model, schedule, sharding or format.
    """
    require_gpus(job)
    notes: list[str] = []
    lines: list[str] = []
    for section, settings in _overrides(job, notes).items():
        lines += [f"{section}:", *(f"  {key}: {json.dumps(value)}" for key, value in settings.items())]
    lines.append(f"mixed_precision: {_mixed_precision(job.plan.precision, notes)}")
    if not job.plan.optimizer:
        notes.append("the plan has no optimizer: the recipe decides on learning rate, schedule and clipping")
    if job.policy:
        notes.append("the checkpoint policy: set checkpoint.save, checkpoint.save_interval and checkpoint.async_save")
    return Exported(FILE, joined([*header(job, CHECKED), *lines]), (*notes, *left_to_program(job)))


FORMATS = (
    Format("megatron-bridge", f"overrides for a recipe of Megatron Bridge, YAML ({CHECKED.partition(' (')[0]})", write),
)
