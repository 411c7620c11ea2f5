"""Levanter: its YAML becomes a plan, and what the devices, the release or a checkpoint decides stays open."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

JOB = """\
data: !include data/web.yaml
model:
  type: llama
  seq_len: 2048
  hidden_dim: 1024
  intermediate_dim: 2816
  num_heads: 16
  num_kv_heads: 4
  num_layers: 24
  gradient_checkpointing: true
trainer:
  mp: p=f32,c=bfloat16
  model_axis_size: 2
  tensor_parallel_axes: [mlp, heads]
  fsdp_axis: embed
  train_batch_size: 256
  per_device_parallelism: 4
  num_train_steps: 1000
  seed: 3
optimizer:
  learning_rate: 6.0e-4
  lr_schedule: linear
  warmup: 0.05
  min_lr_ratio: 0.1
  max_grad_norm: 1.0
"""
"""Settings as in config/llama_small_fast.yaml of stanford-crfm/levanter."""


def job(old: str = "", new: str = "") -> Fragment:
    assert old in JOB
    text = ForeignText("job.yaml", JOB.replace(old, new) if old else JOB)
    found = recognise(text)
    assert found.name == "levanter-yaml"
    fragment = found.read(text)
    assert_sound(fragment)
    return fragment


def test_a_pretraining() -> None:
    wanted = {
        ("model", "family"): "dense-transformer",
        ("model", "num_layers"): 24,
        ("model", "hidden_size"): 1024,
        ("model", "num_key_value_heads"): 4,
        ("model", "ffn_hidden_size"): 2816,
        ("model", "gated_ffn"): True,
        ("model", "positions"): "rotary",
        ("model", "sequence_length"): 2048,
        ("parallelism", "tensor"): 2,
        ("parallelism", "sharding"): "parameters",
        ("batch", "global_sequences"): 256,
        ("batch", "micro_sequences"): 4,
        ("batch", "global_tokens"): 524288,
        ("precision", "compute"): "bf16",
        ("precision", "parameters"): "bf16",
        ("precision", "master_parameters"): "fp32",
        ("optimizer", "name"): "adamw",
        ("optimizer", "clipping", "threshold"): 1,
        ("optimizer", "learning_rate", "kind"): "linear",
        ("optimizer", "learning_rate", "peak"): 6e-4,
        ("optimizer", "learning_rate", "final"): 6e-5,
        ("optimizer", "learning_rate", "warmup_steps"): 50,
        ("memory", "activation_policy"): "full",
        ("job", "num_steps"): 1000,
        ("job", "seed"): 3,
    }
    fragment = job()
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    left = {"parallelism.data", "batch.accumulation_steps", "model.vocabulary_size", "model.num_parameters"}
    assert left <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("  tensor_parallel_axes: [mlp, heads]\n", "", ("parallelism.tensor",)),
        ("fsdp_axis: embed", "fsdp_axis: null", ("parallelism.sharding",)),
        ("fsdp_axis: embed", "replica_dcn_axis_size: 2", ("parallelism.sharding_degree",)),
        ("trainer:\n", "trainer:\n  mesh: {axes: {model: 4}}\n", ("parallelism.tensor",)),
        ("train_batch_size: 256", "train_batch_size: [{start: 0, value: 256}]", ("batch.global_sequences",)),
        ("per_device_parallelism: 4", "per_device_parallelism: -1", ("batch.micro_sequences",)),
        ("p=f32,c=bfloat16", "half", ("precision.compute", "precision.parameters")),
        ("checkpointing: true", "checkpointing: offload", ("memory.activation_policy",)),
        ("type: llama", "type: mixtral", ("model.family", "model.positions", "model.gated_ffn")),
        ("  type: llama\n", "", ("model.family", "model.positions", "model.tied_embeddings")),
        ("  num_kv_heads: 4\n", "", ("model.num_key_value_heads",)),
        ("  warmup: 0.05\n", "", ("optimizer.learning_rate.warmup_steps",)),
        ("  min_lr_ratio: 0.1\n", "", ("optimizer.learning_rate.final",)),
        ("warmup: 0.05", "cycles: [500, 500]", ("optimizer.learning_rate.warmup_steps",)),
        ("optimizer:\n", "epoch: 2\noptimizer:\n", ("job.num_steps",)),
        ("optimizer:\n", "use_hf_model_config: true\noptimizer:\n", ("model.num_layers", "model.sequence_length")),
    ],
)
def test_a_key_that_the_file_does_not_decide_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    fragment = job(old, new)
    assert set(keys) <= unknown_keys(fragment)
    assert not [key for key in keys if at(fragment, *key.split(".")) is not None]


@pytest.mark.parametrize(
    ("settings", "kind", "key", "value"),
    [
        ("lr_schedule: cosine\n  decay: 0.2", "warmup-stable-decay", "decay_steps", 200),
        ("lr_schedule: inv_sqrt", "inverse-square-root", "final", None),
        ("lr_schedule: linear\n  cycle_length: 1000", "linear", "warmup_steps", 50),
        ("lr_schedule: linear\n  haps: [10, 20]", "other", "warmup_steps", None),
    ],
)
def test_the_form_of_the_schedule(settings: str, kind: str, key: str, value: int | None) -> None:
    fragment = job("lr_schedule: linear", settings)
    assert at(fragment, "optimizer", "learning_rate", "kind") == kind
    assert at(fragment, "optimizer", "learning_rate", key) == value


def test_one_batch_of_a_device_is_one_step() -> None:
    assert at(job("per_device_parallelism: 4", "per_device_parallelism: -1"), "batch", "accumulation_steps") == 1


def test_gpt2_has_a_table_of_positions() -> None:
    fragment = job("type: llama", "type: gpt2")
    assert at(fragment, "model", "positions") == "learned"
    assert at(fragment, "model", "ffn_hidden_size") == 4096
    assert at(fragment, "model", "num_key_value_heads") == 16


def test_adapters_of_a_model_that_is_not_read() -> None:
    fragment = job("optimizer:\n", "lora: {r: 8, alpha: 16, target_modules: [q_proj, v_proj]}\noptimizer:\n")
    assert at(fragment, "lora", "targets") == ["query", "value"]
    assert "model.num_layers" in unknown_keys(fragment)


def test_the_tokenizer_passthrough_has_the_vocabulary_that_is_stated() -> None:
    text = JOB.replace("model_axis_size: 2", "model_axis_size: 1")
    text = "data: {tokenizer: passthrough, vocab_size: 55028}\n" + text[text.index("model:") :]
    given = ForeignText("job.yaml", text)
    assert at(recognise(given).read(given), "model", "vocabulary_size") == 55028


def test_epochs_leave_shares_of_the_steps_open() -> None:
    assert at(job(), "optimizer", "learning_rate", "warmup_steps") == 50
    fragment = job("optimizer:\n", "epoch: 3\noptimizer:\n")
    keys = {"optimizer.learning_rate.warmup_steps", "job.num_steps"}
    assert keys <= unknown_keys(fragment)
    assert at(fragment, "optimizer", "learning_rate", "total_steps") is None


def test_a_model_with_other_settings_has_no_defaults_of_levanter() -> None:
    shape = "  hidden_dim: 1024\n  intermediate_dim: 2816\n  num_heads: 16\n  num_kv_heads: 4\n  num_layers: 24\n"
    fragment = job(shape, "  model_dim: 1024\n  ff_dim: 2816\n  query_count: 16\n  layer_count: 24\n")
    assert not fragment.defaults
    assert "model.tied_embeddings" in unknown_keys(fragment)
