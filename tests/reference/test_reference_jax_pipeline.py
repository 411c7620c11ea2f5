"""The JAX backend runs stages of a pipeline: the numbers of one rank, checkpoints for any layout, clear refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

import golden_traces
import jax_tasks as tasks
from jax_crew import CREW
from jax_tasks import Setup
from trainspec_reference.common.reading import read_job

from tests.reference.plain_crew import PLANS
from trainspec_validate.documents import types as documents

EXACT = 1e-11
"""Relative, in fp64: XLA's own exponentials differ by more than a rounding with the shape of what they are fused to."""
NUM_STEPS = 2
TRANSFORMER = replace(tasks.TRANSFORMER, num_layers=2, dropout=0.1)
STATE_SPACE = replace(tasks.STATE_SPACE, num_layers=2)


def staged(stages: int = 2, **fields: Any) -> dict[str, Any]:
    ranks = stages * fields.get("tensor", 1) * fields.get("data", 1)
    return {"parallelism": {"num_accelerators": ranks, "pipeline": stages, "schedule": "gpipe", **fields}}


WHOLE = Setup(shape=TRANSFORMER)
PIPELINE = Setup(staged(), shape=TRANSFORMER)


def numbers(told: list[Any]) -> list[float]:
    return [number for one in told for number in (one.loss, one.norm)]


@pytest.mark.slow
def test_two_stages_train_as_one_rank() -> None:
    told, digest = CREW.run(tasks.train, 1, WHOLE, NUM_STEPS)[0]
    ranks = CREW.run(tasks.train, 2, PIPELINE, NUM_STEPS)
    assert len({digest for _, digest in ranks}) == 1
    for found, _ in ranks:
        assert numbers(found) == pytest.approx(numbers(told), rel=EXACT)
    assert len(told) == NUM_STEPS
    assert digest


def test_saves_fit_any_number_of_stages(tmp_path: Path) -> None:
    told, end = CREW.run(tasks.train, 2, PIPELINE, NUM_STEPS)[0]
    homes = {name: tmp_path / name for name in ("stages", "whole")}
    for home in homes.values():
        home.mkdir()
    saved = CREW.run(tasks.save, 2, PIPELINE, homes["stages"], 1)
    ((digest, num_bytes),) = CREW.run(tasks.save, 1, WHOLE, homes["whole"], 1)
    assert sum(written for _, written in saved) == num_bytes, "each entry is stored once, whatever holds it"
    for before, resumed, after in CREW.run(tasks.resume, 2, PIPELINE, homes["stages"], 1, NUM_STEPS):
        assert before == saved[0][0]
        assert (numbers(resumed), after) == (numbers(told[1:]), end), "resume is bitwise"
    assert CREW.run(tasks.resume, 1, WHOLE, homes["stages"], 1, 1)[0][0] == saved[0][0]
    assert {found[0] for found in CREW.run(tasks.resume, 2, PIPELINE, homes["whole"], 1, 1)} == {digest}


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_ranks", "setup"),
    [
        (2, Setup(staged(), shape=STATE_SPACE)),
        (2, Setup({**staged(), "memory": {"activation_policy": "full"}}, shape=TRANSFORMER)),
        (4, Setup(staged(data=2), shape=STATE_SPACE, shares=(5, 3))),
        (4, Setup(staged(data=2, sharding="optimizer"), shape=STATE_SPACE)),
        (4, Setup(staged(tensor=2), shape=replace(TRANSFORMER, dropout=0.0))),
        (4, Setup(staged(tensor=2, sequence=True), shape=replace(STATE_SPACE, sequence_length=15))),
        (4, Setup(staged(4), shape=replace(TRANSFORMER, num_layers=4))),
    ],
    ids=["state-space", "recomputed", "uneven data ranks", "sharded", "tensor", "sequence", "four stages"],
)
def test_stages_and_other_ranks_train_as_one_rank(num_ranks: int, setup: Setup) -> None:
    told = CREW.run(tasks.train, 1, Setup(shape=setup.shape), 2, True)[0][0]
    ranks = CREW.run(tasks.train, num_ranks, setup, 2)
    assert len({digest for _, digest in ranks}) == 1
    for found, _ in ranks:
        assert numbers(found) == pytest.approx(numbers(told), rel=1e-8)
    for found, _ in CREW.run(tasks.train, num_ranks, setup, 1, True):
        assert numbers(found) == pytest.approx(numbers(told[:1]), rel=1e-8)
        assert sum(found[0].group_sizes) == sum(told[0].group_sizes)
        if setup.shares:  # whose micro-batches are others
            continue
        assert sorted(found[0].group_sizes) == sorted(told[0].group_sizes)
        assert sorted(found[0].group_squared_norms) == pytest.approx(sorted(told[0].group_squared_norms), rel=1e-7)


@pytest.mark.long
def test_stages_follow_the_golden_trace() -> None:
    job = read_job(PLANS / "transformer.yaml", None)
    parallelism = documents.changed(job.plan.parallelism, data=1, pipeline=2, schedule="gpipe")
    batch = documents.changed(job.plan.batch, accumulation_steps=4)
    job = replace(job, plan=documents.changed(job.plan, parallelism=parallelism, batch=batch))
    for steps in CREW.run(tasks.rehearsed, 2, job):
        kept = golden_traces.golden("transformer")
        assert golden_traces.worst_difference(golden_traces.numbers(steps), kept) < 1e-5


def test_a_backend_that_is_driven_without_a_command_line_refuses_as_well() -> None:
    with pytest.raises(RuntimeError, match="a pipeline runs by gpipe, not by 1f1b"):
        CREW.run(tasks.train, 1, Setup(staged(schedule="1f1b"), shape=TRANSFORMER), 1)
