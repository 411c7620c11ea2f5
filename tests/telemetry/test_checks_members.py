"""Everybody who takes part is there under one name, and what a run says it lost is not missed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from telemetry_makers import Stream, judged, line_of, messages, refused, view

C10 = {"C30": 10}
TIMES = (10, 20, 30, 40)


def beats(ranks: Iterable[int], world_size: int | None = 4, times: Iterable[float] = TIMES, **head: object) -> Stream:
    size = {} if world_size is None else {"world_size": world_size}
    stream = Stream("ranks", ("rank",), cadence_seconds=C10, **size, **head)
    for seconds in times:
        for rank in ranks:
            stream.sample(seconds, {"train.rank.step": 1}, rank=rank)
    return stream


def test_silent_ranks_are_named_at_the_head_that_owes_them() -> None:
    stream = beats([0, 3], 8)
    run = view(Stream("job").sample(5, {"train.step.count": 1}), stream)
    (found,) = judged("TS-TEL-027", run)
    assert found.message == "6 ranks of 8 in attempt 0 without a value: 1-2, 4-7"
    assert line_of(found, stream, file=1) == 0


def test_lost_ranks_are_not_missed() -> None:
    stream = beats([0, 1, 3])
    assert len(judged("TS-TEL-027", view(stream))) == 1
    assert judged("TS-TEL-027", view(stream.event(35, "rank.lost", {"train.rank.ids": [2]}))) == []


def test_ranks_begin_together_or_join() -> None:
    stream = beats([0, 1, 2]).every((55, 65), {"train.rank.step": 1}, rank=3)
    (found,) = judged("TS-TEL-027", view(stream))
    assert found.message == "train.rank.step of rank 3 begins 45 s after that of the first rank"
    assert line_of(found, stream) == 13
    stream.event(54, "rank.joined", {"train.rank.ids": [3]})
    assert judged("TS-TEL-027", view(stream)) == []


def test_completeness_needs_a_size_ranks_and_time() -> None:
    assert refused("TS-TEL-027", view(beats([0], None))) == "no world size is stated"
    assert refused("TS-TEL-027", view(beats([0], 2, (10, 20)))) == "no attempt is longer than two cadences"
    job = Stream(world_size=8).every(TIMES, {"train.step.count": 1})
    assert refused("TS-TEL-027", view(job)) == "no metric of ranks"


def test_a_world_of_any_size_is_judged() -> None:
    (found,) = messages("TS-TEL-027", view(beats([7], 100_000_000)))
    assert found == "99,999,999 ranks of 100,000,000 in attempt 0 without a value: 0-6, 8-99999999"


# --- devices ------------------------------------------------------------------------------------------------


def devices(second: dict[str, float], **head: object) -> Stream:
    stream = Stream("node/n1", ("device",), host="n1", **head)
    first = {"hw.gpu.utilization": 0.9, "train.accelerator.matrix.active": 0.4, "hw.gpu.memory.usage": 6e10}
    return stream.sample(30, first, device="GPU-0").sample(30, second, device="GPU-1")


def test_a_device_that_gives_less_is_one_finding() -> None:
    (found,) = messages("TS-TEL-028", view(devices({"hw.gpu.utilization": 0.9})))
    assert found == ("1 device of 2 in attempt 0 without hw.gpu.memory.usage, train.accelerator.matrix.active: GPU-1")
    recommended = {"hw.temperature{hw.sensor_location=core}": 60.0}
    assert len(judged("TS-TEL-028", view(devices(recommended)))) == 1


def test_a_device_of_an_agent_that_cannot_give_a_metric_is_excused() -> None:
    given = {"hw.gpu.utilization": 0.9, "hw.gpu.memory.usage": 6e10}
    unsupported = {"train.accelerator.matrix.active": "no such counter on this partition"}
    assert len(judged("TS-TEL-028", view(devices(given)))) == 1
    assert judged("TS-TEL-028", view(devices(given, unsupported=unsupported))) == []


def test_a_device_that_a_rank_names_is_expected() -> None:
    ranks = Stream("ranks", ("rank",)).sample(30, {"train.rank.step": 1}, rank=5, host="n1", device="GPU-5")
    run = view(devices({"hw.gpu.utilization": 0.9, "train.accelerator.matrix.active": 0.1, "hw.gpu.memory.usage": 1}))
    assert judged("TS-TEL-028", run) == []
    healthy = {"hw.gpu.utilization": 0.9, "train.accelerator.matrix.active": 0.1, "hw.gpu.memory.usage": 1}
    (found,) = messages("TS-TEL-028", view(devices(healthy), ranks))
    assert found.endswith(": GPU-5")


# --- identity -----------------------------------------------------------------------------------------------


def places(*named: tuple[float, int, str, str | None], **head: object) -> Stream:
    stream = Stream("ranks", ("rank",), **head)
    for seconds, rank, host, device in named:
        where = {"host": host} if device is None else {"host": host, "device": device}
        stream.sample(seconds, {"train.rank.step": 1}, rank=rank, **where)
    return stream


def test_a_rank_moves_only_with_an_event_or_an_attempt() -> None:
    moved = places((10, 0, "n1", None), (20, 0, "n2", None))
    assert messages("TS-TEL-029", view(moved)) == ["rank 0 changes from host n1 to n2 within attempt 0"]
    moved.event(15, "topology.changed", {"train.change.key": "hosts"})
    assert judged("TS-TEL-029", view(moved)) == []
    attempts = view(places((10, 0, "n1", None)), places((20, 0, "n2", None), att=1))
    assert judged("TS-TEL-029", attempts) == []


def test_a_rank_can_drive_several_devices_and_not_one_after_another() -> None:
    together = [(seconds, 0, "n1", f"GPU-{seconds % 20 // 10}") for seconds in (10, 20, 30, 40)]
    assert judged("TS-TEL-029", view(places(*together))) == []
    changed = [(seconds, 0, "n1", f"GPU-{seconds // 25}") for seconds in (10, 20, 30, 40)]
    assert messages("TS-TEL-029", view(places(*changed))) == [
        "rank 0 changes from device GPU-0 to GPU-1 within attempt 0"
    ]


@pytest.mark.parametrize(
    ("first", "second", "num"),
    [
        ("n1", "n1.1", 1),
        ("n1", "n1.example.org", 1),
        ("node-A", "node-a", 1),
        ("n1", "n11", 0),
        ("n1.a", "n1.b", 0),
        ("10.0.0.1", "10.0.0.12", 0),
    ],
)
def test_a_host_has_one_name(first: str, second: str, num: int) -> None:
    run = view(places((10, 0, first, None), (10, 1, second, None)))
    assert len(judged("TS-TEL-029", run)) == num


def test_names_are_needed_to_judge_them() -> None:
    assert refused("TS-TEL-029", view(beats([0]))) == "no record names a host or a device"


# --- the size of the world ----------------------------------------------------------------------------------


def test_heads_and_events_agree_on_the_size() -> None:
    other = Stream("watch", world_size=8).sample(10, {"train.world.active": 4})
    (found,) = messages("TS-TEL-030", view(beats([0]), other))
    assert found == "this head gives attempt 0 8 ranks, another head 4"
    start = {"train.run.attempt": 0, "train.world.size": 4}
    told = Stream("watch").event(1, "attempt.start", start)
    assert judged("TS-TEL-030", view(beats([0]), told)) == []
    assert refused("TS-TEL-030", view(Stream(world_size=8).sample(5, {"train.step.count": 1}))) == (
        "nothing to hold the world size against"
    )


def test_ranks_coordinates_and_active_ranks_are_within_the_world() -> None:
    stream = beats([0, 4], declared={"train.parallel.tensor.rank": 4, "train.parallel.data.rank": 3})
    active = Stream("job").sample(10, {"train.world.active": 4}).sample(20, {"train.world.active": 6})
    assert messages("TS-TEL-030", view(stream, active)) == [
        "train.parallel.tensor.rank is 4 in attempt 0, which has 4 ranks, from 0",
        "rank 4 reports in attempt 0, which has 4 ranks, from 0",
        "train.world.active is 6 in attempt 0, which was started with 4 ranks",
    ]
    joined = active.event(15, "rank.joined", {"train.rank.ids": [4, 5]})
    assert len(judged("TS-TEL-030", view(stream, joined))) == 1
