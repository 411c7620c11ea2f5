"""OpenRLHF: commands of two generations of options become the plan of the model that DeepSpeed trains."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

PPO = """\
ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
  --actor_num_nodes 2 --actor_num_gpus_per_node 8 --critic_num_nodes 1 --critic_num_gpus_per_node 8 \\
  --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --pretrain a/model --critic_learning_rate 9e-6 \\
  --micro_train_batch_size 4 --train_batch_size 128 --micro_rollout_batch_size 8 --rollout_batch_size 256 \\
  --n_samples_per_prompt 2 --prompt_max_len 1024 --generate_max_len 3072 --zero_stage 3 --bf16 \\
  --actor_learning_rate 5e-7 --adam_offload --gradient_checkpointing --seed 7
"""
NEWER = """\
python3 -m openrlhf.cli.train_ppo_ray \\
  --actor.num_nodes 2 --actor.num_gpus_per_node 8 --critic.num_nodes 1 --critic.num_gpus_per_node 8 \\
  --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --actor.model_name_or_path a/model --critic.adam.lr 9e-6 \\
  --train.micro_batch_size 4 --train.batch_size 128 --rollout.micro_batch_size 8 --rollout.batch_size 256 \\
  --rollout.n_samples_per_prompt 2 --data.max_len 4096 --ds.zero_stage 3 --ds.param_dtype bf16 \\
  --actor.adam.lr 5e-7 --ds.adam_offload --actor.gradient_checkpointing_enable --train.seed 7
"""
SFT = """\
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --max_len 2048 \\
   --train_batch_size 256 \\
   --micro_train_batch_size 2 \\
   --pretrain a/model \\
   --zero_stage 2 \\
   --bf16 \\
   --learning_rate 5e-6
EOF
deepspeed --module $training_commands
"""


def read(text: str) -> Fragment:
    source = ForeignText("run.sh", text)
    found = recognise(source)
    assert found.name == "openrlhf-arguments"
    fragment = found.read(source)
    assert_sound(fragment)
    return fragment


@pytest.mark.parametrize("text", [PPO, NEWER])
def test_a_job_of_reinforcement_learning(text: str) -> None:
    wanted = {
        ("model", "name"): "a-model",
        ("model", "sequence_length"): 4096,
        ("parallelism", "num_accelerators"): 16,
        ("parallelism", "data"): 16,
        ("parallelism", "sharding"): "parameters",
        ("batch", "global_sequences"): 128,
        ("batch", "micro_sequences"): 4,
        ("batch", "accumulation_steps"): 2,
        ("precision", "compute"): "bf16",
        ("precision", "parameters"): "bf16",
        ("precision", "master_parameters"): "fp32",
        ("memory", "activation_policy"): "full",
        ("memory", "offload"): [{"what": "optimizer", "target": "host", "fraction": 1.0}],
        ("optimizer", "name"): "adamw",
        ("optimizer", "learning_rate", "peak"): 5e-7,
        ("rollout", "num_prompts"): 256,
        ("rollout", "num_responses_per_prompt"): 2,
        ("rollout", "num_updates"): 4,
        ("rollout", "num_accelerators"): 8,
        ("rollout", "max_staleness_steps"): 3,
        ("job", "seed"): 7,
    }
    fragment = read(text)
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert {"batch.global_tokens", "job.num_steps", "model.num_layers"} <= unknown_keys(fragment)
    assert "the critic is a second model" in remarks_of(fragment)


def test_a_fine_tuning_whose_options_are_in_a_document() -> None:
    fragment = read(SFT)
    wanted = {
        ("model", "sequence_length"): 2048,
        ("batch", "global_sequences"): 256,
        ("batch", "micro_sequences"): 2,
        ("parallelism", "sharding"): "gradients",
        ("memory", "activation_policy"): "none",
        ("optimizer", "learning_rate", "peak"): 5e-6,
    }
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert {"parallelism.num_accelerators", "batch.accumulation_steps"} <= unknown_keys(fragment)


def test_a_variable_in_a_document_has_its_value() -> None:
    text = "SIZE=64\n" + SFT.replace("--train_batch_size 256", '--train_batch_size $SIZE --dataset "a b"')
    assert at(read(text), "batch", "global_sequences") == 64
    quoted = text.replace("<<EOF", "<<'EOF'")
    assert at(read(quoted), "batch", "global_sequences") is None


def test_a_pair_of_answers_is_two_sequences() -> None:
    fragment = read(SFT.replace("train_sft", "train_dpo"))
    assert at(fragment, "batch", "global_sequences") == 512
    assert at(fragment, "batch", "micro_sequences") == 4


def test_a_program_of_a_fork_has_defaults_of_its_own() -> None:
    fragment = read(SFT.replace("train_sft", "train_weighted_sft"))
    assert {"batch.global_sequences", "optimizer.clipping.threshold", "parallelism.context"} <= unknown_keys(fragment)
    assert at(fragment, "parallelism", "sharding") == "gradients"


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("--zero_stage 3", "", ("parallelism.sharding",)),
        ("--zero_stage 3", "--zero_stage $1", ("parallelism.sharding", "precision.gradients")),
        ("--n_samples_per_prompt 2", "--n_samples_per_prompt $N", ("rollout.num_updates",)),
        ("--seed 7", "--lora_rank 8", ("lora.targets",)),
        ("--seed 7", "--use_dynamic_batch", ("batch.micro_sequences", "batch.accumulation_steps")),
        ("--seed 7", "--async_train", ("rollout.max_staleness_steps",)),
        ("--prompt_max_len 1024", "", ("model.sequence_length",)),
    ],
)
def test_a_key_that_the_command_does_not_decide_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    assert old in PPO
    fragment = read(PPO.replace(old, new))
    left = {key for key in keys if at(fragment, *key.split(".")) is None}
    assert left == set(keys)
    assert set(keys) - {"rollout.num_updates"} <= unknown_keys(fragment)


def test_ring_attention_splits_sequences() -> None:
    fragment = read(PPO.replace("--seed 7", "--ring_attn_size 2"))
    assert at(fragment, "parallelism", "context") == 2
    assert at(fragment, "parallelism", "data") == 8
    assert at(fragment, "batch", "accumulation_steps") == 4


def test_generation_on_the_accelerators_of_the_job() -> None:
    assert at(read(PPO.replace("--seed 7", "--colocate_all_models")), "rollout", "num_accelerators") is None


def test_several_trainings_are_told_apart() -> None:
    source = ForeignText("run.sh", SFT + SFT.replace("train_sft", "train_rm"))
    with pytest.raises(ForeignFormatError, match="several trainings"):
        recognise(source).read(source)
