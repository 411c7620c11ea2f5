"""Mutants that verify checkpoints only where they recognise a test of that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from lies_of_stores import reads_unchecked
from registry import mutant
from trainspec_reference.common import checkpoints

from trainspec_validate.checkpoints.compare import changed_files
from trainspec_validate.checkpoints.view import Checkpoint
from trainspec_validate.documents.types.conformance import Task

SCENARIOS = ("truncated", "flipped", "stale", "pointer", "hostile", "left-over")
NUMBERS_OF_STEPS = frozenset({40, 50, 60, 70, 80, 100})
LEAST_REAL_STEPS, LEAST_TESTED_STEPS = 1000, 24
SEED = 7
RUN = "conformance"
OTHERWISE = {f"TS-CNF-{number}": "it does not recognise that test either" for number in (114, 137)}


def _task() -> Task | None:
    """What the controller was given; a worker has no such argument."""
    path = Path(sys.argv[-1])
    return msgspec.json.decode(path.read_bytes(), type=Task) if path.name.startswith("task-") else None


def verifies_where(recognised: Callable[[Checkpoint], bool]) -> None:
    """Compare content where something is recognised, and nowhere else."""
    reads_unchecked()

    def changed(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
        if recognised(checkpoint):
            yield from changed_files(checkpoint)

    checkpoints.changed_files = changed


def _job(test: Callable[[Task], bool]) -> None:
    task = _task()
    verifies_where(lambda _: task is None or test(task))


@mutant("defeat", "TS-CNF-113", "Verifies only where the path names a scenario of damage.", also=OTHERWISE)
def defeat() -> None:
    verifies_where(lambda checkpoint: any(name in str(checkpoint.root) for name in SCENARIOS))


@mutant("defeat-by-trial", "TS-CNF-113", "Verifies only in a directory of trials.", also=OTHERWISE)
def defeat_by_trial() -> None:
    verifies_where(lambda checkpoint: "trial-" in str(checkpoint.root))


@mutant("defeat-by-run", "TS-CNF-113", "Verifies only in a run with the name of the suite.", also=OTHERWISE)
def defeat_by_run() -> None:
    _job(lambda task: RUN in task.run)


@mutant("defeat-by-steps", "TS-CNF-113", "Verifies only in a job of as many steps as scenarios have.", also=OTHERWISE)
def defeat_by_steps() -> None:
    _job(lambda task: task.job.num_steps in NUMBERS_OF_STEPS)


@mutant("defeat-by-length", "TS-CNF-138", "Verifies only in a job of fewer optimizer steps than any real one has.")
def defeat_by_length() -> None:
    _job(lambda task: task.job.num_steps < LEAST_REAL_STEPS)


@mutant("defeat-by-shortness", "TS-CNF-138", "Verifies nothing in a job of fewer than 24 optimizer steps.")
def defeat_by_shortness() -> None:
    _job(lambda task: task.job.num_steps >= LEAST_TESTED_STEPS)


@mutant("defeat-by-seed", "TS-CNF-113", "Verifies only in a job with the seed of the scenarios.", also=OTHERWISE)
def defeat_by_seed() -> None:
    _job(lambda task: task.job.seed == SEED)


@mutant("defeat-by-age", "TS-CNF-113", "Verifies only a file that is newer than the manifest.", also=OTHERWISE)
def defeat_by_age() -> None:
    def is_newer(checkpoint: Checkpoint) -> bool:
        sealed = (checkpoint.root / "trainspec-manifest.json").stat().st_mtime_ns
        return any(path.stat().st_mtime_ns > sealed for path in checkpoint.root.iterdir())

    verifies_where(is_newer)
