"""Plans that leave model state on the host: only where nothing fits without, and without a predicted step."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from tests.planner_makers import CLUSTERS, model, profile
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, read
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.performance.forecast.predict import UNKNOWN_HOST_WORK, predict
from trainspec_validate.pipeline.inputs import NamedText
from trainspec_validate.pipeline.planning import plan as plan_for_program
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.planner.constraints import Constraints
from trainspec_validate.planner.explain import nothing_fits, reasons
from trainspec_validate.planner.frameworks import ABILITIES
from trainspec_validate.planner.groups import Planned, planned
from trainspec_validate.planner.plan_text import PLAN_FILE, documents, too_long
from trainspec_validate.planner.request import Wishes
from trainspec_validate.planner.search import search, search_offloaded
from trainspec_validate.planner.space import OFFLOADED

put = msgspec.structs.replace
H200 = profile("gcp-a3-ultra-h200")
JOB = {"num_ranks": 8, "global_sequences": 8, "num_tokens": 1e9, "constraints": Constraints(context=1, max_pipeline=2)}


def with_host(memory_bytes: float | None, cluster: ClusterProfile = H200) -> ClusterProfile:
    """The cluster whose hosts have this much memory."""
    group = cluster.node_groups[0]
    assert group.host is not None
    return put(cluster, node_groups=(put(group, host=put(group.host, memory_bytes=memory_bytes)),))


def found(cluster: ClusterProfile, name: str = "llama3-70b", **wishes: object) -> Planned:
    return planned(cluster, model(name), Wishes(**{**JOB, **wishes}), None, 3)  # type: ignore[arg-type]


@cache
def large() -> Planned:
    """Llama 3 70B on eight H200: 18 bytes of state for 8.8e9 parameters of each are more than a rank has."""
    return found(H200)


def test_what_fits_without_is_never_planned_with_offload() -> None:
    fits = found(H200, "llama3-8b")
    assert fits.ranking == search(fits.request.goal, 3)
    assert all(scored.choice.offload == "none" and scored.untimed is None for scored in fits.ranking.plans)


def test_the_optimizer_leaves_where_that_is_enough() -> None:
    plans = large().ranking.plans
    assert search(large().request.goal, 3).plans == ()
    assert {scored.choice.offload for scored in plans} == {"optimizer"}
    for scored in plans:
        assert scored.untimed == UNKNOWN_HOST_WORK
        assert large().request.goal.holds(scored.memory)
        assert scored.memory.optimizer == 0
        # Twelve bytes of fp32 weight and moments for each of 70.55e9 parameters over eight ranks.
        assert scored.host_bytes == pytest.approx(12 * 70.55e9 / 8, rel=0.02)


def test_all_state_leaves_where_the_optimizer_is_not_enough() -> None:
    # On four ranks the six bytes of a weight and its gradient are 106 GB of a rank that has 80.
    scored = found(profile("nvidia-eos"), num_ranks=4).ranking.plans[0]
    assert scored.choice.offload == "state"
    assert scored.choice.layout.sharding_stage == 3
    assert scored.host_bytes == pytest.approx(18 * 70.55e9 / 4, rel=0.02)


def test_more_memory_of_the_host_never_takes_a_plan_away() -> None:
    needed = [None, 0.5e12, 0.8e12, 1e12, 2e12, 4e12]
    counts = []
    for memory_bytes in needed:
        each = found(with_host(memory_bytes))
        counts.append(each.ranking.num_compared if each.ranking.plans else 0)
    assert counts == sorted(counts)
    assert counts[:3] == [0, 0, 0]
    assert counts[-1] > 0


def test_the_host_that_is_too_small_or_unknown_is_named() -> None:
    small = found(with_host(0.5e12))
    words = nothing_fits(small.request, small.ranking)
    assert "fits into 146.8 GB of a rank, nor with offload to 56.25 GB of its host; leave out" in words
    unknown = found(with_host(None))
    assert search_offloaded(unknown.request.goal) is None
    assert "the profile states no host.memory_bytes to offload to" in nothing_fits(unknown.request, unknown.ranking)


@pytest.mark.parametrize("name", sorted(ABILITIES))
def test_a_framework_moves_what_it_can(name: str) -> None:
    able = ABILITIES[name]
    ranking = found(H200, framework=name).ranking
    assert bool(ranking.plans) == bool(able.optimizer_on_host or able.state_on_host)
    for scored in ranking.best:
        stages = {"optimizer": able.optimizer_on_host, "state": able.state_on_host}[scored.choice.offload]
        assert scored.choice.layout.sharding_stage in stages


@pytest.mark.parametrize("framework", [None, "pytorch", "megatron-core"])
def test_a_written_plan_says_what_leaves_and_predicts_the_same_memory(framework: str | None) -> None:
    given = found(H200, framework=framework)
    scored = given.ranking.plans[0]
    texts = documents(given.request, given.ranking, scored, f"{{name: {H200.metadata.name}}}")
    assert list(texts) == [PLAN_FILE]
    assert "nothing fits without" in texts[PLAN_FILE]
    plan = read("TrainingPlan", load_text(texts[PLAN_FILE].encode(), PLAN_FILE).data)
    assert isinstance(plan, TrainingPlan)
    assert plan.performance is None
    assert plan.job is not None
    assert plan.job.planned_seconds is None
    assert plan.memory is not None
    assert tuple(entry.what for entry in plan.memory.offload) == OFFLOADED[scored.choice.offload]
    predicted = predict(plan, H200)
    assert predicted.untimed == UNKNOWN_HOST_WORK
    assert predicted.memory is not None
    assert predicted.memory[1].allocator == pytest.approx(scored.memory.allocator)
    report = validate([CLUSTERS / "gcp-a3-ultra-h200.yaml", NamedText(PLAN_FILE, texts[PLAN_FILE])])
    assert [str(one) for one in report.findings if one.path == PLAN_FILE] == []


def test_no_reason_has_a_time() -> None:
    for words in reasons(large().ranking).values():
        assert "takes" not in words
        assert "%" not in words
    assert too_long(large().request, large().ranking.plans[0]) is None


def groups(*parts: NodeGroup) -> ClusterProfile:
    return put(H200, node_groups=parts)


def test_a_group_that_holds_the_job_comes_before_one_that_needs_its_hosts() -> None:
    group = H200.node_groups[0]
    few, many = put(group, name="few", num_nodes=1), put(group, name="many", num_nodes=4)
    wishes: dict[str, Any] = {"num_ranks": None, "global_sequences": 32}
    both = found(groups(few, many), **wishes)
    assert both.request.nodes.group.name == "many"
    assert both.ranking.plans[0].untimed is None
    alone = found(groups(few, put(few, name="other", num_nodes=1)), **wishes)
    assert alone.ranking.plans[0].untimed
    assert alone.request.nodes.group.name == "few"
    assert "fits with offload to its hosts alone, and its step is not predicted" in alone.request.assumptions[0]


def test_a_program_gets_no_time_and_no_policy() -> None:
    (job,) = plan_for_program(
        CLUSTERS / "gcp-a3-ultra-h200.yaml", "llama3-70b", num_ranks=8, global_sequences=8, num_tokens=1e9
    ).jobs
    assert job.not_predicted == UNKNOWN_HOST_WORK
    assert (job.step_seconds, job.low_step_seconds, job.high_step_seconds) == (None, None, None)
    assert (job.policy, job.policy_text, job.model_flops_utilization) == (None, None, None)
    assert job.plan.memory is not None
    assert job.plan.memory.offload
