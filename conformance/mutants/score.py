"""The only place that runs mutants through scenarios: each must fail its own requirement, and no other without reason.

`python conformance/mutants/score.py [--all] [--out DIRECTORY] [NAME ...]` prints a table and exits 1 when one survives.
With `--all` each mutant meets every scenario, else its own and a run to which nothing is done.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from registry import Mutant, all_mutants
from trainspec_conformance.reading import read
from trainspec_conformance.scenarios import all_scenarios
from trainspec_conformance.suite import Order, ScenarioResult, run_suite

from trainspec_validate.documents.conformance import StackDescriptor
from trainspec_validate.documents.scenario import Scenario

HERE = Path(__file__).parent
CALM = "null-run"
BUDGET_SECONDS = 60.0
"""Of a trial of a mutant: one that hangs costs no more."""
TRIALS = {"TS-CNF-108": 5, "TS-CNF-109": 2, "TS-CNF-113": 2}
"""Trials of scenarios that a lie need not fail at every moment."""


@dataclass(frozen=True)
class Score:
    """What became of one mutant."""

    mutant: Mutant
    failed: dict[str, str]
    """Requirements that it failed, each with the first message."""
    not_run: dict[str, str] = field(default_factory=dict)
    """Requirements that this machine cannot test, each with the reason; they are no failures."""

    @property
    def is_caught(self) -> bool:
        """Whether the requirement that it breaks is among them."""
        return self.mutant.requirement in self.failed

    @property
    def survives(self) -> bool:
        """Whether its own requirement was tested, and not failed."""
        return not self.is_caught and self.mutant.requirement not in self.not_run

    @property
    def unexplained(self) -> list[str]:
        """Requirements that it failed beside, without a reason."""
        return sorted(self.failed.keys() - {self.mutant.requirement} - self.mutant.also.keys())


def descriptor(one: Mutant) -> StackDescriptor:
    """The descriptor of a mutant."""
    stack = read(HERE / "mutant.yaml", StackDescriptor)
    named = {
        key: tuple(argument.replace("{name}", one.name) for argument in getattr(stack.launch, key) or ())
        for key in ("train", "probe")
    }
    return msgspec.structs.replace(stack, launch=msgspec.structs.replace(stack.launch, **named))


def score(one: Mutant, out: Path, *, everything: bool) -> Score:
    """Run a mutant."""
    chosen = [
        msgspec.structs.replace(scenario, budget_seconds=min(scenario.budget_seconds, BUDGET_SECONDS))
        for scenario in all_scenarios().values()
        if everything or scenario.requirement == one.requirement or scenario.metadata.name == CALM
    ]
    results: list[ScenarioResult] = []
    for scenario in chosen:
        results += _run(one, scenario, out)
    not_run = {r.scenario.requirement: r.reason for r in results if r.state == "unsupported"}
    failed = {r.scenario.requirement: _first(r) for r in results if r.state not in {"pass", "unsupported"}}
    return Score(one, failed, not_run)


def _run(one: Mutant, scenario: Scenario, out: Path) -> list[ScenarioResult]:
    trials = TRIALS.get(scenario.requirement, 1)
    directory = out / one.name / scenario.metadata.name
    return run_suite(Order(descriptor(one), HERE, directory, [scenario], num_trials=trials))


def _first(result: ScenarioResult) -> str:
    messages = [
        f"{judged.check}: {message}"
        for trial in result.trials
        for judged in trial.judged
        for message in judged.messages
    ]
    return (messages or [result.reason])[0]


def table(scores: Sequence[Score]) -> str:
    """One line for each mutant."""
    lines = []
    for one in scores:
        verdict = "SURVIVED" if one.survives else "caught" if one.is_caught else "not run"
        message = {**one.not_run, **one.failed}.get(one.mutant.requirement, "")
        lines.append(f"{verdict:<9} {one.mutant.requirement} {one.mutant.name:<22} {message[:110]}")
        lines += [
            f"          beside it, without a reason: {name}: {one.failed[name][:110]}" for name in one.unexplained
        ]
    caught = sum(one.is_caught for one in scores)
    return "\n".join([*lines, f"{caught} of {len(scores)} mutants caught by the requirement that they break"])


def main() -> int:
    """Run the mutants, and say which survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="every scenario, and not the mutant's own alone")
    parser.add_argument("--out", type=Path, help="keep all that was written, in this directory")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0))), help="mutants at once")
    arguments = parser.parse_args()
    known = all_mutants()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        print(f"there is no mutant {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [one for one in known.values() if not arguments.names or one.name in arguments.names]
    # Two threads that read documents of one type for the first time crash msgspec: read all types once before.
    all_scenarios()
    descriptor(chosen[0])
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(arguments.jobs) as pool:
        out = arguments.out or Path(temporary)
        scores = list(pool.map(lambda one: score(one, out, everything=arguments.all), chosen))
    print(table(scores))
    return 1 if any(one.survives or one.unexplained for one in scores) else 0


if __name__ == "__main__":
    sys.exit(main())
