"""Runs the reference trainer with each means of resilience on or off, and times its steps.

`python benchmarks/resilience_run.py run DIRECTORY` is the controller and `... work DIRECTORY ASSIGNMENT` a worker; both
read their settings from `wanted.json` in the directory. Features that are off are removed from the trainer itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from trainspec_conformance.testbed import backend_named
from trainspec_reference.common import saver, worker
from trainspec_reference.common.controller import hosts, launch
from trainspec_reference.common.job import Job
from trainspec_reference.common.ports import Wish
from trainspec_reference.common.reading import Changes, read_job
from trainspec_reference.common.run_settings import Assignment, Settings
from trainspec_reference.common.saver import WorkerPorts
from trainspec_reference.common.trainer import Trainer
from trainspec_reference.common.watch import Limits

from trainspec_validate.documents import types as documents

PLANS = Path(__file__).resolve().parent.parent / "reference" / "plans"
WANTED = "wanted.json"
WARM_STEPS = 5
NO_DIGEST = "0" * 64
FOREVER = 1e9
SAVES, DIGESTS, WATCH, AGREEMENT, REPLICAS = "saves", "digests", "watch", "agreement", "replicas"
MEANS = (SAVES, DIGESTS, WATCH, AGREEMENT, REPLICAS)
"""Asynchronous saves; digests of state and files in them; progress and heartbeats; stops that all ranks agree upon
before each step; comparisons of the replicas."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run."""

    backend: str
    plan: str
    num_ranks: int
    num_steps: int
    interval_steps: int
    """Between saves, and between comparisons of replicas."""
    means: tuple[str, ...]
    """Those of MEANS that are on."""

    def job(self) -> Job:
        """The job, with its policy where it saves."""
        policy = PLANS / f"{self.plan}-policy.yaml"
        policy = policy if policy.exists() else PLANS / "policy.yaml"
        changes = Changes(num_steps=self.num_steps, num_ranks=self.num_ranks)
        job = read_job(PLANS / f"{self.plan}.yaml", policy if SAVES in self.means else None, changes)
        if job.policy is not None:
            interval = documents.changed(job.policy.interval, steps=self.interval_steps)
            job = replace(job, policy=documents.changed(job.policy, interval=interval))
        return replace(job, replica_check_steps=self.interval_steps if REPLICAS in self.means else None)


class _WithoutDigest:
    """A backend of which a save gets no digest of the state."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def digest(self) -> str:
        """The same for every state."""
        return f"sha256:{NO_DIGEST}"


def without_digests() -> None:
    """Saves neither take the digest of the state nor read their files back."""
    made = WorkerPorts.__init__

    def init(self: WorkerPorts, backend: Any, link: Any, *, is_asynchronous: bool) -> None:
        made(self, _WithoutDigest(backend), link, is_asynchronous=is_asynchronous)

    WorkerPorts.__init__ = init  # type: ignore[method-assign]
    saver.digests = lambda directory, paths: dict.fromkeys(paths, NO_DIGEST)  # type: ignore[assignment] # noqa: ARG005


def without_watch() -> None:
    """Workers report no progress, there are no liveness checks, and no limit on silence."""
    WorkerPorts.arrived = lambda self, step: None  # type: ignore[method-assign] # noqa: ARG005
    WorkerPorts.done = lambda self, step: None  # type: ignore[method-assign] # noqa: ARG005
    limits = Limits(least=FOREVER, most=FOREVER, start=FOREVER, save=FOREVER, ping=FOREVER, silence=FOREVER)
    Limits.of_policy = staticmethod(lambda policy, device="cpu": limits)  # type: ignore[method-assign] # noqa: ARG005


def without_agreement() -> None:
    """The job cannot be stopped between two updates."""
    Trainer._wish = lambda self: Wish.NONE  # type: ignore[method-assign] # noqa: ARG005


WITHOUT: dict[str, Callable[[], None]] = {DIGESTS: without_digests, WATCH: without_watch, AGREEMENT: without_agreement}


def prepare(directory: Path) -> Wanted:
    """Read what is wanted, and take out what is not."""
    wanted = msgspec.json.decode((directory / WANTED).read_bytes(), type=Wanted)
    for name, take_out in WITHOUT.items():
        if name not in wanted.means:
            take_out()
    return wanted


def run(directory: Path) -> int:
    """The controller of one run, and what its own process took."""
    wanted = prepare(directory)
    settings = Settings(
        hosts=hosts(wanted.num_ranks, 1),
        directory=directory / "run",
        checkpoint_directory=directory / "checkpoints",
        trace_directory=directory / "trace",
        environment={key: value for key, value in os.environ.items() if key != "TRAINSPEC_RUN"},
    )
    assignment = Assignment(
        backend_named(wanted.backend), wanted.job(), settings.checkpoint_directory, settings.trace_directory
    )
    before = time.process_time()
    status = launch(assignment, settings, (sys.executable, __file__, "work", str(directory)))
    (directory / "controller.json").write_text(json.dumps({"processor_seconds": time.process_time() - before}))
    return status


def work(directory: Path, assignment: str) -> None:
    """A worker that takes the time of the steps after the first few."""
    wanted = prepare(directory)
    between = Trainer._between_steps
    marks: list[tuple[float, float]] = []

    def noted(self: Trainer) -> None:
        between(self)
        if self.state.step in (WARM_STEPS, wanted.num_steps):
            marks.append((time.perf_counter(), time.process_time()))
        if self.state.step == wanted.num_steps:
            (wall, processor), (wall_end, processor_end) = marks
            told = {"seconds": wall_end - wall, "processor_seconds": processor_end - processor}
            (directory / f"rank-{self.surroundings.formation.rank}.json").write_text(json.dumps(told))

    Trainer._between_steps = noted  # type: ignore[method-assign]
    worker.main([assignment])


def main(arguments: Sequence[str]) -> int:
    """Be the process that the arguments name."""
    role, directory, *rest = arguments
    if role == "run":
        return run(Path(directory))
    work(Path(directory), *rest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
