"""Executes the commands of the suite's command line."""

from __future__ import annotations

import math
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainspec_conformance.controls import baseline_jobs, time_limits_seconds
from trainspec_conformance.described import errors, gather
from trainspec_conformance.diffing import as_json, as_text, read_report
from trainspec_conformance.diffing import changes as changes_of_reports
from trainspec_conformance.drawing import num_kinds
from trainspec_conformance.durations import baseline_seconds, expected_seconds
from trainspec_conformance.formats import write_all
from trainspec_conformance.gaps import Gaps, read_gaps, uncovered
from trainspec_conformance.launching import require_programs, versions
from trainspec_conformance.node_hosts import NEEDED
from trainspec_conformance.nodes import NodeError, Nodes
from trainspec_conformance.processes import new_mark
from trainspec_conformance.reading import REPORT, DocumentError, all_scenarios, present_names, read, wrong
from trainspec_conformance.replaying import text as replay_text
from trainspec_conformance.replaying.replay import replay as replay_runs
from trainspec_conformance.reporting import (
    Circumstances,
    make_report,
    requirements_digest,
    scenarios_digest,
    text,
)
from trainspec_conformance.resuming import UNFINISHED, Unfinished, changes, digests, keep, read_unfinished
from trainspec_conformance.starting import write_templates
from trainspec_conformance.suite import Order, lacking, num_trials, run_suite
from trainspec_conformance.summary import show
from trainspec_conformance.trial import time_limit_seconds
from trainspec_conformance.verifying import differences, not_looked_at
from trainspec_validate.checking.suppress.common import is_below
from trainspec_validate.cli import terminal
from trainspec_validate.cli.settings_file import changed
from trainspec_validate.cli.target import of_target
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.conformance_report import ConformanceReport
from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.model.suggest import did_you_mean
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.boundary import InputError, reason_of
from trainspec_validate.system.repository import original_of

OK, FOUND, WRONG_USE, OUR_FAULT = 0, 1, 2, 3
PROGRAM = "trainspec-conformance"
_MAX_NAMED = 4


class ChangedError(Exception):
    """The run to continue differs from the run that began."""


@dataclass(frozen=True)
class RunRequest:
    """Options of `run`."""

    stack: Path
    out: Path
    names: Sequence[str] = ()
    profile: str | None = None
    trials: int | None = None
    seed: int = 0
    gaps: Path | None = None
    settings_from: Path | None = None
    dry_run: bool = False
    start_seconds: float | None = None
    """Time of one start of the stack, for a dry run."""
    command: Sequence[str] = ()
    over: str | None = None
    """Way to the nodes; None where ranks run here."""
    nodes: Sequence[str] = ()
    """Expressions of their names."""
    resumed: Unfinished | None = None
    """Options of the run that continues here; None where it begins."""
    asked_gaps: Path | None = None
    """File of gaps as it was named, where `gaps` is that of another tree."""


def run(request: RunRequest) -> int:
    """Run scenarios, write the report, and give the exit code."""
    if request.gaps is not None and request.settings_from is not None:
        gaps_file = of_target("--gaps", os.fspath(request.gaps), os.fspath(request.settings_from))
        found = None if gaps_file is None else Path(gaps_file)
        request = replace(request, gaps=found, asked_gaps=request.gaps)
    try:
        stack = read(request.stack, StackDescriptor)
        chosen = _chosen(request, stack)
        gaps = read_gaps(request.gaps, request.stack, settings_from=request.settings_from)
    except DocumentError as error:
        return _refuse(str(error))
    except KeyError as error:
        return _refuse(error.args[0])
    if request.settings_from is not None:
        _tell_change(request.gaps, request.settings_from)
    if request.dry_run:
        _tell_plan(request, stack, chosen)
        return OK
    if request.resumed is None and request.out.exists() and any(request.out.iterdir()):
        return _refuse(f"{request.out}: the directory is not empty; name a new one")
    try:
        require_programs(request.stack, stack)
        with _nodes(request, stack) as nodes:
            report = _measure(request, stack, chosen, gaps, nodes)
    except (DocumentError, ChangedError, InputError, NodeError) as error:
        return _refuse(str(error))
    show(report)
    verdicts = {one.requirement: one.verdict for one in report.scenarios}
    complaints = gaps.complaints(verdicts)
    for complaint in complaints:
        terminal.say(f"{request.gaps}: {complaint}")
    verdict = "conformant" if report.conformant else "not conformant"
    path = request.out.resolve() / REPORT
    terminal.say(f"level: {report.level or 'none'}, {verdict} to the claim {stack.claims.level}; {path}")
    if "error" in verdicts.values():
        return OUR_FAULT
    return FOUND if complaints or uncovered(gaps.reasons, verdicts) else OK


