"""Context ranks of the JAX backend: they share each sequence, and train and resume as one rank does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

import jax_tasks as tasks
from jax_crew import CREW
from jax_tasks import Setup

EXACT = 1e-9


def setup_of(shape: Any = tasks.TRANSFORMER, parts: Any = None, **degrees: Any) -> Setup:
    """Two context ranks to each data rank."""
    plan = {"num_accelerators": 2, "context": 2, **degrees}
    return Setup({"parallelism": plan, **(parts or {})}, shape)


def numbers(told: Any) -> Any:
    return pytest.approx([value for one in told for value in (one.loss, one.norm)], rel=EXACT)


@pytest.mark.slow
def test_two_context_ranks_train_as_one_rank() -> None:
    alone = CREW.run(tasks.train, 1, Setup(), 2, True)[0][0]
    ranks = CREW.run(tasks.train, 2, setup_of(), 2, True)
    assert ranks[0][1] == ranks[1][1]
    for told, _ in ranks:
        assert [value for one in told for value in (one.loss, one.norm)] == numbers(alone)
        assert told[0].group_sizes == alone[0].group_sizes
        assert told[0].group_squared_norms == pytest.approx(alone[0].group_squared_norms, rel=EXACT)


@pytest.mark.long
def test_context_ranks_go_with_all_others() -> None:
    setups = {
        "alone": setup_of(),
        "filled up": setup_of(replace(tasks.TRANSFORMER, sequence_length=13)),
        "optimizer": setup_of(sharding="optimizer"),
        "parameters": setup_of(sharding="parameters"),
    }
    of_four = {
        "data": setup_of(num_accelerators=4, data=2),
        "outer": setup_of(num_accelerators=4, data=2, order=["data", "context", "tensor", "pipeline"]),
        "sequence": setup_of(num_accelerators=4, tensor=2, sequence=True),
        "pipeline": setup_of(replace(tasks.TRANSFORMER, num_layers=2), num_accelerators=4, pipeline=2),
        "hierarchical": setup_of(num_accelerators=4, data=2, parts={"communication": {"hierarchical_reduction": True}}),
    }
    for hosts, group in ((["a", "a"], setups), (["a", "a", "b", "b"], of_four)):
        ranks = CREW.run(tasks.train_of_many, hosts, group, 2)
        for name, setup in group.items():
            alone = CREW.run(tasks.train, 1, Setup(shape=setup.shape), 2)[0][0]
            assert len({told[name][1] for told in ranks}) == 1, f"{name}: ranks differ"
            assert [value for one in ranks[-1][name][0] for value in (one.loss, one.norm)] == numbers(alone), name


@pytest.mark.long
@pytest.mark.parametrize(("writers", "readers"), [(2, 1), (1, 2), (2, 2)])
def test_a_save_resumes_with_any_degree(tmp_path: Path, writers: int, readers: int) -> None:
    setups = {1: Setup(), 2: setup_of()}
    digest, _ = CREW.run(tasks.save, writers, setups[writers], tmp_path, 2)[0]
    uninterrupted = CREW.run(tasks.train, 1, Setup(), 4)[0][0]
    for before, told, _ in CREW.run(tasks.resume, readers, setups[readers], tmp_path, 2, 4):
        assert before == digest
        assert [value for one in told for value in (one.loss, one.norm)] == numbers(uninterrupted[2:])


@pytest.mark.long
def test_what_is_left_to_send_counts_context_ranks_among_those_that_send(tmp_path: Path) -> None:
    compression = {"method": "top-k", "density": 0.05, "error_feedback": True, "residual_checkpointed": True}
    setup = setup_of(parts={"communication": {"compression": compression}})
    whole = CREW.run(tasks.train, 2, setup, 4)
    assert whole[0][1] == whole[1][1]
    assert whole[0][1] != CREW.run(tasks.train, 2, setup_of(), 4)[0][1]
    CREW.run(tasks.save, 2, setup, tmp_path, 2)
    for _, told, digest in CREW.run(tasks.resume, 2, setup, tmp_path, 2, 4):
        assert [one.loss for one in told] == [one.loss for one in whole[0][0][2:]]
        assert digest == whole[0][1]
