"""Slow ranks and slow stretches are found, and durations are held against the clock where nothing pauses."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from telemetry_makers import Stream, judged, line_of, messages, refused, view

from trainspec_validate.telemetry.checks import NotApplicable
from trainspec_validate.telemetry.checks._untimed import Bounds, another_unit, slow_reports

DURATION = "train.step.duration"
COMPUTE = "train.step.phase.time{train.phase=forward_backward}"


def updates(durations: Iterable[float], interval: int = 1, **head: object) -> Stream:
    stream = Stream(report_interval_steps=interval, **head)
    seconds, step = 0.0, 0
    for duration in durations:
        seconds, step = seconds + interval * duration, step + interval
        stream.sample(seconds, {DURATION: duration}, step=step)
    return stream


def by_rank(**means: float) -> Stream:
    stream = Stream("ranks", ("rank",))
    for number in range(4):
        for name, mean in means.items():
            stream.sample(10 * number + 10, {DURATION: mean + 0.01 * number}, rank=int(name[1:]), step=number)
    return stream


# --- stragglers ---------------------------------------------------------------------------------------------


def slowdowns(slow: int, num: int = 20) -> Stream:
    stream = Stream("ranks", ("rank",))
    for number in range(num):
        stream.sample(60 * number, {"train.rank.slowdown": 1.6 if number < slow else 1.0}, rank=3)
    return stream


@pytest.mark.parametrize(("slow", "num"), [(2, 0), (3, 1), (20, 1)])
def test_a_rank_may_be_slow_in_a_tenth_of_the_windows(slow: int, num: int) -> None:
    assert len(judged("TS-TEL-035", view(slowdowns(slow)))) == num


def test_a_slow_rank_is_found_by_its_own_update_times() -> None:
    assert judged("TS-TEL-035", view(by_rank(r0=5.0, r1=5.1, r2=7.4))) == []
    (found,) = messages("TS-TEL-035", view(by_rank(r0=5.0, r1=5.1, r2=5.0, r3=7.7)))
    assert found == "train.step.duration of rank 3 is 7.715 s on average, and 5.065 s on the median rank"
    assert refused("TS-TEL-035", view(by_rank(r0=5.0, r1=9.0))).startswith("no train.rank.slowdown, and no")


def computing(seconds: Iterable[float], stages: Iterable[int] = (0,) * 8) -> list[Stream]:
    """Ranks that wait for each other: their step times are equal, and the time that they compute is their own."""
    streams = []
    for rank, (own, stage) in enumerate(zip(seconds, stages, strict=False)):
        declared = {"train.parallel.pipeline.rank": stage}
        stream = Stream(f"rank-{rank}", ("rank",), rank=rank, declared=declared)
        for step in range(1, 6):
            values = {DURATION: 2.0 + 0.001 * rank, COMPUTE: 30 + own * step}
            stream.sample(10 * step, values, rank=rank, step=step)
        streams.append(stream)
    return streams


def test_a_rank_that_the_others_wait_for_is_found_by_the_time_that_it_computes() -> None:
    assert judged("TS-TEL-035", view(*computing([0.8, 0.9, 0.8, 1.2]))) == []
    (found,) = messages("TS-TEL-035", view(*computing([0.8, 0.8, 1.7, 0.8])))
    assert found == f"{COMPUTE} of rank 2 is 1.7 s on average, and 800 ms on the median rank"


def test_stages_of_a_pipeline_compute_for_different_times() -> None:
    stages = [0, 0, 0, 0, 1, 1, 1]
    assert judged("TS-TEL-035", view(*computing([0.4, 0.4, 0.4, 0.4, 1.2, 1.2, 1.2], stages))) == []
    assert len(messages("TS-TEL-035", view(*computing([0.4, 0.4, 0.4, 0.4, 1.2, 1.2, 2.2], stages)))) == 1


def test_equal_step_times_name_no_straggler() -> None:
    told = refused("TS-TEL-035", view(by_rank(r0=5.0, r1=5.001, r2=5.0, r3=5.002)))
    assert "ranks that wait for each other" in told


# --- slow stretches -----------------------------------------------------------------------------------------


def test_a_slow_stretch_lasts_half_an_hour() -> None:
    assert len(judged("TS-TEL-036", view(updates([60] * 60 + [63] * 40)))) == 1
    assert judged("TS-TEL-036", view(updates([60] * 60 + [63] * 20 + [60] * 40))) == []
    assert judged("TS-TEL-036", view(updates([60] * 60 + [61.5] * 40))) == []


def test_single_slow_updates_and_warm_up_are_no_stretch() -> None:
    assert judged("TS-TEL-036", view(updates(([60] * 9 + [120]) * 10))) == []
    stream = updates([60] * 60)
    for number in range(40):
        stream.sample(3600 + 63 * (number + 1), {DURATION: 63.0}, step=61 + number, a={"train.step.warmup": True})
    assert judged("TS-TEL-036", view(stream)) == []


def test_a_change_of_the_work_begins_anew() -> None:
    stream = updates([60] * 60 + [80] * 60)
    assert len(judged("TS-TEL-036", view(stream))) == 1
    change = {"train.change.before": "256", "train.change.after": "512"}
    stream.event(3600, "batch_size.changed", change)
    assert judged("TS-TEL-036", view(stream)) == []


def test_a_drift_needs_as_much_before_it() -> None:
    assert refused("TS-TEL-036", view(updates([60] * 40))) == "no half hour of steps with as much before it"


# --- the clock ----------------------------------------------------------------------------------------------


def test_reports_of_several_updates_count_them() -> None:
    assert judged("TS-TEL-037", view(updates([5.0] * 6, interval=10))) == []
    stream = Stream(report_interval_steps=10)
    for report in range(1, 6):
        stream.sample(50 * report, {DURATION: 50.0}, step=10 * report)
    (found,) = messages("TS-TEL-037", view(stream))
    assert "a ratio of 10;" in found


def test_a_histogram_counts_its_values() -> None:
    stream = Stream()
    for number in range(1, 6):
        stream.sample(50 * number, {DURATION: {"count": 10, "sum": 50.0}})
    assert judged("TS-TEL-037", view(stream)) == []
    stream = Stream()
    for number in range(1, 6):
        stream.sample(50 * number, {DURATION: {"count": 10, "sum": 30.0}})
    assert len(judged("TS-TEL-037", view(stream))) == 1


def test_an_interval_with_an_evaluation_is_left_out() -> None:
    stream = Stream().between(21, 95, "evaluation")
    for step, seconds in enumerate((10, 20, 105, 115, 125), start=1):
        stream.sample(seconds, {DURATION: 10.0}, step=step)
    assert judged("TS-TEL-037", view(stream)) == []
    stream = Stream()
    for step, seconds in enumerate((10, 20, 105, 115, 125), start=1):
        stream.sample(seconds, {DURATION: 10.0}, step=step)
    (found,) = judged("TS-TEL-037", view(stream))
    assert line_of(found, stream) == 3
    assert found.message.endswith("a ratio of 0.347826; here it is 10 s in 1.417 min")


def test_milliseconds_are_found_in_every_attempt() -> None:
    stream = Stream(att=1)
    for step in range(1, 6):
        stream.sample(10 * step, {DURATION: 10_000.0}, step=step)
    (found,) = messages("TS-TEL-037", view(updates([10] * 5), stream))
    assert found.startswith("steps of attempt 1 add up to 11.11 h in 40 s, a ratio of 1,000;")


def test_few_updates_are_not_judged() -> None:
    assert refused("TS-TEL-037", view(updates([10] * 3))).startswith("fewer than 3 intervals")


# --- logs without times -------------------------------------------------------------------------------------


def untimed(durations: list[float]) -> tuple[Any, Any, Any]:
    num = len(durations)
    series = SimpleNamespace(
        value=np.array(durations), step=np.arange(num), warmup=np.zeros(num, bool), time_us=np.arange(num)
    )
    return SimpleNamespace(job={}), series, np.arange(num)


def test_a_slow_stretch_is_held_against_the_median_of_all_reports_before_it() -> None:
    durations = [600.0, 610.0, 600.0, 604.0, 600.0, 602.0, *[700.0] * 4, *[600.0] * 5, *[660.0] * 3]
    found = slow_reports(*untimed(durations), Bounds(0.03, 3, 1800.0))
    assert [(slow.first, slow.last, slow.num, slow.baseline) for slow in found] == [
        (6, 9, 4, float(np.median(durations[:6]))),
        (15, 17, 3, float(np.median(durations[:15]))),
    ]


@pytest.mark.parametrize("durations", [[1.0, 1.01], [1.0] * 6 + [3.0] * 3], ids=["steady", "many stretches"])
def test_the_time_that_slow_stretches_take_to_find_grows_with_the_reports_alone(durations: list[float]) -> None:
    begin = time.process_time()
    slow_reports(*untimed(durations * (120_000 // len(durations))), Bounds(0.03, 3, 1.0))
    assert time.process_time() - begin < 8.0


@pytest.mark.parametrize(
    ("stalled", "num"), [([900.0] * 3, 1), ([900.0] * 2, 0), ([1.0] * 99, 0), ([6.0] * 9, 0), ([6.0] * 10, 1)]
)
def test_a_stall_needs_no_half_hour_and_no_steady_pace_before_it(stalled: list[float], num: int) -> None:
    durations = [0.2, 0.3, 0.25] * 9 + stalled + [0.2, 0.3] * 9
    assert len(slow_reports(*untimed(durations), Bounds(0.03, 3, 1800.0))) == num


def test_a_time_of_steps_that_becomes_a_thousandth_is_of_another_unit() -> None:
    durations = [0.25, 0.26, 0.9] * 10
    found = another_unit(*untimed([*durations, *(each / 1000 for each in durations)]), 3)
    assert found is not None
    assert (found.first, found.num, found.baseline) == (30, 30, 0.26)
    assert another_unit(*untimed([100.0, *durations, 0.0003, 0.0003, *durations]), 3) is None
    with pytest.raises(NotApplicable):
        another_unit(*untimed(durations[:20]), 3)
