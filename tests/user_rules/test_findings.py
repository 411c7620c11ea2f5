"""What rules of users find stands in the report like everything else: places, evidence, outcomes, silencers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rule_makers import START_US, shown_in_guide, values, write_rules, write_stream, yaml_rule

from trainspec_validate.cli.validate import PROGRAM, command


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    write_stream(Path("run/job.0.jsonl"), values([5.0, 9.0, 5.0, 8.0]), rank=3)


def invoke(*arguments: str, select: str = "ACME-001", form: str = "json") -> Result:
    chosen = ["--select", select] if select else []
    return CliRunner().invoke(command, ["run", *arguments, *chosen, "--format", form], prog_name=PROGRAM)


def judged(*rules: dict[str, Any], **keys: Any) -> dict[str, Any]:
    path = write_rules(Path("rules.yaml"), *(rules or [yaml_rule(**keys)]))
    found: dict[str, Any] = json.loads(invoke("--rules", str(path)).stdout)
    return found


def outcome(report: dict[str, Any], rule: str = "ACME-001") -> dict[str, Any]:
    (found,) = (entry for entry in report["outcomes"] if entry["requirement"] == rule)
    return found


def test_a_row_becomes_a_finding_at_its_line() -> None:
    keys = {"message": "took {value:.1f} s at {time_us:time}", "help": "rest", "url": "https://acme.test/1"}
    report = judged(**keys, report={"greater": ["value", 6]})
    first, second = report["findings"]
    assert (first["requirement"], first["name"], first["severity"]) == ("ACME-001", "acme-001", "warning")
    assert (first["message"], first["help"]) == ("took 9.0 s at 2026-02-25 06:13:22Z", "rest")
    assert (first["path"], first["span"]["line"], second["span"]["line"]) == ("run/job.0.jsonl", 3, 5)
    seen = first["evidence"]
    assert (seen["series"], seen["subjects"], seen["count"]) == ("train.step.duration", "rank 3", 1)
    assert seen["first_time_us"] == seen["last_time_us"] == START_US + 2_000_000
    assert seen["samples"] == ["value 9"]
    assert outcome(report)["verdict"] == "warn"


def test_a_group_tells_how_often_and_from_when_to_when() -> None:
    aggregate = {"group_by": ["run", "rank"], "aggregate": {"longest": {"maximum": "value"}}}
    (found,) = judged(**aggregate, message="{rank}: {longest} in {num_rows}", level="MUST")["findings"]
    assert (found["message"], found["severity"], found["span"]["line"]) == ("3: 9 in 4", "error", 2)
    assert (found["evidence"]["count"], found["evidence"]["samples"]) == (4, ["longest 9"])
    assert found["evidence"]["last_time_us"] - found["evidence"]["first_time_us"] == 3_000_000


def test_more_rows_than_the_limit_are_counted() -> None:
    report = judged(limit=1)
    (found,) = report["findings"]
    assert found["message"] == "step 1; 3 more rows break this rule, and are not listed"
    assert outcome(report)["num_findings"] == 4


def test_pass_and_not_applicable_are_told_apart() -> None:
    assert outcome(judged(report={"greater": ["value", 60]}))["verdict"] == "pass"
    found = outcome(judged(select={"equal": ["metric", {"text": "hw.power"}]}))
    assert (found["verdict"], found["reason"]) == ("not-applicable", "samples has no row that the rule selects")


def test_without_a_stream_no_rule_passes() -> None:
    Path("run/job.0.jsonl").unlink()
    Path("run/waivers.yaml").write_text("apiVersion: trainspec/v1\nkind: Waivers\nwaivers: []\n")
    found = outcome(judged())
    assert (found["verdict"], found["reason"]) == ("not-applicable", "no stream that it could be judged on")


def test_a_rule_in_python_is_not_called_where_nothing_is_seen() -> None:
    Path("acme.py").write_text(shown_in_guide("acme_rules.py").replace("begin =", "1 / 0 #"))
    report = json.loads(invoke("--rules", "acme.py", select="ACME-101").stdout)
    found = outcome(report, "ACME-101")
    assert (found["verdict"], found["reason"]) == ("not-applicable", "no record of train.checkpoint.begin")


PYTHON = """\
import narwhals as nw
from trainspec_validate.telemetry.user_rules import NotApplicable, rule

@rule(id="ACME-001", level="MUST", title="t", message="{value}", metrics=["train.step.duration"])
def broken(tables):
    return BODY
