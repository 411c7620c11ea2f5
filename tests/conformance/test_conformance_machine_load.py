"""A late answer on a machine that others keep busy says nothing of the stack; all other failures do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from conformance_stacks import fake, run, scenario
from made_runs import added, late
from made_stories import CLAIMS, calm, struck
from msgspec.structs import replace
from spoilt_runs import evenly
from trainspec_conformance.agent import MARK
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import Judged, judge_trial
from trainspec_conformance.machine_load import LoadMeter
from trainspec_conformance.processes import new_mark
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Ended, Entry, Load
from trainspec_conformance.trial import HISTORY

from trainspec_validate.documents.types.trace import Decision, FaultSeen, StepDone

QUIET = Load(num_processors=8, before_processors=0.2, others_processors=0.3, full_seconds=0, seconds=60)
FULL = Load(num_processors=8, before_processors=1, others_processors=5, full_seconds=31, seconds=60)
TAKEN = Load(num_processors=8, before_processors=7, others_processors=5, full_seconds=0, seconds=60)
SPIN = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\nprint()\ninput()"


def judged(name: str, entries: list[Entry], control: list[Entry] | None = None) -> dict[str, Judged]:
    stack = replace(fake(), claims=CLAIMS)
    return {one.check: one for one in judge_trial(stack, all_scenarios()[name], entries, control)}


def slow(load: Load) -> list[Entry]:
    """Recovered as it should be, but for the time, on a machine with that load."""
    return added(load)(late(Decision, 500)(struck(all_scenarios()["kill-rank"])))


@pytest.mark.parametrize("load", [FULL, TAKEN])
def test_a_late_recovery_on_a_busy_machine_is_no_failure_of_the_stack(load: Load) -> None:
    found = judged("kill-rank", slow(load))["recovered-within"]
    assert found.is_own_failure
    assert not found.passed
    assert found.messages[0].startswith("the machine was too busy to judge times: others used")
    assert "the first step was completed after" in found.messages[1]


@pytest.mark.parametrize("load", [QUIET, replace(FULL, full_seconds=2.9), replace(FULL, full_seconds=5, seconds=90)])
def test_a_late_recovery_on_a_quiet_machine_fails(load: Load) -> None:
    found = judged("kill-rank", slow(load))["recovered-within"]
    assert not found.passed
    assert not found.is_own_failure


def test_the_load_during_the_run_to_compare_with_counts_too() -> None:
    entries, control = slow(QUIET), calm(all_scenarios()["kill-rank"])
    assert judged("kill-rank", entries, added(FULL)(control))["recovered-within"].is_own_failure
    assert not judged("kill-rank", entries, added(QUIET)(control))["recovered-within"].is_own_failure


def test_what_no_load_explains_fails_on_a_busy_machine() -> None:
    entries = [one for one in slow(FULL) if not (isinstance(one.record, StepDone) and one.record.attempt > 0)]
    found = judged("kill-rank", entries)["recovered-within"]
    assert found.messages == ("no new attempt completed a step after the kill",)
    assert not found.is_own_failure


def seen_at_once(entries: list[Entry], first: int, last: int) -> list[Entry]:
    """The suite sees lines of some optimizer steps only when the last of them is written."""
    steps = [one for one in entries if isinstance(one.record, StepDone) and first <= one.record.step <= last]
    late = {id(one) for one in steps}
    return [replace(one, seconds=steps[-1].seconds) if id(one) in late else one for one in entries]


def test_times_of_a_trace_that_stay_wrong_fail_on_a_busy_machine() -> None:
    found = judged("reported-step-times", added(FULL)(evenly(calm(all_scenarios()["reported-step-times"]))))[
        "step-time-as-seen"
    ]
    assert "of the trace of rank 0 took 0.75 s" in found.messages[0]
    assert not found.is_own_failure


@pytest.mark.parametrize(("first", "last"), [(1, 12), (20, 40), (25, 60), (60, 90), (80, 90)])
def test_lines_that_a_busy_suite_sees_at_once_say_nothing_of_the_stack(first: int, last: int) -> None:
    entries = added(FULL)(seen_at_once(calm(all_scenarios()["reported-step-times"]), first, last))
    found = judged("reported-step-times", entries)["step-time-as-seen"]
    assert found.passed or found.is_own_failure


@pytest.mark.parametrize(("kind", "is_own"), [("hang", True), ("process", False)])
def test_a_false_alarm_of_a_hang_may_come_from_load(kind: str, is_own: bool) -> None:
    alarm = FaultSeen(time_us=1, kind=kind, rank=0)
    found = judged("null-run", added(FULL)(added(alarm)(calm(all_scenarios()["null-run"]))))["quiet"]
    assert found.messages[-1] == f"a {kind} fault was reported, but nothing was wrong"
    assert found.is_own_failure is is_own


@pytest.mark.parametrize(("load", "is_own"), [(FULL, True), (QUIET, False)])
def test_a_budget_that_is_spent_on_a_busy_machine(load: Load, is_own: bool) -> None:
    entries = [*calm(all_scenarios()["null-run"])[:-1], Entry(seconds=900, record=load)]
    found = judged("null-run", [*entries, Entry(seconds=900, record=Ended(reason="budget"))])["acts"]
    assert not found.passed
    assert found.is_own_failure is is_own


def test_a_pass_on_a_busy_machine_is_one() -> None:
    kill = all_scenarios()["kill-rank"]
    found = judged("kill-rank", added(FULL)(struck(kill)), calm(kill))
    assert [one for one in found.values() if not one.passed] == []


@pytest.mark.slow
def test_every_trial_measures_the_load(tmp_path: Path) -> None:
    (result,) = run(fake(), tmp_path, scenario("null-run"))
    entries = read_history(result.trials[0].directory / HISTORY)
    (load,) = (entry.record for entry in entries if isinstance(entry.record, Load))
    assert load.num_processors == len(psutil.Process().cpu_affinity())
    assert 0 <= load.full_seconds <= load.seconds


def spinning(**variables: str) -> subprocess.Popen[bytes]:
    """A process that has used a second of a processor, and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
    )
    assert process.stdout
    process.stdout.readline()
    return process


@pytest.mark.parametrize("is_marked", [True, False])
def test_processes_of_the_trial_are_not_others(is_marked: bool) -> None:
    mark = new_mark()
    meter = LoadMeter(mark)
    before = meter._last
    process = spinning(**({MARK: mark} if is_marked else {}))
    meter.end()
    used_seconds = meter._last.own_since(before)
    process.communicate(b"\n")
    assert (used_seconds >= 1) is is_marked


@pytest.mark.slow
def test_others_are_counted() -> None:
    meter = LoadMeter(new_mark())
    processes = [spinning() for _ in range(2)]
    load = meter.end()
    for process in processes:
        process.communicate(b"\n")
    assert load.others_processors * load.seconds >= 1
