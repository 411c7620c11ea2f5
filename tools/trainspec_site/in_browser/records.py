"""Judges the records of a stream in a browser: each by its schema, and none against another.

The checks on whole streams need NumPy, of which no package registry has a wheel for Pyodide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.model.finding import Finding, Span
from trainspec_validate.model.requirements import load_index
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import read_line

SUFFIX = ".jsonl"
MAX_FINDINGS = 1_000
NO_HEAD = Refusal("the first record is no head", 'start the file with a record whose "k" is "head"', "head")
EMPTY = Refusal("the stream has no record", "paste at least a head and one sample or event")


@dataclass(slots=True)
class Judged:
    """Result of the records of one stream."""

    findings: list[Finding] = field(default_factory=list)
    num_records: int = 0
    num_damaged: int = 0

    @property
    def words(self) -> str:
        """How far the check went, in a sentence."""
        others = sum(requirement.check == "stream" for requirement in load_index().by_id.values())
        return (
            f"{self.num_records + self.num_damaged} lines of the stream were held to the schema of records one by one; "
            f"the other checks of {others} requirements on streams need NumPy, which has no wheel for browsers."
        )


def judge_records(name: str, text: str) -> Judged:
    """Judge each line of a stream by itself, and whether a head comes first."""
    judged = Judged()
    for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        for fault in _faults(number, line, judged):
            judged.num_damaged += fault is not NO_HEAD
            if len(judged.findings) < MAX_FINDINGS:
                judged.findings.append(_finding(name, number, line, fault))
    return judged


def _faults(number: int, line: str, judged: Judged) -> Iterator[Refusal]:
    if number == 1 and not line.strip():
        yield EMPTY
        return
    record = read_line(line.encode("utf-8", "surrogatepass"))
    if isinstance(record, Refusal):
        yield record
        return
    judged.num_records += 1
    if number == 1 and not isinstance(record, Head):
        yield NO_HEAD


def _finding(name: str, number: int, line: str, fault: Refusal) -> Finding:
    index = load_index()
    requirement = index.by_id[fault.requirement]
    return Finding(
        requirement=requirement.id,
        name=requirement.name,
        severity=requirement.severity,
        message=fault.message,
        path=name,
        span=Span(number, 1, number, len(line) + 1),
        help=fault.help,
        url=index.url(requirement),
        source_line=line,
    )
