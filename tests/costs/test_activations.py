"""Activations against the formulas of arXiv:2205.05198, measured code, and what must hold for any shape."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import score_memory
from trainspec_validate.performance.costs import activations
from trainspec_validate.performance.costs.activations import (
    ActivationPolicy,
    embedding_bytes,
    gathered_sequence_bytes,
    gradient_bytes,
    layer_bytes,
    logits_bytes,
    recomputed_bytes,
)
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import Shape

GPT3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
LLAMA = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
EXPERTS = Shape(24, 2048, 16, 4, 128, 8192, 32000, True, False, 64, 6, 2, 1408, 23)
PLAIN = ActivationPolicy("none", fused_attention=False, dropout=True)
S, B, H, A = 2048, 4, 12288, 96


def gpt3(tensor: int = 1, *, sequence_parallel: bool = False) -> Layout:
    return Layout(tensor=tensor, sequence_parallel=sequence_parallel, micro_sequences=B, sequence_length=S)


def test_examples() -> None:
    result = doctest.testmod(activations)
    assert result.attempted >= 15
    assert result.failed == 0


@pytest.mark.parametrize("t", [1, 2, 8])
def test_every_line_of_the_published_table(t: int) -> None:
    # arXiv:2205.05198, Table 2, in its order; s, b, h, a and t as there.
    split, both = gpt3(t), gpt3(t, sequence_parallel=True)
    selective = replace(PLAIN, recompute="selective")
    scores = 5 * A * S / H
    lines = [
        (layer_bytes(GPT3, gpt3(), PLAIN), 34 + scores),
        (layer_bytes(GPT3, split, PLAIN), 10 + 24 / t + scores / t),
        (layer_bytes(GPT3, both, PLAIN), (34 + scores) / t),
        (layer_bytes(GPT3, split, selective), 10 + 24 / t),
        (layer_bytes(GPT3, both, selective), 34 / t),
        (layer_bytes(GPT3, split, replace(PLAIN, recompute="full")), 2),
    ]
    for computed, factor in lines:
        assert computed == pytest.approx(S * B * H * factor, rel=1e-12)


def test_feed_forward_width_as_megatron_counts_it() -> None:
    shape = replace(GPT3, ffn_hidden_size=30000)
    expected = S * B * (18 * H + 4 * 30000)
    assert layer_bytes(shape, gpt3(), ActivationPolicy("none", dropout=True)) == pytest.approx(expected)


def test_around_the_layers() -> None:
    # arXiv:2205.05198, section 4.3: inputs 4 s b h, fp32 logits 4 s b v, mask of the embedding s b h.
    policy = ActivationPolicy("none", dropout=True, loss_bytes_per_logit=4)
    expected = 4 * S * B * H * (1 + GPT3.vocabulary_size / H)
    assert logits_bytes(GPT3, gpt3(), policy) == pytest.approx(expected)
    assert logits_bytes(GPT3, gpt3(8, sequence_parallel=True), policy) == pytest.approx(expected / 8)
    assert embedding_bytes(GPT3, gpt3(8, sequence_parallel=True), policy) == S * B * H / 8
    assert embedding_bytes(GPT3, gpt3(), ActivationPolicy()) == 0


def test_grouped_keys_and_a_gate_by_hand() -> None:
    tokens, h, k, f = 16384, 4096, 1024, 14336
    layout = Layout(micro_sequences=2, sequence_length=8192)
    # In 16 bits: two inputs of norms, two normalised inputs, q, input of the projection, k, v, three wide tensors.
    assert layer_bytes(LLAMA, layout, ActivationPolicy("none")) == 2 * tokens * (4 * h + 2 * h + 2 * k + 3 * f)
    # Input, q, result of attention, v, gate.
    assert layer_bytes(LLAMA, layout, ActivationPolicy("alternate")) == 2 * tokens * (3 * h + k + f)
    assert gradient_bytes(LLAMA, layout, ActivationPolicy("none")) == 2 * tokens * (3 * f + h)


def test_keys_are_repeated_once_there_are_fewer_than_tensor_ranks() -> None:
    shape = replace(LLAMA, num_key_value_heads=2)
    two, four = (layer_bytes(shape, replace(gpt3(), tensor=t), ActivationPolicy()) for t in (2, 4))
    tokens = B * S
    assert two - four == 2 * tokens * (2 * 4096 + 3 * 14336) * (1 / 2 - 1 / 4)


def test_a_token_is_copied_to_each_expert_that_it_visits() -> None:
    policy, layout = ActivationPolicy("none"), Layout(sequence_length=1024)
    one = layer_bytes(EXPERTS, layout, policy, expert_layer=True)
    more = layer_bytes(replace(EXPERTS, num_active_experts=7), layout, policy, expert_layer=True)
    assert more - one == 2 * 1024 * (3 * 1408 + 2 * 2048)
    uneven = layer_bytes(EXPERTS, layout, replace(policy, expert_imbalance=1.5), expert_layer=True)
    assert uneven - one == 0.5 * 6 * 2 * 1024 * (3 * 1408 + 2 * 2048)
    # The widths of an expert may be split in another way than those of attention; a token then goes to fewer ranks.
    split = Layout(tensor=4, expert_tensor=1, sequence_parallel=True, sequence_length=1024)
    together = replace(split, expert_tensor=4)
    saved = layer_bytes(EXPERTS, together, policy, expert_layer=True) - layer_bytes(
        EXPERTS, split, policy, expert_layer=True
    )
    assert saved == 2 * 2 * 1024 * 6 / 4 * (4 - 1) * 2048


def test_one_expert_of_one_is_a_dense_layer() -> None:
    dense = replace(EXPERTS, num_experts=0, num_active_experts=0, num_shared_experts=0, ffn_hidden_size=1408)
    single = replace(dense, num_experts=1, num_active_experts=1, expert_hidden_size=1408)
    for recompute in ("none", "selective", "alternate", "full"):
        policy = ActivationPolicy(recompute, fused_attention=False)
        for layout in (gpt3(), gpt3(4), gpt3(4, sequence_parallel=True)):
            assert layer_bytes(single, layout, policy, expert_layer=True) == layer_bytes(dense, layout, policy)
            assert gradient_bytes(single, layout, policy, expert_layer=True) == gradient_bytes(dense, layout, policy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recompute": "some"}, "'some' is not none, selective, alternate, products or full"),
        ({"implementation_factor": -1.0}, "negative"),
        ({"loss_bytes_per_logit": -1.0}, "negative"),
    ],
)
def test_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ActivationPolicy(), **changes)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Shapes whose attention is as wide as the hidden state and whose feed-forward part is no narrower."""
    groups, heads_per_group, head_size = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 128))
    heads = groups * heads_per_group
    hidden, layers = heads * head_size, draw(st.integers(8, 40))
    experts = draw(st.sampled_from([0, 8, 64]))
    return Shape(
        *(layers, hidden, heads, groups, head_size, hidden * draw(st.integers(1, 5)), draw(st.integers(1, 200_000))),
        gated_ffn=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        num_experts=experts,
        num_active_experts=draw(st.integers(1, 8)) if experts else 0,
        num_shared_experts=draw(st.integers(0, 2)) if experts else 0,
        expert_hidden_size=hidden * draw(st.integers(1, 2)) if experts else 0,
        num_expert_layers=draw(st.integers(1, layers)) if experts else 0,
    )


