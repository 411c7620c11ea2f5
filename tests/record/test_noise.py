"""The estimate of gradient noise on gradients whose signal and noise are known, and what of it is written."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from appendix_models import noise_statistics

import trainspec_record
from trainspec_record.noise import Averages, NoiseMeter, NoiseSettings, Norms
from trainspec_record.noise.estimate import student_quantile

from .recorded import errors, records

DIMENSION, NUM_STEPS = 40, 2000
SIGNAL = 0.25
SIGMA = np.linspace(0.2, 3.0, DIMENSION)
"""Variances along the axes; the covariance of one noise unit is their diagonal matrix."""
NOISE = float(SIGMA.sum())
TRUTH = np.full(DIMENSION, math.sqrt(SIGNAL / DIMENSION))


def updates(sizes: list[int], num_steps: int, seed: int, believed: list[int] | None = None) -> list[Norms]:
    """Norms of steps of Gaussian gradients with the known signal and noise, by sizes that may be believed wrongly."""
    random = np.random.default_rng(seed)
    found = []
    weights = np.array(sizes) / sum(sizes)
    for _ in range(num_steps):
        deviation = np.sqrt(SIGMA / np.array(sizes)[:, None])
        gradients = TRUTH + deviation * random.standard_normal((len(sizes), DIMENSION))
        mean = weights @ gradients
        found.append(Norms.of_groups(believed or sizes, list((gradients**2).sum(axis=1)), float(mean @ mean)))
    return found


def averaged(sizes: list[int], num_steps: int = NUM_STEPS, seed: int = 1, half_life: float = 1e9) -> Averages:
    averages = Averages(half_life)
    for norms in updates(sizes, num_steps, seed):
        averages.add(norms)
    return averages


@pytest.mark.parametrize("sizes", [[4] * 8, [1, 2, 4, 9]])
def test_signal_and_noise_are_found(sizes: list[int]) -> None:
    reading = averaged(sizes).reading()
    assert reading is not None
    units, groups, square = sum(sizes), len(sizes), float((SIGMA**2).sum())
    deviation = math.sqrt(4 * float(TRUTH**2 @ SIGMA) / units + 2 * square * groups / (units**2 * (groups - 1)))
    assert abs(reading.signal_sq - SIGNAL) < 4 * deviation / math.sqrt(NUM_STEPS)
    assert reading.noise_trace == pytest.approx(NOISE, rel=0.01)
    assert reading.applied_variance == pytest.approx(reading.noise_trace / units)
    assert reading.noise_scale == pytest.approx(NOISE / SIGNAL, rel=0.2)
    assert reading.snr == pytest.approx(units * reading.signal_sq / reading.noise_trace)


def test_groups_that_are_believed_equal_miss_the_truth() -> None:
    averages = Averages(1e9)
    for norms in updates([1, 2, 4, 9], NUM_STEPS, 1, believed=[4] * 4):
        averages.add(norms)
    reading = averages.reading()
    assert reading is not None
    assert reading.noise_interval is not None
    assert reading.noise_interval[0] > 1.5 * NOISE
    assert reading.signal_sq < 0


@pytest.mark.parametrize("sizes", [[4] * 8, [1, 2, 4, 9]])
def test_intervals_hold_the_truth_as_often_as_they_say(sizes: list[int]) -> None:
    held = {"noise": 0, "signal": 0, "scale": 0}
    for seed in range(200):
        reading = averaged(sizes, num_steps=100, seed=seed, half_life=60).reading()
        assert reading is not None
        for name, interval, truth in (
            ("noise", reading.noise_interval, NOISE),
            ("signal", reading.signal_interval, SIGNAL),
            ("scale", reading.scale_interval, NOISE / SIGNAL),
        ):
            held[name] += interval is None or interval[0] <= truth <= interval[1]
    # 0.95 of 200, give or take four deviations
    assert all(177 <= count <= 200 for count in held.values()), held


def test_averages_and_interval_are_those_of_the_validator() -> None:
    norms = updates([4] * 8, 1000, 3)
    theirs = [noise_statistics.GradientNoise(each.signal_sq, each.noise_trace, each.num_units) for each in norms]
    *_, last = noise_statistics.running(theirs, 10)
    averages, plain = Averages(10), Averages(1e12)
    for each in norms:
        averages.add(each)
        plain.add(each)
    reading = averages.reading()
    assert reading is not None
    assert (reading.signal_sq, reading.noise_trace) == pytest.approx((last.signal_sq, last.noise_trace))
    assert averages.num_effective == pytest.approx(noise_statistics.num_effective_steps(last), rel=1e-9)
    whole = plain.reading()
    assert whole is not None
    assert whole.scale_interval is not None
    assert whole.scale_interval == pytest.approx(noise_statistics.noise_scale_interval(theirs), rel=1e-6)
    assert student_quantile(9) == pytest.approx(noise_statistics.student_quantile(0.975, 9))


def test_readings_further_apart_count_by_updates() -> None:
    apart, each = Averages(30, every=3), Averages(10)
    for norms in updates([4] * 8, 30, 3):
        apart.add(norms)
        each.add(norms)
    assert apart.reading() == each.reading()


def test_nothing_is_raised_to_zero() -> None:
    averages = Averages(10)
    for _ in range(20):
        averages.add(Norms(4, 16, 10.0, 1.0))
    reading = averages.reading()
    assert reading is not None
    assert reading.signal_sq == -2.0
    assert reading.noise_scale is None
    assert reading.scale_interval is None
    assert reading.snr < 0


def test_readings_of_one_update_have_no_interval() -> None:
    averages = Averages(0)
    for norms in updates([4] * 8, 10, 3):
        averages.add(norms)
        reading = averages.reading()
        assert reading is not None
        assert reading.noise_trace == pytest.approx(norms.noise_trace)
        assert reading.noise_interval is None


# --- what is written ----------------------------------------------------------------------------------------

SETTINGS = NoiseSettings("sequence", [4] * 8, half_life_steps=20, loss_reduction="global-token-mean")


def recorded(folder: Path, norms: list[Norms]) -> list[dict[str, object]]:
    with trainspec_record.run(declared=SETTINGS.declared) as run:
        meter = NoiseMeter(SETTINGS, run, interval_seconds=0)
        for number, each in enumerate(norms):
            with run.step(number):
                meter.add(each)
                run.log(loss=2 - 1e-3 * number, samples=8, learning_rate=1e-3, gradient_norm=1 + 1e-3 * number)
    return records(folder / "job.0.jsonl")


def test_metrics_are_written_with_what_they_mean(folder: Path) -> None:
    found = recorded(folder, updates([4] * 8, 60, 1))
    assert found[0]["declared"] == {
        "train.gradient.noise_unit": "sequence",
        "train.gradient.num_groups": 8,
        "train.gradient.group_sizes": [4],
        "train.gradient.estimator": "size-weighted",
        "train.gradient.ema_half_life_steps": 20,
        "train.gradient.bias_corrected": True,
        "train.gradient.tap": "after-unscale-before-clip",
        "train.gradient.parameter_scope": "all",
        "train.gradient.accumulation_format": "fp64",
        "train.loss.reduction": "global-token-mean",
    }
    names = ["variance", "signal", "noise_scale", "applied_variance", "norm_test"]
    for name in names:
        told = [each for each in found if f"train.gradient.{name}" in each.get("m", {})]  # type: ignore[operator]
        assert told, name
        for each in told[-5:]:
            value = each["m"][f"train.gradient.{name}"]  # type: ignore[index]
            ends = each.get("a", {}).get("train.gradient.ci95")  # type: ignore[attr-defined]
            assert ends is None or ends[0] <= value <= ends[1]
    assert not errors(folder)


def test_a_scale_without_an_interval_is_not_written(folder: Path) -> None:
    found = recorded(folder, [Norms(8, 32, 10.0, 1.3 + (-1) ** number) for number in range(40)])  # signal is not sure
    told = {name for each in found for name in each.get("m", {})}  # type: ignore[attr-defined]
    assert {"train.gradient.variance", "train.gradient.signal"} <= told
    assert "train.gradient.noise_scale" not in told
    assert not errors(folder)


def test_updates_that_overflowed_are_left_out(folder: Path) -> None:
    norms = updates([4] * 8, 10, 1)
    with trainspec_record.run(declared=SETTINGS.declared) as run:
        meter = NoiseMeter(SETTINGS, run)
        for each in (*norms, norms[0]._replace(square_of_mean=math.nan), norms[0]._replace(mean_of_squares=math.inf)):
            meter.add(each)
        meter.add(Norms(1, 4, 1.0, 1.0))
        meter.add(Norms(4, 4, 1.0, 4.0))
        assert meter.num_left_out == 4
        assert meter.reading is not None
        assert meter.reading.noise_trace == pytest.approx(float(np.mean([each.noise_trace for each in norms])), rel=0.2)


def test_nothing_is_measured_where_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINSPEC_RUN", raising=False)
    meter = NoiseMeter(SETTINGS, trainspec_record.run())
    assert not meter.is_on
    for each in updates([4] * 8, 8, 1):
        meter.add(each)
