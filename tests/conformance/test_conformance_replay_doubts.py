"""Records that contradict each other, that were refused, or that show no recovery never yield a verdict on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from replayed_runs import FAULT, Attempt, after, before
from trainspec_conformance import commands
from trainspec_conformance.cli import command
from trainspec_conformance.reading import read
from trainspec_conformance.replaying.records import IncidentResult
from trainspec_conformance.replaying.replay import replay
from trainspec_conformance.starting import DEMO_STACK

from trainspec_validate.documents.types.conformance import StackDescriptor

TIMES = ("detected-within", "recovered-within", "one-lineage")


def only(directory: Path) -> IncidentResult:
    """The only incident below a directory, with the times that a stack claims."""
    (run,) = replay([str(directory)], read(DEMO_STACK, StackDescriptor)).runs
    (incident,) = run.incidents
    return incident


def verdict(incident: IncidentResult, check: str) -> tuple[str, str]:
    one = next(one for one in incident.criteria if one.check == check)
    return one.verdict, "; ".join(one.messages)


def recovered(attempt: Attempt, seconds: float, outcome: str = "resumed") -> Attempt:
    """The attempt with the end of the fault and of its recovery."""
    about = {"train.fault.id": "f-1"}
    attempt.event(seconds, "fault.cleared", about)
    more = {"train.recovery.action": "restart", "train.recovery.outcome": outcome}
    return attempt.event(seconds, "recovery.end", about | more, id="v-1", step=40)


def test_a_clock_that_goes_back_leaves_one_incident(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    recovered(after(30, 45.0 - 3600), 90.0 - 3600).write(tmp_path)
    incident = only(tmp_path)
    assert (incident.kind, incident.attempt, incident.next_attempt) == ("process-failure", 0, 1)
    assert incident.time == "2026-01-01T00:00:36Z"
    assert verdict(incident, "faults-reported")[0] == "pass"
    for check in (*TIMES, "lost-steps-at-most", "not-from-nothing"):
        found, reason = verdict(incident, check)
        assert found == "not-run"
        assert "their clocks differ" in reason


def test_a_fault_that_was_cleared_in_its_attempt_is_no_restart(tmp_path: Path) -> None:
    """A later attempt that follows a time limit has nothing to do with it."""
    attempt = before()
    attempt.event(36.5, "fault.detected", FAULT, id="f-1").event(37.0, "fault.cleared", {"train.fault.id": "f-1"})
    attempt.end(37.5, "time_limit").write(tmp_path)
    after(30).write(tmp_path)
    (run,) = replay([str(tmp_path)]).runs
    assert [one.kind for one in run.incidents] == ["process-failure", "planned-restart"]


def test_no_time_is_judged_where_the_restore_was_before_the_report(tmp_path: Path) -> None:
    before().fault(49.5).write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path)
    assert {verdict(incident, check) for check in TIMES} == {
        ("not-run", "the state was restored before the fault was reported, so the times contradict")
    }
    assert not incident.moments
    assert verdict(incident, "lost-steps-at-most")[0] == "pass"


def test_no_time_is_judged_where_the_first_step_was_before_the_report(tmp_path: Path) -> None:
    before().fault(49.5).write(tmp_path)
    Attempt(1, 45.0, 30).steps(31, 60, 47.0).end(90.0, "completed").write(tmp_path)
    assert "first step after the fault was completed before" in verdict(only(tmp_path), "recovered-within")[1]


def test_no_time_is_judged_where_steps_follow_the_report(tmp_path: Path) -> None:
    before().fault(33.5).write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path)
    assert {verdict(incident, check)[0] for check in TIMES} == {"not-run"}
    assert "reported before the last step of attempt 0" in verdict(incident, "detected-within")[1]


def test_ranges_of_times_need_no_claim(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    ((incident,),) = [run.incidents for run in replay([str(tmp_path)]).runs]
    assert "first-step" in {moment.name for moment in incident.moments}


def test_steps_without_a_finite_loss_are_named(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    attempt = after(30)
    for line in attempt.lines:
        if "m" in line:
            line["m"]["train.loss.mean"] = "NaN"
    attempt.write(tmp_path)
    words = "attempt 1 completed optimizer steps, and none with a reported finite loss"
    assert verdict(only(tmp_path), "recovered-within") == ("fail", words)


def test_a_restart_without_a_report_is_judged_by_its_streams(tmp_path: Path) -> None:
    before().write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path)
    assert incident.kind == "restart"
    assert verdict(incident, "stream-is-valid")[0] == "fail"
    assert verdict(incident, "faults-as-seen") == ("not-run", "no record says that there was a fault")


@pytest.mark.parametrize(("outcome", "wanted"), [("resumed", "pass"), ("failed", "fail")])
def test_a_recovery_that_failed_is_not_complete(tmp_path: Path, outcome: str, wanted: str) -> None:
    before().fault(36.5).write(tmp_path)
    recovered(after(30), 60.0, outcome).write(tmp_path)
    assert verdict(only(tmp_path), "faults-as-seen")[0] == wanted


def test_a_job_that_never_recovered_is_no_success(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    done = CliRunner().invoke(command, ["replay", str(tmp_path), "--stack", str(DEMO_STACK)])
    assert "pass     TS-CNF-101 kill-rank: detected-within" in done.output
    assert done.stdout.rstrip().endswith("The recovery was not judged in 1 of 1 incident.")
    assert done.exit_code == commands.WRONG_USE


@pytest.mark.parametrize(("key", "value"), [("world_size", 10**9), ("att", 10**9)])
def test_a_refused_head_is_named_and_nothing_is_judged(tmp_path: Path, key: str, value: int) -> None:
    before().fault(36.5).write(tmp_path)
    attempt = after(30)
    attempt.lines[0][key] = value
    attempt.write(tmp_path)
    done = CliRunner().invoke(command, ["replay", str(tmp_path)])
    assert done.exit_code == commands.WRONG_USE
    assert f"made-job.1.jsonl: nothing of its run is judged: {key} is {value}" in done.output
    assert "records were refused, so that nothing is judged" in done.output
    assert "pass " not in done.output


def test_a_last_line_without_an_end_is_no_refusal(tmp_path: Path) -> None:
    """A process that was killed leaves one."""
    attempt = before().fault(36.5).write(tmp_path)
    path = tmp_path / attempt.name
    path.write_bytes(path.read_bytes()[:-20])
    after(30).write(tmp_path)
    assert not replay([str(tmp_path)]).failures
    assert verdict(only(tmp_path), "not-from-nothing")[0] == "pass"


def test_links_are_named(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    before().fault(36.5).write(run)
    after(30).write(run)
    (run / "step-30").symlink_to(other)
    (run / "made-job.2.jsonl").symlink_to("/dev/zero")
    found = replay([str(run)])
    named = [line.partition(": ")[0] for line in found.not_read]
    assert named == [str(run / "made-job.2.jsonl"), str(run / "step-30")]
    assert "step-30, which was committed last, is a link" in verdict(only(run), "newest-is-whole")[1]


def test_a_skipped_checkpoint_behind_a_link_is_named_as_one(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    before().fault(36.5).write(run)
    after(20).write(run)
    (run / "step-30").symlink_to(other)
    assert "as it is a link, which is not followed" in verdict(only(run), "restores-newest-good")[1]


def test_output_for_programs_names_a_refused_run(tmp_path: Path) -> None:
    attempt = before().fault(36.5)
    attempt.lines[0]["att"] = 10**9
    attempt.write(tmp_path)
    done = CliRunner().invoke(command, ["replay", str(tmp_path), "--format", "json"])
    assert msgspec.json.decode(done.stdout)["runs"][0]["is_refused"] is True
