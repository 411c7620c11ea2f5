"""Writes a conformance report in the Common Test Report Format (https://ctrf.io)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from trainspec_conformance.formats.reasons import reasons, seconds_of
from trainspec_validate.documents.types.conformance_report import ConformanceReport, ScenarioReport
from trainspec_validate.report.places import dumps

SPEC_VERSION = "0.0.0"
"""The schema takes any version of three numbers, and none is named as released:
https://github.com/ctrf-io/ctrf/blob/main/schema/ctrf.schema.json"""
_STATUSES = {"pass": "passed", "fail": "failed", "unsupported": "skipped", "not-run": "pending", "error": "other"}


def render(report: ConformanceReport) -> str:
    """One test per scenario; its steps are the checks of each trial."""
    tests = [_test(one) for one in report.scenarios]
    stop = round(datetime.fromisoformat(report.created).timestamp() * 1000)
    duration = sum(test["duration"] for test in tests)
    count = {status: sum(test["status"] == status for test in tests) for status in _STATUSES.values()}
    summary = {"tests": len(tests), **count, "start": stop - duration, "stop": stop, "duration": duration}
    return dumps(
        {
            "reportFormat": "CTRF",
            "specVersion": SPEC_VERSION,
            "timestamp": report.created,
            "generatedBy": "trainspec-conformance",
            "results": {
                "tool": {"name": "trainspec-conformance", "version": report.suite_version},
                "summary": summary,
                "tests": tests,
                "environment": {"appName": report.stack.metadata.name, "osPlatform": report.machine.system},
                "extra": {"level": report.level, "conformant": report.conformant},
            },
        }
    )


def _test(one: ScenarioReport) -> dict[str, Any]:
    found = reasons(one)
    test: dict[str, Any] = {
        "name": one.scenario,
        "status": _STATUSES[one.verdict],
        "rawStatus": one.verdict,
        "duration": round(seconds_of(one) * 1000),
        "suite": [one.level],
        "tags": [one.requirement, one.tier],
        "steps": [
            {"name": f"trial {trial.number}: {check.check}", "status": "passed" if check.passed else "failed"}
            for trial in one.trials
            for check in trial.checks
        ],
    }
    if found and one.verdict != "pass":
        test |= {"message": found[0], "trace": "\n".join(found)}
    return test
