"""Kernel floors and shapes: the table's edges, notes, other models, and published shapes that pass."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

RUNS = {"num_warmup_runs": 50, "num_timed_runs": 100}
TABLE = {
    "matmul": (0.70, "same-run-matmul"),
    "attention": (0.25, "same-run-matmul"),
    "normalization": (0.45, "same-run-device-copy"),
    "activation": (0.45, "same-run-device-copy"),
    "host-to-device-copy": (0.70, "negotiated-link-rate"),
    "step": (0.35, "same-run-matmul"),
}


def kernel(operation: str, **keys: Any) -> dict[str, Any]:
    floor, denominator = TABLE[operation]
    return {"operation": operation, "floor": floor, "denominator": denominator, **RUNS, **keys}


@pytest.mark.parametrize("operation", TABLE)
def test_the_table_is_the_floor(findings, operation) -> None:
    floor = TABLE[operation][0]
    below = {"kernels": [kernel(operation, floor=floor - 0.01)]}
    assert findings(plan={"kernels": [kernel(operation)]}, select=("TS-PRC-017",)) == set()
    assert findings(plan=below, select=("TS-PRC-017",)) == {("TS-PRC-017", "kernels.0.floor")}
    below["kernels"][0]["note"] = "Measured on a shared node."
    assert findings(plan=below, select=("TS-PRC-017",)) == set()


@pytest.mark.parametrize(
    "model",
    [{"num_parameters": 1e9}, {"sequence_length": 131072}, {"family": "moe-transformer"}],
    ids=["small", "long", "sparse"],
)
def test_the_floor_of_a_step_is_for_large_dense_models(findings, model) -> None:
    plan = {"model": model, "kernels": [kernel("step", floor=0.1)]}
    assert findings(plan=plan, select=("TS-PRC-017",)) == set()


@pytest.mark.parametrize("operation", TABLE)
def test_the_sheet_is_no_roofline(findings, operation) -> None:
    plan = {"kernels": [kernel(operation, denominator="vendor-peak")]}
    select = ("TS-PRC-017", "TS-PRC-027")
    assert findings(plan=plan, select=select) == {("TS-PRC-027", "kernels.0.denominator")}
    noted = {"kernels": [kernel(operation, denominator="vendor-peak", note="From a table of the maker.")]}
    assert findings(plan=noted, select=select) == {("TS-PRC-027", "kernels.0.denominator")}


def test_a_model_without_attention_sets_no_floor_for_it(findings) -> None:
    kernels = [kernel(name) for name in ("matmul", "normalization", "host-to-device-copy")]
    assert findings(plan={"kernels": kernels}, select=("TS-PRC-016",)) == {("TS-PRC-016", "kernels")}
    plan = {"model": {"attention": "none"}, "kernels": kernels}
    assert findings(plan=plan, select=("TS-PRC-016",)) == set()


@pytest.mark.parametrize("requirement", [f"TS-PRC-{n:03}" for n in (16, 17, 18, 19, 20)])
def test_no_kernels_are_not_judged(verdict, requirement) -> None:
    assert verdict(requirement, plan={"kernels": None}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("runs", "place"),
    [
        ({"num_warmup_runs": 49}, "kernels.0.num_warmup_runs"),
        ({"num_timed_runs": 99}, "kernels.0.num_timed_runs"),
        ({"num_timed_runs": None}, "kernels.0"),
    ],
)
def test_too_few_runs(findings, runs, place) -> None:
    plan = {"kernels": [kernel("matmul", **runs)]}
    assert findings(plan=plan, select=("TS-PRC-018",)) == {("TS-PRC-018", place)}


@pytest.mark.parametrize(
    "shape",
    [[8192, 8192, 3584], [8192, 8192, 7168], [8192, 8192, 1280], [1024, 8192, 16032], [8192, 3584, 8192]],
    ids=["up", "gate-and-up", "qkv", "vocabulary", "down"],
)
def test_products_of_the_model(findings, shape) -> None:
    assert findings(plan={"kernels": [kernel("matmul", dimensions=shape)]}, select=("TS-PRC-019",)) == set()


@pytest.mark.parametrize(
    ("operation", "shape", "wrong"),
    [
        ("matmul", [65536, 8192, 3584], True),
        ("matmul", [8192, 8192], True),
        ("attention", [1, 8, 8192, 128], False),
        ("attention", [1, 8, 4096, 128], False),
        ("attention", [1, 8, 8192, 64], True),
        ("attention", [1, 128, 8192, 128], True),
        ("attention", [1, 8, 16384, 128], True),
    ],
)
def test_shapes(findings, operation, shape, wrong) -> None:
    found = findings(plan={"kernels": [kernel(operation, dimensions=shape)]}, select=("TS-PRC-019",))
    assert found == ({("TS-PRC-019", "kernels.0.dimensions")} if wrong else set())


@pytest.mark.parametrize(("sequence", "wrong"), [(4095, False), (4096, True)])
def test_unfused_attention_is_for_short_sequences(findings, sequence, wrong) -> None:
    plan = {"model": {"sequence_length": sequence}, "kernels": [kernel("attention", fused=False)]}
    found = findings(plan=plan, select=("TS-PRC-020",))
    assert found == ({("TS-PRC-020", "kernels.0.fused")} if wrong else set())


def test_attention_that_does_not_say_whether_it_is_fused(findings) -> None:
    found = findings(plan={"kernels": [kernel("attention")]}, select=("TS-PRC-020",))
    assert found == {("TS-PRC-020", "kernels.0")}


# Hidden size, feed-forward width, vocabulary and tensor degree as published.
PUBLISHED = {
    "llama-3-405b": (16384, 53248, 128256, 8),
    "llama-2-70b": (8192, 28672, 32000, 8),
    "gpt-3-175b": (12288, 49152, 51200, 8),
    "mt-nlg-530b": (20480, 81920, 51200, 8),
    "bloom-176b": (14336, 57344, 250880, 4),
    "palm-540b": (18432, 73728, 256000, 1),
    "gpt-neox-20b": (6144, 24576, 50432, 2),
    "qwen2-72b": (8192, 29568, 152064, 1),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_are_aligned(findings, name) -> None:
    hidden, ffn, vocabulary, tensor = PUBLISHED[name]
    plan = {
        "model": {"hidden_size": hidden, "ffn_hidden_size": ffn, "vocabulary_size": vocabulary},
        "parallelism": {"tensor": tensor},
        "kernels": None,
    }
    assert findings(plan=plan, select=("TS-PRC-021",)) == set()


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ({"vocabulary_size": 50257}, "vocabulary_size"),  # GPT-2 without padding
        ({"hidden_size": 8200}, "hidden_size"),
        ({"ffn_hidden_size": 11008}, "ffn_hidden_size"),  # LLaMA 7B over eight tensor ranks: 1376 columns
    ],
)
def test_odd_widths(findings, model, place) -> None:
    tensor = 1 if place == "vocabulary_size" else 8
    plan = {"model": model, "parallelism": {"tensor": tensor}, "kernels": None}
    assert findings(plan=plan, select=("TS-PRC-021",)) == {("TS-PRC-021", f"model.{place}")}


@pytest.mark.parametrize("framework", ["megatron-lm", "torchtitan"])
def test_a_vocabulary_that_does_not_divide_is_no_better_than_one_that_does(findings, framework) -> None:
    """Of a framework that refuses it, TS-PAR-016 reports the vocabulary."""
    plan = {
        "model": {"vocabulary_size": 50257},
        "parallelism": {"tensor": 8},
        "framework": {"name": framework, "version": "1"},
        "kernels": None,
    }
    judged = "TS-PAR-016" if framework == "megatron-lm" else "TS-PRC-021"
    assert findings(plan=plan, select=("TS-PRC-021", "TS-PAR-016")) == {(judged, "model.vocabulary_size")}


def test_another_width_that_does_not_divide_is_not_judged_here(findings) -> None:
    plan = {"model": {"ffn_hidden_size": 28673}, "kernels": None}
    assert findings(plan=plan, select=("TS-PRC-021",)) == set()


def test_a_recipe_asks_for_wider_vocabulary_shards(findings) -> None:
    plan = {"model": {"vocabulary_size": 128_192 + 64}, "kernels": None}
    assert findings(plan=plan, select=("TS-PRC-021",)) == set()
    plan["model"] = {"vocabulary_size": 8 * 8 * 2001}
    plan["precision"] = {"recipe": {"format": "fp8-hybrid"}}
    assert findings(plan=plan, select=("TS-PRC-021",)) == {("TS-PRC-021", "model.vocabulary_size")}


def test_an_odd_product(findings) -> None:
    plan = {"kernels": [kernel("matmul", dimensions=[8192, 8192, 3500], note="odd on purpose")]}
    assert findings(plan=plan, select=("TS-PRC-021",)) == {("TS-PRC-021", "kernels.0.dimensions")}
