"""Writes the tested subjects as an in-toto statement, ready to be signed by the operator of the suite.

Source: https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md
"""

from __future__ import annotations

import hashlib
from typing import Any

from trainspec_conformance.reading import REPORT
from trainspec_conformance.reporting import text
from trainspec_validate.documents.types.conformance_report import ConformanceReport, ScenarioReport
from trainspec_validate.report.places import dumps

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"


def render(report: ConformanceReport) -> str:
    """A statement about the bytes of the report; what is a declared gap, or unsupported, is a warning."""
    kinds = {_list_of(one) for one in report.scenarios}
    result = "FAILED" if "failedTests" in kinds else "WARNED" if "warnedTests" in kinds else "PASSED"
    configuration = [
        {"name": "requirements.json", "digest": {"sha256": report.requirements_sha256}},
        {"name": "scenarios", "digest": {"sha256": report.scenarios_sha256}},
    ]
    predicate: dict[str, Any] = {"result": result, "configuration": configuration, **_lists(report)}
    return dumps(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": REPORT, "digest": {"sha256": hashlib.sha256(text(report)).hexdigest()}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }
    )


def _lists(report: ConformanceReport) -> dict[str, Any]:
    names = ("passedTests", "warnedTests", "failedTests")
    return {name: [one.scenario for one in report.scenarios if _list_of(one) == name] for name in names}


def _list_of(one: ScenarioReport) -> str:
    if one.verdict == "pass":
        return "passedTests"
    is_warned = one.gap is not None or one.verdict in {"unsupported", "not-run"}
    return "warnedTests" if is_warned else "failedTests"
