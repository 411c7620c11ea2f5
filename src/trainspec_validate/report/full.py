"""Writes a report for a person at a terminal: excerpts, marks, help and reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainspec_validate.model.finding import Finding, Report
from trainspec_validate.report.evidence import coverage_lines, evidence_in_words
from trainspec_validate.report.excerpt import Excerpt, Painter, excerpt, split_lines
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import position, shown
from trainspec_validate.report.silenced import sentences
from trainspec_validate.report.summary import summary_line
from trainspec_validate.report.unjudged import block, found_lines, groups
from trainspec_validate.system.neutral import printable

Sources = dict[str, list[str]]


def render(report: Report, options: Options) -> str:
    """One block per finding, then the summary line."""
    painter = Painter(options.color, options.hyperlinks)
    findings, rest = shown(report.findings)
    sources = _sources(report, findings)
    blocks = ["\n".join(_block(finding, sources, painter)) for finding in findings]
    covered = ["\n".join(printable(line) for line in coverage_lines(entry)) for entry in report.coverage]
    unjudged = [block(entries, painter) for entries in groups(report)]
    last = "\n".join([*found_lines(report.documents), *sentences(report), summary_line(report)])
    return "\n\n".join([*blocks, *rest, *covered, *unjudged, last]) + "\n"


def _sources(report: Report, findings: list[Finding]) -> Sources:
    wanted = {finding.path for finding in findings}
    wanted |= {related.path for finding in findings for related in finding.related}
    return {entry.path: split_lines(entry.text) for entry in report.documents if entry.text and entry.path in wanted}


def _block(finding: Finding, sources: Sources, painter: Painter) -> Iterator[str]:
    spans = [span for span in (finding.span, *(related.span for related in finding.related)) if span]
    width = max((len(str(span.line)) for span in spans), default=1)
    margin = " " * width
    look = finding.severity.value

    label = painter.link(printable(finding.requirement), finding.url)
    headline = f"{printable(finding.name)}: {printable(finding.message)}"
    yield painter.paint(f"{look}[{label}]", look) + " " + painter.paint(headline, "strong")

    yield f"{margin}{painter.paint('-->', 'frame')} {position(finding.path, finding.span, finding.pointer)}"
    yield from _excerpt(_cut(finding, sources.get(finding.path)), width, painter, ("^", look))
    for related in finding.related:
        place = position(related.path, related.span, related.pointer)
        yield f"{margin}{painter.paint(':::', 'frame')} {place}: {printable(related.message)}"
        lines = sources.get(related.path)
        found = excerpt(lines, related.span) if lines and related.span else None
        yield from _excerpt(found, width, painter, ("-", "frame"))

    seen = evidence_in_words(finding.evidence)
    for word, text in (("seen", seen), ("help", finding.help), ("why", finding.url)):
        if text:
            yield f"{margin} {painter.paint('=', 'frame')} {painter.paint(word, 'strong')}: {printable(text)}"


def _cut(finding: Finding, lines: list[str] | None) -> Excerpt | None:
    """The line that a finding points at, out of its file or, where that is not kept, as the finding carries it."""
    if finding.span is None:
        return None
    if lines:
        return excerpt(lines, finding.span)
    if not finding.source_line:
        return None
    found = excerpt([finding.source_line], replace(finding.span, line=1, end_line=1))
    return replace(found, line=finding.span.line) if found else None


def _excerpt(found: Excerpt | None, width: int, painter: Painter, mark: tuple[str, str]) -> Iterator[str]:
    if found is None:
        return
    char, look = mark
    bar = painter.paint(" " * width + " |", "frame")
    yield bar
    yield f"{painter.paint(f'{found.line:>{width}} |', 'frame')} {found.code}".rstrip()
    yield f"{bar} {' ' * found.indent}{painter.paint(char * found.length, look)}"
