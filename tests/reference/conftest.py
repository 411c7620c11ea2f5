"""Fixtures that several tests of the reference trainers share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recovery_run import STEPS, Run, tiny_job
from trainspec_reference.common.job import Job

MakeRun = Callable[..., Run]
COMPILED = Path(__file__).resolve().parents[2] / ".cache" / "jax"
"""What JAX has compiled, for all processes of all tests and for the next run: compiling takes most of their time."""
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


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
