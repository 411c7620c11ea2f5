"""Runs one check over what it judges, and makes a verdict of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trainspec_validate.checking.registry import Check, NotApplicable, Violation
from trainspec_validate.documents.types import Document
from trainspec_validate.model.finding import Outcome, Severity, Unjudged, Verdict, verdict_of
from trainspec_validate.model.requirements import Requirement

MAX_FINDINGS = 1_000
"""Findings of one requirement that are reported one by one; a check groups what has one cause."""
PlaceT = TypeVar("PlaceT")


class Unsupported(NotApplicable):
    """Raised by a check when the stream declares, with a reason, that it cannot give what would be judged."""


@dataclass(frozen=True, slots=True)
class CheckInput:
    """Inputs that checks judge: a run or a series, together with the documents."""

    judged: Any
    documents: Mapping[type[Document], Document]
    things: str
    """Judged inputs in words, such as `streams`."""
    whose: str
    """Whose these are in words, such as `of run 'r-1'`."""


def severity_of(violation: Violation[Any], requirement: Requirement) -> Severity:
    """How heavy a violation is: as its requirement says, or a warning at most."""
    if not violation.at_most_warning:
        return requirement.severity
    return min(requirement.severity, Severity.WARNING, key=lambda severity: severity.rank)


def evaluate(
    given: CheckInput, one: Check[Violation[PlaceT]], requirement: Requirement
) -> tuple[list[Violation[PlaceT]], Outcome]:
    """The violations that a check finds, and the verdict."""
    absent = [kind.__name__ for _, kind in one.documents if kind not in given.documents]
    if absent:
        reason = f"no {' and no '.join(absent)} next to the {given.things}"
        return [], Outcome(requirement.id, Verdict.NOT_APPLICABLE, reason=reason, absent=tuple(absent))
    found: list[Violation[PlaceT]] = []
    try:
        for violation in one.function(given.judged, **{name: given.documents[kind] for name, kind in one.documents}):
            found.append(violation)
            if len(found) == MAX_FINDINGS:
                break
    except Unsupported as reason:
        if not found:
            return [], Outcome(requirement.id, Verdict.UNSUPPORTED, reason=str(reason))
    except NotApplicable as reason:
        if not found:
            return [], _not_applicable(requirement, str(reason))
    except Exception as error:
        error.add_note(f"while judging the {given.things} {given.whose} by {requirement.id}")
        raise
    severities = (severity_of(violation, requirement) for violation in found)
    worst = max(severities, default=requirement.severity, key=lambda severity: severity.rank)
    return found, Outcome(requirement.id, verdict_of(worst, len(found)), len(found))


def evaluate_all(
    given: CheckInput,
    requirements: Sequence[Requirement],
    checks: Iterable[Check[Violation[PlaceT]]],
    seen: Callable[[], None] | None = None,
) -> tuple[list[tuple[Requirement, Violation[PlaceT]]], tuple[Outcome, ...]]:
    """The violations that the checks of all requirements find, and the verdicts; `seen` is called after each."""
    violations: list[tuple[Requirement, Violation[PlaceT]]] = []
    outcomes: list[Outcome] = []
    for requirement, one in zip(requirements, checks, strict=True):
        found, outcome = evaluate(given, one, requirement)
        violations += ((requirement, violation) for violation in found)
        outcomes.append(outcome)
        if seen:
            seen()
    return violations, tuple(outcomes)


def _not_applicable(requirement: Requirement, reason: str) -> Outcome:
    return Outcome(requirement.id, Verdict.NOT_APPLICABLE, reason=reason)


def without_documents(
    path: str, things: str, outcomes: Iterable[Outcome], given: Mapping[str, int]
) -> Iterator[Unjudged]:
    """Checks not run on streams or checkpoints for lack of documents; `given` counts the documents by kind."""
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    for outcome in outcomes:
        if outcome.absent:
            by_kinds.setdefault(outcome.absent, []).append(outcome.requirement)
    for kinds, ids in sorted(by_kinds.items()):
        several = [f"{given[kind]} of kind {kind}" for kind in kinds if given.get(kind, 0) > 1]
        remedy = f"give the {' and the '.join(kinds)} of the run together with the {things}"
        more = f"; which one it is of {' and '.join(several)} is not known" if several else ""
        yield Unjudged(path, f"is judged without a {' and a '.join(kinds)}", remedy + more, tuple(sorted(ids)))
