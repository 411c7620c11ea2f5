"""Every good checkpoint of the specification passes its requirement; every bad one is reported at the marked file."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from overlay import overlay
from spec_text import MARK

from tests.trees import build
from trainspec_validate.documents.load import load_text
from trainspec_validate.model.finding import Finding, Outcome, Verdict
from trainspec_validate.model.requirements import Example, Requirement, load_index
from trainspec_validate.pipeline.validation import Terms, examine

BASE = Path(__file__).resolve().parent.parent / "spec" / "v1" / "base"
TREE = "checkpoints"
ON_ARTIFACTS = [requirement for requirement in load_index().by_id.values() if requirement.check == "artifact"]


@cache
def base(file: str) -> Any:
    """The complete document that an excerpt is laid over."""
    return load_text((BASE / file).read_text(encoding="utf-8"), file).data


def written(requirement: Requirement, examples: tuple[Example, ...], directory: Path) -> set[str]:
    """Make the trees, and lay excerpts of documents over the base; the marked files."""
    marked = set()
    for example in examples:
        if example.file == TREE:
            build(directory / TREE, example.text)
        elif example.file.endswith(".jsonl"):
            (directory / example.file).write_text(example.text, encoding="utf-8")
        else:
            text = re.sub(rf"  {MARK.pattern}", "", example.text, flags=MARK.flags)
            content = json.dumps(overlay(base(example.file), load_text(text, example.file).data), indent=1)
            (directory / example.file).write_text(content, encoding="utf-8")
        for line in example.text.splitlines():
            if any(requirement.id in match["ids"].split() for match in MARK.finditer(line)):
                marked.add(PurePosixPath(example.file, line.split("  ")[0]).as_posix())
    return marked


def judged(requirement: Requirement, directory: Path) -> tuple[list[Finding], Outcome]:
    """The findings of one requirement, and what came of it."""
    report = examine([directory], Terms(values=True))
    outcome = next(outcome for outcome in report.outcomes if outcome.requirement == requirement.id)
    return [finding for finding in report.findings if finding.requirement == requirement.id], outcome


def test_artifacts_have_examples() -> None:
    assert ON_ARTIFACTS
    assert [r.id for r in ON_ARTIFACTS if not any(example.file == TREE for example in r.bad)] == []


@pytest.mark.parametrize("requirement", ON_ARTIFACTS, ids=lambda r: r.id)
def test_good_checkpoint_is_judged_and_passes(requirement: Requirement, tmp_path: Path) -> None:
    written(requirement, requirement.good, tmp_path)
    findings, outcome = judged(requirement, tmp_path)
    assert [(finding.path, finding.message) for finding in findings] == []
    assert (outcome.verdict, outcome.reason) == (Verdict.PASS, "")


@pytest.mark.parametrize("requirement", ON_ARTIFACTS, ids=lambda r: r.id)
def test_bad_checkpoint_is_reported_at_the_marked_file(requirement: Requirement, tmp_path: Path) -> None:
    marked = written(requirement, requirement.bad, tmp_path)
    findings, outcome = judged(requirement, tmp_path)
    told = {Path(finding.path).relative_to(tmp_path).as_posix() for finding in findings}
    assert told == marked, [finding.message for finding in findings]
    assert outcome.verdict in {Verdict.FAIL, Verdict.WARN}
    assert outcome.num_findings == len(findings) > 0
