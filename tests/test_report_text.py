"""No text in a report, however hostile, breaks a format or reaches the terminal raw."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from trainspec_validate.model.finding import (
    DocumentSummary,
    Finding,
    Outcome,
    Related,
    Report,
    Severity,
    Span,
    Suppressed,
    SuppressionKind,
    Unjudged,
    Verdict,
)
from trainspec_validate.report import FORMATS, render
from trainspec_validate.report.excerpt import MAX_CELLS, cells, excerpt, split_lines
from trainspec_validate.report.silenced import sentences
from trainspec_validate.report.unjudged import groups

TESTS = Path(__file__).parent
SARIF = Draft7Validator(json.loads((TESTS / "schemas/sarif-2.1.0.json").read_text(encoding="utf-8")))
REPORT_JSON = Draft202012Validator(
    json.loads((TESTS.parent / "schemas/v1/report.schema.json").read_text(encoding="utf-8"))
)

TEXT = st.text(st.characters(codec=None), max_size=30) | st.sampled_from(
    [
        "",
        "\x1b[31m",
        "\ud800",
        "\udc00\ud800",
        "a\r\nb\n",
        "]]>&<\"'",
        "%0A::error::",
        "\x9b2J",
        "\ufffe",
        "\u2028",
    ]
)
NUMBER = st.integers(1, 60)
POINTER = st.lists(TEXT | st.integers(0, 9), max_size=3).map(tuple)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start, end = sorted([(draw(NUMBER), draw(NUMBER)), (draw(NUMBER), draw(NUMBER))])
    return Span(*start, *end)


SPAN = st.none() | spans()
RELATED = st.builds(Related, TEXT, TEXT, POINTER, SPAN)
FINDING = st.builds(
    Finding,
    requirement=st.sampled_from(["TS-PAR-001", "TS-PAR-002"]) | TEXT.filter(bool),
    name=TEXT,
    severity=st.sampled_from(Severity),
    message=TEXT,
    path=st.sampled_from(["a", "b"]) | TEXT,
    pointer=POINTER,
    span=SPAN,
    help=TEXT,
    url=st.sampled_from(["", "https://trainspec.org/v1/"]),
    related=st.lists(RELATED, max_size=2).map(tuple),
)
DOCUMENT = st.builds(
    DocumentSummary,
    path=st.sampled_from(["a", "b"]) | TEXT,
    kind=TEXT,
    name=TEXT,
    text=TEXT.map(lambda t: t * 9),
)
REPORT = st.builds(
    Report,
    findings=st.lists(FINDING, max_size=4).map(tuple),
    suppressed=st.lists(st.builds(Suppressed, FINDING, st.sampled_from(SuppressionKind), TEXT), max_size=2).map(tuple),
    documents=st.lists(DOCUMENT, max_size=3).map(tuple),
    outcomes=st.lists(
        st.builds(Outcome, TEXT.filter(bool), st.sampled_from(Verdict), st.just(0), TEXT), max_size=3
    ).map(tuple),
    specification_version=TEXT,
    tool_version=TEXT,
    unjudged=st.lists(
        st.builds(
            Unjudged,
            TEXT,
            TEXT.filter(bool),
            TEXT,
            st.lists(TEXT.filter(bool), max_size=3, unique=True).map(tuple),
            POINTER,
            SPAN,
        ),
        max_size=2,
    ).map(tuple),
)
WRITABLE = re.compile(r"[^\ud800-\udfff]*")


@given(REPORT)
def test_nothing_hostile_leaves_any_format(report: Report) -> None:
    for name in FORMATS:
        written = render(report, name)
        assert all(line.isprintable() for line in written.split("\n")), name
        assert WRITABLE.fullmatch(written)


@given(REPORT)
def test_colour_adds_only_its_own_sequences(report: Report) -> None:
    for name in ("full", "concise", "statistics"):
        coloured = render(report, name, color=True, hyperlinks=True)
        bare = re.sub(r"\x1b\]8;;[^\x1b]*\x1b\\", "", coloured)
        assert re.sub(r"\x1b\[[0-9;]+m", "", bare) == render(report, name)


@given(REPORT)
def test_json_formats_stay_json(report: Report) -> None:
    assert list(REPORT_JSON.iter_errors(json.loads(render(report, "json")))) == []
    number = len(report.findings) + len(report.unjudged) + len(sentences(report))
    assert len(json.loads(render(report, "gitlab"))) == number


@given(REPORT)
def test_sarif_stays_sarif(report: Report) -> None:
    assert list(SARIF.iter_errors(json.loads(render(report, "sarif")))) == []


@given(REPORT)
def test_fingerprints_are_unique(report: Report) -> None:
    [run] = json.loads(render(report, "sarif"))["runs"]
    prints = [result["partialFingerprints"]["requirementAndPointer/v1"] for result in run["results"]]
    assert len(set(prints)) == len(report.findings) + len(report.suppressed)


@given(REPORT)
def test_junit_stays_xml(report: Report) -> None:
    root = ET.fromstring(render(report, "junit"))
    broken = {(f.path.removeprefix("./"), f.requirement) for f in report.findings}
    assert len(list(root.iter("failure"))) >= len(broken)


@given(REPORT)
def test_one_finding_is_one_line(report: Report) -> None:
    silenced = len(sentences(report))
    assert render(report, "concise").count("\n") == len(report.findings) + len(groups(report)) + silenced + 1
    commands = render(report, "github").splitlines()
    assert len(commands) == len(report.findings) + len(report.unjudged) + silenced
    command = re.compile(r"::(error|warning|notice) (file=[^:,]*(,[a-zA-Z]+=[^:,]*)*|title=silenced)::[^\n]*")
    assert all(command.fullmatch(line) for line in commands)


def marked(line: str, start: int, end: int) -> tuple[str, str]:
    found = excerpt([line], Span(1, start, 1, end))
    assert found
    return found.code, " " * found.indent + "^" * found.length


@pytest.mark.parametrize(
    ("line", "start", "end", "code", "marks"),
    [
        ("key: value", 6, 11, "key: value", "     ^^^^^"),
        ("計画: x", 1, 3, "計画: x", "^^^^"),
        ("計画: x", 5, 6, "計画: x", "      ^"),
        ("e\u0301: x", 4, 5, "e\u0301: x", "  ^"),
        ("\tkey", 2, 5, "    key", "    ^^^"),
        ("a\x1bb", 3, 4, r"a\x1bb", "     ^"),
        ("a\x1bb", 2, 3, r"a\x1bb", " ^^^^"),
        ("ab", 3, 3, "ab", "  ^"),
        ("ab", 40, 50, "ab", "  ^"),
        ("", 1, 1, "", "^"),
    ],
)
def test_marks_stand_below_their_cells(line: str, start: int, end: int, code: str, marks: str) -> None:
    assert marked(line, start, end) == (code, marks)


def test_a_span_of_several_lines_marks_the_first_to_its_end() -> None:
    found = excerpt(["one: two", "three"], Span(1, 6, 2, 3))
    assert found
    assert (found.indent, found.length) == (5, 3)


@given(st.text(st.characters(codec=None), max_size=400), st.integers(1, 500), st.integers(0, 400))
@example("x" * 10_000_000, 5_000_000, 3)
@example("計" * 90, 80, 5)
def test_long_lines_are_cut_around_the_mark(line: str, start: int, length: int) -> None:
    found = excerpt([line], Span(1, start, 1, start + length))
    assert found
    longest_escape = len(r"\U0010ffff")
    assert cells(found.code) <= MAX_CELLS + 2 * longest_escape + 2
    assert found.indent + found.length <= cells(found.code) + 1
    assert found.code.isprintable()


def test_lines_break_where_the_loader_counts_them() -> None:
    assert split_lines("\ufeffa\r\nb\rc\x85d\u2028e\x0bf\n") == ["a", "b", "c\x85d\u2028e\x0bf", ""]
