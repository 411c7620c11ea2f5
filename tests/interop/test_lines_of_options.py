"""A line of options below a command is no part of it where a comment or a missing sign ended the command."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

ABOVE = "torchrun --nnodes 16 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --micro-batch-size 2"
BELOW = "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --tensor-model-parallel-size 4 --bf16"


def read(text: str) -> Fragment:
    source = ForeignText("run.sh", text)
    return recognise(source).read(source)


@pytest.mark.parametrize("between", [" \\\n  # --num-layers 64 \\\n  ", "\n"])
def test_what_the_shell_does_not_hand_over_is_not_read(between: str) -> None:
    fragment = read(f"{ABOVE}{between}{BELOW}\n")
    assert fragment.facts["model"].get("num_layers") == 32
    assert "hidden_size" not in fragment.facts["model"]
    assert fragment.facts["parallelism"].get("tensor") != 4
    told = [remark for remark in fragment.remarks if "begins with an option" in remark.message]
    assert len(told) == 1


@pytest.mark.parametrize("text", [f"{ABOVE} \\\n  {BELOW}\n", f"{ABOVE} `# a comment` \\\n  {BELOW}\n"])
def test_what_the_shell_hands_over_is_read(text: str) -> None:
    fragment = read(text)
    assert (fragment.facts["model"]["num_layers"], fragment.facts["model"]["hidden_size"]) == (32, 4096)
    assert fragment.facts["parallelism"]["tensor"] == 4
    assert not [remark for remark in fragment.remarks if "begins with an option" in remark.message]


def test_a_file_of_arguments_alone_is_read() -> None:
    fragment = read(f"--num-layers 32 --micro-batch-size 2\n{BELOW}\n")
    assert (fragment.facts["model"]["num_layers"], fragment.facts["model"]["hidden_size"]) == (32, 4096)
