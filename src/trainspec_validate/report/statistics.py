"""Writes the table of `--statistics`: what came of each requirement."""

from __future__ import annotations

from collections.abc import Mapping

from trainspec_validate.model.finding import Report, Severity, Verdict
from trainspec_validate.report.excerpt import Painter, cells
from trainspec_validate.report.options import Options, RuleText
from trainspec_validate.report.silenced import sentences
from trainspec_validate.report.summary import summary_line
from trainspec_validate.report.unjudged import groups, line
from trainspec_validate.system.neutral import printable

_HEADER = ("requirement", "name", "verdict", "count")
_LOOKS = {Verdict.FAIL: "error", Verdict.ERROR: "error", Verdict.WARN: "warning"}

Row = tuple[str, str, Verdict, int]


def render(report: Report, options: Options) -> str:
    """Aligned columns, most findings first, then the summary line."""
    painter = Painter(options.color)
    rows = sorted(_rows(report, options.requirements), key=lambda row: (-row[3], row[0]))
    table = [_HEADER, *((row[0], row[1], str(row[2]), str(row[3])) for row in rows)]
    widths = [max(cells(line[column]) for line in table) for column in range(len(_HEADER))]
    lines = [painter.paint(_align(_HEADER, widths), "strong")]
    for row, texts in zip(rows, table[1:], strict=True):
        look = _LOOKS.get(row[2])
        written = _align(texts, widths)
        lines.append(painter.paint(written, look) if look else written)
    unjudged = [line(entries, painter) for entries in groups(report)]
    parts = [*(lines if rows else []), *([""] if rows else []), *unjudged, *sentences(report), summary_line(report)]
    return "\n".join(parts) + "\n"


def _rows(report: Report, requirements: Mapping[str, RuleText]) -> list[Row]:
    silenced = [entry.finding for entry in report.suppressed]
    names = {name: text.name for name, text in requirements.items()}
    names |= {finding.requirement: finding.name for finding in (*silenced, *report.findings)}
    counts: dict[str, int] = {}
    failed = set()
    for finding in report.findings:
        counts[finding.requirement] = counts.get(finding.requirement, 0) + 1
        if finding.severity is Severity.ERROR:
            failed.add(finding.requirement)
    verdicts = {outcome.requirement: outcome.verdict for outcome in report.outcomes}
    for requirement in counts:
        verdicts.setdefault(requirement, Verdict.FAIL if requirement in failed else Verdict.WARN)
    return [
        (printable(requirement), printable(names.get(requirement, "")), verdict, counts.get(requirement, 0))
        for requirement, verdict in verdicts.items()
    ]


def _align(line: tuple[str, ...], widths: list[int]) -> str:
    *texts, number = line
    padded = [text + " " * (width - cells(text)) for text, width in zip(texts, widths, strict=False)]
    return "  ".join([*padded, number.rjust(widths[-1])])
