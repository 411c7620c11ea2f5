"""Writes JUnit XML: a suite per document, a case per requirement that it breaks."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from trainspec_validate.model.finding import Finding, Report, Suppressed
from trainspec_validate.report.left_out import sentences
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import Identified, identified, position, relative
from trainspec_validate.report.summary import all_paths, nothing_judged
from trainspec_validate.report.unjudged import label, ordered, sentence, short_ids
from trainspec_validate.system.neutral import printable

Case = list[Identified]


def render(report: Report, options: Options) -> str:
    """Suites in the order of paths; the text is valid XML whatever the findings say."""
    suites: dict[str, dict[str, Case]] = {path: {} for path in sorted(all_paths(report))}
    for entry in identified(report, options.base):
        suite = suites.setdefault(entry.finding.path, {})
        suite.setdefault(entry.finding.requirement, []).append(entry)

    for unjudged in ordered(report):
        suites.setdefault(unjudged.path, {})
    judged = all_paths(report)
    root = ET.Element("testsuites", name="trainspec-validate")
    for path, cases in suites.items():
        name = printable(relative(path, options.base))
        written = ET.SubElement(root, "testsuite", name=name)
        if path in judged:
            _cases(written, name, cases, nothing_judged(report))
        for unjudged in ordered(report):
            if unjudged.path == path:
                title = printable(f"{label(unjudged)}: {unjudged.reason}")
                case = ET.SubElement(written, "testcase", name=title, classname=name)
                ET.SubElement(case, "skipped", message=sentence(unjudged)).text = short_ids(unjudged.requirements)
        _count(written)
    told = sentences(report)
    if told:
        written = ET.SubElement(root, "testsuite", name="settings")
        for text in told:
            case = ET.SubElement(written, "testcase", name=text, classname="settings")
            ET.SubElement(case, "skipped", message=text)
        _count(written)
    for attribute in ("tests", "failures", "skipped"):
        root.set(attribute, str(sum(int(suite.get(attribute, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _cases(suite: ET.Element, path: str, cases: dict[str, Case], unjudged: bool) -> None:
    if not cases:
        case = ET.SubElement(suite, "testcase", name="no findings", classname=path)
        if unjudged:
            case.set("name", "nothing judged")
            ET.SubElement(case, "skipped", message="no requirement came to a verdict")
    for requirement in sorted(cases):
        _case(suite, path, cases[requirement])


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))


def _case(suite: ET.Element, path: str, entries: Case) -> None:
    first = entries[0].finding
    name = printable(f"{first.requirement} {first.name}")
    case = ET.SubElement(suite, "testcase", name=name, classname=path)
    live = [entry.finding for entry in entries if entry.suppressed is None]
    if live:
        message = live[0].message if len(live) == 1 else f"{live[0].message} (and {len(live) - 1} more)"
        failure = ET.SubElement(case, "failure", message=printable(message), type=live[0].severity)
        failure.text = "\n".join(_describe(finding) for finding in live)
    excuses = "; ".join(_excuse(entry.suppressed) for entry in entries if entry.suppressed)
    if excuses and live:
        ET.SubElement(case, "system-out").text = f"silenced: {excuses}"
    elif excuses:
        ET.SubElement(case, "skipped", message=excuses)


def _describe(finding: Finding) -> str:
    remedy = f" ({printable(finding.help)})" if finding.help else ""
    why = f"\n  why: {printable(finding.url)}" if finding.url else ""
    place = position(finding.path, finding.span, finding.pointer)
    return f"{place}: {finding.severity}: {printable(finding.message)}{remedy}{why}"


def _excuse(entry: Suppressed) -> str:
    return printable(f"{entry.kind}: {entry.reason}" if entry.reason else entry.kind)
