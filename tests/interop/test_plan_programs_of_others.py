"""Scripts whose programs are none of Megatron-LM, and what ends or lengthens a job of Megatron-LM."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.megatron import looks_like, read
from trainspec_validate.interop.recognise import recognise

SHAPE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048"
BATCH = "--micro-batch-size 4 --global-batch-size 64 --train-iters 100"


def script(command: str, before: str = "") -> Fragment:
    fragment = read(ForeignText("run.sh", f"{before}\n{command}\n"))
    assert_sound(fragment)
    return fragment


def gpt(*options: str, program: str = "pretrain_gpt.py", before: str = "") -> Fragment:
    return script(f"torchrun --nproc_per_node 8 {program} {SHAPE} {BATCH} {' '.join(options)}", before)


def test_a_program_with_a_few_names_of_megatron_is_refused() -> None:
    options = "--num-layers 4 --embedding-dim 4096 --seq-length 2048 --batch-size 4 --micro-batch-size 1 --lr 2e-5"
    with pytest.raises(ForeignFormatError, match=r"train_stage.py is no program of Megatron-LM"):
        script("python train_stage.py $(echo ${ARGS}) --rank 0", f'ARGS="{options}"')


@pytest.mark.parametrize("program", ["analyze_data.py", "tokenize.py", "quantize.py", "merge_partitions.py"])
def test_a_program_that_prepares_is_refused(program: str) -> None:
    with pytest.raises(ForeignFormatError, match="is no program that trains"):
        gpt(program=program)


def test_a_program_that_makes_its_own_model_has_no_defaults_of_the_model() -> None:
    own = gpt(program="pretrain_llama.py")
    assert {"model.tied_embeddings", "model.family", "model.num_key_value_heads"} <= unknown_keys(own)
    assert at(own, "model", "num_layers") == 24
    assert at(gpt(), "model", "tied_embeddings") is True
    untied = gpt("--untie-embeddings-and-output-weights", program="pretrain_llama.py")
    assert at(untied, "model", "tied_embeddings") is False


def test_what_kernels_of_megatron_do_is_not_known_of_another_program() -> None:
    assert "high_precision_operations" in at(gpt("--bf16"), "precision")
    assert "precision.high_precision_operations" in unknown_keys(gpt("--bf16", program="train_esm2.py"))


@pytest.mark.parametrize(
    ("shape", "size", "whole"),
    [
        ("--num-layers 24 --hidden-size 1024 --num-attention-heads 16", 250880, 559_214_592),
        ("--num-layers 30 --hidden-size 4096 --num-attention-heads 32", 250880, 7_069_016_064),
    ],
)
def test_the_published_sizes_of_models_with_biases(shape: str, size: int, whole: int) -> None:
    options = "--position-embedding-type alibi --embed-layernorm --seq-length 2048 --make-vocab-size-divisible-by 1"
    fragment = script(f"python pretrain_gpt.py {shape} --vocab-size {size} {BATCH} {options}")
    assert at(fragment, "model", "num_parameters") == whole


def test_what_is_not_known_of_biases_and_positions_leaves_the_count_open() -> None:
    for option in ("--normalization ScaleNorm", "--num-experts 8 --moe-router-topk 2", "--position-embedding-type abc"):
        fragment = gpt("--vocab-size 50304", "--max-position-embeddings 2048", option)
        assert {"model.num_parameters"} <= unknown_keys(fragment)
        assert at(fragment, "model", "name") is None
    table = at(gpt("--vocab-size 50304", "--max-position-embeddings 2048"), "model", "num_parameters")
    assert table - at(gpt("--vocab-size 50304", "--no-position-embedding"), "model", "num_parameters") == 2048 * 1024


def test_an_exit_interval_ends_the_job_before_its_last_step() -> None:
    early = gpt("--exit-interval 3")
    assert {"job.num_steps"} <= unknown_keys(early)
    assert at(early, "job", "num_tokens") is None
    assert at(gpt("--exit-interval 5000"), "job", "num_steps") == 100


def test_a_layout_gives_the_chunks_or_leaves_the_schedule_open() -> None:
    pipeline = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout"
    fragment = gpt(f"{pipeline} 'Et*6\\|(t*6\\|)*2t*6L'")
    assert at(fragment, "parallelism", "schedule") == "interleaved-1f1b"
    assert "parallelism.schedule" in unknown_keys(gpt(f"{pipeline} '(((('"))


def test_a_setting_of_which_only_the_value_differs_is_reported() -> None:
    text = 'if [ "$ROUND" = 1 ]; then SAVE=10; else SAVE=1500; fi'
    assert "save_interval is 10" in remarks_of(gpt("--save-interval $SAVE", before=text))


def test_lines_are_those_on_which_an_option_is_written() -> None:
    text = 'ARGS="\\\n  --save-interval 50 \\\n  --lr 1e-4 \\\n"\ntorchrun --nproc_per_node 8 `pwd`/pretrain_gpt.py '
    fragment = read(ForeignText("run.sh", f"{text}{SHAPE} {BATCH} $ARGS\n"))
    assert [remark.line for remark in fragment.remarks if "every 50 steps" in remark.message] == [2]
    assert "further options" not in remarks_of(fragment)


def test_a_rate_that_is_not_resolved_leaves_the_form_of_the_schedule() -> None:
    fragment = gpt("--lr $1 --lr-decay-style cosine --lr-warmup-iters 10")
    assert "optimizer.learning_rate.peak" in unknown_keys(fragment)
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert "not read by this importer" not in remarks_of(fragment).partition("lr_decay_style")[0]
    assert "lr: the source refers to $1" in reasons["optimizer", "learning_rate", "kind"]


def test_a_name_made_of_parameters_goes_with_them() -> None:
    options = ("--vocab-size 50304", "--disable-bias-linear", "--position-embedding-type rope")
    assert at(gpt(*options), "model", "name").startswith("transformer-")
    assert at(gpt(*options, "--spec plugins.models.own get_spec"), "model", "name") is None


UNDERSCORED = """NPROC_PER_NODE=4 megatron sft --model a/b --tensor_model_parallel_size 4 --sequence_parallel true \\
  --micro_batch_size 1 --global_batch_size 16 --train_iters 100 --lr 1e-5 --recompute_granularity selective
