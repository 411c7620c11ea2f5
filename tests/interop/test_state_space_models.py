"""Models with state-space layers get their family, their layers by kind and their state from the files of programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import deepspeed, huggingface, megatron, nanotron, neox
from trainspec_validate.interop.recognise import recognise

NEMOTRON_H = {
    "model_type": "nemotron_h",
    "hidden_size": 4096,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
}
NANO = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "layers_block_type": ["mamba"] * 23 + ["attention"] * 6 + ["moe"] * 23,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "ssm_state_size": 128,
    "mamba_num_heads": 64,
}
JAMBA = {
    "model_type": "jamba",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attn_layer_offset": 4,
    "attn_layer_period": 8,
    "expert_layer_offset": 1,
    "expert_layer_period": 2,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_dt_rank": "auto",
    "mamba_expand": 2,
}
FALCON_H1 = {
    "model_type": "falcon_h1",
    "hidden_size": 3072,
    "num_hidden_layers": 44,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_d_ssm": 3072,
    "mamba_d_state": 256,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 24,
    "mamba_d_conv": 4,
}
ZAMBA2 = {
    "model_type": "zamba2",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "layers_block_type": ["mamba", "mamba", "mamba", "hybrid"],
    "mamba_d_state": 16,
    "n_mamba_heads": 4,
}
FALCON_MAMBA = {
    "model_type": "falcon_mamba",
    "hidden_size": 4096,
    "intermediate_size": 8192,
    "num_hidden_layers": 64,
    "state_size": 16,
    "conv_kernel": 4,
    "time_step_rank": 256,
}
MAMBA = {"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "pad_vocab_size_multiple": 8}
MAMBA2_ATTENTION = {
    "d_model": 2560,
    "n_layer": 64,
    "d_intermediate": 0,
    "ssm_cfg": {"layer": "Mamba2"},
    "vocab_size": 50288,
    "attn_layer_idx": [9, 18, 27, 36, 45, 56],
    "attn_cfg": {"num_heads": 30, "head_dim": 128},
}
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        NEMOTRON_H,
        {
            "family": "hybrid",
            "num_layers": 52,
            "num_attention_layers": 4,
            "num_ffn_layers": 24,
            "state_space.num_layers": 24,
            "state_space.kind": "mamba-2",
            "state_space.inner_size": 8192,
            "state_space.num_heads": 128,
            "state_space.num_groups": 8,
            "state_space.state_size": 128,
        },
    ),
    (
        NANO,
        {
            "family": "hybrid",
            "num_attention_layers": 6,
            "num_ffn_layers": 0,
            "state_space.num_layers": 23,
            "experts.num_layers": 23,
            "experts.num_experts": 128,
            "experts.ffn_hidden_size": 1856,
        },
    ),
    (
        JAMBA,
        {
            "family": "hybrid",
            "num_attention_layers": 4,
            "num_ffn_layers": 16,
            "state_space.num_layers": 28,
            "experts.num_layers": 16,
            "experts.num_active_experts": 2,
            "state_space.kind": "mamba",
            "state_space.inner_size": 8192,
            "state_space.time_step_rank": 256,
            "state_space.state_size": 16,
        },
    ),
    (
        FALCON_H1,
        {
            "family": "hybrid",
            "num_attention_layers": 44,
            "num_ffn_layers": 44,
            "state_space.num_layers": 44,
            "state_space.inner_size": 3072,
            "state_space.num_heads": 24,
            "head_size": 128,
        },
    ),
    (ZAMBA2, {"family": "hybrid", "num_attention_layers": 1, "shared_layers": True, "state_space.num_layers": 4}),
    (
        FALCON_MAMBA,
        {
            "family": "state-space",
            "attention": "none",
            "state_space.inner_size": 8192,
            "ffn_hidden_size": None,
            "state_space.time_step_rank": 256,
            "num_attention_heads": None,
        },
    ),
    (
        MAMBA,
        {
            "family": "state-space",
            "vocabulary_size": 50280,
            "hidden_size": 2560,
            "num_layers": 64,
            "state_space.state_size": 16,
            "state_space.inner_size": 5120,
            "state_space.time_step_rank": 160,
        },
    ),
    (
        MAMBA2_ATTENTION,
        {
            "family": "hybrid",
            "num_attention_layers": 6,
            "state_space.num_layers": 58,
            "state_space.num_heads": 80,
            "state_space.state_size": 128,
            "num_attention_heads": 30,
            "head_size": 128,
        },
    ),
]


def value(fragment: Fragment, key: str) -> Any:
    place: Any = fragment.facts["model"]
    for part in key.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place


@pytest.mark.parametrize(("config", "wanted"), CASES, ids=lambda case: case.get("model_type", ""))
def test_a_configuration_of_a_model_tells_its_layers(config: dict[str, Any], wanted: dict[str, Any]) -> None:
    text = ForeignText("config.json", json.dumps(config))
    assert recognise(text).name == "huggingface-model-config"
    fragment = huggingface.read_model(text)
    assert {key: value(fragment, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"hybrid_override_pattern": "MX*"},
        {"hybrid_override_pattern": None},
        {"hybrid_override_pattern": "-*-*"},
        {"hybrid_override_pattern": "M-M-"},
        {"hybrid_override_pattern": "GM*-"},
        {"hybrid_override_pattern": None, "layers_block_type": ["mamba", ["x"]]},
    ],
)
def test_layers_that_are_not_known_leave_the_family_open(change: dict[str, Any]) -> None:
    fragment = huggingface.read_model(ForeignText("config.json", json.dumps(NEMOTRON_H | change)))
    assert value(fragment, "family") is None
    assert ("model", "family") in {item.pointer for item in fragment.unknown}


MEGATRON = (
    "torchrun --nproc_per_node 8 pretrain_mamba.py --hybrid-layer-pattern {} --hidden-size 4096"
    " --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 --micro-batch-size 4"
    " --global-batch-size 64 --lr 1e-4 --train-iters 10 --bf16 --tensor-model-parallel-size 1\n"
)


def test_a_pattern_of_megatron_is_counted() -> None:
    fragment = megatron.read(ForeignText("run.sh", MEGATRON.format("'M-M*-|ME*-/MM'")))
    wanted = {
        "family": "hybrid",
        "num_layers": 9,
        "num_attention_layers": 2,
        "num_ffn_layers": 3,
        "state_space.num_layers": 3,
        "state_space.state_size": 128,
        "state_space.num_groups": 8,
        "state_space.kind": "mamba-2",
        "experts.num_layers": 1,
    }
    assert {key: value(fragment, key) for key in wanted} == wanted
    odd = megatron.read(ForeignText("run.sh", MEGATRON.format("MQ*")))
    assert value(odd, "family") == "other"


NANOTRON = """\
model:
  dtype: bfloat16
  make_vocab_size_divisible_by: 1
  model_config: {is_mamba_config: true, d_model: 1536, num_hidden_layers: 48, vocab_size: 50277, ssm_cfg: %s}
