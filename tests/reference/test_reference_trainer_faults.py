"""The loop with workers of the plain backend: numbers that are not finite, and faults that tests plant."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainspec_conformance.testbed.planted import PlantedExceptionError, PlantedFault, corrupt
from trainspec_reference.common.backend import PeerLostError
from trainspec_reference.common.ports import TrainingFaultError, Wish

from tests.reference.plain_crew import Desk, tiny_job, train
from trainspec_validate.documents.types.precision import LossScaling
from trainspec_validate.documents.types.trace import Decision, FaultSeen

# --- numbers that are not finite ----------------------------------------------------------------------------


class _Overflows(Desk):
    """Plants an infinity before scripted steps."""

    script: tuple[bool, ...] = (False, True, False, False, True, True, False, False)

    def wishes(self) -> Wish:
        number = len(self.done_steps)
        if self.backend is not None and number < len(self.script) and self.script[number]:
            corrupt(self.backend, "inf-gradient")
        return Wish.NONE


def test_overflow_leaves_all_but_the_scale_and_the_samples(tmp_path: Path) -> None:
    scaling = LossScaling(mode="dynamic", initial_scale=1024, growth_interval_steps=3)
    job = tiny_job(5, 1, precision={"loss_scaling": scaling})
    worker = train(job, tmp_path, desk=_Overflows)[0]
    assert worker.error is None
    assert [step.skipped for step in worker.steps] == ["overflow" if bad else None for bad in _Overflows.script]
    assert [step.loss_scale for step in worker.steps] == [1024, 1024, 512, 512, 512, 256, 128, 128]
    assert [step.step for step in worker.steps] == [1, 1, 2, 3, 3, 3, 4, 5]
    assert worker.state.num_samples == 8 * 16
    assert worker.state.num_skipped == 3
    plain = train(tiny_job(5, 1), tmp_path / "plain")[0]
    applied = [step.learning_rate for step in worker.steps if step.skipped is None]
    assert applied == [step.learning_rate for step in plain.steps]


@pytest.mark.parametrize(("action", "skipped"), [("skip-step", "non_finite"), ("rollback", None), ("stop", None)])
def test_infinity_is_met_as_the_plan_says(tmp_path: Path, action: str, skipped: str | None) -> None:
    job = tiny_job(6, 2, precision={"nonfinite_action": action}, faults=(PlantedFault("nan-gradient", 1, 3),))
    workers = train(job, tmp_path)
    for worker in workers:
        if skipped:
            assert worker.error is None
            assert [step.skipped for step in worker.steps] == [None, None, None, skipped, None, None, None]
        else:
            assert isinstance(worker.error, TrainingFaultError)
            assert (worker.error.kind, worker.error.action, worker.state.step) == ("numeric", action, 3)


class _AllOverflow(_Overflows):
    script = (True,) * 200


def test_gives_up_when_every_step_is_skipped(tmp_path: Path) -> None:
    worker = train(tiny_job(5, 1), tmp_path, desk=_AllOverflow)[0]
    assert isinstance(worker.error, TrainingFaultError)
    assert worker.state.num_skipped == 50


# --- faults of workers --------------------------------------------------------------------------------------


def test_the_replica_that_differs_is_named(tmp_path: Path) -> None:
    flip = (PlantedFault("flip-parameter-bit", 1, 4),)
    workers = train(tiny_job(20, 3, faults=flip, replica_check_steps=5), tmp_path)
    for worker in workers:
        assert isinstance(worker.error, TrainingFaultError)
        assert (worker.error.kind, worker.error.rank, worker.state.step) == ("corruption", 1, 5)
    pair = train(tiny_job(20, 2, faults=flip, replica_check_steps=5), tmp_path / "pair")
    assert isinstance(pair[0].error, TrainingFaultError)
    assert pair[0].error.rank is None
    whole = train(tiny_job(10, 3, replica_check_steps=5), tmp_path / "whole")
    assert [worker.error for worker in whole] == [None] * 3


@pytest.mark.slow
def test_a_slow_rank_gets_fewer_samples(tmp_path: Path) -> None:
    slow = (PlantedFault("slow", 1, 0, num_steps=30, seconds=0.15),)
    workers = train(tiny_job(30, 2, faults=slow, rebalance_interval_steps=5), tmp_path)
    assert [worker.error for worker in workers] == [None, None]
    shares = [tuple(len(worker.steps[index].sample_ids) for worker in workers) for index in range(30)]
    assert shares[0] == (8, 8)
    assert shares[-1][1] < 8
    assert all(sum(share) == 16 for share in shares)
    told = [record for record in workers[0].trace if isinstance(record, FaultSeen | Decision)]
    assert isinstance(told[0], FaultSeen)
    assert (told[0].kind, told[0].rank) == ("slow", 1)
    assert isinstance(told[1], Decision)
    assert told[1].action == "rebalance"
    even = train(tiny_job(30, 1), tmp_path / "even")[0]
    assert workers[0].losses == pytest.approx(even.losses, rel=1e-6)


def test_planted_exception(tmp_path: Path) -> None:
    workers = train(tiny_job(6, 2, faults=(PlantedFault("exception", -1, 3),)), tmp_path)
    assert isinstance(workers[1].error, PlantedExceptionError)
    assert isinstance(workers[0].error, PeerLostError)
    assert [worker.state.step for worker in workers] == [3, 3]
