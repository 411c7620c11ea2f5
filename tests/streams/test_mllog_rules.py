"""What a log of MLPerf owes, how its entries pair, how its processes start, and how often it tells of updates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reading import read_text

Entry = dict[str, Any]
COUNT = "train.step.count"


def entry(key: str, value: Any = None, time_ms: int = 1_000, **metadata: Any) -> Entry:
    kind = "INTERVAL_START" if key.endswith("_start") else "INTERVAL_END" if key.endswith("_stop") else "POINT_IN_TIME"
    return {"time_ms": time_ms, "event_type": kind, "key": key, "value": value, "metadata": metadata}


def whole(*middle: Entry) -> list[Entry]:
    return [
        entry("submission_benchmark", "llama31_405b"),
        entry("global_batch_size", 32),
        entry("init_start"),
        entry("init_stop"),
        entry("run_start"),
        entry("block_start"),
        entry("block_stop"),
        *middle,
        entry("eval_accuracy", 5.5, time_ms=2_000, samples_count=128),
        entry("run_stop", time_ms=9_000_000, status="success"),
    ]


def text(log: list[Entry]) -> str:
    return "".join(f":::MLLOG {json.dumps(each)}\n" for each in log)


def refusals(log: list[Entry]) -> list[tuple[str, str, int]]:
    content = text(log)
    starts = [0, *(place + 1 for place, sign in enumerate(content) if sign == "\n")]
    found = read_text(content)
    places = [offset for offset, item in found.items if item in found.refusals]
    return [(r.code, r.message, starts.index(o) + 1) for r, o in zip(found.refusals, places, strict=True)]


def without(*keys: str) -> list[Entry]:
    return [each for each in whole() if each["key"] not in keys]


# --- keys that are owed -------------------------------------------------------------------------------------


def test_a_whole_log_owes_nothing() -> None:
    assert refusals(whole()) == []


@pytest.mark.parametrize(
    ("keys", "code", "words", "line"),
    [
        (("global_batch_size",), "absent", "the log has no global_batch_size", 4),
        (("submission_benchmark",), "absent", "the log has no submission_benchmark", 4),
        (("eval_accuracy",), "absent", "the log has no eval_accuracy", 8),
        (("block_start", "block_stop"), "absent", "the log has no block_start or epoch_start", 7),
        (("run_start", "run_stop"), "absent", "no run_start", 5),
        (("run_start",), "interval", "run_stop closes nothing", 8),
        (("run_stop",), "interval", "run_start is never closed", 5),
        (("init_stop",), "interval", "init_start is never closed", 3),
        (("init_start",), "interval", "init_stop closes nothing", 3),
        (("block_start",), "interval", "block_stop closes nothing", 6),
    ],
)
def test_what_is_absent_is_told_in_its_line(keys: tuple[str, ...], code: str, words: str, line: int) -> None:
    found = refusals(without(*keys))
    assert (code, line) == (found[0][0], found[0][2])
    assert words in found[0][1]


def test_a_benchmark_that_measures_an_error_has_no_accuracy() -> None:
    log = [*without("eval_accuracy", "run_stop"), entry("eval_error", 0.12, samples_count=128), whole()[-1]]
    assert refusals(log) == []


def test_an_extract_of_updates_owes_nothing() -> None:
    statistics = entry("tracked_stats", {"train_step_time": 2.0}, step=32)
    assert refusals([entry("global_batch_size", 32), statistics]) == []


# --- pairs --------------------------------------------------------------------------------------------------


def test_what_starts_again_before_it_stops() -> None:
    assert refusals(whole(entry("block_start"), entry("block_start"), entry("block_stop"))) == [
        ("interval", "block_start again before block_stop", 9)
    ]


def test_kinds_that_are_the_opposite_of_the_key() -> None:
    log = whole()
    log[4]["event_type"], log[8]["event_type"] = "INTERVAL_END", "INTERVAL_START"
    assert refusals(log) == [
        ("interval", "run_start is written as INTERVAL_END", 5),
        ("interval", "run_stop is written as INTERVAL_START", 9),
    ]
    log[4]["event_type"], log[8]["event_type"] = ["INTERVAL_END"], "POINT_IN_TIME"
    assert refusals(log) == []


# --- processes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "num"), [(0.07, 0), (9.9, 0), (11.0, 1), (-60.0, 1)])
def test_processes_start_together(minutes: float, num: int) -> None:
    late = 5_000_000 + round(minutes * 60_000)
    log = whole(*(entry("cache_clear", time_ms=5_000_000) for _ in range(3)), entry("cache_clear", time_ms=late))
    found = refusals(log)
    assert len(found) == num
    if num:
        side = "before" if minutes < 0 else "after"
        words = f"cache_clear is {abs(minutes):.4g} min {side} that of most processes, and 1 of 4"
        assert (found[0][0], found[0][2]) == ("time", 11)
        assert words in found[0][1]


# --- values and names ---------------------------------------------------------------------------------------


def test_a_number_that_json_does_not_have() -> None:
    (found,) = refusals(whole(entry("tracked_stats", {"reduced_train_loss": float("nan")}, samples_count=32)))
    assert found == ("not-finite", "reduced_train_loss is NaN", 8)


def test_a_name_with_a_blank_is_told_once() -> None:
    log = whole(*(entry("tracked_stats", {"reduced_train_loss ": 2.0}, samples_count=32 * n) for n in (1, 2)))
    (found,) = refusals(log)
    assert found == ("name", "the name 'tracked_stats.reduced_train_loss ' begins or ends with a blank", 8)


# --- how often optimizer steps are told -----------------------------------------------------------------------------


def evaluations(*samples: int) -> list[Entry]:
    return [entry("eval_accuracy", 5.5, time_ms=2_000 + n, samples_count=32 * n) for n in samples]


@pytest.mark.parametrize(
    ("steps", "interval"), [((4, 8, 12), 4), ((4, 8, 20, 24), 4), ((48, 96, 108, 120, 168), 48), ((5,), None)]
)
def test_evaluations_alone_tell_of_updates(steps: tuple[int, ...], interval: int | None) -> None:
    found = read_text(text([entry("global_batch_size", 32), *evaluations(*steps)]))
    assert found.values(COUNT) == [float(step) for step in steps]
    assert found.heads[0].report_interval_steps == (interval or 1)


def test_statistics_tell_of_each_update() -> None:
    statistics = [entry("tracked_stats", {"train_step_time": 2.0}, step=32 * n) for n in (1, 2, 3, 4)]
    found = read_text(text([entry("global_batch_size", 32), *statistics, *evaluations(4, 8)]))
    assert found.values(COUNT) == [1.0, 2.0, 3.0, 4.0]
    assert found.heads[0].report_interval_steps == 1


# --- counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "num"), [((0, 0, 0), 1), ((0, 0), 0), ((0, 0, 64), 0)])
def test_counts_of_samples_that_stay_zero(counts: tuple[int, ...], num: int) -> None:
    """Sums over the whole run are left out: they can have the right count where reports do not."""
    reports = [
        entry("tracked_stats", {"train_loss": 2.5}, step=32 * n, samples_count=count) for n, count in enumerate(counts)
    ]
    found = refusals([*reports, entry("tracked_stats", {"throughput": 9.5}, step=96, samples_count=960)])
    assert [code for code, message, _ in found if "samples_count is 0 in all 3 entries" in message] == ["rate"] * num
