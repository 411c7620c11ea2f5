"""Pauses are one axis of time on which overlapping ones count once, and they are what the run itself states."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from telemetry_makers import Stream, micros, view

from trainspec_validate.model.metrics import by_name
from trainspec_validate.telemetry.checks._pauses import (
    BLOCKING,
    Pause,
    Pauses,
    interruptions,
    pauses_of,
    silences,
    standstills,
)

TIMES = st.integers(0, 60)
SOME = st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=8)


@given(SOME, st.lists(st.tuples(TIMES, TIMES).map(sorted), min_size=1, max_size=5))
def test_what_pauses_cover_is_counted_once(some: list[list[int]], wanted: list[list[int]]) -> None:
    pauses = Pauses(Pause(begin, end, "") for begin, end in some)
    begins, ends = np.array(wanted).T
    covered = {second for begin, end in some for second in range(begin, end)}
    expected = [len(covered & set(range(begin, end))) for begin, end in wanted]
    assert pauses.covered_us(begins, ends).tolist() == expected
    assert [int(pauses.left_us(begin, end)) for begin, end in wanted] == [
        end - begin - known for (begin, end), known in zip(wanted, expected, strict=True)
    ]


def test_pauses_count_where_they_end_if_they_are_long_enough() -> None:
    pauses = Pauses([Pause(0, 10, ""), Pause(5, 12, ""), Pause(20, 21, "")])
    assert int(pauses.num_within(0, 30, 5)) == 1
    assert int(pauses.num_within(0, 30, 1)) == 2
    assert int(pauses.num_within(12, 30, 1)) == 1


def test_an_evaluation_and_a_blocking_save_stand_and_are_not_silent() -> None:
    run = view(Stream().between(10, 30, "evaluation").between(40, 70, "checkpoint"))
    assert int(standstills(run).covered_us(micros(0), micros(99))) == 50_000_000
    assert int(interruptions(run).covered_us(micros(0), micros(99))) == 30_000_000
    assert int(silences(run).covered_us(micros(0), micros(99))) == 0


def test_a_save_stands_for_its_blocking_part_alone() -> None:
    duration = {"count": 1, "sum": 2.0}
    stream = Stream().event(10, "checkpoint.begin", id="c")
    run = view(stream.event(40, "checkpoint.commit", id="c", m={BLOCKING: duration}))
    assert int(standstills(run).covered_us(micros(0), micros(99))) == 2_000_000


def test_an_interval_that_never_ends_excuses_nothing() -> None:
    run = view(Stream().event(10, "evaluation.begin", id="e").sample(99, {"train.step.count": 1}))
    assert int(standstills(run).covered_us(micros(11), micros(98))) == 87_000_000  # the start-up before the first step
    run = view(
        Stream()
        .sample(5, {"train.step.count": 1}, step=1)
        .event(10, "evaluation.begin", id="e")
        .sample(99, {"train.step.count": 2}, step=2)
    )
    assert int(standstills(run).covered_us(micros(11), micros(98))) == 0


def test_a_fault_lasts_until_its_recovery_and_attempts_have_a_pause_between_them() -> None:
    fault = {"train.fault.id": "f-1", "train.fault.domain": "infrastructure", "train.fault.class": "node"}
    first = Stream().event(20, "fault.detected", fault).event(25, "attempt.end", {"train.run.attempt": 0})
    second = Stream(att=1).event(60, "attempt.start", {"train.run.attempt": 1})
    answered = {"train.fault.id": "f-1", "train.recovery.action": "restart"}
    second.event(80, "recovery.end", answered).sample(90, {"train.step.count": 1})
    run = view(first, second)
    assert int(silences(run).covered_us(micros(0), micros(99))) == 60_000_000
    run = view(first, Stream(att=1).event(60, "attempt.start", {"train.run.attempt": 1}))
    assert int(silences(run).covered_us(micros(0), micros(99))) == 40_000_000


def test_declared_gaps_and_warm_up_are_pauses() -> None:
    stream = Stream().event(50, "telemetry.gap", {"train.gap.start": micros(30), "train.gap.end": micros(50)})
    assert int(silences(view(stream)).covered_us(micros(0), micros(99))) == 20_000_000
    stream = Stream().event(0, "attempt.start", {"train.run.attempt": 0})
    for step, warmup in enumerate((True, True, False, False)):
        stream.sample(10 * (step + 1), {"train.step.duration": 5.0}, step=step + 1, a={"train.step.warmup": warmup})
    assert int(standstills(view(stream)).covered_us(micros(0), micros(99))) == 20_000_000


def test_the_heartbeat_and_devices_know_no_standstill() -> None:
    standing, silent = Pauses([]), Pauses([])
    for name, expected in (
        ("train.token.rate", standing),
        ("train.rank.slowdown", standing),
        ("train.rank.step", silent),
        ("hw.gpu.utilization", silent),
        ("train.clock.offset", silent),
    ):
        metric = by_name(name)
        assert metric is not None
        assert pauses_of(metric, standing, silent) is expected
