"""The page of recoveries holds every trial of the reports, and claims no share that their number does not bear."""

from __future__ import annotations

from pathlib import Path

import recovery_figures
from conformance_reports import report, scenario_report, trial
from trainspec_conformance.reporting import text

from trainspec_validate.documents.types.conformance_report import ScenarioReport


def rows(directory: Path, **reports: ScenarioReport) -> list[list[str]]:
    """Cells of the rows of scenarios on the page of these reports of one stack."""
    folder = directory / "one-stack"
    folder.mkdir()
    for name, one in reports.items():
        (folder / f"report-{name}.json").write_bytes(text(report(one)))
    lines = recovery_figures.page(directory).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| kill-")]


def test_trials_of_all_reports_of_a_stack_are_one_sample(tmp_path: Path) -> None:
    first = scenario_report("kill-rank", "pass", *(trial(number, seconds=float(number)) for number in (1, 2)))
    more = scenario_report("kill-rank", "fail", *(trial(number, seconds=float(number)) for number in (3, 4, 5)))
    (row,) = rows(tmp_path, first=first, more=more)
    assert row[:3] == ["kill-rank", "pass, fail", "5"]
    assert row[6:] == ["50 %: 3.00, 5.00", "50 %"]


def test_a_trial_that_never_came_back_is_told_and_bounds_nothing(tmp_path: Path) -> None:
    trials = [trial(number, failed="" if number > 1 else "no step", seconds=1.0 if number > 1 else None)
              for number in range(1, 7)]  # fmt: skip
    (row,) = rows(tmp_path, only=scenario_report("kill-rank", "fail", *trials))
    assert row[4] == "not stated"
    assert row[6:] == ["50 %: 1.00, 1.00 (5 of 6)", "none"]


def test_fewer_than_five_trials_bound_nothing(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, only=scenario_report("kill-rank", "pass", trial()))
    assert row[2:] == ["1", "0.25", "not stated", "not stated", "0.50", "none"]


def test_a_scenario_without_a_fault_has_no_row(tmp_path: Path) -> None:
    calm = scenario_report("null-run", "pass")
    assert rows(tmp_path, calm=calm, fault=scenario_report("kill-rank", "pass", trial()))[0][0] == "kill-rank"
    assert "null-run" not in recovery_figures.page(tmp_path)
