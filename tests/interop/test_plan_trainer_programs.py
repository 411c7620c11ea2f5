"""Arguments of the Trainer in scripts: what the program, its launcher and accelerate's configuration decide."""

from __future__ import annotations

import json

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.merge import Merged
from trainspec_validate.interop.readers.huggingface import read_trainer
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.interop.refused import join
from trainspec_validate.interop.together import together

ARGUMENTS = "--per_device_train_batch_size 4 --logging_steps 1 --save_steps 9 --dataloader_num_workers 2"
DEFAULTS = {
    "optimizer.name",
    "optimizer.clipping.threshold",
    "optimizer.learning_rate.peak",
    "optimizer.learning_rate.kind",
    "batch.accumulation_steps",
    "memory.activation_policy",
    "precision.compute",
}


def script(command: str, *options: str) -> Fragment:
    fragment = read_trainer(ForeignText("run.sh", f"{command} {' '.join([ARGUMENTS, *options])}\n"))
    assert_sound(fragment)
    return fragment


def joined(**files: str) -> Merged:
    texts = [ForeignText(name.replace("_", "."), text) for name, text in files.items()]
    return join(together([(recognise(text).read(text), text) for text in texts]))


def test_defaults_hold_for_examples_of_transformers_alone() -> None:
    known = script("torchrun --nproc_per_node 8 run_clm.py")
    assert at(known, "batch", "global_sequences") == 32
    assert not DEFAULTS & unknown_keys(known)
    own = script("torchrun --nproc_per_node 8 finetune.py")
    assert unknown_keys(own) >= {*DEFAULTS, "batch.global_sequences"}
    reasons = {".".join(map(str, entry.pointer)): entry.reason for entry in own.unknown}
    assert reasons["batch.accumulation_steps"] == (
        "1 by default of transformers, and finetune.py may have defaults of its own"
    )


def test_what_a_program_of_its_own_is_given_stays() -> None:
    options = ("--gradient_accumulation_steps 2", "--max_grad_norm 0.3", "--optim adamw_torch", "--bf16 True")
    options += ("--gradient_checkpointing False", "--learning_rate 1e-4", "--lr_scheduler_type cosine")
    fragment = script("torchrun --nproc_per_node 8 finetune.py", *options)
    assert at(fragment, "batch", "global_sequences") == 64
    assert at(fragment, "optimizer", "clipping") == {"kind": "global-norm", "threshold": 0.3}
    assert at(fragment, "optimizer", "learning_rate") == {"peak": 1e-4, "kind": "cosine", "final": 0.0}
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "memory", "activation_policy") == "none"
    assert not DEFAULTS & unknown_keys(fragment)


def test_a_program_of_its_own_fills_in_a_configuration_by_its_own_defaults() -> None:
    command = f"deepspeed {{}} --deepspeed ds.json --bf16 True {ARGUMENTS}\n"
    zero = json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto"})
    assert "clipping" not in joined(run_sh=command.format("finetune.py"), ds_json=zero).facts.get("optimizer", {})
    known = joined(run_sh=command.format("run_clm.py"), ds_json=zero)
    assert known.facts["optimizer"]["clipping"]["threshold"] == 1.0
    assert known.facts["precision"]["compute"] == "bf16"


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_machines: 1\nnum_processes: 4\n"


@pytest.mark.parametrize(
    ("option", "ranks"),
    [("", 4), ("--num_processes 2", 2), ("--num_processes $WORLD_SIZE", None), ("--num_processes ${1:-2}", None)],
)
def test_the_command_goes_before_the_processes_of_a_configuration(option: str, ranks: int | None) -> None:
    command = f"accelerate launch --config_file config.yaml {option} run_clm.py {ARGUMENTS}\n"
    whole = joined(run_sh=command, config_yaml=ACCELERATE.format(kind="MULTI_GPU"))
    degrees = whole.facts.get("parallelism", {})
    assert degrees.get("num_accelerators") == ranks
    assert degrees.get("data") == ranks
    assert whole.facts["batch"].get("global_sequences") == (ranks and ranks * 4)
    if ranks is None:
        assert ("parallelism", "num_accelerators") in {entry.pointer for entry in whole.unknown}


