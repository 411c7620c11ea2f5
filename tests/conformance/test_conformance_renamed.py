"""A scenario that was renamed is found by each of its names, and reports from before the renaming stay valid."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import committed_reports
import msgspec
import pytest
from conformance_reports import report, scenario_report, trial
from conformance_stacks import HERE
from trainspec_conformance import commands
from trainspec_conformance.diffing import changes, read_report
from trainspec_conformance.gaps import read_gaps
from trainspec_conformance.reading import all_scenarios, present_names, with_present_names
from trainspec_conformance.reporting import scenarios_digest, text
from trainspec_conformance.verifying import differences

from tests.every import every

PAIRS = {name: former for former, name in present_names().items()}


@every("name", PAIRS)
def test_the_digest_of_a_scenario_outlives_its_name(name: str) -> None:
    one = all_scenarios()[name]
    before = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name=PAIRS[name]))
    assert scenarios_digest([one]) == hashlib.sha256(msgspec.json.encode(before)).hexdigest()


def test_a_report_with_former_names_is_verified_and_compared(tmp_path: Path) -> None:
    now = all_scenarios()["reported-steps"]
    more = {"requirement": now.requirement, "level": now.level}
    former, present = (scenario_report(name, "unsupported", **more) for name in ("steps-told", "reported-steps"))
    (tmp_path / "report.json").write_bytes(text(report(former, scenarios_sha256=scenarios_digest([now]))))
    told = list(differences(tmp_path))
    assert not [line for line in told if "scenario" in line]
    assert [one.scenario for one in read_report(tmp_path).scenarios] == ["reported-steps"]
    assert not changes(with_present_names(report(former)), report(present))
    (tmp_path / "report.json").write_bytes(text(report(former, present)))
    assert any("reported-steps: the report names the scenario twice" in line for line in differences(tmp_path))


def test_former_names_are_taken_where_a_scenario_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"requirement": "steps-told", "file": "x.yaml", "reason": "no", "owner": "us", "expires": "2999-01-01"}
    gaps = tmp_path / "gaps.yaml"
    gaps.write_text(json.dumps({"apiVersion": "trainspec/v1", "kind": "Waivers", "waivers": [one]}))
    assert [*read_gaps(gaps, tmp_path / "x.yaml").reasons] == ["TS-CNF-303"]
    request = commands.RunRequest(HERE / "fake.yaml", tmp_path, ("steps-told", "reported-steps"), dry_run=True)
    assert commands.run(request) == 0
    assert "reported-steps" in capsys.readouterr().out


def test_committed_reports_are_shown_by_present_names(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "report.json").write_bytes(text(report(scenario_report("losses-told", "pass", trial()))))
    assert [*committed_reports.by_scenario(committed_reports.by_stack(tmp_path)["one"])] == ["reported-losses"]
