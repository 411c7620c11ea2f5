"""Kills, stops and damages workers, and checks that the run continues with the same results."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from recovery_run import STEPS, Run, elastic, same, same_samples, tiny_job
from trainspec_conformance.testbed.planted import PlantedFault

MakeRun = Callable[..., Run]


def one(run: Run, kind: str) -> dict[str, Any]:
    (found,) = run.records(kind)
    return found


@pytest.mark.slow
def test_a_run_without_faults_has_none(uninterrupted: Run) -> None:
    assert not uninterrupted.records("fault")
    assert not uninterrupted.records("decision")
    assert {each["stage"] for each in uninterrupted.records("save")} == {"begin", "snapshot", "written", "committed"}
    assert one(uninterrupted, "end")["reason"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_killed_rank_is_replaced(make_run: MakeRun, uninterrupted: Run, rank: int) -> None:
    run = make_run()
    run.start()
    run.wait_step(15)
    run.signal(rank)
    assert run.finish() == 0
    same(run, uninterrupted)
    fault = one(run, "fault")
    assert (fault["kind"], fault["rank"]) == ("process", rank)
    assert one(run, "decision")["action"] == "restart"
    assert {each["source"] for each in run.records("restore") if each.get("attempt")} == {"peer"}


@pytest.mark.slow
def test_a_run_shrinks_in_place_without_a_new_process(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(elastic(tiny_job(3, STEPS), (2, 3)), way="shrink")
    run.start()
    run.wait_step(15)
    run.signal(1)
    assert run.finish() == 0
    assert one(run, "decision")["action"] == "shrink"
    assert len([each for each in run.records("process") if each["role"] == "rank"]) == 3
    same_samples(run, uninterrupted)
    assert run.losses() == pytest.approx(uninterrupted.losses(), rel=1e-5)


@pytest.mark.slow
def test_a_worker_that_stands_by_takes_the_place(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(num_standby=1)
    run.start()
    run.wait(lambda: len(list(run.pids())) == 5, "the worker that stands by")
    run.wait_step(20)
    run.signal(2)
    assert run.finish() == 0
    same(run, uninterrupted)


@pytest.mark.slow
def test_a_node_is_lost_with_all_of_its_ranks(make_run: MakeRun) -> None:
    run = make_run(tiny_job(4, STEPS), num_hosts=2)
    run.start()
    run.wait_step(15)
    pids = [run.pid(2), run.pid(3)]
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGSTOP)  # so that the controller sees both ends at once, as of a node
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    run.wait(lambda: all(map(run.has_ended, pids)), "the end of both")
    os.kill(run.process.pid, signal.SIGCONT)
    assert run.finish() == 0
    assert one(run, "fault")["kind"] == "node"
    assert one(run, "decision")["action"] == "wait"


@pytest.mark.slow
def test_a_stopped_rank_is_replaced(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(tiny_job(3, STEPS, hang_seconds=3))
    run.start()
    run.wait_step(15)
    run.signal(1, signal.SIGSTOP)
    assert run.finish() == 0
    same(run, uninterrupted)
    fault = one(run, "fault")
    assert (fault["kind"], fault["rank"]) == ("hang", 1)


@pytest.mark.slow
def test_a_rank_that_does_not_go_on_is_replaced(make_run: MakeRun, uninterrupted: Run) -> None:
    job = tiny_job(3, STEPS, hang_seconds=3, faults=(PlantedFault("livelock", rank=2, step=15),))
    run = make_run(job)
    assert run.run() == 0
    same(run, uninterrupted)
    fault = one(run, "fault")
    assert (fault["kind"], fault["rank"]) == ("hang", 2)


@pytest.mark.slow
def test_a_pause_of_many_steps_is_no_fault(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(tiny_job(3, STEPS, faults=(PlantedFault("long-pause", rank=1, step=20, seconds=1.5),)))
    assert run.run() == 0
    assert not run.records("fault")
    same(run, uninterrupted)


@pytest.mark.slow
def test_an_exception_is_told_and_the_run_goes_on(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(tiny_job(3, STEPS, faults=(PlantedFault("exception", rank=0, step=25),)))
    assert run.run() == 0
    same(run, uninterrupted)
    assert "PlantedExceptionError" in one(run, "fault")["reason"]


@pytest.mark.slow
def test_a_crash_loop_ends_with_a_status_of_its_own(make_run: MakeRun) -> None:
    run = make_run(tiny_job(2, STEPS, faults=(PlantedFault("exception", rank=1, step=25, every_attempt=True),)))
    assert run.run() == 10
    assert [each["action"] for each in run.records("decision")] == ["restart"] * 3 + ["stop"]
    assert one(run, "end")["reason"] == "crash-loop"
    assert max(run.losses()) == 25
    newest = max(each["step"] for each in run.records("save") if each["stage"] == "committed")
    assert newest in {10, 20}  # the later one is given up where a crash comes before its end
    assert (run.checkpoints / "latest").read_text() == f"step-{newest:08}\n"


@pytest.mark.slow
def test_a_second_fault_during_the_recovery_is_mended_too(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run()
    run.start()
    run.wait_step(15)
    before = set(run.pids())
    run.signal(1)
    (new,) = run.wait(lambda: set(run.pids()) - before, "the new worker")
    os.kill(new, signal.SIGKILL)
    assert run.finish() == 0
    same(run, uninterrupted)
    assert len(run.records("decision")) == 2


@pytest.mark.slow
def test_all_ranks_are_killed_at_once(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run()
    run.start()
    run.wait_save("committed")
    for rank in range(3):
        run.signal(rank)
    assert run.finish() == 0
    same(run, uninterrupted)
    assert {each["source"] for each in run.records("restore") if each.get("attempt")} == {"checkpoint"}


@pytest.mark.slow
def test_a_flipped_bit_of_a_replica_is_rolled_back(make_run: MakeRun, uninterrupted: Run) -> None:
    faults = (PlantedFault("flip-parameter-bit", rank=1, step=17),)
    run = make_run(tiny_job(3, STEPS, faults=faults, replica_check_steps=5))
    assert run.run() == 0
    same(run, uninterrupted)
    fault = one(run, "fault")
    assert (fault["kind"], fault["rank"]) == ("corruption", 1)
    assert one(run, "decision")["action"] == "rollback"
    assert {each["step"] for each in run.records("restore") if each.get("attempt")} == {10}


@pytest.mark.slow
def test_a_flipped_bit_is_not_committed(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(tiny_job(3, STEPS, faults=(PlantedFault("flip-parameter-bit", rank=2, step=17),)))
    assert run.run() == 0
    same(run, uninterrupted)
    assert one(run, "fault")["kind"] == "corruption"
    failed = [each for each in run.records("save") if each["stage"] == "failed"]
    assert [each["step"] for each in failed] == [20]


@pytest.mark.slow
@pytest.mark.parametrize("action", ["skip-step", "rollback", "stop"])
def test_a_gradient_that_is_no_number_does_what_the_plan_says(
    make_run: MakeRun, uninterrupted: Run, action: str
) -> None:
    job = tiny_job(3, STEPS, nonfinite_action=action, faults=(PlantedFault("nan-gradient", rank=1, step=15),))
    run = make_run(job)
    assert run.run() == (13 if action == "stop" else 0)
    skipped = [each for each in run.records("step") if each.get("skipped")]
    if action == "skip-step":
        assert {each["rank"] for each in skipped} == {0, 1, 2}
        assert not run.records("fault")
    else:
        assert one(run, "fault")["kind"] == "numeric"
    if action == "rollback":
        same(run, uninterrupted)


@pytest.mark.slow
def test_the_controller_blames_nobody_for_its_own_absence(make_run: MakeRun, uninterrupted: Run) -> None:
    run = make_run(tiny_job(3, STEPS, hang_seconds=3))
    run.start()
    run.wait_step(15)
    assert run.process is not None
    os.kill(run.process.pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(run.process.pid, signal.SIGCONT)
    assert run.finish() == 0
    assert not run.records("fault")
    same(run, uninterrupted)
