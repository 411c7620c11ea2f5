"""Layouts of the PyTorch backend: sharded, split and staged models train and resume as whole ones do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_tasks as tasks
from torch_crew import crew

EXACT = 1e-12
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "optimizer": (2, {"sharding": "optimizer"}),
    "gradients": (2, {"sharding": "gradients"}),
    "parameters": (2, {"sharding": "parameters"}),
    "tensor": (2, {"tensor": 2}),
    "sequence": (2, {"tensor": 2, "sequence": True}),
    "tensor-data": (4, {"tensor": 2, "data": 2, "sharding": "optimizer"}),
    "pipeline": (2, {"pipeline": 2, "schedule": "1f1b"}),
    "pipeline-data": (4, {"pipeline": 2, "data": 2, "schedule": "gpipe"}),
    "tensor-pipeline": (4, {"tensor": 2, "pipeline": 2, "schedule": "1f1b"}),
    "sequence-pipeline": (4, {"tensor": 2, "sequence": True, "pipeline": 2, "schedule": "1f1b"}),
    "context": (2, {"context": 2}),
    "context-data": (4, {"context": 2, "data": 2}),
    "data-context": (4, {"context": 2, "data": 2, "order": ["data", "context", "tensor", "pipeline"]}),
    "context-optimizer": (4, {"context": 2, "data": 2, "sharding": "optimizer"}),
    "context-parameters": (2, {"context": 2, "sharding": "parameters"}),
    "context-sequence": (4, {"context": 2, "tensor": 2, "sequence": True}),
    "context-pipeline": (4, {"context": 2, "pipeline": 2, "schedule": "1f1b"}),
}
LONG = {"data-context", "context-optimizer", "context-sequence", "context-pipeline"}
FAMILIES = {"transformer": tasks.SHAPE, "convolution": tasks.CONVOLUTION, "state-space": tasks.STATE_SPACE}


def setup_of(layout: str, **changes: Any) -> tuple[int, tasks.Setup]:
    """Ranks and setup of a layout."""
    num_ranks, fields = LAYOUTS[layout]
    setup = tasks.Setup({"parallelism": {"num_accelerators": num_ranks, **fields}}, variable_length=True)
    return num_ranks, replace(setup, **changes)


@pytest.fixture(scope="module")
def alone() -> Any:
    setup = tasks.Setup(variable_length=True)
    return crew().run(tasks.everything_of, 1, setup, 3)[0]


@pytest.mark.parametrize(
    "layout", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in LAYOUTS]
)
def test_a_divided_model_follows_a_whole_one(alone: Any, layout: str) -> None:
    num_ranks, setup = setup_of(layout)
    for losses, norms, evaluated, noise, _ in crew().run(tasks.everything_of, num_ranks, setup, 3):
        assert losses == pytest.approx(alone[0], rel=EXACT)
        assert norms == pytest.approx(alone[1], rel=EXACT)
        assert evaluated == pytest.approx(alone[2], rel=EXACT)
        assert sorted(noise[0]) == sorted(alone[3][0])
        assert sorted(noise[1]) == pytest.approx(sorted(alone[3][1]), rel=1e-9)


def test_a_sequence_that_tensor_ranks_do_not_divide_is_padded() -> None:
    setup = tasks.Setup(shape=replace(tasks.SHAPE, sequence_length=15))
    losses, norms, _ = crew().run(tasks.steps_of, 1, setup, 2)[0]
    parts = {"parallelism": {"num_accelerators": 2, "tensor": 2, "sequence": True}}
    for found in crew().run(tasks.steps_of, 2, replace(setup, parts=parts), 2):
        assert found[0] == pytest.approx(losses, rel=EXACT)
        assert found[1] == pytest.approx(norms, rel=EXACT)


@pytest.mark.slow
def test_ranks_with_fewer_micro_batches_wait_for_nobody(alone: Any) -> None:
    _, setup = setup_of("parameters")
    for losses, norms, evaluated, noise, _ in crew().run(tasks.everything_of, 3, setup, 3):
        assert losses == pytest.approx(alone[0], rel=EXACT)
        assert norms == pytest.approx(alone[1], rel=EXACT)
        assert evaluated == pytest.approx(alone[2], rel=EXACT)
        assert sum(noise[0]) == sum(alone[3][0])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["gradients", "parameters", "tensor-data", "tensor-pipeline", "sequence"])
def test_resume_is_bitwise_and_others_read_the_save(layout: str, tmp_path: Path) -> None:
    num_ranks, setup = setup_of(layout, shape=replace(tasks.SHAPE, dropout=0.1))
    (saved_digest,) = {check_resume(*answer) for answer in crew().run(tasks.resumed, num_ranks, setup, tmp_path, 2, 2)}
    whole = replace(setup, parts={})
    assert crew().run(tasks.restored, 1, whole, tmp_path, [])[0][1] == saved_digest
    assert {answer[1] for answer in crew().run(tasks.restored, 2, setup_of("parameters")[1], tmp_path, [])} == {
        saved_digest
    }


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["optimizer", "tensor", "sequence"])
def test_no_group_is_held_after_it_was_left(layout: str, tmp_path: Path) -> None:
    num_ranks, setup = setup_of(layout)
    assert crew().run(tasks.held_groups, num_ranks, setup, tmp_path) == [0] * num_ranks


def check_resume(losses: Any, ends: Any, saved: Any) -> str:
    """The digest at the save, of a resume that was bitwise."""
    assert losses[0] == losses[1]
    assert ends[0] == ends[1]
    assert saved[0] == saved[1]
    return str(saved[0])


@pytest.mark.parametrize("layout", ["optimizer", "parameters", "tensor-pipeline"])
def test_divided_weights_are_put_together_again(layout: str) -> None:
    num_ranks, setup = setup_of(layout)
    expected = setup.weights()
    for found in crew().run(tasks.weights_of, num_ranks, setup):
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_alike_on_any_number_of_ranks(family: str) -> None:
    setup = tasks.Setup(shape=FAMILIES[family])
    losses = crew().run(tasks.steps_of, 1, setup, 4)[0][0]
    assert losses[-1] < losses[0] * 1.1
    for sharding in ("none", "parameters"):
        parts = {"parallelism": {"num_accelerators": 2, "sharding": sharding}}
        for found, _, _ in crew().run(tasks.steps_of, 2, replace(setup, parts=parts), 4):
            assert found == pytest.approx(losses, rel=1e-11)


@pytest.mark.parametrize("policy", ["selective", "full", "offload"])
@pytest.mark.parametrize("family", FAMILIES)
def test_activation_policies_change_no_number(policy: str, family: str) -> None:
    shape = replace(FAMILIES[family], dropout=0.1)
    whole = crew().run(tasks.steps_of, 1, tasks.Setup(shape=shape), 2)[0]
    setup = tasks.Setup({"memory": {"activation_policy": policy}}, shape)
    assert crew().run(tasks.steps_of, 1, setup, 2)[0] == whole


@pytest.mark.parametrize(("compute", "tolerance"), [("fp32", 5e-5), ("bf16", 2e-2), ("fp16", 5e-3)])
def test_lower_formats_stay_near(alone: Any, compute: str, tolerance: float) -> None:
    precision = {"compute": compute, "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}
    setup = tasks.Setup({"precision": precision}, variable_length=True)
    losses, norms, _ = crew().run(tasks.steps_of, 2, setup, 3)[0]
    assert losses == pytest.approx(alone[0], rel=tolerance)
    assert norms == pytest.approx(alone[1], rel=4 * tolerance)
    assert losses != alone[0]
