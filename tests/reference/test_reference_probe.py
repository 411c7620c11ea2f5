"""Answers of the plain backend to probes, against numbers that are computed here another way."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from appendix_models.noise_statistics import gradient_noise
from trainspec_conformance.testbed.probe import OPERATIONS, answer
from trainspec_conformance.testbed.probe_arrays import ProbeInputError


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    def asked(operation: str, **values: Any) -> dict[str, Any]:
        source, target = tmp_path / "in.json", tmp_path / "out.json"
        source.write_text(json.dumps({"operation": operation, **values}))
        answer("plain", source, target)
        found: dict[str, Any] = json.loads(target.read_text())
        assert found["operation"] == operation
        return found

    return asked


def test_noise_of_uneven_groups(ask: Any) -> None:
    random, sizes = np.random.default_rng(0), [1, 2, 4, 9]
    truth = np.full(40, 0.5)
    steps = truth + random.normal(size=(200, 4, 40)) / np.sqrt(sizes)[None, :, None]
    found = ask("noise", gradients=steps.tolist(), group_sizes=sizes, half_life_steps=1e6)
    exact = []
    for groups in steps:
        mean = np.average(groups, axis=0, weights=sizes)
        exact.append(gradient_noise(sizes, (groups**2).sum(1).tolist(), float(mean @ mean)))
    assert found["signal_sq"] == pytest.approx([reading.signal_sq for reading in exact], rel=1e-4, abs=1e-3)
    assert found["noise_trace"] == pytest.approx([reading.noise_trace for reading in exact], rel=1e-4)
    assert found["averages"]["noise_trace"] == pytest.approx(40, rel=0.05)
    assert found["averages"]["signal_sq"] == pytest.approx(10, rel=0.1)
    scaled = ask("noise", gradients=steps.tolist(), group_sizes=sizes, half_life_steps=1e6, loss_scale=2.0**16)
    assert scaled["averages"] == pytest.approx(found["averages"], rel=1e-6)


def test_noise_of_an_overflow_is_left_out(ask: Any) -> None:
    gradients = [[[1.0], [2.0]], [["+Inf"], [1.0]]]
    found = ask("noise", gradients=gradients, group_sizes=[1, 1], half_life_steps=5)
    assert found["noise_trace"][1] is None
    assert found["norms"] == [1.5, "+Inf"]


@pytest.mark.slow
def test_every_way_to_divide_samples_gives_one_gradient(ask: Any) -> None:
    layouts = [{"data": 1, "micro_sequences": 6}, {"data": 2, "micro_sequences": 2}]
    found = ask("accumulate", sample_ids=[4, 8, 15, 16, 23, 42], variable_length=True, layouts=layouts)
    first, second = (np.array(result["gradient"]) for result in found["results"])
    assert np.linalg.norm(first - second) <= 1e-6 * np.linalg.norm(first)
    assert np.linalg.norm(first) > 0
    counts = [sample["num_targets"] for sample in found["samples"]]
    assert len(set(counts)) > 1
    mean = np.average([sample["loss"] for sample in found["samples"]], weights=counts)
    for result in found["results"]:
        assert result["loss"] == pytest.approx(mean, rel=1e-6)
        assert result["num_targets"] == sum(counts)


def test_compression_conserves_what_it_is_given(ask: Any) -> None:
    gradients = np.random.default_rng(1).normal(size=(100, 30))
    settings = {"method": "top-k", "density": 0.1, "error_feedback": True}
    found = ask("compress", compression=settings, shape=[5, 6], gradients=gradients.tolist())
    rest = gradients.sum(0) - np.sum(found["sent"], axis=0) - found["residual"]
    assert np.abs(rest).max() <= 1e-5 * np.abs(gradients.sum(0)).max()
    assert found["wire_bytes"] == [3 * 8] * 100
    assert found["dense_bytes"] == 120
    alone = ask("compress", compression=settings, shape=[30], gradients=gradients.tolist(), independent=True)
    assert alone["sent"][0] == found["sent"][0]
    assert alone["sent"][1] != found["sent"][1]


def test_what_the_backend_has_not_is_said(ask: Any) -> None:
    settings = {"method": "power-sgd", "rank": 2, "error_feedback": True}
    found = ask("compress", compression=settings, shape=[2, 2], gradients=[[1, 2, 3, 4]])
    assert "no compression power-sgd" in found["unsupported"]
    assert "fp8-e4m3" in ask("quantise", values=[1], format="fp8-e4m3")["unsupported"]
    assert "by chance" in ask("quantise", values=[1], format="fp16", rounding="stochastic")["unsupported"]
    model = {"name": "net", "family": "cnn", "num_parameters": 1000}
    assert "transformers" in ask("flops", model=model, convention="6n")["unsupported"]


def test_rounding(ask: Any) -> None:
    assert ask("quantise", values=[1 + 2**-12, 7e4], format="fp16")["dequantised"] == [[1.0, "+Inf"]]
    draws = ask("quantise", values=[1 + 2**-9], format="bf16", rounding="stochastic", num_draws=4000)["dequantised"]
    assert np.mean(draws) == pytest.approx(1 + 2**-9, abs=4 * (3 / 16) ** 0.5 * 2**-7 / 4000**0.5)
    settings = {"start": 1.0, "increment": 1e-4, "num_steps": 200, "num_copies": 2000}
    copies = np.array(ask("stochastic-rounding", **settings)["values"])
    assert abs(copies.mean() - 1.02) < 4 * copies.std() / 2000**0.5
    assert set(ask("stochastic-rounding", **settings, rounding="nearest")["values"]) == {1.0}


def test_scale_follows_the_script_and_skips_change_nothing(ask: Any) -> None:
    script = [False, True, False, False, False, True, True]
    rule = {"mode": "dynamic", "initial_scale": 1024, "growth_interval_steps": 3, "hysteresis_steps": 1}
    found = ask("loss-scale", loss_scaling=rule, overflows=script)
    assert found["scales"] == [1024, 1024, 1024, 1024, 1024, 2048, 2048]
    assert found["next_scale"] == 1024
    assert found["skipped"] == found["unchanged"] == script
    assert found["updates"] == [1, 1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize(("number_format", "bound"), [("fp32", 1e-6), ("bf16", 2**-8 * 4)])
def test_sum_over_ranks(ask: Any, number_format: str, bound: float) -> None:
    terms = np.random.default_rng(2).normal(size=(4, 4, 50))
    packed = base64.b64encode(terms.astype("<f8").tobytes()).decode()
    array = {"dtype": "float64", "shape": [4, 4, 50], "base64": packed}
    found = ask("reduce", gradients=array, reduction_format=number_format, arrays="base64")["sum"]
    total = np.frombuffer(base64.b64decode(found["base64"]), found["dtype"])
    exact = terms.sum((0, 1))
    assert np.linalg.norm(total - exact) <= bound * np.linalg.norm(exact)
    assert found["shape"] == [50]


def test_world_sizes_are_all_that_divide(ask: Any) -> None:
    bounds = {"min_accelerators": 4, "max_accelerators": 100, "model_parallel": 2, "ranks_per_node": 4}
    found = ask("elastic", global_sequences=96, micro_sequences=[4, 6], **bounds)
    worlds = [world for world in range(4, 101, 4) if any(96 % (micro * (world // 2)) == 0 for micro in (4, 6))]
    assert found["world_sizes"] == worlds
    for scale in found["scales"]:
        assert scale["data"] * scale["micro_sequences"] * scale["accumulation_steps"] == 96
    assert ask("elastic", global_sequences=12, speeds=[1, 2])["shares"] == [4, 8]


def test_operations_of_a_transformer(ask: Any) -> None:
    model = {
        "name": "small",
        "family": "dense-transformer",
        "num_parameters": 1e6,
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "ffn_hidden_size": 96,
        "gated_ffn": True,
        "vocabulary_size": 1000,
        "sequence_length": 32,
    }
    found = ask("flops", model=model, convention="6n-full-attention")
    layers = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
    total = layers + 5 * 64 + 2 * 1000 * 64
    assert found["num_parameters"] == total
    assert found["flops_per_token"] == pytest.approx(6 * total + 12 * 2 * 64 * 32)
    assert "unsupported" in ask("flops", model=model, convention="guess")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"operation": "dance"}, f"none of {', '.join(OPERATIONS)}"),
        ({"operation": "reduce"}, "gradients is missing"),
        ({"operation": "reduce", "gradients": [1, 2]}, "1 axes, wanted 3"),
        ({"operation": "reduce", "gradients": [[1], [2, 3]]}, "no array"),
        ({"operation": "reduce", "gradients": {"dtype": "object", "shape": [1], "base64": ""}}, "dtype is not one of"),
        ({"operation": "noise", "gradients": [[[1.0]]], "group_sizes": [1, 2], "half_life_steps": 1}, "group_sizes"),
        ({"operation": "loss-scale", "overflows": [True], "loss_scaling": {"mode": "wild"}}, "loss_scaling: "),
        ({"operation": "accumulate", "sample_ids": [1], "layouts": [{"data": 99}]}, "data is between 1 and 16"),
        ([], "no object with the key operation"),
    ],
)
def test_wrong_requests_are_told_by_their_key(tmp_path: Path, request_: Any, words: str) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps(request_))
    with pytest.raises(ProbeInputError, match=words):
        answer("plain", source, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_averages_are_finite(ask: Any) -> None:
    found = ask("noise", gradients=[[[1.0, 0.0], [0.0, 1.0]]], group_sizes=[1, 1], half_life_steps=3)
    assert math.isfinite(found["averages"]["noise_trace"])


def test_the_program_answers(tmp_path: Path) -> None:
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    command = [sys.executable, "-m", "trainspec_conformance.testbed.probe", "plain", str(source), str(target)]
    source.write_text(json.dumps({"operation": "elastic", "global_sequences": 9, "speeds": [2, 1]}))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert json.loads(target.read_text()) == {"operation": "elastic", "shares": [6, 3]}
    source.write_text("{}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "no object with the key operation" in done.stderr) == (2, True)
