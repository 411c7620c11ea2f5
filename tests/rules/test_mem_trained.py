"""Frozen parameters and adapters: counts that libraries print, state, and memory that torchtune published."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.performance.costs.activations import ActivationPolicy
from trainspec_validate.performance.costs.adapters import adapter_parameters
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.rank_memory import GIB, Overheads, rank_memory
from trainspec_validate.performance.costs.transformer import Shape, parameters

LLAMA2_70B = Shape(80, 8192, 64, 8, 128, 28672, 32000, gated_ffn=True)
LLAMA31_8B = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
LLAMA31_70B = Shape(80, 8192, 64, 8, 128, 28672, 128256, gated_ffn=True)
TORCHTUNE = ("query", "value", "output", "gate", "up", "down")


def lora(rank: int, *targets: str, **plan: Any) -> dict[str, Any]:
    return {"lora": {"rank": rank, "targets": list(targets)}, **plan}


@pytest.mark.parametrize(
    ("shape", "rank", "targets", "count"),
    [
        # MLPerf's reference prints 44,564,480; peft prints 4,194,304 for Llama 2 7B, rank 8 on queries and values.
        (LLAMA2_70B, 16, ("query-key-value", "output"), 44_564_480),
        (Shape(32, 4096, 32, 32, 128, 11008, 32000, gated_ffn=True), 8, ("query", "value"), 4_194_304),
        (LLAMA31_8B, 16, ("query", "key", "value", "output", "gate", "up", "down"), 41_943_040),
        (Shape(2, 8, 2, 2, 4, 0, 100, True, False, 4, 2, 1, 16, 2), 1, ("expert-down",), 2 * 5 * 24),
    ],
)
def test_adapters(shape, rank, targets, count) -> None:
    assert adapter_parameters(shape, rank, targets) == count


@pytest.mark.parametrize(("rank", "targets"), [(0, ("query",)), (8, ("gate",)), (8, ("expert-up",))])
def test_adapters_that_cannot_be(rank, targets) -> None:
    with pytest.raises(ValueError, match=r"rank|no matrix"):
        adapter_parameters(Shape(2, 8, 2, 2, 4, 32, 100), rank, targets)


def memory_of_adapters(shape: Shape, weight_bytes: float, layout: Layout) -> float:
    """GiB of tensors by the formulas, with all of a layer recomputed and the loss in pieces, as torchtune runs."""
    share = adapter_parameters(shape, 8, TORCHTUNE) / parameters(shape).total
    state = ModelState(weight_bytes + 2 * share, 0, 2 * share, 4 * share)
    overheads = Overheads(gathered_gradient_bytes=2 * share)
    found = rank_memory(shape, layout, state, ActivationPolicy("full"), overheads)
    return (found.weights + found.gradients + found.optimizer + found.activations) / GIB


def test_published_memory_of_adapters() -> None:
    """pytorch/torchtune@0031bfb0, README: batch 2 of 2,048 tokens; LoRA of 8B 16.2 GiB, of 70B on 8 ranks 27.6 GiB."""
    one = Layout(micro_sequences=2, sequence_length=2048)
    eight = Layout(data=8, sharding_stage=3, micro_sequences=2, sequence_length=2048)
    assert memory_of_adapters(LLAMA31_8B, 2, one) == pytest.approx(16.2, rel=0.1)
    assert memory_of_adapters(LLAMA31_70B, 2, eight) == pytest.approx(27.6, rel=0.1)


# One rank of eight: 70.55e9 parameters over 8 tensor ranks, 8.82e9 weights.
NODE = {
    "parallelism": {"num_accelerators": 8, "tensor": 8, "pipeline": 1, "data": 1, "sharding": "none"},
    "batch": {"global_sequences": 8, "accumulation_steps": 8, "global_tokens": None},
    "memory": {"reserve_bytes": None, "predicted_peak_bytes": None},
}


@pytest.mark.parametrize(
    ("frozen", "reserve", "wrong"),
    [
        (None, 66.5e9, False),
        (None, 68.5e9, True),
        ("fp8", 74.5e9, False),
        ("fp8", 77.5e9, True),
        ("nf4", 79.5e9, False),
        ("nf4", 81.5e9, True),
    ],
)
def test_frozen_parameters_have_weights_alone(findings, frozen, reserve, wrong) -> None:
    plan = lora(16, "query-key-value", "output", **NODE)
    plan |= {"precision": {"frozen_parameters": frozen}, "memory": {**NODE["memory"], "reserve_bytes": reserve}}
    found = findings(plan=plan, select=("TS-MEM-002",))
    assert found == ({("TS-MEM-002", "memory.reserve_bytes")} if wrong else set())


def test_predicted_memory_of_adapters_fits_where_full_training_does_not(findings, verdict) -> None:
    plan = {**NODE, "memory": {**NODE["memory"], "activation_policy": "full", "reserve_bytes": 3.3e9}}
    select = ("TS-MEM-002", "TS-MEM-020")
    assert findings(plan=plan, select=select) == {("TS-MEM-002", "model.num_parameters")}
    assert findings(plan=lora(16, "query", "value", **plan), select=select) == set()
    long = lora(16, "query", "value", **plan, model={"sequence_length": 1048576})
    assert findings(plan=long, select=("TS-MEM-020",)) == {("TS-MEM-020", "memory.activation_policy")}
    timed = lora(16, "query", "value", **plan, performance={"kind": "predicted", "step_seconds": 1})
    assert verdict("TS-PAR-035", plan=timed) is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("stated", "wrong"), [(44_564_480, False), (44.6e6, False), (65.5e6, True), (None, False), (4.4e6, True)]
)
def test_stated_count(findings, stated, wrong) -> None:
    plan = lora(16, "query-key-value", "output", num_parameters_trained=stated)
    found = findings(plan=plan, select=("TS-MEM-027",))
    assert found == ({("TS-MEM-027", "num_parameters_trained")} if wrong else set())


@pytest.mark.parametrize(
    ("targets", "position"),
    [
        (("query", "value"), None),
        (("gate-up", "down"), None),
        (("query", "query"), 1),
        (("query", "query-key-value"), 1),
        (("expert-up",), 0),
    ],
)
def test_targets(findings, targets, position) -> None:
    found = findings(plan=lora(8, *targets), select=("TS-MEM-030",))
    assert found == (set() if position is None else {("TS-MEM-030", f"lora.targets.{position}")})


def test_trained_and_frozen(findings) -> None:
    select = ("TS-MEM-028", "TS-MEM-029")
    assert findings(plan={"num_parameters_trained": 7e9}, select=select) == set()
    assert findings(plan={"num_parameters_trained": 71e9}, select=select) == {("TS-MEM-028", "num_parameters_trained")}
    frozen = {"precision": {"frozen_parameters": "nf4"}}
    assert findings(plan=frozen, select=select) == {("TS-MEM-029", "precision.frozen_parameters")}
    assert findings(plan={**frozen, "num_parameters_trained": 7e9}, select=select) == set()
    assert findings(plan={**frozen, **lora(8, "query")}, select=select) == set()


def test_adapters_without_their_count_are_said(verdict) -> None:
    assert verdict("TS-MEM-027", plan=lora(16, "query-key-value", "output")) is Verdict.NOT_RUN
