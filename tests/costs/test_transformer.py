"""The counts meet published parameters, operations and utilisations."""

from __future__ import annotations

import csv
import doctest
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from benchmarks.training_sets import shape_of
from trainspec_validate.performance.costs import transformer
from trainspec_validate.performance.costs.transformer import Shape

RUNS = Path(__file__).resolve().parents[1] / "vectors" / "published_runs.csv"


def rows(dataset: str) -> Iterator[dict[str, str]]:
    with RUNS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["row_id"].startswith(dataset) and row["num_layers"]:
                yield row


def report(name: str, errors: list[float]) -> None:
    score = f"{name}: {len(errors)} rows, median {median(errors):.4%}, worst {max(errors):.3%}"
    print(score)  # noqa: T201 - the score is part of the result


def test_worked_examples() -> None:
    result = doctest.testmod(transformer)
    assert result.attempted >= 12
    assert result.failed == 0


def test_nvidia_dense_rows() -> None:
    flops_errors, parameter_errors = [], []
    for row in rows("nemo_bridge"):
        known, declared = shape_of(row, gated_ffn=True), float(row["num_parameters"])
        attention = transformer.attention_flops_per_token(known, int(row["sequence_length"]), causal=True)
        counted = transformer.model_flops_per_token(declared, attention, known.embedding_parameters)
        rate = float(row["model_flops_per_second_per_accelerator"])
        printed = rate / float(row["tokens_per_second_per_accelerator"])
        flops_errors.append(abs(counted / printed - 1))
        parameter_errors.append(abs(transformer.parameters(known).total / declared - 1))
    report("NVIDIA dense, operations", flops_errors)
    assert len(flops_errors) >= 38
    assert median(flops_errors) <= 0.001
    assert max(flops_errors) <= 0.02
    assert max(parameter_errors) <= 0.0001


def test_mosaicml_rows() -> None:
    errors = []
    for row in rows("llmfoundry"):
        known = shape_of(row, tied_embeddings=True)
        attention = transformer.attention_flops_per_token(known, int(row["sequence_length"]), causal=False)
        counted = transformer.model_flops_per_token(float(row["num_parameters"]), attention)
        speed = float(row["tokens_per_second_per_accelerator"])
        printed = float(row["model_flops_utilisation"]) * float(row["peak_flops_per_second"]) / speed
        errors.append(abs(counted / printed - 1))
        low = transformer.parameters(known).total
        positions = int(row["sequence_length"]) * known.hidden_size
        assert low * 0.99 <= float(row["num_parameters"]) <= (low + positions) * 1.01, row["row_id"]
    report("MosaicML, operations", errors)
    assert len(errors) >= 168
    assert median(errors) <= 0.001
    assert max(errors) <= 0.0025


def test_utilisations_of_2022_rows() -> None:
    seen = 0
    for row in rows("korthikanti2022"):
        per_token = transformer.megatron_2022_flops_per_token(shape_of(row), int(row["sequence_length"]))
        tokens = int(row["global_sequences"]) * int(row["sequence_length"]) / float(row["step_seconds"])
        utilisation = tokens / int(row["num_accelerators"]) * per_token / float(row["peak_flops_per_second"])
        assert utilisation == pytest.approx(float(row["model_flops_utilisation"]), abs=0.002)
        seen += 1
    assert seen == 4


@pytest.mark.parametrize(
    ("known", "total", "active"),
    [
        # Qwen3-235B-A22B: embeddings counted in the active parameters.
        (Shape(94, 4096, 64, 4, 128, 0, 151936, True, False, 128, 8, 0, 1536, 94), 235.1e9, 22.2e9),
        # Mixtral 8x7B.
        (Shape(32, 4096, 32, 8, 128, 0, 32000, True, False, 8, 2, 0, 14336, 32), 46.7e9, 12.9e9),
        # OLMoE 1B-7B.
        (Shape(16, 2048, 16, 16, 128, 0, 50304, True, False, 64, 8, 0, 1024, 16), 6.92e9, 1.28e9),
    ],
)
def test_mixtures_of_experts(known: Shape, total: float, active: float) -> None:
    counted = transformer.parameters(known)
    assert counted.total == pytest.approx(total, rel=0.005)
    assert counted.active == pytest.approx(active, rel=0.01)


def test_training_step_of_2021_table() -> None:
    # arXiv:2104.04473: 1,536 sequences of 2,048 on 1,024 accelerators at 138 TFLOP/s take 32 s.
    gpt3 = Shape(96, 12288, 96, 96, 128, 49152, 51200)
    step = 1536 * 2048 * transformer.megatron_2021_flops_per_token(gpt3, 2048) / (1024 * 138e12)
    assert step == pytest.approx(31.92, abs=0.05)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="3 layers with experts"):
        transformer.parameters(Shape(2, 8, 2, 2, 4, 16, 100, num_experts=2, num_expert_layers=3))
    with pytest.raises(ValueError, match="exceeds"):
        transformer.model_flops_per_token(10.0, 0.0, input_embedding=11.0)
    with pytest.raises(ValueError, match="at least 1"):
        transformer.pipeline_idle_ratio(0, 4)
