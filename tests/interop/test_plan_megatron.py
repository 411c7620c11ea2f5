"""Megatron-LM: launch scripts, argument lists and logged arguments become plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import assert_sound, at, broken, converted, document, findings, how, imported, remarks_of, unknown_keys

from trainspec_validate.interop.document import facts_of
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers._megatron_model import expert_layers
from trainspec_validate.interop.readers._shell_commands import read_script
from trainspec_validate.interop.readers._shell_variables import MAX_VALUE
from trainspec_validate.interop.readers._shell_words import MAX_CHARACTERS, _Scanner, tokens
from trainspec_validate.interop.readers.megatron import looks_like, read
from trainspec_validate.model.finding import Severity

SHAPE = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --vocab-size 50304 "
    "--max-position-embeddings 2048"
)
BATCH = "--micro-batch-size 4 --global-batch-size 64 --train-iters 100"


def run(arguments: str, before: str = "", launcher: str = "torchrun --nproc_per_node 8 --nnodes 2") -> Fragment:
    return read(ForeignText("run.sh", f"{before}\n{launcher} pretrain_gpt.py {SHAPE} {BATCH} {arguments}\n"))


def test_a_launch_script(tmp_path: Path) -> None:
    fragment = imported("megatron-launch.sh")
    assert_sound(fragment)
    assert fragment.facts["parallelism"] == {
        "num_accelerators": 128,
        "data": 4,
        "tensor": 8,
        "pipeline": 4,
        "context": 1,
        "expert": 1,
        "sequence": True,
        "num_virtual_stages": 4,
        "schedule": "interleaved-1f1b",
        "sharding": "optimizer",
    }
    assert fragment.facts["job"] == {"seed": 1234, "num_tokens": 25_000_000 * 8192}
    assert at(fragment, "model", "num_parameters") == 70_553_706_496
    assert "shape" in how(fragment, "model.num_parameters")
    assert at(fragment, "memory", "allocator") == "expandable-segments"
    assert at(fragment, "communication", "timeout_seconds") == 1800
    assert unknown_keys(fragment) == {"precision.nonfinite_action"}  # releases differ
    plan = converted(document(fragment))
    assert plan.batch.accumulation_steps == 128
    assert broken(document(fragment), tmp_path) == set()


def test_the_ramp_of_a_batch() -> None:
    ramp = at(imported("megatron-launch.sh"), "batch", "ramp")
    assert [stage["global_sequences"] for stage in ramp] == [128, 256, 384, 512]
    assert [stage["from_tokens"] for stage in ramp] == [0, 1_000_000 * 8192, 2_000_000 * 8192, 3_000_000 * 8192]


def arguments_of(**more: object) -> Fragment:
    lines = {"num_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "seq_length": 2048, "vocab_size": 50304}
    lines |= {"micro_batch_size": 4, "global_batch_size": 1152, "train_samples": 19531250, **more}
    text = "MODEL_ARGS:\n" + "".join(f"  --{key.replace('_', '-')}: {value}\n" for key, value in lines.items())
    return read(ForeignText("model_config.yaml", text))


@pytest.mark.parametrize(("ramp", "stages"), [('"384 384 97656250"', 3), ('"384 some 97656250"', None)])
def test_a_ramp_in_one_text_is_read_or_opens_the_steps(ramp: str, stages: int | None) -> None:
    fragment = arguments_of(rampup_batch_size=ramp)
    found = fragment.facts["batch"].get("ramp")
    assert (len(found) if found else None) == stages
    assert "num_steps" not in fragment.facts.get("job", {})


@pytest.mark.parametrize("flag", ["--enable-zbh1-pipeline", "--enable-zero-bubble"])
def test_a_zero_bubble_schedule(flag: str) -> None:
    assert at(run(f"--pipeline-model-parallel-size 2 {flag}"), "parallelism", "schedule") == "zero-bubble"
    assert at(run("--pipeline-model-parallel-size 2"), "parallelism", "schedule") == "1f1b"


def test_what_is_not_read_is_listed_once() -> None:
    fragment = imported("megatron-launch.sh")
    unread = [remark.message for remark in fragment.remarks if remark.message.startswith("not read")]
    names = [name for message in unread for name in message.partition(": ")[2].split(", ")]
    assert len(names) == len(set(names))
    for name in ("data_path", "tokenizer_type"):
        assert name in names
    for name in ("num_layers", "lr", "min_lr", "clip_grad"):
        assert name not in names
    assert "a checkpoint every 500 steps" in remarks_of(fragment)
    lines = [remark.line for remark in fragment.remarks if "every 500" in remark.message]
    assert lines == [65]


def test_logged_arguments_of_a_mixture(tmp_path: Path) -> None:
    fragment = imported("megatron-log.txt")
    assert_sound(fragment)
    assert at(fragment, "model", "experts") == {"num_experts": 8, "num_active_experts": 2, "ffn_hidden_size": 14336}
    assert at(fragment, "model", "num_parameters") == 46_702_792_704
    assert at(fragment, "model", "num_active_parameters") == 12_879_925_248
    assert at(fragment, "parallelism", "data") == 8
    assert at(fragment, "parallelism", "num_accelerators") == 64
    converted(document(fragment))
    assert broken(document(fragment), tmp_path) == set()


def test_a_list_of_arguments_with_too_many_tensor_ranks(tmp_path: Path) -> None:
    fragment = imported("megatron-bad-heads.txt")
    assert at(fragment, "model", "vocabulary_size") is None
    assert "the program that reads these arguments is not given" in why(fragment, "model.vocabulary_size")
    assert at(fragment, "precision", "loss_scaling") == {"mode": "static", "initial_scale": 1024.0}
    found = findings(document(fragment), tmp_path, Severity.WARNING)
    assert ("TS-PAR-016", ("model", "num_attention_heads")) in {(one.requirement, one.pointer) for one in found}


def test_a_batch_and_layers_that_do_not_divide(tmp_path: Path) -> None:
    fragment = imported("megatron-bad-batch.sh")
    assert at(fragment, "batch", "accumulation_steps") is None
    assert "batch.accumulation_steps" in unknown_keys(fragment)
    assert "is no multiple of" in remarks_of(fragment)
    assert {"parallelism.num_virtual_stages", "parallelism.schedule"} <= unknown_keys(fragment)
    answers = {
        "batch": {"accumulation_steps": 1},
        "parallelism": {"num_virtual_stages": 2, "schedule": "interleaved-1f1b"},
    }
    found = {requirement for requirement, _ in broken(document(fragment, answers), tmp_path)}
    assert {"TS-BAT-001", "TS-PAR-010"} <= found
    assert "given several times" in remarks_of(fragment)
    assert "the batch of 500 sequences" in remarks_of(fragment)


def test_formats() -> None:
    fragment = run("--bf16")
    assert at(fragment, "precision", "reduction") == "fp32"
    assert "by default" in how(fragment, "precision.reduction")
    assert at(run("--bf16 --grad-reduce-in-bf16"), "precision", "gradients") == "bf16"
    assert at(run("--fp16"), "precision", "reduction") == "fp16"
    assert at(run("--fp16 --accumulate-allreduce-grads-in-fp32"), "precision", "accumulation") == "fp32"
    plain = run("")
    assert at(plain, "precision", "compute") == "fp32"
    assert at(plain, "precision", "master_parameters") is None


AWARE = "--bf16 --use-precision-aware-optimizer"


@pytest.mark.parametrize(
    ("arguments", "sums"),
    [
        (f"{AWARE} --main-grads-dtype bf16", "bf16"),
        (f"{AWARE} --main-grads-dtype fp32", "fp32"),
        (f"{AWARE} --main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32", "fp32"),
        (f"{AWARE} --main-grads-dtype fp32 --grad-reduce-in-bf16", "bf16"),
        (f"{AWARE} --main-grads-dtype other", None),
        (f"{AWARE} --main-grads-dtype $GRADS", None),
    ],
)
def test_the_format_of_main_gradients_decides_on_sums(arguments: str, sums: str | None) -> None:
    fragment = run(arguments)
    for key in ("gradients", "accumulation", "reduction"):
        assert at(fragment, "precision", key) == sums
        assert (f"precision.{key}" in unknown_keys(fragment)) == (sums is None)


def test_formats_of_a_precision_aware_optimizer() -> None:
    fragment = run(f"{AWARE} --exp-avg-dtype torch.bfloat16 --exp-avg-sq-dtype bf16 --main-params-dtype fp32")
    assert at(fragment, "precision", "optimizer_state") == "bf16"
    assert at(fragment, "precision", "master_parameters") == "fp32"
    scaled = run(f"{AWARE} --main-params-dtype fp16")
    assert at(scaled, "precision", "master_parameters") is None
    assert "precision.master_parameters" in unknown_keys(scaled)
    assert "a scale for each tensor" in remarks_of(scaled)


SAMPLES = "--train-samples 64000 --lr 1e-4 --lr-warmup-samples 1000"
LENGTHS = ("total_steps", "warmup_steps", "total_tokens", "warmup_tokens")


@pytest.mark.parametrize(
    ("arguments", "lengths"),
    [
        ("--lr-decay-samples 58000", (906, 15, None, None)),
        ("--lr-decay-samples 58000 --rampup-batch-size 32 32 1000", (None, None, 58000, 1000)),
    ],
)
def test_samples_become_steps_where_every_batch_is_alike_and_tokens_where_it_grows(
    arguments: str, lengths: tuple[int | None, ...]
) -> None:
    fragment = run(f"{SAMPLES} {arguments}")
    rate = at(fragment, "optimizer", "learning_rate")
    size = at(fragment, "model", "sequence_length")
    wanted = [number if number is None or at < 2 else number * size for at, number in enumerate(lengths)]
    assert [rate.get(key) for key in LENGTHS] == wanted
    assert not {key for key in unknown_keys(fragment) if "learning_rate" in key}
    assert "same without it: lr_" not in remarks_of(fragment)


@pytest.mark.parametrize("arguments", ["", "--optimizer adam", "--optimizer adam --weight-decay 0.1"])
def test_adam_decouples_weight_decay(arguments: str) -> None:
    """`decoupled_weight_decay` of Megatron-LM is true, and no argument changes it; Apex decoupled it before."""
    fragment = run(f"{arguments} --lr 1e-4")
    assert at(fragment, "optimizer", "name") == "adamw"
    assert "adam_w_mode" in how(fragment, "optimizer.name")


def test_dynamic_loss_scaling(tmp_path: Path) -> None:
    fragment = run("--fp16 --initial-loss-scale 65536 --loss-scale-window 500 --accumulate-allreduce-grads-in-fp32")
    scaling = at(fragment, "precision", "loss_scaling")
    assert scaling["mode"] == "dynamic"
    assert scaling["initial_scale"] == 65536
    assert scaling["growth_interval_steps"] == 500
    assert scaling["hysteresis_steps"] == 2
    assert "the default of NVIDIA/Megatron-LM@" in how(fragment, "precision.loss_scaling.hysteresis_steps")
    assert broken(document(fragment), tmp_path) == set()


@pytest.mark.parametrize(
    ("arguments", "recipe"),
    [
        ("--fp8-format hybrid --fp8-amax-history-len 1024", {"format": "fp8-hybrid", "scaling": "delayed"}),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", {"format": "mxfp8", "scaling": "block", "block_size": 32}),
        ("--fp8-format e4m3 --fp8-recipe blockwise", {"format": "fp8-block", "scaling": "block", "block_size": 128}),
        ("--fp8-format hybrid --fp8-recipe tensorwise", {"format": "fp8-hybrid", "scaling": "current"}),
    ],
)
def test_recipes(arguments: str, recipe: dict[str, object], tmp_path: Path) -> None:
    fragment = run(f"--bf16 {arguments}")
    assert recipe.items() <= at(fragment, "precision", "recipe").items()
    assert broken(document(fragment), tmp_path) == set()


@pytest.mark.parametrize(
    ("arguments", "sharding"),
    [
        ("", "none"),
        ("--use-distributed-optimizer", "optimizer"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "gradients"),
        ("--use-torch-fsdp2", "parameters"),
        ("--deepspeed --zero-stage 2", "gradients"),
    ],
)
def test_sharding(arguments: str, sharding: str) -> None:
    assert at(run(arguments), "parallelism", "sharding") == sharding


def test_stages_of_different_length(tmp_path: Path) -> None:
    split = (
        "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 5"
    )
    fragment = run(f"--bf16 {split}")
    assert at(fragment, "parallelism", "stage_layers") == [5, 7, 7, 5]
    assert broken(document(fragment), tmp_path) == set()
    ends = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    fragment = run(f"--pipeline-model-parallel-size 2 {ends}")
    assert at(fragment, "parallelism", "stage_layers") == [12, 12]
    fragment = run("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'E?t'")
    assert "parallelism.stage_layers" in unknown_keys(fragment)


def test_a_layout_of_chunks(tmp_path: Path) -> None:
    layout = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Ettt|(tttt|)*2ttt|(ttt|)*3tL'"
    fragment = run(f"--bf16 {layout}")
    assert at(fragment, "parallelism", "stage_layers") == [3, 4, 4, 3, 3, 3, 3, 1]
    assert at(fragment, "parallelism", "num_virtual_stages") == 2
    assert at(fragment, "parallelism", "schedule") == "interleaved-1f1b"
    assert broken(document(fragment), tmp_path) == set()
    short = run(f"--bf16 {layout.replace('tttt', 'ttt')}")
    assert "TS-PAR-010" in {requirement for requirement, _ in broken(document(short), tmp_path)}


def test_sequence_parallelism_without_tensor_ranks() -> None:
    fragment = run("--sequence-parallel")
    assert at(fragment, "parallelism", "sequence") is False
    assert "switches it off" in remarks_of(fragment)


def test_width_that_follows_from_the_gate() -> None:
    assert at(run("--swiglu"), "model", "ffn_hidden_size") == 2688
    assert at(run(""), "model", "ffn_hidden_size") == 4096
    assert "the default" in how(run(""), "model.ffn_hidden_size")


def test_the_name_of_a_run() -> None:
    assert run("--wandb-exp-name 'gpt 1.3b/first'").facts["metadata"] == {"name": "gpt-1.3b-first"}


def test_layers_with_experts() -> None:
    assert expert_layers("([0]*3+[1]*58)", 61) == 58
    assert expert_layers("[0]*3+[2]*58", 61) is None
    fragment = run("--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 512 --moe-layer-freq '[0]*1+[1]*23'")
    assert at(fragment, "model", "experts", "num_layers") == 23


def test_the_number_of_ranks() -> None:
    slurm = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8"
    assert at(run("", slurm, "srun python"), "parallelism", "num_accelerators") == 32
    unknown = run("", "", "torchrun --nproc_per_node 8 --nnodes $NODES")
    assert at(unknown, "parallelism", "num_accelerators") is None
    assert {"parallelism.num_accelerators", "parallelism.data"} <= unknown_keys(unknown)


def test_variables_of_the_script() -> None:
    before = 'TP=2\nPP=$((TP * 2))\nexport CP=${CP:-2}\nMORE="--bf16 --context-parallel-size $CP"\nMORE+=" --swiglu"'
    fragment = run("--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} $MORE", before)
    assert fragment.facts["parallelism"]["tensor"] == 2
    assert fragment.facts["parallelism"]["pipeline"] == 4
    assert "context" not in fragment.facts["parallelism"]
    assert "2 or another value" in why(fragment, "parallelism.context")
    assert at(fragment, "model", "gated_ffn") is True


@pytest.mark.parametrize("given", ["${MODEL_ARGS[@]}", "$EXTRA_ARGS"])
def test_what_options_of_another_file_may_say_is_unknown(given: str) -> None:
    text = f'source "models/a.sh"\npython3 train.py {given} --global-batch-size 64 --expert-model-parallel-size 8 '
    text += "--tensor-model-parallel-size 2 --micro-batch-size 1 --lr 1e-6\n"
    fragment = read(ForeignText("run.sh", text))
    assert at(fragment, "parallelism", "expert") == 8
    assert {"model.experts", "model.num_layers", "parallelism.num_virtual_stages"} <= unknown_keys(fragment)
    assert not fragment.defaults
    positional = read(ForeignText("run.sh", text.replace(given, '"$@"')))
    assert "model.experts" not in unknown_keys(positional)


def test_a_variable_from_outside_stays_unknown() -> None:
    fragment = run("--tensor-model-parallel-size $TP")
    assert at(fragment, "parallelism", "tensor") is None
    assert "parallelism.tensor" in unknown_keys(fragment)
    assert "$TP" in remarks_of(fragment)


def test_what_depends_on_a_variable_from_outside_is_unknown() -> None:
    given = "--num-experts $EXPERTS --fp8-format $FP8 --recompute-granularity $RECOMPUTE --num-query-groups $GROUPS"
    fragment = run(f"--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage $LAYERS {given}")
    assert_sound(fragment)
    wanted = {"model.family", "precision.recipe", "memory.activation_policy", "model.num_key_value_heads"}
    assert wanted | {"parallelism.schedule", "parallelism.num_virtual_stages"} <= unknown_keys(fragment)


def test_nothing_is_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    fragment = run(f"--tensor-model-parallel-size $(touch {target}; echo 2) --pipeline-model-parallel-size `echo 2`")
    assert not target.exists()
    assert {"parallelism.tensor", "parallelism.pipeline"} <= unknown_keys(fragment)


def why(fragment: Fragment, key: str) -> str:
    """Why a key is unknown."""
    return next(entry.reason for entry in fragment.unknown if ".".join(map(str, entry.pointer)) == key)


def test_what_a_branch_decides_is_left_open_with_its_alternatives() -> None:
    fragment = run("--bf16 $EXTRA", 'if [[ "$1" == "fp8" ]]; then\n  EXTRA="--fp8-format hybrid"\nfi\nX=1')
    assert at(fragment, "precision", "recipe") is None
    assert "hybrid (line 2)" in why(fragment, "precision.recipe")
    assert at(fragment, "precision", "compute") == "bf16"


SIZES = """
case $1 in
  7b) LAYERS=32; HIDDEN=4096; TP=2 ;;
  13b|14b) LAYERS=40; HIDDEN=5120; TP=2 ;;
  *) echo "unknown size"; exit 1 ;;