parallelism: {dp: 2, pp: 2, tp: 2, pp_engine: 1f1b, tp_mode: ALL_REDUCE}
tokens:
  batch_accumulation_per_replica: 1
  micro_batch_size: 2
  sequence_length: 2048
  train_steps: 100
"""


def test_a_mamba_model_of_nanotron_is_read() -> None:
    settings = "{d_state: 16, d_conv: 4, expand: 2, dt_rank: auto}"
    fragment = nanotron.read(ForeignText("a.yaml", NANOTRON % settings))
    wanted = {
        "family": "state-space",
        "hidden_size": 1536,
        "num_layers": 48,
        "vocabulary_size": 50278,
        "state_space.kind": "mamba",
        "state_space.inner_size": 3072,
        "state_space.time_step_rank": 96,
    }
    assert {key: value(fragment, key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("config", "family", "attention"),
    [
        ('[[["mamba"], 16]]', "state-space", None),
        ('[[["mamba", "flash"], 8]]', "hybrid", 8),
        ('[[["mamba", "mamba", "mamba", "global"], "all"]]', "hybrid", 4),
        ('[[["mamba", "global"], 16]]', "other", None),
        ('[[["rwkv"], 16]]', "other", None),
        ('[[["mamba", "rwkv"], 8]]', "other", None),
        ('[["mamba"]]', "other", None),
    ],
)
def test_layers_of_neox_are_counted(config: str, family: str, attention: int | None) -> None:
    text = (
        '{"pipe-parallel-size": 1, "model-parallel-size": 1, "num-layers": 16, "hidden-size": 2048,\n'
        f'"num-attention-heads": 8, "norm": "rmsnorm", "train-iters": 10, "attention-config": {config}}}'
    )
    fragment = neox.read(ForeignText("a.yml", text))
    assert value(fragment, "family") == family
    assert value(fragment, "num_attention_layers") == attention


def test_a_curriculum_leaves_the_tokens_of_a_step_open() -> None:
    settings = {"train_batch_size": 512, "curriculum_learning": {"enabled": True, "min_difficulty": 8}}
    fragment = deepspeed.read(ForeignText("ds.json", json.dumps(settings)))
    assert {("batch", "global_tokens"), ("job", "num_tokens")} <= {item.pointer for item in fragment.unknown}
    settings["curriculum_learning"] = {"enabled": False}
    plain = deepspeed.read(ForeignText("ds.json", json.dumps(settings)))
    assert ("batch", "global_tokens") not in {item.pointer for item in plain.unknown}


def test_a_batch_of_one_micro_batch_has_one_rank_and_one_step() -> None:
    settings = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8}
    facts = deepspeed.read(ForeignText("ds.json", json.dumps(settings))).facts
    assert (facts["parallelism"]["data"], facts["batch"]["accumulation_steps"]) == (1, 1)
    two = deepspeed.read(ForeignText("ds.json", json.dumps(settings | {"train_batch_size": 16}))).facts
    assert "data" not in two.get("parallelism", {})


def test_sizes_of_a_checkpoint_leave_those_of_arguments_open() -> None:
    """The arguments of several sizes of one group are dropped one after the other."""
    script = MEGATRON.format("M-M*-ME*-").replace(" --lr", " --use-checkpoint-args --num-experts 8 --lr")
    fragment = megatron.read(ForeignText("run.sh", script))
    assert value(fragment, "experts") is None
    assert value(fragment, "state_space") is None
