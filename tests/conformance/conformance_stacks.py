"""Stacks and runs that tests of the suite share."""

from __future__ import annotations

from pathlib import Path

import msgspec
from trainspec_conformance.reading import all_scenarios, read
from trainspec_conformance.suite import Order, ScenarioResult, run_suite

from trainspec_validate.documents.types.conformance import StackDescriptor, TestJob
from trainspec_validate.documents.types.scenario import Scenario

HERE = Path(__file__).parent
SHORT = {"num_steps": 24, "checkpoint_interval_steps": 5, "step_seconds": 0.01}


def fake(*lies: str, claims: dict[str, object] | None = None) -> StackDescriptor:
    """The stack of one page, with lies."""
    stack = read(HERE / "fake.yaml", StackDescriptor)
    launch = msgspec.structs.replace(stack.launch, train=(*stack.launch.train, *lies))
    found = msgspec.structs.replace(stack, launch=launch)
    return msgspec.structs.replace(found, claims=msgspec.structs.replace(stack.claims, **(claims or {})))


def scenario(name: str, **changes: object) -> Scenario:
    """A scenario that comes with the suite, with a job of a second."""
    one = all_scenarios()[name]
    job: TestJob = msgspec.structs.replace(one.job, **{**SHORT, **changes})
    acts = tuple(_sooner(act, job) for act in one.acts)
    criteria = tuple(
        msgspec.structs.replace(criterion, steps=min(criterion.steps, 6)) if criterion.steps else criterion
        for criterion in one.criteria
    )
    return msgspec.structs.replace(one, job=job, acts=acts, criteria=criteria, budget_seconds=60)


def _sooner(act: object, job: TestJob) -> object:
    step = getattr(act, "step", None)
    if step is None:
        return msgspec.structs.replace(act, jitter_steps=0) if getattr(act, "jitter_steps", 0) else act
    return msgspec.structs.replace(act, step=min(step, job.num_steps // 2), jitter_steps=2)


def run(stack: StackDescriptor, out: Path, *scenarios: Scenario, num_trials: int = 1) -> list[ScenarioResult]:
    """Run scenarios against a stack beside this file."""
    return run_suite(Order(stack, HERE, out, scenarios, num_trials=num_trials))


def failed(result: ScenarioResult) -> set[str]:
    """Checks that did not hold in some trial."""
    return {judged.check for trial in result.trials for judged in trial.judged if not judged.passed}