esac
"""


def sized(before: str, more: str = "") -> Fragment:
    shape = "--num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads 32 --seq-length 2048 --vocab-size 32000"
    shape += " --max-position-embeddings 2048"
    start = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py"
    text = f"{before}\n{start} {shape} --tensor-model-parallel-size $TP {BATCH} {more}\n"
    return read(ForeignText("run.sh", text))


def test_cases_that_the_caller_chooses() -> None:
    fragment = sized(SIZES)
    assert at(fragment, "parallelism", "tensor") == 2
    assert at(fragment, "model", "num_layers") is None
    assert why(fragment, "model.num_layers").startswith("32 or 40: it follows from num_layers")
    assert why(fragment, "model.num_parameters").count(" or ") == 2  # two models, and two values of one setting
    assert at(fragment, "parallelism", "data") == 8
    assert "the caller decides" in remarks_of(fragment)


def test_a_case_that_the_script_itself_decides() -> None:
    fragment = sized("SIZE=14b\n" + SIZES.replace("$1", "$SIZE"))
    assert at(fragment, "model", "num_layers") == 40
    assert at(fragment, "model", "num_parameters") > 10e9
    fragment = sized(
        "LAYERS=1 HIDDEN=2 TP=1 SIZE=13\nif [ $SIZE == 7 ]; then TP=4\nelif [ $SIZE -gt 10 ]; then TP=8; fi"
    )
    assert at(fragment, "parallelism", "tensor") == 8


def test_a_default_for_what_comes_from_outside_is_left_open() -> None:
    fragment = sized('LAYERS=${LAYERS:-32}\nHIDDEN=4096\nTP=2\nHEADS="${HEADS:=8}"')
    assert why(fragment, "model.num_layers").startswith("32 or another value")
    assert at(fragment, "model", "hidden_size") == 4096


def test_several_values_that_a_loop_goes_through() -> None:
    loop = "LAYERS=32 HIDDEN=4096\nfor TP in 1 2 4; do"
    fragment = sized(loop, "\ndone")
    assert why(fragment, "parallelism.tensor").startswith("1 or 2 or 4")
    assert at(fragment, "model", "num_layers") == 32
    counted = sized("LAYERS=32 HIDDEN=4096 TP=1\nwhile true; do TP=$((TP * 2)); done")
    assert "parallelism.tensor" in unknown_keys(counted)


def test_sums_of_what_a_branch_decides() -> None:
    fragment = sized('TP=2\nif [ -n "$BIG" ]; then N=4; else N=2; fi\nLAYERS=$((N * 8)) HIDDEN=$((N * N * 64))')
    assert why(fragment, "model.num_layers").startswith("32 or 16")
    assert why(fragment, "model.hidden_size").startswith("1024 or 256")


def test_a_function_is_followed_where_it_is_called() -> None:
    head = "launch() {\n  LAYERS=$1 HIDDEN=4096\n"
    fragment = sized(head, "\n}\nTP=4\nlaunch 48")
    assert at(fragment, "model", "num_layers") == 48
    assert at(fragment, "parallelism", "tensor") == 4


def test_two_commands_that_train_are_alternatives() -> None:
    fragment = run("--bf16", f"if [ $A = b ]; then torchrun pretrain_gpt.py {SHAPE} {BATCH} --fp16; fi")
    assert why(fragment, "precision.compute").startswith("fp16 or bf16")
    assert at(fragment, "model", "num_layers") == 24


def test_a_document_inside_a_script_is_no_command() -> None:
    fragment = run("--bf16", "cat <<EOF > ds.json\nif it's open\n--num-layers 99\nEOF\nls")
    assert at(fragment, "model", "num_layers") == 24


def test_files_that_a_script_reads_in_are_told() -> None:
    assert "reads in ./sizes.sh, which is not read" in remarks_of(run("--bf16", "source ./sizes.sh"))
    further = run("--bf16 $EXTRA")
    assert "$EXTRA" in remarks_of(further)
    assert at(further, "precision", "compute") == "bf16"


def test_a_file_of_arguments_for_another_script() -> None:
    fragment = read(ForeignText("conf.sh", f'MODEL_ARGS=" \\\n  {SHAPE} \\\n  --swiglu \\\n"\n'))
    assert at(fragment, "model", "num_layers") == 24
    assert at(fragment, "model", "gated_ffn") is True


def test_a_command_in_a_variable() -> None:
    fragment = read(
        ForeignText("run.sh", f'CMD="python pretrain_gpt.py {SHAPE} --micro-batch-size \\"2\\""\nsrun $CMD\n')
    )
    assert at(fragment, "batch", "micro_sequences") == 2


def test_models_beside_the_decoder() -> None:
    fragment = run("--decoder-seq-length 128 --mtp-num-layers 1")
    assert at(fragment, "model", "family") == "other"
    assert "model.num_parameters" in unknown_keys(fragment)
    assert "no plain decoder" in remarks_of(fragment)
    assert "further tokens" in remarks_of(fragment)


def test_a_script_beyond_bounds() -> None:
    with pytest.raises(ForeignFormatError, match="longer than"):
        read(ForeignText("run.sh", "x" * (MAX_CHARACTERS + 1)))


def test_growing_variables_are_refused() -> None:
    lines = ["A=" + "x" * 1024, *(f"A=$A$A # {step}" for step in range(40))]
    with pytest.raises(ForeignFormatError, match="grow"):
        read_script("\n".join(lines))
    with pytest.raises(ForeignFormatError, match="grow"):
        read_script("A=" + "x" * (MAX_VALUE + 1))


@pytest.mark.parametrize("text", ["echo 'open", 'X="open', "echo ${open", "echo $(open"])
def test_a_script_that_is_cut_off(text: str) -> None:
    with pytest.raises(ForeignFormatError, match="never closed") as caught:
        read(ForeignText("run.sh", f"ls\n{text}\n"))
    assert caught.value.line is not None


def test_a_text_without_arguments() -> None:
    text = ForeignText("run.sh", "echo hello\n")
    assert not looks_like(text)
    with pytest.raises(ForeignFormatError, match="no command"):
        read(text)


def test_a_vocabulary_is_padded_to_what_is_asked() -> None:
    """BLOOM: bigscience-workshop/bigscience, train/tr11-176B-ml/tr11-176B-ml.slurm."""
    fragment = run("--tensor-model-parallel-size 4 --pad-vocab-size-to 250880")
    assert at(fragment, "model", "vocabulary_size") == 250_880
    assert not any("pad_vocab_size_to" in remark for remark in remarks_of(fragment))
    assert at(run("--tensor-model-parallel-size 4"), "model", "vocabulary_size") == 50_688


def test_a_mixture_without_a_vocabulary_lacks_both_counts() -> None:
    arguments = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --num-experts 8"
    fragment = read(ForeignText("run.sh", f"torchrun pretrain_gpt.py {arguments} --micro-batch-size 1 --bf16\n"))
    assert {"model.num_parameters", "model.num_active_parameters"} <= unknown_keys(fragment)


def test_ranks_that_the_degrees_do_not_fill_leave_the_data_degree_open() -> None:
    fragment = run("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16")
    assert at(fragment, "parallelism", "num_accelerators") == 16
    assert at(fragment, "parallelism", "data") is None
    assert "parallelism.data" in unknown_keys(fragment)
    assert "16 ranks are no multiple of 128" in remarks_of(fragment)


@pytest.mark.parametrize("gate", ["--quick-geglu", "--glu-activation swiglu"])
def test_gates_that_do_not_change_the_width(gate: str) -> None:
    fragment = run(gate)
    assert at(fragment, "model", "gated_ffn") is True
    assert at(fragment, "model", "ffn_hidden_size") == 4096


def test_gpt_oss_has_its_published_number_of_parameters() -> None:
    """OpenAI's model card (arXiv:2508.10925, table 1): 116.83 billion in all, 5.13 billion for a token without the
    input table; biases and sinks are left out here."""
    shape = "--num-layers 36 --hidden-size 2880 --ffn-hidden-size 2880 --num-attention-heads 64 --kv-channels 64"
    shape += " --group-query-attention --num-query-groups 8 --num-experts 128 --moe-router-topk 4"
    shape += " --moe-ffn-hidden-size 2880 --padded-vocab-size 201088 --untie-embeddings-and-output-weights"
    fragment = read(
        ForeignText(
            "run.sh",
            f"python pretrain_gpt.py {shape} --seq-length 4096 --quick-geglu --disable-bias-linear "
            "--position-embedding-type rope\n",
        )
    )
    assert at(fragment, "model", "num_parameters") == pytest.approx(116.83e9, rel=0.001)
    assert at(fragment, "model", "num_active_parameters") - 201088 * 2880 == pytest.approx(5.13e9, rel=0.005)


def test_parameters_that_are_kept_in_fp8() -> None:
    fragment = run("--bf16 --fp8-format hybrid --fp8-param-gather")
    assert at(fragment, "precision", "parameters") == "fp8"
    assert at(fragment, "precision", "compute") == "bf16"
    assert "fp8_param_gather" in how(fragment, "precision.parameters")


@pytest.mark.parametrize(
    "before",
    [
        "true && " * 5000 + "true",
        "{ " * 2000,
        "if (( " * 2000,
        "".join(f'if [ $X ]; then A="$A --o{k} {k}"; fi\n' for k in range(500)),
        "".join(f"f{k}() {{ f{k + 1}; f{k + 1}; }}\n" for k in range(60)) + "f60() { A=1; }\nf0",
        "for I in 1 2 3; do\n" * 40 + "A=$I\n" + "done\n" * 40,
        "case $1 in\n" + "".join(f"{k}) A={k};;\n" for k in range(500)) + "esac",
        "case in in esac; while; do; done; if; then; fi; for; do done",
    ],
)
def test_a_hostile_script_ends(before: str) -> None:
    fragment = run("--bf16 $A", before)
    assert at(fragment, "model", "num_layers") == 24


def test_a_script_that_nests_too_deep() -> None:
    with pytest.raises(ForeignFormatError, match="nests too deep"):
        run("", "if a; then\n" * 500 + "A=1\n" + "fi\n" * 500)


LAUNCHED = """#!/bin/bash
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
GPUS_PER_NODE=4
LAUNCHER="python -u -m torch.distributed.launch --nproc_per_node $GPUS_PER_NODE --nnodes $SLURM_NNODES"
CMD="pretrain_gpt.py {shape} {batch} --tensor-model-parallel-size 4 --fp16 {more}"
echo $CMD
srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD'
"""


def launched(more: str = "", text: str = LAUNCHED) -> Fragment:
    return read(ForeignText("job.slurm", text.format(shape=SHAPE, batch=BATCH, more=more)))


def test_tasks_of_slurm_are_no_ranks_under_a_launcher() -> None:
    assert at(launched(), "parallelism", "num_accelerators") == 64
    alone = launched(text=LAUNCHED.replace("--nproc_per_node $GPUS_PER_NODE ", ""))
    assert at(alone, "parallelism", "num_accelerators") is None


def test_loss_scaling_under_deepspeed_is_in_its_file() -> None:
    assert at(launched("--loss-scale 12"), "precision", "loss_scaling") == {"mode": "static", "initial_scale": 12.0}
    fragment = launched("--loss-scale 12 --deepspeed --deepspeed_config ds.json")
    assert "precision.loss_scaling" in unknown_keys(fragment)


def test_older_names_of_degrees_and_heads() -> None:
    assert at(launched("", LAUNCHED.replace("tensor-model", "model")), "parallelism", "tensor") == 4
    assert at(launched("--attention-head-type multiquery"), "model", "num_key_value_heads") == 1


@pytest.mark.parametrize(
    "program", ["pretrain_bert.py", "pretrain_t5.py", "pretrain_mamba.py", "pretrain_vision_dino.py"]
)
def test_programs_of_other_models(program: str) -> None:
    fragment = read(ForeignText("run.sh", f"torchrun {program} {SHAPE} {BATCH} --bf16\n"))
    assert at(fragment, "model", "family") == "other"
    assert "model.num_parameters" in unknown_keys(fragment)


def test_defaults_are_those_of_megatron_only_for_its_own_programs() -> None:
    fragment = read(ForeignText("run.sh", f"python tests/test_hyena.py {SHAPE} {BATCH} --tensor-parallel-size=2\n"))
    assert at(fragment, "parallelism", "tensor") == 2
    assert {"precision.compute", "parallelism.pipeline", "model.gated_ffn"} <= unknown_keys(fragment)
    assert "defaults of its own" in why(fragment, "precision.compute")


def test_minus_one_leaves_a_value_open() -> None:
    fragment = run("--num-layers -1 --hidden-size -1 --bf16")
    assert at(fragment, "model", "num_layers") is None
    assert {"model.num_layers", "model.hidden_size", "model.num_parameters"} <= unknown_keys(fragment)


def test_torchrun_without_a_number_of_nodes_starts_one() -> None:
    fragment = run("--bf16", "", "torchrun --nproc_per_node=4")
    assert at(fragment, "parallelism", "num_accelerators") == 4
    assert "the default of torchrun" in how(fragment, "parallelism.num_accelerators")
    assert at(run("--bf16", "", "torchrun --nproc_per_node=4 --nnodes $N"), "parallelism", "num_accelerators") is None


def test_a_command_that_is_shown_before_it_is_started() -> None:
    command = f"pretrain_gpt.py {SHAPE} {BATCH} --bf16"
    text = f'CMD="{command}"\nL="torchrun --nproc_per_node 8 --nnodes 4 --role x"\necho $CMD\nsrun bash -c "$L: $CMD"\n'
    fragment = read(ForeignText("run.sh", text))
    assert at(fragment, "parallelism", "num_accelerators") == 32


def test_what_does_not_divide_stays_open() -> None:
    experts = "--num-experts 8 --moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 700"
    fragment = run(experts)
    assert {"model.experts.num_shared_experts", "model.num_parameters"} <= unknown_keys(fragment)
    assert "700 is no multiple of 512" in remarks_of(fragment)
    fragment = run("--num-attention-heads 15")
    assert "head_size" in why(fragment, "model.num_parameters")


def test_a_method_of_recomputation_alone_asks_for_all_of_it() -> None:
    assert at(run("--activations-checkpoint-method uniform"), "memory", "activation_policy") == "full"


@pytest.mark.parametrize(
    ("arguments", "before", "lost"),
    [
        ("--tensor-model-parallel-size ${TP:-8}", "", ("parallelism.data", "batch.accumulation_steps")),
        ("--tensor-model-parallel-size $TP", ': "${TP:=4}"', ("parallelism.data", "batch.accumulation_steps")),
        ("--tensor-model-parallel-size $TP", "", ("parallelism.data", "batch.accumulation_steps")),
        ("--context-parallel-size ${CP:-2}", "", ("parallelism.data", "batch.accumulation_steps")),
        ("--num-query-groups ${GROUPS:-8} --group-query-attention", "", ("model.num_parameters", "model.attention")),
        ("--kv-channels ${K:-128}", "", ("model.num_parameters",)),
        ("--rampup-batch-size $RAMP", "", ("job.num_tokens",)),
    ],
)
def test_nothing_is_made_of_an_undecided_value_in_the_whole_plan(
    arguments: str, before: str, lost: tuple[str, ...]
) -> None:
    """Joining the fragments completes the plan once more; an undecided degree must not count as 1 there."""
    plan = facts_of(merge([run(f"{arguments} --bf16", before)]))
    for dotted in lost:
        group, key = dotted.split(".")
        assert key not in plan[group], dotted


SOURCES = """
FILE=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --config) FILE="$2"; shift 2 ;;
    *) exit 1 ;;
  esac
