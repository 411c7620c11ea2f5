"""verl: words of a command or its YAML become the plan of the actor, and other files and releases leave keys open."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

PPO = """\
set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=512 \\
    data.max_prompt_length=512 \\
    data.max_response_length=1536 \\
    actor_rollout_ref.model.path=a/model \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \\
    actor_rollout_ref.actor.fsdp_config.param_offload=False \\
    actor_rollout_ref.rollout.n=4 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    critic.optim.lr=1e-5 \\
    trainer.n_gpus_per_node=8 \\
    trainer.nnodes=2 \\
    trainer.total_epochs=15 $@
"""
SFT = """\
torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer \\
    data.train_batch_size=256 data.micro_batch_size_per_gpu=4 data.max_length=2048 optim.lr=1e-4 \\
    model.partial_pretrain=a/model model.lora_rank=16 model.lora_alpha=32 model.target_modules=[q_proj,v_proj]
"""


def read(text: str) -> Fragment:
    source = ForeignText("run.sh", text)
    found = recognise(source)
    assert found.name == "verl-settings"
    fragment = found.read(source)
    assert_sound(fragment)
    return fragment


def job(old: str, new: str) -> Fragment:
    assert old in PPO
    return read(PPO.replace(old, new))


def test_a_job_of_reinforcement_learning() -> None:
    wanted = {
        ("model", "name"): "a-model",
        ("model", "sequence_length"): 2048,
        ("parallelism", "num_accelerators"): 16,
        ("parallelism", "data"): 16,
        ("parallelism", "sharding"): "parameters",
        ("batch", "global_sequences"): 512,
        ("batch", "micro_sequences"): 8,
        ("batch", "accumulation_steps"): 4,
        ("precision", "compute"): "bf16",
        ("precision", "master_parameters"): "fp32",
        ("precision", "reduction"): "fp32",
        ("memory", "activation_policy"): "full",
        ("optimizer", "learning_rate", "peak"): 1e-6,
        ("optimizer", "learning_rate", "kind"): "constant",
        ("optimizer", "learning_rate", "warmup_steps"): 0,
        ("rollout", "num_prompts"): 512,
        ("rollout", "num_responses_per_prompt"): 4,
        ("rollout", "num_updates"): 4,
    }
    fragment = read(PPO)
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert {"batch.global_tokens", "job.num_steps", "model.num_layers"} <= unknown_keys(fragment)
    assert "the critic is a second model" in remarks_of(fragment)
    assert at(fragment, "parallelism", "tensor") is None  # it is that of the generation


def test_a_recipe_of_verl_counts_alike() -> None:
    assert at(job("verl.trainer.main_ppo", "recipe.dapo.main_dapo"), "batch", "global_sequences") == 512


def test_a_tuning() -> None:
    wanted = {
        ("model", "sequence_length"): 2048,
        ("parallelism", "num_accelerators"): 8,
        ("batch", "global_sequences"): 256,
        ("batch", "micro_sequences"): 4,
        ("batch", "accumulation_steps"): 8,
        ("lora", "rank"): 16,
        ("lora", "alpha"): 32,
        ("optimizer", "learning_rate", "kind"): "cosine",
        ("optimizer", "learning_rate", "peak"): 1e-4,
    }
    fragment = read(SFT)
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    assert at(fragment, "rollout") is None
    older = read(SFT.replace("micro_batch_size_per_gpu=4", "micro_batch_size=32"))
    assert "batch.micro_sequences" in unknown_keys(older)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("actor.optim.lr=1e-6", "actor.optim.lr=$LR", ("optimizer.learning_rate.peak",)),
        ("rollout.n=4", "rollout.n=$N", ("batch.global_sequences",)),
        ("rollout.n=4", "rollout.n_agent=4", ("rollout.num_responses_per_prompt", "rollout.num_updates")),
        ("ppo_micro_batch_size_per_gpu=8", "ppo_micro_batch_size=128", ("batch.micro_sequences",)),
        ("actor.fsdp_config.param_offload=False", "actor.use_dynamic_bsz=True", ("batch.micro_sequences",)),
        ("param_offload=False", "param_offload=True", ("memory.offload",)),
        ("param_offload=False", "model_dtype=bf16", ("precision.compute", "precision.master_parameters")),
        ("actor.fsdp_config.param_offload=False", "actor.strategy=megatron", ("precision.compute",)),
        ("trainer.nnodes=2", "trainer.nnodes=$NODES", ("parallelism.num_accelerators", "parallelism.data")),
        ("data.max_prompt_length=512", "data.max_start_length=512", ("model.sequence_length",)),
        ("    trainer.total_epochs=15", "    data.max_obs_length=64", ("model.sequence_length",)),
        (
            "actor.fsdp_config.param_offload=False",
            "actor.optim.lr_warmup_steps_ratio=0.1",
            ("optimizer.learning_rate.warmup_steps",),
        ),
        (
            "main_ppo",
            "main_ppo --config-name=own",
            ("parallelism.sharding", "precision.compute", "model.head_size", "parallelism.tensor"),
        ),
        (
            "verl.trainer.main_ppo",
            "own.trainer",
            ("parallelism.sharding", "precision.compute", "batch.global_sequences", "model.sequence_length"),
        ),
    ],
)
def test_a_key_that_the_command_does_not_decide_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    fragment = job(old, new)
    assert set(keys) <= unknown_keys(fragment)
    assert not [key for key in keys if at(fragment, *key.split(".")) is not None]


def test_the_older_micro_batch_is_of_all_ranks() -> None:
    fragment = read(PPO.replace("rollout.n=4", "rollout.n=1").replace("size_per_gpu=8", "size=128"))
    assert at(fragment, "batch", "micro_sequences") == 8
    assert at(fragment, "batch", "accumulation_steps") == 1


MEGATRON = "actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"
OPEN_DEGREES = [
    ("actor.strategy=megatron", ""),
    ("actor.strategy=megatron", "--config-path=config --config-name=ppo_megatron_trainer"),
    (MEGATRON, "--config-name=mine"),
    ("actor.fsdp_config.param_offload=False", "--config-name=mine"),
]


@pytest.mark.parametrize(("strategy", "configuration"), OPEN_DEGREES)
def test_a_degree_that_a_configuration_may_set_leaves_open_what_follows(strategy: str, configuration: str) -> None:
    older = PPO.replace("rollout.n=4", "rollout.n=1").replace("size_per_gpu=8", "size=128")
    text = older.replace("actor.fsdp_config.param_offload=False", strategy).replace(
        "main_ppo", f"main_ppo {configuration}"
    )
    assert configuration in text
    fragment = read(text)
    assert at(fragment, "parallelism", "num_accelerators") == 16
    for place in (("parallelism", "data"), ("batch", "micro_sequences"), ("batch", "accumulation_steps")):
        assert at(fragment, *place) is None
        assert ".".join(place) in unknown_keys(fragment)


def test_the_older_micro_batch_is_of_all_data_ranks_of_megatron() -> None:
    older = PPO.replace("rollout.n=4", "rollout.n=1").replace("size_per_gpu=8", "size=128")
    fragment = read(older.replace("actor.fsdp_config.param_offload=False", MEGATRON))
    assert at(fragment, "parallelism", "data") == 4
    assert at(fragment, "batch", "micro_sequences") == 32
    assert at(fragment, "batch", "accumulation_steps") == 1


def test_degrees_of_megatron_and_of_sequences() -> None:
    options = "actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"
    fragment = job("actor.fsdp_config.param_offload=False", options)
    assert at(fragment, "parallelism", "tensor") == 4
    assert at(fragment, "parallelism", "sharding") == "optimizer"
    split = job("actor.fsdp_config.param_offload=False", "actor.ulysses_sequence_parallel_size=2")
    assert at(split, "parallelism", "context") == 2
    assert at(split, "parallelism", "data") == 8
    assert at(split, "batch", "accumulation_steps") == 8


def test_warmup_counts_rollouts() -> None:
    fragment = job("actor.fsdp_config.param_offload=False", "actor.optim.lr_warmup_steps=10")
    assert at(fragment, "optimizer", "learning_rate", "warmup_steps") == 40


def test_an_evaluation_trains_nothing() -> None:
    source = ForeignText("run.sh", PPO.replace("trainer.total_epochs=15", "+trainer.val_only=true"))
    with pytest.raises(ForeignFormatError, match="val_only"):
        recognise(source).read(source)


def test_its_configuration_in_yaml() -> None:
    text = """\
