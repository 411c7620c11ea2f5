"""Every output format on one report that has everything: golden texts, published schemas, start-up."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from trainspec_validate.model.finding import (
    DocumentSummary,
    Finding,
    LeftOut,
    Origin,
    Outcome,
    Related,
    Report,
    Severity,
    Span,
    Suppressed,
    SuppressionKind,
    Verdict,
)
from trainspec_validate.report import FORMATS, render, summary

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden" / "report"
SARIF_SCHEMA = json.loads((TESTS / "schemas" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
REPORT_SCHEMA = json.loads((TESTS.parent / "schemas" / "v1" / "report.schema.json").read_text(encoding="utf-8"))
BASE = "/home/user/project"
WHY = "https://trainspec.org/v1/"

PLAN = """\
apiVersion: trainspec/v1
kind: TrainingPlan
metadata:
  name: "計画-Ω"
cluster: small

parallelism:
  tensor: 4
  pipeline: 1

  # replicas
  data: 2
precision: {compute: bf32}
\tnotes: 学習\x1b[31mred\u202e
"""
CLUSTER = "kind: ClusterProfile\nnodes: 2\naccelerators_per_node: 8\n"


@dataclass(frozen=True)
class Text:
    """The least that a requirement index offers."""

    name: str
    title: str
    statement: str
    why: str
    details: str = ""


REQUIREMENTS = {
    "TS-PAR-001": Text(
        "world-size",
        "The degrees multiply to the world size",
        "The product of all degrees MUST equal the number of accelerators.",
        "A launcher that starts another number of ranks hangs at the first collective.",
    ),
    "TS-CLU-002": Text("link-speed", "Links have a speed", "A link MUST state its speed.", "Costs need it."),
}


def finding(number: int, name: str, severity: Severity, message: str, **more: Any) -> Finding:
    requirement = f"TS-PAR-{number:03}"
    url = f"{WHY}parallelism/#{requirement}"
    return Finding(requirement, name, severity, message, **{"path": "plan.yaml", "url": url, **more})


WORLD_SIZE = finding(
    1,
    "world-size",
    Severity.ERROR,
    "the degrees multiply to 8, but the plan uses 16 accelerators",
    pointer=("parallelism", "data"),
    span=Span(12, 3, 12, 10),
    help="make data 4",
)
FINDINGS = (
    WORLD_SIZE,
    replace(
        WORLD_SIZE,
        span=Span(8, 3, 8, 12),
        help="",
        related=(
            Related("two nodes", "cluster.yaml", ("nodes",), Span(2, 1, 2, 9)),
            Related("of eight", "cluster.yaml", ("accelerators_per_node",), Span(30, 1, 30, 2)),
            Related("named here", "site/a b.yaml", ("a/b", "c~d", 0)),
        ),
    ),
    finding(2, "wide-name", Severity.WARNING, "計画 is not ASCII", span=Span(4, 10, 4, 12)),
    finding(3, "block", Severity.NOTE, "spans two lines", span=Span(8, 3, 9, 14), url=""),
    finding(4, "hidden", Severity.WARNING, "100% of \x1b[2J is\nhidden: a, b", span=Span(14, 9, 14, 14)),
    finding(5, "end", Severity.ERROR, "ends before the list does", span=Span(99, 1, 99, 1)),
    finding(6, "empty", Severity.ERROR, "is empty", path="empty.yaml", span=Span(1, 1, 1, 1)),
    finding(7, "unread", Severity.ERROR, "cannot be read", path=f"{BASE}/deep/a b,c:ü.yaml", url=""),
    finding(8, "no-text", Severity.NOTE, "has no text", path="site/cluster.yaml", pointer=("a/b", "c~d", 0)),
    finding(9, "long", Severity.ERROR, "is far away", path="long.json", span=Span(1, 151, 1, 157)),
)
SUPPRESSED = (
    Suppressed(replace(WORLD_SIZE, span=Span(9, 3, 9, 14)), SuppressionKind.INLINE, "single node"),
    Suppressed(
        finding(10, "old", Severity.WARNING, "was always so", span=Span(2, 1, 2, 5)),
        SuppressionKind.BASELINE,
        "",
    ),
    Suppressed(
        finding(11, "lent", Severity.ERROR, "x", path="cluster.yaml"),
        SuppressionKind.WAIVER,
        "until <May> & on",
    ),
)
DOCUMENTS = (
    DocumentSummary("plan.yaml", "TrainingPlan", "計画-Ω", PLAN),
    DocumentSummary("cluster.yaml", "ClusterProfile", "small", CLUSTER),
    DocumentSummary("site/cluster.yaml", "ClusterProfile", "big"),
    DocumentSummary("empty.yaml", "", "", ""),
    DocumentSummary("long.json", "MetricStream", "", "[" + "1.25, " * 25 + "666666" + ", 1.5" * 40 + "]"),
    DocumentSummary("clean.yaml", "CheckpointPolicy", "nightly", "kind: CheckpointPolicy\n"),
)
OUTCOMES = (
    Outcome("TS-PAR-001", Verdict.FAIL, 2),
    Outcome("TS-PAR-002", Verdict.WARN, 1),
    Outcome("TS-CLU-002", Verdict.PASS),
    Outcome("TS-CKP-001", Verdict.NOT_APPLICABLE, reason="no CheckpointManifest"),
    Outcome("TS-NRG-001", Verdict.UNSUPPORTED, reason="no power meter"),
    Outcome("TS-CKP-009", Verdict.NOT_RUN, reason="not selected"),
    Outcome("TS-MEM-001", Verdict.ERROR, reason="ZeroDivisionError"),
)
SELECTION: dict[str, Any] = {
    "settings": "conf/trainspec.toml",
    "left_out": (
        LeftOut("ignore", ("TS-TOP-001", "計画\x1b"), "conf/trainspec.toml", ("TS-TOP-001", "TS-TOP-002")),
        LeftOut("profile", ("core",), "", ("TS-PAR-031",)),
    ),
}
EVERYTHING = Report(FINDINGS, SUPPRESSED, DOCUMENTS, OUTCOMES, "1.0", "1.2.3", **SELECTION)
CLEAN = Report((), (), DOCUMENTS[:2], OUTCOMES[2:6], "1.0", "1.2.3")
NOTHING = Report(())
SHOWN = {"everything": EVERYTHING, "clean": CLEAN, "nothing": NOTHING}

CASES = [(name, shown, {}) for name in FORMATS for shown in SHOWN]
CASES += [("full", "everything", {"color": True, "hyperlinks": True})]
CASES += [(name, "everything", {"color": True}) for name in ("concise", "statistics")]


@pytest.mark.parametrize(("name", "shown", "look"), CASES)
def test_golden(name: str, shown: str, look: dict[str, bool]) -> None:
    written = render(SHOWN[shown], name, base=BASE, requirements=REQUIREMENTS, **look)
    golden = GOLDEN / f"{name}.{shown}{'.color' if look else ''}.txt"
    if os.environ.get("TRAINSPEC_UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(written, encoding="utf-8", newline="\n")
    assert written == golden.read_bytes().decode("utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert len(list(GOLDEN.iterdir())) == len(CASES)


def test_the_block_that_the_specification_shows() -> None:
    written = render(Report((WORLD_SIZE,), documents=DOCUMENTS[:1]), "full")
    assert written == (
        "error[TS-PAR-001] world-size: the degrees multiply to 8, but the plan uses 16 accelerators\n"
        "  --> plan.yaml:12:3\n"
        "   |\n"
        "12 |   data: 2\n"
        "   |   ^^^^^^^\n"
        "   = help: make data 4\n"
        "   = why: https://trainspec.org/v1/parallelism/#TS-PAR-001\n"
        "\n"
        "1 error; documents with findings: 1 of 1\n"
    )


@pytest.mark.parametrize("name", FORMATS)
def test_the_order_of_the_input_never_shows(name: str) -> None:
    shuffled = []
    for seed in range(5):
        parts = [list(part) for part in (FINDINGS, SUPPRESSED, DOCUMENTS, OUTCOMES)]
        for part in parts:
            random.Random(seed).shuffle(part)
        shuffled.append(render(Report(*map(tuple, parts), "1.0", "1.2.3", **SELECTION), name))  # type: ignore[arg-type]
    assert set(shuffled) == {render(EVERYTHING, name)}


@pytest.mark.parametrize("name", FORMATS)
def test_every_text_is_empty_or_ends_with_one_line_break(name: str) -> None:
    for report in SHOWN.values():
        written = render(report, name)
        assert not written or (written.endswith("\n") and not written.endswith("\n\n"))


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'; known: full, concise"):
        render(NOTHING, "xml")


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (NOTHING, "nothing judged: 0 documents"),
        (replace(CLEAN, outcomes=OUTCOMES[3:4]), "nothing judged: 2 documents, 1 requirement not applicable"),
        (
            Report((), SUPPRESSED[:1], DOCUMENTS[:1], (Outcome("A", Verdict.FAIL),)),
            "no findings: 1 document, 1 requirement silenced; 1 suppressed (1 inline)",
        ),
        (
            Report((), (), DOCUMENTS[:3], (Outcome("A", Verdict.PASS),) * 61 + OUTCOMES[3:4] * 4),
            "no findings: 3 documents, 61 requirements passed, 4 not applicable",
        ),
    ],
)
def test_summary_claims_only_what_was_judged(report: Report, line: str) -> None:
    assert render(report, "full").splitlines()[len(report.suppressed) :] == [line]


@pytest.mark.parametrize("report", SHOWN.values(), ids=SHOWN)
def test_json_keeps_the_published_schema(report: Report) -> None:
    Draft202012Validator.check_schema(REPORT_SCHEMA)
    Draft202012Validator(REPORT_SCHEMA).validate(json.loads(render(report, "json")))


def test_every_field_of_the_json_format_is_described() -> None:
    def nodes(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            yield from node.get("properties", {}).values()
            yield from node.get("$defs", {}).values()
            for child in node.values():
                yield from nodes(child)

    assert all(node.get("description") for node in nodes(REPORT_SCHEMA))


@pytest.mark.parametrize("requirements", [REQUIREMENTS, {}])
@pytest.mark.parametrize("report", SHOWN.values(), ids=SHOWN)
def test_sarif_keeps_the_schema_of_the_standard(report: Report, requirements: dict[str, Text]) -> None:
    log = json.loads(render(report, "sarif", base=BASE, requirements=requirements))
    Draft7Validator(SARIF_SCHEMA).validate(log)


def test_sarif_names_files_so_that_a_service_finds_them() -> None:
    log = json.loads(render(EVERYTHING, "sarif", base=BASE))
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in log["runs"][0]["results"]]
    assert {"uri": "deep/a%20b%2Cc%3A%C3%BC.yaml", "uriBaseId": "%SRCROOT%"} in places
    log = json.loads(render(EVERYTHING, "sarif"))
    assert "file:///home/user/project/deep/a%20b%2Cc%3A%C3%BC.yaml" in json.dumps(log)


def test_sarif_results_agree_on_suppressions_and_point_at_their_rules() -> None:
    [run] = json.loads(render(EVERYTHING, "sarif"))["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert sum(bool(result["suppressions"]) for result in run["results"]) == len(SUPPRESSED)
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    [run] = json.loads(render(replace(EVERYTHING, suppressed=()), "sarif"))["runs"]
    assert not any("suppressions" in result for result in run["results"])


def test_fingerprints_are_unique_and_survive_moved_lines() -> None:
    def prints(report: Report) -> list[str]:
        issues = json.loads(render(report, "gitlab", base=BASE))
        assert len({issue["fingerprint"] for issue in issues}) == len(issues)
        return [issue["fingerprint"] for issue in issues if issue["check_name"] != "silenced"]

    moved = tuple(
        replace(f, span=replace(f.span, line=f.span.line + 7, end_line=f.span.end_line + 7)) if f.span else f
        for f in FINDINGS
    )
    silenced = tuple(replace(s, finding=replace(s.finding, span=Span(16, 1, 16, 2))) for s in SUPPRESSED[:1])
    before = prints(EVERYTHING)
    after = prints(replace(EVERYTHING, findings=moved, suppressed=silenced))
    assert len(set(before)) == len(before) == len(FINDINGS) + len(SELECTION["left_out"])
    assert before == after
    # On another machine, where the project lies elsewhere.
    elsewhere = tuple(replace(f, path=f.path.replace(BASE + "/", "")) for f in FINDINGS)
    assert set(before) == set(prints(replace(EVERYTHING, findings=elsewhere)))


def test_junit_counts_what_it_lists() -> None:
    root = ET.fromstring(render(EVERYTHING, "junit", base=BASE))
    assert [suite.get("name") for suite in root] == [
        "deep/a b,c:ü.yaml",
        "clean.yaml",
        "cluster.yaml",
        "empty.yaml",
        "long.json",
        "plan.yaml",
        "site/cluster.yaml",
        "settings",
    ]
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(len(list(suite.iter("failure"))))
        assert suite.get("skipped") == str(len(list(suite.iter("skipped"))))
    [world_size] = [case for case in root.iter("testcase") if case.get("name") == "TS-PAR-001 world-size"]
    assert (world_size.findtext("failure") or "").count("plan.yaml:") == 2


def test_start_up_pays_for_no_format() -> None:
    heavy = ["rich", "json", "xml", "hashlib", "urllib", "click", "trainspec_validate.report.full"]
    code = f"import sys, trainspec_validate.report; print([m for m in {heavy} if m in sys.modules])"
    # -S keeps the site packages from importing anything first; the path is handed over instead.
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_schema_knows_every_origin_of_a_document() -> None:
    origins = REPORT_SCHEMA["$defs"]["document"]["properties"]["origin"]["enum"]
    assert origins == list(get_args(Origin))


PLACES = st.sampled_from([".", "/", "a", "a/b", "a/bc", "/a", "/a/b", "./a", "a//b", "../a", "..", "a/b/c", "/a/b/c"])


@given(PLACES, st.sets(PLACES))
def test_a_file_counts_as_the_nearest_checkpoint_above_it(path: str, checkpoints: set[str]) -> None:
    above = (parent.as_posix() for parent in PurePosixPath(path).parents)
    lengths = sorted({len(one) for one in checkpoints}, reverse=True)
    assert summary._home(path, checkpoints, lengths) == next((one for one in above if one in checkpoints), path)
