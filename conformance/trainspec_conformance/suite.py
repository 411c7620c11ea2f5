"""Runs scenarios against a stack, one after the other, and gathers their verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainspec_conformance import guard
from trainspec_conformance.controls import Control, Controls
from trainspec_conformance.disk import unmount_abandoned
from trainspec_conformance.drawing import drawn, num_kinds, trial_seed
from trainspec_conformance.judging import (
    Judged,
    State,
    judge_trial,
    lacks_reports,
    mistake,
    needs,
    unsupported,
    waits_for_a_report,
)
from trainspec_conformance.nodes import NodeError, Nodes
from trainspec_conformance.processes import end_abandoned
from trainspec_conformance.resuming import discard_leftovers, ended_trial
from trainspec_conformance.trial import Setting, UnsupportedError, run_trial
from trainspec_validate.documents.types.conformance import Claims, StackDescriptor
from trainspec_validate.documents.types.scenario import Damage, Scenario

NOT_FINITE = frozenset({"nan-gradient", "inf-gradient"})
"""Planted faults after which a job of such a scenario continues."""

BASIC, STANDARD, STRICT = 0.5, 0.9, 0.95
"""Quantiles of the three numbers of trials."""


@dataclass(frozen=True)
class TrialResult:
    """One trial."""

    directory: Path
    seed: int
    seconds: float
    judged: tuple[Judged, ...]
    control: Path | None = None
    unsupported: str = ""
    """Requests that the stack reported as unsupported."""

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(one.passed for one in self.judged)


@dataclass(frozen=True)
class ScenarioResult:
    """One scenario."""

    scenario: Scenario
    state: State
    reason: str = ""
    trials: tuple[TrialResult, ...] = ()


@dataclass(frozen=True)
class Order:
    """Scenarios to run, with their settings."""

    stack: StackDescriptor
    base: Path
    out: Path
    scenarios: Sequence[Scenario]
    seed: int = 0
    num_trials: int | None = None
    """In place of the number that the claim needs."""
    ends_on_failure: bool = False
    """Whether a scenario is left with its first trial that fails: no later one changes its verdict."""
    told: Callable[[str], None] = field(default=lambda _: None)
    """Called with a line when something begins or ends."""
    is_resumed: bool = False
    """Whether trials that have ended in the directory are judged as they are, and not run again."""
    nodes: Nodes | None = None
    """Nodes that the ranks run on; without any, they run where the suite does."""
    results: list[ScenarioResult] = field(default_factory=list)
    """Results so far, also where the run is interrupted."""


def run_suite(order: Order, controls: Controls | None = None) -> list[ScenarioResult]:
    """Run every scenario; a stack that cannot do what one needs is `unsupported` there, with the reason.

    Args:
        order: what is to be run.
        controls: runs without faults that are there already; without them they are made below the order's directory.

    Raises:
        KeyboardInterrupt: the run was interrupted; `order.results` has every scenario all the same.
    """
    order.out.mkdir(parents=True, exist_ok=True)
    guard.start()
    end_abandoned()
    unmount_abandoned()
    if order.is_resumed:
        discard_leftovers(order.out)
    home = order.out / "controls"
    shared = controls or Controls(
        order.stack, order.base, home, order.seed, is_resumed=order.is_resumed, nodes=order.nodes
    )
    for number, one in enumerate(order.scenarios):
        done: list[TrialResult] = []
        try:
            order.results.append(_scenario(order, one, shared, done))
        except KeyboardInterrupt:
            left = order.scenarios[number + 1 :]
            order.results.extend([_interrupted(one, done), *(_interrupted(other, []) for other in left)])
            raise
    return order.results


def _interrupted(scenario: Scenario, done: Sequence[TrialResult]) -> ScenarioResult:
    """A scenario without all of its trials: one that failed decides, those that passed do not."""
    found = _of_trials(scenario, done)
    if found.state != "pass":
        return found
    reason = f"the run was interrupted after trial {len(done)}" if done else "the run was interrupted before it"
    return ScenarioResult(scenario, "not-run", reason, tuple(done))


def lacking(stack: StackDescriptor, scenario: Scenario) -> str:
    """Capabilities that a stack lacks for a scenario, with its own reasons; empty where it lacks none."""
    reasons = {one.capability: one.reason for one in stack.missing}
    wanted = needs(scenario) if waits_for_a_report(scenario) else scenario.needs
    missing = [need for need in wanted if need not in stack.capabilities]
    told = [f"{need}: {reasons.get(need, 'not among its capabilities')}" for need in missing]
    if damages_pointer(scenario) and stack.store.pointer is None:
        told.append("its store has no file that points to the newest checkpoint")
    if stack.claims.nonfinite_action == "stop" and any(one.kind in NOT_FINITE for one in scenario.job.faults):
        told.append("it stops at a gradient that is not finite, and the scenario continues after one")
    return "; ".join(told)


def damages_pointer(scenario: Scenario) -> bool:
    """Whether a scenario damages the file that names the newest checkpoint, which not every store has."""
    return any(kind.startswith("pointer-") for act in scenario.acts if isinstance(act, Damage) for kind in act.kinds)


def num_trials(claims: Claims, scenario: Scenario) -> int:
    """Trials of each kind of damage that the claimed quantile needs."""
    trials, quantile = scenario.trials, claims.quantile
    return trials.basic if quantile <= BASIC else trials.standard if quantile <= STANDARD else trials.strict


def _scenario(order: Order, scenario: Scenario, controls: Controls, done: list[TrialResult]) -> ScenarioResult:
    """Run it; the results of its trials are in `done` as soon as they are there."""
    name = scenario.metadata.name
    missing = lacking(order.stack, scenario)
    if missing:
        order.told(f"{name}: unsupported: {missing}")
        return ScenarioResult(scenario, "unsupported", missing)
    count = (order.num_trials or num_trials(order.stack.claims, scenario)) * num_kinds(scenario)
    try:
        control = controls.of(scenario, order.told) if scenario.control else None
        for number in range(1, count + 1):
            done.append(_trial(order, scenario, number, control))
            if done[-1].unsupported:
                raise UnsupportedError(done[-1].unsupported)
            order.told(f"{name}: trial {number} of {count}: {'pass' if done[-1].passed else 'fail'}")
            if order.ends_on_failure and not done[-1].passed:
                break
    except UnsupportedError as error:
        order.told(f"{name}: unsupported: {error}")
        return ScenarioResult(scenario, "unsupported", str(error), tuple(done))
    except NodeError as error:
        order.told(f"{name}: error: {error}")
        return ScenarioResult(scenario, "error", str(error), tuple(done))
    except Exception as error:  # noqa: BLE001, RUF100 - a mistake of ours in one scenario must not lose the others
        order.told(f"{name}: error: {mistake(error)}")
        return ScenarioResult(scenario, "error", mistake(error), tuple(done))
    found = _of_trials(scenario, done)
    if found.state != "pass":
        return found
    unjudged = lacks_reports(order.stack, scenario)
    if unjudged:
        reason = f"every other check held; reports of the fault were not judged: {unjudged}"
        order.told(f"{name}: unsupported: {reason}")
        return ScenarioResult(scenario, "unsupported", reason, tuple(done))
    return found


def _of_trials(scenario: Scenario, done: Sequence[TrialResult]) -> ScenarioResult:
    """What trials say that have all come to an end."""
    broken = [one for trial in done for one in trial.judged if one.is_own_failure]
    if broken:
        return ScenarioResult(scenario, "error", f"{broken[0].check}: {broken[0].messages[0]}", tuple(done))
    return ScenarioResult(scenario, "pass" if all(one.passed for one in done) else "fail", trials=tuple(done))


def _trial(order: Order, scenario: Scenario, number: int, control: Control | None) -> TrialResult:
    seed = trial_seed(order.seed, number)
    directory = order.out / scenario.metadata.name / f"trial-{number}"
    began = time.monotonic()
    as_run = drawn(scenario, order.seed, number)
    checks = {one.check for one in scenario.criteria}
    reads = {"reads_values": "values-follow-seed" in checks, "reads_steps": "steps-as-applied" in checks}
    setting = Setting(order.stack, order.base, as_run, directory, seed, **reads, nodes=order.nodes)
    entries = ended_trial(setting) if order.is_resumed else None
    seconds = entries[-1].seconds if entries else 0.0
    entries = entries or run_trial(setting)
    judged = judge_trial(order.stack, as_run, entries, control.entries if control else None)
    return TrialResult(
        directory,
        seed,
        seconds or time.monotonic() - began,
        tuple(judged),
        control.directory if control else None,
        unsupported(entries),
    )


def failures(results: Iterable[ScenarioResult]) -> list[ScenarioResult]:
    """Scenarios that did not pass."""
    return [one for one in results if one.state != "pass"]
