"""Axes, thinning, intervals and quantiles of the page of a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_page_makers import SECOND, START_US, attempt, event, job, lockstep, series, view, windows

from trainspec_validate.report.run_page.axes import Axis, axis, shown, time_ticks
from trainspec_validate.report.run_page.intervals import intervals
from trainspec_validate.report.run_page.marks import gaps, marks
from trainspec_validate.report.run_page.subjects import growth, integral, tallies
from trainspec_validate.report.run_page.traces import (
    NUM_COLUMNS,
    points,
    quantile,
    trace_of_points,
    trace_of_spread,
    trace_of_windows,
)
from trainspec_validate.report.run_page.words import duration
from trainspec_validate.telemetry.view.run_view import Subject

FINITE = st.floats(-1e90, 1e90)
DAY = 86_400 * SECOND


def span(seconds: float) -> tuple[int, int]:
    return START_US, START_US + int(seconds * SECOND)


# --- axes ---------------------------------------------------------------------------------------------------


@given(FINITE, FINITE, st.booleans(), st.booleans(), st.booleans())
def test_an_axis_holds_its_values_and_has_few_ticks(
    one: float, other: float, from_zero: bool, log: bool, whole: bool
) -> None:
    low, high = min(one, other), max(one, other)
    made = axis(low, high, from_zero=from_zero, log=log, whole=whole)
    assert 0 <= made.place(low) <= made.place(high) <= 1
    ticks = made.ticks()
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(
    ("made", "ticks"),
    [
        (axis(0.88, 0.97, from_zero=True), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (axis(5, 5), [4.6, 4.8, 5, 5.2, 5.4]),
        (axis(2, 900, log=True), [1, 10, 100, 1000]),
        (axis(2, 20, log=True), [0, 5, 10, 15, 20]),
        (axis(0, 2, from_zero=True, whole=True), [0, 1, 2]),
    ],
)
def test_ticks_are_round(made: Axis, ticks: list[float]) -> None:
    assert made.ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("unit", "high", "written"),
    [
        ("By", 80e9, "GB"),
        ("s", 0.02, "ms"),
        ("s", 7_000, "min"),
        ("W", 700, "W"),
        ("token/s", 2.6e6, "M tokens/s"),
        ("%", 0.4, "%"),
        ("nats", 11.0, "nats"),
    ],
)
def test_an_axis_writes_units_that_read_well(unit: str, high: float, written: str) -> None:
    assert shown(unit, high).unit == written


@given(st.integers(0, 2**53 - 1), st.integers(1, 2**53 - 1))
def test_time_has_few_ticks_in_order(first: int, length: int) -> None:
    last = min(first + length, 2**53 - 1)
    ticks = time_ticks(first, last)
    assert len(ticks) <= 10
    assert all(first <= tick.time_us <= last for tick in ticks)


def test_time_ticks_tell_the_day_where_it_changes() -> None:
    assert [tick.label for tick in time_ticks(START_US, START_US + DAY)] == [
        "2026-02-25 09:00",
        "12:00",
        "15:00",
        "18:00",
        "21:00",
        "02-26 00:00",
        "03:00",
        "06:00",
    ]
    assert [tick.label for tick in time_ticks(START_US, START_US + 5 * DAY)][:3] == ["2026-02-26", "02-27", "02-28"]


@given(st.floats(0, 1e9))
def test_a_time_is_written_with_sensible_units(seconds: float) -> None:
    text = duration(seconds)
    assert "60 s" not in text.split(" min")[-1] or seconds < 60
    assert "24 h" not in text


# --- thinning -----------------------------------------------------------------------------------------------


@given(st.integers(600, 5_000), st.integers(0, 599))
def test_thinning_keeps_lowest_and_highest_value(num: int, place: int) -> None:
    values = np.ones(num)
    values[place], values[-1 - place // 2] = 50.0, -7.0
    trace = trace_of_points(points(job("train.loss.mean", values)), "loss", span(5 * num))
    columns = trace.columns()
    assert len(columns) <= NUM_COLUMNS
    assert max(column.high for column in columns) == values.max()
    assert min(column.low for column in columns) == values.min()
    assert all(column.low <= column.middle <= column.high for column in columns)
    assert [column.time_us for column in columns] == sorted(column.time_us for column in columns)


@pytest.mark.parametrize("num", [100, 4_000])
def test_a_line_is_broken_at_a_hole_and_at_a_new_attempt(num: int) -> None:
    third = num // 4
    times = np.arange(num) * 5.0
    times[third:] += num
    attempts = (np.arange(num) >= 2 * third).astype(np.int32)
    trace = trace_of_points(
        points(job("train.loss.mean", np.ones(num), times=times, attempt=attempts)), "", span(6 * num)
    )
    ends = [(stretch[0].time_us, stretch[-1].time_us) for stretch in trace.stretches]
    assert len(ends) == 3
    assert ends[0][1] < START_US + times[third] * SECOND <= ends[1][0]


def test_values_that_are_not_finite_are_counted_and_times_put_in_order() -> None:
    found = points(job("train.loss.mean", [3.0, np.nan, 1.0, np.inf], times=[20, 10, 0, 5]))
    assert (found.value.tolist(), found.num_not_finite) == ([1.0, 3.0], 2)


def test_windows_of_several_keys_are_one_band() -> None:
    one = windows("hw.power{hw.type=gpu}", [(2, 10.0, 4.0, 6.0), (0, 0.0, 0.0, 0.0), (2, 8.0, 3.0, 5.0)])
    other = windows("hw.power{hw.type=npu}", [(2, 30.0, 14.0, 16.0)])
    first, second = trace_of_windows([one, other], "").columns()
    assert (first.low, first.middle, first.high) == (4.0, 10.0, 16.0)
    assert (second.low, second.middle, second.high) == (3.0, 4.0, 5.0)


def test_many_windows_are_joined() -> None:
    cells = [(1, 2.0, 2.0, 2.0)] * 9_000
    cells[4_321] = (1, 90.0, 90.0, 90.0)
    trace = trace_of_windows([windows("hw.power", cells)], "")
    assert len(trace.columns()) <= NUM_COLUMNS + 1
    assert max(column.high for column in trace.columns()) == 90.0


def test_distance_of_ranks_keeps_the_farthest() -> None:
    far = [5] * 3_000
    far[1_234] = 60
    trace = trace_of_spread([lockstep("train.rank.step", [5] * 3_000, far)], "")
    assert max(column.middle for column in trace.columns()) == 55.0
    assert len(trace.columns()) <= NUM_COLUMNS


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0.01, 1))
def test_quantile_is_the_smallest_value_that_is_enough(values: list[float], share: float) -> None:
    found = quantile(values, [1.0] * len(values), share)
    assert sum(value <= found for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < found for value in values) < share * len(values) * (1 + 1e-9)


# --- subjects -----------------------------------------------------------------------------------------------


def test_attempts_of_a_subject_are_added_up() -> None:
    device, other = Subject(None, "h", "g"), Subject(None, "h", None)
    rows = [
        series("hw.energy", device, [10.0, 30.0], integral=1.0, integral_seconds=2.0),
        series("hw.energy", device, [0.0, 5.0], attempt=1, integral=3.0, integral_seconds=4.0),
        series("hw.energy", other, [0.0, 7.0]),
    ]
    made = view(series=rows)
    found = tallies(made, "hw.energy", of=lambda subject: subject.device is not None)
    assert found is not None
    assert (len(found), found.at(0).num, found.at(0).mean, found.at(0).maximum) == (1, 4, 11.25, 30.0)
    grown = growth(made, "hw.energy", lambda subject: subject == device)
    assert grown is not None
    assert (grown.total, grown.num_subjects) == (25.0, 1)
    assert integral(made, "hw.energy", lambda subject: subject == device) == (4.0, 6.0)
    assert growth(made, "hw.power") is None


def test_a_counter_that_fell_is_left_out_and_counted() -> None:
    rows = [
        series("hw.energy", Subject(None, None, "g"), [5.0, 9.0]),
        series("hw.energy", Subject(None, None, "b"), [9.0, 1.0]),
    ]
    found = growth(view(series=[rows[0], rows[1].__class__(**{**_fields(rows[1]), "num_falls": 1})]), "hw.energy")
    assert found is not None
    assert (found.total, found.num_fallen) == (4.0, 1)


def _fields(row: object) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}  # type: ignore[attr-defined]


# --- intervals ----------------------------------------------------------------------------------------------


def test_intervals_are_paired_by_their_identifier() -> None:
    made = view(
        events=(
            event("train.checkpoint.begin", 1, id="a"),
            event("train.checkpoint.begin", 2, id="b"),
            event("train.checkpoint.commit", 3, id="b"),
            event("train.checkpoint.commit", 4, id="a"),
            event("train.checkpoint.commit", 9, id="a"),
            event("train.checkpoint.begin", 10, id="c"),
        ),
        attempts=(attempt(0, 0, 50),),
    )
    found = intervals(made, "train.checkpoint.begin")
    assert [(each.seconds, each.closed is not None) for each in found] == [(3.0, True), (1.0, True), (40.0, False)]


def test_what_may_stay_open_lasts_to_the_end_of_the_run() -> None:
    made = view(events=(event("train.node.drained", 10, id="n"),), attempts=(attempt(0, 0, 50), attempt(1, 60, 600)))
    assert [each.seconds for each in intervals(made, "train.node.drained")] == [590.0]


def test_gaps_are_joined_and_bounded_by_the_run() -> None:
    def gap(start: float, end: object) -> object:
        told = {"train.gap.start": START_US + int(start * SECOND), "train.gap.end": end}
        return event("train.telemetry.gap", 100, a=told)

    ends = [START_US + each * SECOND for each in (20, 30, 9_999)]
    made = view(events=(gap(10, ends[0]), gap(15, ends[1]), gap(50, ends[2]), gap(40, "soon")))
    assert [((start - START_US) / SECOND, (end - START_US) / SECOND) for start, end in gaps(made)] == [(10, 30)]
    assert marks(made).kinds() == ["gap"]


def test_holes_of_windows_break_the_band() -> None:
    empty = (0, 0.0, 0.0, 0.0)
    cells = [(1, 2.0, 2.0, 2.0), empty, (1, 3.0, 3.0, 3.0), empty, empty, (1, 4.0, 4.0, 4.0)]
    assert [len(each) for each in trace_of_windows([windows("hw.power", cells)], "").stretches] == [2, 1]
