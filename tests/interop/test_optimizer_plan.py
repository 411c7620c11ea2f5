"""Optimizers, clipping, schedules and adapters of launch configurations become sections of a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

TRAINER = """\
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 2.0e-4
lr_scheduler_type: cosine
warmup_ratio: 0.1
max_steps: 1000
max_grad_norm: 0.3
optim: paged_adamw_8bit
bf16: true
use_peft: true
lora_r: 16
lora_alpha: 32
lora_target_modules: [q_proj, v_proj]
"""
DEEPSPEED = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.5,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "OneBitAdam", "params": {"lr": 3e-4}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 3e-4, "warmup_num_steps": 100}},
}
TORCHTITAN = """\
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[lr_scheduler]
warmup_steps = 200
decay_ratio = 0.8
min_lr_factor = 0.1
[training]
local_batch_size = 1
max_norm = 1.0
steps = 1000
[parallelism]
tensor_parallel_degree = 1
"""
NEMO = """\
trainer: {devices: 8, num_nodes: 1, precision: bf16, max_steps: 500, gradient_clip_val: 1.0}
model:
  micro_batch_size: 1
  global_batch_size: 8
  hidden_size: 4096
  peft:
    peft_scheme: lora
    lora_tuning: {adapter_dim: 32, alpha: 64, target_modules: [attention_qkv]}
  optim:
    name: distributed_fused_adam
    lr: 1.0e-4
    sched: {name: CosineAnnealing, warmup_steps: 50, min_lr: 1.0e-5}
"""
MEGATRON = """\
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --micro-batch-size 1 --global-batch-size 64 --bf16 --train-iters 1000 --lr 3e-4 --min-lr 3e-5 \\
  --lr-decay-style WSD --lr-wsd-decay-iters 200 --lr-warmup-fraction 0.01 --clip-grad 2.0 --optimizer muon
