"""Rollouts of reinforcement learning, and the checkpoint that a job starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
# Prompts, responses of each, prompts of a mini-batch, in launch scripts of volcengine/verl@b178a3cd.
SCRIPTS = [
    (1024, 5, 256),
    (512, 16, 32),  # examples/gmpo_trainer/test_dapo_7b_math.sh
    (512, 12, 32),  # verl/experimental/one_step_off_policy/shell/dapo_7b_math_fsdp2_4_12.sh
    (4096, 1, 512),
    (1152, 5, 192),
    (32, 8, 32),
]


def rollout(prompts: int = 512, responses: int = 16, **keys: Any) -> dict[str, Any]:
    return {"rollout": {"num_prompts": prompts, "num_responses_per_prompt": responses, **keys}}


@pytest.mark.parametrize(("prompts", "responses", "mini_batch"), SCRIPTS)
def test_published_sizes(findings: Findings, prompts: int, responses: int, mini_batch: int) -> None:
    plan = rollout(prompts, responses, num_updates=prompts // mini_batch)
    plan["batch"] = {"global_sequences": mini_batch * responses}
    assert findings(plan=plan, select=("TS-BAT-046",)) == set()
    plan["rollout"]["num_updates"] += 1
    assert findings(plan=plan, select=("TS-BAT-046",)) == {("TS-BAT-046", "rollout.num_updates")}


@pytest.mark.parametrize(
    ("keys", "bad"),
    [
        ({"num_updates": 16}, False),
        ({"num_updates": 16, "num_passes": 2}, True),
        ({"num_updates": 32, "num_passes": 2}, False),
        ({"num_updates": 512}, True),  # optimizer steps counted for each prompt
    ],
)
def test_passes(findings: Findings, keys: dict[str, Any], bad: bool) -> None:
    found = findings(plan=rollout(**keys), select=("TS-BAT-046",))
    assert found == ({("TS-BAT-046", "rollout.num_updates")} if bad else set())


@pytest.mark.parametrize(("staleness", "bad"), [(14, True), (15, False), (31, False), (None, False)])
def test_staleness(findings: Findings, staleness: int | None, bad: bool) -> None:
    found = findings(plan=rollout(num_updates=16, max_staleness_steps=staleness), select=("TS-BAT-047",))
    assert found == ({("TS-BAT-047", "rollout.max_staleness_steps")} if bad else set())


@pytest.mark.parametrize(("staleness", "bad"), [(None, True), (0, False), (1, False)])
def test_generation_next_to_training_states_staleness(findings: Findings, staleness: int | None, bad: bool) -> None:
    plan = rollout(num_accelerators=16, max_staleness_steps=staleness)
    found = findings(plan=plan, select=("TS-BAT-048",))
    assert found == ({("TS-BAT-048", "rollout.num_accelerators")} if bad else set())


GENERATORS = {
    "name": "generation",
    "num_nodes": 4,
    "num_accelerators_per_node": 8,
    "accelerator": {"model": "nvidia-l40s"},
}


@pytest.mark.parametrize(
    ("keys", "bad"),
    [
        ({"num_accelerators": 32, "node_group": "generation"}, False),
        ({"num_accelerators": 33, "node_group": "generation"}, True),
        ({"num_accelerators": 1, "node_group": "compute"}, True),  # training takes all of them
        ({"num_accelerators": 1}, True),
    ],
)
def test_room_for_generation(findings: Findings, keys: dict[str, Any], bad: bool) -> None:
    cluster = {"num_nodes": 20, "num_accelerators": 160, "node_groups": [GENERATORS]}
    found = findings(cluster=cluster, plan={"node_group": "compute", **rollout(**keys)}, select=("TS-BAT-049",))
    assert found == ({("TS-BAT-049", "rollout.num_accelerators")} if bad else set())


@pytest.mark.parametrize("requirement", ["TS-BAT-046", "TS-BAT-047", "TS-BAT-048", "TS-BAT-049", "TS-BAT-050"])
def test_jobs_that_generate_nothing(verdict: Verdicts, requirement: str) -> None:
    assert verdict(requirement) is Verdict.NOT_APPLICABLE


def test_generation_in_turn_needs_no_room(verdict: Verdicts) -> None:
    for requirement in ("TS-BAT-048", "TS-BAT-049"):
        assert verdict(requirement, plan=rollout()) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("keys", "bad"),
    [({}, True), ({"save_id": "run-7-step-1000"}, False), ({"digest": "sha256:" + "0" * 64}, False)],
)
def test_initial_checkpoint(findings: Findings, keys: dict[str, str], bad: bool) -> None:
    plan = {"initial_checkpoint": {"reference": "meta-llama/Llama-3.1-70B", **keys}}
    found = findings(plan=plan, select=("TS-BAT-050",))
    assert found == ({("TS-BAT-050", "initial_checkpoint.reference")} if bad else set())


@pytest.mark.parametrize(("num_accelerators", "bad"), [(64, False), (65, True)])
def test_training_that_overflows_its_other_groups_takes_room_from_generation(
    findings: Findings, num_accelerators: int, bad: bool
) -> None:
    """Of 128 ranks, 64 have a place on 32 accelerators of two ranks each and 64 on as many of one: 64 are left."""
    double = {
        **GENERATORS,
        "name": "double",
        "num_nodes": 4,
        "accelerator": {"model": "own", "num_ranks_per_accelerator": 2},
    }
    cluster = {"num_nodes": 20, "num_accelerators": 160, "node_groups": [double]}
    plan = {**rollout(num_accelerators=num_accelerators)}
    found = findings(cluster=cluster, plan=plan, select=("TS-BAT-049",))
    assert bool(found) is bad
