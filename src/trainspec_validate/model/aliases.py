"""Maps names of keys and values in other tools to those of TrainSpec documents, for messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Alias:
    """Our key for a foreign one: the kind of document, the path from its root, and what else differs."""

    kind: str
    path: str
    note: str = ""


def fold(word: str) -> str:
    """The word without case, blanks and separators, so that spellings of one name are equal."""
    return "".join(char for char in word.casefold() if char not in " \t-_./")


_ZERO = "ZeRO stage 1 is optimizer, 2 gradients, 3 parameters"
_FSDP = "FULL_SHARD is parameters, SHARD_GRAD_OP gradients, NO_SHARD none"
_FORMAT = "its value is a number format, such as bf16"
_RECOMPUTE = "its values are none, selective, full and offload"

_PLAN: Final[dict[str, tuple[str, str]]] = {
    "tensor_model_parallel_size tensor_parallel_size tensor_parallel_degree tensor_parallel tp tp_size tp_degree": (
        "parallelism.tensor",
        "",
    ),
    "pipeline_model_parallel_size pipeline_parallel_size pipeline_parallel_degree pp pp_size pp_degree": (
        "parallelism.pipeline",
        "",
    ),
    "context_parallel_size context_parallel_degree cp cp_size cp_degree": ("parallelism.context", ""),
    "expert_model_parallel_size expert_parallel_size expert_parallel_degree ep ep_size": ("parallelism.expert", ""),
    "expert_tensor_parallel_size": ("parallelism.expert_tensor", ""),
    "data_parallel_size data_parallel_degree data_parallel dp dp_size dp_degree": ("parallelism.data", ""),
    "virtual_pipeline_model_parallel_size vpp": ("parallelism.num_virtual_stages", ""),
    "sequence_parallel": ("parallelism.sequence", ""),
    "zero_stage zero_optimization zero": ("parallelism.sharding", _ZERO),
    "sharding_strategy fsdp fsdp_sharding_strategy": ("parallelism.sharding", _FSDP),
    "world_size": ("parallelism.num_accelerators", ""),
    "pipeline_schedule": ("parallelism.schedule", ""),
    "micro_batch_size per_device_train_batch_size train_micro_batch_size_per_gpu mbs": ("batch.micro_sequences", ""),
    "global_batch_size train_batch_size gbs": ("batch.global_sequences", "it counts sequences"),
    "gradient_accumulation_steps accumulate_grad_batches grad_accum_steps": ("batch.accumulation_steps", ""),
    "seq_length seq_len sequence_len max_seq_length max_seq_len max_position_embeddings": ("model.sequence_length", ""),
    "num_hidden_layers n_layer n_layers": ("model.num_layers", ""),
    "n_embd d_model": ("model.hidden_size", ""),
    "num_heads n_head n_heads": ("model.num_attention_heads", ""),
    "num_query_groups num_kv_heads n_kv_heads": ("model.num_key_value_heads", ""),
    "intermediate_size ffn_dim d_ff": ("model.ffn_hidden_size", ""),
    "kv_channels head_dim": ("model.head_size", ""),
    "vocab_size padded_vocab_size": ("model.vocabulary_size", ""),
    "tie_word_embeddings share_embeddings_and_output_weights": ("model.tied_embeddings", ""),
    "num_local_experts num_moe_experts n_routed_experts": ("model.experts.num_experts", ""),
    "num_experts_per_tok moe_router_topk": ("model.experts.num_active_experts", ""),
    "n_shared_experts": ("model.experts.num_shared_experts", ""),
    "moe_intermediate_size moe_ffn_hidden_size": ("model.experts.ffn_hidden_size", ""),
    "dtype torch_dtype params_dtype mixed_precision": ("precision.compute", _FORMAT),
    "grad_reduce_in_fp32 reduce_dtype": ("precision.reduction", _FORMAT),
    "loss_scale": ("precision.loss_scaling", "a mapping with the key mode"),
    "activation_checkpointing gradient_checkpointing recompute_granularity": ("memory.activation_policy", _RECOMPUTE),
    "bucket_cap_mb reduce_bucket_size": ("communication.bucket_bytes", "in bytes: 25 MB is 25e6"),
    "overlap_grad_reduce overlap_comm": ("communication.overlap_gradients", ""),
    "overlap_param_gather": ("communication.overlap_parameters", ""),
    "distributed_timeout_minutes ddp_timeout": ("communication.timeout_seconds", "in seconds"),
    "train_iters max_steps train_steps": ("job.num_steps", ""),
    "optim optimizer_type optimizer_name": ("optimizer.name", ""),
    "max_grad_norm clip_grad grad_clip gradient_clip_val clip_grad_norm": (
        "optimizer.clipping.threshold",
        "kind says what is bounded",
    ),
    "lr_warmup_steps lr_warmup_iters num_warmup_steps warmup_iters": ("optimizer.learning_rate.warmup_steps", ""),
    "lr_scheduler lr_scheduler_type lr_decay_style": ("optimizer.learning_rate.kind", ""),
    "min_lr": ("optimizer.learning_rate.final", ""),
    "lora_r lora_rank lora_dim": ("lora.rank", ""),
    "target_modules lora_target_modules": ("lora.targets", ""),
    "num_nextn_predict_layers mtp_num_layers": ("model.num_mtp_layers", ""),
    "ssm_state_size mamba_state_dim d_state": ("model.state_space.state_size", ""),
    "image_size": ("model.image.size_pixels", ""),
    "patch_size": ("model.image.patch_size_pixels", ""),
    "samples_per_sec images_per_second": ("performance.samples_per_second", ""),
    "mfu": ("performance.model_flops_utilisation", ""),
    "tokens_per_second_per_gpu": ("performance.tokens_per_second_per_accelerator", ""),
}
_CLUSTER: Final[dict[str, tuple[str, str]]] = {
    "num_gpus n_gpus total_gpus num_devices": ("num_accelerators", ""),
    "nnodes": ("num_nodes", ""),
    "num_gpus_per_node gpus_per_node n_gpus_per_node devices_per_node": ("node_groups.num_accelerators_per_node", ""),
    "gpu gpus": ("node_groups.accelerator", "a mapping, with the keys model and memory_bytes"),
    "gpu_memory gpu_memory_gb vram hbm_bytes": ("node_groups.accelerator.memory_bytes", "in bytes: 80 GiB is 85.9e9"),
    "tdp tdp_watts": ("node_groups.accelerator.power_watts", ""),
    "tflops peak_tflops": ("node_groups.accelerator.peak_rates", "one entry per format: 989 TFLOP/s is 989e12"),
    "nvlink": ("node_groups.scale_up", "a mapping, with technology: nvlink"),
    "hcas hca network_interfaces": ("node_groups.nics", ""),
    "rate_gbps link_rate_gbps": ("node_groups.nics.rate_bytes_per_second", "400 Gb/s is 50e9"),
    "pue": ("power.power_usage_effectiveness", ""),
}
_POLICY: Final[dict[str, tuple[str, str]]] = {
    "save_interval save_steps checkpoint_interval every_n_train_steps": ("interval.steps", ""),
    "save_total_limit keep_last_n save_top_k": ("retention.num_kept", ""),
    "async_save": ("save.mode", "its values are asynchronous and synchronous"),
    "mtbf": ("job.mean_time_between_failures_seconds", ""),
}

KEYS: Final[dict[str, Alias]] = {
    fold(name): Alias(kind, *target)
    for kind, table in (("TrainingPlan", _PLAN), ("ClusterProfile", _CLUSTER), ("CheckpointPolicy", _POLICY))
    for names, target in table.items()
    for name in names.split()
}
"""Folded foreign key to ours."""

_SAME: Final[dict[str, str]] = {
    "bf16": "bfloat16 bf16-mixed torch.bfloat16",
    "fp16": "float16 half f16 16-mixed torch.float16",
    "fp32": "float32 float f32 single torch.float32",
    "fp64": "float64 double f64",
    "fp8-e4m3": "float8_e4m3fn float8_e4m3 e4m3",
    "fp8-e5m2": "float8_e5m2 e5m2",
    "fp8": "float8",
    "nvfp4": "fp4-nvidia",
    "infiniband": "ib",
    "rocev2": "roce rdma-over-converged-ethernet",
    "efa-srd": "efa srd",
    "xgmi": "infinity-fabric",
    "pcie": "pci-express",
    "rail-optimised": "rail rail-only",
    "fat-tree": "clos leaf-spine spine-leaf folded-clos",
    "dragonfly": "dragonfly+ dragonfly-plus megafly",
    "torus": "2d-torus 3d-torus 6d-torus",
    "other": "hyperx slim-fly flattened-butterfly jellyfish",
    "switched": "nvswitch all-to-all",
    "parallel-file-system": "lustre gpfs weka pfs beegfs",
    "object-store": "s3 gcs object blob",
    "network-file-system": "nfs",
    "local-disk": "nvme ssd local",
    "host-memory": "ram dram",
    "parameters": "zero-3 zero3 3 full_shard fsdp fully_shard",
    "gradients": "zero-2 zero2 2 shard_grad_op",
    "optimizer": "zero-1 zero1 1 distributed-optimizer",
    "none": "no no_shard off disabled ddp null",
    "tensor": "tp",
    "pipeline": "pp",
    "context": "cp",
    "expert": "ep",
    "data": "dp",
    "grouped-query": "gqa",
    "multi-query": "mqa",
    "latent": "mla",
    "moe-transformer": "moe mixture-of-experts",
    "vision-transformer": "vit deit",
    "state-space": "ssm mamba mamba2",
    "hybrid": "jamba nemotron-h zamba",
    "cnn": "resnet convnet",
    "adamw": "adamw_torch fused_adamw adamw_torch_fused",
    "adam": "fused_adam fusedadam",
    "muon": "dist_muon muonclip",
    "warmup-stable-decay": "wsd",
    "global-norm": "norm",
    "dense-transformer": "dense transformer llama gpt",
    "interleaved-1f1b": "1f1b-interleaved interleaved",
    "asynchronous": "async",
    "synchronous": "sync",
    "in-network": "sharp nvls",
    "in-network-tree": "collnet",
    "low-latency": "ll",
    "low-latency-128": "ll128",
}
VALUES: Final[dict[str, tuple[str, ...]]] = {
    fold(word): tuple(ours for ours, words in _SAME.items() if word in words.split())
    for words in _SAME.values()
    for word in words.split()
}
"""Folded foreign word to our values; the one that the key takes is meant."""

_NARROW: Final = "fp8 fp8-hybrid fp8-e4m3 fp8-e5m2 fp8-block mxfp8 nvfp4 mxfp4 fp4 int8 float8 float8_e4m3fn"
REMEDIES: Final[dict[tuple[str, str], str]] = {
    ("compute", fold(word)): "keep the format of the other operations, such as compute: bf16, and add recipe: "
    f"{{format: {'fp8-hybrid' if word in {'fp8', 'float8', 'float8_e4m3fn'} else 'nvfp4' if word == 'fp4' else word}}}"
    for word in _NARROW.split()
}
"""Key and folded value to what to write, where the value belongs to another key."""