"""


def read(name: str, text: str) -> Fragment:
    source = ForeignText(name, text)
    return recognise(source).read(source)


def section(fragment: Fragment, name: str = "optimizer") -> Any:
    return fragment.facts.get(name)


def unknown(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}


def clipped(threshold: float) -> dict[str, Any]:
    return {"kind": "global-norm", "threshold": threshold}


def test_arguments_of_the_trainer() -> None:
    found = read("args.yaml", TRAINER)
    rate = {"kind": "cosine", "peak": 2e-4, "final": 0.0, "warmup_steps": 100}
    assert section(found) == {"name": "adamw", "clipping": clipped(0.3), "learning_rate": rate}
    assert section(found, "lora") == {"rank": 16, "targets": ["query", "value"], "alpha": 32.0}


def test_the_trainer_has_defaults_that_another_file_goes_before() -> None:
    found = read("args.yaml", "per_device_train_batch_size: 2\nbf16: true\n")
    rate = {"kind": "linear", "peak": 5e-5, "final": 0.0}
    assert section(found) == {"name": "adamw", "clipping": clipped(1.0), "learning_rate": rate}
    assert {("optimizer", "name"), ("optimizer", "learning_rate", "peak")} <= found.defaults


def test_a_share_of_an_unknown_number_of_steps_is_unknown() -> None:
    found = read("args.yaml", TRAINER.replace("max_steps: 1000\n", "num_train_epochs: 3\n"))
    assert "warmup_steps" not in section(found)["learning_rate"]
    assert "whose number is not stated" in unknown(found)["optimizer.learning_rate.warmup_steps"]


def test_matrices_that_only_a_program_names_are_unknown() -> None:
    found = read("args.yaml", TRAINER.replace("[q_proj, v_proj]", "all-linear"))
    assert section(found, "lora") == {"rank": 16, "alpha": 32.0}
    assert "'all-linear'" in unknown(found)["lora.targets"]


def test_adapters_that_are_off_are_none() -> None:
    assert section(read("args.yaml", TRAINER.replace("use_peft: true", "use_peft: false")), "lora") is None


def test_deepspeed() -> None:
    found = read("ds.json", json.dumps(DEEPSPEED))
    rate = {"kind": "linear", "peak": 3e-4, "warmup_steps": 100, "final": 0.0}
    assert section(found) == {"name": "adam", "clipping": clipped(0.5), "learning_rate": rate}


@pytest.mark.parametrize(
    ("kind", "parameters", "name"),
    [
        ("Adam", {}, "adamw"),
        ("Adam", {"adam_w_mode": True, "torch_adam": True}, "adamw"),
        ("Adam", {"adam_w_mode": False}, "adam"),
        ("AdamW", {"adam_w_mode": False}, "adamw"),
    ],
)
def test_adam_of_deepspeed_decouples_weight_decay_unless_told(
    kind: str, parameters: dict[str, bool], name: str
) -> None:
    optimizer = {"type": kind, "params": {"lr": 3e-4, **parameters}}
    found = read("ds.json", json.dumps({**DEEPSPEED, "optimizer": optimizer}))
    assert section(found)["name"] == name


def test_what_a_configuration_of_deepspeed_leaves_to_the_program_is_unknown() -> None:
    rest = {key: value for key, value in DEEPSPEED.items() if key not in {"optimizer", "scheduler"}}
    found = read("ds.json", json.dumps({**rest, "gradient_clipping": "auto"}))
    assert section(found) is None
    assert {"optimizer.name", "optimizer.clipping", "optimizer.learning_rate"} <= unknown(found).keys()


def test_torchtitan() -> None:
    rate = {"kind": "linear", "peak": 3e-4, "warmup_steps": 200}
    rate |= {"final": pytest.approx(3e-5), "total_steps": 1000}
    wanted = {"name": "adamw", "clipping": clipped(1.0), "learning_rate": rate}
    assert section(read("job.toml", TORCHTITAN)) == wanted


def test_nemo() -> None:
    found = read("nemo.yaml", NEMO)
    rate = {"kind": "cosine", "peak": 1e-4, "warmup_steps": 50, "final": 1e-5}
    assert section(found) == {"name": "adamw", "clipping": clipped(1.0), "learning_rate": rate}
    assert section(found, "lora") == {"rank": 32, "alpha": 64.0, "targets": ["query-key-value"]}


def test_megatron() -> None:
    rate = {"kind": "warmup-stable-decay", "peak": 3e-4, "final": 3e-5, "total_steps": 1000}
    rate |= {"warmup_steps": 10, "decay_steps": 200}
    wanted = {"name": "muon", "clipping": clipped(2.0), "learning_rate": rate}
    assert section(read("train.sh", MEGATRON)) == wanted


def test_a_rate_that_depends_on_a_branch_is_unknown() -> None:
    branch = "if [ $SIZE = 8b ]; then LR=3e-4; else LR=1e-4; fi\n"
    found = read("train.sh", branch + MEGATRON.replace("--lr 3e-4", "--lr $LR"))
    assert "peak" not in section(found).get("learning_rate", {})
    [reason] = [why for key, why in unknown(found).items() if key.startswith("optimizer.learning_rate")]
    assert "0.0003" in reason
    assert "0.0001" in reason


def test_a_configuration_of_peft() -> None:
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "gate_proj"]}
    found = read("adapter_config.json", json.dumps({**config, "base_model_name_or_path": "org/model"}))
    assert section(found, "lora") == {"rank": 8, "alpha": 16.0, "targets": ["gate", "query"]}
    with pytest.raises(ForeignFormatError, match="IA3"):
        read("adapter_config.json", json.dumps({**config, "peft_type": "IA3"}))


@pytest.mark.parametrize(
    ("style", "final"),
    [("linear", 1e-5), ("cosine", 1e-5), ("constant", None), ("inverse-square-root", None), ("exponential", None)],
)
def test_the_least_rate_is_the_last_one_only_where_the_decay_ends_there(style: str, final: float | None) -> None:
    shape = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1"
    rate = f"--lr 1e-4 --min-lr 1e-5 --lr-decay-style {style} --train-iters 100"
    megatron = f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} --global-batch-size 16 {rate}\n"
    neox = '{"num_layers": 4, "hidden_size": 64, "pipe_parallel_size": 1, "train_iters": 100, "pos_emb": "rotary",'
    neox += f'"min_lr": 1.0e-5, "lr_decay_style": "{style}", "train_batch_size": 8,'
    neox += '"optimizer": {"type": "Adam", "params": {"lr": 1.0e-4}}}\n'
    for name, text in (("run.sh", megatron), ("a.yml", neox.replace(",", ",\n").replace("{", "{\n"))):
        given = ForeignText(name, text)
        fragment = recognise(given).read(given)
        schedule = fragment.facts["optimizer"]["learning_rate"]
        assert schedule["peak"] == 1e-4
        assert schedule.get("final") == final
        is_open = ("optimizer", "learning_rate", "final") in {entry.pointer for entry in fragment.unknown}
        assert is_open is (style in {"inverse-square-root", "exponential"})


def test_a_share_of_steps_is_open_where_their_number_is_after_all() -> None:
    options = "--train-iters 1000 --lr 3e-4 --lr-warmup-fraction 0.1"
    whole = f"python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 {options}"
    told = read("run.sh", f"{whole}\n")
    assert section(told)["learning_rate"]["warmup_steps"] == 100
    left = read("run.sh", f"{whole} $EXTRA_ARGS\n")
    keys = {"optimizer.learning_rate.total_steps", "optimizer.learning_rate.warmup_steps"}
    assert keys <= unknown(left).keys()
