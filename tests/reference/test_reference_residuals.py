"""What compression has not sent yet: skipped steps, other loss scales, lost ranks and other numbers of ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_crew import formations, tiny_job
from recovery_run import Run, elastic
from recovery_run import tiny_job as long_job
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.planted import corrupt
from trainspec_reference.common import decisions
from trainspec_reference.common.backend import CheckpointUnreadableError, Formation
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Job
from trainspec_reference.common.weights import initial_weights

from trainspec_validate.documents import types as documents
from trainspec_validate.documents.types.communication import Communication, Compression

TOP_K: dict[str, Any] = {"method": "top-k", "density": 0.25, "error_feedback": True}
SIZE = 16


def compressors(num_ranks: int, **fields: Any) -> list[GradientCompressor]:
    return [GradientCompressor(Compression(**TOP_K, **fields), SIZE) for _ in range(num_ranks)]


class Ledger:
    """All gradients of some ranks, in whole numbers, and what was applied of them: sums are exact."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(0)
        self.given, self.applied = np.zeros(SIZE), np.zeros(SIZE)

    def step(self, ranks: Sequence[GradientCompressor], behind: Sequence[GradientCompressor] = ()) -> None:
        """A step of all ranks; those behind have sent their part, and lost the others before they applied it."""
        for each in ranks:
            gradient = self._chance.integers(-50, 51, SIZE).astype(np.float32)
            self.given += gradient
            self.applied += each.decoded(each.encoded(gradient))
        for each in ranks:
            if each not in behind:
                each.commit()

    def unsent(self, ranks: Sequence[GradientCompressor]) -> list[float]:
        """What is neither applied nor kept."""
        return list(self.given - self.applied - sum(each.residual.astype(np.float64) for each in ranks))


NOTHING = [0.0] * SIZE


def test_residuals_are_what_was_not_applied() -> None:
    ranks, ledger = compressors(3), Ledger()
    for _ in range(20):
        ledger.step(ranks)
    assert ledger.unsent(ranks) == NOTHING
    assert all(each.residual.any() for each in ranks)


def test_a_lost_rank_takes_its_own_part_with_it_and_no_more() -> None:
    ranks, ledger = compressors(3), Ledger()
    for _ in range(5):
        ledger.step(ranks)
    lost, left = ranks[1].residual.astype(np.float64), [ranks[0], ranks[2]]
    for each in left:
        each.resize(3, 2)
        each.catch_up(0)
    assert ledger.unsent(left) == list(lost)
    joined = compressors(1)[0]
    joined.catch_up(5)
    assert not joined.residual.any()
    for _ in range(5):
        ledger.step([*left, joined])
    assert ledger.unsent([*left, joined]) == list(lost)


def test_a_rank_that_sent_its_part_and_did_not_apply_the_update_keeps_the_rest() -> None:
    ranks, ledger = compressors(2), Ledger()
    ledger.step(ranks)
    ledger.step(ranks, behind=ranks[1:])
    assert ledger.unsent(ranks) != NOTHING
    ranks[1].catch_up(1)
    assert ledger.unsent(ranks) == NOTHING
    ranks[1].catch_up(2)
    assert not ranks[1].residual.any()


@pytest.mark.parametrize("num_after", [1, 2, 3, 4])
def test_a_resume_on_any_number_of_ranks_keeps_the_sum(num_after: int) -> None:
    ranks, ledger = compressors(3), Ledger()
    for _ in range(5):
        ledger.step(ranks)
    saved = {f"residual/{rank}-of-3": each.residual for rank, each in enumerate(ranks)}
    resumed = compressors(num_after)
    for rank, each in enumerate(resumed):
        each.restore(saved, rank, num_after)
    assert ledger.unsent(resumed) == NOTHING
    if num_after == 3:
        assert all((new.residual == old.residual).all() for new, old in zip(resumed, ranks, strict=True))


def test_the_plan_can_reset_or_refuse() -> None:
    saved = {f"residual/{rank}-of-2": np.ones(SIZE, np.float32) for rank in range(2)}
    reset, refuses = compressors(1, residual_on_resize="reset")[0], compressors(1, residual_on_resize="refuse")[0]
    reset.restore(saved, 0, 1)
    assert not reset.residual.any()
    reset.restore(saved, 0, 2)
    reset.resize(2, 2)
    assert reset.residual.all()
    reset.resize(2, 1)
    assert not reset.residual.any()
    with pytest.raises(CheckpointUnreadableError, match="the plan refuses 1 ranks for the residuals of 2"):
        refuses.restore(saved, 0, 1)
    with pytest.raises(ValueError, match="the plan refuses 1 ranks"):
        refuses.resize(2, 1)
    with pytest.raises(CheckpointUnreadableError, match=r"float32\[16\]"):
        reset.restore({"residual/0-of-1": np.ones(3, np.float32)}, 0, 1)


