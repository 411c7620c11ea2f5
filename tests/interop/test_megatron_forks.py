"""Forks of Megatron-LM that keep `pretrain_gpt.py`: defaults of Megatron-LM are no values of theirs."""

from __future__ import annotations

import pytest
from plan_files import at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.megatron import read

ARGUMENTS = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 4 "
    "--global-batch-size 512 --train-iters 1000 --tensor-model-parallel-size 2 --lr 1e-4 --bf16"
)
FROM_DEFAULTS = {
    "model.num_key_value_heads",
    "model.tied_embeddings",
    "model.gated_ffn",
    "communication.timeout_seconds",
}


def started(more: str = "", program: str = "pretrain_gpt.py", before: str = "", name: str = "train.sh") -> Fragment:
    launch = f"torchrun --nproc_per_node 8 --nnodes 4 --max-restarts 3 --monitor-interval 5 {program}"
    return read(ForeignText(name, f"#!/bin/bash\n{before}{launch} {ARGUMENTS} {more}\n"))


def reasons(fragment: Fragment) -> set[str]:
    return {entry.reason for entry in fragment.unknown if ".".join(map(str, entry.pointer)) in FROM_DEFAULTS}


@pytest.mark.parametrize(
    "more",
    [
        *(
            "",
            "--use-mcore-models --transformer-impl transformer_engine",
            "--recompute-activations",
            "--rampup-batch-size 32 32 100",
        ),
        *(
            "--log-inter 10",
            "--moe-router-topk 2 --num-experts 8",
            "--deepspeed --deepspeed_config ds.json --zero-stage 1",
        ),
        *("--checkpoint-activations --lr-decay-tokens 300000000", "--fp32-residual-connection"),
    ],
    ids=["plain", "core", "recomputed", "ramp", "shortened", "experts", "DeepSpeed", "older", "switch"],
)
@pytest.mark.parametrize(
    "place", ["", "/opt/Megatron-LM/", "${MEGATRON_PATH}/", "/workspace/megatron-lm-core_v0.12.0/"]
)
def test_programs_of_megatron_keep_its_defaults(more: str, place: str) -> None:
    fragment = started(more, f"{place}pretrain_gpt.py")
    assert at(fragment, "model", "tied_embeddings") is True
    assert not any("of a fork" in reason for reason in reasons(fragment))


@pytest.mark.parametrize(
    ("program", "before", "name", "words"),
    [
        ("/workspace/Megatron-Dion/pretrain_gpt.py", "", "train.sh", "the program is in Megatron-Dion"),
        ("pretrain_gpt.py", "cd /scratch/$USER/megatron-dion\n", "train.sh", "the program is in megatron-dion"),
        ("pretrain_gpt.py", "", "Megatron-Dion/examples/train.sh", "the program is in Megatron-Dion"),
        (
            "pretrain_gpt.py",
            "git clone -b dev https://github.com/lab/Megatron-LM.git\n",
            "train.sh",
            "the script fetches lab/Megatron-LM.git",
        ),
    ],
    ids=["path of the program", "directory", "path of the script", "clone"],
)
def test_a_place_of_a_fork_opens_the_defaults(program: str, before: str, name: str, words: str) -> None:
    fragment = started(program=program, before=before, name=name)
    assert unknown_keys(fragment) >= FROM_DEFAULTS
    assert all(reason.startswith(words) for reason in reasons(fragment))


@pytest.mark.parametrize(
    "before",
    [
        "git clone https://github.com/NVIDIA/Megatron-LM.git\n",
        "cd Megatron-LM\n",
        "DATA=/data/megatron-gpt2-345m/text\n",
    ],
)
def test_other_places_say_nothing(before: str) -> None:
    assert at(started(before=before), "model", "tied_embeddings") is True
