"""Runs mutants through scenarios: each must fail its own requirement, and no other without a reason.

`python conformance/mutants/score.py [--all] [--share I/N] [--out DIRECTORY] [NAME ...]` prints a table and exits 1 when
one survives. A mutant meets its own scenario and a run to which nothing is done. With `--all` it also meets every
other scenario that can distinguish it from the stack without its mutation. For that, the unmutated stack first runs
through all scenarios, and it must pass them: a scenario in which it enters no function that a mutant replaces is not
run with this mutant, nor a scenario that the mutant may fail with a reason. The last lines say how many runs are left
out; `--unreached` runs them nonetheless. A scenario that fails without a reason while several mutants run at once is
run again when all others have ended, because they may have delayed it; a mutant that survives is not run again.

With `--out` results are kept, a file for each stack, and an interrupted run can continue; once all shares have run
into one directory, the same command without `--share` prints the table of all of them and runs nothing again but the
failures without a reason. To have a mutant run again, delete its file; where a source has changed since, its results
do not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from honest import honest_reach
from outcomes import read as read_results
from outcomes import sources_digest
from reach import Reach
from registry import HONEST, Mutant, all_mutants
from runs import Runs, descriptor
from shares import CALM, Share, ordered
from trainspec_conformance.reading import all_scenarios

from trainspec_validate.documents.types.scenario import Scenario

RESULTS = "results"
"""Directory of the files of results, below the one that the command line names."""


@dataclass(frozen=True)
class Score:
    """Results of one mutant."""

    mutant: Mutant
    failed: dict[str, str]
    """Requirements that it failed, each with the first message."""
    not_run: dict[str, str] = field(default_factory=dict)
    """Requirements that this machine cannot test, each with the reason; they are no failures."""
    num_left_out: int = 0
    """Scenarios that were not run, because they cannot reach its defect."""

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
        """Further requirements that it failed, without a reason."""
        return sorted(self.failed.keys() - {self.mutant.requirement} - self.mutant.also.keys())


def chosen_for(one: Mutant, reach: Reach | None, *, everything: bool) -> list[Scenario]:
    """Scenarios that a mutant is to run through, in order.

    Args:
        one: the mutant.
        reach: by which scenarios are left out that cannot reach its defect; None leaves none out.
        everything: whether it is to meet others than its own and the calm run.
    """
    return [
        scenario
        for scenario in ordered(one, all_scenarios().values())
        if scenario.requirement == one.requirement
        or scenario.metadata.name == CALM
        or (everything and (reach is None or _can_tell(one, scenario, reach)))
    ]


def _can_tell(one: Mutant, scenario: Scenario, reach: Reach) -> bool:
    """Whether something would be learnt: the scenario may meet the lie, and there is no reason to fail it."""
    return scenario.requirement not in one.also and reach.meets(one, scenario.metadata.name)


def score(one: Mutant, out: Path, chosen: Sequence[Scenario]) -> Score:
    """Run a mutant through what it has not met yet."""
    kept = read_results(out / RESULTS, one.name)
    runs = Runs(one, out)
    for scenario in chosen:
        if scenario.metadata.name not in kept.outcomes:
            kept.outcomes[scenario.metadata.name] = runs.outcome(scenario)
            kept.write(out / RESULTS)
    runs.close()
    found = [(scenario.requirement, kept.outcomes[scenario.metadata.name]) for scenario in chosen]
    not_run = {name: outcome.message for name, outcome in found if outcome.state == "unsupported"}
    failed = {name: outcome.message for name, outcome in found if outcome.state not in {"pass", "unsupported"}}
    return Score(one, failed, not_run)


def table(scores: Sequence[Score], reach: Reach | None = None) -> str:
    """One line for each mutant, and the problems of the stack without a defect."""
    lines = []
    for one in scores:
        verdict = "SURVIVED" if one.survives else "caught" if one.is_caught else "not run"
        message = {**one.not_run, **one.failed}.get(one.mutant.requirement, "")
        lines.append(f"{verdict:<9} {one.mutant.requirement} {one.mutant.name:<22} {message[:110]}")
        lines += [
            f"          in addition, without a reason: {name}: {one.failed[name][:110]}" for name in one.unexplained
        ]
    caught = sum(one.is_caught for one in scores)
    lines.append(f"{caught} of {len(scores)} mutants caught by the requirement that they break")
    if reach is not None:
        num_left_out, num_all = sum(one.num_left_out for one in scores), len(scores) * len(all_scenarios())
        lines.append(f"{num_left_out} of {num_all} runs left out: they never enter what is replaced, or may fail")
        lines += [f"FAILED by the stack without a defect: {name}: {why[:110]}" for name, why in reach.failed.items()]
    return "\n".join(lines)


def main() -> int:
    """Run the mutants, and say which survive."""
    arguments = _arguments()
    known = all_mutants()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        print(f"there is no mutant {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = arguments.share.of(one for one in known.values() if not arguments.names or one.name in arguments.names)
    # Two threads that read documents of one type for the first time crash msgspec: read all types once before.
    scenarios = list(all_scenarios().values())
    sources_digest()
    descriptor(HONEST)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(arguments.jobs) as pool:
        out = arguments.out or Path(temporary)
        reach = honest_reach(known.values(), scenarios, out, out / RESULTS, pool) if arguments.all and chosen else None
        scores = list(pool.map(lambda one: _score(one, out, reach, arguments), chosen))
        repeated = sum(len(one.unexplained) for one in scores) if arguments.jobs > 1 else 0
        if repeated:
            scores = [_alone(one, out, reach, arguments) if one.unexplained else one for one in scores]
    print(table(scores, reach))
    if repeated:
        print(f"{repeated} runs failed without a reason while others ran, and were repeated alone")
    return 1 if any(one.survives or one.unexplained for one in scores) or (reach and reach.failed) else 0


def _score(one: Mutant, out: Path, reach: Reach | None, arguments: argparse.Namespace) -> Score:
    met = chosen_for(one, None if arguments.unreached else reach, everything=arguments.all)
    return replace(score(one, out, met), num_left_out=len(all_scenarios()) - len(met))


def _alone(one: Score, out: Path, reach: Reach | None, arguments: argparse.Namespace) -> Score:
    """Run again what was failed without a reason; a mutant that survives gets no second chance."""
    kept = read_results(out / RESULTS, one.mutant.name)
    for name, scenario in all_scenarios().items():
        if scenario.requirement in one.unexplained:
            kept.outcomes.pop(name, None)
    kept.write(out / RESULTS)
    return _score(one.mutant, out, reach, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; all where none is named")
    parser.add_argument("--all", action="store_true", help="every scenario, and not the mutant's own alone")
    parser.add_argument("--unreached", action="store_true", help="with --all: leave no scenario out")
    parser.add_argument("--share", type=Share.parse, default=Share(), metavar="I/N", help="one part of the mutants")
    parser.add_argument("--out", type=Path, help="keep results and files of failing runs here; continue from them")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0))), help="mutants at once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
