"""Parameters counted from the shapes of well-known models equal what their model cards and papers publish."""

from __future__ import annotations

import json

import pytest
from plan_files import at, how

from trainspec_validate.interop.fragment import ForeignText
from trainspec_validate.interop.readers import huggingface, maxtext, megatron

SIZES = ("layers", "hidden", "heads", "groups", "head", "ffn", "vocabulary")
SHAPES = {
    "llama-2-7b": (32, 4096, 32, 32, 128, 11008, 32000),
    "llama-2-70b": (80, 8192, 64, 8, 128, 28672, 32000),
    "llama-3.1-8b": (32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3.1-405b": (126, 16384, 128, 8, 128, 53248, 128256),
    "mistral-7b": (32, 4096, 32, 8, 128, 14336, 32000),
    "gemma-7b": (28, 3072, 16, 16, 256, 24576, 256000),
    "gemma-2-9b": (42, 3584, 16, 8, 256, 14336, 256128),
    "gemma-2-27b": (46, 4608, 32, 16, 128, 36864, 256128),
    "gemma-3-27b": (62, 5376, 32, 16, 128, 21504, 262144),
    "qwen2.5-7b": (28, 3584, 28, 4, 128, 18944, 152064),
    "qwen3-8b": (36, 4096, 32, 8, 128, 12288, 151936),
    "qwen3-32b": (64, 5120, 64, 8, 128, 25600, 151936),
    "olmo-2-7b": (32, 4096, 32, 32, 128, 11008, 100352),
    "gpt-3-175b": (96, 12288, 96, 96, 128, 49152, 50257),
    "gpt-neox-20b": (44, 6144, 64, 64, 96, 24576, 50432),
    "bloom-176b": (70, 14336, 112, 112, 128, 57344, 250880),
    "mixtral-8x7b": (32, 4096, 32, 8, 128, 14336, 32000),
    "mixtral-8x22b": (56, 6144, 48, 8, 128, 16384, 32768),
    "gpt-oss-20b": (24, 2880, 64, 8, 64, 2880, 201088),
    "qwen3-30b-a3b": (48, 2048, 32, 4, 128, 6144, 151936),
    "qwen3-235b-a22b": (94, 4096, 64, 4, 128, 12288, 151936),
}
"""Shapes of the configurations in AI-Hypercomputer/maxtext@e591f30c:src/maxtext/configs/models and of the papers."""
EXPERTS = {
    "mixtral-8x7b": (8, 2, 14336),
    "mixtral-8x22b": (8, 2, 16384),
    "gpt-oss-20b": (32, 4, 2880),
    "qwen3-30b-a3b": (128, 8, 768),
    "qwen3-235b-a22b": (128, 8, 1536),
}
PLAIN = {"gpt-3-175b", "gpt-neox-20b", "bloom-176b"}
TIED = {"gemma-7b", "gemma-2-9b", "gemma-2-27b", "gemma-3-27b", "gpt-3-175b", "bloom-176b"}
KINDS = {"gemma-7b": "gemma", "gemma-2-9b": "gemma2", "gemma-2-27b": "gemma2", "gpt-neox-20b": "gpt_neox"}
KINDS |= {"gemma-3-27b": "gemma3_text", "bloom-176b": "bloom", "gpt-3-175b": "gpt2", "gpt-oss-20b": "gpt_oss"}

PUBLISHED = [
    ("llama-2-7b", 6.74e9, None, 0.001, "arXiv:2307.09288, model card: 7B (6.74B)"),
    ("llama-2-70b", 68.98e9, None, 0.001, "arXiv:2307.09288, model card: 70B (69B)"),
    ("llama-3.1-8b", 8.03e9, None, 0.001, "model card of Llama 3.1: 8.03B"),
    ("llama-3.1-405b", 405.85e9, None, 0.001, "arXiv:2407.21783, table 3: 405B; model card: 406B"),
    ("mistral-7b", 7.24e9, None, 0.001, "model card of Mistral 7B v0.1: 7.24B"),
    ("gemma-7b", 7_751_248_896 + 786_825_216, None, 0.001, "arXiv:2403.08295, table 2"),
    ("gemma-2-9b", 8_324e6 + 918e6, None, 0.001, "arXiv:2408.00118, table 2"),
    ("gemma-2-27b", 26_047e6 + 1_180e6, None, 0.001, "arXiv:2408.00118, table 2"),
    ("gemma-3-27b", 25_600e6 + 1_416e6, None, 0.003, "arXiv:2503.19786, table 1, without the vision encoder"),
    ("qwen2.5-7b", 7.61e9, None, 0.001, "model card of Qwen2.5-7B: 7.61B"),
    ("qwen3-8b", 8.19e9, None, 0.002, "model card of Qwen3-8B: 8.2B"),
    ("qwen3-32b", 32.8e9, None, 0.002, "model card of Qwen3-32B: 32.8B"),
    ("olmo-2-7b", 7.30e9, None, 0.002, "model card of OLMo 2 7B: 7.3B"),
    ("gpt-3-175b", 174.6e9, None, 0.001, "arXiv:2005.14165, table D.1: 174,600M"),
    ("gpt-neox-20b", 20.55e9, None, 0.001, "arXiv:2204.06745, table 1: 20,554,567,680"),
    ("bloom-176b", 176.25e9, None, 0.001, "arXiv:2211.05100, table 3: 176,247M"),
    ("mixtral-8x7b", 46.7e9, 12.9e9, 0.002, "model card of Mixtral 8x7B: 46.7B, 12.9B for a token"),
    ("mixtral-8x22b", 141e9, 39e9, 0.005, "model card of Mixtral 8x22B: 141B, 39B for a token"),
    ("gpt-oss-20b", 20.91e9, None, 0.001, "arXiv:2508.10925, table 1: 20.91B"),
    ("qwen3-30b-a3b", 30.5e9, 3.3e9, 0.02, "model card of Qwen3-30B-A3B: 30.5B, 3.3B for a token"),
    ("qwen3-235b-a22b", 235e9, 22e9, 0.01, "model card of Qwen3-235B-A22B: 235B, 22B for a token"),
]


def of_huggingface(name: str) -> ForeignText:
    size = dict(zip(SIZES, SHAPES[name], strict=True))
    config: dict[str, object] = {
        "model_type": KINDS.get(name, "qwen3_moe" if name in EXPERTS else "llama"),
        "num_hidden_layers": size["layers"],
        "hidden_size": size["hidden"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["groups"],
        "head_dim": size["head"],
        "intermediate_size": size["ffn"],
        "vocab_size": size["vocabulary"],
        "tie_word_embeddings": name in TIED,
    }
    if name in EXPERTS:
        keys = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
        config |= dict(zip(keys, EXPERTS[name], strict=True))
    return ForeignText("config.json", json.dumps(config))


def of_maxtext(name: str) -> ForeignText:
    size = dict(zip(SIZES, SHAPES[name], strict=True))
    block = "gemma2" if name.startswith("gemma-2") else "llama2"
    layers = size["layers"] // 2 if block == "gemma2" else size["layers"]
    lines = [
        f"base_num_decoder_layers: {layers}",
        f"base_emb_dim: {size['hidden']}",
        f"base_num_query_heads: {size['heads']}",
        f"base_num_kv_heads: {size['groups']}",
        f"head_dim: {size['head']}",
        f"base_mlp_dim: {size['ffn']}",
        f"vocab_size: {size['vocabulary']}",
        f"mlp_activations: {'[gelu]' if name in PLAIN else '[silu, linear]'}",
        f"logits_via_embedding: {str(name in TIED).lower()}",
        f"decoder_block: {block}",
    ]
    if name in EXPERTS:
        keys = ("num_experts", "num_experts_per_tok", "base_moe_mlp_dim")
        lines += [f"{key}: {value}" for key, value in zip(keys, EXPERTS[name], strict=True)]
    return ForeignText("model.yml", "\n".join(lines))


def of_megatron(name: str) -> ForeignText:
    size = dict(zip(SIZES, SHAPES[name], strict=True))
    words = [
        f"--num-layers {size['layers']} --hidden-size {size['hidden']} --num-attention-heads {size['heads']}",
        f"--group-query-attention --num-query-groups {size['groups']} --kv-channels {size['head']}",
        f"--ffn-hidden-size {size['ffn']} --padded-vocab-size {size['vocabulary']} --seq-length 4096",
        "" if name in PLAIN else "--swiglu --disable-bias-linear --normalization RMSNorm",
        "--max-position-embeddings 2048" if name == "gpt-3-175b" else "--position-embedding-type rope",
        "" if name in TIED else "--untie-embeddings-and-output-weights",
    ]
    if name in EXPERTS:
        keys = ("num-experts", "moe-router-topk", "moe-ffn-hidden-size")
        words += [f"--{key} {value}" for key, value in zip(keys, EXPERTS[name], strict=True)]
    return ForeignText("run.sh", f"torchrun pretrain_gpt.py {' '.join(words)}\n")


@pytest.mark.parametrize(("name", "whole", "active", "within", "source"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_parameters_are_as_published(name: str, whole: float, active: float | None, within: float, source: str) -> None:
    readers = ((of_huggingface, huggingface.read_model), (of_maxtext, maxtext.read), (of_megatron, megatron.read))
    for make, read in readers:
        fragment = read(make(name))
        assert at(fragment, "model", "num_parameters") == pytest.approx(whole, rel=within), (make.__name__, source)
        assert "counted" in how(fragment, "model.num_parameters")
        if active is not None:
            found = at(fragment, "model", "num_active_parameters")
            assert found == pytest.approx(active, rel=max(within, 0.02)), (make.__name__, source)
