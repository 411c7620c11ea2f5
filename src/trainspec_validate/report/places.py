"""Puts findings in order, writes their places as text and as URI, and gives each a fingerprint."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote

from trainspec_validate.model.finding import Finding, Pointer, Report, Span, Suppressed, sort_findings
from trainspec_validate.system.neutral import neutral, printable


def dumps(value: object) -> str:
    """JSON without lone surrogates (strict parsers refuse them) and with escapes for what a log would obey."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return neutral(text, "json") + "\n"


MAX_SHOWN = 50
"""Findings of one requirement that a report for people shows; programs get all of them."""


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The order of `sort_findings`, with ties broken so that no order of the input shows."""
    return sort_findings(sorted(findings, key=lambda f: (json_pointer(f.pointer), f.name, f.help, f.url)))


def shown(findings: Iterable[Finding]) -> tuple[list[Finding], list[str]]:
    """The findings in order, at most `MAX_SHOWN` of a requirement, and a line on each requirement with more."""
    counts: Counter[str] = Counter()
    kept = []
    for finding in ordered(findings):
        counts[finding.requirement] += 1
        if counts[finding.requirement] <= MAX_SHOWN:
            kept.append(finding)
    rest = [(name, number - MAX_SHOWN) for name, number in sorted(counts.items()) if number > MAX_SHOWN]
    return kept, [f"… and {number:,} more of {printable(name)}; --format json has all" for name, number in rest]


def json_pointer(pointer: Pointer) -> str:
    """The pointer as RFC 6901 writes it."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in pointer)


def relative(path: str, base: str) -> str:
    """The path seen from the base directory, when it is below it."""
    path = path.removeprefix("./")
    return path.removeprefix(base.rstrip("/") + "/") if base else path


def position(path: str, span: Span | None, pointer: Pointer = ()) -> str:
    """`path:line:column`, or the path and the pointer of a place that has no text."""
    if span is not None:
        return f"{printable(path)}:{span.line}:{span.column}"
    return printable(f"{path} ({json_pointer(pointer)})" if pointer else path)


_DRIVE = re.compile(r"[A-Za-z]:/")


def location_of(path: str, base: str) -> dict[str, str]:
    """A SARIF artifact location: relative to the root of the sources where the path is relative."""
    path = relative(path, base)
    if path.startswith("//"):
        return {"uri": f"file:{_quoted(path)}"}
    if path.startswith("/"):
        return {"uri": f"file://{_quoted(path)}"}
    if _DRIVE.match(path):
        return {"uri": f"file:///{path[:2]}{_quoted(path[2:])}"}
    if path == "<stdin>":
        return {"uri": _quoted(path)}
    return {"uri": _quoted(path), "uriBaseId": "%SRCROOT%"}


def _quoted(path: str) -> str:
    return quote(path, safe="/", errors="surrogatepass")


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
