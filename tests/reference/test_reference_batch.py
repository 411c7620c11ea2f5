"""How much a step takes, at which rate, with which scale: schedules against what their formulas say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainspec_reference.common import batch_schedule
from trainspec_reference.common.batch_schedule import BatchSchedule, LearningRates, StepBatch, rebalanced, scheduled
from trainspec_reference.common.job import Rates
from trainspec_reference.common.noise_scale import NoiseAverages
from trainspec_reference.common.state import LossScale, TrainerState

from trainspec_validate.documents.types.batch import (
    Batch,
    BatchController,
    BatchStage,
    ElasticBatch,
    LearningRateRule,
    NoiseScale,
    WorkerShare,
)
from trainspec_validate.documents.types.precision import LossScaling

DYNAMIC = LossScaling(
    mode="dynamic", initial_scale=1024, growth_factor=2, backoff_factor=0.5, growth_interval_steps=3, min_scale=256
)


def _batch(**values: object) -> Batch:
    return Batch(**{"global_sequences": 16, "micro_sequences": 4, "accumulation_steps": 4, **values})  # type: ignore[arg-type]


# --- loss scale ---------------------------------------------------------------------------------------------


def test_scale_follows_the_script() -> None:
    scale, seen = LossScale.first(DYNAMIC), []
    for is_finite in (True, True, True, False, False, False, True, False, True, True, True):
        seen.append(scale.scale)
        scale = scale.after(DYNAMIC, is_finite=is_finite)
    assert seen == [1024, 1024, 1024, 2048, 1024, 512, 256, 256, 256, 256, 256]
    assert scale.scale == 512


def test_tolerated_overflows_leave_the_scale_and_come_back_with_growth() -> None:
    rule = LossScaling(mode="dynamic", initial_scale=64, growth_interval_steps=2, hysteresis_steps=1)
    scale, seen = LossScale.first(rule), []
    for is_finite in (False, False, True, True, False, False):
        scale = scale.after(rule, is_finite=is_finite)
        seen.append(scale.scale)
    assert seen == [64, 32, 32, 64, 64, 32]


@pytest.mark.parametrize("rule", [None, LossScaling(mode="none"), LossScaling(mode="static", initial_scale=128)])
def test_a_scale_that_is_not_dynamic_stays(rule: LossScaling | None) -> None:
    first = LossScale.first(rule)
    assert first.after(rule, is_finite=False) == first.after(rule, is_finite=True) == first
    assert first.scale == (128 if rule is not None and rule.mode == "static" else 1)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 3), st.integers(1, 5))
def test_scale_is_a_power_of_two_within_its_bounds(script: list[bool], tolerated: int, interval: int) -> None:
    rule = LossScaling(
        mode="dynamic", initial_scale=2.0**60, growth_interval_steps=interval, hysteresis_steps=tolerated
    )
    scale = LossScale.first(rule)
    for is_finite in script:
        before, scale = scale.scale, scale.after(rule, is_finite=is_finite)
        assert 1 <= scale.scale <= 2.0**64
        assert math.log2(scale.scale).is_integer()
        assert (scale.scale >= before) or not is_finite
        assert scale.num_tolerated <= tolerated


# --- batch --------------------------------------------------------------------------------------------------


def test_ramp_by_tokens() -> None:
    ramp = (
        BatchStage(from_tokens=0, global_sequences=4),
        BatchStage(from_tokens=1000, global_sequences=8, sequence_length=16, learning_rate_factor=1.5),
        BatchStage(from_tokens=2000, global_sequences=8, transition="linear"),
        BatchStage(from_tokens=4000, global_sequences=16),
    )
    schedule = BatchSchedule(_batch(ramp=ramp), 32)
    found = {tokens: schedule.at(TrainerState(num_tokens=tokens)) for tokens in (0, 999, 1000, 2000, 3000, 3999, 9999)}
    assert [step.global_sequences for step in found.values()] == [4, 4, 8, 8, 12, 12, 16]
    assert (found[1000].sequence_length, found[1000].learning_rate_factor) == (16, 1.5)
    assert found[0].sequence_length is None


def _controlled(noise_scale: float, now: int | None = None, step: int = 10, **bounds: float) -> int | None:
    limits = {"min_global_sequences": 8, "max_global_sequences": 64, "interval_steps": 5, "max_growth_factor": 2.0}
    controller = BatchController(signal="gradient-noise-scale", **{**limits, **bounds})  # type: ignore[arg-type]
    settings = NoiseScale(
        noise_unit="token",
        tap="after-unscale-before-clip",
        num_groups=4,
        estimator="size-weighted",
        ema_half_life_steps=10,
        bias_corrected=True,
    )
    state = TrainerState(
        step=step, noise=NoiseAverages(10, 1, raw_signal=1.0, raw_noise=noise_scale), global_sequences=now
    )
    return BatchSchedule(_batch(controller=controller, noise_scale=settings), 32).decided(state)


@pytest.mark.parametrize(
    ("tokens", "now", "wanted"),
    [
        (32 * 24, None, 24),  # the noise scale in sequences
        (32 * 1000, None, 32),  # twice the batch of 16 at the most
        (32 * 1000, 60, 64),  # the largest allowed
        (32 * 0.1, 16, 8),  # half of it at the least
        (32 * 0.1, 9, 8),  # the smallest allowed
        (32 * 23.9, None, 20),  # whole micro-batches
    ],
)
def test_controller_follows_the_noise_within_bounds(tokens: float, now: int | None, wanted: int) -> None:
    assert _controlled(tokens, now) == wanted


def test_controller_decides_at_its_interval_and_with_a_signal_only() -> None:
    assert _controlled(32 * 24, step=11) is None
    plan = _batch(controller=BatchController(signal="gradient-noise-scale", min_global_sequences=1,
                                             max_global_sequences=64, interval_steps=1))  # fmt: skip
    assert BatchSchedule(plan, 32).decided(TrainerState(step=5)) is None


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 8))
def test_shares_are_exactly_the_batch_and_as_even_as_can_be(sequences: int, num_ranks: int, micro: int) -> None:
    batch = _batch(micro_sequences=micro)
    if sequences < num_ranks:
        with pytest.raises(ValueError, match="would get nothing"):
            batch_schedule.shares(batch, sequences, num_ranks)
        return
    found = batch_schedule.shares(batch, sequences, num_ranks)
    assert sum(found) == sequences
    assert max(found) - min(found) <= micro
    assert min(found) >= 1


def test_elastic_batch_stays_while_ranks_change() -> None:
    batch = _batch(
        global_sequences=24, elastic=ElasticBatch(data_degrees=(1, 2, 3, 4, 6), micro_sequences=(2, 3, 4, 6))
    )
    found = {ranks: batch_schedule.micro_sequences(batch, 24, ranks) for ranks in (1, 2, 3, 4, 6)}
    assert found == {1: 6, 2: 6, 3: 4, 4: 6, 6: 4}
    for ranks, micro in found.items():
        shares = batch_schedule.shares(batch, 24, ranks)
        assert set(shares) == {24 // ranks}
        assert shares[0] % micro == 0


def test_declared_and_measured_shares() -> None:
    declared = _batch(worker_shares=(WorkerShare(num_data_ranks=2, sequences_per_rank=6),
                                     WorkerShare(num_data_ranks=1, sequences_per_rank=4)))  # fmt: skip
    assert batch_schedule.shares(declared, 16, 3) == (6, 6, 4)
    assert batch_schedule.shares(declared, 32, 3) == (12, 12, 8)
    assert sum(batch_schedule.shares(declared, 16, 2)) == 16
    assert batch_schedule.shares(declared, 16, 3, measured=(10, 3, 3)) == (10, 3, 3)


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8), st.integers(8, 300))
def test_shares_by_speed_cover_the_batch_and_starve_nobody(speeds: list[float], sequences: int) -> None:
    shares = batch_schedule.fitted(sequences, tuple(speeds))
    assert sum(shares) == sequences
    assert min(shares) >= 1
    fastest = speeds.index(max(speeds))
    assert shares[fastest] == max(shares)


def test_a_slow_rank_takes_less_and_is_named() -> None:
    change = rebalanced((8, 8, 8, 8), (100.0, 100.0, 50.0, 100.0))
    assert change is not None
    assert change.shares == (9, 9, 5, 9)
    assert change.straggler == 2
    assert rebalanced((16,), (1.0,)) is None
    assert rebalanced(change.shares, (100.0, 100.0, 50.0, 100.0)) is None


# --- rates --------------------------------------------------------------------------------------------------


def test_warm_up_then_cosine() -> None:
    rates = Rates(peak=1e-3, warmup_steps=10, decay_steps=110, final_factor=0.1)
    assert scheduled(rates, 1) == pytest.approx(1e-4)
    assert scheduled(rates, 10) == 1e-3
    assert scheduled(rates, 60) == pytest.approx(1e-3 * 0.55)
    assert scheduled(rates, 110) == scheduled(rates, 5000) == pytest.approx(1e-4)
    assert scheduled(replace(rates, decay_steps=None), 5000) == 1e-3


@pytest.mark.parametrize(
    ("rule", "noise", "wanted"),
    [
        ("none", None, 1.0),
        ("linear", None, 4.0),
        ("square-root", None, 2.0),
        ("adascale", None, 1.0),
        ("adascale", 16 * 8.0, 3.0),
        ("adam-square-root", 16 * 8.0, math.sqrt(3)),
        ("declared", None, 1.25),
    ],
)
def test_rate_follows_the_batch_by_the_rule(rule: str, noise: float | None, wanted: float) -> None:
    plan = _batch(learning_rate=LearningRateRule(rule=rule, base_global_sequences=16))  # type: ignore[arg-type]
    rates = LearningRates(Rates(peak=1.0), plan)
    assert rates.at(7, StepBatch(64, learning_rate_factor=1.25), noise) == pytest.approx(wanted)
    assert rates.factor(StepBatch(16), noise) == pytest.approx(1.0)


def test_base_of_a_ramp_is_its_first_stage() -> None:
    stages = (BatchStage(from_tokens=0, global_sequences=4), BatchStage(from_tokens=9, global_sequences=16))
    plan = _batch(ramp=stages, learning_rate=LearningRateRule(rule="linear"))
    assert LearningRates(Rates(), plan).factor(StepBatch(16), None) == 4
