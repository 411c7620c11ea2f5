"""Puts findings in order and writes their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trainspec_validate.model.finding import Finding, Pointer, Span, sort_findings
from trainspec_validate.system.neutral import printable

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
