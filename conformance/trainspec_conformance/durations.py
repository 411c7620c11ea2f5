"""Estimates how long a run of the suite takes, from the time that one start of the stack takes."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_conformance.drawing import MOST_ADDED_STEPS
from trainspec_validate.documents.types.conformance import StackDescriptor, TestJob
from trainspec_validate.documents.types.scenario import Inject, Probe, Scenario, Start, Wait

RESTARTING = frozenset({"kill", "stop", "terminate", "kill-at-memory-limit", "limit-memory", "cut-network"})
"""Injections after which a job starts ranks again."""
_SAVES = frozenset({"committed", "saving", "snapshot", "written"})


def expected_seconds(stack: StackDescriptor, scenario: Scenario, start_seconds: float) -> float:
    """Time of one trial: its starts, restarts and probes, and the optimizer steps that it waits for."""
    job, reached, seconds, num_starts, is_struck = scenario.job, 0.0, 0.0, 0, False
    for act in scenario.acts:
        match act:
            case Wait():
                wanted = _steps(act, job, reached)
                seconds += max(wanted - reached, 0.0) * job.step_seconds + act.seconds
                reached, is_struck = max(wanted, reached), False
            case Start() | Probe():
                num_starts += 1
            case Inject() if act.kind in RESTARTING:
                num_starts += not is_struck  # what strikes at once takes one restart
                is_struck = True
    return seconds + (num_starts + _planted_restarts(stack, job)) * start_seconds


def _steps(act: Wait, job: TestJob, reached: float) -> float:
    """Optimizer steps that are done when a wait is over, on average."""
    if act.until == "end":
        return job.num_steps + (1 + MOST_ADDED_STEPS) / 2
    if act.until == "step":
        return (act.step or 0) + act.jitter_steps / 2
    if act.until in _SAVES:
        return (act.num or 1) * job.checkpoint_interval_steps + act.jitter_steps / 2
    return reached


def _planted_restarts(stack: StackDescriptor, job: TestJob) -> int:
    raised = [one for one in job.faults if one.kind == "exception"]
    return sum(stack.claims.max_restarts_without_progress + 1 if one.every_attempt else 1 for one in raised)


def baseline_seconds(jobs: Iterable[TestJob], start_seconds: float) -> float:
    """Time of all baseline runs."""
    return sum(start_seconds + job.num_steps * job.step_seconds for job in jobs)
