"""Runs a job without faults, once for all scenarios that are compared with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainspec_conformance.drawing import drawn_job
from trainspec_conformance.nodes import Nodes
from trainspec_conformance.records import Entry
from trainspec_conformance.resuming import ended_trial
from trainspec_conformance.trial import Setting, run_trial, time_limit_seconds
from trainspec_validate.documents.types.conformance import StackDescriptor, TestJob
from trainspec_validate.documents.types.scenario import Scenario, Start, Wait


@dataclass(frozen=True)
class Control:
    """One run without faults."""

    directory: Path
    entries: list[Entry]


class Controls:
    """Such runs of one stack: scenarios with equal jobs share one, also over several runs of the suite."""

    def __init__(  # noqa: PLR0913
        self,
        stack: StackDescriptor,
        base: Path,
        home: Path,
        seed: int = 0,
        *,
        is_resumed: bool = False,
        nodes: Nodes | None = None,
    ) -> None:
        """None is run yet.

        Args:
            stack: its descriptor.
            base: directory of the descriptor.
            home: directory for all of them, which need not exist.
            seed: of every random choice of the suite.
            is_resumed: whether runs that have ended there are taken as they are.
            nodes: those that the ranks run on.
        """
        self._stack, self._base, self._home, self._seed = stack, base, home, seed
        self._is_resumed, self._nodes = is_resumed, nodes
        self._made: dict[bytes, Control] = {}
        self._num_begun = 0
        """With those that failed, whose directories are there already."""

    def of(self, scenario: Scenario, told: Callable[[str], None]) -> Control:
        """The run that a scenario is compared with; it is made where no scenario has needed it before.

        Raises:
            UnsupportedError: the machine does not allow what it needs.
        """
        job = _job_of(scenario, self._seed)
        key = msgspec.json.encode(job)
        if key not in self._made:
            self._num_begun += 1
            name = f"control-{self._num_begun}"
            setting = Setting(
                self._stack,
                self._base,
                _without_faults(scenario, job),
                self._home / name,
                self._seed,
                reads_values=True,
                nodes=self._nodes,
            )
            entries = ended_trial(setting) if self._is_resumed else None
            if entries is None:
                told(name.replace("-", " run "))
                entries = run_trial(setting)
            self._made[key] = Control(setting.directory, entries)
        return self._made[key]

    def remove(self, *, but: Collection[Path]) -> None:
        """Remove what they wrote, but for some of their directories."""
        for control in self._made.values():
            if control.directory not in but:
                shutil.rmtree(control.directory)
        if self._home.is_dir() and not any(self._home.iterdir()):
            self._home.rmdir()


def time_limits_seconds(stack: StackDescriptor, scenarios: Iterable[Scenario], seed: int = 0) -> list[float]:
    """When each of the runs is ended that these scenarios are compared with."""
    compared = [one for one in scenarios if one.control]
    runs = {msgspec.json.encode(job): _without_faults(one, job) for one in compared for job in [_job_of(one, seed)]}
    return [time_limit_seconds(stack, run) for run in runs.values()]


def baseline_jobs(scenarios: Iterable[Scenario], seed: int = 0) -> list[TestJob]:
    """Jobs of the runs that these scenarios are compared with."""
    jobs = [_job_of(one, seed) for one in scenarios if one.control]
    return list({msgspec.json.encode(job): job for job in jobs}.values())


def _job_of(scenario: Scenario, seed: int) -> TestJob:
    return drawn_job(msgspec.structs.replace(scenario.job, faults=()), seed)


def _without_faults(scenario: Scenario, job: TestJob) -> Scenario:
    return msgspec.structs.replace(scenario, job=job, acts=(Start(), Wait(until="end")))
