"""Megatron-LM: the vocabulary that a tokenizer decides, and parts of a model that are not trained."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import megatron

SHAPE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
BATCH = "--micro-batch-size 4 --global-batch-size 64 --train-iters 100"


def run(arguments: str, before: str = "") -> Fragment:
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} {BATCH} {arguments}\n"
    return megatron.read(ForeignText("run.sh", f"{before}\n{command}"))


def why(fragment: Fragment, key: str) -> str:
    return next(item.reason for item in fragment.unknown if ".".join(map(str, item.pointer)) == key)


@pytest.mark.parametrize("kind", ["HuggingFaceTokenizer", "GPT2BPETokenizer", "Llama2Tokenizer", "QwenTokenizerFS"])
def test_a_tokenizer_with_a_vocabulary_of_its_own_decides(kind: str) -> None:
    fragment = run(f"--vocab-size 151936 --tokenizer-type {kind} --tokenizer-model qwen")
    assert_sound(fragment)
    assert at(fragment, "model", "vocabulary_size") is None
    assert at(fragment, "model", "num_parameters") is None
    assert why(fragment, "model.vocabulary_size").startswith(f"the tokenizer decides it: {kind} takes no vocab_size")


def test_a_padded_size_goes_before_every_tokenizer() -> None:
    fragment = run("--padded-vocab-size 152064 --vocab-size 151936 --tokenizer-type HuggingFaceTokenizer")
    assert at(fragment, "model", "vocabulary_size") == 152064


@pytest.mark.parametrize(
    ("kind", "size", "padded"),
    [
        ("TikTokenizer", 131072, 131072),
        ("TikTokenizer", 131000, 131072),
        ("NullTokenizer", 131000, 131072),
        ("NullTokenizer", 131071, 131072),
        ("NullTokenizer", 131072, None),
        ("NullMultimodalTokenizer", 131072, None),
    ],
)
def test_a_tokenizer_takes_the_size_that_is_given(kind: str, size: int, padded: int | None) -> None:
    fragment = run(f"--vocab-size {size} --tokenizer-type {kind}")
    assert at(fragment, "model", "vocabulary_size") == padded
    if padded is None:
        assert why(fragment, "model.vocabulary_size").startswith("131072 or 131200: such a tokenizer adds a token")


@pytest.mark.parametrize("option", ["--freeze-LM", "--freeze-ViT", "--freeze-lm", "--freeze-vision-projection"])
def test_a_frozen_part_leaves_the_trained_parameters_open(option: str) -> None:
    assert "num_parameters_trained" not in unknown_keys(run("--bf16"))
    assert "num_parameters_trained" in unknown_keys(run(f"--bf16 {option}"))
    assert "num_parameters_trained" in unknown_keys(run("--bf16 $MORE", f'if [ "$1" ]; then MORE={option}; fi'))
