"""Counters fall only where they start again, and what is computed anew does not stand still."""

from __future__ import annotations

import random

import numpy as np
import pytest
from telemetry_makers import Stream, judged, line_of, messages, micros, refused, view

from trainspec_validate.telemetry.checks.frozen import num_digits

DEVICE = {"host": "n1", "device": "GPU-0"}
ENERGY = "hw.energy{hw.type=gpu}"


def energy(*readings: tuple[float, float | None]) -> Stream:
    stream = Stream("node/n1", ("device",), **DEVICE)
    for number, (value, start) in enumerate(readings):
        more = {} if start is None else {"start_us": micros(start)}
        stream.sample(60 * (number + 1), {ENERGY: value}, **more)
    return stream


def norms(*values: float | str, metric: str = "train.gradient.norm", **more: object) -> Stream:
    stream = Stream(**more)
    for number, value in enumerate(values):
        stream.sample(5 * (number + 1), {metric: value}, step=number + 1)
    return stream


def test_runs_without_counters_are_not_judged() -> None:
    run = view(Stream().sample(1, {"train.token.rate": 1.0}))
    assert refused("TS-TEL-024", run) == refused("TS-TEL-025", run) == "no counter has a value"


def test_a_counter_of_the_whole_run_does_not_fall_with_a_new_attempt() -> None:
    goodput = "train.goodput.time{train.time.category=productive}"
    first = Stream().sample(60, {goodput: 50.0, "train.step.count": 9})
    second = Stream(att=1).sample(160, {goodput: 20.0, "train.step.count": 4})
    (found,) = judged("TS-TEL-024", view(first, second))
    assert found.message == f"{goodput} falls from 50 to 20 with attempt 1"
    assert found.place.file == 1
    assert found.related[0][0].file == 0


def test_a_counter_of_the_attempt_may_not_start_again_within_it() -> None:
    stream = Stream().sample(10, {"train.step.count": 9}).sample(20, {"train.step.count": 1}, start_us=micros(15))
    assert judged("TS-TEL-024", view(stream)) == []
    (found,) = messages("TS-TEL-025", view(stream))
    assert found.startswith("train.step.count starts again within attempt 0")


def test_one_restart_of_a_driver_is_no_finding() -> None:
    assert judged("TS-TEL-025", view(energy((900, 0), (10, 110)))) == []
    twice = energy((900, 0), (10, 110), (20, 110), (5, 230))
    (found,) = judged("TS-TEL-025", view(twice))
    assert line_of(found, twice) == 4
    undeclared = energy((900, None), (10, None), (5, None))
    assert judged("TS-TEL-025", view(undeclared)) == []
    assert [violation.evidence.count for violation in judged("TS-TEL-024", view(undeclared))] == [2]


@pytest.mark.parametrize(
    ("values", "num"),
    [
        ((464441.887,) * 3, 1),
        ((464441.887,) * 2 + (1.5,), 0),
        ((2.31,) * 40, 0),
        ((0.0,) * 9, 0),
        ((0.0,) * 10, 1),
        (("NaN",) * 4, 0),
        (("NaN",) * 12, 1),  # no report was finite, and nothing says that steps were skipped
        (("NaN",) * 30, 1),
        ((0.7, *("NaN",) * 9), 0),
        ((0.7, *("NaN", "+Inf") * 5), 1),
        ((0.7, *("NaN",) * 10, 0.7), 0),
        ((1.0,) * 99, 0),
        ((1.0,) * 100, 1),
        ((0.7, 2.25, *(1.25,) * 100, 0.5), 1),
        ((0.001,) * 200, 0),
        ((464441.887,) * 5 + (1.5,) + (879946.622,) * 3, 2),
    ],
)
def test_equal_values_are_frozen_where_rounding_does_not_make_them_equal(
    values: tuple[float | str, ...], num: int
) -> None:
    assert len(judged("TS-TEL-026", view(norms(*values)))) == num


def test_norms_that_are_not_finite_to_the_end_are_found_where_steps_are_unknown() -> None:
    stream = Stream().every(range(5, 55, 5), {"train.gradient.norm": 1.5})
    stream.every(range(55, 105, 5), {"train.gradient.norm": "NaN"})
    (found,) = messages("TS-TEL-026", view(stream))
    assert found == "train.gradient.norm is nan for 10 reports in a row to the end"
    stream.every(range(105, 110, 5), {"train.gradient.norm": 1.5})
    assert judged("TS-TEL-026", view(stream)) == []


@pytest.mark.parametrize(("num", "is_found"), [(3, False), (4, True), (6, True)])
def test_norms_that_are_lost_for_many_steps_to_the_end_are_found(num: int, is_found: bool) -> None:
    """Each report is of ten steps, so that four of them are 30 steps apart."""
    stream = Stream()
    for at, value in enumerate([1.5, 1.25, 1.375, *["NaN"] * num], start=1):
        stream.sample(60 * at, {"train.gradient.norm": value}, step=10 * at)
    found = messages("TS-TEL-026", view(stream))
    assert found == [f"train.gradient.norm is nan for {num} reports in a row to the end"] * is_found


