"""The node group that a job is planned for: the fastest, with the rates of the others, or all of them together."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import msgspec
import pytest

from tests.planner_makers import model, profile
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, read
from trainspec_validate.documents.types.cluster import Reliability
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.model.catalog import accelerators
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.outlook import MIXED, most_tokens_per_second
from trainspec_validate.performance.forecast.predict import predict
from trainspec_validate.planner import groups
from trainspec_validate.planner.constraints import Constraints
from trainspec_validate.planner.groups import planned
from trainspec_validate.planner.job_cost import job_cost
from trainspec_validate.planner.plan_text import PLAN_FILE, documents
from trainspec_validate.planner.request import Impossible, Wishes
from trainspec_validate.planner.search import Ranking, search

put = msgspec.structs.replace
H200 = profile("gcp-a3-ultra-h200")
JOB: dict[str, Any] = {
    "global_sequences": 64,
    "num_tokens": 1e9,
    "sequence_length": 4096,
    "constraints": Constraints(context=1, pipeline=1, max_tensor=2),
}


def group(name: str, accelerator: str = "nvidia-h200-sxm-141gb", num_nodes: int = 2, **changes: object) -> NodeGroup:
    """A node group like that of the example, with another accelerator and number of nodes."""
    like = H200.node_groups[0]
    known = accelerators()[accelerator]
    device = put(like.accelerator, model=accelerator, memory_bytes=known.memory_bytes)
    return put(like, name=name, num_nodes=num_nodes, accelerator=device, **changes)


FAST, SLOW = group("fast"), group("slow", "nvidia-a100-sxm-80gb")
MANY = group("many", "nvidia-a100-sxm-80gb", 4)
ALONE = group("alone", num_nodes=4, nics=())
OLD = group("old", "nvidia-v100-sxm2-32gb")


def cluster(*parts: NodeGroup, **changes: object) -> ClusterProfile:
    num_nodes = sum(each.num_nodes for each in parts)
    counts = {"num_nodes": num_nodes, "num_accelerators": 8 * num_nodes}
    return put(H200, node_groups=parts, **counts, **changes)


def rate(*parts: NodeGroup) -> float:
    """Tokens per second of the plan that is recommended."""
    found = planned(cluster(*parts), model("llama3-8b"), Wishes(**JOB), None, 1)
    return found.ranking.plans[0].outlook.tokens_per_second


def test_the_fastest_group_is_taken_wherever_it_is_listed() -> None:
    for parts in permutations((SLOW, FAST, OLD)):
        found = planned(cluster(*parts), model("llama3-8b"), Wishes(**JOB), None, 1)
        assert found.request.nodes.group.name == "fast"
        note = found.request.assumptions[0]
        assert note.startswith("node group: fast, the fastest of 3 with ")
        assert "slow: " in note
        assert "old: nvidia-v100-sxm2-32gb has no peak rate for bf16" in note


def test_another_group_never_makes_the_recommended_plan_slower() -> None:
    every = (FAST, SLOW, MANY, ALONE, OLD)
    rates = {
        parts: rate(*parts)
        for count in range(1, len(every) + 1)
        for parts in combinations(every, count)
        if parts not in {(OLD,), (ALONE,), (ALONE, OLD)}
    }
    pairs = [(fewer, more) for fewer in rates for more in rates if set(fewer) < set(more)]
    assert len(pairs) > 100
    assert all(rates[fewer] <= rates[more] for fewer, more in pairs)
    assert rates[FAST, SLOW] == max(rates[FAST,], rates[SLOW,])


def test_a_group_is_left_out_of_the_search_only_where_it_cannot_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = group("tiny", "nvidia-a100-sxm-80gb", 1)
    found = planned(cluster(FAST, tiny, MANY), model("llama3-8b"), Wishes(**JOB), None, 1)
    ruled_out = [answer for answer in found.groups if answer.most_tokens_per_second is not None]
    assert [answer.name for answer in ruled_out] == ["tiny"]
    assert rate(tiny) < (ruled_out[0].most_tokens_per_second or 0) < rate(FAST)
    monkeypatch.setattr(groups, "most_tokens_per_second", lambda *_: float("inf"))
    again = planned(cluster(FAST, tiny, MANY), model("llama3-8b"), Wishes(**JOB), None, 1)
    assert again.ranking == found.ranking
    assert all(answer.tokens_per_second for answer in again.groups)


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-30b-a3b"])
def test_no_plan_is_faster_than_the_peak_rate_allows(name: str) -> None:
    for number_format in ("bf16", "fp8"):
        wishes = Wishes(num_ranks=8, number_format=number_format, **JOB)
        found = planned(cluster(FAST), model(name), wishes, None, 3)
        goal = found.request.goal
        most = most_tokens_per_second(goal.model, goal.machine, goal.num_ranks, goal.sequence_length)
        assert all(scored.outlook.tokens_per_second < most for scored in found.ranking.best)
        best = found.ranking.best[0].outlook
        assert best.tokens_per_second / most == pytest.approx(best.utilisation)


def test_equal_groups_have_one_search_and_each_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(*given: Any) -> Ranking:
        searched.append(given)
        return search(*given)

    monkeypatch.setattr(groups, "search", counted)
    parts = [put(FAST, name=f"fast{place}") for place in range(20)]
    found = planned(cluster(*parts), model("llama3-8b"), Wishes(**JOB), None, 1)
    assert len(searched) == 1
    assert len(found.groups) == 20
    assert "which predictions do not distinguish; " in found.request.assumptions[0]
    assert found.request.assumptions[0].endswith("; and 11 more")


def test_many_different_groups_are_not_compared() -> None:
    parts = [put(FAST, name=f"group{count}", num_nodes=count) for count in range(1, 34)]
    with pytest.raises(
        Impossible, match=r"33 different node groups, and at most 32 are compared; choose with --node-group"
    ):
        planned(cluster(*parts), model("llama3-8b"), Wishes(**JOB), None, 1)
    asked = Wishes(node_group="group1", **JOB)
    assert planned(cluster(*parts), model("llama3-8b"), asked, None, 1).groups == ()


def test_a_job_that_no_group_holds_takes_all_and_waits_for_the_slowest() -> None:
    together = cluster(FAST, SLOW)
    found = planned(together, model("llama3-8b"), Wishes(num_ranks=32, **JOB), None, 1)
    alone = rate(group("slow", "nvidia-a100-sxm-80gb", 4))
    scored = found.ranking.plans[0]
    assert scored.outlook.tokens_per_second == alone
    assert scored.outlook.family == MIXED
    assert scored.outlook.band is None
    assert found.request.assumptions[0] == (
        "node groups: all of fast, slow; all ranks are predicted as those of slow, the slowest, which bound each step"
    )
    assert job_cost(found.request, scored, 1.0, None).node_kilowatt_hours is None
    text = documents(found.request, found.ranking, scored, "{name: x}")[PLAN_FILE]
    plan = read("TrainingPlan", load_text(text.encode(), PLAN_FILE).data)
    assert isinstance(plan, TrainingPlan)
    assert plan.node_group is None
    assert predict(plan, together).outlook == scored.outlook


def test_equal_nodes_in_two_groups_are_one_machine() -> None:
    wishes = Wishes(num_ranks=32, **JOB)
    found = planned(cluster(FAST, put(FAST, name="other")), model("llama3-8b"), wishes, None, 1)
    whole = planned(cluster(group("whole", num_nodes=4)), model("llama3-8b"), wishes, None, 1)
    assert found.ranking.plans[0].outlook == whole.ranking.plans[0].outlook
    assert found.request.assumptions[0] == "node groups: all of fast, other"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((FAST, put(SLOW, nics=(put(SLOW.nics[0], fabric="far"),))), "are on several fabrics"),
        ((put(FAST, site="north"), put(SLOW, site="south")), r"at several sites \(north, south\)"),
        ((FAST, put(SLOW, nics=())), "slow has no compute NICs on a fabric of the others"),
        ((FAST, put(SLOW, num_accelerators_per_node=4, num_nodes=4)), "differ in the ranks of a node: 8, 4"),
        ((FAST, put(SLOW, nics=(put(FAST.nics[0], rate_bytes_per_second=400e9),))), "no group is the slowest"),
    ],
)
def test_a_job_over_groups_without_a_slowest_has_no_figure(parts: tuple[NodeGroup, ...], words: str) -> None:
    fabrics = (*H200.fabrics, put(H200.fabrics[0], name="far"))
    every = sum(each.num_nodes * each.num_accelerators_per_node for each in parts)
    together = cluster(*parts, fabrics=fabrics)
    with pytest.raises(Unpredictable, match=f"a job over all node groups is not predicted: .*{words}"):
        planned(together, model("llama3-8b"), Wishes(num_ranks=every, **JOB), None, 1)
    note = planned(together, model("llama3-8b"), Wishes(**JOB), None, 1).request.notes[0]
    assert note.startswith("a job over all node groups is not predicted: ")


def test_a_part_of_several_groups_is_no_job() -> None:
    with pytest.raises(Impossible, match=r"largest node group, fast, has 16; .* takes all of their 32 ranks"):
        planned(cluster(FAST, SLOW), model("llama3-8b"), Wishes(num_ranks=24, **JOB), None, 1)


def test_a_job_over_all_groups_is_pointed_out() -> None:
    notes = planned(cluster(FAST, SLOW), model("llama3-8b"), Wishes(**JOB), None, 1).request.notes
    assert notes == ("a job over all 2 node groups, bound by slow, is planned with --num-ranks 32",)


def test_reasons_that_all_groups_share_are_said_once() -> None:
    both = cluster(OLD, put(OLD, name="older"))
    with pytest.raises(Impossible, match=r"^nvidia-v100-sxm2-32gb has no peak rate for bf16, only for fp16$"):
        planned(both, model("llama3-8b"), Wishes(**JOB), None, 1)
    with pytest.raises(Impossible, match=r"^no node group has a plan: fast: none of .*; old: nvidia-v100"):
        planned(cluster(FAST, OLD), model("llama3-405b"), Wishes(**JOB), None, 1)


def test_spare_nodes_stay_out_of_every_plan() -> None:
    spared = put(H200.reliability or Reliability(failures_per_1000_node_days=5, source="default"), num_spare_nodes=4)
    parts = cluster(FAST, SLOW, reliability=spared)
    assert planned(parts, model("llama3-8b"), Wishes(**JOB), None, 1).request.goal.num_ranks == 16
    with pytest.raises(Impossible, match="takes all of their 32 ranks"):
        planned(parts, model("llama3-8b"), Wishes(num_ranks=64, **JOB), None, 1)
