"""The PyTorch backend, when a peer is killed or stopped: survivors notice, leave, and go on in the same process."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import torch_tasks as tasks
from recovery_run import STEPS, Run, elastic, tiny_job
from torch_crew import crew, free_port


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_survivors_of_a_lost_peer_train_on_as_if_it_had_never_been(signal_number: signal.Signals) -> None:
    setup = tasks.Setup()
    losses, _, _ = crew().run(tasks.steps_of, 2, setup, 5)[0]
    processes = crew()
    processes.send(tasks.lose_last, ["host"] * 3, setup, signal_number, (free_port(), free_port()), 2)
    answers = [processes.answer(rank) for rank in range(2)]
    processes.lose(2)
    assert answers[0] == answers[1]
    # Three ranks sum in another order than two.
    assert answers[0][0] == pytest.approx(losses[2:], rel=1e-12)


@pytest.mark.long
def test_a_rank_that_is_no_neighbour_of_the_lost_one_survives_it(make_run: Callable[..., Run]) -> None:
    run = make_run(elastic(tiny_job(4, STEPS), (2, 3, 4)), backend="torch", way="shrink")
    run.start()
    run.wait_step(15)
    run.signal(3)
    assert run.finish() == 0
    again = [each for each in run.records("restore") if each.get("attempt")]
    assert sorted(each["rank"] for each in again) == [0, 1, 2]
    assert {each["source"] for each in again} <= {"memory", "peer"}
    assert len([each for each in run.records("process") if each["role"] == "rank"]) == 4
