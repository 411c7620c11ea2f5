"""Reasons of open values name what decides them, and files that a script writes count as its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import axolotl, deepspeed, huggingface, maxtext, megatron
from trainspec_validate.interop.recognise import recognise


def why(fragment: Fragment, key: str) -> str:
    """The reason for which a key is open."""
    assert_sound(fragment)
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}[key]


def of_axolotl(*lines: str) -> Fragment:
    head = ["base_model: some/model", "micro_batch_size: 2", "sequence_len: 512", "num_epochs: 1"]
    return axolotl.read(ForeignText("a.yml", "\n".join([*head, *lines]) + "\n"))


def of_megatron(*lines: str) -> Fragment:
    return megatron.read(ForeignText("run.sh", "\n".join(["#!/bin/bash", *lines]) + "\n"))


GPT = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"


def test_adapters_on_every_linear_layer_are_the_reason_for_open_targets() -> None:
    fragment = of_axolotl("adapter: lora", "lora_r: 8", "lora_target_linear: true")
    assert why(fragment, "lora.targets").startswith("lora_target_linear")


def test_an_optimizer_that_the_file_names_is_no_default() -> None:
    fragment = of_axolotl("optimizer: adamw_torch", "learning_rate: 0.001", "deepspeed: zero3.json")
    assert why(fragment, "optimizer.name") == "adamw by the arguments, and zero3.json, which is not read, may set it"
    unnamed = of_axolotl("learning_rate: 0.001", "deepspeed: zero3.json")
    assert why(unnamed, "optimizer.name").startswith("adamw by default")


def test_a_format_that_the_device_decides_is_no_default_of_the_trainer() -> None:
    fragment = of_axolotl("bf16: auto", "deepspeed: zero3.json")
    told = why(fragment, "precision.compute")
    assert told == "bf16 is auto: the device decides, and zero3.json, which is not read, may set it"


def test_a_share_of_a_length_that_the_recipe_sets_names_both() -> None:
    text = (
        "model:\n  seq_length: 128\n  tensor_model_parallel_size: 1\n"
        "ddp:\n  overlap_grad_reduce: true\n"
        "train:\n  train_iters: 40\n  global_batch_size: 8\n  micro_batch_size: 1\n"
        "optimizer:\n  lr: 1.0e-05\n"
        "scheduler:\n  lr_decay_style: cosine\n  lr_warmup_fraction: 0.1\n"
    )
    told = why(
        recognise(ForeignText("a.yaml", text)).read(ForeignText("a.yaml", text)), "optimizer.learning_rate.warmup_steps"
    )
    assert "40 steps of the job unless the recipe sets it" in told


@pytest.mark.parametrize(
    "asked",
    [
        "xpk workload create --device-type=tpu7x-4x4x8 --num-slices=1",
        "#   cloud.google.com/gke-tpu-topology: 4x4x8",
    ],
)
def test_the_shape_of_a_slice_is_the_reason_for_open_devices(asked: str) -> None:
    job = "python3 -m MaxText.train base.yml per_device_batch_size=2 max_target_length=128 ici_fsdp_parallelism=-1"
    fragment = maxtext.read(ForeignText("run.sh", f"{asked}\n{job} steps=5\n"))
    assert "4x4x8 chips (128)" in why(fragment, "parallelism.num_accelerators")
    assert "4x4x8 chips (128)" in why(fragment, "parallelism.data")


def test_axes_that_multiply_to_devices_need_no_shape() -> None:
    axes = "ici_fsdp_parallelism=8 dcn_data_parallelism=1"
    job = f"python3 -m MaxText.train base.yml per_device_batch_size=2 max_target_length=128 {axes} steps=5"
    fragment = maxtext.read(ForeignText("run.sh", f"xpk create --device-type=tpu7x-2x2x1\n{job}\n"))
    assert at(fragment, "parallelism", "num_accelerators") == 8


def test_a_file_that_the_script_reads_in_is_named_where_it_may_set_a_value() -> None:
    fragment = of_megatron("LAYERS=2", ". ./sizes.sh", f"python pretrain_gpt.py {GPT} --num-layers $LAYERS --lr 0.1")
    assert "./sizes.sh, which is not read, sets" in why(fragment, "model.num_layers")
    prepared = of_megatron("LAYERS=2", "source venv/bin/activate", f"python pretrain_gpt.py {GPT} --num-layers $LAYERS")
    assert at(prepared, "model", "num_layers") == 2


def written(*lines: str) -> Fragment:
    document = ["cat <<END > ds.json", "{", *lines, '  "bf16": {"enabled": true}', "}", "END"]
    run = f"deepspeed --num_gpus 2 pretrain_gpt.py {GPT} --micro-batch-size 2 --bf16 --lr 0.1 --train-iters 10"
    return of_megatron(*document, f"{run} --deepspeed --deepspeed_config ds.json")


def test_a_written_configuration_with_an_open_value_is_read_in_all_others() -> None:
    fragment = written('  "train_batch_size": $BATCH,', '  "zero_optimization": {"stage": $STAGE},')
    assert_sound(fragment)
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "precision", "master_parameters") == "fp32"
    assert "parallelism.sharding" in unknown_keys(fragment)


def test_an_open_stage_leaves_overlap_open() -> None:
    fragment = written('  "train_batch_size": 4,', '  "zero_optimization": {"stage": ${STAGE}},')
    for key in ("overlap_gradients", "overlap_parameters"):
        assert "on at stage 3 of ZeRO only" in why(fragment, f"communication.{key}")


def test_an_open_value_keeps_values_before_and_after_it() -> None:
    fragment = written('  "gradient_clipping": 0.5, "train_batch_size": $BATCH, "steps_per_print": 1,')
    assert at(fragment, "optimizer", "clipping", "threshold") == 0.5


@pytest.mark.parametrize(("half", "sharding"), [("bf16", None), ("fp16", "none")])
def test_stage_0_with_bf16_may_split_the_optimizer(half: str, sharding: str | None) -> None:
    text = f'{{"train_batch_size": 8, "{half}": {{"enabled": true}}, "zero_optimization": {{"stage": 0}}}}'
    fragment = deepspeed.read(ForeignText("ds.json", text))
    assert at(fragment, "parallelism", "sharding") == sharding
    if sharding is None:
        assert "BF16_Optimizer" in why(fragment, "parallelism.sharding")


def test_a_name_that_is_cut_says_so() -> None:
    text = f"per_device_train_batch_size: 4\ndo_train: true\nsave_steps: 10\nrun_name: {'a' * 127}--b\n"
    fragment = huggingface.read_trainer(ForeignText("args.yaml", text))
    assert at(fragment, "metadata", "name") == "a" * 127
    assert "cut to the 128 characters" in fragment.derived["metadata", "name"]


def test_lines_of_a_log_in_the_comments_of_a_script_are_no_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("script") / "run.sh"
    log = "# iteration 190/ 1000 | consumed samples: 760 | elapsed time per iteration (ms): 1381.7 |"
    path.write_text(f"#!/bin/bash\ntorchrun --nproc_per_node 2 pretrain_gpt.py {GPT} --micro-batch-size 2\n{log}\n")
    result = CliRunner().invoke(command, ["import", str(path)])
    assert result.exit_code == 0, result.output
    assert "num_layers: 2" in result.output


def of_nemo(steps: str, length: str = "128") -> Fragment:
    text = (
        "trainer:\n  num_nodes: 1\n  devices: 2\n  precision: bf16\n"
        f"  max_steps: {steps}\n  stage:\n    max_steps: 7\n    further: ${{..devices}}\n"
        f"model:\n  encoder_seq_length: {length}\n  tensor_model_parallel_size: 1\n  num_layers: 2\n  hidden_size: 64\n"
        "  micro_batch_size: 1\n  global_batch_size: 2\n"
    )
    source = ForeignText("a.yaml", text)
    return recognise(source).read(source)


@pytest.mark.parametrize("reference", ["${.stage.max_steps}", "${trainer.stage.max_steps}"])
def test_a_reference_to_a_value_of_the_file_is_followed(reference: str) -> None:
    assert at(of_nemo(reference), "job", "num_steps") == 7
    assert at(of_nemo("3", "${trainer.stage.further}"), "model", "sequence_length") == 2


@pytest.mark.parametrize("reference", ["${trainer.stage}", "${trainer.max_steps}", "${absent}", "${oc.env:STEPS}"])
def test_a_reference_to_nothing_plain_stays_open(reference: str) -> None:
    fragment = of_nemo(reference)
    assert at(fragment, "job", "num_steps") is None
    assert reference in why(fragment, "job.num_steps")


def test_a_file_right_after_the_program_may_set_what_the_arguments_leave_out() -> None:
    run = "accelerate launch --config_file zero3.yaml --num_processes 8 train.py recipes/dpo.yaml --num_train_epochs=1"
    text = ForeignText("run.sh", f"{run} --per_device_train_batch_size=2 --save_steps 10\n")
    fragment = huggingface.read_trainer(text)
    for key in ("optimizer.learning_rate.peak", "optimizer.name", "precision.compute"):
        assert why(fragment, key) == "recipes/dpo.yaml may set it, which is not read"
    assert "Trainer" not in why(fragment, "parallelism.sharding")
    assert at(fragment, "batch", "micro_sequences") == 2


def test_the_frozen_part_is_the_one_that_is_named() -> None:
    parts = "tune_type_connector: full\ntune_type_llm: frozen"
    text = f"per_device_train_batch_size: 4\ndo_train: true\nsave_steps: 10\n{parts}\n"
    fragment = huggingface.read_trainer(ForeignText("args.yaml", text))
    assert why(fragment, "num_parameters_trained").startswith("tune_type_llm ")


@pytest.mark.parametrize("name", ["/path/to/base_model", "<model>", "your-model"])
def test_a_placeholder_is_no_name_of_a_model(name: str) -> None:
    text = f"per_device_train_batch_size: 4\ndo_train: true\nsave_steps: 10\nmodel_name_or_path: {name!r}\n"
    fragment = huggingface.read_trainer(ForeignText("args.yaml", text))
    assert at(fragment, "model", "name") is None
    assert "to be replaced" in why(fragment, "model.name")


def test_heads_of_maxtext_have_a_size_of_their_own() -> None:
    text = (
        "base_emb_dim: 6144\nbase_num_query_heads: 24\nbase_num_kv_heads: 24\nbase_mlp_dim: 24576\n"
        "base_num_decoder_layers: 48\nvocab_size: 32000\nmlp_activations: [gelu]\nlogits_via_embedding: true\n"
        "per_device_batch_size: 1\nsteps: 10\ndecoder_block: default\n"
    )
    fragment = maxtext.read(ForeignText("a.yml", text))
    assert "does not divide" in why(fragment, "model.head_size")
    assert at(fragment, "model", "num_parameters") is None
    sized = maxtext.read(ForeignText("a.yml", text + "head_dim: 128\n"))
    assert at(sized, "model", "head_size") == 128
    assert "model.head_size" not in unknown_keys(sized)


def test_a_schedule_of_batch_sizes_leaves_the_tokens_of_the_job_open() -> None:
    job = "--micro-batch-size 1 --global-batch-size 512 --train-iters 1000"
    fragment = of_megatron(f'python pretrain_gpt.py {GPT} {job} --step-batch-size-schedule "0:16 2.4B:512"')
    assert why(fragment, "batch.ramp") == "step_batch_size_schedule changes the batch, and is not read"
    assert at(fragment, "job", "num_steps") == 1000
    assert at(fragment, "job", "num_tokens") is None
    plain = of_megatron(f"python pretrain_gpt.py {GPT} {job}")
    assert at(plain, "job", "num_tokens") == 1000 * 512 * 128


def test_steps_and_samples_together_leave_the_length_open() -> None:
    fragment = of_megatron(
        f"python pretrain_gpt.py {GPT} --micro-batch-size 1 --train-iters 100 \\", " --train-samples 5000"
    )
    reason = "train_iters and train_samples are both given; Megatron-LM takes one of them"
    assert (why(fragment, "job.num_steps"), why(fragment, "job.num_tokens")) == (reason, reason)
    assert reason in [remark.message for remark in fragment.remarks]


def test_the_project_of_retro_sets_the_batch() -> None:
    start = f"python pretrain_retro.py {GPT} --micro-batch-size 4 --train-iters 100"
    fragment = of_megatron(f"{start} --retro-project-dir project")
    for key in ("global_sequences", "accumulation_steps"):
        assert why(fragment, f"batch.{key}") == "the project of retro_project_dir sets the batch, and is not read"
        assert at(fragment, "batch", key) is None
    assert at(of_megatron(start), "batch", "accumulation_steps") == 1


def test_multiquery_attention_has_the_heads_that_the_program_is_given() -> None:
    start = f"python pretrain_gpt.py {GPT} --micro-batch-size 1 --train-iters 100 --attention-head-type multiquery"
    assert at(of_megatron(f"{start} --n-head-kv 2"), "model", "num_key_value_heads") == 2
    assert at(of_megatron(start), "model", "num_key_value_heads") == 1
    assert at(of_megatron("H=$1", f"{start} --n-head-kv $H"), "model", "num_key_value_heads") is None


def test_of_settings_that_vary_together_the_one_that_decides_is_named() -> None:
    shape = "--num-layers $N --hidden-size 64 --num-attention-heads 4 --seq-length 128 --vocab-size 1024"
    script = (
        "if [ $1 = small ]; then N=2; DTYPE=--bf16; MORE=--swiglu; else N=4; DTYPE=; MORE=; fi\n"
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} --micro-batch-size 1 --train-iters 10 $DTYPE $MORE\n"
    )
    fragment = megatron.read(ForeignText("run.sh", script))
    told = {".".join(map(str, item.pointer)): item.reason for item in fragment.unknown}
    assert "it follows from bf16, which is" in told["precision.master_parameters"]
    assert "it follows from swiglu, which is" in told["model.gated_ffn"]
    assert "it follows from num_layers, which is" in told["model.num_layers"]


def test_a_value_that_is_auto_names_its_setting() -> None:
    fragment = deepspeed.read(
        ForeignText("zero.json", '{"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}')
    )
    told = {".".join(map(str, item.pointer)): item.reason for item in fragment.unknown}
    assert told["optimizer.clipping"] == "gradient_clipping says auto: the program that starts the job fills it in"


def test_a_file_of_which_no_value_is_taken_has_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text(
        "# nThread 1 nGpus 1 minBytes 2 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1\n"
        "#  Rank  0 Group  0 Pid 30 on  node1 device  0 [0x15] Tesla V100-SXM2-16GB\n"
        "#  Rank  1 Group  0 Pid 31 on  node2 device  0 [0x15] Tesla V100-SXM2-16GB\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
        "#wrong\n"
        "           0             0     float    none      -1    24.28    0.00    0.00      0    18.51    0.00    0.00"
        "    N/A\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(command, ["import", str(path)])
    assert result.exit_code == 2
    assert "1 row is left out: no line names the program" in result.output
