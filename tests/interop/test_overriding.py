"""Settings that change what other settings state: what they change is left open, with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from plan_files import assert_sound, at, remarks_of, text_of, unknown_keys
from test_llm_foundry import JOB
from test_nanotron_and_olmo import NANOTRON, OLMO

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._overriding import (
    ACCELERATE,
    AXOLOTL,
    DEEPSPEED,
    MAXTEXT,
    TORCHTITAN,
    TRAINER,
    Override,
)
from trainspec_validate.interop.readers._overriding import MEGATRON as MEGATRON_ROWS
from trainspec_validate.interop.readers._overriding import OLMO as OLMO_ROWS
from trainspec_validate.interop.recognise import recognise

TITAN = """[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
{optimizer}
[training]
local_batch_size = 1
seq_len = 8192
max_norm = 1.0
steps = 1000
{training}
[parallelism]
data_parallel_shard_degree = 8
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
{parallelism}
[activation_checkpoint]
mode = "full"
{end}
"""
SPEED: dict[str, Any] = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "fp16": {"enabled": False},
    "gradient_clipping": 1.0,
    "prescale_gradients": False,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100, "warmup_num_steps": 10}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e8},
}
ARGUMENTS: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1e-5,
    "lr_scheduler_type": "cosine",
    "optim": "adamw_torch",
    "bf16": True,
    "max_steps": 100,
    "max_grad_norm": 1.0,
    "gradient_checkpointing": True,
    "fsdp": "full_shard",
    "world_size": 8,
}
LAUNCHED: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "num_processes": 16,
}
ELASTIC = {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "min_gpus": 1}
SLURM = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={tasks}\n{devices}\nsrun {program}"
MEGATRON = (
    " pretrain_gpt.py --num-layers 32 --hidden-size 2560 --num-attention-heads 32 --seq-length 2048"
    " --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 1024 --bf16 --lr 1e-4 --train-iters 10\n"
)


def read(text: str, name: str = "job") -> Fragment:
    foreign = ForeignText(name, text)
    fragment = recognise(foreign).read(foreign)
    assert_sound(fragment)
    return fragment


def lines(settings: dict[str, Any]) -> Fragment:
    return read("".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items()))


def titan(section: str = "", line: str = "") -> Fragment:
    parts = {"optimizer": "", "training": "", "parallelism": "", "end": ""}
    parts[section if section in parts else "end"] = line
    return read(TITAN.format(**parts))


def speed(**more: Any) -> Fragment:
    return read(json.dumps({**SPEED, **more}))


def trainer(**more: Any) -> Fragment:
    return read(json.dumps({**ARGUMENTS, **more}))


def reason(fragment: Fragment, key: str) -> str:
    return next(entry.reason for entry in fragment.unknown if ".".join(map(str, entry.pointer)) == key)


def assert_opens(plain: Fragment, changed: Fragment, keys: str, word: str) -> None:
    """The keys have a value in the plain file, and the reason in the changed one names the setting."""
    for key in keys.split():
        assert at(plain, *key.split(".")) is not None, key
        assert at(changed, *key.split(".")) is None, key
        assert word in reason(changed, key)


@pytest.mark.parametrize(
    ("section", "line", "keys"),
    [
        ("optimizer", "early_step_in_backward = true", "optimizer.clipping"),
        ("parallelism", "module_fqns_per_model_part = [['layers.0']]", "parallelism.num_virtual_stages"),
        (
            "parallelism",
            "pipeline_parallel_schedule_csv = 's.csv'",
            "parallelism.schedule parallelism.num_virtual_stages",
        ),
        ("parallelism", "pipeline_parallel_first_stage_less_layers = 0", "parallelism.stage_layers"),
        ("training", "data_parallel_type = 'ddp'", "parallelism.sharding precision.parameters"),
        ("end", "[fault_tolerance]\nenable = true", "parallelism.data batch.global_sequences"),
        ("end", "[fault_tolerance]\nsemi_sync_method = 'diloco'", "communication.overlap_gradients"),
    ],
)
def test_torchtitan(section: str, line: str, keys: str) -> None:
    setting = line.rpartition("\n")[2].partition(" ")[0]
    assert_opens(titan(), titan(section, line), keys, setting)


def test_torchtitan_without_an_effect() -> None:
    assert titan().facts == titan("optimizer", "early_step_in_backward = false").facts
    plain = titan("parallelism", "pipeline_parallel_first_stage_less_layers = 1")
    assert at(plain, "parallelism", "stage_layers") is not None


@pytest.mark.parametrize(
    ("more", "keys", "word"),
    [
        ({"gradient_predivide_factor": 8}, "communication.gradient_averaging", "gradient_predivide_factor"),
        ({"autotuning": {"enabled": True}}, "batch.micro_sequences parallelism.sharding", "autotuning"),
        ({"compile": {"deepcompile": True}}, "communication.bucket_bytes", "deepcompile"),
        ({"quantize_training": {"enabled": True}}, "precision.parameters", "quantize_training"),
        (
            {"data_efficiency": {"enabled": True, "data_sampling": {"dynamic_batching": {"enabled": True}}}},
            "batch.global_sequences batch.micro_sequences optimizer.learning_rate.peak",
            "dynamic_batching",
        ),
    ],
)
def test_deepspeed(more: dict[str, Any], keys: str, word: str) -> None:
    plain = speed(zero_optimization={"stage": 2, "reduce_scatter": False, "reduce_bucket_size": 5e8})
    changed = speed(zero_optimization={"stage": 2, "reduce_scatter": False, "reduce_bucket_size": 5e8}, **more)
    assert_opens(plain, changed, keys, word)


def test_deepspeed_keeps_a_part_of_the_optimizer_on_the_accelerator() -> None:
    zero = {**SPEED["zero_optimization"], "zenflow": {"topk_ratio": 0.1}}
    assert_opens(speed(), speed(zero_optimization=zero), "memory.offload", "zenflow")


def test_deepspeed_with_amp_of_apex() -> None:
    off = {"bf16": {"enabled": False}, "fp16": {"enabled": False}}
    assert_opens(speed(**off), speed(**off, amp={"enabled": True, "opt_level": "O1"}), "precision.compute", "amp")


def test_elasticity_refuses_a_stated_batch() -> None:
    fragment = speed(elasticity=ELASTIC)
    keys = "batch.global_sequences batch.micro_sequences batch.accumulation_steps parallelism.data"
    assert_opens(speed(), fragment, keys, "refuses train_batch_size")
    assert "unless ignore_non_elastic_batch_info is true" in remarks_of(fragment)
    assert at(fragment, "batch", "elastic", "micro_sequences") == [2, 4, 6]


def test_elasticity_replaces_a_stated_batch() -> None:
    fragment = speed(elasticity={**ELASTIC, "ignore_non_elastic_batch_info": True})
    assert_opens(speed(), fragment, "batch.micro_sequences batch.accumulation_steps parallelism.data", "replaces it")
    assert at(fragment, "batch", "global_sequences") not in {None, 64}


def test_elasticity_by_node_is_not_computed() -> None:
    fragment = read(json.dumps({"zero_optimization": {"stage": 1}, "elasticity": {**ELASTIC, "num_gpus_per_node": 8}}))
    assert "num_gpus_per_node" in reason(fragment, "batch.elastic.data_degrees")


def test_elasticity_inside_arguments_of_the_trainer() -> None:
    script = (
        f"cat <<EOF > ds.json\n{json.dumps({'zero_optimization': {'stage': 1}, 'elasticity': ELASTIC})}\nEOF\n"
        "deepspeed --num_gpus 8 --num_nodes 1 run_clm.py --per_device_train_batch_size 2 --do_train True"
        " --gradient_accumulation_steps 4 --warmup_steps 10 --deepspeed ds.json\n"
    )
    assert at(read(script.replace('"enabled": true', '"enabled": false')), "batch", "micro_sequences") == 2
    changed = read(script)
    assert at(changed, "batch", "micro_sequences") is None
    assert "batch.accumulation_steps" in unknown_keys(changed)


@pytest.mark.parametrize(
    ("more", "keys", "word"),
    [
        (
            {"accelerator_config": {"split_batches": True}},
            "batch.micro_sequences batch.global_sequences",
            "split_batches",
        ),
        ({"split_batches": True}, "batch.micro_sequences batch.global_sequences", "split_batches"),
        ({"accelerator_config": '{"split_batches": true}'}, "batch.micro_sequences", "split_batches"),
        ({"accelerator_config": "acc.json"}, "batch.micro_sequences batch.accumulation_steps", "acc.json"),
        (
            {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 4}}},
            "batch.accumulation_steps batch.global_sequences",
            "num_steps",
        ),
        ({"auto_find_batch_size": True}, "batch.micro_sequences", "auto_find_batch_size"),
        ({"per_gpu_train_batch_size": 4}, "batch.micro_sequences", "per_gpu_train_batch_size"),
        ({"half_precision_backend": "apex"}, "precision.compute", "half_precision_backend"),
        ({"adafactor": True}, "optimizer.name", "adafactor"),
        ({"sharded_ddp": "zero_dp_3"}, "parallelism.sharding", "sharded_ddp"),
        ({"optim": "galore_adamw_layerwise"}, "optimizer.clipping", "galore_adamw_layerwise"),
        ({"optim": "lomo"}, "optimizer.clipping", "lomo"),
        ({"fsdp_config": {"xla": True}}, "precision.parameters communication.overlap_gradients", "xla"),
        ({"fsdp_config": {"reshard_after_forward": False}}, "parallelism.sharding", "reshard_after_forward"),
        ({"lr_scheduler_kwargs": {"num_cycles": 3}}, "optimizer.learning_rate.final", "num_cycles"),
        ({"gradient_checkpointing_kwargs": {"every_n_layers": 2}}, "memory.activation_policy", "every_n_layers"),
        ({"use_mca": True}, "precision.parameters", "use_mca"),
        ({"mp_parameters": "partitions=2"}, "parallelism.data", "mp_parameters"),
    ],
)
def test_arguments_of_the_trainer(more: dict[str, Any], keys: str, word: str) -> None:
    assert_opens(trainer(), trainer(**more), keys, word)


@pytest.mark.parametrize(
    "more",
    [
        {"accelerator_config": {"split_batches": False, "gradient_accumulation_kwargs": {"num_steps": 1}}},
        {"accelerator_config": '{"split_batches": false}'},
        {"lr_scheduler_kwargs": {"num_cycles": 0.5}},
        {"half_precision_backend": "auto"},
        {"fsdp_config": {"reshard_after_forward": True}},
    ],
)
def test_arguments_without_an_effect(more: dict[str, Any]) -> None:
    assert trainer(**more).facts == trainer().facts


def test_settings_of_the_trainer_that_are_read() -> None:
    assert (
        at(trainer(gradient_checkpointing=None, activation_checkpointing=True), "memory", "activation_policy") == "full"
    )
    assert at(trainer(parallelism_config={"sp_size": 4}), "parallelism", "context") == 4
    assert at(trainer(parallelism_config={"cp_size": 1, "sp_size": 4}), "parallelism", "data") == 2
    kept = trainer(fsdp=True, fsdp_config={"version": 2, "reshard_after_forward": False})
    assert at(kept, "parallelism", "sharding") == "gradients"


def test_weights_that_a_trainer_of_trl_loads_in_a_format() -> None:
    fragment = trainer(fsdp=None, model_init_kwargs={"torch_dtype": "bfloat16"})
    assert at(fragment, "precision", "parameters") != "fp32"
    assert at(fragment, "precision", "optimizer_state") != "fp32"


@pytest.mark.parametrize(
    ("more", "keys", "word"),
    [
        ({"fp8_config": {"backend": "MSAMP"}}, "precision.gradients", "MSAMP"),
        ({"fp8_config": {"enable_fsdp_float8_all_gather": True}}, "precision.parameters", "float8_all_gather"),
        ({"downcast_bf16": "yes"}, "precision.master_parameters", "downcast_bf16"),
    ],
)
def test_accelerate(more: dict[str, Any], keys: str, word: str) -> None:
    assert_opens(lines(LAUNCHED), lines({**LAUNCHED, **more}), keys, word)


def test_megatron_inside_accelerate() -> None:
    inner = {f"megatron_lm_{name}": value for name, value in (("tp_degree", 2), ("context_parallel_size", 4))}
    base = {**LAUNCHED, "distributed_type": "MEGATRON_LM"}
    plain = lines({**base, "megatron_lm_config": {**inner, "megatron_lm_recompute_granularity": "full"}})
    assert at(plain, "parallelism", "context") == 4
    assert at(plain, "parallelism", "data") == 2
    assert at(plain, "memory", "activation_policy") == "full"
    changed = lines({**base, "megatron_lm_config": {**inner, "megatron_lm_use_custom_fsdp": True}})
    assert_opens(plain, changed, "parallelism.sharding", "use_custom_fsdp")


def axolotl(**more: Any) -> Fragment:
    usual = {"base_model": "a/b", "datasets": [{"path": "x", "type": "alpaca"}], "sequence_len": 4096}
    rates = {"micro_batch_size": 2, "gradient_accumulation_steps": 4, "learning_rate": 1e-5, "lr_scheduler": "cosine"}
    return lines({**usual, **rates, "num_epochs": 1, "optimizer": "adamw_torch", "bf16": True, **more})


@pytest.mark.parametrize(
    ("more", "keys", "word"),
    [
        ({"accelerator_config": {"split_batches": True}}, "batch.micro_sequences", "split_batches"),
        ({"jagged_restart_steps": 100}, "optimizer.learning_rate.kind", "jagged_restart_steps"),
        ({"cosine_constant_lr_ratio": 0.8}, "optimizer.learning_rate.kind", "cosine_constant_lr_ratio"),
        ({"max_packed_sequence_len": 8192}, "model.sequence_length", "max_packed_sequence_len"),
    ],
)
def test_axolotl(more: dict[str, Any], keys: str, word: str) -> None:
    assert_opens(axolotl(), axolotl(**more), keys, word)


TABLES = {
    "torchtitan": TORCHTITAN,
    "deepspeed": DEEPSPEED,
    "trainer": TRAINER,
    "accelerate": ACCELERATE,
    "axolotl": AXOLOTL,
    "megatron": MEGATRON_ROWS,
    "maxtext": MAXTEXT,
    "olmo": OLMO_ROWS,
}


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{name}-{row.setting}") for name, table in TABLES.items() for row in table]
)
def test_a_setting_that_is_off_changes_nothing(row: Override) -> None:
    off: tuple[object, ...] = (None, False, "", "none", [], {})
    any_name = replace(row, setting=".*")
    assert not any(any_name.applies("x", value) for value in off)


@pytest.mark.parametrize("flags", ["", " --deepspeed --deepspeed_config ds.json --zero-stage 0"])
@pytest.mark.parametrize(
    ("tasks", "devices", "program", "ranks"),
    [
        (8, "#SBATCH --gpus-per-node=8", "launch.sh", 16),
        (8, "#SBATCH --gpus-per-node=mi250:8", "launch.sh", 16),
        (8, "#SBATCH --gres=gpu:a100:8", "./wrap/launch.sh", 16),
        (8, "", "launch.sh", None),
        (8, "", "/opt/launch", None),
        (4, "#SBATCH --gpus-per-node=8", "/opt/launch", None),
        (8, "", "/opt/bin/python3.11 -u", 16),
        (8, "", "$PYTHON", 16),
        (8, "", "python", 16),
        (1, "#SBATCH --gpus-per-node=8", "launch.sh", None),
        (1, "", "launch.sh", None),
        (4, "#SBATCH --gres=gpu:8", "launch.sh", None),
        (1, "#SBATCH --gpus-per-node=1", "launch.sh", 2),
    ],
)
def test_a_script_that_srun_starts(tasks: int, devices: str, program: str, ranks: int | None, flags: str) -> None:
    text = SLURM.format(tasks=tasks, devices=devices, program=program) + MEGATRON.rstrip("\n") + flags + "\n"
    fragment = read(text)
    assert at(fragment, "parallelism", "num_accelerators") == ranks
    if ranks is None:
        told = reason(fragment, "parallelism.num_accelerators")
        assert "the script, which is not read, may start several processes" in told


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-node=8", "4 or 16: srun starts launch.sh as 2 tasks"),
        ("#SBATCH --gpus-per-node=8", "2 or 16: srun starts launch.sh as 1 task of each node"),
        ("#SBATCH --ntasks=16", "16 or more: srun starts launch.sh as 8 tasks of each node"),
    ],
)
@pytest.mark.parametrize("before", ["srun launch.sh", 'COMMAND="', "srun -l ./launch.sh \\\n"])
def test_the_ranks_that_a_script_may_start_are_alternatives(before: str, asked: str, told: str) -> None:
    program = MEGATRON.rstrip("\n") if before == "srun launch.sh" else MEGATRON.strip().removeprefix("pretrain_gpt.py")
    after = '"\nsrun launch.sh pretrain_gpt.py $COMMAND\n' if before.startswith("COMMAND") else "\n"
    text = f"#!/bin/bash\n#SBATCH --nodes=2\n{asked}\n{before}{program}{after}"
    assert reason(read(text), "parallelism.num_accelerators").startswith(told)


def assert_opens_in(plain: str, more: str, keys: str) -> None:
    """A further line of a text opens the keys."""
    setting = more.split(":", maxsplit=1)[0].split(" ", maxsplit=1)[0].strip().lstrip("-").replace("-", "_")
    assert_opens(read(plain), read(plain.rstrip("\n") + more + "\n"), keys, setting)


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ("--heterogeneous-layers-config-path l.json", "model.num_parameters model.num_key_value_heads"),
        ("--kitchen-recipe-number 2", "precision.compute"),
        ("--fp4-param-gather", "precision.parameters"),
        ("--inprocess-active-world-size 12", "parallelism.num_accelerators parallelism.data"),
        ("--perform-rl-step", "batch.micro_sequences batch.global_sequences"),
        ("--outer-dp-sharding-strategy optim", "parallelism.sharding"),
        ("--torch-fsdp2-no-reshard-after-forward", "parallelism.sharding"),
        ("--megatron-fsdp-main-params-dtype bf16", "precision.master_parameters"),
    ],
)
def test_megatron(more: str, keys: str) -> None:
    plain = f"torchrun --nnodes 2 --nproc-per-node 8{MEGATRON.rstrip()} --use-distributed-optimizer --swiglu"
    assert_opens_in(f"{plain} --vocab-size 32000 --untie-embeddings-and-output-weights", f" {more}", keys)


def test_a_file_that_goes_before_the_arguments_of_megatron() -> None:
    fragment = read(f"torchrun --nnodes 2 --nproc-per-node 8{MEGATRON.rstrip()} --yaml-cfg job.yaml\n")
    assert not {"model", "batch", "optimizer", "parallelism"} & fragment.facts.keys()
    assert "yaml_cfg" in reason(fragment, "model")


def test_megatron_without_an_effect() -> None:
    plain = f"torchrun --nnodes 2 --nproc-per-node 8{MEGATRON.rstrip()} --use-distributed-optimizer"
    same = f"{plain} --outer-dp-sharding-strategy no_shard --megatron-fsdp-main-params-dtype fp32\n"
    assert read(same).facts == read(plain).facts


def test_nemo() -> None:
    text = text_of("nemo-gpt.yaml").text
    changed = text.replace("\nmodel:\n", "\nmodel:\n  fsdp: true\n")
    assert changed != text
    assert_opens(read(text), read(changed), "parallelism.sharding precision.parameters", "model.fsdp")


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ("shard_optimizer_over_data: true", "parallelism.sharding"),
        ("custom_mesh: hybrid_ring_64x4", "parallelism.sharding parallelism.data"),
        ("use_dpo: true", "batch.micro_sequences batch.global_sequences"),
        ("share_kv_projections: true", "model.num_parameters"),
    ],
)
def test_maxtext(more: str, keys: str) -> None:
    text = text_of("maxtext-hybrid.yml").text.replace('base_config: "base.yml"\n', "")
    assert_opens_in(text, f"\n{more}", keys)


def test_torchtune() -> None:
    assert_opens_in(text_of("torchtune-lora.yaml").text, "\noptimizer_in_bwd: True", "optimizer.clipping")


def test_nanotron() -> None:
    stages = "\ndata_stages:\n- {{name: long, start_training_step: 1, sequence_length: {length}, data: {{seed: 1}}}}"
    assert_opens_in(NANOTRON, stages.format(length=8192), "model.sequence_length")
    assert read(NANOTRON + stages.format(length="null") + "\n").facts == read(NANOTRON).facts


@pytest.mark.parametrize(
    ("old", "new", "keys", "word"),
    [
        ("scheduler: {", "scheduler: {grad_clip_warmup_steps: 2000, ", "optimizer.clipping", "grad_clip_warmup_steps"),
        ("max_duration: 4e12T", "max_duration: 1000000\nstop_at: 500", "job.num_steps", "stop_at"),
    ],
)
def test_olmo(old: str, new: str, keys: str, word: str) -> None:
    plain = OLMO if word != "stop_at" else OLMO.replace(old, new.split("\n", maxsplit=1)[0])
    assert_opens(read(plain), read(OLMO.replace(old, new)), keys, word)


def test_llm_foundry() -> None:
    growing = JOB.replace("algorithms:\n", "algorithms:\n  seq_length_warmup: {duration: 0.3, max_seq_length: 2048}\n")
    assert_opens(read(JOB), read(growing), "model.sequence_length", "seq_length_warmup")
