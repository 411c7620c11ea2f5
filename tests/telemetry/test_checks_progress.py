"""A run advances on all ranks together, or says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from telemetry_makers import Stream, judged, line_of, messages, refused, view

GROUP = "train.collective.sequence{train.group.name=dp}"


def counted(*steps: tuple[float, int], **head: object) -> Stream:
    stream = Stream(**head)
    for seconds, step in steps:
        stream.sample(seconds, {"train.step.count": step}, step=step)
    return stream


def test_steps_advance_by_the_report_interval() -> None:
    assert len(judged("TS-TEL-031", view(counted((10, 10), (20, 20), (30, 30))))) == 1
    assert judged("TS-TEL-031", view(counted((10, 10), (20, 20), (30, 30), report_interval_steps=10))) == []
    assert judged("TS-TEL-031", view(counted((10, 1), (20, 1), (30, 2)))) == []
    assert refused("TS-TEL-031", view(counted((10, 1)))) == "train.step.count comes once only"
    snapshot = replace(view(counted((10, 1), (20, 1), (30, 2))), snapshot=True)
    assert refused("TS-TEL-031", snapshot) == "one snapshot has no time axis"


def records(*rows: tuple[int, int | None]) -> Stream:
    stream = Stream()
    for place, (step, count) in enumerate(rows):
        metrics = {"train.learning_rate": 1e-4} if count is None else {"train.step.count": count}
        stream.sample(10.0 * place + 10, metrics, step=step)
    return stream


def test_the_step_of_records_does_not_fall_while_the_count_grows() -> None:
    stream = records((1, 1), (2, 2), (1, 3), (4, 4))
    (found,) = judged("TS-TEL-031", view(stream))
    assert line_of(found, stream) == 3
    assert found.message == ("the step of the record falls from 2 to 1, while train.step.count grows from 2 to 3")


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 1), (2, 2), (3, 3)],
        [(1, 1), (1, 2), (2, 3)],
        [(2, 2), (1, 1), (2, 2)],
        [(2, 1), (1, None), (3, 2)],
    ],
    ids=["as it is", "behind", "both fall", "of other metrics"],
)
def test_steps_of_records_that_are_none_of_these(rows: list[tuple[int, int | None]]) -> None:
    assert judged("TS-TEL-031", view(records(*rows))) == []


def test_an_attempt_begins_no_further_than_a_report_beyond_the_last_one() -> None:
    first = counted((10, 7), (20, 8))
    assert judged("TS-TEL-031", view(first, counted((50, 5), (60, 6), att=1))) == []
    assert judged("TS-TEL-031", view(first, counted((50, 9), (60, 10), att=1))) == []
    (found,) = judged("TS-TEL-031", view(first, counted((50, 12), (60, 13), att=1)))
    assert found.message == "attempt 1 begins with step 12, and no attempt before came beyond 8"
    assert found.place.file == 1


# --- standing still -----------------------------------------------------------------------------------------

STEPS = [(10.0 * step, step) for step in range(1, 6)]


def test_a_job_that_stands_says_why() -> None:
    stream = counted(*STEPS, (300, 6))
    (found,) = judged("TS-TEL-033", view(stream))
    assert line_of(found, stream) == 5
    assert found.message == "no step is completed for 4.167 min after step 5, and no event says why"
    assert judged("TS-TEL-033", view(counted(*STEPS, (300, 6)).between(55, 290, "checkpoint.restore"))) == []


def test_a_short_stand_is_no_finding() -> None:
    assert judged("TS-TEL-033", view(counted(*STEPS, (109, 6)))) == []
    slow = [(100.0 * step, step) for step in range(1, 6)]
    assert judged("TS-TEL-033", view(counted(*slow, (990, 6)))) == []
    assert len(judged("TS-TEL-033", view(counted(*slow, (1010, 6))))) == 1


def test_reports_of_several_updates_take_their_time() -> None:
    sparse = [(100.0 * report, 10 * report) for report in range(1, 6)]
    assert judged("TS-TEL-033", view(counted(*sparse, (700, 60), report_interval_steps=10))) == []


def test_a_hang_at_the_end_is_found_by_what_still_lives() -> None:
    beats = Stream("ranks", ("rank", "device"), host="n1", device="GPU-0")
    beats.every(range(30, 900, 30), {"hw.gpu.utilization": 1.0})
    (found,) = messages("TS-TEL-033", view(counted(*STEPS), beats))
    assert found.endswith("and no event says why; the devices read 100 % busy")
    assert judged("TS-TEL-033", view(counted(*STEPS), beats, is_live=True)) == []


def test_an_evaluation_that_never_ends_explains_nothing() -> None:
    stream = counted(*STEPS).event(55, "evaluation.begin", {"train.evaluation.set": "v"}, id="e")
    assert len(judged("TS-TEL-033", view(stream, Stream("other").sample(900, {"train.telemetry.dropped": 0})))) == 1


@pytest.mark.parametrize(
    ("kind", "length", "updates", "num"),
    [
        ("checkpoint", 1000, (), 1),
        ("checkpoint", 590, (), 0),
        ("checkpoint", 1000, (600, 700), 0),  # the job went on while it was written
        ("evaluation", 1000, (), 1),
        ("evaluation", 1000, (600, 700), 1),
    ],
)
def test_a_save_that_takes_ten_times_as_long_as_the_others_explains_nothing(
    kind: str, length: int, updates: tuple[int, ...], num: int
) -> None:
    times = [*range(10, 500, 10), *updates, 510 + length, 520 + length]
    stream = counted(*[(float(seconds), step) for step, seconds in enumerate(times, 1)])
    for begin in (100, 200, 300):
        stream.between(begin, begin + 9, kind)
    stream.between(500, 500 + length, kind)
    found = messages("TS-TEL-033", view(stream))
    what = {"checkpoint": "save"}.get(kind, kind)
    assert [text.startswith(f"this {what} takes 16.67 min, and half of the others at most 9 s") for text in found] == [
        True
    ] * num


EVALUATED = {"train.evaluation.set": "v", "train.evaluation.outcome": "completed"}


def test_an_evaluation_that_only_ends_explains_the_time_since_the_last_update() -> None:
    stream = counted(*STEPS, (300, 6)).event(290, "evaluation.end", EVALUATED, id="e")
    assert judged("TS-TEL-033", view(stream)) == []
    assert len(judged("TS-TEL-043", view(stream))) == 1
    early = counted(*STEPS, (300, 6)).event(55, "evaluation.end", EVALUATED, id="e")
    assert len(judged("TS-TEL-033", view(early))) == 1


def test_an_evaluation_that_only_ends_and_takes_ten_times_as_long_explains_nothing() -> None:
    times = [*range(10, 500, 10), 1500, 1510]
    stream = counted(*[(float(seconds), step) for step, seconds in enumerate(times, 1)])
    for number, end in enumerate((109, 209, 309, 1490)):
        stream.event(end, "evaluation.end", EVALUATED, id=f"e{number}")
    (found,) = messages("TS-TEL-033", view(stream))
    assert found == "this evaluation takes 16.67 min, and half of the others at most 9 s"


# --- together -----------------------------------------------------------------------------------------------


def ranks(*series: tuple[int, list[int]], key: str = "train.rank.step", begin: float = 10) -> Stream:
    stream = Stream("ranks", ("rank", "group"), world_size=len(series))
    for place in range(len(series[0][1])):
        for rank, values in series:
            stream.sample(begin + 30 * place + rank, {key: values[place]}, rank=rank)
    return stream


def test_ranks_may_be_apart_by_what_passes_in_a_cadence() -> None:
    fast = [100 * place for place in range(8)]
    behind = [max(0, value - 90) for value in fast]
    assert judged("TS-TEL-032", view(ranks((0, fast), (1, behind)))) == []
    assert len(judged("TS-TEL-032", view(ranks((0, fast), (1, [value - 900 for value in [900] * 8]))))) == 1


def test_a_rank_that_stays_behind_is_named() -> None:
    (found,) = judged("TS-TEL-032", view(ranks((0, [10] * 6), (1, [10] * 6), (2, [4] * 6))))
    assert found.message == "rank 2 is at step 4 and rank 0 at 10, for 2.5 min"
    assert found.evidence.subjects == "rank 2"
    assert judged("TS-TEL-032", view(ranks((0, [10] * 6), (1, [10] * 6), (2, [9] * 6)))) == []
    alone = view(ranks((0, [1, 2, 3])))
    assert refused("TS-TEL-032", alone) == "no two ranks report train.rank.step at the same time"


def test_a_rank_that_stands_in_a_group_is_found() -> None:
    run = view(ranks((0, [100, 100, 100]), (1, [97, 97, 97]), key=GROUP))
    (found,) = messages("TS-TEL-034", run)
    assert found.startswith("rank 1 stays at operation 97 of group dp for 30 s, while rank 0 has completed 100")


@pytest.mark.parametrize("behind", [[90, 190, 290], [100, 199, 300]])
def test_a_spread_that_moves_on_is_normal(behind: list[int]) -> None:
    assert judged("TS-TEL-034", view(ranks((0, [100, 200, 300]), (1, behind), key=GROUP))) == []


def test_ranks_of_a_completed_attempt_end_with_the_same_operation() -> None:
    moving = ranks((0, [100, 200, 300]), (1, [97, 197, 297]), key=GROUP)
    assert judged("TS-TEL-034", view(moving)) == []
    job = counted((5, 1), (65, 2)).event(
        90, "attempt.end", {"train.run.attempt": 0, "train.attempt.reason": "completed"}
    )
    (found,) = messages("TS-TEL-034", view(moving, job))
    assert found == "rank 1 ends with operation 297 of group dp, and rank 0 with 300"
    later = counted((5, 1), (70, 2)).event(
        90, "attempt.end", {"train.run.attempt": 0, "train.attempt.reason": "completed"}
    )
    assert judged("TS-TEL-034", view(moving, later)) == []
    failed = counted((5, 1), (65, 2)).event(
        90, "attempt.end", {"train.run.attempt": 0, "train.attempt.reason": "fault"}
    )
    assert judged("TS-TEL-034", view(moving, failed)) == []


def stopping(last_step: int, *, is_told: bool = False, seconds: float = 0.5) -> Stream:
    """Two ranks of one attempt, one of which writes nothing after a step."""
    stream = Stream("ranks", ("rank",), world_size=2)
    for step in range(1, 81):
        for rank in (0, 1) if step <= last_step else (0,):
            stream.sample(10 + step * seconds, {"train.rank.step": step}, rank=rank)
    if is_told:
        stream.event(10 + last_step * seconds, "rank.lost", {"train.rank.ids": [1]})
    return stream


def test_a_rank_that_stops_for_good_is_named_however_short_the_rest_is() -> None:
    (found,) = messages("TS-TEL-032", view(stopping(20)))
    assert found == "rank 1 ends at step 20 and rank 0 30 s later at 80"
    assert len(messages("TS-TEL-032", view(stopping(59)))) == 1
    assert messages("TS-TEL-032", view(stopping(60))) == []
    assert "no two ranks" in refused("TS-TEL-032", view(stopping(20, is_told=True)))


def test_a_rank_that_stops_long_before_the_end_is_judged_as_silent() -> None:
    assert messages("TS-TEL-032", view(stopping(20, seconds=2.0))) == []
    assert len(messages("TS-TEL-023", view(stopping(20, seconds=2.0)))) == 1
