"""Counts of published models that have more than a usual shape: relative positions, encoders, hybrids with experts."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.performance.costs.optimizer_state import matrices
from trainspec_validate.performance.costs.stage_memory import rank_parameters
from trainspec_validate.performance.costs.transformer import Shape, parameters

COUNT = ("TS-PAR-019",)
ACTIVE = ("TS-PAR-020",)


def dense(count: float, layers: int, hidden: int, words: int, length: int, **keys: Any) -> dict[str, Any]:
    """A transformer with heads of 128 or 64, four times as wide in its feed-forward blocks, and tied embeddings."""
    head = 128 if hidden >= 2048 else 64
    return {
        "family": "dense-transformer",
        "num_parameters": count,
        "num_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": hidden // head,
        "num_key_value_heads": None,
        "head_size": head,
        "ffn_hidden_size": 4 * hidden,
        "gated_ffn": False,
        "vocabulary_size": words,
        "tied_embeddings": True,
        "sequence_length": length,
        "attention": "full",
        **keys,
    }


def hybrid(count: float, active: float, layers: tuple[int, int, int], **keys: Any) -> dict[str, Any]:
    """A hybrid of grouped-query attention, by its layers: all, with attention, and dense feed-forward ones."""
    return {
        "family": "hybrid",
        "num_parameters": count,
        "num_active_parameters": active,
        "num_layers": layers[0],
        "num_attention_layers": layers[1],
        "num_ffn_layers": layers[2],
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_size": 128,
        "hidden_size": 4096,
        "ffn_hidden_size": None,
        "gated_ffn": True,
        "attention": "grouped-query",
        **keys,
    }


def experts(num: int, active: int, width: int, layers: int, shared: int = 0) -> dict[str, int]:
    return {
        "num_experts": num,
        "num_active_experts": active,
        "num_shared_experts": shared,
        "ffn_hidden_size": width,
        "num_layers": layers,
    }


MAMBA_2 = {"kind": "mamba-2", "state_size": 128}
JAMBA = hybrid(
    52e9,
    12e9,
    (32, 4, 16),
    ffn_hidden_size=14336,
    vocabulary_size=65536,
    state_space={"kind": "mamba", "state_size": 16, "num_layers": 28},
    experts=experts(16, 2, 14336, 16),
)
NEMOTRON_3_NANO = hybrid(
    31.6e9,
    3.6e9,
    (52, 6, 0),
    hidden_size=2688,
    num_key_value_heads=2,
    gated_ffn=False,
    vocabulary_size=131072,
    state_space=MAMBA_2 | {"inner_size": 4096, "num_heads": 64, "num_groups": 8, "num_layers": 23},
    experts=experts(128, 6, 1856, 23, 2),
)
GRANITE_4_SMALL = hybrid(
    32e9,
    9e9,
    (40, 4, 0),
    vocabulary_size=100352,
    tied_embeddings=True,
    state_space=MAMBA_2 | {"num_heads": 128, "num_layers": 36},
    experts=experts(72, 10, 768, 40, 2),
)
QWEN3_NEXT = hybrid(
    80e9,
    3e9,
    (48, 12, 0),
    hidden_size=2048,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_size=256,
    vocabulary_size=151936,
    state_space={
        "kind": "gated-delta-net",
        "state_size": 128,
        "inner_size": 4096,
        "num_heads": 32,
        "num_groups": 16,
        "num_layers": 36,
    },
    experts=experts(512, 10, 512, 48, 1),
)
GOPHER = dense(280e9, 80, 16384, 32000, 2048, positions="relative")
CHINCHILLA = dense(70e9, 80, 8192, 32000, 2048, positions="relative")
VIT_L_16 = dense(307e6, 24, 1024, 30522, 197, vocabulary_size=None, sequence_length=None) | {
    "family": "vision-transformer",
    "image": {"size_pixels": 224, "patch_size_pixels": 16, "num_classes": 1000},
}
BERT_LARGE = dense(340e6, 24, 1024, 30522, 512, bidirectional_attention=True)
BERT_BASE = dense(109482240, 12, 768, 30522, 512, bidirectional_attention=True)


@pytest.mark.parametrize(
    "model",
    [
        GOPHER,
        dense(7.1e9, 32, 4096, 32000, 2048, positions="relative"),
        CHINCHILLA,
        BERT_LARGE,
        BERT_LARGE | {"num_parameters": 335141888},
        BERT_LARGE | {"num_parameters": 336226108},
        BERT_BASE,
        JAMBA,
        NEMOTRON_3_NANO,
        GRANITE_4_SMALL,
        QWEN3_NEXT,
    ],
)
def test_published_counts_of_unusual_shapes(verdict, model) -> None:
    """arXiv:2112.11446, 2203.15556, 1810.04805, 2403.19887, 2512.20848; model cards of Granite 4.0 and Qwen3-Next."""
    assert verdict(COUNT[0], plan={"model": model}) == Verdict.PASS
    if "num_active_parameters" in model:
        assert verdict(ACTIVE[0], plan={"model": model}) == Verdict.PASS


@pytest.mark.parametrize(
    ("model", "requirement", "key"),
    [
        (GOPHER | {"num_layers": 70}, COUNT, "num_parameters"),
        (GOPHER | {"positions": "rotary"}, COUNT, "num_parameters"),
        (CHINCHILLA | {"ffn_hidden_size": 28672}, COUNT, "num_parameters"),
        (BERT_LARGE | {"num_layers": 23}, COUNT, "num_parameters"),
        (BERT_BASE | {"bidirectional_attention": False}, COUNT, "num_parameters"),
        (dense(110e9, 12, 16384, 30522, 512, positions="relative"), COUNT, "num_parameters"),
        (JAMBA | {"experts": experts(16, 2, 14336, 32)}, COUNT, "num_parameters"),
        (NEMOTRON_3_NANO | {"gated_ffn": True}, COUNT, "num_parameters"),
        (QWEN3_NEXT | {"experts": experts(256, 10, 512, 48, 1)}, COUNT, "num_parameters"),
        (JAMBA | {"num_active_parameters": 26e9}, ACTIVE, "num_active_parameters"),
        (GRANITE_4_SMALL | {"experts": experts(72, 20, 768, 40, 2)}, ACTIVE, "num_active_parameters"),
    ],
)
def test_mistakes_in_unusual_shapes(findings, model, requirement, key) -> None:
    assert findings(plan={"model": model}, select=requirement) == {(requirement[0], f"model.{key}")}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (GOPHER | {"positions": None}, "positions: relative, with which the shape has 279.7 billion"),
        (BERT_BASE | {"bidirectional_attention": False}, "bidirectional_attention: true, with which"),
        (VIT_L_16, "image.patch_size_pixels: 32, with which the shape has 306.5 million"),
        (JAMBA | {"num_ffn_layers": 32}, "num_ffn_layers: 16, with which the shape has 51.57 billion"),
    ],
)
def test_the_help_names_the_key_that_explains_the_count(helps, model, words) -> None:
    assert words in " ".join(helps(plan={"model": model}, select=COUNT))


def test_positions_without_a_table_leave_no_room_for_one(findings) -> None:
    """GPT-2 has 124,439,808 parameters, 786,432 of them in its table of positions."""
    model = dense(124439808, 12, 768, 50257, 1024, positions="learned")
    assert findings(plan={"model": model}, select=COUNT) == set()
    assert findings(plan={"model": model | {"positions": "linear-bias"}}, select=COUNT)


def test_delta_nets_need_their_heads(verdict) -> None:
    state = {key: value for key, value in QWEN3_NEXT["state_space"].items() if key != "num_heads"}
    model = QWEN3_NEXT | {"state_space": state}
    assert verdict(COUNT[0], plan={"model": model}) == Verdict.NOT_RUN


def test_attention_of_an_encoder_is_the_same_on_all_context_ranks(findings) -> None:
    plan = {"parallelism": {"context": 3}, "model": {"sequence_length": 4095}}
    assert findings(plan=plan, select=("TS-PAR-018",)) == {("TS-PAR-018", "model.sequence_length")}
    plan["model"]["bidirectional_attention"] = True
    assert findings(plan=plan, select=("TS-PAR-018",)) == set()


def test_heads_of_a_network_with_an_encoder_are_wide(findings) -> None:
    """T5-11B has 128 heads of 128, and a width of 1,024 (arXiv:1910.10683, section 3.7)."""
    keys = {"num_attention_heads": 128, "num_key_value_heads": None, "head_size": 128, "hidden_size": 1024}
    assert findings(plan={"model": keys | {"family": "other"}}, select=("TS-PAR-040",)) == set()
    assert findings(plan={"model": keys}, select=("TS-PAR-040",))
    assert findings(plan={"model": keys | {"family": "other", "head_size": 129}}, select=("TS-PAR-040",))


def test_every_count_of_relative_positions_is_the_same() -> None:
    """Parameters, the matrices that an optimizer keeps state of, and those of a rank."""
    shape = Shape(24, 2048, 16, 16, 128, 8192, 32000, tied_embeddings=True, relative_positions=True)
    counted, part = parameters(shape), rank_parameters(shape, 1, 1, 1)
    assert sum(matrix.num_parameters for matrix in matrices(shape)) == counted.total - counted.normalization
    assert 24 * part.dense_layer + part.table + part.final_norm == counted.total


def test_a_count_in_millions_is_too_small(findings, helps) -> None:
    """DiT-XL/2 has 675 million parameters (arXiv:2212.09748, table 1)."""
    [words] = helps(plan={"model": {"family": "other", "num_parameters": 675}}, select=("TS-DOC-009",))
    assert words == "write the whole count: 675e6 for millions, 675e9 for billions"
    for count, wrong in ((675, True), (675e6, False)):
        found = findings(plan={"model": {"family": "other", "num_parameters": count}}, select=("TS-DOC-009",))
        assert bool(found) is wrong
