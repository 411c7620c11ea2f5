"""The only place that runs the validator for the playground: texts by file name in, what was found as JSON out."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainspec_validate.check import PartialInputError, validate
from trainspec_validate.collect import InputError
from trainspec_validate.findings import Finding, Report
from trainspec_validate.report import render

FOLDER = Path("/playground")
MAX_SHOWN = 100


def judge(texts: str) -> str:
    """Judge a JSON object of file names and texts; a JSON object with findings and problems."""
    files: dict[str, str] = json.loads(texts)
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    for name, text in files.items():
        (FOLDER / Path(name).name).write_text(text, encoding="utf-8")
    os.chdir(FOLDER)
    problems: list[str] = []
    try:
        report = validate(sorted(files))
    except PartialInputError as error:
        report, problems = error.report, [str(error)]
    except InputError as error:
        return json.dumps({"findings": [], "num_findings": 0, "problems": [str(error)], "outcomes": {}})
    return json.dumps(
        {
            "findings": [_shown(finding, report) for finding in report.findings[:MAX_SHOWN]],
            "num_findings": len(report.findings),
            "problems": problems,
            "outcomes": _counted(report),
        }
    )


def _shown(finding: Finding, report: Report) -> dict[str, Any]:
    block = render(replace(report, findings=(finding,), coverage=()), "full").split("\n\n")[0]
    lines = [line for line in block.split("\n")[1:] if not line.strip().startswith("= why:")]
    return {
        "requirement": finding.requirement,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "path": finding.path,
        "line": finding.span.line if finding.span else 0,
        "column": finding.span.column if finding.span else 0,
        "excerpt": "\n".join(lines),
        "url": finding.url,
    }


def _counted(report: Report) -> dict[str, int]:
    counts: dict[str, int] = {}
    for outcome in report.outcomes:
        counts[outcome.verdict.value] = counts.get(outcome.verdict.value, 0) + 1
    return counts
