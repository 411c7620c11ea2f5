"""Shows findings: by requirement, each with its place, its evidence and what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainspec_validate.model.finding import Evidence, Finding
from trainspec_validate.report.places import ordered, position
from trainspec_validate.report.run_page.context import Context, code
from trainspec_validate.report.run_page.markup import Html, Node, cut, element, join
from trainspec_validate.report.run_page.tables import table
from trainspec_validate.report.run_page.words import count, utc

MAX_SHOWN = 20
"""Findings of one requirement that the page shows."""
_MAX_SAMPLES = 6
_MAX_RELATED = 4
_MAX_SUBJECTS = 200


def findings(context: Context) -> Html:
    """Every finding, the heaviest requirement first; then what was silenced."""
    groups: dict[str, list[Finding]] = {}
    for finding in ordered(context.report.findings):
        groups.setdefault(finding.requirement, []).append(finding)
    order = sorted(groups.values(), key=lambda group: (-max(f.severity.rank for f in group), group[0].requirement))
    if not order:
        return join(element("p", "No findings.", class_="absent"), _silenced(context))
    return join([_group(context, group) for group in order], _silenced(context))


def _group(context: Context, group: Sequence[Finding]) -> Html:
    first = group[0]
    text = context.requirements.get(first.requirement)
    worst = max(group, key=lambda finding: finding.severity.rank).severity.value
    left = len(group) - MAX_SHOWN
    return element(
        "article",
        element(
            "h3",
            element("span", worst, class_=f"chip {worst}"),
            " ",
            _linked(first),
            f" {text.title if text else first.name}",
            element("span", f" {count(len(group), 'finding')}", class_="muted"),
        ),
        element("p", code(text.statement), class_="statement") if text else None,
        element("ol", [element("li", _finding(finding)) for finding in group[:MAX_SHOWN]]),
        element("p", f"{count(left, 'more finding')} not shown; trainspec-validate has all.", class_="note")
        if left > 0
        else None,
        id=f"finding-{first.requirement}",
    )


def _linked(finding: Finding) -> Html:
    name = element("code", finding.requirement)
    return element("a", name, href=finding.url) if finding.url.startswith("https://") else name


def _finding(finding: Finding) -> Iterator[Node]:
    yield element("p", code(finding.message), class_="message")
    yield element("p", element("code", position(finding.path, finding.span, finding.pointer)), class_="place")
    if finding.evidence:
        yield element("p", list(_evidence(finding.evidence)), class_="evidence")
    for related in finding.related[:_MAX_RELATED]:
        place = position(related.path, related.span, related.pointer)
        yield element("p", "see ", element("code", place), f": {related.message}", class_="place")
    if finding.help:
        yield element("p", element("strong", "Expected: "), code(finding.help), class_="help")


def _evidence(evidence: Evidence) -> Iterator[Node]:
    if evidence.series:
        yield element("code", evidence.series)
    parts = [cut(evidence.subjects, _MAX_SUBJECTS)] if evidence.subjects else []
    if evidence.count != 1:
        parts.append(f"{evidence.count:,} times")
    if evidence.first_time_us is not None:
        first, last = utc(evidence.first_time_us), utc(evidence.last_time_us or evidence.first_time_us)
        parts.append(f"{first} UTC" if first == last else f"{first} to {last} UTC")
    if evidence.samples:
        more = ", …" if len(evidence.samples) > _MAX_SAMPLES else ""
        parts.append(f"values {', '.join(evidence.samples[:_MAX_SAMPLES])}{more}")
    yield f"{' · ' if evidence.series and parts else ''}{' · '.join(parts)}"


def _silenced(context: Context) -> Html | None:
    rows = [
        (each.finding.requirement, each.finding.message, each.kind.value, each.reason)
        for each in context.report.suppressed
    ]
    return table("Silenced findings", ("requirement", "finding", "by", "reason"), rows) if rows else None
