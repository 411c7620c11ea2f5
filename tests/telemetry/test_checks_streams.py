"""Checks on records, heads, writers, times and numbers: what they let pass, and where they do not judge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stream_texts import text_of, view_of, written_by
from telemetry_makers import START_US, Stream, judged, line_of, messages, micros, refused, view

from trainspec_validate.telemetry.view.run_view import Location

STEP = {"train.step.count": 1}
PROMETHEUS = '# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 97\n'


def ended(stream: Stream) -> Stream:
    """The stream of a run that says that it ends."""
    return stream.event(100, "run.end", {"train.run.status": "completed", "train.run.id": "made"}, id="run")


def job(*steps: int) -> Stream:
    stream = Stream()
    for step in steps:
        stream.sample(step, {"train.step.count": step}, step=step)
    return stream


# --- records and heads --------------------------------------------------------------------------------------


def test_a_cut_line_is_told_only_where_the_run_has_ended() -> None:
    torn = '{"k":"m","time_us":17672256'
    assert messages("TS-TEL-001", view_of(text_of(job(1)) + torn)) == []
    for suffix in ("jsonl", "jsonl.gz"):
        (found,) = judged("TS-TEL-001", view_of(text_of(ended(job(1))) + torn, suffix=suffix))
        assert found.message == "the file ends within a line, and the run has ended at 2026-01-01 00:01:40 UTC"
        assert found.place == Location(0, len(text_of(ended(job(1)))))


def test_many_damaged_lines_are_cut_to_a_few_findings() -> None:
    text = text_of(job(1)) + "no record\n" * 20
    found = judged("TS-TEL-001", view_of(text))
    assert len(found) == 8
    assert found[-1].evidence.count == 13
    assert found[-1].message.endswith("; the first of 13 cases")


def test_no_file_is_no_pass() -> None:
    assert refused("TS-TEL-001", replace(view(job(1)), files=())) == "no stream"


def test_a_head_that_comes_late_is_not_a_head_that_is_absent() -> None:
    head, sample = text_of(job(1)).splitlines(keepends=True)
    assert messages("TS-TEL-002", view_of(sample + head)) == ["the file starts with another record than a head"]
    assert messages("TS-TEL-002", view_of(sample)) == ["the file has no head"]
    assert messages("TS-TEL-002", view_of(head + sample)) == []


def test_an_unreadable_first_line_is_told_once() -> None:
    head, sample = text_of(job(1)).splitlines(keepends=True)
    run = view_of(head.replace('"att": 0', '"att": "first"') + sample)
    assert messages("TS-TEL-002", run) == []
    assert len(messages("TS-TEL-001", run)) == 1


def test_records_of_a_shared_file_name_their_writer() -> None:
    streams = (Stream("a").sample(1, STEP), Stream("b").sample(1, {"train.batch.size": 8}))
    (found,) = messages("TS-TEL-002", view_of(text_of(*streams)))
    assert found.startswith("the file has 2 heads")
    assert messages("TS-TEL-002", view_of(text_of(*map(written_by, streams)))) == []


def test_other_formats_have_no_heads_and_no_numbers() -> None:
    run = view_of(PROMETHEUS, suffix="prom")
    assert refused("TS-TEL-002", run) == "no file of a format that has heads"
    assert refused("TS-TEL-010", run) == "no head that names its emitter"
    assert refused("TS-TEL-017", run) == "the input is a snapshot, which has no order"
    assert refused("TS-TEL-019", run) == "the records have no sequence numbers"
    assert refused("TS-TEL-071", run) == "no head that names scopes"


# --- writers and order --------------------------------------------------------------------------------------


def test_a_new_attempt_can_have_another_writer() -> None:
    later = Stream("other", att=1).sample(50, STEP)
    assert messages("TS-TEL-010", view(job(1), later)) == []
    both = view(job(1), Stream("other").sample(50, STEP))
    assert messages("TS-TEL-010", both) == ["train.step.count has a second writer in attempt 0: 'other'"]


def test_each_emitter_writes_of_itself() -> None:
    scopes = ("emitter",)
    streams = [Stream(name, scopes, host="node-1").sample(9, {"train.telemetry.dropped": 0}) for name in ("a", "b")]
    assert messages("TS-TEL-010", view(*streams)) == []


def test_two_writers_are_told_as_such_and_not_as_disorder() -> None:
    run = view(job(5, 6, 7), Stream("other").sample(1, {"train.step.count": 9}).sample(6, {"train.step.count": 9}))
    assert len(messages("TS-TEL-010", run)) == 1
    assert messages("TS-TEL-017", run) == []
    assert messages("TS-TEL-018", run) == []


def test_order_is_judged_in_each_series_and_not_across() -> None:
    stream = Stream("ranks", ("rank",))
    for rank in range(4):
        stream.sample(10, {"train.rank.step": 1}, rank=rank).sample(20, {"train.rank.step": 2}, rank=rank)
    assert messages("TS-TEL-017", view(stream)) == []


def test_order_is_not_judged_without_a_promise() -> None:
    run = view(job(2, 1))
    (message,) = messages("TS-TEL-017", run)
    assert " goes back by 1 s to " in message
    assert refused("TS-TEL-017", replace(run, has_order=False)) == "the format promises no order of records"
    assert refused("TS-TEL-017", replace(run, snapshot=True)) == "the input is a snapshot, which has no order"


@pytest.mark.parametrize("requirement", ["TS-TEL-010", "TS-TEL-017", "TS-TEL-018", "TS-TEL-072"])
def test_a_stream_without_values_is_not_judged(requirement: str) -> None:
    assert refused(requirement, view(Stream().event(1, "loss.spike"))) == "no value of a metric"


def test_equal_and_other_values_at_one_time_are_two_things() -> None:
    stream = Stream().sample(1, {"train.batch.size": 8}).sample(1, {"train.batch.size": 8})
    assert len(messages("TS-TEL-072", view(stream))) == 1
    assert messages("TS-TEL-018", view(stream)) == []
    stream = Stream().sample(1, {"train.batch.size": 8}).sample(1, {"train.batch.size": 16})
    assert messages("TS-TEL-018", view(stream)) == ["train.batch.size is both 8 and 16 at 2026-01-01 00:00:01 UTC"]
    assert messages("TS-TEL-072", view(stream)) == []


# --- numbers ------------------------------------------------------------------------------------------------


def numbered(*numbers: int) -> Stream:
    stream = job(*range(len(numbers)))
    stream.lines[1:] = [{**line, "seq": number} for line, number in zip(stream.lines[1:], numbers, strict=True)]
    return stream


@pytest.mark.parametrize(
    ("numbers", "said", "line"),
    [
        ((0, 1, 2), [], 0),
        ((3, 4, 5), ["emitter 'job' in attempt 0 begins with sequence number 3"], 1),
        ((0, 1, 4), ["emitter 'job' in attempt 0 lacks sequence numbers 2 to 3"], 3),
        ((0, 2, 4), ["emitter 'job' in attempt 0 lacks sequence number 1, and 1 more later"], 2),
        ((0, 1, 1), ["emitter 'job' in attempt 0 has sequence number 1 twice"], 3),
        ((0, 0, 0), ["emitter 'job' in attempt 0 has sequence number 0 twice, and 1 other number more than once"], 2),
    ],
)
def test_numbers_that_are_not_as_they_are_to_be(numbers: tuple[int, ...], said: list[str], line: int) -> None:
    stream = numbered(*numbers)
    found = judged("TS-TEL-019", view(stream))
    assert [violation.message for violation in found] == said
    assert [line_of(violation, stream) for violation in found] == [line] * len(said)


def test_each_attempt_counts_from_0() -> None:
    assert messages("TS-TEL-019", view(job(1, 2), Stream(att=1).sample(50, STEP))) == []


def test_a_line_that_is_no_record_is_not_called_lost_too() -> None:
    lines = text_of(job(1, 2, 3)).splitlines(keepends=True)
    run = view_of("".join([*lines[:2], "garbled\n", lines[3]]))
    assert messages("TS-TEL-019", run) == []
    assert len(messages("TS-TEL-001", run)) == 1


# --- times --------------------------------------------------------------------------------------------------


def started(time_us: int) -> list[str]:
    stream = Stream(time_us=time_us)
    stream.lines.append({"k": "m", "time_us": time_us, "seq": 0, "m": STEP})
    return messages("TS-TEL-016", view(stream))


def test_a_start_in_another_unit_is_guessed() -> None:
    (said,) = started(START_US // 1_000_000)
    assert said.endswith("which is before 2000; in seconds it is 2026-01-01 00:00:00 UTC")
    (said,) = started(START_US // 1_000)
    assert said.endswith("which is before 2000; in milliseconds it is 2026-01-01 00:00:00 UTC")
    (said,) = started(5)
    assert said.endswith("which is before 2000: no clock was set")


def test_hosts_whose_clock_was_never_set_are_one_finding() -> None:
    lines = [job(1, 2, 3)]
    for rank in range(3):
        stream = Stream(emitter=f"rank-{rank}", time_us=5_000_000 + rank)
        stream.lines.append({"k": "m", "time_us": 6_000_000 + rank, "seq": 0, "m": {"train.loss.mean": 1.0}})
        lines.append(stream)
    said = [each for each in messages("TS-TEL-016", view(*lines)) if "1970" in each]
    assert said == [
        "the stream starts at 1970-01-01 00:00:05 UTC, which is before 2000: no clock was set; 2 more begin so"
    ]


def test_what_is_yet_to_come_is_told_where_the_reader_has_a_clock() -> None:
    text = text_of(job(1, 2, 900))
    assert messages("TS-TEL-016", view_of(text)) == []
    assert messages("TS-TEL-016", view_of(text, now_us=micros(601))) == []
    (said,) = messages("TS-TEL-016", view_of(text, now_us=micros(60)))
    assert said == "emitter 'job' writes 2026-01-01 00:15:00 UTC, 14 min ahead of now"
    heads = messages("TS-TEL-016", view_of(text, now_us=micros(-3600)))
    assert heads[0] == "the stream starts at 2026-01-01 00:00:00 UTC, 1 h ahead of now"


def test_records_of_another_time_are_told_and_left_out() -> None:
    text = text_of(job(1)) + '{"k":"m","time_us":1767225601,"seq":1,"m":{"train.step.count":1}}\n'
    run = view_of(text)
    (found,) = judged("TS-TEL-016", run)
    assert found.message.startswith("time_us is 1767225601")
    assert run.num_records == 1
