"""Configurations of nanotron and of the OLMo trainer, whose shapes and schedules follow from their own code."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import torchtune
from trainspec_validate.interop.recognise import recognise

NANOTRON = """general: {project: demo, run: demo-1, seed: 42, step: null}
model:
  dtype: bfloat16
  make_vocab_size_divisible_by: 1
  model_config: {is_llama_config: true, hidden_size: 2048, intermediate_size: 8192, num_attention_heads: 32,
    num_hidden_layers: 24, num_key_value_heads: 32, tie_word_embeddings: true, vocab_size: 49153}
optimizer:
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler: {learning_rate: 0.0005, lr_decay_starting_step: 1600, lr_decay_steps: 400,
    lr_decay_style: 1-sqrt, lr_warmup_steps: 200, lr_warmup_style: linear, min_decay_lr: 0}
  optimizer_factory: {name: adamW}
  zero_stage: 1
parallelism:
  dp: 8
  pp: 2
  tp: 2
  pp_engine: 1f1b
  tp_mode: REDUCE_SCATTER
tokens:
  batch_accumulation_per_replica: 2
  micro_batch_size: 4
  sequence_length: 2048
  train_steps: 2000
"""
"""Groups and names as in examples/config_tiny_llama.yaml of huggingface/nanotron."""
OLMO = """run_name: peteish7
seed: 6198
model:
  d_model: 4096
  n_heads: 32
  n_layers: 32
  mlp_hidden_size: 22016
  weight_tying: false
  rope: true
  include_bias: false
  block_type: sequential
  layer_norm_type: rms
  layer_norm_with_affine: true
  bias_for_layer_norm: false
  attention_layer_norm: true
  activation_type: swiglu
  max_sequence_length: 4096
  vocab_size: 100278
  embedding_size: 100352
