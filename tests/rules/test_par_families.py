"""Model families: published counts of parameters and operations, keys of other families, layers for MTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.performance.costs import model_families as families
from trainspec_validate.performance.costs.transformer import Shape

NO_LANGUAGE = {"vocabulary_size": None, "sequence_length": None, "num_key_value_heads": None, "head_size": None}
VIT_L = {
    **NO_LANGUAGE,
    "family": "vision-transformer",
    "num_parameters": 304326632,
    "num_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "ffn_hidden_size": 4096,
    "gated_ffn": False,
    "attention": "full",
    "image": {"size_pixels": 224, "patch_size_pixels": 16, "num_classes": 1000},
}
MAMBA = {
    **NO_LANGUAGE,
    "family": "state-space",
    "num_parameters": 2768345600,
    "num_layers": 64,
    "hidden_size": 2560,
    "num_attention_heads": None,
    "ffn_hidden_size": None,
    "vocabulary_size": 50280,
    "tied_embeddings": True,
    "attention": "none",
    "state_space": {"kind": "mamba", "state_size": 16},
}
MAMBA_2 = {
    **MAMBA,
    "num_parameters": 2702599680,
    "vocabulary_size": 50288,
    "state_space": {"kind": "mamba-2", "state_size": 128},
}
NEMOTRON_H = {
    "family": "hybrid",
    "num_parameters": 56.3e9,
    "num_layers": 118,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_size": 128,
    "ffn_hidden_size": 32768,
    "gated_ffn": False,
    "vocabulary_size": 131072,
    "num_attention_layers": 10,
    "num_ffn_layers": 54,
    "state_space": {"kind": "mamba-2", "state_size": 256, "num_heads": 256, "num_groups": 8, "num_layers": 54},
}
COUNT = ("TS-PAR-019",)


@pytest.mark.parametrize("model", [VIT_L, MAMBA, MAMBA_2, NEMOTRON_H], ids=("vit", "mamba", "mamba-2", "hybrid"))
def test_published_counts(findings, model) -> None:
    """torchvision ViT-L/16, state-spaces/mamba-2.8b and mamba2-2.7b, Nemotron-H 56B (arXiv:2504.03624)."""
    assert findings(plan={"model": model}, select=COUNT) == set()
    wrong = {**model, "num_parameters": model["num_parameters"] * 1.05}
    assert findings(plan={"model": wrong}, select=COUNT) == {("TS-PAR-019", "model.num_parameters")}


ZAMBA_2 = {
    "family": "hybrid",
    "num_parameters": 2.69e9,
    "num_layers": 54,
    "num_attention_layers": 9,
    "num_ffn_layers": 9,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_size": 160,
    "ffn_hidden_size": 10240,
    "gated_ffn": True,
    "vocabulary_size": 32000,
    "tied_embeddings": True,
    "state_space": {
        "kind": "mamba-2",
        "num_layers": 54,
        "inner_size": 5120,
        "num_heads": 80,
        "num_groups": 1,
        "state_size": 64,
        "convolution_width": 4,
    },
}


def test_layers_of_a_hybrid_may_share_their_weights(findings, verdict) -> None:
    """Zamba2-2.7B has two shared blocks, applied nine times (arXiv:2411.15242): its count is not that of its layers."""
    for shared in ({}, {"shared_layers": True}):
        assert findings(plan={"model": ZAMBA_2 | shared}, select=COUNT) == set()
        assert verdict("TS-PAR-019", plan={"model": ZAMBA_2 | shared}) is Verdict.NOT_RUN
    found = findings(plan={"model": ZAMBA_2 | {"shared_layers": False}}, select=COUNT)
    assert found == {("TS-PAR-019", "model.num_parameters")}
    for wrong in (2.2e9, 3.6e9, 2.69e6):
        found = findings(plan={"model": {**ZAMBA_2, "num_parameters": wrong}}, select=COUNT)
        assert found == {("TS-PAR-019", "model.num_parameters")}


# Falcon-H1-34B: each of 72 layers has attention, a state space and a feed-forward block (arXiv:2507.22448).
FALCON_H1 = {
    "family": "hybrid",
    "num_parameters": 33.6e9,
    "num_layers": 72,
    "num_attention_layers": 72,
    "num_ffn_layers": 72,
    "hidden_size": 5120,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "head_size": 128,
    "ffn_hidden_size": 21504,
    "vocabulary_size": 261120,
    "state_space": {
        "kind": "mamba-2",
        "state_size": 256,
        "inner_size": 4096,
        "num_heads": 32,
        "num_groups": 2,
        "num_layers": 72,
    },
}


@pytest.mark.parametrize(
    "slip",
    [
        {"state_space": FALCON_H1["state_space"] | {"inner_size": 10240}},
        {"num_parameters": 8e9},
        {"num_parameters": 20e9},
        {"ffn_hidden_size": 20480},
    ],
)
def test_a_parallel_hybrid_does_not_pass_by_weights_that_it_might_share(findings, verdict, slip) -> None:
    assert verdict("TS-PAR-019", plan={"model": FALCON_H1}) is Verdict.PASS
    assert verdict("TS-PAR-019", plan={"model": FALCON_H1 | slip}) in {Verdict.NOT_RUN, Verdict.FAIL}
    stated = FALCON_H1 | {"shared_layers": False}
    assert findings(plan={"model": stated}, select=COUNT) == set()
    assert findings(plan={"model": stated | slip}, select=COUNT) == {("TS-PAR-019", "model.num_parameters")}


@pytest.mark.parametrize(
    "slip",
    [
        {"num_attention_layers": 100},
        {"num_ffn_layers": 5},
        {"state_space": {**NEMOTRON_H["state_space"], "state_size": 2560}},
    ],
)
def test_layers_in_place_of_others_share_no_weights(findings, slip) -> None:
    """Nemotron-H has layers of three kinds, each with weights of its own (arXiv:2504.03624, table 1)."""
    assert findings(plan={"model": NEMOTRON_H}, select=COUNT) == set()
    assert findings(plan={"model": NEMOTRON_H | slip}, select=COUNT) == {("TS-PAR-019", "model.num_parameters")}


@pytest.mark.parametrize(
    "model",
    [
        {**NEMOTRON_H, "num_ffn_layers": None},
        {**MAMBA, "state_space": None},
        {**VIT_L, "image": {"size_pixels": 224}},
        {**VIT_L, "family": "cnn"},
    ],
)
def test_counts_without_a_shape_are_not_judged(verdict, model) -> None:
    assert verdict("TS-PAR-019", plan={"model": model}) is Verdict.NOT_RUN


def test_layers_of_another_kind_leave_the_count_unjudged(verdict) -> None:
    model = {**NEMOTRON_H, "state_space": {**NEMOTRON_H["state_space"], "kind": "other"}}
    assert verdict("TS-PAR-019", plan={"model": model}) is Verdict.NOT_RUN


@pytest.mark.parametrize("model", [VIT_L, MAMBA, NEMOTRON_H], ids=("vit", "mamba", "hybrid"))
def test_rules_on_transformers_are_not_applicable(verdict, model) -> None:
    numbers = ("PAR-013", "PAR-018", "PAR-034", "PAR-035", "MEM-020", "NRG-014")
    for requirement in (f"TS-{number}" for number in numbers):
        assert verdict(requirement, plan={"model": model}) is Verdict.NOT_APPLICABLE, requirement


@pytest.mark.parametrize("model", [VIT_L, MAMBA, NEMOTRON_H], ids=("vit", "mamba", "hybrid"))
def test_stated_figures_of_other_families_are_not_judged(verdict, model) -> None:
    """The base plan states a peak; without it, its memory section asks for a prediction."""
    assert verdict("TS-MEM-021", plan={"model": model}) is Verdict.NOT_RUN
    unstated = {"memory": {"predicted_peak_bytes": None, "peak_view": None}}
    assert verdict("TS-MEM-020", plan={"model": model, **unstated}) is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("model", "place"),
    [
        (VIT_L, None),
        (NEMOTRON_H, None),
        ({**NEMOTRON_H, "num_ffn_layers": 119}, "model.num_ffn_layers"),
        ({**NEMOTRON_H, "family": "state-space"}, "model.num_attention_layers"),
        ({**VIT_L, "image": {"size_pixels": 224, "patch_size_pixels": 15}}, "model.image.patch_size_pixels"),
        ({"image": {"size_pixels": 224}}, "model.image"),
    ],
)
def test_keys(findings, model, place) -> None:
    found = findings(plan={"model": model}, select=("TS-PAR-036",))
    assert (("TS-PAR-036", place) in found) if place else found == set()


def speed(**keys: Any) -> dict[str, Any]:
    return {"model": VIT_L, "performance": {"kind": "measured", **keys}, "batch": {"global_tokens": None}}


def test_operations_of_a_sample(findings) -> None:
    """61.55 billion multiply-adds (torchvision), 369.3 billion operations forward and backward."""
    select = ("TS-PAR-037",)
    assert findings(plan=speed(flops_per_sample=369.3e9), select=select) == set()
    for wrong in (61.55e9, 123.1e9):
        assert findings(plan=speed(flops_per_sample=wrong), select=select) == {
            ("TS-PAR-037", "performance.flops_per_sample")
        }


def test_samples_of_a_second_and_of_a_step(findings) -> None:
    right = speed(samples_per_second=1024, step_seconds=0.5)
    assert findings(plan=right, select=("TS-PAR-023",)) == set()
    wrong = speed(samples_per_second=1024, step_seconds=0.6)
    assert findings(plan=wrong, select=("TS-PAR-023",)) == {("TS-PAR-023", "performance.step_seconds")}
    rate = {
        "samples_per_second": 128000,
        "flops_per_sample": 369.3e9,
        "model_flops_per_second_per_accelerator": 369.3e12,
    }
    assert findings(plan=speed(**rate), select=("TS-PAR-024",)) == set()
    rate["model_flops_per_second_per_accelerator"] = 200e12
    found = findings(plan=speed(**rate), select=("TS-PAR-024",))
    assert found == {("TS-PAR-024", "performance.flops_per_sample")}


def test_layers_for_multi_token_prediction_have_state(findings) -> None:
    """One layer of the base model has 0.86e9 parameters, its projection 0.13e9: 0.99e9 of 9 bytes over 32 ranks."""
    bound = (6 + 12 / 4) * (70.55e9 + families.mtp_parameters(Shape(80, 8192, 64, 8, 128, 28672, 128256, True))) / 32
    for spare, wrong in ((85.520809984e9 - bound - 1e8, False), (85.520809984e9 - bound + 1e6, True)):
        for count in (70.553706496e9, bound * 32 / 9):  # without the layer, and with it as GLM-4.5 is published
            model = {"num_mtp_layers": 1, "num_parameters": count}
            plan = {"model": model, "memory": {"reserve_bytes": spare}}
            assert bool(findings(plan=plan, select=("TS-MEM-002",))) is wrong


def test_operations_with_multi_token_prediction(findings) -> None:
    """449.2e9 without the layer, up to 11e9 more with it and the output layer that it shares."""
    for given, wrong in ((449.2e9, False), (461e9, False), (487.7e9, True)):
        keys = {"kind": "predicted", "flops_per_token": given, "flops_convention": "6n-causal-attention"}
        plan = {"model": {"num_mtp_layers": 1}, "performance": keys}
        assert bool(findings(plan=plan, select=("TS-PAR-025",))) is wrong


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"num_heads": 80}, None),
        ({"num_heads": 81}, "num_heads"),
        ({"num_heads": 81, "inner_size": 8100}, None),
        ({"num_heads": 80, "num_groups": 8}, None),
        ({"num_heads": 80, "num_groups": 3}, "num_groups"),
        ({"kind": "mamba", "num_heads": 81}, None),
    ],
)
def test_heads_divide_the_inner_channels(findings, keys, key) -> None:
    model = MAMBA_2 | {"state_space": MAMBA_2["state_space"] | keys}
    found = findings(plan={"model": model}, select=("TS-PAR-036",))
    assert found == (set() if key is None else {("TS-PAR-036", f"model.state_space.{key}")})


FAMILY = ("TS-PAR-036",)


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({}, False),
        ({"num_ffn_layers": 53}, True),
        ({"num_attention_layers": 0}, True),
        ({"num_attention_layers": None, "num_ffn_layers": 1}, False),
        ({"num_ffn_layers": 30, "experts": {"num_experts": 8, "num_active_experts": 2, "num_layers": 24}}, False),
        ({"num_ffn_layers": 30, "experts": {"num_experts": 8, "num_active_experts": 2, "num_layers": 23}}, True),
        ({"num_ffn_layers": 0, "experts": {"num_experts": 8, "num_active_experts": 2}}, False),
    ],
)
def test_no_layer_of_a_hybrid_is_empty(findings, keys, wrong) -> None:
    """Nemotron-H has 118 layers of three kinds (arXiv:2504.03624, table 1)."""
    found = findings(plan={"model": {**NEMOTRON_H, **keys}}, select=FAMILY)
    assert found == ({("TS-PAR-036", "model.num_layers")} if wrong else set())


def test_layers_of_a_hybrid_may_be_of_several_kinds(findings) -> None:
    assert findings(plan={"model": ZAMBA_2}, select=FAMILY) == set()


def test_the_help_on_grouped_query_attention_leaves_out_both_ends(helps: Callable[..., list[str]]) -> None:
    """As many key and value heads as query heads are full attention, and one is multi-query."""
    (said,) = helps(plan="model: {num_key_value_heads: 64}", select=("TS-PAR-015",))
    assert said == "num_key_value_heads is then more than 1 and less than 64, a divisor of it"


@pytest.mark.parametrize(("count", "wrong"), [(21.743e9, False), (21.93e9, False), (21.453e9, True), (22.1e9, True)])
def test_a_vision_transformer_without_its_classifier(findings, count, wrong) -> None:
    """ViT-22B: arXiv:2302.05442, table 1."""
    shape = {"num_layers": 48, "hidden_size": 6144, "num_attention_heads": 48, "head_size": 128}
    image = {"size_pixels": 224, "patch_size_pixels": 14, "num_classes": 29593}
    model = {**VIT_L, **shape, "ffn_hidden_size": 24576, "num_parameters": count, "image": image}
    assert bool(findings(plan={"model": model}, select=COUNT)) is wrong