def test_tensor_ranks_of_a_configuration_get_the_same_sequences() -> None:
    command = f"accelerate launch --config_file config.yaml run_clm.py --gradient_accumulation_steps 2 {ARGUMENTS}\n"
    whole = joined(run_sh=command, config_yaml=ACCELERATE.format(kind="TP") + "tp_config:\n  tp_size: 4\n")
    assert whole.facts["parallelism"] | {"sharding": "none"} == {
        "num_accelerators": 4,
        "data": 1,
        "tensor": 4,
        "sharding": "none",
    }
    assert whole.facts["batch"]["global_sequences"] == 8


def test_an_offload_that_two_files_hold_is_written_once() -> None:
    command = f"accelerate launch --config_file config.yaml run_clm.py {ARGUMENTS}\n"
    inline = "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n"
    whole = joined(run_sh=command, config_yaml=ACCELERATE.format(kind="DEEPSPEED") + inline)
    assert [entry["what"] for entry in whole.facts["memory"]["offload"]] == ["optimizer"]


@pytest.mark.parametrize(
    ("include", "ranks"),
    [
        ("localhost:0,1,2,3", 4),
        ("worker-0:0,1@worker-1:0,1,2", 5),
        ("worker-0@worker-1:0,1", None),
        ("localhost:$DEVICES", None),
    ],
)
def test_accelerators_that_a_command_of_deepspeed_names(include: str, ranks: int | None) -> None:
    fragment = script(f"deepspeed --include {include} run_clm.py --deepspeed ds.json")
    assert at(fragment, "parallelism", "num_accelerators") == ranks
    assert at(fragment, "batch", "global_sequences") == (ranks and ranks * 4)


def test_the_form_of_a_schedule_does_not_follow_from_its_peak() -> None:
    fragment = script("python run_clm.py", "--learning_rate $LR", '--lr_scheduler_type="cosine"')
    assert at(fragment, "optimizer", "learning_rate", "kind") == "cosine"
    assert "optimizer.learning_rate.peak" in unknown_keys(fragment)


def test_targets_of_adapters_without_a_rank_are_read() -> None:
    options = ("--stage sft", "--finetuning_type lora", "--lora_target q_proj,v_proj")
    fragment = script("python main.py", *options)
    assert at(fragment, "lora", "targets") == ["query", "value"]
    assert "lora.rank" in unknown_keys(fragment)
    assert "describes no adapter" not in str(fragment.unknown) + remarks_of(fragment)


def test_a_file_of_deepspeed_that_is_given_is_not_called_unread() -> None:
    named = ACCELERATE.format(kind="DEEPSPEED") + "deepspeed_config:\n  deepspeed_config_file: configs/ds.json\n"
    zero = json.dumps({"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto"})
    whole = joined(config_yaml=named, ds_json=zero)
    assert "which is not read" not in str(whole.remarks)
    reasons = {entry.pointer: entry.reason for entry in whole.unknown}
    assert "says auto" in reasons["precision", "compute"]
    assert "ds.json, which is not read" in str(joined(config_yaml=named).remarks)
    assert "ds.json, which is not read" in str(joined(config_yaml=named, other_json=zero).remarks)


STORED = {"precision.parameters", "precision.gradients", "precision.reduction", "precision.optimizer_state"}
LAUNCH = {"communication.overlap_gradients", "precision.high_precision_operations"}


