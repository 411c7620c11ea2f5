"""LLM Foundry: its YAML becomes a plan, and what the data, the model's code or the launcher decides stays open."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, document, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.llm_foundry import looks_like, read
from trainspec_validate.interop.recognise import recognise

JOB = """\
variables:
  length: 2048
max_seq_len: ${variables.length}
run_name: one-run
model:
  name: mpt_causal_lm
  d_model: 1024
  n_heads: 16
  n_layers: 24
  expansion_ratio: 4
  vocab_size: 50368
train_loader:
  name: text
  num_workers: 8
scheduler:
  name: cosine_with_warmup
  t_warmup: 100ba
  alpha_f: 0.1
optimizer:
  name: decoupled_adamw
  lr: 2.0e-4
algorithms:
  gradient_clipping:
    clipping_type: norm
    clipping_threshold: 1.0
max_duration: 24800ba
global_train_batch_size: 512
device_train_microbatch_size: 4
seed: 17
precision: amp_bf16
dist_timeout: 1200
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""


def job(old: str = "", new: str = "") -> Fragment:
    return read(ForeignText("job.yaml", JOB.replace(old, new) if old else JOB))


def test_a_pretraining() -> None:
    fragment = job()
    assert_sound(fragment)
    assert recognise(ForeignText("job.yaml", JOB)).name == "llm-foundry-yaml"
    wanted = {
        ("metadata", "name"): "one-run",
        ("model", "family"): "dense-transformer",
        ("model", "num_layers"): 24,
        ("model", "hidden_size"): 1024,
        ("model", "num_attention_heads"): 16,
        ("model", "num_key_value_heads"): 16,
        ("model", "ffn_hidden_size"): 4096,
        ("model", "gated_ffn"): False,
        ("model", "vocabulary_size"): 50368,
        ("model", "sequence_length"): 2048,
        ("parallelism", "sharding"): "parameters",
        ("batch", "global_sequences"): 512,
        ("batch", "micro_sequences"): 4,
        ("batch", "global_tokens"): 1048576,
        ("precision", "compute"): "bf16",
        ("precision", "reduction"): "bf16",
        ("optimizer", "name"): "adamw",
        ("optimizer", "clipping", "threshold"): 1,
        ("optimizer", "learning_rate", "kind"): "cosine",
        ("optimizer", "learning_rate", "peak"): 2e-4,
        ("optimizer", "learning_rate", "final"): 2e-5,
        ("optimizer", "learning_rate", "warmup_steps"): 100,
        ("optimizer", "learning_rate", "total_steps"): 24800,
        ("memory", "activation_policy"): "full",
        ("memory", "num_loader_workers"): 8,
        ("communication", "timeout_seconds"): 1200,
        ("job", "num_steps"): 24800,
        ("job", "seed"): 17,
    }
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert {"parallelism.num_accelerators", "batch.accumulation_steps", "model.num_parameters"} <= unknown_keys(
        fragment
    )
    assert "${" not in document(fragment)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("max_duration: 24800ba", "max_duration: 1ep", ("job.num_steps", "optimizer.learning_rate.total_steps")),
        ("t_warmup: 100ba", "t_warmup: 0.02dur", ("optimizer.learning_rate.warmup_steps",)),
        ("seed: 17", "seed: 17\nload_path: s3://a/latest", ("job.num_steps",)),
        ("size: 4\n", "size: auto\n", ("batch.micro_sequences",)),
        ("FULL_SHARD", "HYBRID_SHARD", ("parallelism.sharding",)),
        ("  sharding_strategy: FULL_SHARD\n", "", ("parallelism.sharding",)),
        ("mixed_precision: PURE", "mixed_precision: FULL", ("precision.parameters", "precision.reduction")),
        ("clipping_type: norm", "clipping_type: adaptive", ("optimizer.clipping",)),
        ("  expansion_ratio: 4", "  ffn_config: {ffn_type: mb_dmoe}", ("model.family", "model.ffn_hidden_size")),
        ("name: mpt_causal_lm", "name: hf_causal_lm", ("model.num_layers", "model.hidden_size")),
        ("checkpointing: true", "checkpointing: true\n  activation_cpu_offload: true", ("memory.activation_policy",)),
        ("seed: 17", "seed: 17\ntp_config: {strategy: ffn}", ("parallelism.tensor",)),
        ("name: mpt_causal_lm", "name: hf_t5", ("batch.global_tokens",)),
    ],
)
def test_what_the_file_does_not_decide_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    assert old in JOB
    fragment = job(old, new)
    assert set(keys) <= unknown_keys(fragment)
    assert not [key for key in keys if at(fragment, *key.split(".")) is not None]


def test_gates_heads_and_adapters() -> None:
    gated = job("  expansion_ratio: 4", "  ffn_config: {ffn_type: mptglu, ffn_hidden_size: 2816}")
    assert (at(gated, "model", "gated_ffn"), at(gated, "model", "ffn_hidden_size")) == (True, 2816)
    attention = "  attn_config: {attn_type: grouped_query_attention, kv_n_heads: 4}\n  n_layers: 24"
    assert at(job("  n_layers: 24", attention), "model", "num_key_value_heads") == 4
    adapters = "name: hf_causal_lm\n  pretrained_model_name_or_path: a/b\n  peft_config: {peft_type: LORA, r: 64}"
    fragment = job("name: mpt_causal_lm", adapters)
    assert (at(fragment, "lora", "rank"), at(fragment, "model", "name")) == (64, "a-b")
    assert "lora.targets" in unknown_keys(fragment)


def test_a_job_of_the_platform_is_none() -> None:
    below = "parameters:\n" + "".join(f"  {line}\n" for line in JOB.splitlines())
    assert not looks_like(ForeignText("job.yaml", below))
