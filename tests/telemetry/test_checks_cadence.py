"""Cadence, gaps, bursts and silence are judged by phase, and what has one cause is one finding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from telemetry_makers import Stream, judged, line_of, messages, micros, refused, view

C10 = {"C30": 10, "C60": 10}
RATE = {"train.token.rate": 8000.0}
BUSY = {"hw.gpu.utilization": 0.97}
BEAT = {"train.rank.step": 7}


def job(times: list[float], **head: object) -> Stream:
    return Stream(cadence_seconds=C10, **head).every(times, RATE)


def devices(num: int, times: list[float]) -> Stream:
    stream = Stream("node/n1", ("device",), host="n1", cadence_seconds=C10)
    for seconds in times:
        for number in range(num):
            stream.sample(seconds, BUSY, device=f"GPU-{number}")
    return stream


@pytest.mark.parametrize("requirement", [f"TS-TEL-{number:03}" for number in range(20, 24)])
def test_what_has_no_time_axis_is_not_judged(requirement: str) -> None:
    run = view(job([10, 20, 90]))
    assert refused(requirement, replace(run, snapshot=True)) == "one snapshot has no time axis"
    made_up = {"org.trainspec.import": {"clock": "none"}}
    assert refused(requirement, view(job([10, 20, 90], extensions=made_up))) == "the source of the stream has no times"
    steps = view(Stream().every([10, 20, 90], {"train.step.count": 1}))
    assert refused(requirement, steps).startswith("no metric with a cadence in seconds")


def test_an_evaluation_excuses_the_training_loop_and_nobody_else() -> None:
    loop = job([10, 20, 80, 90]).between(21, 78, "evaluation")
    ranks = Stream("rank", ("rank",), cadence_seconds=C10, rank=0).every([10, 20, 80, 90], BEAT)
    assert messages("TS-TEL-021", view(loop)) == []
    (found,) = judged("TS-TEL-021", view(loop, ranks))
    assert found.message.startswith("train.rank.step of rank 0 has no value for 1 min")
    (found,) = judged("TS-TEL-021", view(loop, devices(1, [10, 20, 80, 90])))
    assert found.message.startswith("hw.gpu.utilization of device GPU-0 of n1 has no value")


def test_an_evaluation_excuses_one_late_value_of_each_series() -> None:
    times = [10, 20, 45, 55, 80, 90]
    assert len(judged("TS-TEL-020", view(job(times)))) == 1
    assert judged("TS-TEL-020", view(job(times).between(21, 44, "evaluation"))) == []
    assert len(judged("TS-TEL-020", view(job(times).between(21, 24, "evaluation")))) == 1


def test_a_pause_that_is_too_short_excuses_no_gap() -> None:
    loop = job([10, 20, 80, 90]).between(21, 40, "evaluation")
    assert len(judged("TS-TEL-021", view(loop))) == 1


def test_one_hole_of_many_series_is_one_finding() -> None:
    stream = devices(100, [10, 20, 70, 80])
    (found,) = judged("TS-TEL-021", view(stream))
    assert found.message.endswith(
        "; the first of 100 series, on devices GPU-0 of n1, GPU-1 of n1, GPU-10 of n1, "
        "GPU-11 of n1, GPU-12 of n1, GPU-13 of n1, GPU-14 of n1, GPU-15 of n1 and 92 more"
    )
    assert found.evidence.count == 100
    assert (found.evidence.first_time_us, found.evidence.last_time_us) == (micros(20), micros(70))
    assert line_of(found, stream) == 201


def test_two_holes_are_two_findings() -> None:
    found = judged("TS-TEL-021", view(devices(3, [10, 20, 70, 80, 200, 210])))
    assert [violation.evidence.count for violation in found] == [3, 3]


def test_many_holes_are_few_findings() -> None:
    times = [number * 50.0 for number in range(40)]
    found = judged("TS-TEL-021", view(devices(1, times)))
    assert len(found) == 8
    assert sum(violation.evidence.count for violation in found) == 39


def test_all_series_of_an_agent_that_is_late_are_one_finding() -> None:
    times = [20.0 * number for number in range(10)]
    agents = [devices(4, times), Stream("node/n2", ("device",), host="n2", cadence_seconds=C10)]
    agents[1].every(times, BUSY, device="GPU-9")
    found = judged("TS-TEL-020", view(*agents))
    assert [violation.evidence.count for violation in found] == [4, 1]


def test_what_a_conversion_wrote_once_is_no_silence() -> None:
    def stream(**head: object) -> Stream:
        made = Stream(**head).sample(1, {"train.batch.size": 512})
        return made.every([10, 2000], {"train.step.count": 1, "train.token.rate": 9.0})

    assert messages("TS-TEL-023", view(stream())) == [
        "train.batch.size has its last value 33.32 min before the end of attempt 0"
    ]
    origin = {"org.trainspec.import": {"clock": "utc", "format": "mllog"}}
    assert messages("TS-TEL-023", view(stream(extensions=origin))) == []


# --- the end ------------------------------------------------------------------------------------------------


def ended(*more: Stream) -> list[Stream]:
    return [job([10 * n for n in range(1, 12)]), devices(1, [10, 20, 30]), *more]


def test_a_lost_device_is_silent_with_a_reason() -> None:
    assert len(judged("TS-TEL-023", view(*ended()))) == 1
    fault = {"train.fault.id": "f", "train.fault.domain": "infrastructure", "train.fault.class": "device"}
    named = Stream("watch").event(60, "fault.detected", {**fault, "train.fault.component": "GPU-0"})
    assert judged("TS-TEL-023", view(*ended(named))) == []
    other = Stream("watch").event(60, "fault.detected", {**fault, "train.fault.component": "GPU-5"})
    assert len(judged("TS-TEL-023", view(*ended(other)))) == 1
    drained = Stream("watch").event(60, "node.drained", {"host.id": "n1", "train.reason": "repair"})
    assert judged("TS-TEL-023", view(*ended(drained))) == []
    before = Stream("watch").event(25, "node.drained", {"host.id": "n1", "train.reason": "repair"})
    assert len(judged("TS-TEL-023", view(*ended(before)))) == 1


def test_a_lost_rank_is_silent_with_a_reason() -> None:
    ranks = Stream("ranks", ("rank",), cadence_seconds=C10)
    ranks.every([10, 20, 30], BEAT, rank=3).every(range(10, 120, 10), BEAT, rank=4)
    assert messages("TS-TEL-023", view(ranks)) == [
        "train.rank.step of rank 3 has its last value 1.333 min before the end of attempt 0"
    ]
    ranks.event(110, "rank.lost", {"train.rank.ids": [3]})
    assert judged("TS-TEL-023", view(ranks)) == []


def test_the_last_attempt_of_a_run_that_goes_on_is_not_judged() -> None:
    assert refused("TS-TEL-023", view(*ended(), is_live=True)) == "the run continues"
    late = Stream(att=1, cadence_seconds=C10).sample(300, RATE)
    assert len(judged("TS-TEL-023", view(*ended(late), is_live=True))) == 1


def test_one_burst_of_many_series_is_one_finding() -> None:
    stream = Stream("node/n1", ("device",), host="n1", cadence_seconds=C10)
    for seconds in (10, 60, 60.2, 60.4, 60.6):
        for number in range(4):
            stream.sample(seconds, BUSY, device=f"GPU-{number}")
    (found,) = judged("TS-TEL-022", view(stream))
    assert found.evidence.count == 4
    assert judged("TS-TEL-022", view(devices(1, [10, 60, 60.2, 60.4, 70]))) == []
