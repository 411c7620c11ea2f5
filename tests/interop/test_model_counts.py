"""Parameters of models by their config.json equal the numbers of elements in their published checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plan_files import at, how, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.huggingface import read_model


def read(**config: Any) -> Fragment:
    return read_model(ForeignText("config.json", json.dumps(config)))


def config(kind: str, layers: int, hidden: int, heads: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    names = {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    return {**names, "vocab_size": vocabulary, **more}


PUBLISHED = [
    ("gpt2", 124_439_808, config("gpt2", 12, 768, 12, 50257, n_positions=1024)),
    (
        "qwen2-7b",
        7_615_616_512,
        config(
            "qwen2", 28, 3584, 28, 152064, num_key_value_heads=4, intermediate_size=18944, tie_word_embeddings=False
        ),
    ),
    (
        "qwen3-8b",
        8_190_735_360,
        config(
            "qwen3",
            36,
            4096,
            32,
            151936,
            num_key_value_heads=8,
            head_dim=128,
            intermediate_size=12288,
            tie_word_embeddings=False,
        ),
    ),
    (
        "qwen3-30b-a3b",
        30_532_122_624,
        config(
            "qwen3_moe",
            48,
            2048,
            32,
            151936,
            num_key_value_heads=4,
            head_dim=128,
            intermediate_size=6144,
            moe_intermediate_size=768,
            num_experts=128,
            num_experts_per_tok=8,
            tie_word_embeddings=False,
            decoder_sparse_step=1,
        ),
    ),
    (
        "qwen1.5-moe",
        14_315_784_192,
        config(
            "qwen2_moe",
            24,
            2048,
            16,
            151936,
            num_key_value_heads=16,
            intermediate_size=5632,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            num_experts=60,
            num_experts_per_tok=4,
            tie_word_embeddings=False,
            decoder_sparse_step=1,
        ),
    ),
    (
        "olmo-2-7b",
        7_298_617_344,
        config(
            "olmo2", 32, 4096, 32, 100352, num_key_value_heads=32, intermediate_size=11008, tie_word_embeddings=False
        ),
    ),
    (
        "gemma-2-9b",
        9_241_705_984,
        config("gemma2", 42, 3584, 16, 256000, num_key_value_heads=8, head_dim=256, intermediate_size=14336),
    ),
    (
        "gemma-3-1b",
        999_885_952,
        config("gemma3_text", 26, 1152, 4, 262144, num_key_value_heads=1, head_dim=256, intermediate_size=6912),
    ),
    (
        "pythia-6.9b",
        6_857_302_016,
        config("gpt_neox", 32, 4096, 32, 50432, intermediate_size=16384, tie_word_embeddings=False),
    ),
    ("phi-2", 2_779_683_840, config("phi", 32, 2560, 32, 51200, intermediate_size=10240, tie_word_embeddings=False)),
    ("gpt-j-6b", 6_050_882_784, config("gptj", 28, 4096, 16, 50400, tie_word_embeddings=False)),
    (
        "starcoder2-7b",
        7_173_923_840,
        config("starcoder2", 32, 4608, 36, 49152, num_key_value_heads=4, intermediate_size=18432),
    ),
    (
        "opt-6.7b",
        6_658_473_984,
        config(
            "opt",
            32,
            4096,
            32,
            50272,
            ffn_dim=16384,
            max_position_embeddings=2048,
            word_embed_proj_dim=4096,
            do_layer_norm_before=True,
        ),
    ),
    ("bloom-7b1", 7_069_016_064, config("bloom", 30, 4096, 32, 250880)),
    (
        "gpt-oss-20b",
        20_914_757_184,
        config(
            "gpt_oss",
            24,
            2880,
            64,
            201088,
            num_key_value_heads=8,
            head_dim=64,
            intermediate_size=2880,
            num_local_experts=32,
            num_experts_per_tok=4,
            tie_word_embeddings=False,
            attention_bias=True,
        ),
    ),
    (
        "deepseek-v2-lite",
        15_706_484_224,
        config(
            "deepseek_v2",
            27,
            2048,
            16,
            102400,
            kv_lora_rank=512,
            q_lora_rank=None,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            intermediate_size=10944,
            moe_intermediate_size=1408,
            n_routed_experts=64,
            n_shared_experts=2,
            num_experts_per_tok=6,
            first_k_dense_replace=1,
            tie_word_embeddings=False,
        ),
    ),
    (
        "command-r",
        34_980_831_232,
        config("cohere", 40, 8192, 64, 256000, num_key_value_heads=64, intermediate_size=22528),
    ),
    (
        "glm-4-9b-0414",
        9_400_279_040,
        config(
            "glm4",
            40,
            4096,
            32,
            151552,
            num_key_value_heads=2,
            head_dim=128,
            intermediate_size=13696,
            attention_bias=True,
            tie_word_embeddings=False,
        ),
    ),
]


@pytest.mark.parametrize(("whole", "shape"), [row[1:] for row in PUBLISHED], ids=[row[0] for row in PUBLISHED])
def test_every_element_is_counted(whole: int, shape: dict[str, Any]) -> None:
    fragment = read(**shape)
    assert at(fragment, "model", "num_parameters") == whole
    assert "counted from the shape" in how(fragment, "model.num_parameters")


@pytest.mark.parametrize(
    ("kind", "setting"),
    [("falcon", "new_decoder_architecture"), ("phi", "qk_layernorm"), ("deepseek_v3", "attention_bias")],
)
def test_settings_that_are_not_counted_leave_the_parameters_open(kind: str, setting: str) -> None:
    latent = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    shape = config(kind, 4, 1024, 8, 32000, intermediate_size=4096, tie_word_embeddings=False, **{setting: True})
    fragment = read(**shape, **(latent if kind.startswith("deepseek") else {}))
    assert "model.num_parameters" in unknown_keys(fragment)
    [why] = [entry.reason for entry in fragment.unknown if entry.pointer == ("model", "num_parameters")]
    assert f"biases and norms of {kind} with these settings are not counted" in why


def test_a_bias_counts_where_the_file_has_one() -> None:
    shape = config("llama", 2, 1024, 8, 32000, intermediate_size=4096, tie_word_embeddings=False)
    plain = at(read(**shape), "model", "num_parameters")
    assert at(read(**shape, attention_bias=True), "model", "num_parameters") == plain + 2 * 4 * 1024
    assert at(read(**shape, mlp_bias=True), "model", "num_parameters") == plain + 2 * (2 * 4096 + 1024)
