"""Judges a report again, from its evidence alone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from trainspec_conformance.described import DIRECTORY, errors
from trainspec_conformance.drawing import drawn, run_seed, trial_seed
from trainspec_conformance.figures import figures, marks
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import judge_trial
from trainspec_conformance.reading import REPORT, all_scenarios, report_below, with_present_names
from trainspec_conformance.records import Entry
from trainspec_conformance.reporting import (
    LEVELS,
    highest_level,
    most_ranks,
    requirements_digest,
    scenarios_digest,
    verdict,
)
from trainspec_conformance.trial import HISTORY
from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance_report import ConformanceReport, ScenarioReport
from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.model.units import counted
from trainspec_validate.system.budget import Count, Limit, OverLimitError

_MOST_FILES = 1_000_000
EVIDENCE_BYTES = Limit("the evidence of a report", 256 * 1024**3, "bytes")


def differences(directory: Path) -> Iterator[str]:
    """Statements of a report that its evidence does not confirm; empty where all hold.

    Raises:
        DocumentError: the report cannot be read.
        ValueError: a history cannot be read.
    """
    report = with_present_names(report_below(directory))
    known = all_scenarios()
    absent = [one.scenario for one in report.scenarios if one.scenario not in known]
    if absent:
        yield f"this version of the suite has no scenario {', '.join(absent)}"
        return
    if scenarios_digest([known[one.scenario] for one in report.scenarios]) != report.scenarios_sha256:
        yield "the scenarios of this version of the suite differ from the scenarios of the report"
    if requirements_digest() != report.requirements_sha256:
        yield "the requirements of this version of the specification differ from the requirements of the report"
    yield from _files(directory, report)
    yield from _repeated(report)
    judged: set[str] = set()
    for one in report.scenarios:
        if one.scenario in judged:
            yield f"{one.scenario}: the report names the scenario twice; the second is not judged"
            continue
        judged.add(one.scenario)
        yield from _scenario(directory, report, one)
    yield from _documents(directory, report)
    is_described = bool(report.documents) and not report.document_errors
    level = highest_level(report.scenarios, report.claims, is_described=is_described)
    if level != report.level:
        yield f"the verdicts bear out the level {level}, the report says {report.level}"
    conformant = level is not None and LEVELS.index(level) >= LEVELS.index(report.claims.level)
    if conformant != report.conformant:
        yield f"the report says conformant={report.conformant}, its verdicts {conformant}"
    if report.claims != report.stack.claims:
        yield "the judged claims differ from the claims of the stack"


def not_looked_at(directory: Path) -> Iterator[str]:
    """Names of what is below the directory of a report and no evidence of it; links are named and not followed.

    Raises:
        DocumentError: the report cannot be read.
    """
    listed = {REPORT, *(evidence.path for evidence in report_below(directory).evidence)}
    num_seen, pending = 0, [directory]
    while pending:
        parent = pending.pop()
        try:
            entries = sorted(os.scandir(parent), key=lambda entry: entry.name)
        except OSError:
            yield parent.relative_to(directory).as_posix()
            continue
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]:
            num_seen += 1
            if num_seen > _MOST_FILES:
                yield f"all files after the first {_MOST_FILES:,}"
                return
            path = Path(parent, name).relative_to(directory).as_posix()
            if path not in listed:
                yield path
        pending += [parent / name for name in reversed(folders)]


def _files(directory: Path, report: ConformanceReport) -> Iterator[str]:
    num_bytes, seen = Count(EVIDENCE_BYTES), set()
    for one in report.evidence:
        if one.path in seen:
            yield f"{one.path}: the report names the file twice"
            continue
        seen.add(one.path)
        path = _below(directory, one.path)
        if path is None:
            yield f"{one.path}: the file is missing"
            continue
        if path.stat().st_size != one.size_bytes:
            yield f"{one.path}: the file has changed since the report: it has another size"
            continue
        try:
            num_bytes.add(one.size_bytes)
        except OverLimitError as error:
            raise ValueError(f"{path}: {error}") from error
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != one.sha256:
            yield f"{one.path}: the file has changed since the report"


def _repeated(report: ConformanceReport) -> Iterator[str]:
    """Trials that are one trial: of two that ran, no history is the same to the microsecond."""
    digests = {evidence.path: evidence.sha256 for evidence in report.evidence}
    controls = {one.control for one in report.scenarios if one.control is not None}
    first: dict[str, str] = {digests.get(f"{name}/{HISTORY}", name): name for name in sorted(controls)}
    for one in report.scenarios:
        if [trial.number for trial in one.trials] != [*range(1, len(one.trials) + 1)]:
            yield f"{one.scenario}: the trials are not numbered 1 to {len(one.trials)}"
        if len({trial.seed for trial in one.trials}) != len(one.trials):
            yield f"{one.scenario}: two trials have one seed"
        for trial in one.trials:
            name = f"{trial.directory}/{HISTORY}"
            before = first.setdefault(digests.get(name, name), trial.directory)
            if before != trial.directory or trial.directory in controls:
                yield f"{one.scenario}, trial {trial.number}: its history is that of {before}"
        directories = [trial.directory for trial in one.trials]
        if len(set(directories)) != len(directories):
            amount = counted(len(directories), "trial")
            yield f"{one.scenario}: {amount} name {counted(len(set(directories)), 'directory')}"


def _documents(directory: Path, report: ConformanceReport) -> Iterator[str]:
    listed = {evidence.path for evidence in report.evidence}
    absent = [name for name in report.documents if name not in listed or not _is_copy(directory, name)]
    if absent:
        yield f"documents that are not among the evidence: {', '.join(absent)}"
    elif len(report.documents) != len(report.stack.documents):
        yield "the documents differ from the documents that the stack names"
    elif errors(directory, report.documents) != report.document_errors:
        yield "judged again, the documents have other errors"


def _is_copy(directory: Path, name: str) -> bool:
    path = _below(directory, name)
    return path is not None and PurePosixPath(name).parts[0] == DIRECTORY


def _below(directory: Path, name: str) -> Path | None:
    """The file of a path of a report; None where there is none below the directory, also through a link."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        return None
    path = directory / pure
    if not os.path.isfile(path):  # noqa: PTH113 - raises for a name that is too long or that no file can have
        return None
    return path if path.resolve().is_relative_to(directory.resolve()) else None


