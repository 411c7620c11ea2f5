"""What each option of a framework becomes in a plan, by tables after the definitions of the frameworks.

Megatron-LM: NVIDIA/Megatron-LM@d98e8a64, megatron/training and megatron/core. DeepSpeed: docs/_pages/config-json.md of
deepspeedai/DeepSpeed@edaa7221. NeMo: nemo/core/optim/lr_scheduler.py of NVIDIA/NeMo@8cfedd72. torchtitan:
torchtitan/config/job_config.py of pytorch/torchtitan@000204a4. Trainer: TrainingArguments of transformers 5.23.0.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from plan_files import assert_sound, at, how, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

SHAPE = "--num-layers 16 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --bf16"
RUN = "--micro-batch-size 1 --global-batch-size 8 --train-iters 1000 --lr 1e-4"
RATE = "optimizer.learning_rate"


def read(name: str, text: str) -> Fragment:
    found = ForeignText(name, text)
    fragment = recognise(found).read(found)
    assert_sound(fragment)
    return fragment


def dotted(fragment: Fragment, key: str) -> Any:
    return at(fragment, *key.split("."))


def megatron(options: str) -> Fragment:
    return read("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} {RUN} {options}\n")


STAGES = "--pipeline-model-parallel-size 4"
FULL = "--recompute-granularity full"
MEGATRON = [
    ("--lr-warmup-fraction 0.01", f"{RATE}.warmup_steps", 10),
    ("--lr-warmup-fraction 0.01 --lr-decay-iters 500", f"{RATE}.warmup_steps", 5),
    ("--lr-warmup-fraction 0.0001", f"{RATE}.warmup_steps", 1),
    ("--lr-warmup-iters 20", f"{RATE}.warmup_steps", 20),
    ("--lr-warmup-samples 80", f"{RATE}.warmup_steps", 10),
    ("--lr-decay-iters 500", f"{RATE}.total_steps", 500),
    ("--lr-decay-samples 800", f"{RATE}.total_steps", 100),
    ("--lr-decay-style WSD --lr-wsd-decay-iters 100", f"{RATE}.kind", "warmup-stable-decay"),
    ("--lr-decay-style WSD --lr-wsd-decay-iters 100", f"{RATE}.decay_steps", 100),
    ("--lr-decay-style WSD --lr-wsd-decay-samples 800", f"{RATE}.decay_steps", 100),
    ("--lr-decay-style inverse-square-root", f"{RATE}.kind", "inverse-square-root"),
    ("--lr-decay-style constant", f"{RATE}.kind", "constant"),
    ("--min-lr 1e-5", f"{RATE}.final", 1e-5),
    ("--optimizer dist_muon", "optimizer.name", "muon"),
    ("--optimizer sgd", "optimizer.name", "sgd"),
    ("--calculate-per-token-loss", "batch.loss_reduction", "global-token-mean"),
    ("--use-tp-pp-dp-mapping", "parallelism.order", ["tensor", "context", "expert", "pipeline", "data"]),
    (f"{STAGES} --num-layers-in-first-pipeline-stage 1", "parallelism.stage_layers", [1, 5, 5, 5]),
    (f"{STAGES} --num-layers-in-last-pipeline-stage 4", "parallelism.stage_layers", [4, 4, 4, 4]),
    (f"{STAGES} --decoder-first-pipeline-num-layers 1", "parallelism.stage_layers", [1, 5, 5, 5]),
    ("--use-megatron-fsdp", "parallelism.sharding", None),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "parallelism.sharding", "parameters"),
    ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", "parallelism.sharding", "gradients"),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", "parallelism.sharding", "optimizer"),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy no_shard", "parallelism.sharding", "none"),
    ("--use-torch-fsdp2", "parallelism.sharding", "parameters"),
    ("--no-check-for-nan-in-loss-and-grad", "precision.nonfinite_action", None),
    ("--cpu-offloading", "memory.activation_policy", "offload"),
    ("--fp8-format hybrid", "precision.recipe.format", "fp8-hybrid"),
    ("--fp8-format e4m3 --fp8-recipe tensorwise", "precision.recipe.scaling", "current"),
    ("--fp8-format e4m3 --fp8-recipe blockwise", "precision.recipe.block_size", 128),
    ("--fp8-format e4m3 --fp8-recipe mxfp8", "precision.recipe.format", "mxfp8"),
    ("--fp8-format hybrid --fp8-amax-history-len 1024", "precision.recipe.amax_history_steps", 1024),
    ("--fp8-format hybrid --no-fp8-reduce-amax", "precision.recipe.amax_scope", "rank"),
    ("--fp4-format e2m1", "precision.recipe.format", "nvfp4"),
    ("--fp4-format e2m1 --fp4-recipe nvfp4", "precision.recipe.block_size", 16),
    (
        "--fp8-format hybrid --first-last-layers-bf16",
        "precision.recipe.high_precision_layers",
        ["embedding", "output-head", "first-layers", "last-layers"],
    ),
    ("--group-query-attention --num-query-groups 2", "model.num_key_value_heads", 2),
    ("--multi-latent-attention", "model.attention", "latent"),
    ("--recompute-granularity selective --recompute-modules core_attn", "memory.activation_policy", "selective"),
    (f"{FULL} --recompute-method uniform --recompute-num-layers 1", "memory.activation_policy", "full"),
    (f"{FULL} --recompute-method uniform --recompute-num-layers 4", "memory.activation_policy", "full"),
    (f"{FULL} --recompute-method block --recompute-num-layers 0", "memory.activation_policy", "none"),
    (f"{FULL} --recompute-method block --recompute-num-layers 16", "memory.activation_policy", "full"),
    (f"{FULL} --recompute-method block --recompute-num-layers 4 {STAGES}", "memory.activation_policy", "full"),
    (
        f"{FULL} --recompute-method block --recompute-num-layers 2 {STAGES} --num-layers-per-virtual-pipeline-stage 2",
        "memory.activation_policy",
        "full",
    ),
]
PARTS = [
    (f"{FULL} --recompute-method block --recompute-num-layers 1", "recompute_num_layers 1, a chunk of a stage has 16"),
    (f"{FULL} --recompute-method block --recompute-num-layers 3 {STAGES}", "a chunk of a stage has 4"),
    (f"{FULL} --recompute-method block", "no number is given"),
    (f"{FULL} --recompute-method block --recompute-num-layers $SOME", "SOME"),
    (f"{FULL} --recompute-method uniform --recompute-num-layers 16", "all 16 layers of a chunk are recomputed at once"),
    (
        f"{FULL} --recompute-method block --recompute-num-layers 4 {STAGES} --num-layers-in-first-pipeline-stage 1",
        "a chunk of a stage has 5",
    ),
]


@pytest.mark.parametrize(("options", "key", "value"), MEGATRON)
def test_options_of_megatron(options: str, key: str, value: object) -> None:
    assert dotted(megatron(options), key) == value


@pytest.mark.parametrize(("options", "words"), PARTS)
def test_recomputation_of_some_layers_has_no_policy(options: str, words: str) -> None:
    fragment = megatron(options)
    assert dotted(fragment, "memory.activation_policy") is None
    [reason] = [entry.reason for entry in fragment.unknown if entry.pointer == ("memory", "activation_policy")]
    assert words in reason


def test_a_share_of_warm_up_names_the_steps_that_it_is_of() -> None:
    fragment = megatron("--lr-warmup-fraction 0.02 --lr-decay-iters 300")
    assert how(fragment, f"{RATE}.warmup_steps") == "0.02 of 300 steps"
    assert dotted(megatron("--lr-warmup-fraction 0.02 --lr-warmup-iters 0"), f"{RATE}.warmup_steps") == 20


def test_a_share_of_an_unknown_number_of_steps_is_open() -> None:
    text = (
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --micro-batch-size 1 --lr 1e-4 --lr-warmup-fraction 0.1\n"
    )
    fragment = read("run.sh", text)
    assert dotted(fragment, f"{RATE}.warmup_steps") is None
    assert f"{RATE}.warmup_steps" in unknown_keys(fragment)


def trainer(**more: Any) -> Fragment:
    values = {"per_device_train_batch_size": 2, "max_steps": 1000, "learning_rate": 1e-4, "bf16": True, **more}
    return read("args.yaml", yaml.safe_dump(values))


COUNTED = {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 2}


@pytest.mark.parametrize(
    ("more", "is_known"),
    [
        ({"model_max_length": 2048}, False),
        ({"max_length": 2048, "packing": False}, False),
        ({"cutoff_len": 2048, "stage": "sft", "finetuning_type": "full", "template": "llama3"}, False),
        ({"max_length": 2048, "packing": True}, True),
        ({"max_seq_length": 2048, "pad_to_max_length": True}, True),
        ({"block_size": 2048}, True),
        ({"cutoff_len": 2048, "stage": "pt", "finetuning_type": "full", "template": "llama3"}, True),
        ({"cutoff_len": 2048, "stage": "pt", "packing": False, "finetuning_type": "full", "template": "llama3"}, False),
    ],
)
def test_tokens_follow_from_the_length_of_sequences_and_not_from_a_bound(more: dict[str, Any], is_known: bool) -> None:
    text = " ".join(f"--{key} {value}" for key, value in {**COUNTED, **more, "max_steps": 10, "bf16": True}.items())
    fragment = read("run.sh", f"torchrun --nproc_per_node 8 train.py {text}\n")
    assert dotted(fragment, "model.sequence_length") == 2048
    assert dotted(fragment, "batch.global_sequences") == 64
    assert dotted(fragment, "batch.global_tokens") == (64 * 2048 if is_known else None)
    assert ("samples differ" in how(fragment, "model.sequence_length")) != is_known
    assert ("batch.global_tokens" in unknown_keys(fragment)) != is_known


TRAINER: list[tuple[dict[str, Any], str, Any]] = [
    ({"lr_scheduler_type": "linear"}, f"{RATE}.kind", "linear"),
    ({"lr_scheduler_type": "constant_with_warmup"}, f"{RATE}.kind", "constant"),
    ({"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-5}}, f"{RATE}.final", 1e-5),
    (
        {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
        f"{RATE}.kind",
        "cosine",
    ),
    ({"lr_scheduler_type": "polynomial"}, f"{RATE}.kind", "polynomial"),
    ({"lr_scheduler_type": "inverse_sqrt"}, f"{RATE}.kind", "inverse-square-root"),
    ({"lr_scheduler_type": "warmup_stable_decay"}, f"{RATE}.kind", "warmup-stable-decay"),
    ({"lr_scheduler_type": "reduce_lr_on_plateau"}, f"{RATE}.kind", "other"),
    ({"warmup_steps": 50}, f"{RATE}.warmup_steps", 50),
    ({"warmup_steps": 0.05}, f"{RATE}.warmup_steps", 50),
    ({"warmup_ratio": 0.0101}, f"{RATE}.warmup_steps", 11),
    ({"max_grad_norm": 0}, "optimizer.clipping", None),
    ({"optim": "adamw_torch"}, "optimizer.name", "adamw"),
    ({"optim": "adamw_bnb_8bit"}, "precision.optimizer_state", "int8"),
    ({"optim": "lion_8bit"}, "precision.optimizer_state", "int8"),
    ({"optim": "paged_lion_8bit"}, "optimizer.name", "lion"),
    ({"optim": "lion_32bit"}, "precision.num_optimizer_moments", 1),
    ({"optim": "adagrad"}, "optimizer.name", "other"),
    ({"optim": "sgd"}, "precision.num_optimizer_moments", 1),
    ({"fsdp": "shard_grad_op auto_wrap"}, "parallelism.sharding", "gradients"),
    ({"fsdp": "no_shard"}, "parallelism.sharding", "none"),
    ({"fsdp": "hybrid_shard auto_wrap"}, "parallelism.sharding", "parameters"),
    ({"fsdp": "hybrid_shard_zero2"}, "parallelism.sharding", "gradients"),
    ({"dataloader_num_workers": 4, "dataloader_prefetch_factor": 2}, "memory.prefetch_depth", 2),
    ({"ddp_bucket_cap_mb": 25}, "communication.bucket_bytes", 25 * 2**20),
    ({"parallelism_config": {"tp_size": 4}}, "parallelism.tensor", 4),
    ({"parallelism_config": {"cp_size": 2}}, "parallelism.context", 2),
    ({"parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 4}}, "parallelism.data", 8),
]


@pytest.mark.parametrize(("options", "key", "value"), TRAINER)
def test_options_of_the_trainer(options: dict[str, Any], key: str, value: object) -> None:
    assert dotted(trainer(**options), key) == value


TARGETS = {
    "query": ["q_proj"],
    "key": ["k_proj"],
    "value": ["v_proj"],
    "output": ["o_proj", "out_proj", "linear_proj", "attention_dense"],
    "query-key-value": ["qkv_proj", "query_key_value", "c_attn", "wqkv", "W_pack", "linear_qkv", "attention_qkv"],
    "gate": ["gate_proj"],
    "up": ["up_proj"],
    "down": ["down_proj", "linear_fc2", "mlp_fc2"],
    "gate-up": ["gate_up_proj"],
    "output-head": ["lm_head"],
    "embedding": ["embed_tokens"],
}


@pytest.mark.parametrize(("word", "module"), [(word, name) for word, names in TARGETS.items() for name in names])
def test_matrices_of_adapters(word: str, module: str) -> None:
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": [f"model.layers.0.{module}", module]}
    fragment = read("adapter_config.json", json.dumps(config))
    assert fragment.facts["lora"] == {"rank": 8, "alpha": 16.0, "targets": [word]}


def deepspeed(kind: str, **params: Any) -> Fragment:
    config = {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "scheduler": {"type": kind, "params": params},
    }
    return read("ds.json", json.dumps(config))


@pytest.mark.parametrize(
    ("kind", "params", "expected"),
    [
        ("WarmupLR", {"warmup_max_lr": 1e-3, "warmup_num_steps": 10}, ("constant", 1e-3, None, 10, None)),
        (
            "WarmupDecayLR",
            {"warmup_max_lr": 2e-3, "warmup_num_steps": 10, "total_num_steps": 100},
            ("linear", 2e-3, 0.0, 10, 100),
        ),
        (
            "WarmupCosineLR",
            {"warmup_num_steps": 10, "total_num_steps": 100, "cos_min_ratio": 0.1},
            ("cosine", 1e-3, 1e-4, 10, 100),
        ),
        ("WarmupCosineLR", {"total_num_steps": 100}, ("cosine", 1e-3, 1e-7, 1000, 100)),
        ("OneCycle", {"cycle_min_lr": 1e-4}, ("other", 1e-3, None, None, None)),
    ],
)
def test_schedulers_of_deepspeed(kind: str, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    fragment = deepspeed(kind, **params)
    keys = ("kind", "peak", "final", "warmup_steps", "total_steps")
    assert tuple(dotted(fragment, f"{RATE}.{key}") for key in keys) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "params", "peak"),
    [
        ("WarmupLR", {"warmup_num_steps": 10}, None),
        ("WarmupDecayLR", {"total_num_steps": 100}, None),
        ("OneCycle", {"cycle_min_lr": 1e-4, "cycle_max_lr": 2e-2}, 2e-2),
        ("WarmupCosineLR", {"total_num_steps": 100}, 5e-5),
    ],
)
def test_schedulers_that_set_the_rate_in_place_of_the_optimizer(
    kind: str, params: dict[str, Any], peak: float | None
) -> None:
    optimizer = {"type": "Adam", "params": {"lr": 5e-5}}
    config = {"train_batch_size": 8, "optimizer": optimizer, "scheduler": {"type": kind, "params": params}}
    assert dotted(read("ds.json", json.dumps(config)), f"{RATE}.peak") == peak


@pytest.mark.parametrize("kind", ["WarmupLR", "WarmupDecayLR", "WarmupCosineLR"])
def test_schedules_of_deepspeed_warm_up_over_two_steps_at_least(kind: str) -> None:
    none = deepspeed(kind, warmup_num_steps=0)
    assert dotted(none, f"{RATE}.warmup_steps") is None
    reasons = {entry.pointer: entry.reason for entry in none.unknown}
    assert "make 2 steps and others refuse it" in reasons["optimizer", "learning_rate", "warmup_steps"]
    assert dotted(deepspeed(kind, warmup_num_steps=1), f"{RATE}.warmup_steps") == 2
    assert dotted(deepspeed(kind, warmup_num_steps=2), f"{RATE}.warmup_steps") == 2


@pytest.mark.parametrize(("kind", "word"), [("WarmupLR", "constant"), ("WarmupDecayLR", "linear")])
def test_a_schedule_is_read_where_its_rate_is_left_open(kind: str, word: str) -> None:
    fragment = deepspeed(kind, warmup_max_lr="auto", warmup_num_steps="auto")
    assert dotted(fragment, f"{RATE}.kind") == word
    assert dotted(fragment, f"{RATE}.peak") is None
    assert dotted(fragment, f"{RATE}.warmup_steps") is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [("OneBitAdam", "adam"), ("ZeroOneAdam", "adam"), ("OneBitLamb", "other"), ("Muon", "muon"), ("Lion", "lion")],
)
def test_optimizers_of_deepspeed(kind: str, name: str) -> None:
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": kind, "params": {}}}
    assert dotted(read("ds.json", json.dumps(config)), "optimizer.name") == name


def nemo(**optim: Any) -> Fragment:
    model = {"micro_batch_size": 1, "global_batch_size": 8, "hidden_size": 64, "num_layers": 4, "optim": optim}
    config = {"trainer": {"devices": 8, "num_nodes": 1, "precision": "bf16", "max_steps": 500}, "model": model}
    return read("gpt.yaml", yaml.safe_dump(config))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CosineAnnealing", "cosine"),
        ("InverseSquareRootAnnealing", "inverse-square-root"),
        ("PolynomialDecayAnnealing", "polynomial"),
        ("PolynomialHoldDecayAnnealing", "polynomial"),
        ("SquareAnnealing", "polynomial"),
        ("WarmupAnnealing", "linear"),
        ("WarmupHoldPolicy", "other"),
    ],
)
def test_schedules_of_nemo(name: str, kind: str) -> None:
    fragment = nemo(name="distributed_fused_adam", lr=1e-4, sched={"name": name, "warmup_steps": 5, "min_lr": 1e-6})
    assert dotted(fragment, f"{RATE}.kind") == kind
    assert dotted(fragment, f"{RATE}.warmup_steps") == 5
    # The other two fall by a root, or hold the peak, until max_steps: nemo/core/optim/lr_scheduler.py of NVIDIA/NeMo.
    ends = kind not in {"inverse-square-root", "other"}
    assert dotted(fragment, f"{RATE}.final") == (pytest.approx(1e-6) if ends else None)


@pytest.mark.parametrize("name", ["distributed_fused_adam", "distributed_adam", "mcore_distributed_optim"])
def test_optimizers_of_nemo_that_run_adam(name: str) -> None:
    assert dotted(nemo(name=name, lr=1e-4), "optimizer.name") == "adamw"


def torchtitan(*lines: str) -> Fragment:
    tables: dict[str, list[str]] = {"model": ['name = "llama3"', 'flavor = "8B"'], "training": ["steps = 1000"]}
    for line in lines:
        table, setting = line.split(".", maxsplit=1)
        tables.setdefault(table, []).append(setting)
    return read("job.toml", "\n".join(f"[{name}]\n" + "\n".join(rows) for name, rows in tables.items()) + "\n")


PIPE = "parallelism.pipeline_parallel_degree = 4"
TITAN = [
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "1F1B"'), "parallelism.schedule", "1f1b"),
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "GPipe"'), "parallelism.schedule", "gpipe"),
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "Interleaved1F1B"'), "parallelism.num_virtual_stages", 2),
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "InterleavedZeroBubble"'), "parallelism.schedule", "zero-bubble"),
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "ZBVZeroBubble"'), "parallelism.schedule", "zero-bubble"),
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "DualPipeV"'), "parallelism.schedule", "dual-pipe"),
    ((PIPE, 'parallelism.pipeline_parallel_schedule = "LoopedBFS"'), "parallelism.schedule", "other"),
    (
        ("parallelism.pipeline_parallel_degree = 2", 'parallelism.pipeline_parallel_split_points = ["layers.10"]'),
        "parallelism.stage_layers",
        [10, 22],
    ),
    (("training.data_parallel_degree = 8",), "parallelism.data", 8),
    (('lr_scheduler.decay_type = "cosine"',), f"{RATE}.kind", "cosine"),
    (('lr_scheduler.decay_type = "sqrt"',), f"{RATE}.kind", "other"),
    (("optimizer.lr = 1e-3", "lr_scheduler.lr_min = 0.1"), f"{RATE}.final", 1e-4),
    (("optimizer.lr = 1e-3", "lr_scheduler.min_lr_factor = 0.1"), f"{RATE}.final", 1e-4),
    (("lr_scheduler.decay_ratio = 0.2",), f"{RATE}.decay_steps", 200),
    (('model.converters = ["mx"]',), "precision.recipe.format", "mxfp8"),
    (('model.converters = ["quantize.linear.mx"]',), "precision.recipe.block_size", 32),
]


@pytest.mark.parametrize(("lines", "key", "value"), TITAN)
def test_settings_of_torchtitan(lines: tuple[str, ...], key: str, value: object) -> None:
    assert dotted(torchtitan(*lines), key) == (pytest.approx(value) if isinstance(value, float) else value)


ACCELERATE = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 16}


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        ({"fsdp_config": {"fsdp_sharding_strategy": 1}}, "parallelism.sharding", "parameters"),
        ({"fsdp_config": {"fsdp_sharding_strategy": 2}}, "parallelism.sharding", "gradients"),
        ({"fsdp_config": {"fsdp_sharding_strategy": 3}}, "parallelism.sharding", "none"),
        ({"fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}}, "parallelism.sharding", "parameters"),
        ({"parallelism_config": {"parallelism_config_tp_size": 4}}, "parallelism.tensor", 4),
        ({"parallelism_config": {"parallelism_config_cp_size": 2}}, "parallelism.context", 2),
        ({"parallelism_config": {"parallelism_config_sp_size": 2}}, "parallelism.context", 2),
        (
            {"parallelism_config": {"parallelism_config_dp_replicate_size": 4, "parallelism_config_dp_shard_size": 4}},
            "parallelism.sharding_degree",
            4,
        ),
    ],
)
def test_settings_of_accelerate(config: dict[str, Any], key: str, value: object) -> None:
    assert dotted(read("accelerate.yaml", yaml.safe_dump({**ACCELERATE, **config})), key) == value
