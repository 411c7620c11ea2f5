"""Identifies findings across runs, when lines have moved."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from trainspec_validate.model.finding import Finding, Report, Suppressed
from trainspec_validate.report.places import json_pointer, ordered, relative


@dataclass(frozen=True, slots=True)
class Identified:
    """A finding, what silenced it if anything did, and a fingerprint: unique in the report, free of lines."""

    finding: Finding
    suppressed: Suppressed | None
    fingerprint: str


def identified(report: Report, base: str) -> list[Identified]:
    """All findings in order, the silenced ones among them, so that silencing one renames no other."""
    entries: list[tuple[Finding, Suppressed | None]] = [(finding, None) for finding in report.findings]
    entries += [(entry.finding, entry) for entry in report.suppressed]
    rank = {id(finding): index for index, finding in enumerate(ordered(finding for finding, _ in entries))}
    entries.sort(key=lambda entry: rank[id(entry[0])])

    seen: dict[tuple[str, ...], int] = {}
    result = []
    for finding, suppressed in entries:
        key = (finding.requirement, relative(finding.path, base), json_pointer(finding.pointer))
        seen[key] = seen.get(key, 0) + 1
        digest = sha256(ascii((*key, seen[key])).encode()).hexdigest()
        result.append(Identified(finding, suppressed, digest))
    return result
