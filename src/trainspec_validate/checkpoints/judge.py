"""The only place that judges series of checkpoints: it gives each check the view and stamps what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trainspec_validate.checkpoints.checks import Check, Deviation, NotJudged, checks_of
from trainspec_validate.checkpoints.view import Series
from trainspec_validate.documents import Document
from trainspec_validate.findings import Finding, Outcome, Severity, Verdict
from trainspec_validate.requirements import Index, Requirement

MAX_FINDINGS = 1_000
"""Findings of one requirement that are told one by one."""


@dataclass(slots=True)
class Judgement:
    """What came of one series."""

    findings: list[Finding] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


def judge_series(
    series: Series,
    wanted: Iterable[Requirement],
    index: Index,
    documents: Mapping[type[Document], Document],
    seen: Callable[[], None] | None = None,
) -> Judgement:
    """Judge a series by every requirement that is wanted."""
    judgement = Judgement()
    requirements = list(wanted)
    for requirement, one in zip(requirements, checks_of((r.module, r.id) for r in requirements), strict=True):
        found, outcome = _run(one, requirement, series, documents)
        judgement.findings += (_finding(requirement, index, deviation) for deviation in found)
        judgement.outcomes.append(outcome)
        if seen:
            seen()
    return judgement


def _run(
    one: Check, requirement: Requirement, series: Series, documents: Mapping[type[Document], Document]
) -> tuple[list[Deviation], Outcome]:
    absent = [kind.__name__ for _, kind in one.documents if kind not in documents]
    if absent:
        reason = f"no {' and no '.join(absent)} beside the checkpoints"
        return [], Outcome(requirement.id, Verdict.NOT_APPLICABLE, reason=reason)
    found: list[Deviation] = []
    try:
        for deviation in one.function(series, **{name: documents[kind] for name, kind in one.documents}):
            found.append(deviation)
            if len(found) == MAX_FINDINGS:
                break
    except NotJudged as answer:
        if not found:
            return [], Outcome(requirement.id, Verdict.NOT_APPLICABLE, reason=str(answer))
    except Exception as error:
        error.add_note(f"while judging the checkpoints in {series.name} by {requirement.id}")
        raise
    if not found:
        return [], Outcome(requirement.id, Verdict.PASS)
    verdict = Verdict.FAIL if requirement.severity is Severity.ERROR else Verdict.WARN
    return found, Outcome(requirement.id, verdict, len(found))


def _finding(requirement: Requirement, index: Index, deviation: Deviation) -> Finding:
    return Finding(
        requirement=requirement.id,
        name=requirement.name,
        severity=requirement.severity,
        message=deviation.message,
        path=deviation.path,
        help=deviation.help,
        url=index.url(requirement),
    )
