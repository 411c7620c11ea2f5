"""The page of verdicts holds each report as it is, and each failure that is committed has a line that says why."""

from __future__ import annotations

import re
from pathlib import Path

import committed_reports
import pytest
import verdict_tables
from conformance_reports import HOSTILE, report, scenario_report, trial
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.reporting import scenarios_digest, text

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.conformance_report import ConformanceReport

RESULTS = Path(__file__).resolve().parents[2] / "conformance" / "results"
LINE = re.compile(r"^- \*\*(?P<scenarios>[a-z,\s-]+):(?P<stacks>[a-z,\s-]+)\.\*\*", re.MULTILINE)
BAD = scenario_report("kill-rank", "fail", trial(failed="the last update is 3"))
GOOD = scenario_report("kill-rank", "pass", trial())


def page(directory: Path, **stacks: list[ConformanceReport]) -> str:
    for stack, reports in stacks.items():
        folder = directory / stack
        folder.mkdir()
        for number, one in enumerate(reports):
            (folder / f"report-{number}.json").write_bytes(text(one))
    return verdict_tables.page(directory)


def test_each_scenario_has_a_row_and_each_stack_a_column(tmp_path: Path) -> None:
    lacking = scenario_report("null-run", "unsupported", reason="no trace")
    shown = page(tmp_path, one=[report(GOOD)], other=[report(BAD, lacking), report(GOOD)])
    assert "| Requirement | Scenario | one | other |" in shown
    assert "| TS-CNF-101 | kill-rank | pass | fail, pass |" in shown


def test_a_scenario_that_no_stack_could_run_has_no_row(tmp_path: Path) -> None:
    lacking = scenario_report("null-run", "unsupported", reason="no trace")
    assert "| null-run |" not in page(tmp_path, one=[report(GOOD, lacking), report(lacking)])


def test_a_failure_says_what_its_checks_said(tmp_path: Path) -> None:
    assert "| kill-rank | completes | the last update is 3 |" in page(tmp_path, one=[report(BAD)])


def test_the_newest_report_of_a_scenario_counts(tmp_path: Path) -> None:
    older, newer = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    mended = page(tmp_path, one=[report(GOOD, created=newer), report(BAD, created=older)])
    assert "What it said" not in mended


def test_what_a_stack_wrote_is_no_markup(tmp_path: Path) -> None:
    shown = page(tmp_path, one=[report(scenario_report("kill-rank", "fail", trial(failed=f"{HOSTILE}|\n| x")))])
    (row,) = [line for line in shown.splitlines() if "alert" in line]
    assert not re.search(r"(?<!\\)[<>\[`]", row)
    assert len(re.findall(r"(?<!\\)\|", row)) == 4


def test_a_report_of_other_scenarios_is_told(tmp_path: Path) -> None:
    now = scenarios_digest([all_scenarios()["kill-rank"]])
    shown = page(tmp_path, one=[report(GOOD, scenarios_sha256=now), report(GOOD)], other=[])
    assert "Scenarios have changed since in 1 of 2 reports." in shown


def test_levels_and_stacks_without_a_stream_come_first(tmp_path: Path) -> None:
    stream = changed(report().stack, capabilities=("trace", "stream"))
    bare = changed(report().stack, capabilities=("trace",))
    shown = page(
        tmp_path,
        best=[report(GOOD, level="observable", stack=bare)],
        other=[report(GOOD, level=None, stack=bare)],
        seen=[report(BAD, level=None, stack=stream)],
    )
    assert "of their time: best observable. All other stacks" in shown
    assert "level observable needs: other." in shown
    assert "`null-run`" in shown
    assert "`kill-rank`" not in shown
    assert "The scenarios of 3 of 3 reports have changed since." in shown


def test_changes_of_a_stack_are_told(tmp_path: Path) -> None:
    stack = changed(report().stack, modifications=("It is not as its makers ship it.",))
    assert "Changed: It is not as its makers ship it." in page(tmp_path, one=[report(GOOD, stack=stack)])


def committed_failures() -> set[tuple[str, str]]:
    stacks = committed_reports.by_stack(RESULTS)
    return {(name, stack) for stack, reports in stacks.items() for name in verdict_tables.failures(reports)}


def explained() -> set[tuple[str, str]]:
    """Scenarios and stacks that stand in bold at the begin of a line, which may be broken."""
    lines = LINE.finditer((RESULTS / "README.md").read_text(encoding="utf-8"))
    return {
        (name.strip(), stack.strip())
        for line in lines
        for name in line["scenarios"].split(",")
        for stack in line["stacks"].split(",")
    }


def test_each_committed_failure_has_a_line_that_says_why() -> None:
    assert committed_failures(), "no report is there, or none could be read"
    assert sorted(committed_failures() - explained()) == []


def test_no_line_explains_what_did_not_fail() -> None:
    assert sorted(explained() - committed_failures()) == []


@pytest.mark.parametrize("script", sorted(RESULTS.glob("reproduce_*.py")), ids=lambda path: path.stem)
def test_each_script_is_named(script: Path) -> None:
    assert f"`{script.name}`" in (RESULTS / "README.md").read_text(encoding="utf-8")
