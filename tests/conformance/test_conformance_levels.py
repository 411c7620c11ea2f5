"""A level counts what passed as often as the claimed share of faults needs, and a report states the ranks."""

from __future__ import annotations

import msgspec
import pytest
from conformance_reports import report, scenario_report, trial
from conformance_stacks import fake
from trainspec_conformance.drawing import num_kinds
from trainspec_conformance.judging import REPORT_CHECKS, needs
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.reporting import Circumstances, highest_level, make_report, most_ranks, too_few_trials
from trainspec_conformance.suite import ScenarioResult, num_trials
from trainspec_conformance.summary import show

from trainspec_validate.documents.types.conformance import Claims
from trainspec_validate.documents.types.conformance_report import ScenarioReport

TIMED = ("kill-rank", "kill-host", "kill-coordinator", "stop-rank", "double-fault")
"""Faults of single processes and hosts, after which the recovery time is claimed for a share of the faults."""


def _core(claims: Claims, fewer: str = "") -> list[ScenarioReport]:
    """Every scenario of the profile core passed as often as the claim needs; one of them once less."""
    found = []
    for name, one in all_scenarios().items():
        if one.tier == "core":
            count = num_trials(claims, one) * num_kinds(one) - (name == fewer)
            trials = [trial(number) for number in range(1, count + 1)]
            found.append(scenario_report(name, "pass", *trials, level=one.level))
    return found


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_a_level_needs_the_trials_of_the_claimed_share(share: float) -> None:
    claims = msgspec.structs.replace(fake().claims, profile="core", quantile=share)
    assert highest_level(_core(claims), claims, is_described=True) == "efficient"
    fewer = _core(claims, "kill-coordinator")
    assert highest_level(fewer, claims, is_described=True) == "observable"
    assert [*too_few_trials(fewer, claims)] == ["kill-coordinator"]


def test_trials_of_a_smaller_claim_show_no_larger_one() -> None:
    half = msgspec.structs.replace(fake().claims, profile="core", quantile=0.5)
    most = msgspec.structs.replace(half, quantile=0.95)
    assert highest_level(_core(half), most, is_described=True) == "observable"


@pytest.mark.parametrize("name", TIMED)
def test_a_claim_about_process_failures_has_the_trials_of_its_share(name: str) -> None:
    trials = all_scenarios()[name].trials
    assert (trials.basic, trials.standard, trials.strict) == (5, 29, 59)


def test_a_run_with_fewer_trials_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(scenario_report("null-run", "pass", trial())))
    assert "fewer trials than the claim needs, so no level counts them: null-run" in capsys.readouterr().out
    show(report(scenario_report("null-run", "pass", trial(1), trial(2))))
    assert "fewer trials" not in capsys.readouterr().out


@pytest.mark.parametrize(("name", "num_ranks"), [("kill-rank", 2), ("reshard", 4), ("any-number-of-ranks", 3)])
def test_a_report_states_the_ranks_of_each_scenario(name: str, num_ranks: int, tmp_path: object) -> None:
    scenario = all_scenarios()[name]
    assert most_ranks(scenario) == num_ranks
    made = make_report(fake(), [ScenarioResult(scenario, "unsupported", "no")], Circumstances(tmp_path, ("x",)))  # type: ignore[arg-type]
    assert made.scenarios[0].num_ranks == num_ranks


def test_reports_of_faults_are_needed_where_they_are_judged() -> None:
    for one in all_scenarios().values():
        if any(criterion.check in REPORT_CHECKS for criterion in one.criteria):
            assert "fault-reports" in needs(one)
    assert "fault-reports" in needs(all_scenarios()["double-fault"]), "it waits for the report"
    assert "fault-reports" not in needs(all_scenarios()["null-run"])
