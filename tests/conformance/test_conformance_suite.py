"""The suite against a stack of one page: the honest one passes, each lie is seen by the check for it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from conformance_stacks import HERE, failed, fake, run, scenario
from trainspec_conformance import cli
from trainspec_conformance.agent import MARK, send
from trainspec_conformance.diffing import read_report
from trainspec_conformance.disk import unmount_abandoned
from trainspec_conformance.figures import marks
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import REPORT_CHECKS
from trainspec_conformance.launching import versions
from trainspec_conformance.processes import end_abandoned, marked, new_mark
from trainspec_conformance.reading import REPORT
from trainspec_conformance.records import Started
from trainspec_conformance.reporting import Circumstances, make_report, text
from trainspec_conformance.trial import HISTORY
from trainspec_conformance.view import View

from trainspec_validate.cli import terminal
from trainspec_validate.documents.types.conformance import Missing

HONEST = ["kill-rank", "stop-rank", "kill-coordinator", "truncated-shard", "bad-pointer", "null-run"]
HONEST += ["changed-values", "changed-seed"]
STEPS = {"bad-pointer": 45, "changed-values": 90}
"""Steps of jobs that are stopped more often than a short one lasts."""


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_stack_passes(name: str, tmp_path: Path) -> None:
    (result,) = run(fake(), tmp_path, scenario(name, num_steps=STEPS.get(name, 24)))
    assert result.state == "pass", failed(result)
    assert result.trials


LIES = [
    ("forget-state", "resume-equivalence", "same-trajectory"),
    ("repeat-samples", "resume-equivalence", "same-samples"),
    ("from-nothing", "kill-rank", "not-from-nothing"),
    ("silent", "kill-rank", "detected-within"),
    ("false-alarm", "null-run", "quiet"),
    ("orphan", "null-run", "no-orphans"),
    ("trust", "flipped-shard", "restores-newest-good"),
    ("no-recovery", "kill-rank", "completes"),
    ("parrot", "changed-values", "loss-follows-values"),
    ("step-digest", "changed-seed", "digest-follows-seed"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("lie", "name", "check"), LIES)
def test_a_lie_is_seen_by_its_check(lie: str, name: str, check: str, tmp_path: Path) -> None:
    (result,) = run(fake(lie), tmp_path, scenario(name, num_kept=3))
    assert result.state == "fail"
    assert check in failed(result)


@pytest.mark.slow
def test_a_stack_that_loops_is_ended(tmp_path: Path) -> None:
    stack = fake("loop", claims={"max_restarts_without_progress": 1})
    looping = scenario("crash-loop")
    capable = (*stack.capabilities, "planted-exception")
    soon = msgspec.structs.replace(stack.launch, start_seconds=2)  # it is added to the budget
    stack = msgspec.structs.replace(stack, capabilities=capable, launch=soon)
    looping = msgspec.structs.replace(
        looping,
        budget_seconds=8,
        job=msgspec.structs.replace(looping.job, faults=(msgspec.structs.replace(looping.job.faults[0], step=8),)),
    )
    (result,) = run(stack, tmp_path, looping)
    assert {"acts", "gives-up"} <= failed(result)
    entries = read_history(result.trials[0].directory / HISTORY)
    assert entries[-1].record.reason == "budget"
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or ())]


def test_what_the_stack_cannot_is_unsupported_and_never_a_pass(tmp_path: Path) -> None:
    (result,) = run(fake(), tmp_path, scenario("nan-gradient"))
    assert result.state == "unsupported"
    assert "planted-nan-gradient" in result.reason
    assert not result.trials


@pytest.mark.slow
@pytest.mark.parametrize(("lies", "state"), [(("silent",), "unsupported"), (("silent", "no-recovery"), "fail")])
def test_a_recovery_is_judged_without_reports_that_the_stack_says_it_lacks(
    lies: tuple[str, ...], state: str, tmp_path: Path
) -> None:
    stack = fake(*lies)
    lacking = Missing(capability="fault-reports", reason="The launcher reports none.")
    able = tuple(one for one in stack.capabilities if one != "fault-reports")
    stack = msgspec.structs.replace(stack, capabilities=able, missing=(lacking,))
    (result,) = run(stack, tmp_path, scenario("kill-rank"))
    assert result.state == state, failed(result)
    assert not {judged.check for judged in result.trials[0].judged} & REPORT_CHECKS
    if state == "unsupported":
        assert "every other check held" in result.reason
        assert "The launcher reports none." in result.reason
    (waiting,) = run(stack, tmp_path, scenario("double-fault"))
    assert (waiting.state, waiting.trials) == ("unsupported", ())


def test_a_stack_that_writes_nothing_fails(tmp_path: Path) -> None:
    stack = fake()
    silent = msgspec.structs.replace(stack, launch=msgspec.structs.replace(stack.launch, train=("{python}", "-c", "")))
    results = run(silent, tmp_path, scenario("null-run"), scenario("kill-rank"))
    assert [result.state for result in results] == ["fail", "fail"]
    assert all("completes" in failed(result) for result in results)


@pytest.mark.slow
def test_a_platform_starts_again_what_ended_with_an_error(tmp_path: Path) -> None:
    stack = fake("no-recovery")
    stack = msgspec.structs.replace(stack, launch=msgspec.structs.replace(stack.launch, restarts="platform"))
    (result,) = run(stack, tmp_path, scenario("kill-rank"))
    assert result.state == "pass", failed(result)
    started = [
        one.record for one in read_history(result.trials[0].directory / HISTORY) if isinstance(one.record, Started)
    ]
    assert [one.by_platform for one in started] == [False, True]


def test_names_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    command = ("bash", "-c", 'printf "{}\\n" > "$(dirname "$1")/out/trace/$(printf "\\377").jsonl"', "-", "{task}")
    stack = fake()
    stack = msgspec.structs.replace(
        stack,
        launch=msgspec.structs.replace(stack.launch, train=command, versions=("echo", r'{"\ud800": "\ud800", "": ""}')),
    )
    results = run(stack, tmp_path, scenario("null-run"))
    about = Circumstances(tmp_path, (), versions(stack, HERE))
    (tmp_path / REPORT).write_bytes(text(make_report(stack, results, about)))
    assert read_report(tmp_path).versions == {r"\ud800": r"\ud800", "unnamed": "unknown"}
    assert "acts" in failed(results[0])


def test_the_versions_of_a_stack_are_asked_without_secrets_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SECRET": "hunter2", "PYTHONPATH": ".", "PATH": "/of-the-suite", "HOME": "/home-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRAINSPEC_STACK_PATH", os.defpath)
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    stack = fake()
    launch = {"versions": ("{python}", "-c", show), "environment": {"OWN": "{python} x"}}
    seen = versions(msgspec.structs.replace(stack, launch=msgspec.structs.replace(stack.launch, **launch)), HERE)
    assert not seen.keys() & {"SECRET", "PYTHONPATH", "TRAINSPEC_STACK_PATH"}
    assert (seen["PATH"], seen["HOME"], seen["OWN"]) == (os.defpath, "/home-1", f"{sys.executable} x"[:100])


def test_a_process_that_is_not_of_the_trial_is_left_alone() -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert send([other.pid, os.getpid()], signal.SIGKILL, "not-this-trial") == ()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_process_that_left_its_session_is_found() -> None:
    mark = f"mark-{time.time_ns()}"
    script = "import os, time; os.setsid() if os.fork() == 0 else os._exit(0); time.sleep(600)"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, MARK: mark}, check=True)
    found = marked(mark)
    assert len(found) == 1
    found[0].kill()


@pytest.mark.slow
def test_the_time_line_of_a_fault_is_in_order(tmp_path: Path) -> None:
    # a second of steps after the fault: a busy machine is late by more than the usual job of the tests takes
    (result,) = run(fake(), tmp_path, scenario("kill-rank", num_steps=40, step_seconds=0.05))
    entries = read_history(result.trials[0].directory / HISTORY)
    found = {mark.name: mark.seconds for mark in marks(View(entries))}
    assert found.keys() == {"detected", "decided", "restored", "first-step", "caught-up"}
    assert found["detected"] <= found["decided"] <= found["restored"] <= found["first-step"] <= found["caught-up"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainspec_conformance", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


def verified(out: Path) -> tuple[int, str]:
    """Exit status and standard output of `trainspec-conformance verify`, in this process."""
    with redirect_stdout(io.StringIO()) as told:
        status = terminal.run(cli.command, cli.PROGRAM, ["verify", str(out)])
    return status, told.getvalue()


def list_a_trial_twice(report: dict[str, Any], _out: Path) -> None:
    (trial,) = report["scenarios"][0]["trials"]
    report["scenarios"][0]["trials"] = [trial, {**trial, "number": 2, "seed": trial["seed"] + 1}]


def copy_a_trial(report: dict[str, Any], out: Path) -> None:
    list_a_trial_twice(report, out)
    first, second = report["scenarios"][0]["trials"]
    second["directory"] = "null-run/trial-2"
    shutil.copytree(out / first["directory"], out / second["directory"], dirs_exist_ok=True)
    listed = [one for one in report["evidence"] if one["path"].startswith(f"{first['directory']}/")]
    report["evidence"] += [
        {**one, "path": one["path"].replace(first["directory"], second["directory"])} for one in listed
    ]


def take_the_control_for_a_trial(report: dict[str, Any], _out: Path) -> None:
    report["scenarios"][0]["trials"][0]["directory"] = report["scenarios"][0]["control"]


def number_a_trial_again(report: dict[str, Any], _out: Path) -> None:
    report["scenarios"][0]["trials"][0]["number"] = 7


def name_other_requirements(report: dict[str, Any], _out: Path) -> None:
    report["requirements_sha256"] = "0" * 64


def claim_more_ranks(report: dict[str, Any], _out: Path) -> None:
    report["scenarios"][0]["num_ranks"] = 16


FORGERIES = {
    claim_more_ranks: "the report says 16 ranks, the scenario has 2",
    list_a_trial_twice: "2 trials name 1 directory",
    copy_a_trial: "its history is that of null-run/trial-1",
    take_the_control_for_a_trial: "its history is that of controls/",
    number_a_trial_again: "not numbered 1 to 1",
    name_other_requirements: "the requirements of this version",
}


@pytest.mark.slow
def test_a_report_can_be_judged_again_and_not_be_mended(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command("run", str(HERE / "fake.yaml"), "--report", str(out), "--scenario", "null-run", "--trials", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    whole = command("verify", str(out)).stdout
    num_others = int(re.search(r" and (\d+) more", whole)[1])
    assert "history.jsonl" not in whole
    (out / "added").mkdir()
    for number in range(25):
        (out / "added" / f"{number}.log").write_text("x")
    (out / "a-link").symlink_to(tmp_path)
    status, whole = verified(out)
    assert status == 0
    assert "not looked at, as the report does not name them: a-link, badge.svg," in whole
    assert f" and {num_others + 26} more" in whole
    report = json.loads((out / "report.json").read_text())
    assert report["scenarios"][0]["verdict"] == "pass"
    assert report["level"] is None if "level" in report else True
    assert report["conformant"] is False, "one scenario is no profile"
    path = out / "report.json"
    sound = path.read_text()
    for forge, told in FORGERIES.items():
        forged = json.loads(sound)
        forge(forged, out)
        path.write_text(json.dumps(forged))
        status, again = verified(out)
        assert (status, told in again) == (1, True), (told, again)
    path.write_text(sound)
    path.write_text(path.read_text().replace('"conformant": false', '"conformant": true'))
    assert verified(out)[0] == 1
    history = next(out.rglob("trial-1/history.jsonl"))
    history.write_text(history.read_text().replace('"completed"', '"fault"'))
    status, again = verified(out)
    assert status == 1
    assert "has changed since the report" in again
    assert "completes" in again


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: StackDescriptor\n", ":1: "),
        ("apiVersion: trainspec/v1\nkind: StackDescriptor\nmetadata: {name: x}\nlaunch: {trian: [a]}\n", ":4: trian"),
        ("apiVersion: trainspec/v1\nkind: Waivers\nwaivers: []\n", "this is a Waivers"),
    ],
)
def test_a_wrong_descriptor_is_wrong_use(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "stack.yaml"
    path.write_text(text)
    done = command("run", str(path), "--report", str(tmp_path / "out"))
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_scenario_is_wrong_use_with_a_hint(tmp_path: Path) -> None:
    done = command("run", str(HERE / "fake.yaml"), "--report", str(tmp_path / "out"), "--scenario", "kill-ranks")
    assert done.returncode == 2
    assert "kill-rank" in done.stderr


def mark_of(pid: int) -> str:
    """A mark as a suite in that process would make it."""
    return f"{pid}-{new_mark().partition('-')[2]}"


def test_what_a_suite_left_that_was_killed_is_cleared_up() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    script = "import time; time.sleep(60)"
    left, kept = (
        subprocess.Popen([sys.executable, "-c", script], env={**os.environ, MARK: mark_of(maker)})
        for maker in (gone.pid, os.getpid())
    )
    try:
        end_abandoned()
        assert left.wait(600) == -signal.SIGKILL
        assert kept.poll() is None
    finally:
        for process in (left, kept):
            process.kill()
            process.wait()


def test_disks_of_processes_that_are_gone_are_unmounted(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mounts = tmp_path / "mounts"
    lines = [
        f"trainspec-{maker} {tmp_path}/of\\040{name} tmpfs rw 0 0"
        for maker, name in ((gone.pid, "gone"), (os.getpid(), "me"))
    ]
    mounts.write_text("\n".join(["tmpfs /run tmpfs rw 0 0", *lines, "trainspec /else tmpfs rw 0 0", ""]))
    assert unmount_abandoned(mounts) == [tmp_path / "of gone"]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_nothing_of_its_stack(sent: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "report"
    told = ["run", str(HERE / "fake.yaml"), "--scenario", "null-run", "--trials", "1", "--report", str(out)]
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from trainspec_conformance.cli import main; sys.argv[0] = 'trainspec-conformance'; main()"
    suite = subprocess.Popen([sys.executable, "-c", program, *told], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 600
        while not _of(tmp_path):
            assert suite.poll() is None
            assert time.monotonic() < deadline, "nothing was started"
            time.sleep(0.01)
        suite.send_signal(sent)
        assert suite.wait(600) != 0
    finally:
        suite.kill()
        suite.wait()
    assert not _of(tmp_path)
    assert json.loads((out / "report.json").read_text())["scenarios"][0]["verdict"] == "not-run"


def _of(directory: Path) -> list[psutil.Process]:
    """Processes of a stack that works below a directory."""
    told = [(one, " ".join(one.info["cmdline"] or ())) for one in psutil.process_iter(["cmdline"])]
    return [one for one, words in told if "fake_stack.py" in words and str(directory) in words]
