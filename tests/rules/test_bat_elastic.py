"""Sizes of elastic jobs: memory, nodes, and sizes that are left out."""

from __future__ import annotations

from typing import Any

import pytest
from predicted_documents import cluster, places, plan, violations

from trainspec_validate.rules import NotApplicable

DEGREES = ("batch", "elastic", "data_degrees")


def elastic(degrees: list[int], micro: list[int] | None = None, batch: int = 512, **keys: Any) -> dict[str, Any]:
    section = {"data_degrees": degrees, "micro_sequences": micro or [1]}
    return {"batch": {"global_sequences": batch, "accumulation_steps": batch // 4, "elastic": section}} | keys


FLAT = {"num_accelerators": 128, "data": 16, "tensor": 8, "pipeline": 1, "schedule": None, "sharding": "parameters"}


def test_state_at_the_smallest_size() -> None:
    documents = elastic([1, 2, 16], parallelism=FLAT)
    (found,) = violations("TS-BAT-029", plan(documents), cluster())
    assert found.place.pointer == (*DEGREES, 0)
    assert "with data 1 the sharded state takes at least 141.1 GB of a rank, and 4 GB are kept free" in found.message
    assert found.help == "leave 1 out: the smallest listed degree that fits is 2"
    assert places("TS-BAT-029", plan(elastic([2, 16], parallelism=FLAT)), cluster()) == []


def test_no_size_at_all() -> None:
    huge = elastic([1, 2], parallelism=FLAT, model={"num_parameters": 900e9})
    found = violations("TS-BAT-029", plan(huge), cluster())
    assert [one.place.pointer for one in found] == [(*DEGREES, 0), (*DEGREES, 1)]
    assert all(one.help.endswith("no listed degree fits") for one in found)


def test_memory_that_is_shared_with_the_host_is_not_judged() -> None:
    shared = elastic([1], parallelism=FLAT, memory={"unified_memory": "coherent"})
    with pytest.raises(NotApplicable, match="shared with the host"):
        violations("TS-BAT-029", plan(shared), cluster())
    with pytest.raises(NotApplicable, match="shares memory"):
        violations("TS-BAT-030", plan(shared), cluster())


def test_predicted_memory_at_the_smallest_size() -> None:
    """With two sequences in flight there is room for the optimizer state of four data ranks, not of one."""
    documents = elastic([1, 4], [2], memory={"activation_policy": "none"})
    documents["batch"] |= {"micro_sequences": 2, "accumulation_steps": 64}
    (found,) = violations("TS-BAT-030", plan(documents), cluster())
    assert found.place.pointer == (*DEGREES, 0)
    assert found.message.startswith("with data 1 a rank is predicted to need ")
    assert found.help.endswith("the smallest listed degree that fits is 4")
    documents["batch"]["elastic"]["micro_sequences"] = [1, 2]
    assert places("TS-BAT-030", plan(documents), cluster()) == []


def test_a_size_whose_state_does_not_fit_is_said_once() -> None:
    documents = elastic([1, 16], parallelism=FLAT, memory={"activation_policy": "full"})
    documents["batch"]["accumulation_steps"] = 32
    assert places("TS-BAT-029", plan(documents), cluster()) == [(*DEGREES, 0)]
    assert places("TS-BAT-030", plan(documents), cluster()) == []


THIRDS = {"num_accelerators": 80, "data": 4, "tensor": 4, "pipeline": 5}


@pytest.mark.parametrize(
    ("degrees", "uneven"), [([2, 4], []), ([1, 2, 4], [0]), ([2, 3, 4], [1]), ([1, 3], [0, 1]), ([6], [])]
)
def test_whole_nodes(degrees: list[int], uneven: list[int]) -> None:
    documents = elastic(degrees, batch=384, parallelism=THIRDS)
    assert places("TS-BAT-031", plan(documents), cluster()) == [(*DEGREES, position) for position in uneven]


def test_the_help_names_the_neighbours_that_fill_nodes() -> None:
    (found,) = violations("TS-BAT-031", plan(elastic([3], batch=384, parallelism=THIRDS)), cluster())
    assert found.message == "data 3 is 60 ranks: 7 nodes of 8 and 4 accelerators of one more"
    assert found.help == "use multiples of 2: 2 or 4"


def test_a_part_of_one_node_is_no_broken_node() -> None:
    inside = {"num_accelerators": 8, "data": 4, "tensor": 2, "pipeline": 1, "schedule": None}
    assert places("TS-BAT-031", plan(elastic([1, 2, 4], parallelism=inside)), cluster()) == []


@pytest.mark.parametrize(
    ("degrees", "batch", "micro", "missed"),
    [
        ([2, 4], 512, [1, 2], ""),
        ([1, 4], 512, [1], "2"),
        ([2, 4], 384, [1], "3"),
        ([2, 3, 4], 384, [1], ""),
        ([2, 4], 384, [96], ""),
        ([1, 16], 384, [1], "2, 3, 4, 6, 8, 12"),
    ],
)
def test_sizes_that_are_left_out(degrees: list[int], batch: int, micro: list[int], missed: str) -> None:
    found = violations("TS-BAT-032", plan(elastic(degrees, micro, batch)), cluster())
    assert [one.place.pointer for one in found] == ([DEGREES] if missed else [])
    assert all(f"also divides over data {missed}:" in one.message for one in found)


def test_many_missed_sizes_are_counted_and_some_are_named() -> None:
    alone = {"num_accelerators": 128, "data": 128, "tensor": 1, "pipeline": 1, "schedule": None}
    documents = elastic([8, 10080], [1], 20160, parallelism=alone)
    (found,) = violations("TS-BAT-032", plan(documents), cluster())
    assert " and " in found.message
    assert "more: with fewer sizes" in found.message
    assert found.help.startswith("list 8, ")


def test_experts_limit_the_sizes() -> None:
    experts = {"num_experts": 64, "num_active_experts": 8, "ffn_hidden_size": 2048}
    mixture = {"family": "moe-transformer", "experts": experts}
    free = elastic([2, 8], parallelism={"data": 8, "pipeline": 2}, model=mixture)
    bound = elastic([2, 8], parallelism={"data": 8, "pipeline": 2, "expert": 8, "expert_tensor": 8}, model=mixture)
    assert places("TS-BAT-032", plan(free), cluster()) == [DEGREES]
    assert places("TS-BAT-032", plan(bound), cluster()) == []


@pytest.mark.parametrize("requirement", ["TS-BAT-029", "TS-BAT-030", "TS-BAT-031", "TS-BAT-032"])
def test_jobs_that_are_not_elastic(requirement: str) -> None:
    with pytest.raises(NotApplicable, match="not elastic"):
        violations(requirement, plan(), cluster())


def test_one_size_misses_nothing() -> None:
    with pytest.raises(NotApplicable, match="fewer than two"):
        violations("TS-BAT-032", plan(elastic([4])), cluster())


@pytest.mark.parametrize("degrees", [[1, 4], [2, 4], [2, 8], [4, 16]])
def test_no_size_is_asked_for_that_would_not_fill_nodes(degrees: list[int]) -> None:
    documents = elastic(degrees, batch=384, parallelism=THIRDS)
    fill = "TS-BAT-031"
    before = set(places(fill, plan(documents), cluster()))
    for found in violations("TS-BAT-032", plan(documents), cluster()):
        listed = [int(word) for word in found.help.removeprefix("list ").split(", ")]
        after = places(fill, plan(elastic(listed, batch=384, parallelism=THIRDS)), cluster())
        assert len(after) == len(before)
