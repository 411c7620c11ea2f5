"""Judges series of checkpoints: it gives each check the view and stamps its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from trainspec_validate.checking.answers import CheckInput, evaluate_all
from trainspec_validate.checkpoints.checks import checks_of
from trainspec_validate.checkpoints.view import Series
from trainspec_validate.documents.types import Document
from trainspec_validate.model.finding import CheckResult
from trainspec_validate.model.requirements import Index, Requirement


def judge_series(
    series: Series,
    wanted: Iterable[Requirement],
    index: Index,
    documents: Mapping[type[Document], Document],
    seen: Callable[[], None] | None = None,
) -> CheckResult:
    """Judge a series by every requirement that is wanted."""
    given = CheckInput(series, documents, "checkpoints", f"in {series.name}")
    requirements = list(wanted)
    violations, outcomes = evaluate_all(given, requirements, checks_of((r.module, r.id) for r in requirements), seen)
    findings = (index.finding(requirement, one.message, one.help, one.place) for requirement, one in violations)
    return CheckResult(tuple(findings), outcomes)