# --- the backend --------------------------------------------------------------------------------------------


def compressed(job: Job, **fields: Any) -> Job:
    plan = documents.changed(job.plan, communication=Communication(compression=Compression(**TOP_K, **fields)))
    return replace(job, plan=plan)


def started(job: Job, place: Formation) -> PlainBackend:
    backend = PlainBackend(job)
    backend.join(place)
    backend.build(initial_weights(job.model, job.seed))
    return backend


def step(backend: PlainBackend, job: Job, loss_scale: float = 1.0, *, applies: bool = True) -> bool:
    batch = Samples(job.model, job.data).batch([backend._formation.rank])
    found = backend.gradients(
        [batch], num_targets=batch.num_targets, loss_scale=loss_scale, measure_noise=False, arrived=int
    )
    if applies:
        backend.update(1e-3, None)
    else:
        backend.discard()
    return found.is_finite


def residual(backend: PlainBackend) -> list[float]:
    compressor = backend._compressor
    assert compressor is not None
    found: list[float] = compressor.residual.tolist()
    return found


def test_a_skipped_step_leaves_no_trace_in_residuals() -> None:
    job = compressed(tiny_job())
    backend = started(job, next(formations(1)))
    step(backend, job)
    before = residual(backend)
    corrupt(backend, "inf-gradient")
    assert not step(backend, job, applies=False)
    assert residual(backend) == before
    assert step(backend, job)
    assert np.isfinite(residual(backend)).all()
    backend.leave()


def test_residuals_have_no_loss_scale() -> None:
    job, found = compressed(tiny_job()), []
    for scales in ((1.0, 1.0), (4096.0, 2.0)):
        backend = started(job, next(formations(1)))
        for scale in scales:
            step(backend, job, scale)
        found.append((residual(backend), backend.digest()))
        backend.leave()
    assert found[0] == found[1]


def each_rank(num_ranks: int, work: Callable[[Formation], None]) -> None:
    errors: list[BaseException] = []

    def run(place: Formation) -> None:
        try:
            work(place)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in formations(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_survivors_keep_their_own_and_a_new_rank_begins_with_nothing() -> None:
    job, backends = compressed(tiny_job(num_ranks=3)), dict[int, PlainBackend]()

    def begin(place: Formation) -> None:
        backends[place.rank] = started(job, place)
        step(backends[place.rank], job)
        step(backends[place.rank], job)

    each_rank(3, begin)
    before = {rank: residual(backend) for rank, backend in backends.items()}
    for backend in backends.values():
        backend.leave()
        backend.discard()

    def go_on(place: Formation) -> None:  # the last rank was lost, and a new process takes its place
        if place.rank == 2:
            backends[2] = started(job, place)
        else:
            backends[place.rank].join(place)
        backends[place.rank].share(0)

    each_rank(3, go_on)
    assert [residual(backends[rank]) for rank in range(2)] == [before[0], before[1]]
    assert not any(residual(backends[2]))
    assert before[2] != residual(backends[2])
    assert len({backend.digest() for backend in backends.values()}) == 1
    for backend in backends.values():
        backend.leave()


# --- a run --------------------------------------------------------------------------------------------------


def test_what_becomes_of_residuals_is_told() -> None:
    job = compressed(tiny_job(), residual_on_resize="redistribute")
    assert decisions.unsent(job, [1], 3, 2).startswith("what rank 1 had not sent of its gradients is lost")
    assert decisions.unsent(job, [], 3, 3) == decisions.unsent(tiny_job(), [1], 3, 2) == ""
    assert "begin anew" in decisions.unsent(compressed(job, residual_on_resize="reset"), [1], 3, 2)
    strict = compressed(elastic(tiny_job(), (1, 2, 4)), residual_on_resize="refuse")
    assert decisions.shrunk_size(strict, 3) is None


@pytest.mark.slow
def test_a_run_that_compresses_shrinks_in_place_and_says_what_is_lost(make_run: Callable[..., Run]) -> None:
    job = compressed(elastic(long_job(3, 40), (2, 3)), residual_on_resize="redistribute")
    assert job.policy is not None
    state = documents.changed(job.policy.state, resume_class="statistical")
    run = make_run(replace(job, policy=documents.changed(job.policy, state=state)), way="shrink")
    run.start()
    run.wait_step(15)
    run.signal(1)
    assert run.finish() == 0
    (decision,) = run.records("decision")
    assert decision["action"] == "shrink"
    assert decision["reason"].endswith(
        "; what rank 1 had not sent of its gradients is lost, the others keep their residuals"
    )
    assert {each["source"] for each in run.records("restore") if each.get("attempt")} <= {"memory", "peer"}
