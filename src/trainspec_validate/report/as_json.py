"""Writes the report as JSON; `schemas/v1/report.schema.json` is its contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainspec_validate.model.finding import (
    Coverage,
    DocumentSummary,
    Finding,
    LeftOut,
    Outcome,
    PassedOver,
    Related,
    Report,
    Span,
    Unjudged,
)
from trainspec_validate.report import summary
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import dumps, identified, json_pointer
from trainspec_validate.report.unjudged import ordered, requirements

FORMAT_VERSION = "1"
MOST_PATHS = 1_000
"""Files that were passed over for one reason and are listed; all of them are counted."""


def render(report: Report, options: Options) -> str:
    """Everything the report holds, in a stable order; every key is always there."""
    entries = identified(report, options.base)
    return dumps(
        {
            "format_version": FORMAT_VERSION,
            "tool": {"name": "trainspec-validate", "version": report.tool_version},
            "specification_version": report.specification_version,
            "summary": _summary(report),
            "documents": [_document(entry) for entry in sorted(report.documents, key=_document_order)],
            "findings": [_finding(entry.finding) for entry in entries if entry.suppressed is None],
            "suppressed": [
                {
                    "kind": entry.suppressed.kind,
                    "reason": entry.suppressed.reason,
                    "finding": _finding(entry.finding),
                }
                for entry in entries
                if entry.suppressed is not None
            ],
            "outcomes": [_outcome(entry) for entry in sorted(report.outcomes, key=lambda o: o.requirement)],
            "coverage": [_coverage(entry) for entry in report.coverage],
            "settings": report.settings,
            "left_out": [_left_out(entry) for entry in report.left_out],
            "passed_over": [_passed_over(entry) for entry in report.passed_over],
            "unjudged": [_unjudged(entry) for entry in ordered(report)],
        }
    )


def _summary(report: Report) -> dict[str, Any]:
    return {
        "findings": summary.severities(report),
        "suppressed": summary.suppressions(report),
        "documents": len(summary.all_paths(report)),
        "documents_with_findings": len(summary.paths_with_findings(report)),
        "requirements": summary.verdicts(report),
        "left_out": len({requirement for entry in report.left_out for requirement in entry.requirements}),
        "unjudged": len(requirements(report)),
        "uncovered": len(requirements(report, "uncovered")),
    }


def _document_order(document: DocumentSummary) -> tuple[str, str, str]:
    return (document.path, document.kind, document.name)


def _document(document: DocumentSummary) -> dict[str, Any]:
    return {"path": document.path, "kind": document.kind, "name": document.name, "origin": document.origin}


def _unjudged(entry: Unjudged) -> dict[str, Any]:
    return {
        "cause": entry.cause,
        "reason": entry.reason,
        "help": entry.help,
        "requirements": list(entry.requirements),
        "recorded": entry.recorded,
        **_place(entry),
    }


def _left_out(entry: LeftOut) -> dict[str, Any]:
    requirements = list(entry.requirements)
    return {
        "option": entry.option,
        "words": list(entry.words),
        "settings": entry.settings,
        "requirements": requirements,
    }


def _passed_over(entry: PassedOver) -> dict[str, Any]:
    return {
        "reason": entry.reason,
        "words": list(entry.words),
        "settings": entry.settings,
        "num_files": len(entry.paths),
        "paths": list(entry.paths[:MOST_PATHS]),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "requirement": outcome.requirement,
        "verdict": outcome.verdict,
        "num_findings": outcome.num_findings,
        "reason": outcome.reason,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "requirement": finding.requirement,
        "name": finding.name,
        "severity": finding.severity,
        "message": finding.message,
        "help": finding.help,
        "url": finding.url,
        **_place(finding),
        "related": [{"message": related.message, **_place(related)} for related in finding.related],
        "evidence": None if finding.evidence is None else asdict(finding.evidence),
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    reasons = [{"requirement": requirement, "reason": reason} for requirement, reason in coverage.not_judged]
    return {**asdict(coverage), "not_judged": reasons}


def _place(place: Finding | Related | Unjudged) -> dict[str, Any]:
    return {"path": place.path, "pointer": json_pointer(place.pointer), "span": _span(place.span)}


def _span(span: Span | None) -> dict[str, int] | None:
    if span is None:
        return None
    return {
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }
