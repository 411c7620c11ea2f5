"""Makes the report of a suite from its results, with the evidence that they rest on."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil

from trainspec_conformance.described import DIRECTORY
from trainspec_conformance.drawing import num_kinds
from trainspec_conformance.figures import figures, marks
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import Judged
from trainspec_conformance.reading import all_scenarios, present_names
from trainspec_conformance.suite import ScenarioResult, TrialResult, num_trials
from trainspec_conformance.trial import HISTORY
from trainspec_conformance.view import View
from trainspec_validate import __version__
from trainspec_validate.documents.types.conformance import Claims, ConformanceLevel, StackDescriptor
from trainspec_validate.documents.types.conformance_report import (
    CheckVerdict,
    ConformanceReport,
    Evidence,
    Machine,
    ReportNode,
    ScenarioReport,
    TrialReport,
)
from trainspec_validate.documents.types.scenario import Scenario, Start
from trainspec_validate.model.requirements import DATA_DIRECTORY, load_index
from trainspec_validate.system.neutral import neutral, printable

LEVELS: tuple[ConformanceLevel, ...] = ("described", "observable", "recoverable", "efficient")
MAX_TEXT = 4000
MAX_MESSAGES = 50


@dataclass(frozen=True)
class Circumstances:
    """Fields of a report other than verdicts."""

    out: Path
    command: Sequence[str]
    versions: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    """Reasons of declared gaps, by requirement."""
    documents: tuple[str, ...] = ()
    """Copies of the stack's documents, below the directory of the report."""
    document_errors: tuple[str, ...] = ()
    nodes: tuple[ReportNode, ...] = ()


def requirements_digest() -> str:
    """Digest of the index of requirements that this version judges by."""
    return hashlib.sha256((DATA_DIRECTORY / "requirements.json").read_bytes()).hexdigest()


def make_report(stack: StackDescriptor, results: Sequence[ScenarioResult], about: Circumstances) -> ConformanceReport:
    """The report of what was run."""
    scenarios = tuple(_scenario(one, about) for one in results)
    is_described = bool(about.documents) and not about.document_errors
    level = highest_level(scenarios, stack.claims, is_described=is_described)
    return ConformanceReport(
        apiVersion="trainspec/v1",
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        specification_version=load_index().specification_version,
        requirements_sha256=requirements_digest(),
        scenarios_sha256=scenarios_digest([one.scenario for one in results]),
        suite_version=__version__,
        stack=stack,
        versions={
            printable(name)[:200] or "unnamed": printable(told) or "unknown" for name, told in about.versions.items()
        },
        machine=machine(),
        nodes=about.nodes,
        command=tuple(about.command),
        claims=stack.claims,
        documents=about.documents,
        document_errors=tuple(error[:MAX_TEXT] for error in about.document_errors),
        level=level,
        conformant=level is not None and LEVELS.index(level) >= LEVELS.index(stack.claims.level),
        scenarios=scenarios,
        evidence=tuple(evidence(about.out)),
    )


def highest_level(
    scenarios: Sequence[ScenarioReport], claims: Claims, *, is_described: bool
) -> ConformanceLevel | None:
    """The highest level of which, as of all below, every scenario of the profile passed, as often as the claim needs.

    A scenario that was not chosen, or that the stack does not support, has not passed. Below all levels of scenarios
    is the one of documents.
    """
    if not is_described:
        return None
    rare = {*too_few_trials(scenarios, claims)}
    verdicts = {one.scenario: one.verdict for one in scenarios if one.scenario not in rare}
    reached: ConformanceLevel = LEVELS[0]
    for level in LEVELS[1:]:
        needed = [
            name
            for name, one in all_scenarios().items()
            if one.level == level and (claims.profile == "full" or one.tier == "core")
        ]
        if not needed or any(verdicts.get(name) != "pass" for name in needed):
            return reached
        reached = level
    return reached