def _tell_plan(request: RunRequest, stack: StackDescriptor, chosen: Sequence[Scenario]) -> None:
    """Say how many trials each scenario has, and when all of them would be ended at the latest."""
    can_run, num_run, limit_seconds, expected = [], 0, 0.0, 0.0
    for scenario in chosen:
        missing = lacking(stack, scenario)
        count = (request.trials or num_trials(stack.claims, scenario)) * num_kinds(scenario)
        terminal.say(f"{scenario.requirement} {scenario.metadata.name}: {missing or _counted(count, 'trial')}")
        if not missing:
            can_run.append(scenario)
            num_run += count
            limit_seconds += count * time_limit_seconds(stack, scenario)
            expected += count * expected_seconds(stack, scenario, request.start_seconds or 0.0)
    controls = time_limits_seconds(stack, can_run, request.seed)
    runs = f"{_counted(num_run, 'trial')} and {_counted(len(controls), 'baseline run')}"
    limit = _hours(limit_seconds + sum(controls))
    terminal.say(f"{runs}; their time limits are {limit} in all, one after the other")
    if request.start_seconds is not None:
        jobs = baseline_jobs(can_run, request.seed)
        took = _hours(expected + baseline_seconds(jobs, request.start_seconds))
        terminal.say(f"with {request.start_seconds:g} s from each start to the first step, they take about {took}")


def _hours(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def _counted(amount: int, noun: str) -> str:
    return f"{amount} {noun}{'' if amount == 1 else 's'}"


def _tell_change(gaps: Path | None, tree: Path) -> None:
    """Say that the gaps of the working directory do not count, where they differ from those of `tree`."""
    if gaps is None or not is_below(os.fspath(gaps), os.fspath(tree)):
        return
    for name in changed(tree, original_of(tree), [os.path.relpath(gaps, tree)], nearest=False):
        terminal.tell(f"Note: {name} differs between the working directory and {tree}; this run uses {tree}")


@contextmanager
def _nodes(request: RunRequest, stack: StackDescriptor) -> Iterator[Nodes | None]:
    """The nodes of a run, each with its agent, which has ended at the end.

    Raises:
        DocumentError: the stack cannot place its ranks.
        InputError: a node has no usable name, or lacks the files of the run.
        NodeError: a node does not answer.
    """
    if request.over is None:
        yield None
        return
    if NEEDED not in stack.capabilities:
        message = f"capabilities: --over requires {NEEDED}: ranks run on the hosts of the task"
        raise wrong(request.stack, ("capabilities",), message)
    nodes = Nodes(request.nodes, request.over)
    try:
        nodes.open()
        nodes.require_shared(request.stack.resolve())
        request.out.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=request.out.resolve(), prefix="shared-", suffix=".txt") as file:
            file.write(new_mark())
            file.flush()
            nodes.require_shared(Path(file.name))
        yield nodes
    finally:
        nodes.close()


def _measure(
    request: RunRequest, stack: StackDescriptor, chosen: Sequence[Scenario], gaps: Gaps, nodes: Nodes | None
) -> ConformanceReport:
    """Run the scenarios, and write the report in all its forms."""
    base = request.stack.resolve().parent
    out = request.out.resolve()
    documents = gather(request.stack, stack, out)
    found = versions(stack, base)
    on_nodes = nodes.for_report() if nodes is not None else ()
    about = Circumstances(out, request.command, found, gaps.reasons, documents, errors(out, documents), on_nodes)
    _begin(request, stack, chosen, found)
    is_resumed = request.resumed is not None
    order = Order(
        stack, base, out, chosen, request.seed, request.trials, told=terminal.say, is_resumed=is_resumed, nodes=nodes
    )
    try:
        run_suite(order)
    except KeyboardInterrupt:
        _write(make_report(stack, order.results, about), out)
        terminal.say(f"interrupted; {out / REPORT} has what was run")
        terminal.say(f"continue with: {PROGRAM} resume {shlex.quote(os.fspath(out))}")
        raise
    report = make_report(stack, order.results, about)
    _write(report, out)
    (out / UNFINISHED).unlink()
    return report


def _begin(request: RunRequest, stack: StackDescriptor, chosen: Sequence[Scenario], found: dict[str, str]) -> None:
    """Keep what was asked for until the run has ended; what continues has to be what began.

    Raises:
        ChangedError: the stack or the suite is another one by now.
    """
    now = digests(stack, scenarios_digest(chosen), requirements_digest())
    if request.resumed is not None:
        if other := changes(request.resumed, now, found):
            raise ChangedError(f"{request.out}: other than when the run began: {', '.join(other)}; begin a new run")
        return
    kept = Unfinished(
        directory=os.fspath(Path.cwd()),
        stack=os.fspath(request.stack),
        names=tuple(request.names),
        profile=request.profile,
        trials=request.trials,
        seed=request.seed,
        gaps=None if (asked := request.asked_gaps or request.gaps) is None else os.fspath(asked),
        settings_from=None if request.settings_from is None else os.fspath(request.settings_from),
        over=request.over,
        nodes=tuple(request.nodes),
        command=tuple(request.command),
        digests=now,
        versions=found,
    )
    keep(request.out.resolve(), kept)


