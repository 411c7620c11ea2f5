"""Every setting of a launch configuration is a fact, a remark, or listed as not read."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import (
    _deepspeed_plan,
    _megatron_model,
    _megatron_plan,
    _megatron_precision,
    _optimizer_plan,
    _shell_options,
    deepspeed,
    megatron,
)

SHAPE = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128"
MEGATRON = (_megatron_model, _megatron_plan, _megatron_precision, _optimizer_plan, _shell_options)
WORDS = ("3", "true", "full")
PROGRAMS = ("pretrain_gpt.py", "train.py", "pretrain_t5.py")


def literals(*modules: object) -> Iterator[str]:
    """Every text in the source of readers that may be the name of a setting."""
    found: set[str] = set()
    for module in modules:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))  # type: ignore[attr-defined]
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found.update(text for text in texts if isinstance(text, str) and re.fullmatch(r"[a-z][a-z0-9_]{2,60}", text))
    yield from sorted(found)


def said(fragment: Fragment) -> tuple[object, ...]:
    """What a fragment says, without the lines."""
    told = sorted(remark.message for remark in fragment.remarks)
    return fragment.facts, sorted(map(repr, fragment.unknown)), fragment.derived, told


def megatron_script(more: str = "", program: str = "pretrain_gpt.py") -> tuple[object, ...]:
    """What the script of a command says, or that it is refused."""
    try:
        return said(megatron.read(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {program} {SHAPE} {more}\n")))
    except ForeignFormatError as error:
        return ("refused", str(error))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_argument_of_megatron_is_lost(program: str) -> None:
    before = megatron_script(program=program)
    given = set(SHAPE.replace("--", "").replace("-", "_").split())
    lost = [
        (name, word)
        for name in literals(*MEGATRON)
        for word in WORDS
        if name not in given and megatron_script(f"--{name.replace('_', '-')} {word}", program) == before
    ]
    assert not lost


def test_no_setting_of_deepspeed_is_lost() -> None:
    def config(name: str = "", value: object = None) -> tuple[object, ...]:
        data: dict[str, object] = {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 4,
            "fp16": {"enabled": True},
        }
        data.update({name: value} if name else {})
        return said(deepspeed.read(ForeignText("ds.json", json.dumps(data))))

    before = config()
    lost = [
        (name, value)
        for name in literals(_deepspeed_plan, _optimizer_plan)
        for value in (3, "auto", {"type": "Adam", "params": {"lr": 1}, "enabled": True})
        if name not in {"train_batch_size", "train_micro_batch_size_per_gpu", "fp16"} and config(name, value) == before
    ]
    assert not lost


def test_optimizer_and_pattern_of_layers_are_in_the_answer() -> None:
    fragment = megatron.read(
        ForeignText(
            "run.sh",
            f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --optimizer muon --hybrid-layer-pattern M-M-M- "
            "--lr 1e-4 --lr-warmup-samples 10 --lr-decay-samples 100 --node_rank 0\n",
        )
    )
    told = " ".join(remark.message for remark in fragment.remarks)
    assert fragment.facts["optimizer"]["name"] == "muon"
    assert "M-M-M-" in told
    assert "node_rank" in told
    why = {entry.pointer[-1]: entry.reason for entry in fragment.unknown}
    assert why["total_steps"] == "lr_decay_samples is 100, and the global batch is not known"
    assert why["warmup_steps"] == "lr_warmup_samples is 10, and the global batch is not known"


def test_a_setting_that_only_one_branch_gives_is_listed() -> None:
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE}"
    text = f"if [[ $BATCH -eq 0 ]]; then\n  {command}\nelse\n  {command} --made-up-flag 3\nfi\n"
    fragment = megatron.read(ForeignText("run.sh", text))
    assert any("made_up_flag" in remark.message for remark in fragment.remarks)


def test_of_two_settings_that_say_the_same_one_is_needed() -> None:
    fragment = megatron.read(
        ForeignText("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --encoder-seq-length 128\n")
    )
    told = " ".join(remark.message for remark in fragment.remarks)
    assert "no value of the plan follows from it: encoder_seq_length" in told
    assert "no value of the plan follows from it: seq_length" not in told


LAUNCHED = f"pretrain_gpt.py {SHAPE} --global-batch-size 64 --micro-batch-size 1"


@pytest.mark.parametrize(
    "text",
    [
        f"if [[ $B ]]; then\n  torchrun --nproc_per_node 8 {LAUNCHED}\nelse\n  srun -N 16 python {LAUNCHED}\nfi\n",
        f"if [[ $B ]]; then\n  srun -N 16 python {LAUNCHED}\nelse\n  torchrun --nproc_per_node 8 {LAUNCHED}\nfi\n",
        f'if [[ $B ]]; then\n  L="torchrun --nproc_per_node 8"\nelse\n  L="srun -N 16 python"\nfi\n$L {LAUNCHED}\n',
    ],
)
def test_ranks_of_a_launcher_in_one_of_two_branches_are_unknown(text: str) -> None:
    fragment = megatron.read(ForeignText("run.sh", text))
    unknown = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert "num_accelerators" not in fragment.facts["parallelism"]
    reason = unknown["parallelism", "num_accelerators"]
    assert "torchrun (line" in reason
    assert "srun nodes=16" in reason


def test_ranks_of_two_launchers_in_branches_are_both_named() -> None:
    text = (
        f"if [[ $B ]]; then\n  torchrun --nproc_per_node 8 {LAUNCHED}\n"
        f"else\n  srun -N 16 --ntasks-per-node 4 python {LAUNCHED}\nfi\n"
    )
    fragment = megatron.read(ForeignText("run.sh", text))
    reason = {entry.pointer: entry.reason for entry in fragment.unknown}["parallelism", "num_accelerators"]
    assert reason.startswith("8 or 64: it follows from launcher")
    assert "torchrun (line 2)" in reason
    assert "(line 4)" in reason


def test_sizes_that_srun_is_given_go_before_those_of_the_job() -> None:
    def ranks(sizes: str) -> object:
        text = f"#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsrun {sizes} python {LAUNCHED}\n"
        return megatron.read(ForeignText("run.sh", text)).facts["parallelism"].get("num_accelerators")

    assert ranks("") == 32
    assert ranks("-N 2") == 16
    assert ranks("--ntasks-per-node=4") == 16
    assert ranks("-N $SOME") is None


def test_the_sequence_is_the_one_of_the_decoder() -> None:
    def model(arguments: str, program: str = "pretrain_vlm.py") -> Fragment:
        return megatron.read(
            ForeignText("run.sh", f"torchrun --nproc_per_node 8 {program} {SHAPE} --global-batch-size 64 {arguments}\n")
        )

    pictures = model("--decoder-seq-length 4096")
    assert pictures.facts["model"]["sequence_length"] == 4096
    assert pictures.facts["batch"]["global_tokens"] == 64 * 4096
    assert "128" in pictures.derived["model", "sequence_length"]
    alone = model("--vision-model-type clip", "train.py")
    assert "sequence_length" not in alone.facts["model"]
    assert "global_tokens" not in alone.facts["batch"]


def test_an_encoder_and_a_decoder_have_no_one_number_of_layers() -> None:
    arguments = "--encoder-num-layers 12 --decoder-num-layers 12 --encoder-seq-length 512 --decoder-seq-length 128"
    rest = "--hidden-size 64 --num-attention-heads 4 --global-batch-size 64"
    text = f"torchrun --nproc_per_node 8 pretrain_t5.py {arguments} {rest}\n"
    fragment = megatron.read(ForeignText("run.sh", text))
    unknown = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert not fragment.facts["model"].keys() & {"num_layers", "sequence_length"}
    assert "encoder_num_layers 12, decoder_num_layers 12" in unknown["model", "num_layers"]
    assert "512" in unknown["model", "sequence_length"]