done
NODES=1
TP=2
if [ -n "$FILE" ]; then source "$FILE"; fi
CP=2
NODES=${NODES:-1}
"""
SOURCED_RANKS = "torchrun --nproc_per_node 8 --nnodes $NODES"


def test_a_file_that_is_read_in_may_change_what_stands_before_it() -> None:
    arguments = "--tensor-model-parallel-size $TP --context-parallel-size $CP --bf16"
    fragment = run(arguments, SOURCES, SOURCED_RANKS)
    assert {"parallelism.num_accelerators", "parallelism.data", "parallelism.tensor"} <= unknown_keys(fragment)
    assert why(fragment, "parallelism.tensor").startswith("2 or another value")
    assert at(fragment, "parallelism", "context") == 2
    plan = facts_of(merge([fragment]))
    assert not {"num_accelerators", "data", "tensor"} & plan["parallelism"].keys()


@pytest.mark.parametrize("line", ['source "$FILE"', 'source "$A/$FILE.sh"', "torchrun_args $X$FILE", ". $FILE"])
def test_no_message_shows_how_a_choice_is_noted(line: str) -> None:
    before = f"{SOURCES}\n{line}\nX=1\nif [ $B = c ]; then EXTRA=$FILE; else EXTRA=--bf16; fi"
    fragment = run("$UNSET$FILE --wandb-exp-name $FILE $EXTRA", before, SOURCED_RANKS)
    texts = [remarks_of(fragment), str(fragment.facts), *(entry.reason for entry in fragment.unknown)]
    assert not any("\ue000" in text or "\ue001" in text for text in texts)
    assert "reads in $2" in texts[0]


@pytest.mark.parametrize(
    "line", ["source venv/bin/activate", "source activate train", ". /opt/conda/etc/profile.d/conda.sh"]
)
def test_files_of_package_managers_change_no_sizes(line: str) -> None:
    assert at(run("--tensor-model-parallel-size $TP --bf16", f"TP=2\n{line}"), "parallelism", "tensor") == 2


FORK = "--deepspeed --deepspeed_config ds.json --vocab-size 50304"


def test_megatron_deepspeed_has_defaults_of_its_own() -> None:
    """The fork leaves to DeepSpeed's file what Megatron-LM does by default."""
    fragment = run(f"{FORK} --fp16")
    decided = {"communication.overlap_gradients", "communication.overlap_parameters", "communication.timeout_seconds"}
    formats = {"precision.gradients", "precision.reduction", "precision.accumulation", "precision.nonfinite_action"}
    assert decided | formats | {"parallelism.sharding"} <= unknown_keys(fragment)
    assert at(fragment, "parallelism", "data") == 16
    assert at(run(f"{FORK} --distributed-timeout-minutes 5"), "communication", "timeout_seconds") == 300
    assert not any("NVIDIA/Megatron-LM@d98e8a64:megatron/training" in how for how in fragment.derived.values())
    assert_sound(fragment)


