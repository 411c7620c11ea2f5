"""The plain backend: its arithmetic against formulas written down another way, and its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainspec_conformance.testbed import PLAIN
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.plain.formats import rounded, stochastically_rounded, summed
from trainspec_conformance.testbed.plain.model import loss_alone, loss_and_gradients
from trainspec_conformance.testbed.plain.optimizer import AdamW
from trainspec_conformance.testbed.planted import corrupt
from trainspec_reference.common.backend import CheckpointUnreadableError, PeerLostError, make
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Data, ModelShape, Rates
from trainspec_reference.common.weights import initial_weights, state_digest, tensor_digest

from tests.reference.plain_crew import Desk, formations, tiny_job, train
from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.communication import Communication, Compression
from trainspec_validate.documents.types.plan import TrainingPlan

SHAPE = ModelShape(family="state-space", num_layers=2, hidden_size=6, vocabulary_size=11, sequence_length=5)


def test_gradients_are_those_of_finite_differences() -> None:
    random = np.random.default_rng(0)
    weights = {name: value + random.normal(0, 0.3, value.shape) for name, value in initial_weights(SHAPE, 0).items()}
    batch = Samples(SHAPE, Data(), variable_length=True).batch([3, 1, 4])
    loss, gradients = loss_and_gradients(weights, batch, 1 / batch.num_targets)
    assert loss == pytest.approx(loss_alone(weights, batch))
    assert gradients.keys() == weights.keys()
    for name, value in weights.items():
        direction = random.normal(size=value.shape)
        nudged = [loss_alone({**weights, name: value + sign * 1e-5 * direction}, batch) for sign in (1, -1)]
        slope = (nudged[0] - nudged[1]) / 2e-5 / batch.num_targets
        assert (gradients[name] * direction).sum() == pytest.approx(slope, rel=1e-6, abs=1e-9), name


def test_a_rank_whose_join_failed_leaves_like_any_other() -> None:
    backend = make(PLAIN, tiny_job())
    with pytest.raises(PeerLostError, match="did not come together"):
        backend.join(replace(next(formations(2)), timeout_seconds=0.2))
    backend.leave()
    backend.discard()


def test_loss_of_the_first_step_is_that_of_chance() -> None:
    batch = Samples(SHAPE, Data()).batch(range(8))
    mean = loss_alone(initial_weights(SHAPE, 0), batch) / batch.num_targets
    assert mean == pytest.approx(np.log(11), rel=1e-2)


def test_adamw_is_the_published_one() -> None:
    """Algorithm 2 of arXiv:1711.05101 in float64, one entry at a time."""
    rates, random = Rates(beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1), np.random.default_rng(1)
    start, decays = random.normal(size=5).astype(np.float32), np.array([1, 1, 1, 0, 0], np.float32)
    parameters = start.copy()
    optimizer = AdamW(rates, decays, np.zeros(5, np.float32), np.zeros(5, np.float32))
    exact, first, second = start.astype(np.float64), np.zeros(5), np.zeros(5)
    for update in range(1, 21):
        gradient, rate = random.normal(size=5).astype(np.float32), 1e-2 / update
        optimizer.update(parameters, gradient, rate)
        first = 0.9 * first + 0.1 * gradient
        second = 0.95 * second + 0.05 * gradient.astype(np.float64) ** 2
        step = first / (1 - 0.9**update) / (np.sqrt(second / (1 - 0.95**update)) + 1e-8)
        exact = exact - rate * (step + 0.1 * decays * exact)
    assert np.abs(parameters - exact).max() < 1e-6


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_bf16_is_the_nearest(values: list[float]) -> None:
    array = np.array(values, np.float32)
    found = rounded(array, "bf16")
    assert not (found.view(np.uint32) & np.uint32(0xFFFF)).any()
    finite = np.isfinite(found)
    spacing = np.abs(array[finite].astype(np.float64)) * 2.0**-8 + 1e-40
    assert (np.abs(found[finite].astype(np.float64) - array[finite]) <= spacing).all()


def test_formats() -> None:
    assert rounded(np.array([70000.0, 1 + 2**-11]), "fp16").tolist() == [np.inf, 1.0]
    assert rounded(np.array([np.nan, np.inf], np.float32), "bf16").tolist()[1] == np.inf
    assert np.isnan(rounded(np.array([np.nan], np.float32), "bf16")[0])
    with pytest.raises(ValueError, match="no numbers of fp8"):
        rounded(np.ones(1), "fp8")
    ones = [np.array([1.0]), *[np.array([2.0**-9])] * 8]
    assert summed(ones, "bf16")[0] == 1.0
    assert summed(ones, "fp32")[0] == 1 + 2**-6


def test_chance_rounds_without_bias() -> None:
    values = np.full(20_000, 1 + 0.3 * 2.0**-7, np.float32)
    found = stochastically_rounded(values, "bf16", np.random.default_rng(0))
    assert set(found.tolist()) == {1.0, 1 + 2.0**-7}
    share = (found > 1).mean()
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 20_000) ** 0.5


# --- compression --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "num_bytes"), [("fp16", 2 * 64), ("bf16", 2 * 64), ("top-k", 6 * 8)])
def test_what_is_not_sent_is_kept(method: str, num_bytes: int) -> None:
    settings = Compression(method=method, density=0.1, error_feedback=True)  # type: ignore[arg-type]
    compressor, random = GradientCompressor(settings, 64), np.random.default_rng(2)
    given_sum, sent_sum = np.zeros(64), np.zeros(64)
    for _ in range(50):
        gradient = random.normal(size=64).astype(np.float32)
        payload = compressor.encoded(gradient)
        compressor.commit()
        assert len(payload) == num_bytes
        given_sum += gradient
        sent_sum += compressor.decoded(payload)
    assert np.abs(given_sum - sent_sum - compressor.residual).max() < 1e-4
    assert np.abs(compressor.residual).max() > 0


def test_top_k_sends_the_largest() -> None:
    compressor = GradientCompressor(Compression(method="top-k", density=0.5), 4)
    sent = compressor.decoded(compressor.encoded(np.array([1, -5, 2, 3], np.float32)))
    assert sent.tolist() == [0, -5, 0, 3]
    assert not compressor.residual.any()


def test_residuals_are_saved_and_begin_anew_among_other_ranks(tmp_path: Path) -> None:
    settings = Compression(method="top-k", density=0.05, error_feedback=True, residual_on_resize="reset")
    job = tiny_job(6, 2)
    job = replace(job, plan=_with(job.plan, settings))
    short = train(replace(job, num_steps=3), tmp_path / "short", desk=lambda: Desk(directory=tmp_path / "saves"))
    whole = train(job, tmp_path / "whole")
    resumed = train(job, tmp_path / "resumed", restore=tmp_path / "saves/step-3")
    assert [worker.error for worker in (*short, *whole, *resumed)] == [None] * 6
    assert resumed[0].losses == whole[0].losses[3:]
    assert resumed[0].digest == whole[0].digest
    assert whole[0].losses != train(tiny_job(6, 2), tmp_path / "dense")[0].losses
    alone = train(job, tmp_path / "alone", num_ranks=1, restore=tmp_path / "saves/step-3")
    assert alone[0].error is None
    strict = replace(job, plan=_with(job.plan, Compression(method="top-k", error_feedback=True,
                                                           residual_on_resize="refuse")))  # fmt: skip
    refused = train(strict, tmp_path / "refused", num_ranks=1, restore=tmp_path / "saves/step-3")
    assert isinstance(refused[0].error, CheckpointUnreadableError)


def _with(plan: TrainingPlan, settings: Compression) -> TrainingPlan:
    return changed(plan, communication=Communication(compression=settings))


# --- files --------------------------------------------------------------------------------------------------


def _backend(num_ranks: int = 1, rank: int = 0) -> PlainBackend:
    job = tiny_job()
    backend = make(PLAIN, job)
    assert isinstance(backend, PlainBackend)
    backend._formation = list(formations(num_ranks))[rank]
    backend.build(initial_weights(job.model, job.seed))
    return backend


def test_state_is_restored_by_any_number_of_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        backend = _backend(3, rank)
        backend._optimizer.first += 0.5
        backend.write(backend.snapshot(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"state-{rank}-of-3.npz" for rank in range(3)]
    other = _backend()
    assert other.digest() != backend.digest()
    other.restore(tmp_path)
    assert other.digest() == backend.digest()


def test_a_snapshot_does_not_change_with_the_state(tmp_path: Path) -> None:
    backend = _backend()
    before, snapshot = backend.digest(), backend.snapshot()
    corrupt(backend, "flip-parameter-bit")
    assert backend.digest() != before
    backend.write(snapshot, tmp_path)
    backend.restore(tmp_path)
    assert backend.digest() == before


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "other"])
def test_damaged_files_are_refused_by_name(tmp_path: Path, damage: str) -> None:
    for rank in range(2):
        _backend(2, rank).write(_backend(2, rank).snapshot(), tmp_path)
    path = tmp_path / "state-1-of-2.npz"
    match damage:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:300])
        case "empty":
            path.write_bytes(b"")
        case _:
            np.savez(path, nothing=np.zeros(1))
    with pytest.raises(CheckpointUnreadableError, match=r"state-1-of-2\.npz cannot be read|lacks"):
        _backend().restore(tmp_path)


def test_no_files_are_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadableError, match=r"holds no state-\*-of-\*\.npz"):
        _backend().restore(tmp_path)


def test_a_pickle_in_an_archive_is_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "state-0-of-1.npz", allow_pickle=True, parameters=np.array([{}], object))
    with pytest.raises(CheckpointUnreadableError, match=r"state-0-of-1\.npz cannot be read"):
        _backend().restore(tmp_path)


# --- limits and digests ---------------------------------------------------------------------------------------


def test_refuses_what_it_does_not_have() -> None:
    job = tiny_job()
    with pytest.raises(ValueError, match="trains state-space models"):
        PlainBackend(replace(job, model=ModelShape()))
    with pytest.raises(ValueError, match="on the CPU"):
        PlainBackend(replace(job, device="cuda"))
    with pytest.raises(ValueError, match="unknown backend"):
        make("tensorflow", job)


def test_digests_tell_name_format_and_shape_apart_but_not_layout() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    base = tensor_digest("a", array)
    assert base == tensor_digest("a", np.asfortranarray(array)) == tensor_digest("a", array.astype(">f4"))
    others = [
        tensor_digest("b", array),
        tensor_digest("a", array.T),
        tensor_digest("a", array.astype(np.float64)),
        tensor_digest("a", array.view(np.int32)),
        tensor_digest("a", array, "bfloat16"),
    ]
    assert len({base, *others}) == 6
    assert state_digest([base, *others]) == state_digest([*others, base])
    assert state_digest([base]) != state_digest([base, others[0]])