POLICIES = st.builds(
    ActivationPolicy,
    recompute=st.sampled_from(["none", "selective", "alternate", "full"]),
    fused_attention=st.booleans(),
    implementation_factor=st.floats(1, 2),
    bytes_per_number=st.sampled_from([1.0, 2.0, 4.0]),
    dropout=st.booleans(),
    loss_bytes_per_logit=st.floats(0, 16),
    expert_imbalance=st.floats(1, 2),
)


@given(shapes(), POLICIES, st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans())
def test_recomputing_more_keeps_less(
    shape: Shape, policy: ActivationPolicy, tensor: int, sequence_parallel: bool, expert: bool
) -> None:
    layout = Layout(tensor=tensor, sequence_parallel=sequence_parallel, sequence_length=512)
    expert_layer = expert and shape.num_experts > 0
    kept = {
        name: layer_bytes(shape, layout, replace(policy, recompute=name), expert_layer=expert_layer)
        for name in ("none", "selective", "alternate", "full")
    }
    assert kept["full"] <= kept["selective"] <= kept["none"]
    assert kept["full"] <= kept["alternate"] <= kept["none"]
    again = recomputed_bytes(shape, layout, policy, expert_layer=expert_layer)
    assert kept[policy.recompute] + again == pytest.approx(kept["none"], rel=1e-9)


@given(shapes(), POLICIES, st.sampled_from([1, 2, 4]), st.booleans())
def test_context_ranks_split_activations_evenly(
    shape: Shape, policy: ActivationPolicy, tensor: int, sequence_parallel: bool
) -> None:
    one = Layout(tensor=tensor, sequence_parallel=sequence_parallel, sequence_length=4096)
    four = replace(one, context=4)
    for part in (layer_bytes, recomputed_bytes, logits_bytes, gathered_sequence_bytes):
        assert part(shape, four, policy) == pytest.approx(part(shape, one, policy) / 4)


def test_eager_code_keeps_up_to_twice_the_formula() -> None:
    factors = {cell.name: cell.published / cell.predicted for cell in score_memory.activation_factors()}
    assert len(factors) == 6
    assert factors["meta-llama/Llama-3.1-8B-Instruct"] == pytest.approx(28 / 17)
    assert all(1.5 < factor < 2 for factor in factors.values())