data: {train_batch_size: 64, max_prompt_length: 512, max_response_length: 512}
actor_rollout_ref:
  model: {path: a/model}
  actor: {ppo_mini_batch_size: 32, ppo_micro_batch_size_per_gpu: 4, optim: {lr: 1.0e-6}}
  rollout: {n: 8}
trainer: {n_gpus_per_node: 8, nnodes: 1}
"""
    fragment = read(text)
    assert at(fragment, "batch", "global_sequences") == 256
    assert at(fragment, "batch", "accumulation_steps") == 8
    composed = read(f"defaults: [base, _self_]\n{text}")
    assert at(composed, "batch", "global_sequences") == 256
    assert {"parallelism.sharding", "precision.compute"} <= unknown_keys(composed)


def test_an_adapter_that_is_trained_on_stays_open() -> None:
    model = "actor_rollout_ref.model."
    text = f"python -m verl.trainer.main_ppo {model}path=a/B-3B {model}lora_adapter_path=out/adapter trainer.nnodes=1"
    fragment = read(text)
    assert at(fragment, "lora") is None
    assert "lora" in unknown_keys(fragment)
    plain = read(text.replace("out/adapter", "null"))
    assert "lora" not in unknown_keys(plain)


def test_layers_that_megatron_recomputes_are_open() -> None:
    flag = "enable_gradient_checkpointing=True \\\n"
    layers = "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1"
    fragment = job(flag, f"{flag}    {layers} \\\n")
    assert at(fragment, "memory", "activation_policy") is None
    assert "memory.activation_policy" in unknown_keys(fragment)
