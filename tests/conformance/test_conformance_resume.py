"""An interrupted run has a report and can continue, and leaves nothing that runs or is mounted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import HERE, fake, scenario
from trainspec_conformance import commands, suite
from trainspec_conformance.agent import MARK
from trainspec_conformance.commands import RunRequest
from trainspec_conformance.processes import end_abandoned, marked, new_mark
from trainspec_conformance.resuming import UNFINISHED, discard_leftovers, read_unfinished
from trainspec_conformance.suite import Order, run_suite
from trainspec_conformance.trial import Setting, run_trial

from trainspec_validate.documents.types.conformance_report import ConformanceReport

SECONDS = 120
PROGRAM = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
PROGRAM += "from trainspec_conformance.cli import main; sys.argv[0] = 'trainspec-conformance'; main()"


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def report_of(out: Path) -> ConformanceReport:
    return msgspec.json.decode((out / "report.json").read_bytes(), type=ConformanceReport)


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The directory of a run that was interrupted in its second trial, when the first was judged."""
    short = scenario("null-run"), scenario("kill-rank")
    monkeypatch.setattr(commands, "all_scenarios", lambda: {one.metadata.name: one for one in short})
    began = []

    def run_or_end(setting: Setting) -> object:
        began.append(setting.directory)
        if len(began) == 3:
            raise KeyboardInterrupt
        return run_trial(setting)

    with monkeypatch.context() as patched:
        patched.setattr(suite, "run_trial", run_or_end)
        names = tuple(one.metadata.name for one in short)
        with pytest.raises(KeyboardInterrupt):
            commands.run(RunRequest(HERE / "fake.yaml", tmp_path / "out", names, trials=2, seed=5))
    assert f"trainspec-conformance resume {tmp_path / 'out'}" in capsys.readouterr().out
    return tmp_path / "out"


@pytest.mark.slow
def test_an_interrupted_run_has_a_report_and_continues_after_its_last_trial(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = report_of(interrupted)
    assert [(one.verdict, len(one.trials)) for one in partial.scenarios] == [("pass", 2), ("not-run", 0)]
    assert "interrupted" in str(partial.scenarios[1].reason)
    histories = {path: path.read_bytes() for path in interrupted.glob("*/trial-*/history.jsonl")}
    (interrupted / "0123456789").mkdir()  # of a trial in which the suite was killed
    began: list[Path] = []

    def note(setting: Setting) -> object:
        began.append(setting.directory.relative_to(interrupted))
        return run_trial(setting)

    monkeypatch.setattr(suite, "run_trial", note)
    assert commands.resume(interrupted) == commands.OK
    whole = report_of(interrupted)
    assert [(one.verdict, len(one.trials)) for one in whole.scenarios] == [("pass", 2), ("pass", 2)]
    assert len(began) == 2, "trials that had ended are not run again"
    assert {path: path.read_bytes() for path in histories} == histories
    assert whole.scenarios[0].trials[0].checks == partial.scenarios[0].trials[0].checks
    assert not (interrupted / "0123456789").exists()
    assert not (interrupted / UNFINISHED).exists()
    assert commands.resume(interrupted) == commands.WRONG_USE


@pytest.mark.slow
def test_a_run_does_not_continue_with_another_stack(interrupted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_unfinished(interrupted)
    assert (told.seed, told.trials) == (5, 2)
    other = msgspec.structs.replace(told, digests={**told.digests, "the descriptor": "0"}, versions={"torch": "1"})
    (interrupted / UNFINISHED).write_bytes(msgspec.json.encode(other))
    assert commands.resume(interrupted) == commands.WRONG_USE
    assert "the descriptor, the versions of the components" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "", "[" * 100_000, '{"stack": 1}', '{"stack": "x", "more": 1}'])
def test_a_directory_without_an_interrupted_run_is_wrong_use(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / UNFINISHED).write_text(text)
    assert commands.resume(tmp_path) == commands.WRONG_USE


def test_only_directories_of_trials_are_discarded(tmp_path: Path) -> None:
    kept = ("kill-rank", "documents", "0123456789a", "012345678g")
    for name in (*kept, "0123456789"):
        (tmp_path / name).mkdir()
    (tmp_path / "aaaaaaaaaa").write_text("")
    (tmp_path / "bbbbbbbbbb").symlink_to(tmp_path / "documents")
    discard_leftovers(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {*kept, "aaaaaaaaaa", "bbbbbbbbbb"}


@pytest.mark.slow
def test_one_trial_that_failed_decides_and_those_that_passed_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lie, state in (("", "not-run"), ("silent", "fail")):
        numbers = iter(range(2))

        def run_or_end(setting: Setting, numbers: object = numbers) -> object:
            if next(numbers):  # type: ignore[call-overload]
                raise KeyboardInterrupt
            return run_trial(setting)

        monkeypatch.setattr(suite, "run_trial", run_or_end)
        chosen = [scenario("kill-rank"), scenario("null-run")]
        order = Order(fake(*filter(None, [lie])), HERE, tmp_path / state, chosen, num_trials=2)
        with pytest.raises(KeyboardInterrupt):
            run_suite(order)
        assert [one.state for one in order.results] == [state, "not-run"]
        assert [len(one.trials) for one in order.results] == [1, 0]


def mounts_below(directory: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(directory) in line]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kill-rank", "disk-full"])
def test_nothing_runs_or_is_mounted_after_the_suite_was_killed(name: str, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    told = ["run", str(HERE / "fake.yaml"), "--scenario", name, "--trials", "1", "--report", str(tmp_path / "out")]
    command = [sys.executable, "-c", PROGRAM, *told]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)

    def left() -> list[object]:
        mark = f"{killed.pid}-"
        return [one for one in Path("/proc").glob("[0-9]*/environ") if _holds(one, f"{MARK}={mark}".encode())]

    until(lambda: left() and any(temporary.iterdir()), "nothing was started")
    if name == "disk-full" and os.geteuid() == 0:
        until(lambda: mounts_below(tmp_path), "no disk was mounted")
    killed.kill()  # not waited for: its number is not free yet
    until(lambda: not left(), "processes are left")
    until(lambda: not mounts_below(tmp_path), "a disk is left")
    until(lambda: not any(temporary.iterdir()), "temporary directories are left")
    killed.wait()


def _holds(path: Path, words: bytes) -> bool:
    try:
        return words in path.read_bytes()
    except OSError:
        return False


def test_the_guard_removes_directories_that_were_not_returned(tmp_path: Path) -> None:
    kept, taken, returned = (tmp_path / name for name in ("kept", "taken", "returned\n+x"))
    for path in (kept, taken, returned):
        path.mkdir()
    program = (
        "import os, sys; from pathlib import Path; from trainspec_conformance import guard; guard.start();"
        "guard.taken(Path(sys.argv[1])); guard.taken(Path(sys.argv[2])); guard.returned(Path(sys.argv[2]));"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(taken), str(returned)], check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not taken.exists(), "a temporary directory is left")
    assert kept.exists()
    assert returned.exists()


def test_a_suite_that_nobody_has_waited_for_is_gone() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    mark = f"{gone.pid}-{new_mark().partition('-')[2]}"
    left = subprocess.Popen(["sleep", "600"], env={MARK: mark, "PATH": os.environ["PATH"]})
    try:
        until(lambda: marked(mark), "it has no environment yet")
        until(lambda: Path(f"/proc/{gone.pid}/stat").read_text().split()[2] == "Z", "it has not ended")
        end_abandoned()
        assert left.wait(SECONDS) == -signal.SIGKILL
    finally:
        for process in (gone, left):
            process.kill()
            process.wait()