def too_few_trials(scenarios: Iterable[ScenarioReport], claims: Claims) -> Iterator[str]:
    """Names of scenarios that passed with fewer trials than the claimed share of faults needs."""
    known = all_scenarios()
    for one in scenarios:
        scenario = known.get(one.scenario)
        if scenario and one.verdict == "pass" and len(one.trials) < num_trials(claims, scenario) * num_kinds(scenario):
            yield one.scenario


def scenarios_digest(scenarios: Sequence[Scenario]) -> str:
    """Digest of scenarios as they were when they were run.

    A renamed scenario counts under its first name: another name alone changes nothing that a stack is asked for.
    """
    first: dict[str, str] = {}
    for former, present in present_names().items():
        first.setdefault(present, former)
    return hashlib.sha256(b"\n".join(msgspec.json.encode(_named(one, first)) for one in scenarios)).hexdigest()


def _named(scenario: Scenario, names: Mapping[str, str]) -> Scenario:
    name = names.get(scenario.metadata.name, scenario.metadata.name)
    return msgspec.structs.replace(scenario, metadata=msgspec.structs.replace(scenario.metadata, name=name))


def machine() -> Machine:
    """Where this process runs."""
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor() or platform.machine() or "unknown",
        num_processors=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _scenario(result: ScenarioResult, about: Circumstances) -> ScenarioReport:
    scenario = result.scenario
    controls = {one.control for one in result.trials if one.control is not None}
    gap = about.gaps.get(scenario.requirement) if result.state != "pass" else None
    trials = tuple(_trial(number, one, about.out) for number, one in enumerate(result.trials, start=1))
    return ScenarioReport(
        scenario=scenario.metadata.name,
        requirement=scenario.requirement,
        tier=scenario.tier,
        level=scenario.level,
        num_ranks=most_ranks(scenario),
        verdict=result.state,
        reason=result.reason[:MAX_TEXT] or None,
        gap=gap,
        control=next((one.relative_to(about.out).as_posix() for one in controls), None),
        figures=figures(trials),
        trials=trials,
    )


def most_ranks(scenario: Scenario) -> int:
    """Most ranks that train at once in a trial of a scenario."""
    starts = (act.num_ranks or 0 for act in scenario.acts if isinstance(act, Start))
    return max(scenario.job.num_ranks, *starts, 0)


def _trial(number: int, result: TrialResult, out: Path) -> TrialReport:
    return TrialReport(
        number=number,
        seed=result.seed,
        seconds=round(result.seconds, 3),
        directory=result.directory.relative_to(out).as_posix(),
        checks=tuple(verdict(one) for one in result.judged),
        marks=marks(View(read_history(result.directory / HISTORY))),
    )


def verdict(judged: Judged) -> CheckVerdict:
    """A check of a trial, as a report states it."""
    messages = tuple(message[:MAX_TEXT] for message in judged.messages[:MAX_MESSAGES])
    return CheckVerdict(check=judged.check, passed=judged.passed, messages=messages, places=judged.places[:200])


def evidence(out: Path) -> list[Evidence]:
    """Every history, trace, task and log below a directory, with its digest; checkpoints are too large to keep."""
    found = []
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out)
        if path.is_symlink() or not path.is_file() or not _is_evidence(name) or not _is_text(name.as_posix()):
            continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append(Evidence(path=name.as_posix(), size_bytes=path.stat().st_size, sha256=digest))
    return found


def _is_text(name: str) -> bool:
    """Whether JSON can hold the name of a file; a stack may have given it any bytes."""
    return name == name.encode("utf-8", "replace").decode()


def _is_evidence(path: Path) -> bool:
    is_told = len(path.parts) >= 2 and path.parts[-2] in {"trace", "stream"}
    if path.name == HISTORY or path.parts[0] == DIRECTORY:
        return True
    return is_told or path.name.startswith(("task-", "log-", "probe-", "answer-"))


def text(report: ConformanceReport) -> bytes:
    """A report as the JSON of its file, which can be printed into the log of a job."""
    plain: Any = {"kind": "ConformanceReport", **msgspec.to_builtins(report)}
    found = msgspec.json.format(msgspec.json.encode(plain), indent=1).decode()
    return f"{neutral(found, 'json')}\n".encode()
