"""Declared gaps change the exit code, never a verdict; one that is idle or has ended fails."""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path

import pytest
from conformance_stacks import HERE
from trainspec_conformance import commands
from trainspec_conformance.diffing import read_report
from trainspec_conformance.durations import expected_seconds
from trainspec_conformance.gaps import read_gaps, uncovered
from trainspec_conformance.reading import DocumentError, all_scenarios, read

from trainspec_validate.documents.types.conformance import StackDescriptor

TODAY = date(2026, 6, 1)


def declare(
    folder: Path, requirement: str = "kill-rank", expires: str = "2026-06-01", file: str = "stack.yaml"
) -> Path:
    path = folder / "gaps.yaml"
    one = {"requirement": requirement, "file": file, "reason": "not built", "owner": "us", "expires": expires}
    path.write_text(json.dumps({"apiVersion": "trainspec/v1", "kind": "Waivers", "waivers": [one]}))
    return path


@pytest.mark.parametrize("requirement", ["kill-rank", "TS-CNF-101"])
def test_a_gap_covers_its_requirement_until_its_last_day(requirement: str, tmp_path: Path) -> None:
    found = read_gaps(declare(tmp_path, requirement), tmp_path / "stack.yaml", TODAY)
    assert found.reasons == {"TS-CNF-101": "not built (until 2026-06-01, us)"}
    assert not found.complaints({"TS-CNF-101": "fail"})
    assert uncovered(found.reasons, {"TS-CNF-101": "fail", "TS-CNF-130": "unsupported"}) == ["TS-CNF-130"]


def test_a_gap_that_has_ended_covers_nothing_and_is_told(tmp_path: Path) -> None:
    found = read_gaps(declare(tmp_path, expires="2026-05-31"), tmp_path / "stack.yaml", TODAY)
    assert not found.reasons
    (told,) = found.complaints({"TS-CNF-101": "fail"})
    assert "ended on 2026-05-31" in told


def test_a_gap_of_what_was_not_run_is_not_idle(tmp_path: Path) -> None:
    found = read_gaps(declare(tmp_path), tmp_path / "stack.yaml", TODAY)
    assert not found.complaints({"TS-CNF-130": "pass"})
    (idle,) = found.complaints({"TS-CNF-101": "pass"})
    assert "not needed" in idle


def test_a_gap_of_another_stack_does_not_count(tmp_path: Path) -> None:
    assert not read_gaps(declare(tmp_path, file="other.yaml"), tmp_path / "stack.yaml", TODAY).reasons
    assert read_gaps(declare(tmp_path, file="st*.yaml"), tmp_path / "stack.yaml", TODAY).reasons


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"requirement": "kill-ranks"}, "kill-rank"), ({"expires": "2026-02-30"}, "not a day of the calendar")],
)
def test_a_gap_that_makes_no_sense_is_wrong_use(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=message):
        read_gaps(declare(tmp_path, **changes), tmp_path / "stack.yaml", TODAY)


@pytest.mark.parametrize(
    ("expires", "status", "said"), [("2999-01-01", 0, "declared gap"), ("2020-01-01", 1, "ended on 2020-01-01")]
)
def test_only_the_exit_code_changes(
    expires: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = declare(tmp_path, "grace-signal", expires, file="**/fake.yaml")
    request = commands.RunRequest(HERE / "fake.yaml", tmp_path / "out", ("grace-signal",), trials=1, gaps=gaps)
    assert commands.run(request) == status
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (one,) = report["scenarios"]
    assert one["verdict"] == "unsupported"
    assert one.get("gap") == ("not built (until 2999-01-01, us)" if status == 0 else None)
    assert report["conformant"] is False
    assert said in capsys.readouterr().out


def test_gaps_of_a_change_request_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of the working directory is the one of the target branch, which declares none."""
    (tmp_path / "request").mkdir()
    (tmp_path / "main").mkdir()
    monkeypatch.chdir(tmp_path / "request")
    declare(Path(), expires="no day")
    request = commands.RunRequest(
        HERE / "fake.yaml", Path("out"), gaps=Path("gaps.yaml"), settings_from=Path("../main"), dry_run=True
    )
    assert commands.run(request) == commands.OK
    assert "--gaps gaps.yaml is not used: ../main has no such file" in capsys.readouterr().err


def test_a_dry_run_counts_what_a_report_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report of the minimal stack is of the same claim: its trials and baseline runs are those announced."""
    root = HERE.parents[1]
    descriptor = root / "reference" / "minimal" / "minimal-torch.yaml"
    report = json.loads((root / "conformance" / "results" / "minimal-torch" / "report.json").read_bytes())
    names = [one["scenario"] for one in report["scenarios"] if one.get("trials")]  # later ones are not in the report
    request = commands.RunRequest(descriptor, tmp_path / "out", names=names, dry_run=True)
    assert commands.run(request) == commands.OK
    num_trials = sum(len(one.get("trials", ())) for one in report["scenarios"])
    num_controls = len({one["control"] for one in report["scenarios"] if "control" in one})
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{num_trials} trials and {num_controls} baseline runs; their time limits are ")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_adds_up_the_time_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of null-run, one trial and one baseline run: twice its budget and the time for a start."""
    stack = read(HERE / "fake.yaml", StackDescriptor)
    request = commands.RunRequest(HERE / "fake.yaml", tmp_path / "out", names=["null-run"], trials=3, dry_run=True)
    assert commands.run(request) == commands.OK
    one_seconds = all_scenarios()["null-run"].budget_seconds + stack.launch.start_seconds
    minutes = math.ceil(4 * one_seconds / 60)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "3 trials and 1 baseline run; their time limits are"
        f" {minutes // 60} h {minutes % 60} min in all, one after the other"
    )


def test_a_dry_run_estimates_the_time_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of three trials and one baseline run of null-run: four starts, and its optimizer steps four times."""
    asked = {"names": ["null-run"], "trials": 3, "dry_run": True, "start_seconds": 300.0}
    assert commands.run(commands.RunRequest(HERE / "fake.yaml", tmp_path / "out", **asked)) == commands.OK
    job = all_scenarios()["null-run"].job
    least, most = (math.ceil(4 * (300 + (job.num_steps + more) * job.step_seconds) / 60) for more in (1, 7))
    last = capsys.readouterr().out.splitlines()[-1]
    told = "with 300 s from each start to the first step, they take about 0 h {} min"
    assert last in {told.format(minutes) for minutes in range(least, most + 1)}


def test_the_estimate_is_near_to_what_was_measured() -> None:
    """The committed report of 83 trials, with the start that its own run without faults took."""
    root = HERE.parents[1]
    stack = read(root / "reference" / "minimal" / "minimal-torch.yaml", StackDescriptor)
    report = read_report(root / "conformance" / "results" / "minimal-torch")
    trials = [(one.scenario, trial.seconds) for one in report.scenarios for trial in one.trials]
    job = all_scenarios()["null-run"].job
    start_seconds = min(took for name, took in trials if name == "null-run") - job.num_steps * job.step_seconds
    expected = sum(expected_seconds(stack, all_scenarios()[name], start_seconds) for name, _ in trials)
    assert expected == pytest.approx(sum(took for _, took in trials), rel=1 / 3)