@pytest.mark.parametrize(("num", "is_found"), [(2, False), (3, True)])
def test_evaluations_that_are_not_finite_to_the_end_are_found(num: int, is_found: bool) -> None:
    key = "train.evaluation.loss{train.evaluation.set=validation,train.loss.name=lm}"
    stream = Stream()
    for step, value in enumerate([2.5, 2.25, *["NaN"] * num], start=1):
        stream.sample(60 * step, {key: value}, step=100 * step)
    assert bool(judged("TS-TEL-026", view(stream))) == is_found


def test_equal_values_of_one_step_are_no_run() -> None:
    stream = Stream().every(range(5, 50, 5), {"train.loss.mean{train.loss.name=total}": 2.718281}, step=4)
    assert judged("TS-TEL-026", view(stream)) == []


def test_losses_next_to_zero_repeat_by_the_step_of_a_float() -> None:
    """A public run has 72 such repetitions, and in the end 3,389 losses of 0, which were behind them."""
    step, levels = 2.0**-24, [*(170 - each // 2 for each in range(300)), *[0] * 12]
    stream = Stream()
    for at, level in enumerate(levels, start=1):
        stream.sample(60 * at, {"train.loss.mean{train.loss.name=total}": level * step}, step=10 * at)
    (found,) = messages("TS-TEL-026", view(stream))
    assert found == "train.loss.mean{train.loss.name=total} is 0 for 12 reports in a row"


def test_long_runs_of_equal_values_come_before_short_ones() -> None:
    """Values are of full precision and move at random, so that three equal ones are no chance."""
    values = np.random.default_rng(0).uniform(2.0, 3.0, 400)
    for start in range(0, 300, 20):
        values[start : start + 3] = values[start]
    values[350:] = values[350]
    stream = Stream()
    for at, value in enumerate(values.tolist(), start=1):
        stream.sample(60 * at, {"train.loss.mean{train.loss.name=total}": value}, step=10 * at)
    found = messages("TS-TEL-026", view(stream))
    assert any(message.endswith("for 50 reports in a row") for message in found)
    assert sum("the first of" in message for message in found) == 1


def test_a_run_of_equal_values_ends_with_its_attempt() -> None:
    run = view(norms(464441.887, 464441.887), norms(464441.887, 464441.887, att=1))
    assert refused("TS-TEL-026", run) == "no loss, gradient norm or power comes often enough"
    run = view(norms(1.5, 464441.887, 464441.887), norms(464441.887, 464441.887, 1.5, att=1))
    assert judged("TS-TEL-026", run) == []


def test_frozen_values_of_ranks_are_found() -> None:
    stream = norms(*(5.123456,) * 4, metric="train.step.duration", emitter="rank-3", scopes=("rank",), rank=3)
    (found,) = messages("TS-TEL-026", view(stream))
    assert found == "train.step.duration of rank 3 is 5.123456 for 4 optimizer steps in a row"


@pytest.mark.parametrize(
    ("equal", "spread", "num"), [(3, 4e-5, 0), (12, 4e-5, 1), (3, 2.0, 1), (4, 4e-5, 0), (1, 4e-5, 0)]
)
@pytest.mark.parametrize("of_rank", [False, True])
def test_times_of_a_steady_loop_repeat_by_chance(equal: int, spread: float, num: int, of_rank: bool) -> None:
    draw = random.Random(7)
    moving = [round(0.5 + draw.random() * spread, 6) for _ in range(120)]
    values = (*moving[:60], *(0.500192,) * equal, *moving[60:])
    whose = {"emitter": "rank-3", "scopes": ("rank",), "rank": 3} if of_rank else {}
    run = view(norms(*values, metric="train.step.duration", **whose))
    assert len(judged("TS-TEL-026", run)) == (num if not of_rank else equal >= 12)


@pytest.mark.parametrize(("watts", "num"), [(612.5, 1), (65.0, 0), (0.0, 0)])
def test_a_power_meter_that_is_not_read_any_more_is_found(watts: float, num: int) -> None:
    stream = Stream("node/n1", ("device",), **DEVICE).every(range(30, 930, 30), {"hw.power{hw.type=gpu}": watts})
    assert len(judged("TS-TEL-026", view(stream))) == num
    stream.sample(960, {"hw.power{hw.type=gpu}": watts + 1})
    assert judged("TS-TEL-026", view(stream)) == []


@pytest.mark.parametrize(("value", "digits"), [(464441.887, 9), (1e9, 1), (0.000123456, 6), (700.0, 1), (612.5, 4)])
def test_significant_digits(value: float, digits: int) -> None:
    assert num_digits(value) == digits
