"""Reports that tests of their forms share: made by hand, with texts of a stack that wants to be markup."""

from __future__ import annotations

from conformance_stacks import fake
from trainspec_conformance.figures import figures

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.conformance_report import (
    CheckVerdict,
    ConformanceReport,
    Evidence,
    Machine,
    Mark,
    ScenarioReport,
    TrialReport,
)

COMMANDS = "##[error]a##vso[b]##teamcity[c"
HOSTILE = "</style></title><script>alert(1)</script>\x1b[31m\u202e\"'&<img src=x onerror=alert(1)>]]>" + COMMANDS
DIGEST = "0" * 64


def trial(number: int = 1, *, failed: str = "", seconds: float | None = 0.5) -> TrialReport:
    """A trial of which one check fails with a text, or none; recovery took so long, or never ended."""
    places = ("out/trace/rank-0.jsonl:7", "history.jsonl:3") if failed else ()
    check = CheckVerdict(check="completes", passed=not failed, messages=(failed,) if failed else (), places=places)
    marks = [Mark(name="detected", seconds=0.25)]
    if seconds is not None:
        marks.append(Mark(name="first-step", seconds=seconds))
    return TrialReport(
        number=number, seed=number, seconds=2.0, directory=f"x/trial-{number}", checks=(check,), marks=tuple(marks)
    )


def scenario_report(name: str, verdict: str = "pass", *trials: TrialReport, **more: object) -> ScenarioReport:
    """A scenario with a verdict."""
    requirement = {"kill-rank": "TS-CNF-101", "null-run": "TS-CNF-130"}.get(name, "TS-CNF-999")
    fixed = {"requirement": requirement, "tier": "core", "level": "recoverable"}
    found = ScenarioReport(scenario=name, verdict=verdict, trials=trials, **{**fixed, **more})  # type: ignore[arg-type]
    return changed(found, figures=figures(trials))


def report(*scenarios: ScenarioReport, **more: object) -> ConformanceReport:
    """A report of those."""
    fixed = {
        "created": "2026-01-02T03:04:05Z",
        "specification_version": "1.0",
        "requirements_sha256": DIGEST,
        "scenarios_sha256": DIGEST,
        "suite_version": "1.2.3",
        "machine": Machine(system="Linux", processor="x", num_processors=2, memory_bytes=2**30),
        "command": ("trainspec-conformance run x",),
        "conformant": False,
        "evidence": (Evidence(path="x/trial-1/history.jsonl", size_bytes=1, sha256=DIGEST),),
    }
    stack = fake()
    values = {"apiVersion": "trainspec/v1", "stack": stack, "claims": stack.claims, **fixed, **more}
    return ConformanceReport(scenarios=scenarios, **values)  # type: ignore[arg-type]


def hostile() -> ConformanceReport:
    """A report in which everything that a stack says is markup."""
    stack = fake()
    named = changed(stack.metadata, name=HOSTILE, description=HOSTILE)
    stack = changed(stack, metadata=named, modifications=(HOSTILE,))
    bad = scenario_report("kill-rank", "fail", trial(failed=HOSTILE), reason=HOSTILE, gap=HOSTILE)
    odd = scenario_report(HOSTILE, "unsupported", reason=HOSTILE)
    files = (Evidence(path="x/trial-1/javascript:alert(1)\"'><b>.jsonl", size_bytes=1, sha256=DIGEST),)
    return report(bad, odd, stack=stack, versions={HOSTILE: HOSTILE}, command=(HOSTILE,), evidence=files)