def test_experts_of_megatron_deepspeed() -> None:
    fragment = run(f"{FORK} --num-experts 128 --moe-expert-parallel-size 16 --fp16")
    assert at(fragment, "parallelism", "expert") == 16
    assert at(fragment, "model", "experts") == {
        "num_experts": 128,
        "num_active_experts": 1,
        "ffn_hidden_size": 4096,
        "num_layers": 12,
    }
    several = run(f"{FORK} --num-experts 64 64 --topk 2 --expert-interval 4 --fp16")
    assert at(several, "model", "experts", "num_experts") == 64
    assert at(several, "model", "experts", "num_active_experts") == 2
    assert at(several, "model", "experts", "num_layers") == 6
    assert "parallelism.expert" in unknown_keys(several)
    mixed = run(f"{FORK} --num-experts 32 64 --moe-expert-parallel-size 16 --fp16")
    assert {"model.experts.num_experts", "model.num_parameters"} <= unknown_keys(mixed)
    assert at(run(f"{FORK} --num-experts 1 --fp16"), "model", "family") == "dense-transformer"


@pytest.mark.parametrize(
    ("arguments", "tokens", "steps"),
    [
        ("--train-tokens 1000", 1000, None),
        (f"--train-tokens {10**12}", None, 100),
    ],
)
def test_tokens_end_a_run_of_megatron_deepspeed(arguments: str, tokens: int | None, steps: int | None) -> None:
    plan = facts_of(merge([run(f"{FORK} --fp16 {arguments}")]))
    assert plan["job"].get("num_tokens") == tokens
    assert plan["job"].get("num_steps") == steps


