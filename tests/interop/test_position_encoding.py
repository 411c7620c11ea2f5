"""How a model encodes positions comes from the settings that state it; a default of a framework leaves it out."""

from __future__ import annotations

import json

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

KEY = ("model", "positions")
MODEL = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
}
COMMAND = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
OLMO = """\
model:
  d_model: 64
  n_heads: 4
  n_layers: 2
  block_type: sequential
  activation_type: swiglu
  layer_norm_type: rms
global_train_batch_size: 8
max_duration: 10
"""
FOUNDRY = """\
model: {name: mpt_causal_lm, d_model: 64, n_heads: 4, n_layers: 2, KEY}
train_loader: {name: text}
max_duration: 10ba
global_train_batch_size: 8
optimizer: {name: decoupled_adamw, lr: 1.0e-4}
scheduler: {name: constant_with_warmup}
"""


def read(text: str) -> Fragment:
    source = ForeignText("source", text)
    fragment = recognise(source).read(source)
    assert_sound(fragment)
    return fragment


def of_model(**more: object) -> Fragment:
    return read(json.dumps({**MODEL, **more}))


@pytest.mark.parametrize(
    ("kind", "found"),
    [("llama", "rotary"), ("gpt2", "learned"), ("bloom", "linear-bias"), ("cohere2", None), ("falcon", None)],
)
def test_a_kind_of_model_with_one_encoding(kind: str, found: str | None) -> None:
    assert at(of_model(model_type=kind), *KEY) == found


@pytest.mark.parametrize(("alibi", "found"), [(True, "linear-bias"), (False, "rotary")])
def test_a_kind_with_a_switch(alibi: bool, found: str) -> None:
    assert at(of_model(model_type="falcon", alibi=alibi), *KEY) == found


def test_layers_that_differ_leave_it_open() -> None:
    assert "model.positions" in unknown_keys(of_model(model_type="llama", no_rope_layers=[1, 0]))
    assert "model.positions" in unknown_keys(read(f"{COMMAND} --position-embedding-type rope --no-rope-freq 4"))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--position-embedding-type rope", "rotary"),
        ("--position-embedding-type learned_absolute", "learned"),
        ("--position-embedding-type none", "none"),
        ("--use-rotary-position-embeddings", "rotary"),
        ("--position-embedding-type own", None),
        ("", None),
    ],
)
def test_options_of_megatron(options: str, found: str | None) -> None:
    fragment = read(COMMAND + options)
    assert at(fragment, *KEY) == found
    assert ("model.positions" in unknown_keys(fragment)) == options.endswith("own")


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("rope: true", "rotary"),
        ("alibi: true", "linear-bias"),
        ("rope: false\n  alibi: false", "learned"),
        ("rope: false", None),
    ],
)
def test_switches_of_olmo(settings: str, found: str | None) -> None:
    assert at(read(OLMO.replace("d_model", f"{settings}\n  d_model")), *KEY) == found


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("attn_config: {alibi: true}", "linear-bias"),
        ("attn_config: {rope: true}", "rotary"),
        ("learned_pos_emb: false", "none"),
        ("expansion_ratio: 4", None),
    ],
)
def test_switches_of_mpt(settings: str, found: str | None) -> None:
    assert at(read(FOUNDRY.replace("KEY", settings)), *KEY) == found


@pytest.mark.parametrize(("word", "found"), [("rotary", "rotary"), ("alibi", "linear-bias"), ("rpe", "relative-bias")])
def test_words_of_neox(word: str, found: str) -> None:
    text = {"pipe_parallel_size": 1, "model_parallel_size": 1, "num_layers": 2, "hidden_size": 64, "pos_emb": word}
    assert at(read(json.dumps({**text, "num_attention_heads": 4, "train_iters": 10})), *KEY) == found
