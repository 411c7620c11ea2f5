"""Fixtures that several tests of the reference trainers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recovery_run import STEPS, Run, tiny_job
from trainspec_reference.common.job import Job

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    """Makes runs of three ranks, of which nothing is left after the test."""
    runs: list[Run] = []

    def make(job: Job | None = None, name: str = "run", **settings: object) -> Run:
        runs.append(Run(tmp_path / name, job or tiny_job(3, STEPS), **settings))
        return runs[-1]

    yield make
    for run in runs:
        run.end()


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of three ranks that nothing happens to."""
    run = Run(tmp_path_factory.mktemp("uninterrupted") / "run", tiny_job(3, STEPS))
    assert run.run() == 0
    return run
