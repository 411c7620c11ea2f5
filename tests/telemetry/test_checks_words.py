"""What many series show becomes few findings, with the words for whom, when and how often."""

from __future__ import annotations

from telemetry_makers import START_US, Stream, judged, micros, view

from trainspec_validate.telemetry.checks._words import (
    MAX_ALONE,
    MAX_NAMES,
    counted,
    few,
    moment,
    names_in_words,
    ranges_in_words,
    series_in_words,
    subjects_in_words,
    value_in_words,
)
from trainspec_validate.telemetry.view.run_view import Key, Location, Subject


def ranks(*numbers: int) -> list[Subject]:
    return [Subject(number, None, None) for number in numbers]


def late_ranks(num: int) -> Stream:
    """Ranks that wait a negative time, each in a record of its own."""
    stream = Stream("ranks", ("rank",))
    for rank in range(num):
        stream.sample(rank + 1, {"train.data.wait.time": -1.0 - rank}, rank=rank)
    return stream


def test_times_keep_the_digits_that_they_have() -> None:
    assert moment(START_US) == "2026-01-01 00:00:00 UTC"
    assert moment(START_US + 1) == "2026-01-01 00:00:00.000001 UTC"
    assert moment(0) == "1970-01-01 00:00:00 UTC"


def test_subjects_are_ranges_names_or_nobody() -> None:
    assert subjects_in_words([Subject(None, None, None)]) == ""
    assert subjects_in_words(ranks(3)) == "rank 3"
    assert subjects_in_words(ranks(3, 1, 2, 2)) == "ranks 1-3"
    assert subjects_in_words([Subject(None, "b", None), Subject(None, "a", None)]) == "hosts a, b"
    assert subjects_in_words([*ranks(0), Subject(None, "a", "GPU-1")]) == "rank 0; device GPU-1 of a"
    assert series_in_words(Key("hw.power"), Subject(None, None, "GPU-1")) == "hw.power of device GPU-1"


def test_long_lists_are_cut_and_say_so() -> None:
    assert ranges_in_words(range(0, 100, 2)).endswith("30 and 34 more")
    assert names_in_words(f"node-{n:02}" for n in range(MAX_NAMES + 2)).endswith("node-07 and 2 more")
    assert names_in_words(f"node-{n:02}" for n in range(MAX_NAMES)).endswith("node-07")


def test_amounts_and_values() -> None:
    assert [counted(number, "record") for number in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]
    assert [value_in_words(value) for value in (1.5, 1e6, float("nan"))] == ["1.5", "1,000,000", "not a number"]


def test_a_few_series_have_a_finding_each() -> None:
    found = judged("TS-TEL-012", view(late_ranks(MAX_ALONE)))
    assert [violation.evidence.subjects for violation in found] == [f"rank {rank}" for rank in range(MAX_ALONE)]
    assert [violation.evidence.samples for violation in found] == [(f"-{rank + 1}",) for rank in range(MAX_ALONE)]
    assert {violation.evidence.count for violation in found} == {1}
    assert not [violation.message for violation in found if "first of" in violation.message]


def test_many_series_share_one_finding() -> None:
    (found,) = judged("TS-TEL-012", view(late_ranks(MAX_ALONE + 1)))
    assert found.message.startswith("train.data.wait.time of rank 0 is -1 at ")
    assert found.message.endswith("below 0; the first of 9 cases, on ranks 0-8")
    evidence = found.evidence
    assert (evidence.series, evidence.subjects, evidence.count) == ("train.data.wait.time", "ranks 0-8", 9)
    assert (evidence.first_time_us, evidence.last_time_us) == (micros(1), micros(9))
    assert evidence.samples == ("-1", "-2", "-3", "-4", "-5")


def test_one_series_has_one_finding_however_often() -> None:
    stream = Stream().every(range(100), {"train.step.duration": -1.0})
    (found,) = judged("TS-TEL-012", view(stream))
    assert found.message.endswith("; the first of 100 cases")
    assert (found.evidence.count, found.evidence.last_time_us) == (100, micros(99))


def test_what_befalls_a_record_is_told_once_for_all_its_metrics() -> None:
    stream = Stream("ranks", ("rank",))
    for rank in range(3):
        values = {"train.rank.step": 1, "train.data.wait.time": 0.5}
        stream.sample(10, values, rank=rank).sample(5, values, rank=rank)
    (found,) = judged("TS-TEL-017", view(stream))
    assert found.message.endswith("; the first of 6 cases in 2 metrics, on ranks 0-2")
    assert (found.evidence.series, found.evidence.samples) == ("", ())


def test_what_concerns_no_series_is_cut_too() -> None:
    heads = [Stream(f"job-{n}", declared={f"train.x{n}": 1}) for n in range(MAX_ALONE + 2)]
    found = judged("TS-TEL-005", view(*heads))
    assert len(found) == MAX_ALONE + 2
    short = list(few(found))
    assert len(short) == MAX_ALONE
    assert short[-1].message == f"{found[MAX_ALONE - 1].message}; the first of 3 cases"
    assert short[-1].evidence.count == 3
    assert [one.place for one in short] == sorted(Location(n, 0) for n in range(MAX_ALONE))
