"""Kills and starves the writers of a save, and checks that no partial checkpoint is ever used."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from recovery_run import Run, same, tiny_job

from trainspec_validate.cli import toolbox, validate

MUTANT = (sys.executable, str(Path(__file__).with_name("recovery_mutant.py")))
MakeRun = Callable[..., Run]
WRITERS = {"rank-0": [0], "rank-2": [2], "everything": []}


def mutant(kind: str, rank: int, write: int) -> list[str]:
    return [*MUTANT, kind, str(rank), str(write)]


def stages(run: Run, step: int) -> list[str]:
    return [each["stage"] for each in run.records("save") if each["step"] == step]


def validated(run: Run) -> None:
    """The validator finds nothing wrong with the checkpoints, and the newest is what its manifest says."""
    newest = run.checkpoints / (run.checkpoints / "latest").read_text().strip()
    programs = ((validate.command, [str(run.checkpoints)]), (toolbox.command, ["checkpoint", "verify", str(newest)]))
    for program, arguments in programs:
        result = CliRunner().invoke(program, arguments)
        assert result.exit_code == 0, result.output


def killed_at(run: Run, stage: str, who: list[int]) -> None:
    """Kill ranks, or all processes, when the second save is at a stage."""
    run.start()
    run.wait_save(stage, 20)
    if not who:
        assert run.process is not None
        os.killpg(run.process.pid, signal.SIGKILL)
    for rank in who:
        run.signal(rank)


@pytest.mark.slow
@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("stage", ["begin", "snapshot", "written", "committed"])
def test_a_kill_at_a_stage_of_a_save_costs_no_checkpoint(
    make_run: MakeRun, uninterrupted: Run, stage: str, writers: str
) -> None:
    run = make_run(command=mutant("slow", -1, 2))
    killed_at(run, stage, WRITERS[writers])
    status = run.finish()
    if writers == "everything":
        assert status == -signal.SIGKILL
        assert run.run() == 0
        restored = {each["step"] for each in run.records("restore") if each.get("attempt")}
        assert restored <= {10, 20}
        assert stage != "committed" or restored == {20}
    else:
        assert status == 0
    same(run, uninterrupted)
    assert not run.records("refused")
    validated(run)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_file_leaves_the_checkpoint_before(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(command=mutant("die", 1, 2))
    assert run.run() == 0
    same(run, uninterrupted)
    assert "committed" not in [each["stage"] for each in run.records("save") if each["step"] == 20][:8]
    validated(run)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "words"), [("error", "OSError"), ("full", "OSError"), ("nothing", "")])
def test_a_write_that_fails_on_one_rank_fails_the_save_on_all(
    make_run: MakeRun, uninterrupted: Run, kind: str, words: str
) -> None:
    run = make_run(command=mutant(kind, 1, 2))
    assert run.run() == 0
    same(run, uninterrupted)
    assert not run.records("fault")
    if kind != "nothing":
        assert "committed" not in stages(run, 20)
        (failed,) = [each for each in run.records("save") if each["stage"] == "failed"]
        assert words in failed["reason"]
    assert "committed" in stages(run, 30)


@pytest.mark.slow
def test_writes_that_never_succeed_do_not_stop_training(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(command=mutant("full", -1, 0))
    assert run.run() == 0
    same(run, uninterrupted)
    assert [each["step"] for each in run.records("save") if each["stage"] == "failed"] == [10, 20, 30, 40, 50]
    assert not [path for path in run.checkpoints.iterdir() if path.is_dir()]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that fills up soon; for root alone."""
    path = tmp_path / "run" / "checkpoints"
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """Write until nothing fits any more."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.slow
def test_a_full_disk_fails_saves_until_there_is_space(make_run: MakeRun, small_disk: Path) -> None:
    run = make_run(tiny_job(3, 120))
    run.start()
    run.wait_save("committed", 10)
    filler = small_disk / "filler"
    fill(filler)
    failed = run.wait_save("failed")
    kept = sorted(path.name for path in small_disk.glob("step-*"))
    filler.unlink()
    run.wait_save("committed", failed["step"] + 1)
    assert run.finish() == 0
    assert kept
    assert not run.records("fault")
    validated(run)


# --- notices of the platform ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("target", ["controller", "one rank", "everything"])
def test_a_notice_of_the_platform_ends_the_run_with_a_checkpoint_of_this_update(
    make_run: MakeRun, uninterrupted: Run, target: str
) -> None:
    run = make_run()
    run.start()
    run.wait_step(13)
    assert run.process is not None
    if target == "one rank":
        run.signal(1, signal.SIGTERM)
    else:
        (os.killpg if target == "everything" else os.kill)(run.process.pid, signal.SIGTERM)
    assert run.finish() == 11
    end = run.records("end")[-1]
    assert (end["reason"], end["step"]) == ("preempted", max(run.losses()))
    assert (run.checkpoints / "latest").read_text() == f"step-{end['step']:08}\n"
    validated(run)
    assert run.run() == 0
    same(run, uninterrupted)


@pytest.mark.slow
def test_a_notice_before_the_first_update_waits_for_it(make_run: MakeRun) -> None:
    run = make_run()
    run.start()
    run.wait(lambda: run.records("process"), "the controller")
    time.sleep(0.05)
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.finish() in {11, 12}
    assert not list(run.pids())
