"""A comparison of two reports tells what changed, and what of it is worse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from conformance_reports import report, scenario_report, trial
from trainspec_conformance import commands
from trainspec_conformance.cli import command
from trainspec_conformance.diffing import changes
from trainspec_conformance.reporting import text

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.conformance_report import ConformanceReport


def of(verdict: str, *failed: str, seconds: float = 1.0) -> ConformanceReport:
    """A report of kill-rank with a trial for each failure, or five that take so long."""
    trials = [trial(number, failed=one) for number, one in enumerate(failed, start=1)]
    trials = trials or [trial(number, seconds=seconds) for number in range(1, 6)]
    return report(scenario_report("kill-rank", verdict, *trials))


def told(before: ConformanceReport, after: ConformanceReport) -> set[tuple[str, str, bool]]:
    return {(one.kind, one.subject, one.is_worse) for one in changes(before, after)}


def test_equal_reports_differ_in_nothing() -> None:
    assert not changes(of("pass"), of("pass"))


def test_a_verdict_and_its_checks() -> None:
    good, bad = of("pass"), of("fail", "it did not end")
    assert {("verdict", "kill-rank", True), ("check", "kill-rank: completes", True)} <= told(good, bad)
    assert {("verdict", "kill-rank", False), ("check", "kill-rank: completes", False)} <= told(bad, good)


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [("pass", None, True), ("fail", None, False), (None, "fail", True), (None, "pass", False)],
)
def test_a_scenario_that_is_in_one_only(before: str | None, after: str | None, is_worse: bool) -> None:
    first, second = (of(one, *(["x"] if one == "fail" else [])) if one else report() for one in (before, after))
    assert ("verdict", "kill-rank", is_worse) in told(first, second)


def test_times_that_differ_by_more_than_noise() -> None:
    assert ("seconds", "kill-rank: first-step, p50", True) in told(of("pass", seconds=1), of("pass", seconds=2))
    assert ("seconds", "kill-rank: first-step, p50", False) in told(of("pass", seconds=2), of("pass", seconds=1))
    assert not told(of("pass", seconds=1), of("pass", seconds=1.4)), "less than half a second"
    assert not told(of("pass", seconds=10), of("pass", seconds=11)), "less than a quarter"


def test_versions_claims_levels_and_modifications() -> None:
    before = of("pass")
    stack = changed(before.stack, modifications=("It saves twice.",))
    claims = changed(before.claims, quantile=0.9)
    after = changed(before, versions={"numpy": "2.1"}, claims=claims, level="described", stack=stack)
    assert told(before, after) == {
        ("version", "numpy", False),
        ("claim", "quantile", False),
        ("level", "level", False),
        ("modification", "It saves twice.", True),
    }
    assert ("level", "level", True) in told(after, before)


def test_the_command_tells_and_its_exit_code_says_whether_it_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, one in (("a", of("pass")), ("b", of("fail", "x\x1b[31m"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_bytes(text(one))
    a, b = tmp_path / "a", tmp_path / "b" / "report.json"
    assert commands.diff(a, b, "text") == 1
    assert capsys.readouterr().out.splitlines()[0] == "worse  verdict      kill-rank: pass -> fail"
    assert commands.diff(b, a, "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_worse"] == 0
    assert found["changes"][0]["kind"] == "verdict"
    assert commands.diff(a, a, "text") == 0
    assert capsys.readouterr().out == "nothing changed\n"
    (tmp_path / "a" / "report.json").write_text("{}")
    assert commands.diff(a, b, "text") == 2


def test_a_report_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "secret.json").write_text('{"apiVersion": "hunter2"}', encoding="utf-8")
    (tmp_path / "out" / "report.json").symlink_to(tmp_path / "secret.json")
    for words in (("verify", "out"), ("diff", "out", "out")):
        done = CliRunner().invoke(command, [words[0], *(str(tmp_path / word) for word in words[1:])])
        assert done.exit_code == 2
        assert "report.json:1: this is a link" in done.output
        assert "hunter2" not in done.output
