"""Stops a run and restarts it, with its checkpoints whole, damaged, or obstructing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recovery_run import STEPS, Run, same, tiny_job

MakeRun = Callable[..., Run]


def stopped(run: Run, step: int) -> None:
    """Kill all processes after an optimizer step, when the save that was due before it is committed."""
    assert run.job.policy is not None
    interval = run.job.policy.interval.steps or step
    saved = (step - 1) // interval * interval
    run.start()
    run.wait_step(step)
    if saved:
        run.wait_save("committed", saved)
    killed(run)


def killed(run: Run) -> None:
    assert run.process is not None
    os.killpg(run.process.pid, signal.SIGKILL)
    assert run.finish() == -signal.SIGKILL


def newest(run: Run) -> Path:
    return max(run.checkpoints.glob("step-*"))


def shard(checkpoint: Path) -> Path:
    return max(checkpoint.glob("state-*"), key=lambda path: path.stat().st_size)


def refusals(run: Run) -> dict[str, dict[str, Any]]:
    return {each["checkpoint"]: each for each in run.records("refused")}


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(23,), (11, 30), (9, 10, 41)])
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(
    make_run: MakeRun, uninterrupted: Run, stops: tuple[int, ...]
) -> None:
    run = make_run()
    for step in stops:
        stopped(run, step)
    assert run.run() == 0
    same(run, uninterrupted)


@pytest.mark.slow
def test_a_run_that_is_complete_stays_so(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run()
    assert run.run() == 0
    assert run.run() == 0
    same(run, uninterrupted)
    assert len(run.records("end")) == 2


@pytest.mark.slow
def test_a_run_is_bitwise_equal_whatever_update_it_goes_on_from(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(tiny_job(3, STEPS, interval=1))
    for step in (7, 22, 38):
        stopped(run, step)
    assert run.run() == 0
    same(run, uninterrupted)
    restored = {each["step"] for each in run.records("restore")}
    assert len(restored) == 4


def cut(checkpoint: Path) -> None:
    os.truncate(shard(checkpoint), shard(checkpoint).stat().st_size // 2)


def flip(checkpoint: Path) -> None:
    content = bytearray(shard(checkpoint).read_bytes())
    content[len(content) // 2] ^= 4
    shard(checkpoint).write_bytes(content)


def stale(checkpoint: Path) -> None:
    path = shard(checkpoint)
    shutil.copyfile(checkpoint.with_name("step-00000010") / path.name, path)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut": cut,
    "flip": flip,
    "stale": stale,
    "missing": lambda checkpoint: shard(checkpoint).unlink(),
    "partial": lambda checkpoint: (checkpoint / "trainspec-manifest.json").unlink(),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_taken(
    make_run: MakeRun, uninterrupted: Run, damage: str
) -> None:
    run = make_run()
    stopped(run, 26)
    name = newest(run).name
    DAMAGES[damage](newest(run))
    assert run.run() == 0
    assert refusals(run)[name]["reason"]
    restored = {each["checkpoint"] for each in run.records("restore") if each.get("attempt")}
    assert restored == {f"step-{int(name[5:]) - 10:08}"}
    same(run, uninterrupted)


@pytest.mark.slow
def test_a_pointer_to_nothing_is_told_and_decides_nothing(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run()
    stopped(run, 26)
    (run.checkpoints / "latest").write_text("step-00000999\n")
    assert run.run() == 0
    assert refusals(run).keys() == {"latest"}
    assert {each["step"] for each in run.records("restore") if each.get("attempt")} == {20}
    same(run, uninterrupted)


@pytest.mark.slow
def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(make_run: MakeRun) -> None:
    run = make_run()
    stopped(run, 26)
    for checkpoint in run.checkpoints.glob("step-*"):
        cut(checkpoint)
    before = len(run.records("step"))
    assert run.run() == 12
    assert len(run.records("step")) == before
    assert len(refusals(run)) == 2
    assert run.records("end")[-1]["reason"] == "fault"


@pytest.mark.slow
def test_what_lies_in_the_way_of_a_save_is_no_checkpoint(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run()
    left = run.checkpoints / "step-00000010"
    left.mkdir(parents=True)
    (left / "state-0-of-3.npz").write_bytes(b"half")
    (run.checkpoints / ".saving-other").mkdir()
    assert run.run() == 0
    assert refusals(run).keys() == {left.name}
    assert not (run.checkpoints / ".saving-other").exists()
    same(run, uninterrupted)


@pytest.mark.slow
def test_a_checkpoint_of_another_model_is_refused_by_the_workers(make_run: MakeRun) -> None:
    run = make_run()
    stopped(run, 15)
    other = make_run(tiny_job(3, STEPS, seed=9))
    job = other.job
    from dataclasses import replace

    other.job = replace(job, model=replace(job.model, hidden_size=16))
    assert other.run() == 12
    assert refusals(other)
    assert other.records("end")[-1]["reason"] == "fault"


@pytest.mark.slow
def test_workers_end_with_their_controller_and_a_new_one_goes_on(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run()
    run.start()
    run.wait_step(15)
    run.signal(1, signal.SIGSTOP)
    assert run.process is not None
    run.process.kill()
    assert run.finish() == -signal.SIGKILL
    assert run.run() == 0
    same(run, uninterrupted)
    assert max(each.get("attempt", 0) for each in run.records("step")) == 1


@pytest.mark.slow
def test_two_controllers_do_not_share_a_run(make_run: MakeRun) -> None:
    run, second = make_run(), make_run()
    run.start()
    run.wait_step(5)
    assert second.process is None
    second.start()
    assert second.process is not None
    assert second.process.wait(600) == 2
    assert run.finish() == 0