@pytest.mark.parametrize(
    ("arguments", "sharding"),
    [("--bf16 --zero-stage 0", None), ("--fp16 --zero-stage 0", "none"), ("--bf16 --zero-stage 1", "optimizer")],
)
def test_stages_of_zero_beside_a_file(arguments: str, sharding: str | None) -> None:
    assert at(run(f"{FORK} {arguments}"), "parallelism", "sharding") == sharding


def test_sequences_that_deepspeed_splits() -> None:
    fragment = run(f"{FORK} --fp16 --ds-sequence-parallel-size 4")
    assert {"parallelism.context", "parallelism.data"} <= unknown_keys(fragment)


FSDP = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --bf16"
FSDP_FORMATS = "--megatron-fsdp-main-grads-dtype fp32 --megatron-fsdp-grad-comm-dtype bf16"


def formats(fragment: Fragment) -> tuple[object, ...]:
    return tuple(at(fragment, "precision", key) for key in ("gradients", "accumulation", "reduction"))


def test_formats_of_megatron_fsdp() -> None:
    both = FSDP_FORMATS.replace("fp32", "bf16")
    reduced = f"{FSDP} --grad-reduce-in-bf16"
    assert formats(run(f"{reduced} {FSDP_FORMATS}")) == ("fp32", "fp32", "bf16")
    assert formats(run(f"{reduced} {both}")) == ("bf16", "bf16", "bf16")
    assert formats(run(f"{reduced} --megatron-fsdp-main-grads-dtype fp32")) == ("fp32", "fp32", "fp32")
    assert formats(run(f"{FSDP} {both} --accumulate-allreduce-grads-in-fp32")) == ("fp32", "fp32", "fp32")
    assert formats(run(f"--bf16 {both}")) == ("fp32", "fp32", "fp32")
    left = run(f"{reduced} {FSDP_FORMATS.replace('fp32', 'auto')}")
    assert formats(left) == (None, None, "bf16")
    assert "auto" in why(left, "precision.gradients")