def _facts(one: ScenarioReport, scenario: Scenario) -> Iterator[str]:
    if (one.requirement, one.tier, one.level) != (scenario.requirement, scenario.tier, scenario.level):
        yield f"{one.scenario}: requirement, tier or level differ from the scenario's"
    if one.num_ranks not in {None, most_ranks(scenario)}:
        amount = counted(one.num_ranks, "rank")
        yield f"{one.scenario}: the report says {amount}, the scenario has {most_ranks(scenario)}"


def _scenario(directory: Path, report: ConformanceReport, one: ScenarioReport) -> Iterator[str]:
    scenario = all_scenarios()[one.scenario]
    listed = {evidence.path for evidence in report.evidence}
    yield from _facts(one, scenario)
    control = f"{one.control}/{HISTORY}" if one.control is not None else None
    calm: list[Entry] | None = None
    first = {trial.directory: trial for trial in reversed(one.trials)}  # a second one of a directory is told elsewhere
    for trial in reversed(first.values()):
        history = f"{trial.directory}/{HISTORY}"
        for name in filter(None, (history, control)):
            if name not in listed or _below(directory, name) is None:
                yield f"{one.scenario}: the history {name} is not among the evidence"
                return
        entries = read_history(directory / history)
        if control and calm is None:
            calm = read_history(directory / control)
        seed = run_seed(trial.seed)
        if trial.seed != trial_seed(seed, trial.number):
            yield f"{one.scenario}, trial {trial.number}: its seed is not the seed of a trial with this number"
        as_run = drawn(scenario, seed, trial.number)
        again = tuple(verdict(judged) for judged in judge_trial(report.stack, as_run, entries, calm))
        if again != trial.checks:
            names = sorted({mine.check for mine in {*again} ^ {*trial.checks}})
            yield f"{one.scenario}, trial {trial.number}: judged again, {', '.join(names)} differ"
        if marks(View(entries)) != trial.marks:
            yield f"{one.scenario}, trial {trial.number}: measured again, the moments differ"
    if figures(one.trials) != one.figures:
        yield f"{one.scenario}: the figures differ from the figures of its trials"
    if one.verdict == "pass" and not (one.trials and all(c.passed for t in one.trials for c in t.checks)):
        yield f"{one.scenario}: the verdict is pass, but not every check of a trial passed"
    if one.verdict == "fail" and all(c.passed for t in one.trials for c in t.checks):
        yield f"{one.scenario}: the verdict is fail, but every check passed"
