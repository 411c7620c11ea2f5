"""Scenarios with equal jobs share a run without faults, also over several runs of the suite."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import HERE, fake, scenario
from trainspec_conformance import controls as module
from trainspec_conformance.controls import Controls
from trainspec_conformance.judging import Judged, State
from trainspec_conformance.records import Entry
from trainspec_conformance.suite import Order, ScenarioResult, TrialResult, run_suite
from trainspec_conformance.trial import Setting

sys.path.append(str(HERE.parents[1] / "conformance" / "mutants"))

import runs
from registry import Mutant

from trainspec_validate.documents.types.scenario import Scenario


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Setting]:
    """What is asked for in place of being run."""
    asked: list[Setting] = []

    def make(setting: Setting) -> list[Entry]:
        setting.directory.mkdir(parents=True)
        asked.append(setting)
        return []

    monkeypatch.setattr(module, "run_trial", make)
    return asked


def test_equal_jobs_share_one_run_without_faults(made: list[Setting], tmp_path: Path) -> None:
    controls = Controls(fake(), HERE, tmp_path / "controls", 7)
    told: list[str] = []
    first = controls.of(scenario("kill-rank"), told.append)
    assert controls.of(scenario("stop-rank"), told.append) is first
    planted = controls.of(scenario("livelock"), told.append)
    assert planted is first, "planted faults make no other control"
    other = controls.of(scenario("kill-rank", num_steps=30), told.append)
    assert told == ["control run 1", "control run 2"]
    assert [one.directory.name for one in made] == ["control-1", "control-2"]
    assert not any(one.scenario.job.faults for one in made)
    assert {one.seed for one in made} == {7}
    controls.remove(but={other.directory})
    assert [one.name for one in (tmp_path / "controls").iterdir()] == ["control-2"]


def test_the_time_limits_are_those_of_the_runs_that_are_made(made: list[Setting], tmp_path: Path) -> None:
    chosen = [scenario("kill-rank"), scenario("stop-rank"), scenario("kill-rank", num_steps=30), scenario("null-run")]
    controls = Controls(fake(), HERE, tmp_path / "controls", 7)
    for one in chosen:
        if one.control:
            controls.of(one, lambda _: None)
    limits = [one.scenario.budget_seconds + fake().launch.start_seconds for one in made]
    assert module.time_limits_seconds(fake(), chosen, 7) == limits


def test_a_run_that_failed_is_begun_anew_beside_what_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [OSError(28, "No space left on device")]

    def make(setting: Setting) -> list[Entry]:
        setting.directory.mkdir(parents=True)
        if faults:
            raise faults.pop()
        return []

    monkeypatch.setattr(module, "run_trial", make)
    controls = Controls(fake(), HERE, tmp_path / "controls")
    with pytest.raises(OSError, match="No space left"):
        controls.of(scenario("kill-rank"), lambda _: None)
    assert controls.of(scenario("kill-rank"), lambda _: None).directory.name == "control-2"
    controls = Controls(fake(), HERE, tmp_path / "again")
    controls.remove(but=())
    assert not (tmp_path / "again").exists(), "none was needed"


@pytest.mark.slow
def test_runs_of_the_suite_can_share_them(tmp_path: Path) -> None:
    home = tmp_path / "controls"
    controls, one = Controls(fake(), HERE, home), scenario("kill-rank")
    for number in (1, 2):
        order = Order(fake(), HERE, tmp_path / str(number), [one], num_trials=1)
        (result,) = run_suite(order, controls)
        assert result.state == "pass"
        assert result.trials[0].control == home / "control-1"
    assert not (tmp_path / "1" / "controls").exists()


@pytest.mark.parametrize(("ends_on_failure", "num_trials"), [(True, 2), (False, 3)])
def test_a_scenario_can_be_left_with_its_first_failure(
    ends_on_failure: bool, num_trials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(order: Order, one: Scenario, number: int, _: object) -> TrialResult:
        judged = (Judged("completes", number != 2, ("why",)),)
        return TrialResult(order.out, number, 0.0, judged)

    monkeypatch.setattr("trainspec_conformance.suite._trial", trial)
    one = msgspec.structs.replace(scenario("null-run"), control=False)
    order = Order(fake(), HERE, tmp_path, [one], num_trials=3, ends_on_failure=ends_on_failure)
    (result,) = run_suite(order)
    assert (result.state, len(result.trials)) == ("fail", num_trials)


def test_runs_of_a_mutant_keep_the_control_of_what_was_failed(
    made: list[Setting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lies" / "controls").mkdir(parents=True)
    of_mutant = runs.Runs(Mutant("lies", "", ""), tmp_path)

    def suite(order: Order, controls: Controls) -> list[ScenarioResult]:
        (one,) = order.scenarios
        state: State = "fail" if one.metadata.name == "kill-host" else "pass"
        control = controls.of(one, lambda _: None).directory
        trial = order.out / one.metadata.name
        trial.mkdir()
        return [ScenarioResult(one, state, trials=(TrialResult(trial, 0, 0.0, (), control),))]

    monkeypatch.setattr(runs, "run_suite", suite)
    chosen: list[Scenario] = [scenario("kill-rank", num_steps=30), scenario("kill-host")]
    assert [of_mutant.outcome(one).state for one in chosen] == ["pass", "fail"]
    assert [one.directory.parent.name for one in made] == ["controls-2"] * 2, "what was there may be evidence"
    of_mutant.close()
    assert sorted(path.name for path in (tmp_path / "lies").rglob("*")) == [
        "control-2",
        "controls",
        "controls-2",
        "kill-host",
    ]
