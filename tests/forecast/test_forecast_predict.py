"""What a plan says beyond its layout reaches its prediction."""

from __future__ import annotations

from typing import Any

import pytest

from tests.planner_makers import CLUSTERS, profile
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import TrainingPlan, changed, read
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.predict import predict, settings_of

LLAMA = CLUSTERS.parent / "plans" / "llama3-405b-16384.yaml"


def plan(**parts: dict[str, Any]) -> TrainingPlan:
    """The plan of Llama 3 405B with other values of some keys of some parts."""
    data = load_file(LLAMA).data
    for name, keys in parts.items():
        data[name] = {**data.get(name, {}), **keys}
    document = read("TrainingPlan", data)
    assert isinstance(document, TrainingPlan)
    return document


def test_settings_are_those_of_the_plan() -> None:
    usual = settings_of(plan())
    assert (usual.overlap_gradients, usual.overlap_parameters) == (True, True)
    assert usual.order == plan().parallelism.order
    off = settings_of(plan(communication={"overlap_gradients": False, "overlap_parameters": False}))
    assert (off.overlap_gradients, off.overlap_parameters) == (False, False)
    assert settings_of(plan(parallelism={"rank_order": "scheduler"})).rank_order == "scheduler"
    assert settings_of(plan(memory={"activation_policy": "full"})).recompute == "full"
    assert settings_of(plan(parallelism={"rank_order": "topology"})).rank_order == "topology"
    given = plan()
    silent = changed(given, parallelism=changed(given.parallelism, rank_order=None))
    assert settings_of(silent).rank_order == "topology"
    bare = changed(plan(), communication=None, memory=None)
    assert settings_of(bare).overlap_gradients
    assert settings_of(bare).recompute == "selective"


@pytest.mark.parametrize("stated", [{}, {"overlap_expert": False}, {"overlap_expert": True}])
def test_the_stated_overlap_of_experts_comes_first(stated: dict[str, bool]) -> None:
    software = settings_of(plan(communication=stated)).software
    assert software.overlap_expert is stated.get("overlap_expert", False)


def test_what_is_offloaded_is_added_up_to_the_whole() -> None:
    entries = [
        {"what": "optimizer", "target": "host", "fraction": 0.75},
        {"what": "optimizer", "target": "local-disk", "fraction": 0.5},
        {"what": "activations", "target": "host", "fraction": 0.25},
    ]
    twice = [{"what": "activations", "target": target, "fraction": 0.75} for target in ("host", "local-disk")]
    assert settings_of(plan(memory={"activation_policy": "offload", "offload": twice})).offloaded_activations == 1.0
    found = settings_of(plan(memory={"activation_policy": "offload", "offload": entries}))
    assert (found.offloaded_optimizer, found.offloaded_activations, found.recompute) == (1.0, 0.25, "none")
    assert settings_of(plan()).offloaded_optimizer == 0


@pytest.mark.parametrize("what", ["optimizer", "parameters", "gradients", "activations"])
def test_the_time_of_a_job_that_offloads_is_not_predicted_where_no_run_was_measured(what: str) -> None:
    cluster, schedule = profile("meta-llama3-24k"), {"schedule": "1f1b", "num_virtual_stages": 1}
    entry = {"what": what, "target": "host", "fraction": 0.5}
    found, usual = (
        predict(plan(memory={"activation_policy": "none", "offload": away}, parallelism=schedule), cluster)
        for away in ([entry], [])
    )
    assert (found.untimed or "").startswith("no measured run ")
    assert usual.untimed is None
    assert found.memory is not None
    assert usual.memory is not None
    assert found.memory[1].total < usual.memory[1].total or what == "gradients"  # sharded, of less than a layer


def test_hiding_less_takes_longer() -> None:
    cluster = profile("meta-llama3-24k")
    usual = predict(plan(), cluster)
    shown = predict(plan(communication={"overlap_gradients": False}), cluster)
    assert shown.outlook.step.seconds > usual.outlook.step.seconds
    assert shown.memory == usual.memory
    assert {item.transfer.axis for item in usual.collectives} == {"tensor", "pipeline", "data"}


def test_ranks_that_do_not_multiply_are_not_predicted() -> None:
    with pytest.raises(Unpredictable, match="do not multiply to the ranks"):
        predict(plan(parallelism={"num_accelerators": 16383}), profile("meta-llama3-24k"))
    with pytest.raises(Unpredictable, match="leaves out pipeline"):
        predict(plan(parallelism={"order": ["tensor", "context", "data"]}), profile("meta-llama3-24k"))


def test_a_schedule_without_a_formula_has_a_time_but_no_memory() -> None:
    predicted = predict(plan(parallelism={"schedule": "other"}), profile("meta-llama3-24k"))
    assert predicted.memory is None
    # As long as 1F1B: 15 of 16 micro-batches of the ranks that the slowest one waits for, and their messages.
    like = predict(plan(parallelism={"schedule": "1f1b", "num_virtual_stages": 1}), profile("meta-llama3-24k"))
    step = predicted.outlook.step
    busy = step.compute_seconds + sum(step.exposed_seconds.get(axis, 0) for axis in ("tensor", "context", "expert"))
    assert 0.95 < step.bubble_seconds / (busy * 15 / plan().batch.accumulation_steps) < 1
    assert step.bubble_seconds == pytest.approx(like.outlook.step.bubble_seconds, rel=0.01)
