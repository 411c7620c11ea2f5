"""The optimizer of a plan: state by algorithm against hand counts and published figures, contradictions, defaults."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.performance.costs.optimizer_state import factor_numbers, matrices
from trainspec_validate.performance.costs.transformer import Shape, parameters

TABLES = 2 * 128256 * 8192
TOTAL = 70.55e9
WITH_ADAMW = {"name": "adamw", "num_parameters": TABLES}


def plan(optimizer: dict[str, Any] | None, **keys: Any) -> dict[str, Any]:
    return {"optimizer": optimizer, **keys}


def stated(num_bytes: float, **precision: Any) -> dict[str, Any]:
    return {"memory": {"state_bytes_per_parameter": num_bytes}, "precision": precision}


# bf16 weights, fp32 master and gradients: 10 bytes, and what the optimizer keeps.
@pytest.mark.parametrize(
    ("optimizer", "num_bytes"),
    [
        (None, 18),
        ({"name": "adam"}, 18),
        ({"name": "adamw", "moments": ["bf16", "bf16"]}, 14),
        ({"name": "adamw", "moments": ["fp8", "fp16"]}, 13),
        ({"name": "lion"}, 14),
        ({"name": "sgd"}, 14),
        ({"name": "sgd", "moments": []}, 10),
        ({"name": "adafactor"}, 10),
        ({"name": "adafactor", "moments": ["bf16"]}, 12),
        # Kimi's and Moonlight's: one moment, and two of the 3 % in tables.
        ({"name": "muon", "auxiliary": WITH_ADAMW}, 14 + 4 * TABLES / TOTAL),
        # Square blocks: two factors and two roots of one number each, for each parameter of a matrix.
        ({"name": "shampoo"}, 18 + 16),
        ({"name": "shampoo", "moments": ["fp32"], "factor_format": "bf16"}, 14 + 8),
        ({"name": "other", "bytes_per_parameter": 3.5}, 13.5),
    ],
)
def test_state_of_each_optimizer(findings, optimizer, num_bytes) -> None:
    for difference, wrong in ((0, False), (0.2, False), (-0.3, True), (0.3, True)):
        found = findings(plan=plan(optimizer, **stated(num_bytes + difference)), select=("TS-MEM-001",))
        assert found == ({("TS-MEM-001", "memory.state_bytes_per_parameter")} if wrong else set())


def test_state_that_is_not_known_is_not_judged(verdict) -> None:
    for optimizer in ({"name": "other"}, {"name": "muon", "auxiliary": {"name": "other", "num_parameters": 1e9}}):
        assert verdict("TS-MEM-001", plan=plan(optimizer, **stated(30))) is Verdict.NOT_RUN
    unknown = {"name": "shampoo"}
    shapeless = {"model": {"family": "other"}}
    assert verdict("TS-MEM-001", plan=plan(unknown, **stated(30), **shapeless)) is Verdict.NOT_RUN


def test_the_optimizer_decides_whether_state_fits(findings) -> None:
    """One data rank: 2 + 4 + 4 bytes and the moments of 70.55e9 parameters over 32 ranks, beside 46 GB kept free."""
    keys = {"parallelism": {"data": 4, "sharding": "none"}, "memory": {"reserve_bytes": 46e9}}
    select = ("TS-MEM-002",)
    assert findings(plan=plan(None, **keys), select=select) == {("TS-MEM-002", "memory.reserve_bytes")}
    assert findings(plan=plan({"name": "muon", "auxiliary": WITH_ADAMW}, **keys), select=select) == set()


def test_the_predicted_peak_follows_the_optimizer(findings) -> None:
    """Peak of the base plan without sharding: 39.7 GB of state with Adam, 30.9 GB with one moment."""
    keys = {"parallelism": {"sharding": "none"}, "memory": {"predicted_peak_bytes": 37e9}}
    select = ("TS-MEM-021", "TS-MEM-003")
    assert findings(plan=plan({"name": "adamw"}, **keys), select=select) == {
        ("TS-MEM-003", "memory.predicted_peak_bytes")
    }
    assert findings(plan=plan({"name": "lion"}, **keys), select=("TS-MEM-003",)) == set()


@pytest.mark.parametrize(
    ("optimizer", "precision", "place"),
    [
        ({"name": "adamw", "moments": ["fp32"]}, {}, "optimizer.moments"),
        ({"name": "muon", "moments": ["fp32", "fp32"]}, {"optimizer_state": None}, "optimizer.moments"),
        ({"name": "sgd"}, {"num_optimizer_moments": 2}, "precision.num_optimizer_moments"),
        ({"name": "adamw", "moments": ["bf16", "bf16"]}, {"optimizer_state": "fp32"}, "precision.optimizer_state"),
        (
            {"name": "other", "moments": ["fp32"]},
            {"num_optimizer_moments": 2},
            "precision.num_optimizer_moments",
        ),
        (
            {"name": "muon", "auxiliary": {**WITH_ADAMW, "moments": ["fp32"]}},
            {},
            "optimizer.auxiliary.moments",
        ),
        ({"name": "adamw", "moments": ["bf16", "bf16"]}, {"optimizer_state": None}, None),
        ({"name": "sgd"}, {"num_optimizer_moments": 0}, None),
        ({"name": "adamw", "moments": ["fp8", "fp16"]}, {"optimizer_state": None}, None),
    ],
)
def test_moments(findings, optimizer, precision, place) -> None:
    found = findings(plan=plan(optimizer, precision=precision), select=("TS-MEM-023",))
    assert found == (set() if place is None else {("TS-MEM-023", place)})


@pytest.mark.parametrize(
    ("optimizer", "wrong"),
    [
        ({"name": "adamw", "bytes_per_parameter": 8}, False),
        ({"name": "adamw", "bytes_per_parameter": 4}, True),
        ({"name": "adamw", "moments": ["int8", "int8"], "bytes_per_parameter": 2.1}, False),
        ({"name": "muon", "auxiliary": WITH_ADAMW, "bytes_per_parameter": 4.12}, False),
        ({"name": "adafactor", "bytes_per_parameter": 0}, False),
        ({"name": "other", "bytes_per_parameter": 40}, False),
    ],
)
def test_stated_bytes(findings, optimizer, wrong) -> None:
    found = findings(plan=plan(optimizer, precision={"optimizer_state": None}), select=("TS-MEM-024",))
    assert found == ({("TS-MEM-024", "optimizer.bytes_per_parameter")} if wrong else set())


def test_muon_leaves_tables_to_another_optimizer(findings) -> None:
    small = {"name": "muon", "auxiliary": {"name": "adamw", "num_parameters": 1e9}}
    assert findings(plan=plan(small), select=("TS-MEM-026",)) == {("TS-MEM-026", "optimizer.auxiliary.num_parameters")}
    right = {"name": "muon", "auxiliary": WITH_ADAMW}
    assert findings(plan=plan(right), select=("TS-MEM-025", "TS-MEM-026")) == set()


# Qwen2.5-3B: 36 layers of 2,048, 16 heads, 2 of keys and values, 11,008, 151,936 tokens, one table.
QWEN_3B = Shape(36, 2048, 16, 2, 128, 11008, 151936, gated_ffn=True, tied_embeddings=True)
DEEPSEEK_LIKE = Shape(8, 1024, 8, 8, 128, 4096, 32000, True, True, 16, 2, 1, 512, 6)


@pytest.mark.parametrize("shape", [QWEN_3B, DEEPSEEK_LIKE])
def test_matrices_add_up_to_the_parameters(shape) -> None:
    counted = parameters(shape)
    assert sum(matrix.num_parameters for matrix in matrices(shape)) == counted.total - counted.normalization
    tables = counted.embeddings
    assert sum(matrix.num_parameters for matrix in matrices(shape, tables=False)) == (
        counted.total - counted.normalization - tables
    )


def test_muon_saves_what_its_makers_say() -> None:
    """DeepSpeed's page: about 90 % of parameters are matrices of hidden layers, so about 45 % of Adam's state."""
    hidden = sum(matrix.num_parameters for matrix in matrices(QWEN_3B, tables=False))
    share = hidden / parameters(QWEN_3B).total
    assert 0.88 < share < 0.92
    assert 0.44 < share * 4 / 8 < 0.46


def test_factors() -> None:
    # Adafactor's own example is a sum per row and column; Shampoo's square factors of whole matrices.
    assert factor_numbers("adafactor", 512, 2048) == 2560
    assert factor_numbers("shampoo", 100, 300, 1000) == 2 * (100**2 + 300**2)
    assert factor_numbers("shampoo", 4096, 11008, 512) == 4 * 4096 * 11008
    assert factor_numbers("soap", 4096, 128256) == 2 * 4096**2
    assert factor_numbers("adamw", 4096, 4096) == 0
    with pytest.raises(ValueError, match="at least one row"):
        factor_numbers("soap", 0, 3)
