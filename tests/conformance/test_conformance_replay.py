"""Incidents of production runs are found in their records, and judged by the criteria of the suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from click.testing import CliRunner
from replayed_runs import Attempt, after, before, checkpoint, micros
from trainspec_conformance import commands
from trainspec_conformance.cli import command
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import judge_trial
from trainspec_conformance.reading import all_scenarios, read
from trainspec_conformance.replaying import judging
from trainspec_conformance.replaying.records import IncidentResult, Kind, Replay
from trainspec_conformance.replaying.replay import replay
from trainspec_conformance.starting import DEMO_STACK

from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.system.boundary import InputError


def only(directory: Path, **more: Any) -> IncidentResult:
    """The only incident below a directory."""
    (run,) = replay([str(directory)], **more).runs
    (incident,) = run.incidents
    return incident


def verdicts(incident: IncidentResult) -> dict[str, str]:
    return {one.check: one.verdict for one in incident.criteria}


def said(incident: IncidentResult, check: str) -> str:
    return "; ".join(next(one.messages for one in incident.criteria if one.check == check))


def stack(**claims: Any) -> StackDescriptor:
    demo = read(DEMO_STACK, StackDescriptor)
    return msgspec.structs.replace(demo, claims=msgspec.structs.replace(demo.claims, **claims))


# --- a fault and the attempt after it


def test_a_recovery_is_judged_by_what_the_records_hold(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert (incident.kind, incident.attempt, incident.next_attempt) == ("process-failure", 0, 1)
    found = verdicts(incident)
    passed = ("detected-within", "recovered-within", "lost-steps-at-most", "not-from-nothing", "faults-reported")
    assert {found[name] for name in (*passed, "restores-newest-good", "one-lineage")} == {"pass"}
    absent = ("completes", "agree-on-restore", "same-samples", "no-orphans", "newest-is-whole")
    assert {found[name] for name in absent} == {"not-run"}
    assert all(one.messages for one in incident.criteria if one.verdict == "not-run")


def test_a_late_first_step_fails_with_its_place(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30, wait=100.0).write(tmp_path)
    (late,) = [one for one in only(tmp_path, stack=stack()).criteria if one.check == "recovered-within"]
    assert late.verdict == "fail"
    assert "not within 90 s" in late.messages[0]
    assert any(place.endswith("made-job.1.jsonl:5") for place in late.places)


def test_the_limit_is_what_the_stack_claims(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    assert verdicts(only(tmp_path, stack=stack(recovery_seconds=5.0)))["recovered-within"] == "fail"


def test_no_time_is_judged_that_nobody_claims_for_the_job(tmp_path: Path) -> None:
    """The 90 s of a claim are about the test job, and production keeps the budget of its policy."""
    before().fault(36.5).write(tmp_path)
    after(30, wait=100.0).write(tmp_path)
    incident = only(tmp_path)
    assert {verdicts(incident)[name] for name in ("detected-within", "recovered-within")} == {"not-run"}
    assert "no descriptor claims a time for this job" in said(incident, "recovered-within")


def test_no_verdict_where_it_depends_on_when_the_fault_was(tmp_path: Path) -> None:
    """The job was silent for 80 s before the report: the recovery took between 30 and 110 s."""
    before().fault(115.0).write(tmp_path)
    after(30, 143.0).write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert verdicts(incident)["recovered-within"] == "not-run"
    assert "it depends on the time of the fault, open for 81 s" in said(incident, "recovered-within")
    (first,) = [moment for moment in incident.moments if moment.name == "first-step"]
    assert (round(first.least_seconds), round(first.most_seconds)) == (30, 111)


@pytest.mark.parametrize("away", [600.0, -600.0])
def test_no_time_is_judged_by_clocks_that_differ(tmp_path: Path, away: float) -> None:
    """The next attempt has the job on a host whose clock is ten minutes away from that of another rank."""
    before().fault(36.5).write(tmp_path)
    after(30, 45.0 + away).write(tmp_path)
    rank = Attempt(1, 45.0, None)
    rank.lines = [rank.lines[0] | {"emitter": "rank-1", "rank": 1, "scopes": ["rank"], "host": "n1"}]
    rank.name = "rank-1.1.jsonl"
    for number in range(31, 61):
        more = {"seq": number - 31, "step": number, "m": {"train.rank.step": number}}
        rank.lines.append({"k": "m", "time_us": micros(47.0 + number - 31), **more})
    rank.write(tmp_path)
    found = only(tmp_path, stack=stack())
    assert {verdicts(found)[name] for name in ("detected-within", "recovered-within", "one-lineage")} == {"not-run"}
    assert "clock" in said(found, "recovered-within")


def test_no_time_is_judged_where_a_clock_was_stepped(tmp_path: Path) -> None:
    jump = {"host.id": "n0", "train.clock.jump": 600.0}
    before().event(20.5, "clock.stepped", jump, host="n0").fault(36.5).write(tmp_path)
    after(30, wait=100.0).write(tmp_path)
    assert "a clock was stepped" in said(only(tmp_path, stack=stack()), "recovered-within")


def test_no_time_is_judged_where_attempts_overlap(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30, 10.0).write(tmp_path)
    assert "so their clocks differ" in said(only(tmp_path, stack=stack()), "recovered-within")


def test_a_step_without_a_loss_is_no_step_with_a_finite_one(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30, loss=0).write(tmp_path)
    assert verdicts(only(tmp_path, stack=stack()))["recovered-within"] == "not-run"


def test_lost_steps_are_counted_by_the_distance_of_commits(tmp_path: Path) -> None:
    before(last=38).fault(39.5).write(tmp_path)
    after(20).write(tmp_path)
    checkpoint(tmp_path, 30)
    found = {one.check: one for one in only(tmp_path, stack=stack()).criteria}
    assert found["lost-steps-at-most"].verdict == "fail"
    assert found["lost-steps-at-most"].messages[0].startswith("18 steps were lost")
    Attempt(0, 0.0, 0).steps(1, 38, 1.0).save(10, 10.2).save(20, 20.2).save(27, 27.2).fault(39.5).write(tmp_path)
    assert "neither a policy nor evenly spaced commits" in said(only(tmp_path, stack=stack()), "lost-steps-at-most")


@pytest.mark.parametrize(
    ("there", "is_damaged", "verdict", "words"),
    [
        (True, False, "fail", "step-30 is whole"),
        (True, True, "pass", ""),
        (False, False, "not-run", "no file shows whether step-30 was damaged, as it is not below the paths"),
    ],
)
def test_an_older_checkpoint_is_wrong_where_the_newer_one_is_whole(
    tmp_path: Path, there: bool, is_damaged: bool, verdict: str, words: str
) -> None:
    before().fault(36.5).write(tmp_path)
    after(20).write(tmp_path)
    if there:
        checkpoint(tmp_path, 30, is_damaged=is_damaged)
    incident = only(tmp_path, stack=stack())
    assert verdicts(incident)["restores-newest-good"] == verdict
    assert words in said(incident, "restores-newest-good")


def test_a_checkpoint_that_was_written_again_shows_nothing(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(20).save(30, 60.0).write(tmp_path)
    checkpoint(tmp_path, 30)
    assert "as it was written again" in said(only(tmp_path, stack=stack()), "restores-newest-good")


def test_checkpoints_that_a_run_has_left_are_not_the_newest(tmp_path: Path) -> None:
    """An operator went back from step 30 to step 10, and the run failed at step 24 after a save of step 20."""
    before().end(36.5, "operator").write(tmp_path)
    Attempt(1, 45.0, 10).restore(10, "step-10", 46.0).steps(11, 24, 47.0).save(20, 56.5, "b-20").fault(62.0).write(
        tmp_path
    )
    late = Attempt(2, 70.0, 20).restore(20, "b-20", 71.0).steps(21, 60, 72.0)
    late.end(120.0, "completed").write(tmp_path)
    (run,) = replay([str(tmp_path)]).runs
    assert [one.kind for one in run.incidents] == ["planned-restart", "process-failure"]
    assert [verdicts(one)["restores-newest-good"] for one in run.incidents] == ["not-run", "pass"]


def test_a_start_from_nothing(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(0).write(tmp_path)
    checkpoint(tmp_path, 30)
    assert verdicts(only(tmp_path, stack=stack()))["not-from-nothing"] == "fail"
    before(saves=()).fault(36.5).write(tmp_path)
    assert "no checkpoint was committed" in said(only(tmp_path, stack=stack()), "not-from-nothing")


@pytest.mark.parametrize(("off", "verdict"), [(0.0, "pass"), (0.1, "fail")])
def test_repeated_steps_are_compared_with_their_first_execution(tmp_path: Path, off: float, verdict: str) -> None:
    before(saves=(10, 20)).fault(36.5).write(tmp_path)
    after(20, off=off).write(tmp_path)
    assert verdicts(only(tmp_path, stack=stack()))["same-trajectory"] == verdict


def test_losses_of_a_changed_job_are_not_compared(tmp_path: Path) -> None:
    before(saves=(10, 20)).fault(36.5).write(tmp_path)
    changed = {"train.change.key": "lr", "train.change.before": "1", "train.change.after": "2"}
    after(20, off=0.1).event(47.0, "hyperparameter.changed", changed).write(tmp_path)
    assert verdicts(only(tmp_path, stack=stack()))["same-trajectory"] == "not-run"


def test_an_end_by_a_fault_that_nothing_reports(tmp_path: Path) -> None:
    before().end(36.5, "fault").write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert (incident.kind, verdicts(incident)["faults-reported"]) == ("unreported-fault", "fail")


def test_several_reports_are_ambiguous(tmp_path: Path) -> None:
    hang = {"train.fault.id": "f-2", "train.fault.domain": "unknown", "train.fault.class": "hang"}
    before().fault(36.5).event(36.55, "fault.detected", hang, id="f-2").write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert "reports name several kinds" in incident.ambiguities[0]
    assert verdicts(incident)["faults-reported"] == "not-run"


def test_attempts_that_do_not_train_belong_to_the_recovery(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    Attempt(1, 40.0, 30).end(41.0, "fault").write(tmp_path)
    second = Attempt(2, 200.0, 30).restore(30, "step-30", 201.0).steps(31, 60, 202.0).end(240.0, "completed")
    second.write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert (incident.attempt, incident.next_attempt) == (0, 2)
    assert verdicts(incident)["recovered-within"] == "fail"
    assert verdicts(incident)["faults-reported"] == "not-run"


@pytest.mark.parametrize(
    ("words", "kind", "scenario"),
    [
        ("node", "node-failure", "kill-host"),
        ("nic", "network-failure", "blackhole"),
        ("hang", "hang", "stop-rank"),
        ("device_memory", "device-failure", "kill-rank"),
        ("silent_corruption", "silent-corruption", "replica-flip"),
        ("oom", "out-of-memory", "killed-for-memory"),
        ("gremlins", "unknown-fault", "kill-rank"),
    ],
)
def test_a_class_of_fault_has_its_scenario(tmp_path: Path, words: str, kind: str, scenario: str) -> None:
    before().fault(36.5, **{"train.fault.class": words}).write(tmp_path)
    after(30).write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert (incident.kind, incident.criteria[0].scenario) == (kind, scenario)
    assert bool(incident.ambiguities) == (kind == "unknown-fault")
    if kind == "hang":
        assert "TS-REC-004" in said(incident, "detected-within")


# --- restarts without a fault, and incidents without a restart


@pytest.mark.parametrize(
    ("reason", "kind", "check"),
    [
        ("preempted", "preemption", "resumes-within"),
        ("operator", "planned-restart", "restores-newest-good"),
        ("", "restart", "restores-newest-good"),
    ],
)
def test_what_somebody_may_have_chosen_is_no_failure(tmp_path: Path, reason: str, kind: str, check: str) -> None:
    attempt = before()
    (attempt.end(36.5, reason) if reason else attempt).write(tmp_path)
    after(20).write(tmp_path)
    checkpoint(tmp_path, 30)
    incident = only(tmp_path, stack=stack())
    assert (incident.kind, verdicts(incident)[check]) == (kind, "not-run")
    assert "somebody may have chosen" in said(incident, check)
    assert bool(incident.ambiguities) == (kind != "planned-restart")


def test_a_preemption_after_a_save_loses_nothing(tmp_path: Path) -> None:
    before(saves=(12, 30, 35)).end(36.5, "preempted").write(tmp_path)
    after(35).write(tmp_path)
    found = verdicts(only(tmp_path, stack=stack()))
    assert (found["resumes-within"], found["restores-newest-good"], found["ends-in-grace"]) == (
        "pass",
        "pass",
        "not-run",
    )


def test_a_recovery_in_the_same_attempt_is_named_and_not_judged(tmp_path: Path) -> None:
    attempt = Attempt(0, 0.0, 0).steps(1, 35, 1.0)
    fault = {"train.fault.id": "f-1", "train.fault.domain": "unknown", "train.fault.class": "process"}
    attempt.event(35.5, "fault.detected", fault, id="f-1").event(37.0, "fault.cleared", fault, id="f-1")
    attempt.steps(36, 60, 40.0).write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert incident.kind == "process-failure"
    assert {one.verdict for one in incident.criteria if one.check != "newest-is-whole"} == {"not-run"}
    assert "the same attempt" in said(incident, "recovered-within")


@pytest.mark.parametrize(("later", "verdict"), [(True, "pass"), (False, "not-run")])
def test_a_save_that_failed(tmp_path: Path, later: bool, verdict: str) -> None:
    attempt = failed_save()
    if not later:
        attempt.lines = attempt.lines[:-7]
    attempt.write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert (incident.kind, verdicts(incident)["saves-again"]) == ("failed-save", verdict)


def test_a_restore_that_was_given_up_leaves_the_choice_open(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    late = Attempt(1, 45.0, 20)
    about = {"train.restore.step": 30, "train.restore.source": "step-30"}
    late.event(45.2, "checkpoint.restore.begin", about, id="r-0")
    late.event(45.4, "checkpoint.restore.end", about | {"train.reason": "digest differs"}, id="r-0")
    late.restore(20, "step-20", 46.0).steps(21, 60, 47.0).end(90.0, "completed").write(tmp_path)
    checkpoint(tmp_path, 30)
    (run,) = replay([str(tmp_path)]).runs
    fault, restore = run.incidents
    assert (fault.kind, restore.kind) == ("process-failure", "failed-restore")
    assert "given up" in said(fault, "restores-newest-good")
    assert restore.ambiguities


def test_errors_of_devices_are_counted_and_not_judged(tmp_path: Path) -> None:
    attempt = before()
    for seconds in (5.0, 6.0, 7.0):
        attempt.event(seconds, "device.error", {"train.fault.vendor_code": "xid:63"}, device="0", host="n0")
    attempt.write(tmp_path)
    incident = only(tmp_path, stack=stack())
    assert (incident.kind, incident.count, incident.criteria) == ("device-error", 3, ())


def test_accounting_of_slurm_has_incidents_and_no_steps(tmp_path: Path) -> None:
    table = tmp_path / "sacct.txt"
    rows = (
        "JobID|JobName|State|ExitCode|Start|End",
        "7|train|NODE_FAIL|0:0|2026-01-01T00:00:00|2026-01-01T01:00:00",
        "7|train|PREEMPTED|0:0|2026-01-01T02:00:00|2026-01-01T03:00:00",
        "7|train|COMPLETED|0:0|2026-01-01T04:00:00|2026-01-01T05:00:00",
    )
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    (run,) = replay([str(tmp_path)]).runs
    assert [one.kind for one in run.incidents] == ["node-failure", "preemption"]
    assert {one.verdict for incident in run.incidents for one in incident.criteria} == {"not-run"}
    assert "witness" in said(run.incidents[0], "faults-reported")


# --- files


def test_the_newest_checkpoint_is_judged_by_its_files(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).save(60, 100.0).write(tmp_path)
    checkpoint(tmp_path, 60)
    assert verdicts(only(tmp_path, stack=stack()))["newest-is-whole"] == "pass"
    (tmp_path / "step-60" / "model.safetensors").write_bytes(b"\0" * 20)
    assert verdicts(only(tmp_path, stack=stack()))["newest-is-whole"] == "fail"


def test_a_checkpoint_of_two_runs_is_of_neither(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path / "a")
    after(30).save(60, 100.0).write(tmp_path / "a")
    Attempt(0, 0.0, 0, run="other").steps(1, 60, 1.0).save(60, 61.0).write(tmp_path / "b")
    checkpoint(tmp_path, 60)
    (mine,) = [run.incidents[0] for run in replay([str(tmp_path)]).runs if run.incidents]
    assert "several runs committed" in said(mine, "newest-is-whole")


def test_what_cannot_be_read_hinders_nothing_else(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    (tmp_path / "cut.jsonl.gz").write_bytes(b"\x1f\x8b\x08\0garbage")
    (tmp_path / "other.jsonl").write_text('{"k": "restore", "time_us": 1}\n', encoding="utf-8")
    found = replay([str(tmp_path), str(tmp_path / "absent")])
    assert [line.partition(":")[0].rpartition("/")[2] for line in found.failures] == ["absent", "cut.jsonl.gz"]
    assert [line.partition(":")[0].rpartition("/")[2] for line in found.not_read] == ["other.jsonl"]
    assert len(found.runs) == 1
    assert "pass" in found.verdicts


def test_no_stream_at_all_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    with pytest.raises(InputError, match="no stream or log"):
        replay([str(tmp_path)])


# --- the command


def failed_save() -> Attempt:
    """A run whose only incident is a save that failed, before another one."""
    about = {"train.checkpoint.id": "bad"}
    attempt = before().event(35.1, "checkpoint.begin", about, id="bad", step=35)
    attempt.event(35.2, "checkpoint.fail", about | {"train.reason": "full"}, id="bad", step=35)
    return attempt.steps(36, 40, 36.0).save(40, 40.2)


@pytest.mark.parametrize("status", [commands.OK, commands.FOUND, commands.WRONG_USE])
def test_exit_codes(tmp_path: Path, status: int) -> None:
    """A run of which all that was judged passed; one with a late recovery; one without an incident."""
    {commands.OK: failed_save(), commands.FOUND: before().fault(36.5)}.get(status, before()).write(tmp_path)
    if status == commands.FOUND:
        after(30, wait=100.0).write(tmp_path)
    done = CliRunner().invoke(command, ["replay", str(tmp_path)])
    assert done.exit_code == status, done.output
    assert "no level and no badge follow" in done.output
    assert ("nothing is judged" in done.output) == (status == commands.WRONG_USE)


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    done = CliRunner().invoke(command, ["replay", str(tmp_path), str(tmp_path / "absent")])
    assert done.exit_code == commands.WRONG_USE
    assert "absent: no such file" in done.output
    assert "recovered-within" in done.output


def test_output_for_programs(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    done = CliRunner().invoke(command, ["replay", str(tmp_path), "--format", "json"])
    found = msgspec.json.decode(done.stdout, type=Replay)
    assert found == replay([str(tmp_path)])
    plain = msgspec.json.decode(done.stdout)
    assert plain["kind"] == "ConformanceReplay"
    assert plain["limits"]["recovery_seconds"] is None
    assert found.is_replay


def test_names_of_files_can_hold_any_bytes(tmp_path: Path) -> None:
    before().fault(36.5).write(tmp_path)
    after(30).write(tmp_path)
    path = tmp_path / "made-job.0.jsonl"
    path.rename(tmp_path / os.fsdecode(b"job\xff\x1b[31m.jsonl"))
    done = CliRunner().invoke(command, ["replay", str(tmp_path), "--format", "json"])
    assert done.exit_code == commands.FOUND
    files = msgspec.json.decode(done.stdout, type=Replay).runs[0].files
    assert any("job\\udcff" in name for name in files)
    assert "\x1b" not in done.stdout


# --- all kinds and criteria


def test_each_kind_has_scenarios_or_is_named_alone() -> None:
    alone = {"device-error", "step-fall", "console-report"}
    assert set(get_args(Kind)) == {*judging.SCENARIOS, *alone}
    names = {name for some in judging.SCENARIOS.values() for name in some} | {
        judging.FROM_CHECKPOINT,
        *judging.TELEMETRY,
    }
    assert names <= all_scenarios().keys()


def test_no_reason_is_of_a_criterion_that_is_judged() -> None:
    checks = {criterion.check for scenario in all_scenarios().values() for criterion in scenario.criteria}
    assert judging.NOT_IN_RECORDS.keys() <= checks
    assert not judging.NOT_IN_RECORDS.keys() & judging.BARS.keys()
    assert judging.BARS.keys() <= checks


# --- the same verdicts as the suite


@pytest.mark.slow
def test_a_killed_rank_is_judged_as_in_the_suite(tmp_path: Path) -> None:
    out = tmp_path / "report"
    commands.run(commands.RunRequest(stack=DEMO_STACK, out=out, names=("kill-rank",), trials=1, seed=5))
    trial = out / "kill-rank" / "trial-1"
    entries = read_history(trial / "history.jsonl")
    control = read_history(next((out / "controls").iterdir()) / "history.jsonl")
    for claims, late in (({}, "pass"), ({"recovery_seconds": 0.05}, "fail")):
        mine = stack(**claims)
        judged = judge_trial(mine, all_scenarios()["kill-rank"], entries, control)
        wanted = {one.check: "pass" if one.passed else "fail" for one in judged}
        incident = only(trial, stack=mine)
        found = {one.check: one.verdict for one in incident.criteria if one.scenario == "kill-rank"}
        both = {name: verdict for name, verdict in found.items() if verdict != "not-run"}
        assert both == {name: wanted[name] for name in both}
        least = {"detected-within", "recovered-within", "lost-steps-at-most", "not-from-nothing", "faults-reported"}
        assert {*least, "newest-is-whole"} <= both.keys()
        assert both["recovered-within"] == late
        assert found.keys() == wanted.keys() - {"acts"}
