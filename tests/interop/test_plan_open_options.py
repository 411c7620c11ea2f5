"""Options whose name, or whose meaning, a script or a program of its own decides leave open what they may say."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import megatron, nemo

SHAPE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --vocab-size 50304"
BATCH = "--micro-batch-size 4 --global-batch-size 64 --train-iters 100"


def run(arguments: str, before: str = "", program: str = "pretrain_gpt.py", launcher: str = "torchrun") -> Fragment:
    command = f"{launcher} --nproc_per_node 8 --nnodes 2 {program} {SHAPE} {BATCH} {arguments}\n"
    return megatron.read(ForeignText("run.sh", f"{before}\n{command}" if before else command))


def why(fragment: Fragment, key: str) -> str:
    return next(item.reason for item in fragment.unknown if ".".join(map(str, item.pointer)) == key)


def test_a_name_that_the_script_states_is_read() -> None:
    assert at(run("--${DTYPE}", "DTYPE=bf16"), "precision", "compute") == "bf16"


def test_a_name_that_a_branch_decides_has_its_alternatives() -> None:
    fragment = run("--${DTYPE}", 'DTYPE=fp16\nif [ "$NEW" = 1 ]; then DTYPE=bf16; fi')
    assert_sound(fragment)
    assert at(fragment, "precision", "compute") is None
    assert why(fragment, "precision.compute").startswith("fp16 or bf16 or fp32: ")
    assert at(fragment, "parallelism", "tensor") == 1, "which is no alternative of it"


@pytest.mark.parametrize("word", ["--${MODE}", "--$MODE=2", "--${MODE}-size"])
def test_a_name_from_outside_may_be_any_option(word: str) -> None:
    fragment = run(f"--bf16 {word} --tensor-model-parallel-size 2")
    assert at(fragment, "parallelism", "tensor") == 2
    assert {"parallelism.pipeline", "model.family", "model.experts", "precision.gradients"} <= unknown_keys(fragment)
    assert "further options may come from outside the script: --$" in remarks_of(fragment)


def test_options_that_are_only_there_if_a_variable_is_are_no_value() -> None:
    fragment = run("--bf16 ${MORE_ARGS:+$MORE_ARGS}")
    assert at(fragment, "precision", "compute") == "bf16"
    assert {"precision.gradients", "parallelism.tensor"} <= unknown_keys(fragment)


def test_assignments_in_a_chain_are_certain() -> None:
    chained = run("--bf16 --tensor-model-parallel-size $TP", "export NAME=a && \\\nexport TP=4 && PP=2 && \\")
    assert at(chained, "parallelism", "tensor") == 4
    assert at(chained, "parallelism", "data") == 4
    failing = run("--bf16 --tensor-model-parallel-size $TP", "A=$(grep -c x y) && TP=4")
    assert at(failing, "parallelism", "tensor") is None


@pytest.mark.parametrize("option", ["--moe-num-experts=64", "--number-of-experts 8", "--expert-parallelism"])
def test_an_option_on_experts_that_megatron_has_not(option: str) -> None:
    fragment = run(f"--bf16 {option}")
    assert_sound(fragment)
    assert {"model.family", "model.experts", "parallelism.expert", "model.num_parameters"} <= unknown_keys(fragment)
    assert at(fragment, "model", "num_parameters") is None
    assert at(run("--bf16 --moe-aux-loss-coeff 0.01"), "model", "family") == "dense-transformer"


def test_layers_of_a_specification_that_is_not_read() -> None:
    fragment = run("--bf16 --spec own.models.new get_spec")
    assert {"model.family", "model.attention", "model.num_parameters"} <= unknown_keys(fragment)


def test_accelerators_of_another_program_are_not_those_of_a_hostfile() -> None:
    command = f"ray start --num-gpus 8\npython3 pretrain_gpt.py {SHAPE} {BATCH} --bf16\n"
    fragment = megatron.read(ForeignText("run.sh", command))
    assert not any("hostfile" in item.reason for item in fragment.unknown)


def test_a_configuration_without_a_model_starts_from_one_that_has_it() -> None:
    text = """trainer: {num_nodes: 2, devices: 8, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 64
  megatron_amp_O2: true
  optim: {name: distributed_fused_adam, lr: 1.0e-6}
  data: {data_prefix: []}
pretrained_checkpoint: {restore_from_path: null}
"""
    fragment = nemo.read_nemo(ForeignText("dpo.yaml", text))
    assert at(fragment, "parallelism", "num_accelerators") == 16
    wanted = {"tensor", "pipeline", "context", "expert", "data"}
    assert {f"parallelism.{key}" for key in wanted} <= unknown_keys(fragment)
    assert {"model.gated_ffn", "model.tied_embeddings", "memory.activation_policy"} <= unknown_keys(fragment)
    assert not fragment.defaults


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--t5-swiglu", "model.gated_ffn"),
        ("--untie-embed", "model.tied_embeddings"),
        ("--overlap-grad-comm", "communication.overlap_gradients"),
        ("--use-seq-parallel-attention", "parallelism.sequence"),
        ("--sharding-strategy hybrid", "parallelism.sharding"),
        ("--overlapped-distributed-optimizer", "parallelism.sharding"),
        ("--overlapped-distributed-optimizer", "communication.overlap_parameters"),
    ],
)
def test_an_option_that_no_reader_knows_leaves_open_what_its_words_say(option: str, key: str) -> None:
    assert key not in unknown_keys(run("--bf16"))
    fragment = run(f"--bf16 {option}")
    assert_sound(fragment)
    assert key in unknown_keys(fragment)
    name = option.split(maxsplit=1)[0].lstrip("-").replace("-", "_")
    assert why(fragment, key) == f"`{name}`, which this reader does not know, may decide it"


@pytest.mark.parametrize("option", ["--router-gated-noise 1", "--attention-gated 1", "--dataset-shard-degree 4"])
def test_an_option_about_something_else_leaves_nothing_open(option: str) -> None:
    assert unknown_keys(run(f"--bf16 {option}")) == unknown_keys(run("--bf16"))


@pytest.mark.parametrize("named", [True, False])
def test_a_file_of_deepspeed_that_is_named_decides_on_accumulation(*, named: bool) -> None:
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --micro-batch-size 4 --train-iters 100 --deepspeed"
    fragment = megatron.read(ForeignText("run.sh", command + " --deepspeed_config zero.json" * named + "\n"))
    assert (at(fragment, "batch", "global_sequences") is None) is named
    assert ("batch.accumulation_steps" in unknown_keys(fragment)) is named


@pytest.mark.parametrize("before", ["", "--use-flash-attn ", "--bf16 ", "--no-save-optim "])
@pytest.mark.parametrize(
    ("word", "assigned"),
    [
        ('"${A[@]}"', "mapfile -t A < options.txt"),
        ("$OTHERS", "OTHERS=${OTHERS/2/4}"),
        ("$(model_options)", "model_options() { echo --tensor-model-parallel-size 4; }"),
        ("`cat options.txt`", ""),
        ("$(<options.txt)", ""),
        ("${!name}", "name=OTHERS"),
    ],
)
def test_a_word_of_the_caller_after_a_switch_holds_further_options(before: str, word: str, assigned: str) -> None:
    shape = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
    batch = "--micro-batch-size 2 --train-iters 10 --lr 1e-4"
    script = f"{assigned}\ntorchrun --nproc-per-node 8 pretrain_gpt.py {shape} {batch} {before}{word}\n"
    fragment = megatron.read(ForeignText("run.sh", script))
    assert at(fragment, "parallelism", "tensor") is None
    assert at(fragment, "batch", "global_sequences") is None


def test_a_value_of_the_caller_leaves_one_option_open() -> None:
    fragment = run("--bf16 --seed $SEED --log-interval $EVERY --train-iters $STEPS")
    assert at(fragment, "parallelism", "tensor") == 1


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ('X=""\nif [ "$1" = a ]; then X="$2"; fi', "$X"),
        ('X=""\nwhile [ : ]; do case "$1" in -a) X="$X $2"; shift 2;; esac; done', "$X"),
        ('X=""\nif [ "$1" = a ]; then X="$MORE $2"; fi', "$X"),
    ],
)
def test_a_list_that_a_branch_fills_from_outside_is_no_value_of_a_switch(before: str, word: str) -> None:
    fragment = run(f"--no-save-optim --bf16 {word}", before)
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "parallelism", "pipeline") is None
    assert "further options may come from outside the script: $2" in remarks_of(fragment)


def test_what_a_branch_takes_from_outside_next_to_options_is_told() -> None:
    fragment = run("$RUN", 'X=""\nif [ "$1" = a ]; then X="--train-iters 7 $2"; fi\nRUN="--no-save-optim --bf16 $X"')
    assert at(fragment, "precision", "compute") == "bf16"
    assert "further options may come from outside the script: $2" in remarks_of(fragment)


@pytest.mark.parametrize("word", ["$ROOT/pretrain", "$((NUM*2))", "${ROOT}/a"])
def test_a_path_or_a_number_holds_no_further_options(word: str) -> None:
    assert "further options" not in remarks_of(run(f"--bf16 --use-flash-attn {word}", launcher="torchrun"))