def _write(report: ConformanceReport, out: Path) -> None:
    """Write a report in all its forms."""
    write_atomically(out / REPORT, text(report))
    write_all(report, out)


def resume(directory: Path) -> int:
    """Continue a run that was interrupted, and give the exit code."""
    try:
        before = read_unfinished(directory)
    except (OSError, ValueError) as error:
        return _refuse(str(error))
    asked = RunRequest(
        stack=Path(before.stack),
        out=directory.resolve(),
        names=before.names,
        profile=before.profile,
        trials=before.trials,
        seed=before.seed,
        gaps=None if before.gaps is None else Path(before.gaps),
        settings_from=None if before.settings_from is None else Path(before.settings_from),
        over=before.over,
        nodes=before.nodes,
        command=before.command,
        resumed=before,
    )
    try:
        with chdir(before.directory):
            return run(asked)
    except FileNotFoundError as error:
        if error.filename != before.directory:
            raise
        return _refuse(f"{before.directory}: the directory that the run began in is gone")


def _chosen(request: RunRequest, stack: StackDescriptor) -> list[Scenario]:
    known = all_scenarios()
    names = {present_names().get(name, name) for name in request.names}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise KeyError(f"unknown scenario {name!r}" + (f"; {hint}" if hint else ""))
    if names:
        return [known[name] for name in known if name in names]
    profile = request.profile or stack.claims.profile
    return [one for one in known.values() if profile == "full" or one.tier == "core"]


def show_scenarios() -> None:
    """Print every scenario with its requirement, its tier and what it needs."""
    for name, one in all_scenarios().items():
        terminal.say(f"{one.requirement} {one.tier:<8} {one.level:<12} {name}: {one.metadata.description}")


def verify(directory: Path) -> int:
    """Judge a report again from its evidence, and give the exit code."""
    try:
        found = list(differences(directory))
        others = list(not_looked_at(directory))
    except OSError as error:
        return _refuse(_of_storage(error, directory))
    except (DocumentError, ValueError) as error:
        return _refuse(str(error))
    for line in found:
        terminal.say(line)
    if others:
        more = f" and {len(others) - _MAX_NAMED:,} more" if len(others) > _MAX_NAMED else ""
        terminal.say(f"not looked at, as the report does not name them: {', '.join(others[:_MAX_NAMED])}{more}")
    if not found:
        terminal.say("the evidence bears the report out")
    return FOUND if found else OK


def init(directory: Path) -> int:
    """Write a descriptor and a shim to begin with, and give the exit code."""
    try:
        paths = write_templates(directory)
    except OSError as error:
        return _refuse(_of_storage(error, directory))
    for path in paths:
        terminal.say(f"wrote {path}")
    out = directory / "report"
    terminal.say(f"try: trainspec-conformance run {paths[0]} --scenario null-run --trials 1 --report {out}")
    return OK


def diff(before: Path, after: Path, form: str) -> int:
    """Print the differences between two reports, and give the exit code."""
    try:
        found = changes_of_reports(read_report(before), read_report(after))
    except DocumentError as error:
        return _refuse(str(error))
    if form == "json":
        terminal.emit(as_json(found) + "\n", "json")
    else:
        terminal.emit(as_text(found) + "\n")
    return FOUND if any(one.is_worse for one in found) else OK


def replay(paths: Sequence[str], stack: Path | None, form: str) -> int:
    """Judge the incidents of production runs, and give the exit code."""
    try:
        descriptor = read(stack, StackDescriptor) if stack is not None else None
        found = replay_runs(paths, descriptor)
    except DocumentError as error:
        return _refuse(str(error))
    except InputError as error:
        return _refuse("\n".join(map(str, error.args)))
    if form == "json":
        terminal.emit(replay_text.as_json(found), "json")
    else:
        for line in replay_text.as_lines(found):
            terminal.say(line)
    for line in replay_text.complaints(found):
        terminal.tell(f"{PROGRAM}: {line}")
    if "error" in found.verdicts:
        return OUR_FAULT
    if found.failures:
        return WRONG_USE
    if "fail" in found.verdicts:
        return FOUND
    return WRONG_USE if found.is_unjudged else OK


def _of_storage(error: OSError, directory: Path) -> str:
    """What the storage says of a file, or of something in a directory."""
    return f"{error.filename or directory}: {reason_of(error)}"


def _refuse(message: str) -> int:
    for line in message.split("\n"):
        terminal.tell(f"{PROGRAM}: {line}")
    return WRONG_USE