"""


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("tables.samples.filter(nw.col('valeu') > 1)", 6, "Did you mean one of these columns"),
        ("tables.samples.filter(1 / 0)", 6, "ZeroDivisionError: division by zero"),
        ("tables.samples.collect()", 4, "the rule returned DataFrame; return a lazy table"),
        ("tables.samples.select('step')", 4, r"the message shows \{value\}, which is no column"),
        ("None", 4, "the rule returned NoneType"),
    ],
)
def test_a_rule_that_fails_is_told_and_the_others_are_judged(body: str, line: int, words: str) -> None:
    Path("acme.py").write_text(PYTHON.replace("BODY", body))
    other = write_rules(Path("rules.yaml"), yaml_rule(id="ACME-002"))
    found = invoke("--rules", "acme.py", "--rules", str(other), select="ACME-001,ACME-002")
    assert found.exit_code == 2
    told = [text for text in found.stderr.splitlines() if text.startswith("Error: ")]
    assert len(told) == 1
    assert re.match(rf"Error: acme\.py:{line}: ACME-001: .*({words})", told[0]), told[0]
    report = json.loads(found.stdout)
    assert outcome(report)["verdict"] == "not-run"
    assert outcome(report, "ACME-002")["num_findings"] == 4


def test_a_rule_in_python_may_say_that_it_has_nothing_to_judge() -> None:
    Path("acme.py").write_text(PYTHON.replace("return BODY", "raise NotApplicable('no peak is known')"))
    found = outcome(json.loads(invoke("--rules", "acme.py").stdout))
    assert (found["verdict"], found["reason"]) == ("not-applicable", "no peak is known")


def test_rules_are_selected_ignored_and_silenced_by_id_and_name() -> None:
    path = str(write_rules(Path("rules.yaml"), yaml_rule(name="slow"), yaml_rule(id="ACME-002")))
    report = json.loads(invoke("--rules", path, select="slow").stdout)
    assert {entry["requirement"] for entry in report["findings"]} == {"ACME-001"}
    report = json.loads(invoke("--rules", path, "--ignore", "ACME-002", select="").stdout)
    assert "ACME-002" not in {entry["requirement"] for entry in report["outcomes"]}
    waiver = "{requirement: ACME-001, file: 'run/*', reason: r, owner: o, expires: '2099-12-31'}"
    Path("waivers.yaml").write_text(f"apiVersion: trainspec/v1\nkind: Waivers\nwaivers: [{waiver}]\n")
    report = json.loads(invoke("--rules", path, "--waivers", "waivers.yaml").stdout)
    assert (report["findings"], len(report["suppressed"])) == ([], 4)


@pytest.mark.parametrize("key", [{"name": "world-size"}, {"name": "other"}, {"id": "ACME-007"}])
def test_ids_and_names_are_used_once(key: dict[str, str]) -> None:
    rules = [yaml_rule(id="ACME-007", name="other"), yaml_rule(**key)]
    found = invoke("--rules", str(write_rules(Path("rules.yaml"), *rules)))
    assert found.exit_code == 2
    assert f"{next(iter(key.values()))!r} is taken by another rule" in found.stderr


@pytest.mark.parametrize("form", ["sarif", "full", "concise", "github", "gitlab", "junit", "statistics"])
def test_every_format_tells_them(form: str) -> None:
    path = str(write_rules(Path("rules.yaml"), yaml_rule(report={"greater": ["value", 8.5]})))
    found = invoke("--rules", path, form=form)
    assert found.exit_code == 0
    assert "ACME-001" in found.stdout


@pytest.mark.parametrize(("module", "engine"), [("duckdb", "duckdb"), ("polars", "polars"), ("narwhals", "duckdb")])
def test_an_engine_that_is_not_installed_is_told(module: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_rules(Path("rules.yaml"), yaml_rule()))
    monkeypatch.setitem(sys.modules, module, None)
    found = invoke("--rules", path, "--rules-engine", engine)
    assert found.exit_code == 2
    assert f"Error: --rules: {engine} needs {module}" in found.stderr
    assert "trainspec-validate[user-rules]" in found.stderr


def test_own_rules_do_not_follow_a_live_run() -> None:
    found = invoke("--rules", str(write_rules(Path("rules.yaml"), yaml_rule())), "--follow")
    assert found.exit_code == 2
    assert "use --rules without --follow" in found.stderr
