"""The search finds what a search over everything finds, keeps to memory, and always gives the same answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.planner_makers import Make
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.forecast.outlook import Settings, memory_of_stage, outlook, overheads_of
from trainspec_validate.planner import search as planner_search
from trainspec_validate.planner.explain import NOTHING_ELSE, nearest_other, reasons
from trainspec_validate.planner.search import CONTEXT_INDIFFERENCE, INDIFFERENCE, search
from trainspec_validate.planner.space import ORDERS, RECOMPUTATIONS, Choice, Goal, dimensions, layouts, shardings

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
        own = overheads_of(goal.machine.accelerator)
        settings = Settings(recompute=recompute, order=order, overheads=own)
        if goal.holds(memory_of_stage(goal.model, sharded, settings)[1]):
            times.append(outlook(goal.model, goal.machine, sharded, settings).step.seconds)
    return times


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "model", "num_ranks", "sequences"), SMALL)
def test_nothing_in_the_space_is_faster(asked: Make, cluster: str, model: str, num_ranks: int, sequences: int) -> None:
    goal = asked(cluster, model, num_ranks=num_ranks, global_sequences=sequences).goal
    times = every_time(goal)
    assert len(times) > 20
    assert search(goal, 1).best[0].seconds <= min(times) * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "model", "num_ranks", "sequences"), SMALL)
def test_a_bound_rules_out_nothing_that_is_shown(
    asked: Make, cluster: str, model: str, num_ranks: int, sequences: int
) -> None:
    goal = asked(cluster, model, num_ranks=num_ranks, global_sequences=sequences).goal
    bounded, predicted, scored = search(goal, 3), list[object](), planner_search._scored
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner_search, "_Bound", Unbounded)
        patch.setattr(planner_search, "_scored", lambda *facts: predicted.append(facts) or scored(*facts))
        assert search(goal, 3) == bounded
    assert len(predicted) == bounded.num_compared


class Unbounded:
    """A bound that rules out nothing."""

    least = 0.0

    def __init__(self, _: Goal, layout: Layout) -> None:
        self.layout = layout

    def of(self, _: str) -> float:
        return 0.0


@pytest.mark.parametrize("framework", ["megatron-core", "megatron-lm==2.5", "torchtitan"])
@pytest.mark.parametrize(("model", "sequences"), [("llama3-70b", 64), ("qwen3-30b-a3b", 128)])
def test_no_form_is_predicted_below_the_bound_of_its_layout(
    asked: Make, framework: str, model: str, sequences: int
) -> None:
    goal = asked("nvidia-eos", model, num_ranks=64, global_sequences=sequences, framework=framework).goal
    for layout in list(layouts(goal))[::9]:
        bound = planner_search._Bound(goal, layout)
        forms = [form for growing in shardings(goal, layout) for form in growing]
        for form, recompute, order in product(forms, RECOMPUTATIONS, ORDERS):
            settings = planner_search.settings_of(Choice(form, recompute, order), goal.framework)
            found = outlook(goal.model, goal.machine, form, settings).step.seconds
            assert bound.of(recompute) <= found, (form, recompute, order)


@pytest.mark.slow
def test_plans_fit_and_are_in_order(asked: Make) -> None:
    request = asked("dgx-superpod-h100", "llama3-70b", num_ranks=128, global_sequences=128)
    ranking = search(request.goal, 10)
    times = [scored.seconds for scored in ranking.best]
    assert times == sorted(times)
    assert len(times) == 10
    assert all(request.goal.holds(scored.memory) for scored in ranking.best)


@pytest.mark.slow
def test_the_same_question_has_the_same_answer(asked: Make) -> None:
    first, second = (
        search(asked("meta-llama3-24k", "llama3-70b", num_ranks=512, global_sequences=512).goal, 5) for _ in range(2)
    )
    assert [scored.choice for scored in first.best] == [scored.choice for scored in second.best]


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_reason_names_another_choice_and_its_cost(asked: Make) -> None:
    ranking = search(asked("dgx-superpod-h100", "llama3-70b", num_ranks=128, global_sequences=128).goal, 1)
    shown = ranking.plans[0]
    told = reasons(ranking)
    assert told.keys() == dimensions(shown.choice).keys()
    for dimension, text in told.items():
        other = nearest_other(ranking, dimension)
        assert (text == NOTHING_ELSE) == (other is None)
        if other is not None:
            assert other.seconds >= ranking.best[0].seconds
            assert dimensions(other.choice)[dimension] != dimensions(shown.choice)[dimension]
            assert ("which predictions do not distinguish" in text) == (other.seconds < shown.seconds * (1 - 5e-4))


JOBS = [
    *SMALL,
    ("dgx-superpod-h100", "llama3-70b", 128, 128),
    ("meta-llama3-24k", "llama3-405b", 2048, 2048),
    ("coreweave-gb200", "deepseek-v3", 256, 1024),
]


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "model", "num_ranks", "sequences"), JOBS)
def test_the_simplest_of_the_plans_that_are_as_good_as_the_fastest_is_recommended(
    asked: Make, cluster: str, model: str, num_ranks: int, sequences: int
) -> None:
    ranking = search(asked(cluster, model, num_ranks=num_ranks, global_sequences=sequences).goal, 4_000)
    first, fastest = ranking.plans[0], ranking.best[0]
    limit = fastest.seconds * (1 + CONTEXT_INDIFFERENCE)
    context = min(scored.choice.layout.context for scored in ranking.best if scored.seconds <= limit)
    assert first.choice.layout.context == context
    alike = [scored for scored in ranking.best if scored.choice.layout.context == context]
    most = max(alike[0].seconds, min(limit, alike[0].seconds * (1 + INDIFFERENCE)))
    as_good = [scored for scored in alike if scored.seconds <= most]
    assert first.choice in [scored.choice for scored in as_good]
    assert first.choice.complexity == min(scored.choice.complexity for scored in as_good)
    same = [scored.seconds for scored in as_good if scored.choice.complexity == first.choice.complexity]
    assert first.seconds == min(same)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["aws-p4de-a100", "coreweave-h100"])
def test_no_context_ranks_without_need(asked: Make, cluster: str) -> None:
    """Two context ranks for 8,192 tokens are predicted to save 1 to 5 % of a step of 8 billion parameters on a node."""
    ranking = search(asked(cluster, "llama3-8b", num_ranks=8).goal, 1)
    assert ranking.best[0].choice.layout.context == 2
    assert ranking.plans[0].choice.layout.context == 1
    assert ranking.plans[0].seconds <= ranking.best[0].seconds * (1 + CONTEXT_INDIFFERENCE)


MORE = [
    ("aws-p4de-a100", "llama3-8b", 8, 64),
    ("coreweave-h100", "mixtral-8x7b", 32, 64),
    ("gcp-a3-ultra-h200", "llama3-70b", 64, 256),
    ("google-tpu-v5p-pod", "llama3-70b", 64, 64),
    ("moonshot-h800", "llama3-8b", 8, 64),
    ("zyphra-ibm-mi300x", "qwen3-30b-a3b", 16, 64),
]


@pytest.mark.slow
@pytest.mark.parametrize("job", MORE, ids=lambda job: f"{job[0]}-{job[1]}")
@pytest.mark.parametrize("framework", [None, "megatron-core"])
def test_plan_1_is_no_more_than_five_per_cent_slower_than_the_fastest(
    asked: Make, job: tuple[str, str, int, int], framework: str | None
) -> None:
    cluster, model, num_ranks, sequences = job
    wishes = {"num_ranks": num_ranks, "global_sequences": sequences, "framework": framework}
    ranking = search(asked(cluster, model, sequence_length=4096, **wishes).goal, 1)
    assert ranking.plans[0].seconds <= ranking.best[0].seconds * 1.05


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "model", "num_ranks", "sequences"), JOBS)
def test_alternatives_differ_in_kind_and_are_in_order(
    asked: Make, cluster: str, model: str, num_ranks: int, sequences: int
) -> None:
    ranking = search(asked(cluster, model, num_ranks=num_ranks, global_sequences=sequences).goal, 10)
    plans = ranking.plans
    assert plans[0].seconds <= ranking.best[0].seconds * (1 + CONTEXT_INDIFFERENCE)
    assert 1 < len(plans) <= 10
    assert len({scored.choice.kind for scored in plans}) == len(plans)
    times = [scored.seconds for scored in plans[1:]]
    assert times == sorted(times)


def test_simpler_is_fewer_dimensions_even_splits_and_fewer_chunks() -> None:
    plain = Layout(data=8, tensor=1, pipeline=2, context=1, num_micro_batches=8, schedule="1f1b")
    harder = [
        replace(plain, data=4, context=2),
        replace(plain, data=4, tensor=2),
        replace(plain, stage_layers=(39, 41)),
        replace(plain, num_virtual_stages=2),
        replace(plain, sharding_stage=1, sharding_degree=4),
    ]
    assert all(Choice(one, "none").complexity > Choice(plain, "none").complexity for one in harder)
    two, four = (Choice(replace(plain, num_virtual_stages=count), "none").complexity for count in (2, 4))
    assert two < four


def test_chunks_of_which_the_ends_alone_are_smaller_are_simpler_than_others(asked: Make) -> None:
    plain = Layout(data=8, tensor=1, pipeline=2, context=1, num_micro_batches=8, schedule="interleaved-1f1b")
    few = replace(plain, num_virtual_stages=4, stage_layers=(1, 1, 1, 2, 2, 1, 1, 1))
    many = replace(plain, num_virtual_stages=5, stage_layers=(0, *(1,) * 8, 0))
    assert Choice(many, "none").complexity < Choice(few, "none").complexity
    # 126 layers, and both ends count as one each
    first = search(asked("meta-llama3-24k", "llama3-405b", num_ranks=16384, global_sequences=2048).goal, 1).plans[0]
    assert len(set(first.choice.layout.stage_layers[1:-1])) <= 1


@pytest.mark.slow
def test_no_chunks_and_no_uneven_split_for_less_than_the_error_of_a_prediction(asked: Make) -> None:
    """The fastest plan for 80 layers without context ranks has 14 uneven chunks on a rank and gains 0.13 %."""
    ranking = search(asked("dgx-superpod-h100", "llama3-70b", num_ranks=256, global_sequences=256).goal, 1_000)
    first = ranking.plans[0]
    context = first.choice.layout.context
    fastest = next(one for one in ranking.best if one.choice.layout.context == context)
    assert fastest.seconds < first.seconds <= fastest.seconds * (1 + INDIFFERENCE)
    assert first.choice.layout.num_virtual_stages < fastest.choice.layout.num_virtual_stages
    assert not first.choice.layout.stage_layers


def test_plans_that_differ_in_chunks_alone_are_one_alternative() -> None:
    plain = Layout(data=8, tensor=1, pipeline=2, context=1, num_micro_batches=8, schedule="interleaved-1f1b")
    few, many = (Choice(replace(plain, num_virtual_stages=count), "none") for count in (2, 8))
    assert few.kind == many.kind
    assert Choice(replace(plain, context=2, data=4), "none").kind != few.kind
