"""Settings in variables, in files that a script writes, and in sections of other programs' configurations."""

from __future__ import annotations

import json

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import deepspeed, huggingface, megatron
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.interop.refused import without_refused

TRAINER = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --do_train True --warmup_steps 10"
FSDP = "export ACCELERATE_USE_FSDP=true\nexport FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP"
FORMAT = "export ACCELERATE_MIXED_PRECISION=bf16"
CONFIGURATION = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: true
mixed_precision: bf16
num_processes: 16
"""


def script(text: str) -> Fragment:
    return huggingface.read_trainer(ForeignText("run.sh", text))


def reasons(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}


def test_variables_of_accelerate_ask_for_sharding_and_a_format() -> None:
    fragment = script(f"{FSDP}\n{FORMAT}\ntorchrun --nproc_per_node 8 run_clm.py {TRAINER}\n")
    assert_sound(fragment)
    assert at(fragment, "parallelism", "sharding") == "gradients"
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "precision", "master_parameters") == "fp32"
    assert "not carried over" not in remarks_of(fragment)


def test_the_launcher_of_accelerate_sets_the_format_anew() -> None:
    fragment = script(f"{FORMAT}\naccelerate launch --num_processes 8 run_clm.py {TRAINER}\n")
    assert at(fragment, "precision", "compute") != "bf16"
    assert "not carried over: ACCELERATE_MIXED_PRECISION" in remarks_of(fragment)


def test_a_variable_from_outside_leaves_the_format_open() -> None:
    fragment = script(f'export ACCELERATE_MIXED_PRECISION="$2"\ntorchrun --nproc_per_node 8 run_clm.py {TRAINER}\n')
    assert "precision.compute" in unknown_keys(fragment)


def test_a_switch_that_is_off_asks_for_nothing() -> None:
    fragment = script(f"{FSDP.replace('true', 'false')}\ntorchrun --nproc_per_node 8 run_clm.py {TRAINER}\n")
    assert at(fragment, "parallelism", "sharding") is None


WRITES = "cat > conf/acc.yaml <<'END'\n{text}END\naccelerate launch --config_file conf/acc.yaml run_clm.py {options}\n"


def test_a_configuration_of_accelerate_that_the_script_writes() -> None:
    text = ForeignText("run.sh", WRITES.format(text=CONFIGURATION, options=TRAINER))
    assert recognise(text).name == "huggingface-trainer-arguments"
    fragment = huggingface.read_trainer(text)
    assert_sound(fragment)
    assert at(fragment, "parallelism", "num_accelerators") == 16
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert [entry["what"] for entry in at(fragment, "memory", "offload")] == ["parameters", "gradients", "optimizer"]
    assert "import it as well" not in remarks_of(fragment)


STAGE = 'cat > ds.json <<END\n{{"zero_optimization": {{"stage": {}}}, "bf16": {{"enabled": true}}}}\nEND\n'
RUN = f"torchrun --nproc_per_node 8 run_clm.py {TRAINER} --bf16 True --deepspeed ds.json\n"


def test_a_file_that_is_written_once_is_read() -> None:
    assert at(script(STAGE.format(2) + RUN), "parallelism", "sharding") == "gradients"
    closed = "if [ -d out ]; then rm -r out; fi\nfor f in a b; do\n  touch $f\ndone\n"
    assert at(script(closed + STAGE.format(2) + RUN), "parallelism", "sharding") == "gradients"


@pytest.mark.parametrize(
    "text",
    [
        f"if [ $A = big ]; then\n{STAGE.format(3)}else\n{STAGE.format(2)}fi\n",
        f"if [ ! -f ds.json ]; then\n{STAGE.format(2)}fi\n",
        f"{STAGE.format(2)}{STAGE.format(3)}",
        f"{STAGE.format(2)}sed -i 's/2/3/' ds.json\n",
        f"{STAGE.format(2)}echo '' >> ds.json\n",
    ],
)
def test_a_file_that_a_branch_or_a_later_command_decides_is_not_read(text: str) -> None:
    fragment = script(text + RUN)
    assert at(fragment, "parallelism", "sharding") is None
    assert "ds.json, which is not read" in remarks_of(fragment)


def test_a_script_that_only_writes_a_configuration_is_no_configuration() -> None:
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("run.sh", f"cat > acc.yaml <<END\n{CONFIGURATION}END\npython train.py\n"))


SECTION = """seed: 42
model_name: acme-7b
max_steps: 500
max_grad_norm: 0.5
actor:
  training_args:
    per_device_train_batch_size: 2
    gradient_accumulation_steps: 8
    learning_rate: 1.0e-6
    warmup_steps: 10
    bf16: true
  strategy_args: {strategy_name: megatron_train, tensor_model_parallel_size: 2}
