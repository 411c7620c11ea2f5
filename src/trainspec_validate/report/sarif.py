"""Writes SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import re
from typing import Any

from trainspec_validate.model.finding import (
    Finding,
    Related,
    Report,
    Span,
    Suppressed,
    SuppressionKind,
    Unjudged,
    Verdict,
)
from trainspec_validate.report import left_out, unjudged
from trainspec_validate.report.options import Options, RuleText
from trainspec_validate.report.places import Identified, dumps, identified, json_pointer, location_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SITE = "https://trainspec.org"
_SEMANTIC_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")

Json = dict[str, Any]


def render(report: Report, options: Options) -> str:
    """One run, with a descriptor for each requirement that was broken."""
    entries = identified(report, options.base)
    first = {entry.finding.requirement: entry.finding for entry in reversed(entries)}
    rules = [_rule(first[name], options.requirements.get(name)) for name in sorted(first)]
    index = {name: number for number, name in enumerate(sorted(first))}
    run = {
        "tool": {"driver": _driver(report, rules)},
        "invocations": [_invocation(report, options.base)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(entry, index, report, options.base) for entry in entries],
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _driver(report: Report, rules: list[Json]) -> Json:
    driver: Json = {"name": "trainspec-validate", "informationUri": SITE}
    if report.tool_version:
        driver["version"] = report.tool_version
    if _SEMANTIC_VERSION.fullmatch(report.tool_version):
        driver["semanticVersion"] = report.tool_version
    return driver | {"rules": rules}


def _rule(finding: Finding, text: RuleText | None) -> Json:
    rule: Json = {"id": finding.requirement, "name": finding.name}
    rule["shortDescription"] = {"text": text.title if text else finding.name}
    if text:
        rule["fullDescription"] = {"text": text.statement}
        body = "\n\n".join(filter(None, (text.statement, text.details, text.why)))
        rule["help"] = {"text": body, "markdown": body}
    if finding.url:
        rule["helpUri"] = finding.url
    return rule | {"defaultConfiguration": {"level": finding.severity}}


def _invocation(report: Report, base: str) -> Json:
    broken = [outcome for outcome in report.outcomes if outcome.verdict is Verdict.ERROR]
    invocation: Json = {"executionSuccessful": not broken}
    notifications: list[Json] = [
        {"level": "error", "message": {"text": f"{entry.requirement} was not judged: {entry.reason}"}}
        for entry in sorted(broken, key=lambda entry: entry.requirement)
    ]
    notifications += [_unjudged(entry, base) for entry in unjudged.ordered(report)]
    notifications += [{"level": "note", "message": {"text": text}} for text in unjudged.found_lines(report.documents)]
    notifications += [{"level": "note", "message": {"text": text}} for text in left_out.sentences(report)]
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    return invocation


def _unjudged(entry: Unjudged, base: str) -> Json:
    ids = unjudged.short_ids(entry.requirements)
    text = f"{entry.path} {unjudged.sentence(entry)}"
    return {
        "level": "warning" if entry.cause == "absent" else "note",
        "message": {"text": f"{text}: {ids}" if ids else text},
        "locations": [_location(entry, base)],
        "properties": {"cause": entry.cause, "requirements": list(entry.requirements)},
    }


def _result(entry: Identified, index: dict[str, int], report: Report, base: str) -> Json:
    finding = entry.finding
    result: Json = {
        "ruleId": finding.requirement,
        "ruleIndex": index[finding.requirement],
        "level": finding.severity,
        "message": {"text": f"{finding.message} ({finding.help})" if finding.help else finding.message},
        "locations": [_location(finding, base)],
        "partialFingerprints": {"requirementAndPointer/v1": entry.fingerprint},
    }
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, **_location(related, base), "message": {"text": related.message}}
            for number, related in enumerate(finding.related, start=1)
        ]
    if report.suppressed:  # All results of a run carry the property, or none does.
        result["suppressions"] = [_suppression(entry.suppressed)] if entry.suppressed else []
    return result


def _suppression(suppressed: Suppressed) -> Json:
    kind = "inSource" if suppressed.kind is SuppressionKind.INLINE else "external"
    return {"kind": kind, "justification": suppressed.reason} if suppressed.reason else {"kind": kind}


def _location(place: Finding | Related | Unjudged, base: str) -> Json:
    physical: Json = {"artifactLocation": location_of(place.path, base)}
    if place.span:
        physical["region"] = _region(place.span)
    location: Json = {"physicalLocation": physical}
    if place.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": json_pointer(place.pointer)}]
    return location


def _region(span: Span) -> Json:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
