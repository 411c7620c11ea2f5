"""Counts a report, and the only one that says in words what the counts mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from trainspec_validate.checking.selection import NOT_READ
from trainspec_validate.model.finding import Report, Severity, SuppressionKind, Verdict
from trainspec_validate.report import left_out
from trainspec_validate.report.unjudged import in_summary

JUDGED = (Verdict.PASS, Verdict.FAIL, Verdict.WARN)
_WORDS = {
    Verdict.PASS: "passed",
    Verdict.ERROR: "not judged because of an internal error",
    Verdict.NOT_APPLICABLE: "not applicable",
    Verdict.UNSUPPORTED: "declared unsupported",
    Verdict.NOT_RUN: "not run",
}


def severities(report: Report) -> dict[Severity, int]:
    """Findings by severity, heaviest first."""
    counts = Counter(finding.severity for finding in report.findings)
    return {severity: counts[severity] for severity in Severity}


def suppressions(report: Report) -> dict[SuppressionKind, int]:
    """Suppressed findings by what silenced them."""
    counts = Counter(entry.kind for entry in report.suppressed)
    return {kind: counts[kind] for kind in SuppressionKind}


def verdicts(report: Report) -> dict[Verdict, int]:
    """Requirements by verdict."""
    counts = Counter(outcome.verdict for outcome in report.outcomes)
    return {verdict: counts[verdict] for verdict in Verdict}


def paths_with_findings(report: Report) -> set[str]:
    """The files and checkpoints that have findings, read or not; a file of a checkpoint counts as the checkpoint."""
    checkpoints = {document.path for document in report.documents if document.kind == "Checkpoint"}
    lengths = sorted({len(path) for path in checkpoints}, reverse=True)
    return {_home(finding.path, checkpoints, lengths) for finding in report.findings}


def _home(path: str, checkpoints: set[str], lengths: Sequence[int]) -> str:
    """The nearest of some directories above a path, by the lengths of their paths; a long path has many above it."""
    if not checkpoints:
        return path
    whole = PurePosixPath(path).as_posix()
    above = (whole[:length] for length in lengths if whole[length : length + 1] == "/")
    top = "/" if whole.startswith("/") else "."
    return next((directory for directory in (*above, top) if directory in checkpoints), path)


def all_paths(report: Report) -> set[str]:
    """The files that were judged or could not be."""
    return {document.path for document in report.documents} | paths_with_findings(report)


def nothing_judged(report: Report) -> bool:
    """Whether no requirement came to a verdict: such a run proves nothing."""
    return not any(outcome.verdict in JUDGED for outcome in report.outcomes)


def summary_line(report: Report) -> str:
    """Result of the run, in one line; a pass is claimed only for what was judged."""
    body = _found(report) if report.findings else _clean(report)
    kinds = [f"{number} {kind}" for kind, number in suppressions(report).items() if number]
    if kinds:
        body += f"; {len(report.suppressed)} suppressed ({', '.join(kinds)})"
    return body + _share(report) + in_summary(report) + left_out.in_summary(report) + _lacks(report)


def _share(report: Report) -> str:
    """How much of the required metrics and checks the streams let judge."""
    runs = [run for run in report.coverage if run.num_checks]
    if not runs:
        return ""
    metrics, required = (sum(getattr(run, f"num_metrics_{word}") for run in runs) for word in ("reported", "required"))
    judged, checks = sum(run.num_checks_judged for run in runs), sum(run.num_checks for run in runs)
    return f"; streams: {metrics} of {required} required metrics, {judged} of {checks} checks"


def _lacks(report: Report) -> str:
    """How much the streams say went wrong, and what makes them incomplete."""
    lacks = dict.fromkeys(lack for run in report.coverage for lack in run.lacks)
    incomplete = f"; incomplete: {', '.join(lacks)}" if lacks else ""
    return (f"; {_incidents(report)}" if report.findings and _incidents(report) else "") + incomplete


def _incidents(report: Report) -> str:
    """How many incidents the streams state; empty where they state none."""
    number = sum(len(run.incidents) for run in report.coverage)
    return f"the streams state {_count(number, 'incident')}" if number else ""


def _not_run(report: Report) -> int:
    """Requirements that were not run, without those whose reason the report gives."""
    explained = {requirement for entry in report.unjudged for requirement in entry.requirements}
    return sum(o.verdict is Verdict.NOT_RUN and o.requirement not in explained for o in report.outcomes)


def _found(report: Report) -> str:
    counts = ", ".join(_count(number, severity) for severity, number in severities(report).items() if number)
    files = all_paths(report)
    body = f"{counts}; documents with findings: {len(paths_with_findings(report))} of {len(files)}"
    if unread := {finding.path for finding in report.findings if finding.requirement in NOT_READ}:
        body += f", {len(unread)} of them not judged further"
    counted = verdicts(report)
    if counted[Verdict.ERROR]:
        body += f"; {_count(counted[Verdict.ERROR], 'requirement')} {_WORDS[Verdict.ERROR]}"
    if not_run := _not_run(report):
        body += f"; {_count(not_run, 'requirement')} not run"
    return body


def _clean(report: Report) -> str:
    start = "nothing judged" if nothing_judged(report) else "no metric read" if _reads_none(report) else "no findings"
    start += f", but {_incidents(report)}" if _incidents(report) else ""
    counts = verdicts(report)
    silenced = counts[Verdict.FAIL] + counts[Verdict.WARN]
    numbers = {_WORDS[Verdict.PASS]: counts[Verdict.PASS], "silenced": silenced}
    counts[Verdict.NOT_RUN] = _not_run(report)
    numbers |= {word: counts[verdict] for verdict, word in _WORDS.items() if verdict not in JUDGED}
    parts = [f"{number} {word}" for word, number in numbers.items() if number]
    if parts:
        number, word = parts[0].split(" ", 1)
        parts[0] = f"{_count(int(number), 'requirement')} {word}"
    return f"{start}: " + ", ".join([_count(len(all_paths(report)), "document"), *parts])


def _reads_none(report: Report) -> bool:
    """Whether no stream of the runs has a metric that is read, so that no finding in them says nothing."""
    runs = [run for run in report.coverage if run.num_checks]
    return bool(runs) and all(run.lacks and not run.metrics_seen for run in runs)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
