"""Expert ranks of the PyTorch backend: they divide the experts, and train and resume as one rank does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torch_tasks as tasks
from torch_crew import crew
from trainspec_reference.torch.models.transformer import Experts
from trainspec_reference.torch.parts import Part

EXACT = 1e-12
SHAPE = replace(tasks.SHAPE, ffn_hidden_size=32, num_experts=4, num_active_experts=2)
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "data": (2, {"data": 2}),
    "parameters": (2, {"data": 2, "sharding": "parameters"}),
    "expert": (2, {"data": 2, "expert": 2}),
    "expert-data": (4, {"data": 4, "expert": 2}),
    "expert-all": (4, {"data": 4, "expert": 4}),
    "expert-optimizer": (4, {"data": 4, "expert": 2, "sharding": "optimizer"}),
    "expert-pipeline": (4, {"data": 2, "expert": 2, "pipeline": 2, "schedule": "1f1b"}),
    "expert-context": (4, {"data": 2, "expert": 2, "context": 2}),
}


def setup_of(layout: str, **changes: Any) -> tuple[int, tasks.Setup]:
    """Ranks and setup of a layout."""
    num_ranks, fields = LAYOUTS[layout]
    parts = {"parallelism": {"num_accelerators": num_ranks, **fields}}
    return num_ranks, replace(tasks.Setup(parts, SHAPE, variable_length=True), **changes)


def whole(**changes: Any) -> tasks.Setup:
    """The same on one rank."""
    return replace(setup_of("data", **changes)[1], parts={})


@pytest.fixture(scope="module")
def alone() -> Any:
    losses, norms, _ = crew().run(tasks.steps_of, 1, whole(), 3, 0.5)[0]
    return losses, norms, crew().run(tasks.evaluated, 1, whole(), 1)[0]


def test_a_token_gets_the_weighted_answers_of_its_most_probable_experts() -> None:
    generator = torch.Generator().manual_seed(3)
    experts = Experts(SHAPE, Part()).double()
    for parameter in experts.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    hidden = torch.randn(2, 5, SHAPE.hidden_size, generator=generator, dtype=torch.float64)
    found = experts(hidden)
    for token, answer in zip(hidden.flatten(0, 1), found.flatten(0, 1), strict=True):
        probabilities = torch.softmax(token @ experts.router, 0)
        expected = torch.zeros_like(token)
        for number in probabilities.argsort(descending=True)[: SHAPE.num_active_experts]:
            inner = F.gelu(token @ experts.expert_up[number], approximate="tanh")
            expected += probabilities[number] * (inner @ experts.expert_down[number])
        torch.testing.assert_close(answer, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_divided_experts_follow_whole_ones(alone: Any, layout: str) -> None:
    num_ranks, setup = setup_of(layout)
    for losses, norms, _ in crew().run(tasks.steps_of, num_ranks, setup, 3, 0.5):
        assert losses == pytest.approx(alone[0], rel=EXACT)
        assert norms == pytest.approx(alone[1], rel=EXACT)
    for loss in crew().run(tasks.evaluated, num_ranks, setup, 1):
        assert loss == pytest.approx(alone[2], rel=EXACT)


def test_ranks_with_fewer_micro_batches_lend_their_experts() -> None:
    shape = replace(SHAPE, num_experts=6)
    one = whole(shape=shape, micro_samples=1)
    losses, norms, _ = crew().run(tasks.steps_of, 1, one, 2)[0]
    parts = {"parallelism": {"num_accelerators": 3, "data": 3, "expert": 3}}
    for found in crew().run(tasks.steps_of, 3, replace(one, parts=parts), 2):
        assert found[0] == pytest.approx(losses, rel=EXACT)
        assert found[1] == pytest.approx(norms, rel=EXACT)


def test_experts_that_no_token_visits_learn_nothing() -> None:
    shape = replace(SHAPE, num_experts=8, num_active_experts=1, sequence_length=1)
    losses, norms, _ = crew().run(tasks.steps_of, 1, whole(shape=shape, micro_samples=1), 2)[0]
    _, setup = setup_of("expert-all", shape=shape, micro_samples=1)
    for found in crew().run(tasks.steps_of, 4, setup, 2):
        assert found[0] == pytest.approx(losses, rel=EXACT)
        assert found[1] == pytest.approx(norms, rel=EXACT)


def test_expert_ranks_have_no_gradient_of_their_own_to_measure_noise_by() -> None:
    num_ranks, setup = setup_of("expert")
    for reason in crew().run(tasks.refused_noise, num_ranks, setup):
        assert "tokens of several data ranks" in reason


@pytest.mark.parametrize("layout", ["parameters", "expert", "expert-optimizer", "expert-pipeline"])
def test_divided_weights_are_put_together_again(layout: str) -> None:
    num_ranks, setup = setup_of(layout)
    expected = setup.weights()
    for found in crew().run(tasks.weights_of, num_ranks, setup):
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["expert", "expert-optimizer", "expert-pipeline"])
def test_resume_is_bitwise_and_others_read_the_save(layout: str, tmp_path: Path) -> None:
    num_ranks, setup = setup_of(layout, shape=replace(SHAPE, dropout=0.1))
    digests = set()
    for losses, ends, saved in crew().run(tasks.resumed, num_ranks, setup, tmp_path, 2, 2):
        assert (losses[0], ends[0], saved[0]) == (losses[1], ends[1], saved[1])
        digests.add(saved[0])
    (digest,) = digests
    others = [(1, replace(setup, parts={})), setup_of("expert-all"), setup_of("parameters")]
    for num_others, other in others:
        assert {answer[1] for answer in crew().run(tasks.restored, num_others, other, tmp_path, [])} == {digest}


@pytest.mark.parametrize("policy", ["selective", "full", "offload"])
def test_activation_policies_change_no_number(policy: str) -> None:
    num_ranks, setup = setup_of("expert", shape=replace(SHAPE, dropout=0.1))
    kept = crew().run(tasks.steps_of, num_ranks, setup, 2)
    recomputed = replace(setup, parts={**setup.parts, "memory": {"activation_policy": policy}})
    assert crew().run(tasks.steps_of, num_ranks, recomputed, 2) == kept


@pytest.mark.parametrize(("compute", "tolerance"), [("fp32", 5e-5), ("bf16", 2e-2), ("fp16", 5e-3)])
def test_lower_formats_stay_near(alone: Any, compute: str, tolerance: float) -> None:
    precision = {"compute": compute, "parameters": "fp32", "gradients": "fp32", "reduction": "fp32"}
    num_ranks, setup = setup_of("expert")
    narrow = replace(setup, parts={**setup.parts, "precision": precision})
    losses, norms, _ = crew().run(tasks.steps_of, num_ranks, narrow, 3, 0.5)[0]
    assert losses == pytest.approx(alone[0], rel=tolerance)
    assert norms == pytest.approx(alone[1], rel=4 * tolerance)
    assert losses != alone[0]


@pytest.mark.parametrize("algorithm", ["automatic", "hierarchical"])
def test_the_plan_chooses_how_other_gradients_are_summed(alone: Any, algorithm: str) -> None:
    collectives = [{"operation": "all-reduce", "axis": "data", "algorithm": algorithm}]
    communication = {"collectives": collectives, "bucket_bytes": 10_000.0}
    _, setup = setup_of("expert-data")
    chosen = replace(setup, parts={**setup.parts, "communication": communication})
    for losses, norms, _ in crew().run(tasks.steps_of, ["a", "a", "b", "b"], chosen, 3, 0.5):
        assert losses == pytest.approx(alone[0], rel=EXACT)
        assert norms == pytest.approx(alone[1], rel=EXACT)
