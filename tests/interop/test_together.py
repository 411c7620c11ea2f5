"""Arguments of the Trainer with files of accelerate and DeepSpeed: the frameworks decide which setting counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.toolbox import command
from trainspec_validate.documents.load import load_text
from trainspec_validate.interop.fragment import ForeignText
from trainspec_validate.interop.merge import Merged
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.interop.refused import join
from trainspec_validate.interop.together import together

TRAINER = """
model_name_or_path: a/b
torch_dtype: bfloat16
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 20
save_steps: 10
learning_rate: 2.0e-5
optim: adamw_torch
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
num_machines: 1
num_processes: 8
"""
SCHEDULE = {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": 30}}
ZERO_2 = {
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}


def joined(files: Mapping[str, str]) -> Merged:
    """The plan of several files; the same in whatever order they come."""
    plans = []
    for names in permutations(files):
        texts = [ForeignText(name, files[name]) for name in names]
        plans.append(join(together([(recognise(text).read(text), text) for text in texts])))
    assert all(plan.facts == plans[0].facts for plan in plans)
    return plans[0]


def trainer(*lines: str) -> str:
    return TRAINER + "\n".join(lines) + "\n"


def accelerate(*lines: str) -> str:
    return ACCELERATE + "\n".join(lines) + "\n"


def why(plan: Merged, *place: str) -> str:
    return next(entry.reason for entry in plan.unknown if entry.pointer == place)


def test_deepspeed_steps_on_a_copy_of_weights_that_are_loaded_in_bf16() -> None:
    plan = joined({"args.yaml": trainer("bf16: true", "deepspeed: ds.json"), "ds.json": json.dumps(ZERO_2)})
    precision = plan.facts["precision"]
    assert (precision["compute"], precision["parameters"], precision["gradients"]) == ("bf16", "bf16", "bf16")
    assert (precision["master_parameters"], precision["optimizer_state"]) == ("fp32", "fp32")
    assert "high_precision_operations" not in precision
    assert plan.facts["parallelism"]["sharding"] == "gradients"
    assert plan.facts["batch"] == {"micro_sequences": 2, "accumulation_steps": 4}
    assert plan.facts["optimizer"]["clipping"]["threshold"] == 1.0
    assert plan.facts["optimizer"]["learning_rate"]["kind"] == "linear"


def test_deepspeed_inside_accelerate_steps_on_a_copy_too() -> None:
    inline = ("distributed_type: DEEPSPEED", "mixed_precision: bf16", "deepspeed_config:", "  zero_stage: 3")
    plan = joined({"args.yaml": trainer("bf16: true"), "accelerate.yaml": accelerate(*inline)})
    precision = plan.facts["precision"]
    assert (precision["parameters"], precision["master_parameters"], precision["optimizer_state"]) == (
        "bf16",
        "fp32",
        "fp32",
    )
    assert plan.facts["parallelism"] == {"num_accelerators": 8, "data": 8, "sharding": "parameters"}
    assert plan.facts["batch"]["global_sequences"] == 64


@pytest.mark.parametrize(
    ("switch", "word", "compute"),
    [
        ("bf16: true", "'no'", "bf16"),
        ("bf16: true", "fp16", "bf16"),
        ("fp16: true", "bf16", "fp16"),
        ("bf16: false", "bf16", "bf16"),
        ("seed: 1", "fp16", "fp16"),
        ("bf16: false", "'no'", "fp32"),
    ],
)
def test_a_format_of_the_trainer_goes_before_the_one_of_accelerate(switch: str, word: str, compute: str) -> None:
    said = TRAINER.replace("torch_dtype: bfloat16", "torch_dtype: float32") + switch + "\n"
    configuration = accelerate("distributed_type: MULTI_GPU", f"mixed_precision: {word}")
    plan = joined({"args.yaml": said, "accelerate.yaml": configuration})
    precision = plan.facts["precision"]
    assert (precision["compute"], precision["parameters"]) == (compute, "fp32")
    assert plan.facts["parallelism"]["sharding"] == "none"


def test_fsdp_of_accelerate_shards_what_the_trainer_casts() -> None:
    plan = joined(
        {
            "args.yaml": trainer("bf16: true"),
            "accelerate.yaml": accelerate("distributed_type: FSDP", "mixed_precision: 'no'"),
        }
    )
    precision = plan.facts["precision"]
    assert plan.facts["parallelism"]["sharding"] == "parameters"
    assert (precision["parameters"], precision["master_parameters"], precision["optimizer_state"]) == (
        "bf16",
        "fp32",
        "fp32",
    )


def test_settings_that_transformers_refuses_together_stay_open() -> None:
    config = ZERO_2 | {"gradient_clipping": 0.3, "gradient_accumulation_steps": 8, "bf16": {"enabled": False}}
    arguments = trainer("bf16: true", "max_grad_norm: 1.0", "deepspeed: ds.json")
    plan = joined({"args.yaml": arguments, "ds.json": json.dumps(config)})
    assert "accumulation_steps" not in plan.facts["batch"]
    assert "clipping" not in plan.facts["optimizer"]
    assert "compute" not in plan.facts.get("precision", {})
    assert "is 4 and gradient_accumulation_steps of DeepSpeed is 8" in why(plan, "batch", "accumulation_steps")
    assert "is 1.0 and gradient_clipping of DeepSpeed is 0.3" in why(plan, "optimizer", "clipping")


def test_two_kinds_of_sharding_stay_open() -> None:
    plan = joined(
        {
            "args.yaml": trainer("bf16: true", "fsdp: shard_grad_op"),
            "accelerate.yaml": accelerate("distributed_type: FSDP", "mixed_precision: bf16"),
        }
    )
    assert "sharding" not in plan.facts["parallelism"]
    told = "gradients by the arguments of the Trainer, parameters by the configuration of accelerate"
    assert why(plan, "parallelism", "sharding") == told


def test_a_schedule_of_deepspeed_goes_before_the_one_of_the_trainer() -> None:
    arguments = trainer("bf16: true", "lr_scheduler_type: cosine", "warmup_steps: 5", "deepspeed: ds.json")
    config = ZERO_2 | {"scheduler": SCHEDULE}
    plan = joined({"args.yaml": arguments, "ds.json": json.dumps(config)})
    rate = plan.facts["optimizer"]["learning_rate"]
    assert (rate["kind"], rate["peak"], rate["warmup_steps"]) == ("constant", 2e-5, 30)


def test_a_file_that_the_arguments_do_not_name_is_not_laid_over_them() -> None:
    arguments = trainer("bf16: true", "deepspeed: zero3.json")
    plan = joined({"args.yaml": arguments, "other.json": json.dumps(ZERO_2)})
    assert "zero3.json" in " ".join(entry.reason for entry in plan.unknown)


def test_a_script_with_the_file_that_it_names() -> None:
    words = "--model_name_or_path a/b --per_device_train_batch_size 2 --bf16 True --do_train True --save_steps 10"
    script = f"deepspeed --num_gpus 8 train.py --deepspeed conf/ds.json {words} --torch_dtype bfloat16\n"
    plan = joined({"run.sh": script, "ds.json": json.dumps(ZERO_2)})
    precision = plan.facts["precision"]
    assert (precision["master_parameters"], precision["optimizer_state"]) == ("fp32", "fp32")
    assert plan.facts["parallelism"]["sharding"] == "gradients"


def test_the_command_reads_the_files_together(tmp_path: Path) -> None:
    (tmp_path / "args.yaml").write_text(trainer("bf16: true"), encoding="utf-8")
    told = accelerate("distributed_type: DEEPSPEED", "mixed_precision: 'no'", "deepspeed_config: {zero_stage: 2}")
    (tmp_path / "accelerate.yaml").write_text(told, encoding="utf-8")
    names = [str(tmp_path / name) for name in ("accelerate.yaml", "args.yaml")]
    done = CliRunner().invoke(command, ["import", *names, "--name", "x"])
    assert done.exit_code == 0, done.output
    plan: Any = load_text(done.stdout.encode(), "plan.yaml").data
    assert plan["precision"]["optimizer_state"] == "fp32"
    assert plan["parallelism"]["sharding"] == "gradients"


@pytest.mark.parametrize(("name", "known"), [("models/9b.sh", True), ("models/other.sh", False)])
def test_a_file_that_a_script_reads_in_and_that_is_given_is_not_called_unread(name: str, *, known: bool) -> None:
    script = (
        'source "${HERE}/models/9b.sh"\n'
        "torchrun train.py ${MODEL_ARGS[@]} --micro-batch-size 1 --global-batch-size 8 --train-iters 5\n"
    )
    listed = "MODEL_ARGS=(\n  --num-layers 4\n  --hidden-size 64\n  --num-attention-heads 4\n)\n"
    texts = [ForeignText("run.sh", script), ForeignText(name, listed)]
    fragments = together([(recognise(text).read(text), text) for text in texts])
    told = [remark.message for remark in fragments[0].remarks if remark.message.startswith("the script reads in")]
    how = "which is read as a file of its own" if known else "which is not read"
    assert told == [f"the script reads in ${{HERE}}/models/9b.sh, {how}"]


AXOLOTL = """
base_model: a/b
micro_batch_size: 2
sequence_len: 512
max_steps: 100
warmup_steps: 10
optimizer: adamw_torch
lr_scheduler: cosine
learning_rate: 2.0e-4
deepspeed: configs/ds.json
"""


def of_axolotl(settings: Mapping[str, Any], *lines: str) -> Merged:
    return joined({"job.yml": AXOLOTL + "\n".join(lines) + "\n", "ds.json": json.dumps(settings)})


def test_axolotl_is_read_with_the_file_of_deepspeed_that_it_names() -> None:
    plan = of_axolotl({**ZERO_2, "bf16": {"enabled": True}}, "bf16: auto", "max_grad_norm: 0.5")
    assert plan.facts["optimizer"]["name"] == "adamw"
    assert plan.facts["optimizer"]["learning_rate"]["kind"] == "cosine"
    assert plan.facts["optimizer"]["clipping"]["threshold"] == 0.5
    assert plan.facts["parallelism"]["sharding"] == "gradients"
    assert plan.facts["precision"]["compute"] == "bf16"
    assert plan.facts["batch"] == {"micro_sequences": 2, "accumulation_steps": 1}
    assert not any("which is not read" in entry.reason for entry in plan.unknown)
    assert not any("which is not read" in str(remark) for remark in plan.remarks)


def test_what_axolotl_and_deepspeed_state_differently_is_open() -> None:
    adam = {"type": "AdamW", "params": {"lr": 1e-5}}
    plan = of_axolotl({**ZERO_2, "optimizer": adam, "gradient_clipping": 0.5}, "bf16: true", "max_grad_norm: 0")
    assert "peak" not in plan.facts["optimizer"].get("learning_rate", {})
    assert "clipping" not in plan.facts["optimizer"]
    assert "learning_rate is 0.0002 and optimizer.params.lr of DeepSpeed is 1e-05" in why(
        plan, "optimizer", "learning_rate", "peak"
    )
    assert "max_grad_norm is 0 and gradient_clipping of DeepSpeed is 0.5" in why(plan, "optimizer", "clipping")
    told = " ".join(str(remark) for remark in plan.remarks)
    assert "not clipped" not in told


def test_the_micro_batch_of_axolotl_fills_in_deepspeed() -> None:
    plan = of_axolotl({**ZERO_2, "train_micro_batch_size_per_gpu": 4}, "bf16: true")
    assert "micro_sequences" not in plan.facts["batch"]
    assert of_axolotl(ZERO_2, "bf16: true").facts["batch"]["micro_sequences"] == 2


def test_an_argument_that_filled_in_deepspeed_is_not_called_unread() -> None:
    inline = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3"
    plan = joined({"args.yaml": trainer("bf16: true", "max_grad_norm: 0.2"), "acc.yaml": accelerate(inline)})
    assert plan.facts["optimizer"]["clipping"]["threshold"] == 0.2
    assert not any("max_grad_norm" in str(remark) for remark in plan.remarks)
