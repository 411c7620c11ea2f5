"""Runs the stack without a mutation through every scenario, and collects the functions that it enters."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from pathlib import Path

from entries import ENTERED, WATCHED, entered
from outcomes import Outcome
from reach import Reach, read
from registry import HONEST, Mutant
from runs import HERE, TRIALS, descriptor, outcome_of
from trainspec_conformance.suite import Order, run_suite

from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.system.atomic import write_atomically

LEAST_TRIALS = 2
"""The functions entered may depend on the moment of a fault: all functions entered in any trial count."""


def honest_reach(
    mutants: Iterable[Mutant], scenarios: Iterable[Scenario], out: Path, results: Path, pool: Executor
) -> Reach:
    """Kept results of the stack without a defect, after a run of the scenarios that it has not passed yet.

    Args:
        mutants: all that there are.
        scenarios: those that it is to run through.
        out: directory for what runs write; what was failed stays there.
        results: directory in which results are kept.
        pool: runs several scenarios at once.
    """
    with _alone(results):
        found = read(results, mutants)
        directory = out / HONEST
        directory.mkdir(parents=True, exist_ok=True)
        watched = directory / "watched"
        write_atomically(watched, "\n".join(found.watched))
        missing = [one for one in scenarios if one.metadata.name not in found.outcomes]
        runs = {pool.submit(_run, one, directory, watched): one.metadata.name for one in missing}
        for run in as_completed(runs):
            found.add(runs[run], *run.result())
            found.write(results)
        for one in [one for one in missing if one.metadata.name in found.failed]:
            found.add(one.metadata.name, *_run(one, directory, watched))  # alone: it may have waited for the others
            found.write(results)
    return found


@contextmanager
def _alone(results: Path) -> Iterator[None]:
    """Wait for other shares that write to the same directory: they find out the same."""
    results.mkdir(parents=True, exist_ok=True)
    with (results / f".{HONEST}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(scenario: Scenario, home: Path, watched: Path) -> tuple[Outcome, set[str]]:
    """Run it through one scenario, with the run without faults that this one is compared with."""
    directory = home / scenario.metadata.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    notes = directory / "entered"
    stack = descriptor(HONEST, {WATCHED: os.fspath(watched.resolve()), ENTERED: os.fspath(notes.resolve())})
    trials = max(LEAST_TRIALS, TRIALS.get(scenario.requirement, 1))
    (result,) = run_suite(Order(stack, HERE, directory, [scenario], num_trials=trials))
    outcome, names = outcome_of(result), entered(notes)
    if result.state != "fail":
        shutil.rmtree(directory)
    return outcome, names
