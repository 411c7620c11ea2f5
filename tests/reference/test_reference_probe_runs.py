"""Answers of the reference trainers about steps, convergence, memory and narrow formats, and the order of samples."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainspec_conformance.testbed import probe_runs
from trainspec_conformance.testbed.probe import answer
from trainspec_conformance.testbed.probe_arrays import ProbeInputError
from trainspec_reference.common.data import SampleOrder

SHAPE = {"num_layers": 1, "hidden_size": 16, "sequence_length": 16, "global_sequences": 4}

SHARDS = {"sharding": "none", "num_ranks": 2, "num_parameters": 1_000, "num_steps": 2}


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    def asked(operation: str, backend: str = "plain", **values: Any) -> dict[str, Any]:
        source, target = tmp_path / "in.json", tmp_path / "out.json"
        source.write_text(json.dumps({"operation": operation, **values}))
        answer(backend, source, target)
        found: dict[str, Any] = json.loads(target.read_text())
        return found

    return asked


def test_samples_in_order_begin_again_at_the_first() -> None:
    assert SampleOrder(5, 7, is_shuffled=False).ids(3, 4) == (3, 4, 0, 1)
    assert sorted(SampleOrder(5, 7).ids(0, 5)) == [0, 1, 2, 3, 4]


def test_an_update_is_its_gradient_up_to_the_limit(ask: Any) -> None:
    one, many = np.array(ask("update", factors=[1, 1024], seed=3)["updates"])
    assert np.linalg.norm(many) > 2
    assert np.linalg.norm(many - 1024 * one) <= 1e-5 * np.linalg.norm(many)
    _, limited = np.array(ask("update", factors=[1, 1024], seed=3, clip_norm=0.5)["updates"])
    assert limited == pytest.approx(many * 0.5 / np.linalg.norm(many), rel=1e-3, abs=1e-6)


def test_the_loop_compresses_where_it_is_asked_to(ask: Any) -> None:
    settings = {"method": "top-k", "density": 0.05, "error_feedback": True}
    found = ask("converge", compression=settings, seeds=[1, 2], num_steps=3)
    dense, compressed = np.array(found["dense"]), np.array(found["compressed"])
    assert dense.shape == compressed.shape == (2, 3)
    assert (dense[:, 0] == compressed[:, 0]).all()
    assert (dense[:, 2] != compressed[:, 2]).all()
    assert "power-sgd" in ask("converge", compression={"method": "power-sgd"}, seeds=[1], num_steps=1)["unsupported"]


def test_a_loop_that_compresses_nothing_says_so(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_runs, "_losses", lambda *_: np.ones((1, 3)))
    found = ask("converge", compression={"method": "top-k", "density": 0.5}, seeds=[1], num_steps=3)
    assert "compresses nothing" in found["unsupported"]


@pytest.mark.slow
def test_a_backend_that_compresses_nothing_alone_trains_on_two_ranks(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    question = {
        "compression": {"method": "top-k", "density": 0.05, "error_feedback": True},
        "seeds": [1],
        "num_steps": 4,
    }
    alone = ask("converge", **question)
    monkeypatch.setattr(probe_runs, "_differ", lambda _, *jobs: jobs[0].plan.parallelism.data == 2)
    of_two = ask("converge", **question)
    assert of_two["dense"][0] == pytest.approx(alone["dense"][0], rel=1e-5)
    assert of_two["compressed"][0][0] == pytest.approx(alone["dense"][0][0], rel=1e-5)
    assert of_two["compressed"][0][1:] != of_two["dense"][0][1:]


@pytest.mark.long
def test_torch_compresses_between_two_ranks(ask: Any) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    settings = {"method": "top-k", "density": 0.05, "error_feedback": True}
    found = ask("converge", "torch", compression=settings, seeds=[1], num_steps=3)
    assert found["dense"][0][0] == found["compressed"][0][0]
    assert found["dense"][0][2] != found["compressed"][0][2]


def test_memory_is_predicted_and_counted(ask: Any) -> None:
    small, large = (ask("memory", **{**SHAPE, "num_layers": layers})["predicted_bytes"] for layers in (1, 3))
    of_layer = 4 * (5 * 4 * 16 * 16 + 8 * (3 * 16 * 16 + 5 * 16))
    assert large - small == pytest.approx(2 * of_layer, rel=0.02)
    peaks = ask("peaks", **SHAPE, num_steps=6)["peak_bytes"]
    assert len(peaks) == 6
    assert min(peaks) > 0


def test_a_recipe_scales_and_rounds(ask: Any) -> None:
    found = ask("quantise", values=[448.0, -1.06, 0.0, 1e-9], format="fp8-e4m3", scaling="current")
    assert found["scales"] == [1.0]
    assert found["dequantised"] == [[448.0, -1.0, 0.0, 0.0]]
    found = ask("quantise", values=[3.0, 0.7, 0.0, 0.0], format="mxfp4", scaling="block", block_size=2)
    assert found["scales"] == [2.0, 1.0]
    assert found["dequantised"] == [[3.0, 0.75, 0.0, 0.0]]
    assert "delayed scaling" in ask("quantise", values=[1.0], format="fp8-e4m3", scaling="delayed")["unsupported"]
    with pytest.raises(ProbeInputError, match="format"):
        ask("quantise", values=[1.0], format="fp7", scaling="block", block_size=1)


@pytest.mark.parametrize(
    ("operation", "values", "words"),
    [
        ("update", {"factors": [3]}, "a factor divides 1024"),
        ("converge", {"compression": {"method": "fp16"}, "seeds": [], "num_steps": 3}, "seeds are trained"),
        ("memory", {**SHAPE, "num_layers": 0}, "sizes are positive"),
        ("peaks", {**SHAPE, "num_steps": 10**9}, "steps are trained"),
        ("shards", {**SHARDS, "num_ranks": 99}, "at most 16 ranks"),
        ("shards", {**SHARDS, "num_parameters": 0}, "at most 16 ranks"),
        ("shards", {**SHARDS, "sharding": "some"}, "sharding: "),
        ("energy", {"seconds": 1e9}, "the load lasts"),
    ],
)
def test_wrong_requests_are_refused(ask: Any, operation: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ProbeInputError, match=words):
        ask(operation, **values)


def test_what_the_backend_has_not_is_said(ask: Any) -> None:
    assert "measures no kernels" in ask("kernels")["unsupported"]
    assert "keeps whole replicas" in ask("shards", **{**SHARDS, "sharding": "parameters"})["unsupported"]


@pytest.mark.slow
def test_ranks_of_a_question_about_shards_train(ask: Any) -> None:
    found = ask("shards", **SHARDS)
    assert found["memory"] == "host"
    assert found["num_parameters"] >= SHARDS["num_parameters"]
    assert len(found["losses"]) == 2
    assert found["losses"][0] == pytest.approx(math.log(64), rel=0.1)  # of a word among 64, before the first step


SUMS = """
import numpy as np
from trainspec_conformance.testbed.probe_parts import Formats
from trainspec_conformance.testbed.jax.probes import BackendProbes
from trainspec_validate.documents.types.communication import Compression
probes, chance = BackendProbes(), np.random.default_rng(0)
terms = chance.standard_normal((3, 4, 50))
exact = terms.sum((0, 1))
for name, bound in (("fp64", 1e-12), ("fp32", 1e-6), ("bf16", 2e-2)):
    wide = "fp64" if name == "fp64" else "fp32"
    found = probes.reduced([list(one) for one in terms], Formats(wide, wide, name))
    assert np.linalg.norm(found - exact) <= bound * np.linalg.norm(exact), name
