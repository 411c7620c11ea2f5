"""Writes one line per finding, as editors and grep read it."""

from __future__ import annotations

from trainspec_validate.model.finding import Finding, Report
from trainspec_validate.report.evidence import coverage_line
from trainspec_validate.report.excerpt import Painter
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import position, shown
from trainspec_validate.report.silenced import sentences
from trainspec_validate.report.summary import summary_line
from trainspec_validate.report.unjudged import found_lines, groups, line
from trainspec_validate.system.neutral import printable


def render(report: Report, options: Options) -> str:
    """`path:line:column: error[ID] message (help)`, a line on what was seen of each run, then the summary line."""
    painter = Painter(options.color, options.hyperlinks)
    findings, rest = shown(report.findings)
    lines = [_line(finding, painter) for finding in findings]
    covered = [printable(coverage_line(entry)) for entry in report.coverage]
    unjudged = [line(entries, painter) for entries in groups(report)]
    last = [*found_lines(report.documents), *sentences(report), summary_line(report)]
    return "\n".join([*lines, *rest, *covered, *unjudged, *last]) + "\n"


def _line(finding: Finding, painter: Painter) -> str:
    place = painter.paint(position(finding.path, finding.span, finding.pointer), "strong")
    label = painter.link(printable(finding.requirement), finding.url)
    mark = painter.paint(f"{finding.severity}[{label}]", finding.severity)
    remedy = f" ({printable(finding.help)})" if finding.help else ""
    return f"{place}: {mark} {printable(finding.message)}{remedy}"
