"""Writes a conformance report as a page for people, which asks for nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from trainspec_conformance.formats.elements import Content, element, items, link_to, table
from trainspec_conformance.formats.reasons import reasons, seconds_of
from trainspec_conformance.formats.timeline import WORDS, drawing
from trainspec_validate.documents.types.conformance_report import (
    ConformanceReport,
    ReportNode,
    ScenarioReport,
    TrialReport,
)
from trainspec_validate.model.requirements import load_index
from trainspec_validate.model.units import counted

STYLE = Path(__file__).with_name("page.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
QUANTILES = ("p50_seconds", "p90_seconds", "p95_seconds")


def render(report: ConformanceReport) -> str:
    """HTML in one file; whatever the stack says of itself is text in it."""
    title = f"Conformance of {report.stack.metadata.name}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
    )
    ET.SubElement(head, "style").text = STYLE.read_text(encoding="utf-8")
    body = element("body", element("h1", title), *_summary(report), *_scenarios(report), *_origin(report))
    page = element("html", head, body, lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"


def _summary(report: ConformanceReport) -> Iterator[Content]:
    claim = f"{report.claims.level}, profile {report.claims.profile}"
    verdict = "conformant" if report.conformant else "not conformant"
    colour = "pass" if report.conformant else "fail"
    yield element(
        "p", f"Level: {report.level or 'none'}. ", element("span", verdict, class_=colour), f" to the claim {claim}."
    )
    if report.stack.modifications:
        yield element(
            "div",
            element("strong", "This is a modified stack, and not what its makers ship:"),
            items(report.stack.modifications),
            class_="notice",
        )
    if report.stack.metadata.description:
        yield element("p", report.stack.metadata.description)
    if report.document_errors:
        yield element("h2", "Documents")
        yield items(report.document_errors)


def _scenarios(report: ConformanceReport) -> Iterator[Content]:
    yield element("h2", "Verdicts")
    rows = [
        (
            element("td", one.verdict, class_=f"verdict {one.verdict}"),
            element("td", element("a", one.scenario, href=f"#{one.scenario}")),
            element("td", _requirement(one.requirement)),
            element("td", one.level),
            element("td", "" if one.num_ranks is None else str(one.num_ranks), class_="number"),
            element("td", str(len(one.trials)), class_="number"),
            element("td", f"{seconds_of(one):.1f}", class_="number"),
            element("td", one.gap or "", class_="gap"),
        )
        for one in report.scenarios
    ]
    yield table(("Verdict", "Scenario", "Requirement", "Level", "Ranks", "Trials", "Seconds", "Declared gap"), rows)
    known = {evidence.path for evidence in report.evidence}
    yield element("h2", "Trials")
    for one in report.scenarios:
        yield _details(one, known)


def _requirement(identifier: str) -> Content:
    index = load_index()
    known = index.by_id.get(identifier)
    return identifier if known is None else element("a", identifier, href=index.url(known), rel="noreferrer")


def _details(one: ScenarioReport, known: set[str]) -> ET.Element:
    title = element("summary", element("span", one.verdict, class_=f"verdict {one.verdict}"), f" {one.scenario}")
    found = element("details", title, id=one.scenario)
    if one.verdict != "pass":
        found.set("open", "")
    if told := reasons(one):
        found.append(items(told))
    if one.figures:
        found.append(_figures(one))
    for trial in one.trials:
        found.extend(_trial(trial, known))
    return found


def _figures(one: ScenarioReport) -> ET.Element:
    rows = []
    for figure in one.figures:
        cells = [element("td", WORDS[figure.name]), element("td", f"{figure.num_seen} of {figure.num_trials}")]
        for name in QUANTILES:
            value = getattr(figure, name)
            cells.append(element("td", "too few trials" if value is None else f"{value:.3f}", class_="number"))
        rows.append([*cells, element("td", f"{figure.largest_seconds:.3f}", class_="number")])
    return table(("Seconds after the fault", "Seen in trials", "Half", "90 %", "95 %", "Longest"), rows)


def _trial(trial: TrialReport, known: set[str]) -> Iterator[ET.Element]:
    yield element("h3", f"Trial {trial.number}")
    checks = ", ".join(f"{check.check} {'holds' if check.passed else 'FAILS'}" for check in trial.checks)
    yield element("p", f"{trial.seconds:.1f} s, seed {trial.seed}. {checks}.")
    if trial.marks:
        yield drawing(trial.marks)
    places = [place for check in trial.checks if not check.passed for place in check.places[:5]]
    files = sorted(path for path in known if path.startswith(f"{trial.directory}/"))
    if places:
        yield element("p", "Where it shows: ", element("code", ", ".join(places)))
    if files:
        rows = [link_to(path, path.removeprefix(f"{trial.directory}/")) for path in files]
        yield element("details", element("summary", f"Evidence: {counted(len(files), 'file')}"), items(rows))


def _node(node: ReportNode) -> str:
    return f"{node.name} (machine {node.machine}: {node.system}, {counted(node.num_processors, 'processor')})"


def _origin(report: ConformanceReport) -> Iterator[Content]:
    machine = report.machine
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    yield element("h2", "How this came about")
    facts = {
        "Made": f"{report.created}, suite {report.suite_version}, specification {report.specification_version}",
        "Machine": f"{machine.system}, {machine.processor}, {counted(machine.num_processors, 'processor')}, {memory}",
        **({"Nodes": ", ".join(map(_node, report.nodes))} if report.nodes else {}),
        "Components": ", ".join(f"{one.name} {one.version or ''}".strip() for one in report.stack.components),
        "Versions": ", ".join(f"{name} {version}" for name, version in report.versions.items()) or "not stated",
        "Command": " ".join(report.command),
        "Requirements": f"sha256:{report.requirements_sha256}",
        "Scenarios": f"sha256:{report.scenarios_sha256}",
    }
    yield table(("", ""), [(element("th", name, scope="row"), element("td", text)) for name, text in facts.items()])
    files = [link_to("report.json", "report.json"), *(link_to(path, path) for path in report.documents)]
    yield element("p", "Judge the evidence again: ", element("code", "trainspec-conformance verify DIRECTORY"))
    yield items(files)