"""


def test_a_section_of_another_program_has_the_defaults_of_that_program() -> None:
    fragment = huggingface.read_trainer(ForeignText("actor.yaml", SECTION))
    assert_sound(fragment)
    assert fragment.facts["batch"] == {"micro_sequences": 2, "accumulation_steps": 8}
    assert set(fragment.facts["optimizer"]["learning_rate"]) == {"peak", "warmup_steps"}
    for key in ("optimizer.name", "optimizer.clipping.kind", "communication.overlap_gradients"):
        assert "the section actor.training_args" in reasons(fragment)[key]
    assert fragment.facts["model"] == {"name": "acme-7b"}
    assert "job" not in fragment.facts
    assert "max_grad_norm" in remarks_of(fragment)


def test_a_schedule_of_an_unread_configuration_goes_before_the_one_of_the_arguments() -> None:
    options = f"{TRAINER} --lr_scheduler_type cosine --learning_rate 1e-4"
    plain = script(f"torchrun --nproc_per_node 8 run_clm.py {options}\n")
    assert at(plain, "optimizer", "learning_rate", "kind") == "cosine"
    fragment = script(f"torchrun --nproc_per_node 8 run_clm.py {options} --deepspeed ds.json\n")
    assert at(fragment, "optimizer", "learning_rate", "kind") is None
    assert reasons(fragment)["optimizer.learning_rate.kind"].startswith("cosine by the arguments, and ds.json")
    assert at(fragment, "optimizer", "learning_rate", "peak") == 1e-4


@pytest.mark.parametrize(
    ("least", "final"), [({"warmup_min_lr": 1e-6}, 1e-6), ({}, 0.0), ({"warmup_min_lr": "auto"}, None)]
)
def test_a_falling_schedule_of_deepspeed_ends_at_its_least_rate(least: dict[str, object], final: float | None) -> None:
    parameters = {"warmup_max_lr": 1e-4, "warmup_num_steps": 10, "total_num_steps": 100, **least}
    text = {"zero_optimization": {"stage": 1}, "scheduler": {"type": "WarmupDecayLR", "params": parameters}}
    fragment = deepspeed.read(ForeignText("ds.json", json.dumps(text)))
    assert at(fragment, "optimizer", "learning_rate", "final") == final
    assert ("optimizer.learning_rate.final" in unknown_keys(fragment)) is (final is None)


def test_older_sums_are_counted() -> None:
    text = f"GLOBAL=128\nACC=$[$GLOBAL/(2*8)]\ntorchrun --nproc_per_node 8 run_clm.py {TRAINER}"
    fragment = script(text.replace("accumulation_steps 4", "accumulation_steps $ACC") + "\n")
    assert at(fragment, "batch", "accumulation_steps") == 8
    free = script(text.replace("accumulation_steps 4", "accumulation_steps $ACC").replace("2*8", "2*$WORLD") + "\n")
    assert "which is not resolved" in reasons(free)["batch.accumulation_steps"]


def test_a_parameter_of_the_caller_may_be_empty() -> None:
    text = f"MICRO=${{4}}\nMICRO=${{MICRO:-1}}\ntorchrun --nproc_per_node 8 run_clm.py {TRAINER}\n"
    fragment = script(text.replace("batch_size 2", "batch_size $MICRO"))
    assert "1 or another value" in reasons(fragment)["batch.micro_sequences"]


@pytest.mark.parametrize("option", ["--target_modules q_proj v_proj", "--lora_target_modules q_proj v_proj"])
def test_matrices_of_adapters_by_the_name_of_peft(option: str) -> None:
    fragment = script(f"torchrun --nproc_per_node 8 run_clm.py {TRAINER} --lora_rank 8 --lora_alpha 16 {option}\n")
    assert at(fragment, "lora", "targets") == ["query", "value"]


def test_reasons_name_what_the_source_says() -> None:
    fragment = script(f"python train.py {TRAINER} --model_name_or_path $1 --deepspeed $(pwd)/ds.json --lora_r $2\n")
    told = reasons(fragment)
    assert "$1" in told["model"] or "$1" in told["model.name"]
    assert "$(pwd)/ds.json" in told["parallelism.sharding"]
    assert "$2" in told["lora.rank"]
    frozen = huggingface.read_trainer(
        ForeignText("a.yaml", "per_device_train_batch_size: 1\nfinetuning_type: freeze\nstage: sft\nbf16: true\n")
    )
    assert "a part of the weights" in reasons(frozen)["precision.parameters"]


def test_a_file_that_is_read_in_is_named_as_it_is_written() -> None:
    text = 'source "$(dirname "$0")/models/a.sh"\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2'
    fragment = megatron.read(ForeignText("run.sh", f"{text} --hidden-size 64 --num-attention-heads 4\n"))
    assert '$(dirname "$0")/models/a.sh' in remarks_of(fragment).replace("\\", "")


SHAPE = "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --padded-vocab-size 32000 --swiglu"
SHAPE += " --ffn-hidden-size 4096 --untie-embeddings-and-output-weights --disable-bias-linear"
SHAPE += " --position-embedding-type rope"


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ("--normalization RMSNorm --qk-layernorm", 4 * 2 * 64),
        ("--qk-layernorm", 4 * 2 * 2 * 64),
        ("--add-qkv-bias", 4 * 3 * 1024),
        ("--group-query-attention --num-query-groups 4 --add-qkv-bias --normalization RMSNorm", 4 * 64 * (16 + 2 * 4)),
    ],
)
def test_norms_of_queries_and_keys_are_counted(options: str, more: int) -> None:
    def count(words: str) -> int:
        found = at(megatron.read(ForeignText("run.sh", f"python pretrain_gpt.py {SHAPE} {words}\n")), "model")
        return int(found["num_parameters"])

    plain = options.replace("--qk-layernorm", "").replace("--add-qkv-bias", "")
    assert count(options) - count(plain) == more


def test_groups_that_lost_every_member_are_left_out() -> None:
    fragment = huggingface.read_trainer(
        ForeignText(
            "a.yaml", "per_device_train_batch_size: 1\nddp_timeout: 180000000\nfinetuning_type: lora\nstage: sft\n"
        )
    )
    assert fragment.facts["communication"] == {"timeout_seconds": 180000000.0}
    kept = without_refused(fragment)
    assert "communication" not in kept.facts
    assert not any(value == {} for value in kept.facts.values())


def test_a_part_of_the_batch_that_is_open_names_what_it_lacks() -> None:
    fragment = huggingface.read_trainer(ForeignText("a.yaml", "per_device_train_batch_size: 2\ndo_train: true\n"))
    assert reasons(fragment)["batch.global_sequences"].endswith("of which the source lacks the data degree")
    zero = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, "train_batch_size": 8}
    told = reasons(deepspeed.read(ForeignText("ds.json", json.dumps(zero))))
    assert told["memory.activation_policy"] == "the training program decides on recomputation"
    zero["activation_checkpointing"] = {"partition_activations": True}
    told = reasons(deepspeed.read(ForeignText("ds.json", json.dumps(zero))))
    assert "sets up recomputation" in told["memory.activation_policy"]