assert np.linalg.norm(found - exact) > 1e-4 * np.linalg.norm(exact)
assert probes.group_squared_norms([np.array([6.0, 8.0])], [2.0], Formats()) == [25.0]
gradients = chance.standard_normal((20, 256)).astype(np.float32)
for settings, num_bytes in (
    (Compression(method="bf16", error_feedback=True), 512),
    (Compression(method="top-k", density=0.125, error_feedback=True), 32 * 8),
    (Compression(method="power-sgd", rank=2, error_feedback=True), (16 + 16) * 2 * 4 + 256 * 4),
):
    compressor = probes.compressor(settings, (16, 16))
    answers = [compressor.sent(one) for one in gradients]
    rest = gradients.sum(0, dtype=np.float64) - sum(one.astype(np.float64) for one, _ in answers) - compressor.residual
    assert np.abs(rest).max() <= 1e-4, settings
    assert {size for _, size in answers} == {num_bytes}, (settings, answers[0][1])
print("all hold")
"""


@pytest.mark.long
def test_the_jax_backend_shows_its_sums_and_compressors() -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    done = subprocess.run([sys.executable, "-c", SUMS], check=False, capture_output=True, text=True, timeout=600)
    assert done.stdout == "all hold\n", done.stderr[-2000:]


def test_kernels_of_the_torch_backend_are_counted_as_the_suite_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from trainspec_conformance.criteria.numbers_machine import OWED, amount
    from trainspec_conformance.testbed.torch import floors

    sizes = floors.Sizes(torch.float32, (16,), ((8, 16, 24),), (1, 2, 16, 8), (32, 64), 4096, 1, 5)
    monkeypatch.setitem(floors.SIZES, "cpu", sizes)
    found = floors.measure(torch.device("cpu"))
    assert {*OWED} <= {kernel["operation"] for kernel in found["kernels"]}
    for kernel in (*found["rooflines"], *found["kernels"]):
        assert amount(kernel, 4) / kernel["median_seconds"] == pytest.approx(kernel["per_second"])
