"""NeMo RL: the plan is of the policy, and what a base file, the model or the rollouts decide stays open."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

JOB = """\
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16, max_num_steps: 500, max_num_epochs: 1, seed: 42}
policy:
  model_name: a/model
  train_global_batch_size: 128
  train_micro_batch_size: 4
  max_total_sequence_length: 4096
  precision: bfloat16
  max_grad_norm: 1.0
  dtensor_cfg:
    enabled: true
    cpu_offload: false
    sequence_parallel: false
    activation_checkpointing: false
    tensor_parallel_size: 2
    context_parallel_size: 1
  dynamic_batching: {enabled: false}
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 5.0e-6, weight_decay: 0.01}}
  generation:
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
MEGATRON = """\
sft: {max_num_steps: 60, max_num_epochs: 1}
policy:
  model_name: a/model
  train_global_batch_size: 128
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  precision: bfloat16
  max_grad_norm: 1.0
  dtensor_cfg: {enabled: false, tensor_parallel_size: 7}
  megatron_cfg: &base
    enabled: true
    activation_checkpointing: true
    tensor_model_parallel_size: 2
    pipeline_model_parallel_size: 2
    context_parallel_size: 1
    expert_model_parallel_size: 4
    sequence_parallel: true
    optimizer: {optimizer: adam, lr: 1.0e-6, bf16: true, use_distributed_optimizer: true,
      clip_grad: "${policy.max_grad_norm}"}
    scheduler: {lr_decay_style: constant, lr_warmup_iters: 10}
    distributed_data_parallel_config: {grad_reduce_in_fp32: true, overlap_grad_reduce: true}
teacher:
  megatron_cfg: {<<: *base, tensor_model_parallel_size: 8}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""


def read(text: str) -> Fragment:
    source = ForeignText("job.yaml", text)
    found = recognise(source)
    assert found.name == "nemo-rl-yaml"
    fragment = found.read(source)
    assert_sound(fragment)
    return fragment


def job(old: str = "", new: str = "") -> Fragment:
    assert old in JOB
    return read(JOB.replace(old, new) if old else JOB)


def test_a_policy_on_fsdp() -> None:
    wanted = {
        ("model", "name"): "a-model",
        ("model", "sequence_length"): 4096,
        ("parallelism", "num_accelerators"): 16,
        ("parallelism", "tensor"): 2,
        ("parallelism", "data"): 8,
        ("parallelism", "sharding"): "parameters",
        ("batch", "global_sequences"): 128,
        ("batch", "micro_sequences"): 4,
        ("batch", "accumulation_steps"): 4,
        ("precision", "compute"): "bf16",
        ("precision", "master_parameters"): "fp32",
        ("precision", "reduction"): "fp32",
        ("memory", "activation_policy"): "none",
        ("optimizer", "name"): "adamw",
        ("optimizer", "clipping", "threshold"): 1,
        ("optimizer", "learning_rate", "kind"): "constant",
        ("optimizer", "learning_rate", "peak"): 5e-6,
        ("rollout", "num_prompts"): 32,
        ("rollout", "num_responses_per_prompt"): 16,
        ("rollout", "num_updates"): 4,
        ("job", "seed"): 42,
    }
    fragment = job()
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert {"batch.global_tokens", "job.num_steps", "model.num_layers"} <= unknown_keys(fragment)


def test_a_policy_on_megatron_with_a_teacher_that_merges_its_settings() -> None:
    wanted = {
        ("parallelism", "num_accelerators"): 16,
        ("parallelism", "tensor"): 2,
        ("parallelism", "pipeline"): 2,
        ("parallelism", "expert"): 4,
        ("parallelism", "sequence"): True,
        ("parallelism", "data"): 4,
        ("parallelism", "sharding"): "optimizer",
        ("precision", "parameters"): "bf16",
        ("precision", "reduction"): "fp32",
        ("communication", "overlap_gradients"): True,
        ("memory", "activation_policy"): "full",
        ("optimizer", "name"): "adamw",
        ("optimizer", "clipping", "threshold"): 1,
        ("optimizer", "learning_rate", "peak"): 1e-6,
    }
    fragment = read(MEGATRON)
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert "teacher is a second model" in remarks_of(fragment)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("dynamic_batching: {enabled: false}", "sequence_packing: {enabled: true}", ("batch.micro_sequences",)),
        ("checkpointing: false", "checkpointing: true", ("memory.activation_policy",)),
        ("enabled: true\n    cpu", "enabled: false\n    cpu", ("parallelism.sharding", "precision.parameters")),
        ("cluster: {gpus_per_node: 8,", "cluster: {", ("parallelism.num_accelerators", "parallelism.data")),
        (
            "cluster:",
            "env: {judge: {resources: {gpus_per_node: 4}}}\ncluster:",
            ("parallelism.num_accelerators", "parallelism.data"),
        ),
        ("    tensor_parallel_size: 2\n", "", ()),
    ],
)
def test_a_key_that_the_file_does_not_decide_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    fragment = job(old, new)
    assert set(keys) <= unknown_keys(fragment)
    assert not [key for key in keys if at(fragment, *key.split(".")) is not None]


def test_a_file_with_a_base_leaves_open_what_that_may_set() -> None:
    fragment = read("defaults: base.yaml\n" + JOB.replace("    tensor_parallel_size: 2\n", ""))
    assert {"parallelism.tensor", "parallelism.data", "model.head_size"} <= unknown_keys(fragment)
    assert at(fragment, "batch", "global_sequences") == 128


@pytest.mark.parametrize(
    ("section", "packing", "open_keys"),
    [
        ("grpo", "dynamic_batching: {enabled: false}", {"batch.micro_sequences"}),
        (
            "other",
            "dynamic_batching: {enabled: false}\n  sequence_packing: {enabled: false}",
            {"batch.global_sequences"},
        ),
        ("grpo", "dynamic_batching: {enabled: false}\n  sequence_packing: {enabled: false}", set()),
    ],
)
def test_a_base_may_pack_samples_or_pair_them(section: str, packing: str, open_keys: set[str]) -> None:
    text = JOB.replace("grpo:", f"{section}:").replace("dynamic_batching: {enabled: false}", packing)
    fragment = read(f"defaults: base.yaml\n{text}")
    assert unknown_keys(fragment) & {"batch.micro_sequences", "batch.global_sequences"} >= open_keys
    assert (at(fragment, "batch", "micro_sequences") == 4) == (not open_keys)


def test_a_tuning_generates_nothing() -> None:
    fragment = read("defaults: base.yaml\n" + MEGATRON)
    assert at(fragment, "parallelism", "num_accelerators") == 16


def test_overrides_alone_name_their_base() -> None:
    with pytest.raises(ForeignFormatError) as caught:
        recognise(ForeignText("job.yaml", "defaults: ./base.yaml\npolicy: {a: 1}\ncluster: {gpus_per_node: 4}\n"))
    assert "give that file" in caught.value.help


@pytest.mark.parametrize(("nodes", "apart", "trains"), [(2, "num_nodes: 1", 8), (1, "gpus_per_node: 2", 6)])
def test_accelerators_that_generate_alone_do_not_train(nodes: int, apart: str, trains: int) -> None:
    text = JOB.replace("num_nodes: 2", f"num_nodes: {nodes}").replace(
        "tensor_parallel_size: 2", "tensor_parallel_size: 1"
    )
    held = "{enabled: true, resources: {gpus_per_node: null, num_nodes: null}}"
    assert held in text
    fragment = read(text.replace(held, f"{{enabled: false, resources: {{{apart}}}}}"))
    assert at(fragment, "parallelism", "num_accelerators") == trains
    assert at(fragment, "rollout", "num_accelerators") == 8 * nodes - trains


def test_pairs_of_answers_are_two_sequences() -> None:
    fragment = job("grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16, max", "dpo: {max")
    assert at(fragment, "batch", "global_sequences") == 256
    assert at(fragment, "batch", "micro_sequences") == 8
    assert at(fragment, "batch", "accumulation_steps") == 4
    assert at(fragment, "rollout") is None


@pytest.mark.parametrize(
    ("scheduler", "kind"),
    [
        ("[{name: torch.optim.lr_scheduler.LinearLR}, {name: torch.optim.lr_scheduler.ConstantLR}]", "constant"),
        ("{name: torch.optim.lr_scheduler.CosineAnnealingLR}", "cosine"),
        ("{name: own.Schedule}", "other"),
    ],
)
def test_a_scheduler_counts_rollouts(scheduler: str, kind: str) -> None:
    fragment = job("  optimizer: {name", f"  scheduler: {scheduler}\n  optimizer: {{name")
    assert at(fragment, "optimizer", "learning_rate", "kind") == kind
