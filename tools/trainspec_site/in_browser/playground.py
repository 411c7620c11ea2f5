"""Runs the validator for the playground: texts by file name in, what was found as JSON out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from records import SUFFIX, judge_records

from trainspec_validate.model.finding import Finding, Report
from trainspec_validate.pipeline.validation import PartialInputError, validate
from trainspec_validate.report import render
from trainspec_validate.system.boundary import InputError

FOLDER = Path("/playground")
MAX_SHOWN = 100


@dataclass(slots=True)
class Answer:
    """Result for the page: findings, the number of requirements that hold, and notes."""

    findings: list[Finding] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report(()))

    def text(self) -> str:
        """The answer as JSON."""
        return json.dumps(
            {
                "findings": [_shown(finding, self.report) for finding in self.findings[:MAX_SHOWN]],
                "num_findings": len(self.findings),
                "problems": self.problems,
                "outcomes": self.outcomes,
            }
        )


def judge(texts: str) -> str:
    """Judge a JSON object of file names and texts; a JSON object with findings and problems."""
    files: dict[str, str] = {Path(name).name: text for name, text in json.loads(texts).items()}
    answer = Answer()
    documents = {name: text for name, text in files.items() if not name.endswith(SUFFIX)}
    if documents:
        _judge_documents(documents, answer)
    for name in sorted(files.keys() - documents.keys()):
        judged = judge_records(name, files[name])
        answer.findings += judged.findings
        answer.problems.append(judged.words)
    return answer.text()


def _judge_documents(documents: Mapping[str, str], answer: Answer) -> None:
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    for name, text in documents.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    os.chdir(FOLDER)
    try:
        answer.report = validate(sorted(documents))
    except PartialInputError as error:
        answer.report = error.report
        answer.problems.append(str(error))
    except InputError as error:
        answer.problems.append(str(error))
    answer.findings += answer.report.findings
    for outcome in answer.report.outcomes:
        answer.outcomes[outcome.verdict.value] = answer.outcomes.get(outcome.verdict.value, 0) + 1


def _shown(finding: Finding, report: Report) -> dict[str, Any]:
    block = render(replace(report, findings=(finding,), coverage=()), "full").split("\n\n")[0]
    lines = [line for line in block.split("\n")[1:] if not line.strip().startswith("= why:")]
    return {
        "requirement": finding.requirement,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "help": finding.help,
        "path": finding.path,
        "line": finding.span.line if finding.span else 0,
        "column": finding.span.column if finding.span else 0,
        "excerpt": "\n".join(lines),
        "url": finding.url,
    }
