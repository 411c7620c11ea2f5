"""The loop with workers of the plain backend: what a run promises, whatever happens to it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from trainspec_reference.common.data import Feed, Loaded, SampleOrder
from trainspec_reference.common.job import Data
from trainspec_reference.common.ports import Wish
from trainspec_reference.common.state import TrainerState

from tests.reference.plain_crew import Desk, Result, tiny_job, train
from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.batch import (
    BatchController,
    BatchStage,
    ElasticBatch,
    LearningRateRule,
    NoiseScale,
)
from trainspec_validate.documents.types.checkpoint import Interval
from trainspec_validate.documents.types.precision import LossScaling

NOISE = NoiseScale(
    noise_unit="sequence",
    tap="after-unscale-before-clip",
    num_groups=4,
    estimator="size-weighted",
    ema_half_life_steps=10,
    bias_corrected=True,
)


def _ids(results: list[Result], index: int) -> list[int]:
    return [sample for result in results for sample in result.steps[index].sample_ids]


def _close(first: list[float], second: list[float], tolerance: float = 1e-6) -> bool:
    return max(abs(a - b) / abs(a) for a, b in zip(first, second, strict=True)) <= tolerance


# --- the same run for any number of workers -----------------------------------------------------------------


@pytest.mark.slow
def test_one_two_and_four_workers_follow_one_trace(tmp_path: Path) -> None:
    runs = {n: train(tiny_job(30, n, batch={"variable_length": True}), tmp_path / str(n)) for n in (1, 2, 4)}
    alone = runs[1][0]
    assert alone.was_stopped is False
    assert alone.losses[-1] < alone.losses[0] - 0.3
    order = SampleOrder(4096, 1234)
    for workers in runs.values():
        assert [worker.error for worker in workers] == [None] * len(workers)
        assert _close(alone.losses, workers[0].losses)
        assert len({worker.digest for worker in workers}) == 1
        assert len({tuple(worker.losses) for worker in workers}) == 1
        for index in (0, 29):
            assert tuple(_ids(workers, index)) == order.ids(16 * index, 16)
    assert [step.learning_rate for step in alone.steps] == [step.learning_rate for step in runs[4][3].steps]


@pytest.mark.slow
@pytest.mark.parametrize("step", [25, 50])
def test_resume_is_bitwise(tmp_path: Path, step: int) -> None:
    job = tiny_job(60, 2)
    job = replace(job, model=replace(job.model, dropout=0.1))
    whole = train(job, tmp_path / "whole", desk=lambda: Desk(directory=tmp_path / "saves"))
    resumed = train(job, tmp_path / "resumed", restore=tmp_path / f"saves/step-{step}")
    assert [worker.error for worker in (*whole, *resumed)] == [None] * 4
    for before, after in zip(whole, resumed, strict=True):
        assert [s.loss for s in before.steps[step:]] == [s.loss for s in after.steps]
        assert [s.gradient_norm for s in before.steps[step:]] == [s.gradient_norm for s in after.steps]
        assert [s.sample_ids for s in before.steps[step:]] == [s.sample_ids for s in after.steps]
        assert before.digest == after.digest
        assert before.state == after.state


def test_ranks_drop_other_activations(tmp_path: Path) -> None:
    job = tiny_job(10, 2)
    dropped = replace(job, model=replace(job.model, dropout=0.5))
    with_dropout, without = train(dropped, tmp_path / "a"), train(job, tmp_path / "b")
    assert not _close(with_dropout[0].losses, without[0].losses, 1e-4)
    assert with_dropout[0].losses == with_dropout[1].losses


@pytest.mark.slow
def test_workers_come_and_go_while_the_batch_stays(tmp_path: Path) -> None:
    elastic = ElasticBatch(data_degrees=(1, 2, 4), micro_sequences=(4,))
    job = tiny_job(75, 4, batch={"elastic": elastic})
    alone = train(tiny_job(75, 1), tmp_path / "alone")[0]
    place: Path | None = None
    losses: list[float] = []
    saves = tmp_path / "saves"
    for end, num_ranks in ((25, 4), (50, 2), (75, 4)):
        part = replace(job, num_steps=end)
        workers = train(
            part, tmp_path / f"to-{end}", num_ranks=num_ranks, desk=lambda: Desk(directory=saves), restore=place
        )
        assert [worker.error for worker in workers] == [None] * num_ranks
        losses += workers[0].losses
        place = saves / f"step-{end}"
    assert _close(alone.losses, losses)
    assert math.isclose(sum(alone.losses), sum(losses), rel_tol=1e-6)


# --- gradient noise -----------------------------------------------------------------------------------------


def test_noise_depends_neither_on_ranks_nor_on_the_loss_scale(tmp_path: Path) -> None:
    static = LossScaling(mode="static", initial_scale=2.0**16)
    runs = [
        train(tiny_job(12, 1, batch={"noise_scale": NOISE}), tmp_path / "a"),
        train(tiny_job(12, 4, batch={"noise_scale": NOISE}), tmp_path / "b"),
        train(tiny_job(12, 2, batch={"noise_scale": NOISE}, precision={"loss_scaling": static}), tmp_path / "c"),
    ]
    for workers in runs:
        assert [worker.error for worker in workers] == [None] * len(workers)
    first, *others = [workers[0].state.noise for workers in runs]
    assert first.num_steps == 12
    assert first.noise_scale is not None
    for other in others:
        assert other.raw_signal == pytest.approx(first.raw_signal, rel=1e-3)
        assert other.raw_noise == pytest.approx(first.raw_noise, rel=1e-3)


def test_controller_grows_the_batch_and_the_rate_follows(tmp_path: Path) -> None:
    controller = BatchController(
        signal="gradient-noise-scale",
        min_global_sequences=8,
        max_global_sequences=32,
        interval_steps=5,
        max_growth_factor=1.5,
    )
    rule = LearningRateRule(rule="square-root", base_global_sequences=16)
    values = {"noise_scale": NOISE, "controller": controller, "learning_rate": rule}
    workers = train(tiny_job(20, 2, batch=values), tmp_path)
    assert [worker.error for worker in workers] == [None, None]
    sizes = [step.global_sequences or 0 for step in workers[0].steps]
    assert len(set(sizes)) > 1
    assert all(8 <= size <= 32 and size % 4 == 0 for size in sizes)
    assert all(b == a or index % 5 == 0 for index, (a, b) in enumerate(pairwise(sizes), start=1))
    plain = train(tiny_job(20, 1), tmp_path / "plain")[0]
    for step, fixed in zip(workers[0].steps, plain.steps, strict=True):
        assert step.learning_rate == pytest.approx(fixed.learning_rate * math.sqrt((step.global_sequences or 0) / 16))
    assert workers[0].state.num_samples == sum(sizes)


def test_ramp_changes_the_batch_at_its_tokens(tmp_path: Path) -> None:
    ramp = (BatchStage(from_tokens=0, global_sequences=8), BatchStage(from_tokens=8 * 16 * 4, global_sequences=16))
    workers = train(tiny_job(8, 2, batch={"ramp": ramp}), tmp_path)
    assert [step.global_sequences for step in workers[0].steps] == [8] * 4 + [16] * 4
    order, position = SampleOrder(4096, 1234), 0
    for index, size in enumerate([8] * 4 + [16] * 4):
        assert tuple(_ids(workers, index)) == order.ids(position, size)
        position += size
    assert workers[0].state.num_tokens == position * 16


# --- wishes -------------------------------------------------------------------------------------------------


class _Wishing(Desk):
    """One rank wishes something after some steps."""

    after: int = -1
    wanted: Wish = Wish.NONE

    def wishes(self) -> Wish:
        return self.wanted if len(self.done_steps) == self.after else Wish.NONE


def _one_wishes(wanted: Wish, after: int) -> Callable[[], Desk]:
    made: list[Desk] = []

    def desk() -> Desk:
        found = _Wishing()
        if made:
            found.after, found.wanted = after, wanted
        made.append(found)
        return found

    return desk


@pytest.mark.parametrize(
    ("wish", "was_stopped", "saved"),
    [(Wish.STOP, True, [7]), (Wish.SAVE, False, [7, 12])],
)
def test_a_wish_of_one_rank_is_granted_by_all(tmp_path: Path, wish: Wish, was_stopped: bool, saved: list[int]) -> None:
    workers = train(tiny_job(12, 2), tmp_path, desk=_one_wishes(wish, 7))
    assert [worker.was_stopped for worker in workers] == [was_stopped, was_stopped]
    assert [list(worker.desk.saved) for worker in workers] == [saved, saved]


def test_ports_are_told_in_order(tmp_path: Path) -> None:
    worker = train(tiny_job(50, 1), tmp_path)[0]
    assert worker.desk.arrived_steps == worker.desk.done_steps == list(range(1, 51))
    assert list(worker.desk.saved) == [25, 50]
    assert worker.desk.saved[25].num_samples == 25 * 16
    assert TrainerState.from_json(worker.desk.saved[50].to_json()) == worker.state


def test_saves_by_time_come_at_the_same_step_of_all_ranks(tmp_path: Path) -> None:
    job = tiny_job(6, 2)
    assert job.policy is not None
    often = changed(job.policy, interval=Interval(seconds=1e-9))
    workers = train(replace(job, policy=often), tmp_path)
    assert [worker.error for worker in workers] == [None, None]
    assert [list(worker.desk.saved) for worker in workers] == [[1, 2, 3, 4, 5, 6]] * 2
    never = changed(job.policy, interval=Interval(final_only=True))
    assert list(train(replace(job, policy=never), tmp_path / "final")[0].desk.saved) == [6]
    assert list(train(replace(job, policy=None), tmp_path / "none")[0].desk.saved) == []


# --- samples --------------------------------------------------------------------------------------------------


def test_evaluation_changes_nothing(tmp_path: Path) -> None:
    job = tiny_job(12, 2)
    with_dropout: dict[str, Any] = {"model": replace(job.model, dropout=0.1)}
    plain = train(replace(job, **with_dropout), tmp_path / "plain")
    evaluated = train(replace(job, **with_dropout, evaluation_interval_steps=4), tmp_path / "evaluated")
    assert [worker.error for worker in evaluated] == [None, None]
    assert plain[0].losses == evaluated[0].losses
    assert plain[0].digest == evaluated[0].digest


def test_batches_are_made_beside_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, by = Feed.made, []

    def noted(*arguments: Any) -> Loaded:
        by.append(threading.current_thread().name.startswith("loader"))
        return made(*arguments)

    monkeypatch.setattr(Feed, "made", noted)
    ramp = (BatchStage(from_tokens=0, global_sequences=8), BatchStage(from_tokens=8 * 16 * 4, global_sequences=16))
    worker = train(tiny_job(12, 1, batch={"ramp": ramp}), tmp_path)[0]
    assert worker.error is None
    assert by.count(False) == 1
    assert by.count(True) in (11, 12)


def test_a_small_epoch_is_passed_through_again(tmp_path: Path) -> None:
    job = tiny_job(6, 2, data=Data(num_samples=24, seed=5))
    workers = train(job, tmp_path)
    seen = [sample for index in range(6) for sample in _ids(workers, index)]
    assert sorted(seen[:24]) == sorted(seen[24:48]) == list(range(24))
    assert seen[:24] != seen[24:48]