def test_formats_of_megatron_fsdp_that_depend_on_its_version() -> None:
    """Megatron-LM keeps bf16 gradients in fp32 unless told otherwise, and some versions do so for these too."""
    fragment = run(f"{FSDP} {FSDP_FORMATS.replace('fp32', 'bf16')}")
    assert formats(fragment) == (None, None, None)
    assert "bf16" in why(fragment, "precision.reduction")


def test_formats_of_megatron_fsdp_in_a_branch() -> None:
    both = FSDP_FORMATS.replace("fp32", "bf16")
    fragment = run("--bf16 $FSDP", f'if [ "$U" = 1 ]; then FSDP="--use-megatron-fsdp --grad-reduce-in-bf16 {both}"; fi')
    assert formats(fragment) == (None, None, None)
    assert why(fragment, "precision.reduction").startswith("bf16 or fp32")


def test_layers_that_predict_further_tokens() -> None:
    assert at(run("--mtp-num-layers 1 --bf16"), "model", "num_mtp_layers") == 1
    assert "model.num_mtp_layers" in unknown_keys(run("--mtp-num-layers $MTP --bf16"))


SUBSTITUTED = """#!/bin/bash
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=4
# srun starts the ranks that torch.distributed needs
if [ "$MOCK" = true ]; then DATA="--mock-data"
else DATA="--data-path $(python3 $ROOT/create_data_config.py -p $DATASETS) --num-workers 3"; fi
CMD="python3 $ROOT/pretrain_gpt.py {shape} {batch} --bf16 $DATA"
srun -lu bash -c "RANK=\\$SLURM_PROCID $CMD"
"""


