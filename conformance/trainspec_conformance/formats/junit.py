"""Writes a conformance report as JUnit XML: a suite per level, a case per scenario."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from trainspec_conformance.formats.reasons import reasons, seconds_of
from trainspec_validate.documents.types.conformance_report import ConformanceReport, ScenarioReport
from trainspec_validate.system.neutral import printable

_ELEMENTS = {"fail": "failure", "error": "error", "unsupported": "skipped", "not-run": "skipped"}


def render(report: ConformanceReport) -> str:
    """Valid XML whatever the stack says of itself."""
    stack = printable(report.stack.metadata.name)
    root = ET.Element("testsuites", name=f"trainspec-conformance {stack}")
    for level in dict.fromkeys(one.level for one in report.scenarios):
        suite = ET.SubElement(root, "testsuite", name=f"{stack} {level}", timestamp=report.created.rstrip("Z"))
        for one in report.scenarios:
            if one.level == level:
                _case(suite, stack, one)
        _count(suite, "testcase")
    for attribute in ("tests", "failures", "errors", "skipped"):
        root.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in root)))
    root.set("time", _seconds(sum(seconds_of(one) for one in report.scenarios)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, stack: str, one: ScenarioReport) -> None:
    name = printable(f"{one.requirement} {one.scenario}")
    case = ET.SubElement(suite, "testcase", name=name, classname=stack, time=_seconds(seconds_of(one)))
    if one.verdict == "pass":
        return
    found = reasons(one) or [one.verdict]
    inner = ET.SubElement(case, _ELEMENTS[one.verdict], message=found[0])
    if inner.tag != "skipped":
        inner.set("type", one.verdict)
        inner.text = "\n".join(found)


def _count(suite: ET.Element, case: str) -> None:
    suite.set("tests", str(len(suite)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"{case}/{tag}"))))
    suite.set("time", _seconds(sum(float(one.get("time", "0")) for one in suite)))


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
