"""Delay, loss and number of series: the bounds, and what is judged where the better source is absent."""

from __future__ import annotations

import pytest
from telemetry_makers import Stream, judged, messages, micros, refused, view

from trainspec_validate.model.metrics import metrics
from trainspec_validate.telemetry.checks.transport import FREE_VALUES, ROOM

DROPPED, LAG = "train.telemetry.dropped", "train.telemetry.lag"
STEP = {"train.step.count": 1}


def observed(*lags: float) -> Stream:
    """Records that were written so many seconds after what they tell about."""
    stream = Stream()
    for number, lag in enumerate(lags):
        stream.sample(number, {"train.step.count": number}, observed_us=micros(number + lag))
    return stream


def agent(num_records: int, *, dropped: int = 0) -> Stream:
    stream = Stream("node-1", ("emitter",), host="node-1")
    stream.every(range(num_records - 1), {LAG: 0.01})
    return stream.sample(num_records, {DROPPED: dropped})


# --- delay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lags", "is_right"),
    [
        ([0.01] * 100, True),
        ([55.0] * 100, True),
        ([90.0] * 100, False),
        ([0.01] * 99 + [900.0], True),
        ([0.01] * 98 + [900.0] * 2, False),
        ([-5.0] * 10, True),
    ],
)
def test_99_of_100_records_are_written_soon(lags: list[float], is_right: bool) -> None:
    assert (messages("TS-TEL-051", view(observed(*lags))) == []) is is_right


def test_the_metric_counts_where_records_do_not_say() -> None:
    short = Stream("a", ("emitter",)).every(range(0, 600, 60), {LAG: 0.2}).sample(600, {LAG: 400.0})
    assert messages("TS-TEL-051", view(short)) == []
    long = Stream("a", ("emitter",)).every(range(0, 600, 60), {LAG: 90.0})
    assert messages("TS-TEL-051", view(long)) == [f"{LAG} of emitter 'a' is 1.5 min on average"]
    assert refused("TS-TEL-051", view(Stream().sample(1, STEP))).startswith("no record says when it was written")


# --- loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_records", "dropped", "is_lossless", "is_bounded"),
    [(100, 0, True, True), (999, 1, False, True), (998, 1, False, False), (2000, 3, False, False)],
)
def test_any_loss_warns_and_a_thousandth_is_too_much(
    num_records: int, dropped: int, is_lossless: bool, is_bounded: bool
) -> None:
    run = view(agent(num_records, dropped=dropped))
    assert (messages("TS-TEL-052", run) == []) is is_lossless
    assert (messages("TS-TEL-073", run) == []) is is_bounded


def test_what_was_dropped_and_what_is_missing_add_up() -> None:
    stream = agent(10, dropped=2)
    del stream.lines[5]
    (found,) = judged("TS-TEL-052", view(stream))
    assert found.message == (
        "emitter 'node-1' in attempt 0 lost 3 records, 25 % of its records: "
        "2 dropped by the emitter and 1 missing by their numbers"
    )
    assert found.evidence.count == 3


def test_a_later_attempt_drops_by_itself() -> None:
    later = Stream("node-1", ("emitter",), host="node-1", att=1).sample(100, {DROPPED: 0})
    (found,) = messages("TS-TEL-052", view(agent(10, dropped=2), later))
    assert "in attempt 0" in found


def test_two_agents_of_one_node_count_their_own_losses() -> None:
    other = Stream("prober", ("emitter",), host="node-1").sample(5, {DROPPED: 0}).sample(65, {DROPPED: 0})
    (found,) = messages("TS-TEL-052", view(agent(10, dropped=2), other))
    assert found.startswith("emitter 'node-1' in attempt 0 lost 2 records")


def test_numbers_alone_are_enough() -> None:
    assert messages("TS-TEL-052", view(Stream().sample(1, STEP))) == []


# --- number of series ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["step", "train.step", "run", "job", "timestamp", "epoch"])
def test_what_changes_with_every_record_is_no_attribute(label: str) -> None:
    stream = Stream().sample(1, {f"train.gradient.norm{{{label}=7}}": 1.0})
    (found,) = judged("TS-TEL-053", view(stream))
    assert f"distinguishes series by {label}," in found.message


def groups(num: int) -> Stream:
    stream = Stream()
    for number in range(num):
        stream.sample(number, {f"train.learning_rate{{train.parameter.group=g{number}}}": 1e-4})
    return stream


def test_free_attributes_have_room_for_some_values() -> None:
    most = int(ROOM * FREE_VALUES)
    assert messages("TS-TEL-053", view(groups(most))) == []
    (found,) = judged("TS-TEL-053", view(groups(most + 1)))
    assert found.message == f"the job has {most + 1} series of train.learning_rate, and {FREE_VALUES} are expected"
    assert found.evidence.count == most + 1


def test_series_count_for_each_subject() -> None:
    stream = Stream("ranks", ("rank",))
    for rank in range(200):
        stream.sample(rank, {"train.rank.step": 1}, rank=rank)
    assert messages("TS-TEL-053", view(stream)) == []


def test_pairs_are_as_many_as_nodes() -> None:
    stream = Stream("prober", ("pair",), host="n0")
    for number in range(200):
        key = f"train.network.latency{{train.network.source=n0,train.network.target=n{number}}}"
        stream.sample(number, {key: {"count": 1, "sum": 1e-5}})
    assert messages("TS-TEL-053", view(stream)) == []
    assert metrics()["train.network.latency"].scopes == ("pair",)


def test_names_beyond_all_bounds_are_told_too() -> None:
    stream = Stream()
    for number in range(50):
        values = {f"train.loss.max{{train.loss.name=l{number}-{other}}}": 1.0 for other in range(100)}
        stream.sample(number, values)
    found = messages("TS-TEL-053", view(stream))
    assert "the run has more names of metrics than can be kept" in found


def test_nothing_seen_is_not_judged() -> None:
    assert refused("TS-TEL-053", view(Stream())) == "no metric"
    assert refused("TS-TEL-052", view(Stream())).startswith("no sequence numbers")
