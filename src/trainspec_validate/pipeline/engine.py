"""Runs rules: it gives each rule the documents it asks for and stamps its findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainspec_validate.checking.answers import severity_of
from trainspec_validate.documents.load import Source
from trainspec_validate.documents.types import (
    CheckpointPolicy,
    ClusterProfile,
    Document,
    TrainingPlan,
    Unknown,
    UnknownValueError,
)
from trainspec_validate.model.finding import (
    Cause,
    Finding,
    Outcome,
    Pointer,
    Related,
    Severity,
    Span,
    Verdict,
    verdict_of,
)
from trainspec_validate.model.requirements import Index, Requirement
from trainspec_validate.pipeline.alike import Kind, kind_of
from trainspec_validate.rules import NotApplicable, Place, Rule, Unresolved, Violation
from trainspec_validate.rules._groups import MAX_PLACES, MAX_VIOLATIONS, violations_of
from trainspec_validate.rules._others import kept_off

_NO_VALUE = "lacks a value, or another document does"


@dataclass(frozen=True, slots=True)
class Member:
    """A typed document of the set, with the path that findings name."""

    path: str
    document: Document


@dataclass(frozen=True, slots=True)
class Lack:
    """A value that a rule needed and a document does not give."""

    requirement: str
    path: str
    pointer: Pointer
    reason: str = ""
    """Why the value there does not do; empty where there is none."""
    help: str = ""
    cause: Cause = "absent"


@dataclass(slots=True)
class _Tally:
    """What became of one requirement so far."""

    num_judged: int = 0
    num_findings: int = 0
    worst: Severity = Severity.NOTE
    reasons: dict[str, None] = field(default_factory=dict)
    unknown: list[Lack] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.num_findings += 1
        self.worst = max(self.worst, finding.severity, key=lambda severity: severity.rank)


Binding = Mapping[type[Document], Member]
"""Documents that belong together, by kind."""


def bind(kinds: Sequence[type[Document]], bindings: Iterable[Binding]) -> Iterator[Binding]:
    """Each distinct set of documents that a rule on these kinds is to judge.

    A rule that asks for one kind runs once per document; a rule that asks for several runs once per combination. A
    plan that has a cluster of its own is judged with that one, and not with the one that a policy for it names.
    """
    bindings, seen = list(bindings), set()
    settled = set[int]()
    if set(kinds) == {TrainingPlan, ClusterProfile}:
        own = (one for one in bindings if CheckpointPolicy not in one and {TrainingPlan, ClusterProfile} <= one.keys())
        settled = {id(one[TrainingPlan].document) for one in own}
    for binding in bindings:
        plan = binding.get(TrainingPlan)
        if plan and CheckpointPolicy in binding and id(plan.document) in settled:
            continue
        members = [binding.get(kind) for kind in kinds]
        key = tuple(id(member.document) for member in members if member)
        if len(key) == len(members) and key not in seen:
            seen.add(key)
            yield binding


def run_rules(
    rules: Iterable[Rule], bindings: Sequence[Binding], index: Index
) -> tuple[list[Finding], list[Outcome], list[Lack]]:
    """Judge every binding by every rule that it has the documents for.

    Returns the findings without spans (places are resolved once per file, later), a verdict per requirement, and the
    values that rules needed in vain.
    """
    lacks: list[Lack] = []
    findings: list[Finding] = []
    outcomes: list[Outcome] = []
    bound: dict[tuple[type[Document], ...], list[Binding]] = {}
    for rule in rules:
        kinds = tuple(kind for _, kind in rule.parameters)
        if kinds not in bound:
            bound[kinds] = list(bind(kinds, bindings))
        requirement = index.by_id[rule.requirement]
        tally = _Tally()
        for binding in bound[kinds]:
            findings.extend(_judge(rule, binding, requirement, index, tally))
        outcomes.append(_outcome(requirement, tally))
        lacks += tally.unknown
    return findings, outcomes, lacks


def _judge(rule: Rule, binding: Binding, requirement: Requirement, index: Index, tally: _Tally) -> Iterator[Finding]:
    paths = {id(member.document): member.path for member in binding.values()}
    arguments = {name: binding[kind].document for name, kind in rule.parameters}
    documents = {member.path: member.document for member in binding.values()}
    kinds: set[Kind] = set()
    try:
        for number, violation in enumerate(violations_of(rule, arguments)):
            finding = _stamp(violation, requirement, index, paths)
            kinds.add(kind_of(finding, documents))
            is_one_too_many = number == MAX_PLACES or len(kinds) > MAX_VIOLATIONS
            finding = _stamp(_others(violation, number), requirement, index, paths) if is_one_too_many else finding
            tally.add(finding)
            yield finding
            if is_one_too_many:
                break
    except Unresolved as answer:
        # A value `other` that a listed one could take the place of is the nearer reason.
        lacks = [_lack(rule, hidden, paths) for hidden in kept_off(rule, arguments)]
        tally.unknown += lacks or [_lack(rule, answer, paths)]
        return
    except NotApplicable as answer:
        lacks = [_lack(rule, hidden, paths) for hidden in kept_off(rule, arguments)]
        tally.unknown += lacks
        tally.reasons |= {} if lacks else {str(answer): None}
        return
    except UnknownValueError as answer:
        tally.unknown.append(Lack(rule.requirement, answer.path, answer.pointer))
        return
    except Exception as error:
        if isinstance(error, TypeError) and Unknown.__name__ in str(error):
            # A built-in function that takes nothing but a text or a number met a value that is not known.
            tally.unknown += [Lack(rule.requirement, path, (), _NO_VALUE) for path in paths.values()]
            return
        error.add_note(f"while judging {', '.join(sorted(paths.values()))} by {rule.requirement}")
        raise
    tally.num_judged += 1


def _lack(rule: Rule, answer: Unresolved, paths: Mapping[int, str]) -> Lack:
    place = answer.place
    return Lack(rule.requirement, paths[id(place.document)], place.pointer, str(answer), answer.help, answer.cause)


def _others(violation: Violation, num_listed: int) -> Violation:
    """The last violation that is reported, of the list that it and further ones are in."""
    pointer = violation.place.pointer
    position = next((index for index, step in enumerate(pointer) if isinstance(step, int)), len(pointer))
    return Violation(
        Place(violation.place.document, pointer[:position]),
        f"the documents break this requirement in more than {num_listed} places; {num_listed} are listed",
        "correct these and validate again",
    )


def _stamp(violation: Violation, requirement: Requirement, index: Index, paths: Mapping[int, str]) -> Finding:
    # A text that is handed on untouched may be a value that the document does not give; here it is told from one.
    related = tuple(
        Related(str(message), paths[id(place.document)], place.pointer) for place, message in violation.related
    )
    return index.finding(
        requirement,
        violation.message,
        violation.help,
        paths[id(violation.place.document)],
        severity=severity_of(violation, requirement),
        pointer=violation.place.pointer,
        points_at_key=violation.place.key,
        related=related,
    )


def _outcome(requirement: Requirement, tally: _Tally) -> Outcome:
    if tally.num_findings or tally.num_judged:
        return Outcome(requirement.id, verdict_of(tally.worst, tally.num_findings), tally.num_findings)
    unresolved = dict.fromkeys(f"{lack.path} {lack.reason}" for lack in tally.unknown if lack.reason)
    if unresolved:
        return Outcome(requirement.id, Verdict.NOT_RUN, reason="; ".join(unresolved))
    if tally.reasons:
        return Outcome(requirement.id, Verdict.NOT_APPLICABLE, reason="; ".join(tally.reasons))
    return not_together(requirement)


def not_together(requirement: Requirement) -> Outcome:
    """The outcome of a rule whose documents are not all in the set, or do not belong together."""
    wanted = " and ".join(requirement.documents)
    return Outcome(requirement.id, Verdict.NOT_APPLICABLE, reason=f"no {wanted} that belong together")


def _wanted_places(findings: Iterable[Finding]) -> Mapping[str, set[tuple[Pointer, bool]]]:
    """The pointers to look up, by file, so that each text is walked once."""
    wanted: dict[str, set[tuple[Pointer, bool]]] = {}
    for finding in findings:
        wanted.setdefault(finding.path, set()).add((finding.pointer, finding.points_at_key))
        for related in finding.related:
            wanted.setdefault(related.path, set()).add((related.pointer, False))
    return wanted


def _with_spans(finding: Finding, spans: Mapping[str, Mapping[tuple[Pointer, bool], Span]]) -> Finding:
    """The finding with the lines and columns of its places."""
    own = spans.get(finding.path, {}).get((finding.pointer, finding.points_at_key))
    related = tuple(replace(r, span=spans.get(r.path, {}).get((r.pointer, False))) for r in finding.related)
    return replace(finding, span=finding.span or own, related=related)


def located(sources: Mapping[str, Source], findings: Sequence[Finding]) -> list[Finding]:
    """The findings with their lines in the texts that they are about."""
    spans: dict[str, Mapping[tuple[Pointer, bool], Span]] = {}
    for path, places in _wanted_places(findings).items():
        if path in sources:
            spans[path] = sources[path].locate(places)
    return [_with_spans(finding, spans) for finding in findings]


__all__ = ["Binding", "Member", "Place", "bind", "located", "run_rules"]
