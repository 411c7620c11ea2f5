"""Writes GitLab code quality reports."""

from __future__ import annotations

from hashlib import sha256

from trainspec_validate.model.finding import Report, Severity, Unjudged
from trainspec_validate.report import left_out, silenced, unjudged
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import Identified, dumps, identified, relative
from trainspec_validate.report.summary import all_paths

_SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(report: Report, options: Options) -> str:
    """A list of issues; GitLab drops those that share a fingerprint, so none do."""
    entries = identified(report, options.base)
    issues = [_issue(entry, options.base) for entry in entries if entry.suppressed is None]
    issues += [_note("settings", text, report, options.base) for text in left_out.sentences(report)]
    issues += [_note("silenced", text, report, options.base) for text in silenced.sentences(report)]
    return dumps(issues + [_unjudged(entry, options.base) for entry in unjudged.ordered(report)])


def _unjudged(entry: Unjudged, base: str) -> dict[str, object]:
    ids = unjudged.short_ids(entry.requirements)
    return {
        "description": ": ".join(part for part in (unjudged.sentence(entry), ids) if part),
        "check_name": unjudged.label(entry).replace(" ", "-"),
        "fingerprint": unjudged.fingerprint(entry, base),
        "severity": "info",
        "location": {
            "path": relative(entry.path, base),
            "lines": {"begin": entry.span.line if entry.span else 1},
        },
    }


def _note(name: str, text: str, report: Report, base: str) -> dict[str, object]:
    path = report.settings or next(iter(sorted(all_paths(report))), "")
    return {
        "description": text,
        "check_name": name,
        "fingerprint": sha256(ascii((name, text)).encode()).hexdigest(),
        "severity": "info",
        "location": {"path": relative(path, base), "lines": {"begin": 1}},
    }


def _issue(entry: Identified, base: str) -> dict[str, object]:
    finding = entry.finding
    remedy = f" ({finding.help})" if finding.help else ""
    return {
        "description": f"{finding.requirement} {finding.name}: {finding.message}{remedy}",
        "check_name": finding.requirement,
        "fingerprint": entry.fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {
            "path": relative(finding.path, base),
            "lines": {"begin": finding.span.line if finding.span else 1},
        },
    }