def test_a_command_in_a_substitution_is_not_the_program() -> None:
    fragment = launched(text=SUBSTITUTED)
    assert at(fragment, "parallelism", "num_accelerators") == 128
    assert at(fragment, "precision", "gradients") == "fp32"
    assert "create_data_config" not in "".join(entry.reason for entry in fragment.unknown)
    assert at(run("--bf16 --data-path `python3 other.py a b` --seed 3"), "precision", "gradients") == "fp32"


def test_no_group_is_left_empty() -> None:
    fragment = read(ForeignText("run.sh", f"python other.py {SHAPE} {BATCH} --bf16 --overlap-grad-reduce\n"))
    assert fragment.facts["communication"] == {"overlap_gradients": True}


def test_documents_without_an_end_are_looked_for_once() -> None:
    """The lines of a script are found once for all of its documents; all below one without an end is its text."""
    scanner = _Scanner("cat <<A\n" * 100)
    assert [scanner.line_of("A") for _ in range(100)] == [None] * 100
    index = scanner._lines
    assert index is not None
    assert scanner.line_of("cat <<A") == (0, 7)
    assert scanner._lines is index
    script = "cat <<A\none\n A \ncat <<B <<C\ntwo\nB\nC\nthree\n"
    assert [token.text for token in tokens(script) if token.kind == "word"] == ["cat", "cat", "three"]
    with pytest.raises(ForeignFormatError, match="no line A"):
        list(tokens("cat <<A\none\n"))


