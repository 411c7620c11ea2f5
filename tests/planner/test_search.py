"""The search finds what a search over everything finds, keeps to memory, and always gives the same answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.planner_makers import Make
from trainspec_validate.forecast.outlook import Settings, memory_of_stage, outlook
from trainspec_validate.planner.explain import NOTHING_ELSE, nearest_other, reasons
from trainspec_validate.planner.goal import Goal
from trainspec_validate.planner.search import search
from trainspec_validate.planner.space import ORDERS, RECOMPUTATIONS, dimensions, layouts

SMALL = [
    ("dgx-superpod-h100", "llama3-8b", 16, 32),
    ("aws-p4de-a100", "llama2-13b", 16, 16),
    ("coreweave-gb200", "qwen3-30b-a3b", 16, 16),
    ("google-tpu-v6e-256", "llama3-8b", 32, 32),
]


def every_time(goal: Goal) -> list[float]:
    """Predicted steps of every layout with every sharding, recomputation and order that fits into memory."""
    times = []
    for layout, stage, recompute, order in product(layouts(goal), range(4), RECOMPUTATIONS, ORDERS):
        if stage == 3 and layout.pipeline > 1:
            continue
        sharded = replace(layout, sharding_stage=stage)
        settings = Settings(recompute=recompute, order=order)
        if memory_of_stage(goal.model, sharded, settings)[1].total <= goal.memory_budget_bytes:
            times.append(outlook(goal.model, goal.machine, sharded, settings).step.seconds)
    return times


@pytest.mark.parametrize(("cluster", "model", "num_ranks", "sequences"), SMALL)
def test_nothing_in_the_space_is_faster(asked: Make, cluster: str, model: str, num_ranks: int, sequences: int) -> None:
    goal = asked(cluster, model, num_ranks=num_ranks, global_sequences=sequences).goal
    times = every_time(goal)
    assert len(times) > 20
    assert search(goal, 1).best[0].seconds <= min(times) * (1 + 1e-12)


def test_plans_fit_and_are_in_order(asked: Make) -> None:
    request = asked("dgx-superpod-h100", "llama3-70b", num_ranks=128, global_sequences=128)
    ranking = search(request.goal, 10)
    times = [scored.seconds for scored in ranking.best]
    assert times == sorted(times)
    assert len(times) == 10
    assert all(scored.memory.total <= request.goal.memory_budget_bytes for scored in ranking.best)


def test_the_same_question_has_the_same_answer(asked: Make) -> None:
    first, second = (
        search(asked("meta-llama3-24k", "llama3-70b", num_ranks=512, global_sequences=512).goal, 5) for _ in range(2)
    )
    assert [scored.choice for scored in first.best] == [scored.choice for scored in second.best]


def test_a_smaller_memory_never_makes_a_faster_plan(asked: Make) -> None:
    goals = [
        asked("dgx-superpod-h100", "llama3-70b", num_ranks=64, global_sequences=64, reserve_bytes=reserve).goal
        for reserve in (0.0, 20e9, 40e9)
    ]
    times = [search(goal, 1).best[0].seconds for goal in goals]
    assert times == sorted(times)


def test_what_does_not_fit_is_not_planned(asked: Make) -> None:
    ranking = search(asked("clemson-a100-pcie", "llama3-405b", global_sequences=32).goal, 3)
    assert ranking.best == ()
    assert ranking.num_layouts == ranking.num_too_large > 0


def test_every_reason_names_another_choice_and_its_cost(asked: Make) -> None:
    ranking = search(asked("dgx-superpod-h100", "llama3-70b", num_ranks=128, global_sequences=128).goal, 1)
    told = reasons(ranking)
    assert told.keys() == dimensions(ranking.best[0].choice).keys()
    for dimension, text in told.items():
        other = nearest_other(ranking, dimension)
        assert (text == NOTHING_ELSE) == (other is None)
        if other is not None:
            assert other.seconds >= ranking.best[0].seconds
            assert dimensions(other.choice)[dimension] != dimensions(ranking.best[0].choice)[dimension]
