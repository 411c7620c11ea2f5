"""Runs stacks of this directory through scenarios, and keeps the evidence of failures."""

from __future__ import annotations

import shutil
from itertools import chain, count
from pathlib import Path

import msgspec
from outcomes import Outcome
from registry import Mutant
from trainspec_conformance.controls import Controls
from trainspec_conformance.reading import read
from trainspec_conformance.suite import Order, ScenarioResult, run_suite

from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.scenario import Scenario

HERE = Path(__file__).parent
BUDGET_SECONDS = 120.0
"""Of a trial of a mutant: one that hangs costs no more. The trainer itself waits for a save for up to a minute."""
TRIALS = {"TS-CNF-108": 5, "TS-CNF-109": 2, "TS-CNF-113": 2, "TS-CNF-138": 2}
"""Trials of scenarios that a defect need not fail at every moment, for stacks that must fail them."""


def descriptor(name: str, environment: dict[str, str] | None = None) -> StackDescriptor:
    """The descriptor of a mutant, or of the stack without a defect."""
    stack = read(HERE / "mutant.yaml", StackDescriptor)
    named = {
        key: tuple(argument.replace("{name}", name) for argument in getattr(stack.launch, key) or ())
        for key in ("train", "probe")
    }
    variables = {**stack.launch.environment, **(environment or {})}
    return msgspec.structs.replace(stack, launch=msgspec.structs.replace(stack.launch, **named, environment=variables))


class Runs:
    """Runs of one mutant, which share their runs without faults."""

    def __init__(self, one: Mutant, out: Path) -> None:
        self._stack, self._home, self._requirement = descriptor(one.name), out / one.name, one.requirement
        self._controls = Controls(self._stack, HERE, _unused(self._home / "controls"))
        self._evidence: set[Path] = set()
        """Controls of scenarios that were failed."""

    def outcome(self, scenario: Scenario) -> Outcome:
        """Run it through a scenario; what was written is kept where something was wrong."""
        trials = TRIALS.get(scenario.requirement, 1) if scenario.requirement == self._requirement else 1
        scenario = msgspec.structs.replace(scenario, budget_seconds=min(scenario.budget_seconds, BUDGET_SECONDS))
        directory = self._home / scenario.metadata.name
        shutil.rmtree(directory, ignore_errors=True)
        order = Order(self._stack, HERE, self._home, [scenario], num_trials=trials, ends_on_failure=True)
        (result,) = run_suite(order, self._controls)
        if result.state == "error":
            raise RuntimeError(f"{self._stack.metadata.name}, {scenario.metadata.name}: {result.reason}")
        if result.state in {"pass", "unsupported"}:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            self._evidence |= {trial.control for trial in result.trials if trial.control}
        return outcome_of(result)

    def close(self) -> None:
        """Remove the runs without faults with which nothing was compared that was wrong."""
        self._controls.remove(but=self._evidence)
        if self._home.is_dir() and not any(self._home.iterdir()):
            self._home.rmdir()


def _unused(path: Path) -> Path:
    """A path, or one beside it where an earlier run has left something that may be evidence."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(one for one in chain([path], numbered) if not one.exists())


def outcome_of(result: ScenarioResult) -> Outcome:
    """Kept part of a result: its state, and the first problem."""
    messages = [
        f"{judged.check}: {message}"
        for trial in result.trials
        for judged in trial.judged
        for message in judged.messages
    ]
    is_told = result.state != "unsupported" and messages
    return Outcome(result.state, messages[0] if is_told else result.reason)
