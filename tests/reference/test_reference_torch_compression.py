"""Compression in PyTorch: nothing is lost but put off, replicas agree, and checkpoints carry what is left to send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch_compression_tasks as compression_tasks
import torch_tasks as tasks
from torch_crew import crew

METHODS: dict[str, dict[str, Any]] = {
    "fp16": {"method": "fp16"},
    "bf16": {"method": "bf16"},
    "power-sgd": {"method": "power-sgd", "rank": 2},
    "top-k": {"method": "top-k", "density": 0.05},
}
FP32 = {"compute": "fp32", "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}


def compressed(method: str, **fields: Any) -> dict[str, Any]:
    """Parts of a plan that compresses, in several buckets."""
    compression = {**METHODS[method], "error_feedback": True, **fields}
    return {"communication": {"bucket_bytes": 10_000.0, "compression": compression}, "precision": FP32}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_what_was_applied_and_what_is_left(method: str) -> None:
    answers = crew().run(compression_tasks.conservation, 3, tasks.Setup(compressed(method)), 60)
    for error, left, sent in answers:
        assert error <= 1e-5
        assert left > 1e-6, "nothing was left: the compressor sent everything"
        assert sent == answers[0][2], "ranks applied different sums"


@pytest.mark.parametrize("method", METHODS)
def test_resume_is_bitwise_with_what_is_left_to_send(method: str, tmp_path: Path) -> None:
    for losses, ends, _ in crew().run(tasks.resumed, 2, tasks.Setup(compressed(method)), tmp_path, 3, 3):
        assert losses[0] == losses[1]
        assert ends[0] == ends[1]


@pytest.mark.parametrize("method", ["top-k", "power-sgd"])
def test_without_feedback_something_is_lost(method: str) -> None:
    for error, left, _ in crew().run(
        compression_tasks.conservation, 2, tasks.Setup(compressed(method, error_feedback=False)), 20
    ):
        assert error > 0.1
        assert left == 0


def test_a_discarded_step_leaves_residuals_as_they_were() -> None:
    for before, after in crew().run(compression_tasks.residual_around_discard, 2, tasks.Setup(compressed("top-k"))):
        assert before == after != 0


def test_the_first_steps_are_dense() -> None:
    dense = crew().run(tasks.steps_of, 2, tasks.Setup({"precision": FP32}), 3)[0]
    late = crew().run(tasks.steps_of, 2, tasks.Setup(compressed("top-k", start_step=3)), 3)[0]
    assert late[0][:2] == pytest.approx(dense[0][:2], rel=1e-6)
    assert late[1][2] != pytest.approx(dense[1][2], rel=1e-3)


@pytest.mark.parametrize(("policy", "kept"), [("redistribute", 1.0), ("reset", 0.0)])
def test_other_numbers_of_ranks_take_residuals_as_the_plan_says(policy: str, kept: float, tmp_path: Path) -> None:
    setup = tasks.Setup(compressed("top-k", residual_on_resize=policy))
    crew().run(tasks.saved, 3, setup, tmp_path, 3)
    sums = {
        num_ranks: crew().run(compression_tasks.residual_sum, num_ranks, setup, tmp_path)[0] for num_ranks in (2, 3)
    }
    assert sums[3] > 0
    assert sums[2] == pytest.approx(kept * sums[3], rel=1e-5)


def test_other_numbers_of_ranks_are_refused_where_the_plan_says_so(tmp_path: Path) -> None:
    setup = tasks.Setup(compressed("top-k", residual_on_resize="refuse"))
    crew().run(tasks.saved, 3, setup, tmp_path, 2)
    assert "refuses 2 data ranks" in crew().run(tasks.refusal, 2, setup, tmp_path)[0]


@pytest.mark.parametrize("method", ["top-k", "power-sgd"])
def test_after_a_loss_each_rank_has_what_it_has_not_sent(method: str) -> None:
    answers = crew().run(compression_tasks.after_a_loss, 3, tasks.Setup(compressed(method)))
    assert [kept for kept, *_ in answers] == [True, True, True]
    assert [left > 0 for _, _, left, *_ in answers] == [True, True, False]
    assert answers[1][1] > 0, "the rank that was behind did not go on to what the others had applied"
    assert len({digest for *_, digest, _ in answers}) == 1
    assert answers[0][4] == answers[1][4], "ranks go on from different factors"


def test_what_was_left_goes_along_where_nothing_is_compressed_any_more(tmp_path: Path) -> None:
    setup = tasks.Setup(compressed("top-k"))
    crew().run(tasks.saved, 3, setup, tmp_path, 3)
    unsent, error, left = crew().run(compression_tasks.alone_after_three, 1, setup, tmp_path)[0]
    assert unsent > 0
    assert error <= 1e-6 * unsent
    assert left == 0