"""


def test_options_in_underscores_are_read_without_defaults_of_megatron() -> None:
    text = ForeignText("sft.sh", UNDERSCORED)
    assert recognise(text).name == "megatron-arguments"
    fragment = recognise(text).read(text)
    assert_sound(fragment)
    assert (at(fragment, "parallelism", "tensor"), at(fragment, "parallelism", "sequence")) == (4, True)
    assert fragment.facts["batch"] == {"micro_sequences": 1, "global_sequences": 16}
    assert at(fragment, "job", "num_steps") == 100
    assert at(fragment, "parallelism", "pipeline") is None
    aware = ForeignText("sft.sh", UNDERSCORED.rstrip() + " --bf16 true --use_precision_aware_optimizer\n")
    assert at(recognise(aware).read(aware), "precision", "optimizer_state") is None, "exp_avg_dtype has a default"
    open_keys = {"parallelism.pipeline", "parallelism.context", "precision.compute", "optimizer.name"}
    assert open_keys <= unknown_keys(fragment)


@pytest.mark.parametrize(
    "command",
    [
        "megatron export --tensor_model_parallel_size 2 --context_parallel_size 2 --pipeline_model_parallel_size 2",
        "python train.py --num_layers 2 --hidden_size 64 --seq_length 32 --micro_batch_size 4",
    ],
)
def test_a_conversion_and_a_program_without_degrees_are_not_those_of_megatron(command: str) -> None:
    assert not looks_like(ForeignText("run.sh", command + "\n"))


@pytest.mark.parametrize("program", ["pretrain_gpt3.py", "pretrain_qwen.py", "finetune_gpt.py", "train_gpt_dion.py"])
def test_a_program_of_a_fork_has_no_default_of_megatron(program: str) -> None:
    arguments = (
        "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 2048 --max-position-embeddings 2048 "
        "--micro-batch-size 2 --global-batch-size 64 --train-iters 100 --lr 1e-4 --fp16 --tensor-model-parallel-size 2"
    )
    own, fork = (
        read(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {name} {arguments}\n"))
        for name in ("pretrain_gpt.py", program)
    )
    assert own.defaults
    assert fork.defaults == {("parallelism", "num_accelerators")}  # one node, the default of torchrun
    assert fork.facts["batch"] == {key: own.facts["batch"][key] for key in fork.facts["batch"]}
    assert fork.facts["parallelism"]["tensor"] == 2
    reasons = {".".join(map(str, item.pointer)): item.reason for item in fork.unknown}
    for place in own.defaults - fork.defaults:
        assert at(fork, *map(str, place)) is None, place
    assert f"{program} is none of Megatron-LM's own programs, and may have other defaults" in reasons.values()
