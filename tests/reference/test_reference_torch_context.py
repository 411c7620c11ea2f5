"""Context ranks of the PyTorch backend: they share each sequence, and train and resume as one rank does."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch_tasks as tasks
from torch_crew import crew, free_port

EXACT = 1e-12
LONG = pytest.mark.long
FP32 = {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}


def setup_of(num_ranks: int = 2, shape: Any = tasks.SHAPE, **parts: Any) -> tasks.Setup:
    """Two context ranks to each data rank."""
    return tasks.Setup({"parallelism": {"num_accelerators": num_ranks, "context": 2}, **parts}, shape)


@pytest.mark.parametrize("length", [13, 15, 2])
def test_a_sequence_that_does_not_divide_is_filled_up(length: int) -> None:
    setup = setup_of(shape=replace(tasks.SHAPE, sequence_length=length))
    losses, norms, _ = crew().run(tasks.steps_of, 1, replace(setup, parts={}), 2)[0]
    for found in crew().run(tasks.steps_of, 2, setup, 2):
        assert found[0] == pytest.approx(losses, rel=EXACT)
        assert found[1] == pytest.approx(norms, rel=EXACT)


@pytest.mark.slow
def test_resume_is_bitwise_and_goes_on_with_any_degree(tmp_path: Path) -> None:
    setup = setup_of(shape=replace(tasks.SHAPE, dropout=0.1))
    for losses, ends, saved in crew().run(tasks.resumed, 2, setup, tmp_path / "two", 2, 2):
        assert (losses[0], ends[0], saved[0]) == (losses[1], ends[1], saved[1])
    exact = replace(setup, shape=tasks.SHAPE)
    whole = replace(exact, parts={})
    crew().run(tasks.saved, 2, exact, tmp_path / "context", 2)
    crew().run(tasks.saved, 1, whole, tmp_path / "one", 2)
    alone, _, _ = crew().run(tasks.steps_of, 1, whole, 4)[0]
    changes = [(1, whole, "context"), (2, exact, "one"), (4, setup_of(4), "one"), (2, exact, "context")]
    for num_ranks, then, name in changes:
        for found, _ in crew().run(tasks.restored, num_ranks, then, tmp_path / name, [2, 3]):
            assert found == pytest.approx(alone[2:], rel=EXACT), (num_ranks, name)


def test_dropout_differs_between_positions_of_ranks() -> None:
    losses, _, digest = crew().run(tasks.steps_of, 2, setup_of(shape=replace(tasks.SHAPE, dropout=0.5)), 2)[0]
    other = crew().run(tasks.steps_of, 2, setup_of(), 2)[0]
    assert losses != other[0]
    assert digest != other[2]


@pytest.mark.parametrize("policy", ["selective", *(pytest.param(name, marks=LONG) for name in ("full", "offload"))])
def test_activation_policies_change_no_number(policy: str) -> None:
    kept = crew().run(tasks.steps_of, 2, setup_of(shape=replace(tasks.SHAPE, dropout=0.1)), 2)
    setup = setup_of(shape=replace(tasks.SHAPE, dropout=0.1), memory={"activation_policy": policy})
    assert crew().run(tasks.steps_of, 2, setup, 2) == kept


@pytest.mark.parametrize(
    ("compute", "tolerance"),
    [pytest.param("fp32", 5e-5, marks=LONG), ("bf16", 2e-2), pytest.param("fp16", 5e-3, marks=LONG)],
)
def test_lower_formats_stay_near(compute: str, tolerance: float) -> None:
    alone, _, _ = crew().run(tasks.steps_of, 1, tasks.Setup(), 3)[0]
    losses, _, _ = crew().run(tasks.steps_of, 2, setup_of(precision={**FP32, "compute": compute}), 3)[0]
    assert losses == pytest.approx(alone, rel=tolerance)
    assert losses != alone


@LONG
@pytest.mark.parametrize("algorithm", ["automatic", "hierarchical"])
def test_gradients_are_summed_over_data_and_context_ranks_by_any_algorithm(algorithm: str) -> None:
    alone = crew().run(tasks.steps_of, 1, tasks.Setup(), 2)[0]
    collectives = [{"operation": "all-reduce", "axis": "data", "algorithm": algorithm}]
    setup = setup_of(4, communication={"collectives": collectives, "bucket_bytes": 10_000.0})
    for losses, norms, _ in crew().run(tasks.steps_of, ["a", "a", "b", "b"], setup, 2):
        assert losses == pytest.approx(alone[0], rel=EXACT)
        assert norms == pytest.approx(alone[1], rel=EXACT)


def test_compression_counts_context_ranks_among_those_that_send(tmp_path: Path) -> None:
    compression = {"method": "top-k", "density": 0.05, "error_feedback": True}
    setup = setup_of(precision=FP32, communication={"compression": compression})
    for losses, ends, _ in crew().run(tasks.resumed, 2, setup, tmp_path, 2, 2):
        assert losses[0] == losses[1]
        assert ends[0] == ends[1]


@LONG
def test_survivors_of_a_lost_context_rank_train_on_with_what_they_hold() -> None:
    setup = setup_of(4)
    losses, _, _ = crew().run(tasks.steps_of, 2, setup, 5)[0]
    processes = crew()
    processes.send(tasks.lose_last, ["host"] * 4, setup, signal.SIGKILL, (free_port(), free_port()), 2)
    answers = [processes.answer(rank) for rank in range(2)]
    processes.lose(2)
    assert answers[0] == answers[1]
    assert answers[0][0] == pytest.approx(losses[2:], rel=EXACT)
