"""The exchange of gradients in PyTorch: equal to one process for any number of ranks and any algorithm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch_tasks as tasks
from appendix_models.noise_statistics import gradient_noise
from torch_crew import crew

EXACT = 1e-12
"""Relative tolerance of sums in fp64 whose order differs."""


def communication(**fields: Any) -> dict[str, Any]:
    """Parts of a plan with small buckets, so that there are several."""
    return {"communication": {"bucket_bytes": 10_000.0, "overlap_gradients": True, **fields}}


def all_reduce(algorithm: str) -> dict[str, Any]:
    """Parts of a plan whose gradients are summed by one algorithm."""
    return communication(collectives=[{"operation": "all-reduce", "axis": "data", "algorithm": algorithm}])


@pytest.fixture(scope="module")
def alone() -> tuple[list[float], list[float]]:
    losses, norms, _ = crew().run(tasks.steps_of, 1, tasks.Setup(), 3, 0.5)[0]
    return losses, norms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "hosts"),
    [
        ("automatic", ["a", "a", "b", "b"]),
        ("hierarchical", ["a", "a", "b", "b"]),
        ("hierarchical", ["a", "a", "b"]),
        ("hierarchical", ["a", "b"]),
        ("hierarchical", ["a", "a"]),
    ],
)
def test_every_algorithm_follows_one_process(
    alone: tuple[list[float], list[float]], algorithm: str, hosts: list[str]
) -> None:
    answers = crew().run(tasks.steps_of, hosts, tasks.Setup(all_reduce(algorithm)), 3, 0.5)
    assert len({answer[2] for answer in answers}) == 1, "replicas differ"
    for losses, norms, _ in answers:
        assert losses == pytest.approx(alone[0], rel=EXACT)
        assert norms == pytest.approx(alone[1], rel=EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("name", ["ring", "tree"])
def test_algorithms_of_the_testbed_sum_as_the_library_does(name: str, num_ranks: int) -> None:
    for own, library in crew().run(tasks.summed_by, num_ranks, name):
        assert own == pytest.approx(library, rel=EXACT)


def test_uneven_shares_and_texts_of_all_lengths_weigh_each_target_alike() -> None:
    setup = tasks.Setup(communication(), variable_length=True)
    expected = crew().run(tasks.steps_of, 1, setup, 3)[0]
    for num_ranks, micro_samples in ((3, 1), (2, 3)):
        for losses, norms, _ in crew().run(tasks.steps_of, num_ranks, replace(setup, micro_samples=micro_samples), 3):
            assert losses == pytest.approx(expected[0], rel=EXACT)
            assert norms == pytest.approx(expected[1], rel=EXACT)


@pytest.mark.slow
def test_buckets_are_summed_while_the_backward_pass_is_under_way() -> None:
    for overlaps in (True, False):
        setup = tasks.Setup(communication(overlap_gradients=overlaps))
        for num_complete, num_buckets in crew().run(tasks.sums_inside_the_pass, 2, setup):
            assert num_buckets > 2
            assert num_complete == (num_buckets - 1 if overlaps else 0)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_noise_groups_are_those_of_the_definition(num_ranks: int) -> None:
    setup = tasks.Setup(communication(), variable_length=True)
    for sizes, norms, expected_sizes, expected_norms, mean_norm in crew().run(tasks.noise_of, num_ranks, setup):
        assert sizes == expected_sizes
        assert norms == pytest.approx(expected_norms, rel=1e-9)
        assert gradient_noise(sizes, norms, mean_norm**2).noise_trace > 0


def test_loss_scale_leaves_no_trace() -> None:
    plain, scaled = (
        crew().run(tasks.scaled_step, 2, tasks.Setup(communication()), scale)[0] for scale in (1.0, 2.0**16)
    )
    assert plain == scaled


@pytest.mark.parametrize("fault", ["nan-gradient", "inf-gradient"])
def test_a_gradient_that_is_not_finite_is_told_to_all_and_changes_nothing(fault: str) -> None:
    for before, after, finite, next_finite in crew().run(tasks.spoilt_step, 2, tasks.Setup(communication()), fault):
        assert not finite
        assert next_finite
        assert before == after


def test_a_flipped_bit_shows_in_the_digest_of_its_replica_alone() -> None:
    healthy, damaged = crew().run(tasks.flipped, 2, tasks.Setup())
    assert healthy[0] == damaged[0] == healthy[1]
    assert damaged[1] != healthy[1]