optimizer: {name: adamw, learning_rate: 3.0e-4}
scheduler: {name: cosine_with_warmup, units: tokens, t_warmup: 8388608000, t_max: 5e12, alpha_f: 0.1}
load_path: null
max_duration: 4e12T
global_train_batch_size: 1024
device_train_microbatch_size: 2
precision: amp_bf16
fsdp: {precision: mixed}
activation_checkpointing: null
max_grad_norm: 1.0
"""
"""OLMo 2 7B, whose weights have 7,298,617,344 parameters: configs/official-1124/OLMo2-7B-stage1.yaml."""


def told(text: str) -> dict[str, Any]:
    return flat(read(text).facts)


def read(text: str) -> Fragment:
    given = ForeignText("job.yaml", text)
    return recognise(given).read(given)


def flat(facts: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in facts.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def test_a_job_of_nanotron() -> None:
    facts = told(NANOTRON)
    wanted = {
        "model.vocabulary_size": 49154,  # padded to a multiple of the tensor degree
        "model.gated_ffn": True,
        "parallelism.num_accelerators": 32,
        "parallelism.schedule": "1f1b",
        "parallelism.sequence": True,
        "parallelism.sharding": "optimizer",
        "batch.global_sequences": 64,
        "precision.master_parameters": "fp32",
        "optimizer.name": "adamw",
        "optimizer.learning_rate.kind": "warmup-stable-decay",
        "optimizer.learning_rate.warmup_steps": 200,
        "optimizer.learning_rate.decay_steps": 400,
        "optimizer.learning_rate.total_steps": 2000,
        "job.num_tokens": 2000 * 64 * 2048,
    }
    assert {key: facts.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("old", "new", "open_keys"),
    [
        ("  tp: 2\n", "  tp: 2\n  expert_parallel_size: 2\n", ("parallelism.num_accelerators", "parallelism.data")),
        (
            "is_llama_config: true",
            "is_llama_config: true, moe_num_experts: 4",
            ("model.family", "model.num_parameters"),
        ),
        ("is_llama_config: true, ", "", ("model.family", "model.gated_ffn")),
        ("general:", "infini_attention: {segment_length: 64}\ngeneral:", ("model.attention", "model.num_parameters")),
        ("  dtype", "  init_method: {use_mup: true}\n  dtype", ("optimizer.learning_rate.peak",)),
        ("zero_stage: 1", "zero_stage: 3", ("parallelism.sharding",)),
        ("lr_decay_steps: 400", "lr_decay_steps: soon", ("optimizer.learning_rate.kind",)),
    ],
)
def test_what_a_job_of_nanotron_does_not_decide_stays_open(old: str, new: str, open_keys: tuple[str, ...]) -> None:
    assert old in NANOTRON
    facts = told(NANOTRON.replace(old, new))
    assert not set(open_keys) & facts.keys()


def test_a_decay_without_steps_fills_the_job_of_nanotron() -> None:
    text = NANOTRON.replace("lr_decay_steps: 400", "lr_decay_steps: null").replace(
        "starting_step: 1600", "starting_step: null"
    )
    facts = told(text.replace("1-sqrt", "cosine"))
    assert facts["optimizer.learning_rate.kind"] == "cosine"
    assert facts["optimizer.learning_rate.total_steps"] == 2000


def test_a_setting_that_says_what_its_default_says_is_needed() -> None:
    text = NANOTRON.replace("lr_decay_steps: 400", "lr_decay_steps: 1800").replace(
        "starting_step: 1600", "starting_step: null"
    )
    text = text.replace("  tp: 2\n", "  tp: 2\n  expert_parallel_size: 1\n").replace("1-sqrt", "cosine")
    assert all(setting in text for setting in ("lr_decay_steps: 1800", "expert_parallel_size: 1"))
    idle = [one.message for one in read(text).remarks if "no value of the plan follows" in one.message]
    assert not [one for one in idle if "lr_" in one or "expert_parallel_size" in one], idle


def test_a_job_of_olmo() -> None:
    facts = told(OLMO)
    wanted = {
        "model.num_parameters": 7_298_617_344,
        "model.ffn_hidden_size": 11008,
        "model.vocabulary_size": 100352,
        "parallelism.sharding": "parameters",
        "batch.global_sequences": 1024,
        "batch.global_tokens": 4194304,
        "batch.micro_sequences": 2,
        "precision.reduction": "fp32",
        "optimizer.learning_rate.final": 3e-05,
        "optimizer.learning_rate.warmup_tokens": 8388608000,
        "optimizer.learning_rate.total_tokens": 5e12,
        "memory.activation_policy": "none",
        "job.num_tokens": 4e12,
    }
    assert {key: facts.get(key) for key in wanted} == wanted
    assert not {"parallelism.num_accelerators", "batch.accumulation_steps"} & facts.keys()


@pytest.mark.parametrize(
    ("old", "new", "open_keys"),
    [
        ("include_bias: false", "include_bias: true", ("model.num_parameters",)),
        ("block_type: sequential", "block_type: moe", ("model.family", "model.num_parameters")),
        ("max_duration: 4e12T", "max_duration: 1ep", ("job.num_tokens", "job.num_steps")),
        ("load_path: null", "load_path: s3://a/step100", ("job.num_tokens",)),
        ("activation_checkpointing: null", "activation_checkpointing: one_in_four", ("memory.activation_policy",)),
        ("{precision: mixed}", "{precision: mixed, sharding_strategy: HYBRID_SHARD}", ("parallelism.sharding",)),
        ("units: tokens", "units: weeks", ("optimizer.learning_rate.total_tokens",)),
    ],
)
def test_what_a_job_of_olmo_does_not_decide_stays_open(old: str, new: str, open_keys: tuple[str, ...]) -> None:
    assert old in OLMO
    assert not set(open_keys) & told(OLMO.replace(old, new)).keys()


@pytest.mark.parametrize("text", ["parallelism: 1\ntokens: 2\n  micro_batch_size: 4\n", OLMO + "model: {a: 1}\n"])
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        read(text)


@pytest.mark.parametrize("word", ["1e999999T", "..T", "0T", "9e99T"])
def test_a_length_that_is_no_number_stays_open(word: str) -> None:
    assert "job.num_tokens" not in told(OLMO.replace("4e12T", word))


@pytest.mark.parametrize("name", ["grpo_samples", "ppo_batch_size"])
def test_prompts_of_a_recipe_with_rollouts_are_no_micro_batch(name: str) -> None:
    recipe = (
        "model:\n  _component_: torchtune.models.qwen3.qwen3_8b_base\noptimizer:\n  _component_: torch.optim.AdamW\n"
    )
    text = f"{recipe}  lr: 1e-5\nbatch_size: 1\ngradient_accumulation_steps: 4\n"
    assert flat(torchtune.read(ForeignText("a", text)).facts)["batch.micro_sequences"] == 1
    facts = flat(torchtune.read(ForeignText("a", f"{text}{name}: 16\n")).facts)
    assert not {key for key in facts if key.startswith("batch.")}


def test_the_earlier_layout_of_nanotron_states_a_schedule_at_its_top() -> None:
    begin = NANOTRON.index("  learning_rate_scheduler:")
    end = NANOTRON.index("  optimizer_factory:")
    schedule = "learning_rate_scheduler: {lr_decay_steps: 1159, lr_decay_style: cosine, lr_warmup_steps: 200}\n"
    text = NANOTRON[:begin] + "  learning_rate: 0.0003\n" + NANOTRON[end:] + schedule
    found = read(text)
    assert found.facts["optimizer"]["learning_rate"] == {"peak": 0.0003, "kind": "cosine", "warmup_steps": 200}
    reasons = {entry.pointer: entry.reason for entry in found.unknown}
    assert "this layout" in reasons["optimizer", "learning_rate", "total_steps"]
    assert ("model", "attention") not in reasons


def test_starcoder_names_its_key_value_heads_in_its_own_way() -> None:
    text = NANOTRON.replace("is_llama_config", "is_starcoder2_config")
    text = text.replace("num_key_value_heads: 32", "grouped_query: true, num_kv_heads: 4")
    assert read(text).facts["model"]["num_key_value_heads"] == 4
