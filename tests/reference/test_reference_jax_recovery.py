"""A run with JAX that loses its rank 0, with which JAX ends all ranks: it goes on as after the loss of any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainspec_conformance.testbed.planted import PlantedFault

pytest.importorskip("jax")

from recovery_run import Run, tiny_job

STEPS, LOST_AT = 30, 15


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[tuple[Run, Run]]:
    """A run that nothing happens to, and one whose rank 0 ends."""
    faults = (PlantedFault("exception", 0, LOST_AT),)
    whole = Run(tmp_path / "whole", tiny_job(2, STEPS), backend="jax")
    lost = Run(tmp_path / "lost", tiny_job(2, STEPS, faults=faults), backend="jax")
    yield whole, lost
    whole.end()
    lost.end()


@pytest.mark.long
def test_a_run_goes_on_after_rank_0(runs: tuple[Run, Run]) -> None:
    whole, lost = runs
    assert (whole.run(), lost.run()) == (0, 0)
    (fault,) = lost.records("fault")
    assert (fault["kind"], fault["rank"]) == ("process", 0)
    assert lost.losses() == whole.losses()
    assert lost.digest == whole.digest
