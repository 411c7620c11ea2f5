"""Every good example of the specification is silent; every bad one is reported at the marked line."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from overlay import excerpt_pointer, overlay
from spec_text import MARK

from tests.every import every
from trainspec_validate.documents.load import LoadError, load_text
from trainspec_validate.model.finding import Finding
from trainspec_validate.model.requirements import Example, Requirement, load_index
from trainspec_validate.pipeline.validation import validate

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "spec" / "v1" / "base"
KIND_FILES = ("cluster.yaml", "plan.yaml", "checkpoint.yaml")
WITH_EXAMPLES = [r for r in load_index().by_id.values() if r.bad and r.check not in {"stream", "artifact", "runtime"}]


@cache
def base(file: str) -> Any:
    """The complete document under an example: `other-cluster.yaml` lies over the same one as `cluster.yaml`."""
    file = file.rsplit("-", 1)[-1]
    return load_text((BASE / file).read_text(encoding="utf-8"), file).data


def is_whole(text: str) -> bool:
    """An example that shows a whole file, or one that cannot be laid over anything because it is not readable."""
    try:
        data = load_text(text, "excerpt.yaml").data
    except LoadError:
        return True
    return not isinstance(data, dict) or "apiVersion" in data


def needs_its_spelling(text: str) -> bool:
    """An example whose comments or scalars would lose what they show when its values are written anew."""
    return "trainspec: ignore" in text or bool(load_text(text, "excerpt.yaml").ambiguous)


def judge(examples: tuple[Example, ...], directory: Path) -> list[Finding]:
    """Lay the examples over the base documents, judge the set, and return the findings with lines of the excerpts."""
    merged: dict[str, Any] = {}
    texts = {example.file: re.sub(rf"  {MARK.pattern}", "", example.text, flags=MARK.flags) for example in examples}
    for file in {*KIND_FILES, *texts}:
        text = texts.get(file)
        if text is not None and (is_whole(text) or needs_its_spelling(text)):
            content = text if is_whole(text) else text + rest_of(file, text)
        else:
            merged[file] = overlay(base(file), {} if text is None else load_text(text, file).data)
            content = json.dumps(merged[file], indent=1)
        (directory / file).write_text(content, encoding="utf-8")
    waivers = directory / "waivers.yaml"
    findings = validate([directory], waivers=waivers if waivers.exists() else None).findings
    return [relocated(finding, texts, merged) for finding in findings]


def rest_of(file: str, excerpt: str) -> str:
    """The top-level keys of the base that an excerpt lacks: it keeps its comments when it is not merged."""
    own = load_text(excerpt, file).data
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in base(file).items() if key not in own)


def relocated(finding: Finding, texts: dict[str, str], merged: dict[str, Any]) -> Finding:
    file = Path(finding.path).name
    if file not in texts or file not in merged:
        return finding
    source = load_text(texts[file], file)
    pointer = excerpt_pointer(source.data, merged[file], finding.pointer)
    at_key = finding.points_at_key or len(pointer) < len(finding.pointer)
    span = source.locate([(pointer, at_key)])[(pointer, at_key)]
    return Finding(
        finding.requirement, finding.name, finding.severity, finding.message, file, finding.pointer, span=span
    )


@pytest.mark.slow
@every("requirement", WITH_EXAMPLES, ids=lambda r: r.id)
def test_good_example_is_silent(requirement: Requirement, tmp_path: Path) -> None:
    findings = judge(requirement.good, tmp_path)
    assert [f"{f.path}: {f.requirement} {f.message}" for f in findings] == []


@pytest.mark.slow
@every("requirement", WITH_EXAMPLES, ids=lambda r: r.id)
def test_bad_example_is_reported_at_the_marked_line(requirement: Requirement, tmp_path: Path) -> None:
    findings = judge(requirement.bad, tmp_path)
    marked = {
        (identifier, example.file, number)
        for example in requirement.bad
        for number, line in enumerate(example.text.splitlines(), start=1)
        for match in MARK.finditer(line)
        for identifier in match["ids"].split()
    }
    found = {(f.requirement, Path(f.path).name, f.span.line if f.span else 0) for f in findings}
    assert found == marked, [f"{f.path} {f.pointer}: {f.requirement} {f.message}" for f in findings]


def test_base_documents_are_silent_together() -> None:
    report = validate([BASE])
    assert report.findings == ()
    assert len(report.documents) == 3