@pytest.mark.parametrize(
    ("flag", "action"),
    [("", None), ("--check-for-nan-in-loss-and-grad", "stop"), ("--no-check-for-nan-in-loss-and-grad", None)],
)
def test_what_ends_a_run_is_no_default(flag: str, action: str | None) -> None:
    fragment = run(f"--bf16 {flag}")
    assert at(fragment, "precision", "nonfinite_action") == action
    assert ("precision.nonfinite_action" in unknown_keys(fragment)) == (not flag)


@pytest.mark.parametrize("option", ["--use-bridge", "--bridge-hf-model /models/x", "--hf-checkpoint /models/x"])
def test_a_shape_that_another_program_takes_from_elsewhere_is_open(option: str) -> None:
    fragment = run(f"--bf16 {option}")
    assert_sound(fragment)
    assert at(fragment, "model", "num_layers") is None
    assert at(fragment, "model", "num_parameters") is None
    assert "may take the model from elsewhere" in {str(key): why for key, why in _reasons(fragment)}["num_layers"]


def _reasons(fragment: Fragment) -> list[tuple[str, str]]:
    return [(str(entry.pointer[-1]), entry.reason) for entry in fragment.unknown if entry.pointer[0] == "model"]


@pytest.mark.parametrize("frequency", ["$FREQUENCY", "'every third'"])
def test_experts_in_layers_that_nobody_counts_leave_the_parameters_open(frequency: str) -> None:
    options = "--num-experts 8 --moe-router-topk 2 --swiglu --untie-embeddings-and-output-weights --disable-bias-linear"
    plain = merge([run(options)]).facts["model"]
    assert "num_parameters" in plain
    joint = merge([run(f"{options} --moe-layer-freq {frequency}")]).facts["model"]
    assert "num_parameters" not in joint
    assert "num_active_parameters" not in joint


def test_what_one_file_leaves_open_is_not_counted_when_files_are_joined() -> None:
    positions = SHAPE.partition("--max-position")[0]
    script = f"torchrun --nproc_per_node 8 pretrain_gpt.py {positions} {BATCH} --swiglu --disable-bias-linear\n"
    fragment = read(ForeignText("run.sh", script))
    assert at(fragment, "model", "num_parameters") is None
    assert "num_parameters" not in merge([fragment]).facts["model"]


@pytest.mark.parametrize(
    ("words", "method"),
    [("", "ring"), ("--cp-comm-type a2a", "head-parallel"), ("--cp-comm-type a2a+p2p a2a+p2p", "head-parallel-ring")],
)
def test_the_method_of_context_ranks(words: str, method: str) -> None:
    fragment = run(f"--tensor-model-parallel-size 2 --context-parallel-size 2 {words}")
    assert_sound(fragment)
    assert at(fragment, "parallelism", "context_method") == method
    assert at(run(f"--tensor-model-parallel-size 2 {words}"), "parallelism", "context_method") is None


def test_methods_that_differ_by_layer_are_unknown() -> None:
    fragment = run("--context-parallel-size 2 --cp-comm-type p2p a2a")
    assert "parallelism.context_method" in unknown_keys(fragment)