def test_weights_that_a_program_of_its_own_loads_have_no_known_format() -> None:
    own = script("torchrun --nproc_per_node 8 finetune.py", "--bf16 True")
    assert at(own, "precision", "compute") == "bf16"
    assert unknown_keys(own) >= STORED
    assert not LAUNCH & unknown_keys(own)
    example = script("torchrun --nproc_per_node 8 run_clm.py", "--bf16 True")
    assert at(example, "precision", "parameters") == "fp32"
    unnamed = read_trainer(ForeignText("a.yaml", "per_device_train_batch_size: 2\nbf16: true\ntorch_dtype: null\n"))
    assert unknown_keys(unnamed) >= STORED | LAUNCH


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("accelerate launch finetune.py", LAUNCH),
        ("python finetune.py", {"communication.overlap_gradients"}),
        ("torchrun --nproc_per_node 8 finetune.py", set()),
        ("accelerate launch --multi_gpu finetune.py", set()),
    ],
)
def test_what_a_configuration_of_accelerate_decides_is_open_without_it(command: str, left: set[str]) -> None:
    assert unknown_keys(script(command, "--bf16 True")) & LAUNCH == left


def test_options_of_accelerate_go_into_the_plan_from_a_variable_too() -> None:
    options = "--use_fsdp --fsdp_sharding_strategy FULL_SHARD --num_processes 16 --num_machines 2"
    text = f'#SBATCH --nodes=2\nL="accelerate launch {options}"\nCMD="$L train.py {ARGUMENTS} --bf16 True"\nsrun $CMD\n'
    fragment = read_trainer(ForeignText("run.sh", text))
    assert at(fragment, "parallelism") == {"num_accelerators": 16, "data": 16, "sharding": "parameters"}
    assert at(fragment, "precision", "optimizer_state") == "fp32"


def test_mixed_precision_no_names_no_format() -> None:
    text = "distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 3\n"
    alone = recognise(ForeignText("a.yaml", text)).read(ForeignText("a.yaml", text))
    assert at(alone, "precision") is None
    assert {"precision.compute", "precision.parameters"} <= unknown_keys(alone)


AUTO = (
    '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}, '
    '"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, '
    '"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}'
)


def test_what_an_example_fills_in_for_auto_is_known() -> None:
    start = f"cat <<EOT > ds.json\n{AUTO}\nEOT\ntorchrun --nproc_per_node 8"
    options = ("--fp16 --do_train --warmup_steps 8 --deepspeed ds.json",)
    example = script(f"{start} run_clm.py", *options)
    assert at(example, "batch", "global_sequences") == 32
    assert at(example, "optimizer", "learning_rate", "warmup_steps") == 8
    own = script(f"{start} finetune.py", *options)
    assert {"batch.accumulation_steps", "batch.global_sequences"} <= unknown_keys(own)


def test_recomputation_in_the_value_of_another_setting_leaves_the_policy_open() -> None:
    command = "torchrun --nproc_per_node 8 run_clm.py --do_train"
    inside = script(command, '--config_overrides "n_layer=2,gradient_checkpointing=true"')
    assert "memory.activation_policy" in unknown_keys(inside)
    assert at(script(command, '--config_overrides "n_layer=2"'), "memory", "activation_policy") == "none"


def test_a_program_that_is_told_not_to_train_is_reported() -> None:
    assert "do_train is false" in remarks_of(script("torchrun --nproc_per_node 8 run_clm.py", "--do_train False"))


def test_an_option_of_another_program_is_not_taken_for_one_of_trl() -> None:
    reasons = {entry.pointer: entry.reason for entry in script("python rank.py", "--loss_type contrastive").unknown}
    assert (
        reasons["precision", "compute"] == "fp32 by default of transformers, and rank.py may have defaults of its own"
    )


def test_a_share_of_a_rate_has_no_digits_of_binary_floating_point() -> None:
    text = (
        "per_device_train_batch_size: 2\nlearning_rate: 4.0e-05\nlr_scheduler_type: cosine_with_min_lr\n"
        "lr_scheduler_kwargs:\n  min_lr_rate: 0.1\n"
    )
    assert at(read_trainer(ForeignText("a.yaml", text)), "optimizer", "learning_rate", "final") == 4e-06
