"""Configurations of frameworks that look like those of a supported one are named as what they are, and not read."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.recognise import formats, recognise

AUTOMODEL = """\
step_scheduler:
  global_batch_size: 128
  local_batch_size: 4
dist_env: {backend: nccl}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-4B-Base
distributed: {strategy: fsdp2, tp_size: 1, cp_size: 1}
"""
EASY_R1 = """\
data: {train_files: math@train, rollout_batch_size: 512}
algorithm: {adv_estimator: grpo}
worker:
  actor:
    global_batch_size: 128
    micro_batch_size_per_device_for_update: 1
    micro_batch_size_per_device_for_experience: 2
    fsdp: {enable_full_shard: true}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""
ROLL = """\
exp_name: agentic
max_steps: 500
rollout_batch_size: 128
pretrain: Qwen/Qwen2.5-7B
actor_train:
  model_args: {dtype: bf16}
  training_args:
    learning_rate: 1.0e-6
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 64
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 2}
  device_mapping: list(range(0,8))
"""
LINGUA = """\
name: debug
steps: 1000
optim: {lr: 3e-4, warmup: 2000}
distributed:
    fsdp_type: full_shard
    model_dtype: bf16
    tp_size: 1
model: {dim: 1024, n_layers: 8, n_heads: 8}
data: {batch_size: 32, seq_len: 2048}
"""
TRLX = """\
train:
  seq_length: 64
  batch_size: 16
  pipeline: PromptPipeline
  trainer: AcceleratePPOTrainer
model: {model_path: gpt2, num_layers_unfrozen: 2}
optimizer: {name: adamw, kwargs: {lr: 1.4e-4}}
method: {name: ppoconfig, num_rollouts: 128}
"""
PICOTRON = """\
{
  "distributed": {"tp_size": 1, "cp_size": 1, "pp_size": 1, "dp_size": 8, "pp_engine": "1f1b"},
  "model": {"name": "SmolLM", "num_hidden_layers": 16, "num_attention_heads": 16},
  "training": {"learning_rate": 3e-4, "seq_length": 1024, "micro_batch_size": 32}
}
"""
STRANGERS = {
    "NeMo Automodel": (AUTOMODEL, AUTOMODEL.replace("nemo_automodel.", "")),
    "EasyR1": (
        EASY_R1,
        "python3 -m verl.trainer.main config=a.yaml worker.actor.model.model_path=Qwen trainer.nnodes=2\n",
    ),
    "ROLL": (ROLL, ROLL.replace("strategy_args:\n", "strategy_args:  # of Megatron\n")),
    "Lingua": (LINGUA,),
    "trlX": (TRLX,),
    "Picotron": (PICOTRON,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(STRANGERS))
def test_a_configuration_of_another_framework_is_named(name: str) -> None:
    for text in STRANGERS[name]:
        source = ForeignText("config", text)
        assert [entry.name for entry in formats().values() if entry.looks_like(source)] == []
        with pytest.raises(ForeignFormatError) as raised:
            recognise(source)
        assert str(raised.value) == "fits no known format"
        assert name in (raised.value.help or "")
        assert "no reader knows" in (raised.value.help or "")
