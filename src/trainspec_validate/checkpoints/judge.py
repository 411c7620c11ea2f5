"""Judges series of checkpoints: it gives each check the view and stamps its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trainspec_validate.checking.answers import CheckInput, evaluate
from trainspec_validate.checkpoints.checks import checks_of
from trainspec_validate.checkpoints.view import Series
from trainspec_validate.documents.types import Document
from trainspec_validate.model.finding import Finding, Outcome
from trainspec_validate.model.requirements import Index, Requirement


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
    given = CheckInput(series, documents, "checkpoints", f"in {series.name}")
    requirements = list(wanted)
    for requirement, one in zip(requirements, checks_of((r.module, r.id) for r in requirements), strict=True):
        found, outcome = evaluate(given, one, requirement)
        judgement.findings += (index.finding(requirement, one.message, one.help, one.place) for one in found)
        judgement.outcomes.append(outcome)
        if seen:
            seen()
    return judgement
