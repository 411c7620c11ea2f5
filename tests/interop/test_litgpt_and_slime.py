"""Configurations of LitGPT and the rollouts of slime become plans; what their programs decide stays open."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import litgpt, megatron
from trainspec_validate.interop.recognise import recognise

TUNED = """\
checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3.1-8B
precision: bf16-true
quantize:
devices: 1
num_nodes: 1
lora_r: 32
lora_alpha: 16
lora_query: true
lora_key: false
lora_value: true
lora_projection: false
lora_mlp: false
lora_head: false
train:
  save_interval: 200
  global_batch_size: 8
  micro_batch_size: 1
  lr_warmup_steps: 10
  epochs: 2
  max_seq_length: 512
  min_lr: 6.0e-05
seed: 1337
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 0.0002
"""
TRAINED = """\
model_name: tiny-llama-1.1b
precision: bf16-mixed
devices: 8
num_nodes: 1
train:
  global_batch_size: 512
  micro_batch_size: 4
  lr_warmup_steps: 2000
  max_tokens: 3000000000000
  max_seq_length: 2048
  max_norm: 1.0
  min_lr: 4.0e-05
optimizer: AdamW
"""


def at(fragment: Fragment, key: str) -> Any:
    place: Any = fragment.facts
    for part in key.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place


def litgpt_of(text: str) -> Fragment:
    found = ForeignText("a.yaml", text)
    assert recognise(found).name == "litgpt-yaml"
    return litgpt.read(found)


def test_a_fine_tuning_is_read() -> None:
    fragment = litgpt_of(TUNED)
    wanted = {
        "batch.global_sequences": 8,
        "batch.micro_sequences": 1,
        "batch.accumulation_steps": 8,
        "parallelism.num_accelerators": 1,
        "parallelism.sharding": "none",
        "model.sequence_length": None,
        "lora.rank": 32,
        "lora.alpha": 16.0,
        "lora.targets": ["query", "value"],
        "job.seed": 1337,
        "optimizer.name": "adamw",
        "optimizer.learning_rate.peak": 0.0002,
        "optimizer.learning_rate.final": None,
        "optimizer.learning_rate.warmup_steps": 10,
        "precision.compute": "bf16",
        "precision.parameters": "bf16",
        "job.num_steps": None,
        "model.name": "Meta-Llama-3.1-8B",
    }
    assert {key: at(fragment, key) for key in wanted} == wanted


def test_a_pre_training_is_read() -> None:
    fragment = litgpt_of(TRAINED)
    wanted = {
        "model.sequence_length": 2048,
        "parallelism.data": 8,
        "batch.accumulation_steps": 16,
        "job.num_tokens": 3_000_000_000_000,
        "optimizer.clipping.threshold": 1.0,
        "optimizer.name": "adamw",
        "precision.compute": "bf16",
        "precision.parameters": "fp32",
        "parallelism.sharding": None,
    }
    assert {key: at(fragment, key) for key in wanted} == wanted
    rated = litgpt_of(TRAINED + "learning_rate: 0.0004\n")
    assert at(rated, "optimizer.learning_rate.final") == 4e-05


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("devices: 8", "devices: auto", "parallelism.num_accelerators"),
        ("num_nodes: 1", "num_nodes: 2", "batch.global_sequences"),
        ("precision: bf16-mixed", "precision: transformer-engine", "precision.compute"),
    ],
)
def test_what_the_program_decides_stays_open(old: str, new: str, key: str) -> None:
    assert at(litgpt_of(TRAINED), key) is not None
    assert at(litgpt_of(TRAINED.replace(old, new)), key) is None


def test_adapters_on_feed_forward_layers_leave_their_matrices_open() -> None:
    assert at(litgpt_of(TUNED.replace("lora_mlp: false", "lora_mlp: true")), "lora.targets") is None


SLIME = (
    "ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 4 {} --num-rollout 3000"
    " --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 128 --tensor-model-parallel-size 2"
    " --pipeline-model-parallel-size 1 --context-parallel-size 2 --lr 1e-6 --sequence-parallel\n"
)


def test_rollouts_of_slime_are_read() -> None:
    fragment = megatron.read(ForeignText("run.sh", SLIME.format("--rollout-num-gpus 4")))
    assert fragment.facts["rollout"] == {
        "num_prompts": 32,
        "num_responses_per_prompt": 8,
        "num_updates": 2,
        "num_accelerators": 4,
    }
    assert at(fragment, "job.num_steps") == 6000
    shared = megatron.read(ForeignText("run.sh", SLIME.format("--colocate")))
    assert "num_accelerators" not in shared.facts["rollout"]
    uneven = SLIME.format("--colocate").replace("size 128", "size 100")
    assert at(megatron.read(ForeignText("run.sh", uneven)), "rollout.num_updates") is None
