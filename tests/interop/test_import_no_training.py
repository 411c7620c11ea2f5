"""Sources that train nothing are refused, and what logs and forks leave open is no fact."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import deepspeed, huggingface, maxtext, megatron, torchtune

SHAPE = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 2 --fp16"
MESH = "per_device_batch_size=2 ici_fsdp_parallelism=4 ici_tensor_parallelism=1"


def script(program: str, options: str = "") -> Fragment:
    return megatron.read(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {program} {SHAPE} {options}\n"))


@pytest.mark.parametrize(
    "program",
    [
        "tools/run_text_generation.py",
        "generate_samples_gpt.py",
        "tools/checkpoint/convert.py",
        "eval.py",
        "$A/decode.py",
    ],
)
def test_programs_that_use_a_model_are_refused(program: str) -> None:
    with pytest.raises(ForeignFormatError, match="is no program that trains") as caught:
        script(program)
    assert caught.value.help == "give the script of the training"


@pytest.mark.parametrize(
    "options",
    ["--task LAMBADA --strict-lambada", "--task MSDP-PROMPT --num-prompt-examples 20", "--retro-tasks db-build"],
)
def test_tasks_that_train_nothing_are_refused(options: str) -> None:
    with pytest.raises(ForeignFormatError, match="evaluates, or prepares data"):
        script("tasks/main.py", options)
    assert at(script("tasks/main.py", "--task RACE --lr 1e-5 --epochs 3"), "model", "num_layers") == 4


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "train_and_eval.py", "$SCRIPT.py"])
def test_other_programs_are_read(program: str) -> None:
    assert at(script(program), "model", "num_layers") == 4


def test_a_script_of_maxtext_that_also_decodes_is_read_by_its_training() -> None:
    decode = f"python3 -m MaxText.decode MaxText/configs/base.yml {MESH} max_target_length=99\n"
    train = f"python3 -m MaxText.train MaxText/configs/base.yml {MESH} max_target_length=2048 steps=10\n"
    assert at(maxtext.read(ForeignText("run.sh", train + decode)), "model", "sequence_length") == 2048
    with pytest.raises(ForeignFormatError, match="decode is no program that trains"):
        maxtext.read(ForeignText("run.sh", decode))


def test_a_recipe_of_torchtune_without_an_optimizer_is_refused() -> None:
    model = "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\ndtype: bf16\nbatch_size: 8\n"
    with pytest.raises(ForeignFormatError, match="trains nothing"):
        torchtune.read(ForeignText("eval.yaml", f"{model}tasks: [mmlu]\n"))
    whole = f"{model}optimizer:\n  _component_: torch.optim.AdamW\n  lr: 1e-5\n"
    assert at(torchtune.read(ForeignText("full.yaml", whole)), "batch", "micro_sequences") == 8


ARGUMENTS = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": 128,
    "vocab_size": 1024,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "world_size": 2,
    "micro_batch_size": 2,
    "global_batch_size": 8,
    "img_h": 224,
    "bert_binary_head": True,
    "vision_pretraining": False,
}


def log(after: str = "", **changed: object) -> Fragment:
    lines = [f"0:   {name} {'.' * (40 - len(name))} {value}" for name, value in {**ARGUMENTS, **changed}.items()]
    return megatron.read(ForeignText("log.txt", "\n".join([*lines, after]) + "\n"))


def test_defaults_that_every_log_has_say_nothing_of_the_model() -> None:
    fragment = log()
    assert_sound(fragment)
    assert at(fragment, "model", "family") == "dense-transformer"
    assert at(fragment, "model", "sequence_length") == 128
    assert at(log(vision_pretraining=True), "model", "family") == "other"


def test_a_value_on_the_next_line_of_a_log_is_read_and_one_that_is_cut_off_is_open() -> None:
    cut = "0:   clip_grad ................"
    assert at(log(f"{cut}\n0: ...... 0.5"), "optimizer", "clipping", "threshold") == 0.5
    fragment = log(f"{cut}\n1: [default0]: using world size: 2")
    assert at(fragment, "optimizer", "clipping") is None
    assert "the log cuts its line" in str(fragment.unknown)


def test_the_count_of_megatron_goes_before_the_shape() -> None:
    line = "0: > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 123456"
    assert at(log(line), "model", "num_parameters") == 123456
    assert at(log(line, tensor_model_parallel_size=2), "model", "num_parameters") != 123456


def test_experts_of_a_token_and_windows_are_no_defaults() -> None:
    assert "model.experts.num_active_experts" in unknown_keys(script("pretrain_gpt.py", "--num-experts 8"))
    assert at(script("pretrain_gpt.py"), "model", "attention") == "full"
    assert "model.attention" in unknown_keys(script("pretrain_gpt.py", "--window-size 128,0"))


def test_further_norms_and_windows_of_maxtext() -> None:
    shape = "base_emb_dim: 64\nbase_num_query_heads: 4\nbase_num_kv_heads: 2\nbase_mlp_dim: 128\nhead_dim: 16\n"
    shape += (
        "base_num_decoder_layers: 3\nvocab_size: 256\nmlp_activations: [gelu, linear]\nlogits_via_embedding: true\n"
    )

    def read(more: str) -> Fragment:
        return maxtext.read(ForeignText("model.yml", shape + more))

    plain = at(read("decoder_block: gemma\n"), "model", "num_parameters")
    normed = read("decoder_block: gemma\nuse_post_attn_norm: true\nuse_post_ffw_norm: true\nuse_qk_norm: true\n")
    assert at(normed, "model", "num_parameters") - plain == 3 * (2 * 64 + 2 * 16)
    windows = read("decoder_block: gemma2\nsliding_window_size: 4096\n")
    assert "model.attention" in unknown_keys(windows)
    assert at(read("decoder_block: llama2\nsliding_window_size: 4096\n"), "model", "attention") == "grouped-query"


def test_what_two_sections_state_is_open() -> None:
    text = "grpo:\n  per_device_train_batch_size: 1\n  learning_rate: 5.0e-6\n  warmup_steps: 1\n{}"
    alone = huggingface.read_trainer(ForeignText("base.yaml", text.format("")))
    assert at(alone, "batch", "micro_sequences") == 1
    fragment = huggingface.read_trainer(ForeignText("base.yaml", text.format("sft:\n  batch_size: 4\n  lr: 1.0e-4\n")))
    assert {"batch.micro_sequences", "optimizer.learning_rate.peak"} <= unknown_keys(fragment)


def test_a_format_of_communication_is_kept_where_the_regime_is_open() -> None:
    text = '{"bf16": {"enabled": "auto"}, "communication_data_type": "fp32", "zero_optimization": {"stage": 2}}'
    fragment = deepspeed.read(ForeignText("ds.json", text))
    assert at(fragment, "precision", "reduction") == "fp32"
    assert "precision.compute" in unknown_keys(fragment)


def test_a_hostfile_of_the_environment_is_not_called_the_default_one() -> None:
    words = "--per_device_train_batch_size 1 --do_train True"
    fragment = huggingface.read_trainer(ForeignText("run.sh", f"deepspeed --hostfile=$HOSTS run_clm.py {words}\n"))
    [why] = [entry.reason for entry in fragment.unknown if entry.pointer == ("parallelism", "num_accelerators")]
    assert "whose name is not resolved" in why
    assert "hostfile" in remarks_of(fragment)
