"""Every form of a report says what the report says, and nothing that a stack says becomes markup in it."""

from __future__ import annotations

import hashlib
import json
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from conformance_reports import COMMANDS, HOSTILE, hostile, report, scenario_report, trial
from trainspec_conformance.formats import FORMATS, write_all
from trainspec_conformance.reporting import text

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.conformance_report import ConformanceReport
from trainspec_validate.system.neutral import hazard

MIXED = report(
    scenario_report("kill-rank", "fail", trial(1), trial(2, failed="it did not end")),
    scenario_report("null-run", "pass", trial()),
    scenario_report("reshard", "unsupported", reason="reshard: not built", level="efficient"),
)


def render(name: str, one: ConformanceReport = MIXED) -> str:
    text: str = import_module(FORMATS[name]).render(one)
    return text


class Page(HTMLParser):
    """Elements and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_all_forms_are_written(tmp_path: Path) -> None:
    write_all(MIXED, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FORMATS.keys()
    assert all(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_a_hostile_stack_gives_a_form_that_can_be_read(name: str, tmp_path: Path) -> None:
    found = render(name, hostile())
    assert found.encode().decode() == found
    assert not [char for char in found if not char.isprintable() and char != "\n"]
    if name.endswith((".svg", ".xml")):
        ET.fromstring(found)
    if not name.endswith("html"):
        return
    page = Page(found)
    assert not {"script", "img", "b", "iframe", "link"} & {tag for tag, _ in page.elements}
    assert not [one for _, attributes in page.elements for one in attributes if one.startswith("on")]
    assert any("<script>alert(1)</script>" in text for text in page.texts), "the text itself is shown"


def test_no_form_holds_a_command_of_a_build_system(tmp_path: Path) -> None:
    """A job prints its reports, or uploads them to a place that shows them as a log."""
    write_all(hostile(), tmp_path)
    texts = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    texts["report.json"] = text(hostile()).decode()
    assert {name for name, found in texts.items() if hazard(found)} == set()
    assert COMMANDS in "".join(Page(texts["report.html"]).texts)
    assert COMMANDS in json.loads(texts["report.json"])["stack"]["metadata"]["name"]


# --- page -----------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    for one in (MIXED, hostile()):
        elements = Page(render("report.html", one)).elements
        assert not [attributes for _, attributes in elements if "src" in attributes]
        links = [str(attributes["href"]) for tag, attributes in elements if tag == "a"]
        assert all(link.startswith(("./", "#", "https://trainspec.org/")) for link in links), links
    policy = next(attributes for tag, attributes in elements if tag == "meta" and "http-equiv" in attributes)
    assert str(policy["content"]).startswith("default-src 'none'")
    assert "url(" not in render("report.html")
    assert "@import" not in render("report.html")


def test_the_page_shows_verdicts_time_lines_and_evidence() -> None:
    page = Page(render("report.html"))
    words = " ".join(page.texts)
    for wanted in ("it did not end", "reshard: not built", "too few trials", "not conformant", "0.500 s"):
        assert wanted in words
    lines = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg"]
    assert lines == ["Seconds after the fault: until detected 0.250 s, until the first step 0.500 s"] * 3
    assert "./x/trial-1/history.jsonl" in [attributes.get("href") for _, attributes in page.elements]
    assert "prefers-color-scheme: dark" in words


def test_the_page_shows_that_a_stack_is_modified() -> None:
    stack = changed(MIXED.stack, modifications=("It saves twice as often.",))
    assert "modified stack" not in render("report.html")
    found = render("report.html", changed(MIXED, stack=stack))
    assert found.index("It saves twice as often.") < found.index("Verdicts")
    assert "modified" in render("badge.svg", changed(MIXED, stack=stack))


# --- forms for programs -----------------------------------------------------------------------------------------


def test_junit_has_a_case_for_each_scenario() -> None:
    root = ET.fromstring(render("junit.xml"))
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    assert [suite.get("tests") for suite in root] == ["2", "1"]
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.text == "trial 2: completes: it did not end"


def test_ctrf_has_what_its_schema_requires() -> None:
    found = json.loads(render("ctrf.json"))
    assert found["reportFormat"] == "CTRF"
    summary = found["results"]["summary"]
    assert {key: summary[key] for key in ("tests", "passed", "failed", "skipped", "pending", "other")} == {
        "tests": 3,
        "passed": 1,
        "failed": 1,
        "skipped": 1,
        "pending": 0,
        "other": 0,
    }
    assert summary["stop"] - summary["start"] == summary["duration"] == 6000
    assert all({"name", "status", "duration"} <= test.keys() for test in found["results"]["tests"])
    assert [step["status"] for step in found["results"]["tests"][0]["steps"]] == ["passed", "failed"]


def test_sarif_points_to_the_file_of_the_stack_before_the_history() -> None:
    (result,) = json.loads(render("report.sarif"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "x/trial-2/out/trace/rank-0.jsonl"
    assert place["region"] == {"startLine": 7}
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"]["uri"] == "x/trial-2/history.jsonl"
    assert (result["ruleId"], result["level"]) == ("TS-CNF-101", "error")


def test_a_statement_is_about_the_bytes_of_the_report() -> None:
    found = json.loads(render("statement.json"))
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    (subject,) = found["subject"]
    assert subject["digest"]["sha256"] == hashlib.sha256(text(MIXED)).hexdigest()
    predicate = found["predicate"]
    assert predicate["result"] == "FAILED"
    assert (predicate["passedTests"], predicate["warnedTests"], predicate["failedTests"]) == (
        ["null-run"],
        ["reshard"],
        ["kill-rank"],
    )


@pytest.mark.parametrize(
    ("scenarios", "result"),
    [
        ([scenario_report("null-run", "pass", trial())], "PASSED"),
        ([scenario_report("null-run", "fail", trial(failed="x"), gap="known")], "WARNED"),
        ([scenario_report("null-run", "error", reason="a mistake")], "FAILED"),
    ],
)
def test_a_declared_gap_is_a_warning_and_no_pass(scenarios: list, result: str) -> None:
    assert json.loads(render("statement.json", report(*scenarios)))["predicate"]["result"] == result


def test_the_badge_shows_level_and_version() -> None:
    badge = ET.fromstring(render("badge.svg"))
    assert badge.get("aria-label") == "TrainSpec 1.0: not conformant"
    reached = ET.fromstring(render("badge.svg", changed(MIXED, level="recoverable")))
    assert reached.get("aria-label") == "TrainSpec 1.0: recoverable"


def test_what_is_hostile_is() -> None:
    assert not HOSTILE.isprintable()
