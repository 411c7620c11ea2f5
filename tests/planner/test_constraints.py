"""Constraints of a search, and what a whole job takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from planner_makers import make

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.planner.constraints import FREE, Constraints
from trainspec_validate.planner.job_cost import job_cost
from trainspec_validate.planner.safety import num_steps
from trainspec_validate.planner.search import search
from trainspec_validate.planner.space import layouts

JOB = ("gcp-a3-ultra-h200", "llama3-70b")
SIZE = {"num_ranks": 64, "global_sequences": 256}


@pytest.mark.parametrize(
    ("constraints", "keeps"),
    [
        (Constraints(tensor=4), lambda layout: layout.tensor == 4),
        (Constraints(context=2), lambda layout: layout.context == 2),
        (Constraints(pipeline=4), lambda layout: layout.pipeline == 4),
        (Constraints(micro_sequences=2), lambda layout: layout.micro_sequences == 2),
        (Constraints(max_tensor=2), lambda layout: layout.tensor <= 2),
        (Constraints(max_context=1), lambda layout: layout.context == 1),
        (Constraints(max_pipeline=2), lambda layout: layout.pipeline <= 2),
        (Constraints(max_micro_sequences=1), lambda layout: layout.micro_sequences == 1),
        (Constraints(even_stages=True), lambda layout: not layout.stage_layers),
        (Constraints(tensor=8, max_pipeline=2), lambda layout: layout.tensor == 8 and layout.pipeline <= 2),
    ],
    ids=lambda value: value.words if isinstance(value, Constraints) else "",
)
def test_the_layouts_are_those_of_a_free_search_that_keep_to_them(
    constraints: Constraints, keeps: Callable[[Layout], bool]
) -> None:
    free = list(layouts(make(*JOB, **SIZE).goal))
    kept = list(layouts(make(*JOB, **SIZE, constraints=constraints).goal))
    assert kept == [layout for layout in free if keeps(layout)]
    assert 0 < len(kept) < len(free)


def test_expert_ranks_can_be_fixed_and_limited() -> None:
    job = ("coreweave-gb200", "qwen3-30b-a3b")
    for constraints, allowed in ((Constraints(expert=8), {8}), (Constraints(max_expert=4), {1, 2, 4})):
        found = layouts(make(*job, num_ranks=64, global_sequences=512, constraints=constraints).goal)
        assert {layout.expert for layout in found} == allowed


def test_a_plan_that_keeps_to_them_is_no_faster_than_a_free_one() -> None:
    free = search(make(*JOB, **SIZE).goal, 1)
    fixed = search(make(*JOB, **SIZE, constraints=Constraints(tensor=8, even_stages=True)).goal, 1)
    assert fixed.plans[0].choice.layout.tensor == 8
    assert fixed.best[0].seconds >= free.best[0].seconds


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tensor": 0}, "0 is no tensor"),
        ({"max_expert": -1}, "-1 is no max_expert"),
        ({"pipeline": 8, "max_pipeline": 4}, "8 pipeline ranks are asked for, and at most 4"),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Constraints(**values)


def test_words_are_options_of_the_command_line() -> None:
    assert FREE.words == ""
    words = "--tensor 8 --max-micro-sequences 2 --even-stages"
    assert Constraints(tensor=8, max_micro_sequences=2, even_stages=True).words == words


def test_a_job_takes_its_steps_over_the_share_of_progress() -> None:
    asked = make("nvidia-eos", "llama3-70b", num_ranks=256, global_sequences=256, num_tokens=256 * 8192 * 1000)
    scored = search(asked.goal, 1).plans[0]
    cost = job_cost(asked, scored, 0.8, 2.0)
    assert num_steps(asked) == 1000
    assert cost.seconds == pytest.approx(1000 * scored.seconds / 0.8)
    assert cost.price == pytest.approx(2.0 * 256 * cost.seconds / 3600)
    # 32 nodes of eight H100 of 700 W draw 0.69 of 1.8 times the limits of their accelerators.
    full_watts = asked.nodes.group.node_power_watts or 1.8 * 8 * 700
    assert cost.node_kilowatt_hours == pytest.approx(32 * 0.69 * full_watts * cost.seconds / 3.6e6)


def test_energy_is_left_out_where_no_run_was_metered_and_money_without_a_price() -> None:
    asked = make("google-tpu-v5p-pod", "llama3-8b", num_ranks=64, global_sequences=512)
    cost = job_cost(asked, search(asked.goal, 1).plans[0], 1.0, None)
    assert (cost.node_kilowatt_hours, cost.price) == (None, None)
