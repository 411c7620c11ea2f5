"""Models that are no plain decoders: what a reader of decoders cannot say of them stays unknown."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.huggingface import read_trainer
from trainspec_validate.interop.readers.megatron import read
from trainspec_validate.interop.readers.nemo import read_nemo

SHAPE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
BATCH = "--micro-batch-size 4 --global-batch-size 64 --train-iters 100 --swiglu --padded-vocab-size 32000 --bf16"


def megatron(more: str) -> Fragment:
    command = f"torchrun pretrain_gpt.py {SHAPE} {BATCH} --position-embedding-type rope"
    fragment = read(ForeignText("run.sh", f"{command} {more}\n"))
    assert_sound(fragment)
    return fragment


@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ("", True),
        ("--log-interval 10", True),
        ("--patch-size 16", False),
        ("--disable-vision-class-token", False),
        ("--freeze-vision-model", False),
        ("--multimodal-tokenizer-max-size 4", False),
    ],
)
def test_weights_beside_the_decoder_leave_the_count_open(more: str, counted: bool) -> None:
    fragment = megatron(more)
    assert (at(fragment, "model", "num_parameters") is not None) is counted
    assert ("model.num_parameters" in unknown_keys(fragment)) is not counted


def test_sequences_of_varying_length_leave_tokens_open() -> None:
    assert at(megatron(""), "batch", "global_tokens") == 64 * 2048
    for option in ("--variable-seq-lengths", "--enable-variable-seq-lengths"):
        fragment = megatron(option)
        assert at(fragment, "batch", "global_tokens") is None
        assert at(fragment, "job", "num_tokens") is None
        assert {"batch.global_tokens", "job.num_tokens"} <= unknown_keys(fragment)


def test_a_diffusion_model_has_no_tokens() -> None:
    fragment = megatron("--model-type diffusion_model")
    assert {"batch.global_tokens", "job.num_tokens"} <= unknown_keys(fragment)


@pytest.mark.parametrize(("name", "known"), [("megatron_gpt", True), ("te_gpt_hyena", False)])
def test_operators_in_place_of_attention_leave_it_open(name: str, known: bool) -> None:
    model = "num_layers: 24\n  hidden_size: 1024\n  num_attention_heads: 16\n  encoder_seq_length: 2048"
    text = f"name: {name}\nexp_manager: {{}}\ntrainer:\n  precision: bf16\nmodel:\n  {model}\n  optim: {{}}\n"
    fragment = read_nemo(ForeignText("gpt.yaml", text))
    assert (at(fragment, "model", "attention") == "full") is known
    assert ("model.attention" in unknown_keys(fragment)) is not known


def test_a_deepspeed_file_that_is_not_given_leaves_the_reduction_open() -> None:
    text = "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nlearning_rate: 1.0e-4\nbf16: true\n"
    text += "num_train_epochs: 1\noutput_dir: out\n"
    fragment = read_trainer(ForeignText("sft.yaml", f"{text}deepspeed: ds_z0.json\n"))
    assert_sound(fragment)
    assert at(fragment, "precision", "compute") == "bf16"
    assert "precision.reduction" in unknown_keys(fragment)
