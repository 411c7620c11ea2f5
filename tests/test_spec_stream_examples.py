"""Every good stream of the specification passes its requirement; every bad one is reported at the marked line."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from overlay import overlay
from spec_text import MARK

from tests.every import every
from trainspec_validate.documents.load import load_text
from trainspec_validate.model.finding import Finding, Outcome, Verdict
from trainspec_validate.model.requirements import Example, Requirement, load_index
from trainspec_validate.pipeline.validation import validate

BASE = Path(__file__).resolve().parent.parent / "spec" / "v1" / "base"
ON_STREAMS = [requirement for requirement in load_index().by_id.values() if requirement.check == "stream"]


@cache
def base(file: str) -> Any:
    """The complete document that an excerpt is laid over."""
    return load_text((BASE / file).read_text(encoding="utf-8"), file).data


def written(requirement: Requirement, examples: tuple[Example, ...], directory: Path) -> set[tuple[str, int]]:
    """Write streams as they are and excerpts of documents laid over the base; file and number of each marked line."""
    marked = set()
    for example in examples:
        for number, line in enumerate(example.text.splitlines(), start=1):
            if any(requirement.id in match["ids"].split() for match in MARK.finditer(line)):
                marked.add((example.file, number))
        text = re.sub(rf"  {MARK.pattern}", "", example.text, flags=MARK.flags)
        if not example.file.endswith(".jsonl"):
            text = json.dumps(overlay(base(example.file), load_text(text, example.file).data), indent=1)
        (directory / example.file).write_text(text, encoding="utf-8")
    return marked


def judged(requirement: Requirement, directory: Path) -> tuple[list[Finding], Outcome]:
    """The findings of one requirement, and what came of it."""
    report = validate([directory])
    outcome = next(outcome for outcome in report.outcomes if outcome.requirement == requirement.id)
    return [finding for finding in report.findings if finding.requirement == requirement.id], outcome


def told(findings: list[Finding]) -> list[str]:
    return [f"{Path(f.path).name}:{f.span.line if f.span else 0}: {f.message}" for f in findings]


def test_streams_have_examples() -> None:
    assert ON_STREAMS
    assert [r.id for r in ON_STREAMS if not any(example.file.endswith(".jsonl") for example in r.bad)] == []


@every("requirement", ON_STREAMS, ids=lambda r: r.id)
def test_good_stream_is_judged_and_passes(requirement: Requirement, tmp_path: Path) -> None:
    written(requirement, requirement.good, tmp_path)
    findings, outcome = judged(requirement, tmp_path)
    assert told(findings) == []
    assert (outcome.verdict, outcome.reason) == (Verdict.PASS, "")


@every("requirement", ON_STREAMS, ids=lambda r: r.id)
def test_bad_stream_is_reported_at_the_marked_line(requirement: Requirement, tmp_path: Path) -> None:
    marked = written(requirement, requirement.bad, tmp_path)
    findings, outcome = judged(requirement, tmp_path)
    assert {(Path(f.path).name, f.span.line) for f in findings if f.span} == marked, told(findings)
    assert outcome.verdict in {Verdict.FAIL, Verdict.WARN}
    assert outcome.num_findings == len(findings) > 0
