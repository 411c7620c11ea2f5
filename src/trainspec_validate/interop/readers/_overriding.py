"""Leaves open what a further setting changes, although a setting that is read states it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainspec_validate.interop.readers._plan_parts import Draft, shown
from trainspec_validate.model.finding import Pointer

_LONGEST = 20_000
"""Characters of a value that are compared."""
_IDLE = (None, False, 0, "", "false", "False", "none", "None", "no", "null")


@dataclass(frozen=True, slots=True)
class Override:
    """A setting that changes what others state, unless its value is none, zero or false."""

    setting: str
    """Pattern of its whole dotted name."""
    places: tuple[Pointer, ...]
    why: str
    """Effect of the setting in the program, with the source."""
    idle: tuple[object, ...] = ()
    """Values with which it changes nothing, in addition to false, zero and none."""
    values: str = ""
    """Pattern of the whole values that change something, where other ones than those of `idle` do not."""

    def applies(self, name: str, value: object) -> bool:
        """Whether a setting of this name and value changes the places."""
        if not re.fullmatch(self.setting, name):
            return False
        if self.values:
            return bool(re.fullmatch(self.values, str(value)[:_LONGEST], re.IGNORECASE | re.DOTALL))
        if isinstance(value, list | dict):
            return bool(value)
        return value not in _IDLE and value not in self.idle


def leave_overridden_open(draft: Draft, table: Iterable[Override], prefix: str = "") -> None:
    """Leave open each place that a setting changes, with all that was computed from it.

    It comes last, so that nothing is completed from a value that does not hold.
    """
    rows = list(table)
    for name, value in draft.values.items():
        plain = name.removeprefix(prefix)
        if not name.startswith(prefix):
            continue
        for row in rows:
            if row.applies(plain[:200], value):
                draft.used.add(name)
                told = f"{draft.origins.get(name, name)} is {shown(value)}: {row.why}"
                draft.drop(row.places, told)


_PRECISION: tuple[Pointer, ...] = tuple(
    ("precision", key) for key in ("compute", "parameters", "gradients", "reduction", "accumulation")
)
_STORED: tuple[Pointer, ...] = tuple(
    ("precision", key) for key in ("parameters", "master_parameters", "gradients", "reduction", "optimizer_state")
)
_OVERLAP: tuple[Pointer, ...] = tuple(("communication", f"overlap_{what}") for what in ("gradients", "parameters"))
_SHARDING: Pointer = ("parallelism", "sharding")
_POLICY: Pointer = ("memory", "activation_policy")
_OFFLOAD: Pointer = ("memory", "offload")
_NAME: Pointer = ("optimizer", "name")
_RATE = ("optimizer", "learning_rate")
_SHAPE: tuple[Pointer, ...] = ((*_RATE, "kind"), (*_RATE, "final"))
_CLIPPING: Pointer = ("optimizer", "clipping")
_MICRO: Pointer = ("batch", "micro_sequences")
_STEPS: Pointer = ("batch", "accumulation_steps")
_WHOLE: Pointer = ("batch", "global_sequences")
_BATCH: tuple[Pointer, ...] = (_MICRO, _STEPS, _WHOLE)
_RANKS: tuple[Pointer, ...] = (("parallelism", "num_accelerators"), ("parallelism", "data"))
_DEGREE: Pointer = ("parallelism", "sharding_degree")
_LAYERS: Pointer = ("parallelism", "stage_layers")
_VIRTUAL: Pointer = ("parallelism", "num_virtual_stages")
_TITAN = "pytorch/torchtitan@000204a4:torchtitan"
_DEEPSPEED = "deepspeedai/DeepSpeed@edaa7221:deepspeed"
_TRANSFORMERS = "transformers 5.24.0"
_FACTORY = "hiyouga/LLaMA-Factory@ff6d4d12:src/llamafactory"

TORCHTITAN = (
    Override(
        r"optimizer\.early_step_in_backward",
        (_CLIPPING,),
        f"each gradient is applied in the backward pass, before the bound: not clipped ({_TITAN}/config/job_config.py)",
    ),
    Override(
        r"fault_tolerance\.enable",
        (*_RANKS, *_BATCH[1:], _DEGREE),
        f"TorchFT joins replica groups, each of these ranks, as they come and go ({_TITAN}/components/ft.py)",
    ),
    Override(
        r"fault_tolerance\.semi_sync_method",
        (*_OVERLAP[:1],),
        f"replica groups synchronise once in several steps ({_TITAN}/components/ft.py)",
    ),
    Override(
        r"parallelism\.(?:module|model)_fqns_per_model_part",
        (_LAYERS, _VIRTUAL),
        f"the list says which layers a stage holds ({_TITAN}/distributed/pipeline_parallel.py)",
    ),
    Override(
        r"parallelism\.pipeline_parallel_(?:first|last)_stage_less_layers",
        (_LAYERS,),
        f"the stage holds fewer layers by another number than 1 ({_TITAN}/distributed/pipeline_parallel.py)",
        values=r"(?!1\Z)[0-9]+",
    ),
    Override(
        r"(?:parallelism|experimental)\.pipeline_parallel_schedule_csv",
        (("parallelism", "schedule"), _LAYERS, _VIRTUAL),
        f"the file has the schedule ({_TITAN}/distributed/pipeline_parallel.py)",
    ),
    Override(
        r"training\.data_parallel_type",
        (_SHARDING, *_STORED, ("precision", "accumulation"), *_OVERLAP[1:]),
        "DDP in place of FSDP (pytorch/torchtitan before 0.1, config_manager.py)",
        values="ddp",
    ),
)
"""Settings of torchtitan, by pytorch/torchtitan@000204a4:torchtitan/config/job_config.py and a fork of January 2026."""

DEEPSPEED = (
    Override(
        r"gradient_predivide_factor",
        (("communication", "gradient_averaging"),),
        f"a part is divided before the sum and the rest after it ({_DEEPSPEED}/runtime/engine.py)",
        idle=(1,),
    ),
    Override(
        r"autotuning\.enabled",
        (*_BATCH, ("parallelism", "data"), _SHARDING),
        f"the tuner tries stages of ZeRO and micro-batches of its own ({_DEEPSPEED}/autotuning/autotuner.py)",
    ),
    Override(
        r"data_efficiency\.data_sampling\.dynamic_batching\.enabled",
        (*_BATCH, ("parallelism", "data"), (*_RATE, "peak")),
        f"sequences are batched by tokens and the rate follows ({_DEEPSPEED}/runtime/data_pipeline/data_sampling)",
    ),
    Override(
        r"amp\.enabled",
        (*_PRECISION, *_STORED),
        f"AMP of Apex decides by its opt_level ({_DEEPSPEED}/runtime/engine.py)",
    ),
    Override(
        r"(?:quantize_training|compression_training\.weight_quantization\.shared_parameters)\.enabled",
        (("precision", "parameters"),),
        f"weights are rounded to fewer bits as the job goes ({_DEEPSPEED}/compression)",
    ),
    Override(
        r"zero_optimization\.(?:zenflow(?:\.\w+)?|offload_optimizer\.super_offload)",
        (_OFFLOAD,),
        f"a part of the optimizer stays on the accelerator ({_DEEPSPEED}/runtime)",
    ),
    Override(
        r"compile\.deepcompile",
        (*_OVERLAP, ("communication", "bucket_bytes")),
        f"the compiler places gathers and reductions ({_DEEPSPEED}/compile)",
    ),
    Override(
        r"optimizer\.params\.(?:muon|adam)_lr",
        ((*_RATE, "peak"),),
        f"Muon has a rate for matrices and one for the rest ({_DEEPSPEED}/runtime/zero/muon)",
    ),
)
"""Settings of DeepSpeed, by docs/_pages/config-json.md and runtime/config.py of deepspeedai/DeepSpeed@edaa7221."""

_SPLIT = f"per_device_train_batch_size is divided over the processes ({_TRANSFORMERS}, AcceleratorConfig)"
_APPLIED = f"each gradient is applied in the backward pass, before the bound: not clipped ({_TRANSFORMERS}, Trainer)"
TRAINER = (
    Override(r"(?:accelerator_config\.)?split_batches", (_MICRO, _WHOLE), _SPLIT),
    Override(r"accelerator_config", (_MICRO, _WHOLE), _SPLIT, values=r".*split_batches\W{1,4}true.*"),
    Override(r"accelerator_config", _BATCH, "the file, which is not read, may set the batch", values=r"[^{]*\.json"),
    Override(
        r"accelerator_config\.gradient_accumulation_kwargs\.num_steps",
        (_STEPS,),
        f"it goes before 1 of gradient_accumulation_steps, and another number is refused ({_TRANSFORMERS}, Trainer)",
        idle=(1,),
    ),
    Override(
        r"accelerator_config",
        (_STEPS,),
        f"num_steps goes before 1 of gradient_accumulation_steps ({_TRANSFORMERS}, Trainer)",
        values=r".*\bnum_steps\b.*",
    ),
    Override(
        r"auto_find_batch_size",
        (_MICRO, _WHOLE),
        f"the Trainer goes to smaller ones until memory is enough ({_TRANSFORMERS}, Trainer)",
    ),
    Override(
        r"per_gpu_train_batch_size",
        (_MICRO,),
        "it goes before per_device_train_batch_size (transformers 4.57.0, TrainingArguments)",
    ),
    Override(
        r"half_precision_backend|fp16_backend",
        (*_PRECISION, *_STORED),
        "AMP of Apex decides by fp16_opt_level (transformers 4.33.0, TrainingArguments)",
        values="apex",
    ),
    Override(r"adafactor", (_NAME,), "Adafactor, whatever optim names (transformers 4.57.0, TrainingArguments)"),
    Override(
        r"sharded_ddp",
        (_SHARDING, *_OVERLAP, *_STORED),
        "FairScale shards in place of DDP (transformers 4.33.0, TrainingArguments)",
    ),
    Override(r"optim", (_CLIPPING,), _APPLIED, values=r"\w+_layerwise|lomo|adalomo"),
    Override(
        r"(?:galore|apollo)_layerwise",
        (_CLIPPING,),
        f"each gradient is applied in the backward pass: not clipped ({_FACTORY}/train/trainer_utils.py)",
    ),
    Override(
        r"fsdp_config\.(?:fsdp_)?xla",
        (*_OVERLAP, *_PRECISION, *_STORED),
        f"FSDP of torch_xla takes xla_fsdp_settings and casts by them ({_TRANSFORMERS}, TrainingArguments)",
    ),
    Override(
        r"lr_scheduler_kwargs\.num_cycles",
        _SHAPE,
        f"another number of waves than the one of its kind ({_TRANSFORMERS}, optimization.py)",
        idle=(0.5,),
    ),
    Override(
        r"lr_scheduler_kwargs",
        _SHAPE,
        f"its entries may change the end and the form of the schedule ({_TRANSFORMERS}, optimization.py)",
        values=r"\{.*\w.*\}",
    ),
    Override(
        r"lr_scheduler_kwargs\.(?:lr_end|min_lr_ratio)",
        _SHAPE[1:],
        f"the schedule ends there, or at this share of its peak ({_TRANSFORMERS}, optimization.py)",
    ),
    Override(
        r"(?:activation|gradient)_checkpointing_kwargs\.every_n_layers",
        (_POLICY,),
        f"the layers between are not recomputed ({_TRANSFORMERS}, TrainingArguments)",
        idle=(1,),
    ),
    Override(
        r"use_mca|use_megatron_bridge|use_hyper_parallel|use_kt",
        (_SHARDING, *_OVERLAP, *_STORED, ("precision", "high_precision_operations")),
        f"LLaMA-Factory trains with another program, or layers of another one, than the Trainer ({_FACTORY}/hparams)",
    ),
    Override(
        r"mp_parameters",
        (("parallelism", "data"), ("parallelism", "tensor"), ("parallelism", "pipeline")),
        "the model parallelism of SageMaker splits ranks (transformers 4.57.0, TrainingArguments)",
    ),
)
"""Arguments of the Trainer and what LLaMA-Factory adds, by training_args.py and trainer.py of transformers."""

ACCELERATE = (
    Override(
        r"megatron_lm_config\.megatron_lm_use_custom_fsdp",
        (_SHARDING,),
        "FSDP of Megatron-LM shards by a strategy of its own (accelerate 1.15.0, MegatronLMPlugin)",
    ),
    Override(
        r"fp8_config\.(?:fp8_)?backend",
        _STORED,
        "MS-AMP stores weights, gradients and moments in fewer bits by its opt_level (accelerate 1.15.0)",
        values="ms-?amp",
    ),
    Override(
        r"fp8_config\.(?:fp8_)?enable_fsdp_float8_all_gather",
        (("precision", "parameters"),),
        "FSDP gathers the weights of linear layers in fp8 (accelerate 1.15.0, AORecipeKwargs)",
    ),
    Override(
        r"downcast_bf16",
        _STORED,
        "torch_xla turns tensors of 32 and 64 bits into bf16 (accelerate 1.15.0, launch)",
    ),
)
"""Settings of a configuration of accelerate, by commands/launch.py of accelerate 1.15.0."""

AXOLOTL = (
    *TRAINER,
    Override(
        r"relora(?:_steps)?|jagged_restart_steps|cosine_constant_lr_ratio",
        _SHAPE,
        "axolotl restarts or bends the schedule (axolotl-ai-cloud/axolotl@067b021c:src/axolotl/utils/schedulers.py)",
    ),
    Override(
        r"max_packed_sequence_len",
        (("model", "sequence_length"),),
        "samples are joined up to this length (axolotl before 0.4)",
    ),
)
"""Settings of axolotl, by axolotl-ai-cloud/axolotl@067b021c:src/axolotl/utils/schemas."""

_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64:megatron"
_GROUPS: tuple[Pointer, ...] = tuple(
    (group,) for group in ("model", "parallelism", "batch", "precision", "optimizer", "communication", "memory", "job")
)
_VARIED: tuple[Pointer, ...] = tuple(
    ("model", key) for key in ("attention", "num_key_value_heads", "ffn_hidden_size", "num_parameters")
)
MEGATRON = (
    Override(r"yaml_cfg", _GROUPS, f"the file goes before these arguments ({_MEGATRON}/training/arguments.py)"),
    Override(
        r"heterogeneous_layers_config_(?:path|encoded_json)",
        _VARIED,
        f"each layer has heads and widths of its own ({_MEGATRON}/core/transformer/heterogeneous)",
    ),
    Override(
        r"torch_fsdp2_no_reshard_after_forward",
        (_SHARDING,),
        f"FSDP 2 keeps parameters gathered ({_MEGATRON}/training/arguments.py)",
    ),
    Override(
        r"outer_dp_sharding_strategy|enable_full_sharding_in_hsdp",
        (_SHARDING, _DEGREE),
        f"groups of FSDP shard among themselves too ({_MEGATRON}/training/arguments.py)",
        idle=("no_shard",),
    ),
    Override(
        r"ddp_num_buckets|ddp_pad_buckets_for_high_nccl_busbw",
        (("communication", "bucket_bytes"),),
        f"it decides on the size of buckets ({_MEGATRON}/core/distributed/distributed_data_parallel.py)",
    ),
    Override(
        r"megatron_fsdp_main_params_dtype",
        (("precision", "master_parameters"),),
        f"the format of the copy that FSDP steps on ({_MEGATRON}/training/arguments.py)",
        idle=("fp32",),
    ),
    Override(
        r"te_precision_config_file|kitchen_config_file|kitchen_recipe_number",
        (("precision", "recipe"), ("precision", "compute")),
        f"it gives layers formats of their own ({_MEGATRON}/training/arguments.py)",
    ),
    Override(
        r"fp4_param_gather",
        (("precision", "parameters"),),
        f"parameters of linear layers are kept and gathered in fp4 ({_MEGATRON}/training/arguments.py)",
    ),
    Override(
        r"inprocess_active_world_size",
        _RANKS,
        f"further ranks of the allocation are spares ({_MEGATRON}/training/arguments.py)",
    ),
    Override(
        r"perform_rl_step",
        _BATCH,
        f"rollouts are packed into batches ({_MEGATRON}/rl)",
    ),
)
"""Arguments of Megatron-LM, by megatron/training/arguments.py and megatron/core of NVIDIA/Megatron-LM@d98e8a64."""

NEMO = (
    Override(
        r"(?:model\.)?fsdp",
        (_SHARDING, *_OVERLAP, *_STORED),
        "FSDP of PyTorch in place of the optimizer of Megatron (NVIDIA/NeMo@8cfedd72:nemo/collections/nlp/parts)",
    ),
)
"""Settings of NeMo, by examples/nlp/language_modeling/conf/megatron_gpt_config.yaml of NVIDIA/NeMo@8cfedd72."""

_MAXTEXT = "AI-Hypercomputer/maxtext@e591f30c:src/maxtext/configs/base.yml"
MAXTEXT = (
    Override(r"shard_optimizer_over_data", (_SHARDING,), f"the data axis shards the optimizer too ({_MAXTEXT})"),
    Override(
        r"pipeline_parallel_layers",
        (_LAYERS,),
        f"the other layers are outside of the pipeline ({_MAXTEXT})",
        idle=(-1,),
    ),
    Override(
        r"custom_mesh(?:_and_rule)?",
        (_SHARDING, _DEGREE, *_RANKS),
        f"the mesh or the rules of another file go before the axes ({_MAXTEXT})",
    ),
    Override(
        r"use_dpo",
        (_MICRO, _WHOLE),
        f"each example of per_device_batch_size is a pair of sequences ({_MAXTEXT})",
    ),
    Override(
        r"num_kv_shared_layers|share_kv_projections|engram_layers|use_double_wide_mlp",
        (("model", "num_parameters"), ("model", "num_active_parameters")),
        f"layers share projections, or have further ones ({_MAXTEXT})",
    ),
)
"""Settings of MaxText, by src/maxtext/configs/base.yml of AI-Hypercomputer/maxtext@e591f30c."""

NANOTRON = (
    Override(
        r"data_stages",
        (("model", "sequence_length"),),
        "a stage has sequences of a length of its own (huggingface/nanotron@2411b022:src/nanotron/config/config.py)",
        values=r".*\bsequence_length\W{1,4}[0-9].*",
    ),
)
"""Settings of nanotron, by src/nanotron/config of huggingface/nanotron@2411b022."""

_TUNE = "pytorch/torchtune@bd2a0fc7:recipes/full_finetune_distributed.py"
TORCHTUNE = (Override(r"optimizer_in_bwd", (_CLIPPING,), f"the recipe refuses a bound on gradients with it ({_TUNE})"),)
"""Settings of torchtune, by recipes/full_finetune_distributed.py of pytorch/torchtune@bd2a0fc7."""

_OLMO = "allenai/OLMo@59a53e3f:olmo/config.py"
OLMO = (
    Override(
        r"scheduler\.grad_clip_warmup_steps",
        (_CLIPPING,),
        f"the bound is max_grad_norm x grad_clip_warmup_factor at first ({_OLMO})",
    ),
    Override(r"stop_at|stop_after", (("job", "num_steps"),), f"the job ends there, before max_duration ({_OLMO})"),
    Override(
        r"fsdp\.hybrid_sharding_num_model_replicas",
        (_DEGREE,),
        f"the number of copies of a hybrid sharding ({_OLMO})",
    ),
)
"""Settings of the OLMo trainer, by olmo/config.py of allenai/OLMo@59a53e3f."""

_COMPOSER = "mosaicml/composer@64051888:composer/algorithms"
COMPOSER = (
    Override(
        r"algorithms\.seq_length_warmup(?:\..+)?",
        (("model", "sequence_length"),),
        f"sequences grow over the first part of the job ({_COMPOSER}/seq_length_warmup)",
        values=".*",
    ),
)
"""Settings of LLM Foundry, by the algorithms of Composer that a configuration may name."""
