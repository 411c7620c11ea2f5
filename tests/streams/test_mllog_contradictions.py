"""Logs of MLPerf that contradict themselves: in times, results, reports, steps and rates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.model.finding import Severity
from trainspec_validate.pipeline.validation import validate

START_MS = 1_700_000_000_000
NUM_BLOCKS, STEPS, BATCH, STEP_SECONDS = 10, 20, 64, 2.5
Entry = dict[str, Any]


def entry(key: str, seconds: float, value: Any = None, **metadata: Any) -> Entry:
    return {"key": key, "time_ms": START_MS + round(seconds * 1000), "value": value, "metadata": metadata}


def run(*, detailed: bool = False, status: str = "success", division: str = "closed") -> list[Entry]:
    """A run of blocks with a report and an evaluation each, or with a report of each step."""
    settings = {"submission_benchmark": "retinanet", "submission_division": division, "global_batch_size": BATCH}
    found = [entry(key, 0.001 * n, value) for n, (key, value) in enumerate(settings.items())]
    found += [entry("init_start", 1), entry("init_stop", 30.5), entry("run_start", 31.25)]
    seconds = 31.25
    for block in range(NUM_BLOCKS):
        samples = block * STEPS * BATCH
        found.append(entry("block_start", seconds, samples_count=samples))
        for step in range(block * STEPS + 1, (block + 1) * STEPS + 1) if detailed else ():
            time = seconds + (step - block * STEPS) * STEP_SECONDS
            found.append(entry("tracked_stats", time, {"reduced_train_loss": 9 - step / 100}, step=step * BATCH))
        seconds, samples = seconds + STEPS * STEP_SECONDS + 0.003, samples + STEPS * BATCH
        if not detailed:
            statistic = {"throughput": BATCH / STEP_SECONDS}
            found.append(entry("tracked_stats", seconds, statistic, samples_count=samples))
        found += [
            entry("block_stop", seconds, samples_count=samples),
            entry("eval_start", seconds, samples_count=samples),
        ]
        accuracy = 0.1 + 0.025 * (block + 1)
        found.append(entry("eval_accuracy", seconds + 7.411, accuracy, samples_count=samples))
        found.append(entry("eval_stop", seconds + 7.412, samples_count=samples))
        seconds += 7.412
    return [*found, entry("run_stop", seconds, samples_count=samples, status=status)]


def findings(entries: Iterable[Entry], folder: Path) -> list[tuple[str, str]]:
    """Requirement and message of each error and warning."""
    path = folder / "log.txt"
    path.write_text("".join(f":::MLLOG {json.dumps(each)}\n" for each in entries), encoding="utf-8")
    return [(each.requirement, each.message) for each in validate(path).findings if each.severity is not Severity.NOTE]


def changed(entries: list[Entry], change: Callable[[Entry, int], None]) -> list[Entry]:
    """The entries after a change to each, by its number."""
    for number, each in enumerate(entries):
        change(each, number)
    return entries


@pytest.mark.parametrize("is_detailed", [False, True])
def test_a_log_that_agrees_with_itself(tmp_path: Path, is_detailed: bool) -> None:
    assert findings(run(detailed=is_detailed), tmp_path) == []


@pytest.mark.parametrize("value", [0, -64, 0.5, "many", None])
def test_a_batch_of_nothing(tmp_path: Path, value: Any) -> None:
    def emptied(each: Entry, _: int) -> None:
        if each["key"] == "global_batch_size":
            each["value"] = value

    words = f"global_batch_size is {str(value)!r}, and an optimizer step has at least one of what it counts"
    assert ("TS-TEL-001", words) in findings(changed(run(), emptied), tmp_path)


# --- times


def test_times_of_whole_minutes(tmp_path: Path) -> None:
    def rounded(each: Entry, _: int) -> None:
        each["time_ms"] = each["time_ms"] // 60_000 * 60_000

    found = findings(changed(run(), rounded), tmp_path)
    words = "all 60 times of the run are whole minutes, where time_ms counts milliseconds"
    assert ("TS-TEL-016", words) in found


def test_one_entry_of_a_whole_minute_is_no_matter(tmp_path: Path) -> None:
    entries = run()
    entries[-1]["time_ms"] += 60_000 - entries[-1]["time_ms"] % 60_000
    assert [requirement for requirement, _ in findings(entries, tmp_path)] == []


def test_a_first_entry_of_no_time_is_one_error_and_all_others_are_judged(tmp_path: Path) -> None:
    entries = run()
    entries.insert(0, {**entries[0], "key": "cache_clear", "value": True, "time_ms": 0})
    found = findings(entries, tmp_path)
    assert found == [("TS-TEL-016", "time_ms of cache_clear is 0, which is before 2000: no clock was set")]


def test_times_of_the_writing(tmp_path: Path) -> None:
    def late(each: Entry, number: int) -> None:
        each["time_ms"] = START_MS + 900_000 + number * 10

    found = findings(changed(run(), late), tmp_path)
    assert ("TS-TEL-016", "the run takes 0.61 s from run_start to run_stop, with 10 evaluations") in found


@pytest.mark.parametrize(("num", "is_found"), [(3, False), (4, True)])
def test_a_clock_that_stands(tmp_path: Path, num: int, is_found: bool) -> None:
    entries = run()
    places = [number for number, each in enumerate(entries) if each["key"] == "eval_accuracy"][-num:]
    for each in entries[places[0] : places[-1] + 1]:
        each["time_ms"] = entries[places[0]]["time_ms"]
    found = findings(entries, tmp_path)
    words = f"{num} positions in a row of eval_accuracy have one time"
    assert (("TS-TEL-016", words) in found) == is_found


# --- results and reports


@pytest.mark.parametrize(("factor", "is_found"), [(1, False), (100, True)])
def test_an_evaluation_in_percent(tmp_path: Path, factor: int, is_found: bool) -> None:
    def scaled(each: Entry, _number: int) -> None:
        if each["key"] == "eval_accuracy":
            each["value"] *= factor

    found = [message for _, message in findings(changed(run(), scaled), tmp_path)]
    words = "and the metric of retinanet is a fraction of at most 1"
    assert sum(message.endswith(words) for message in found) == is_found


def test_a_success_that_no_evaluation_shows(tmp_path: Path) -> None:
    def half(each: Entry) -> bool:
        return each["key"].startswith("eval_") and each["metadata"]["samples_count"] > NUM_BLOCKS // 2 * STEPS * BATCH

    kept = [each for each in run() if not half(each)]
    words = "run_stop says success, and none of 5 eval_accuracy is at least 0.34, the target of retinanet: "
    words += "the best is 0.225"
    assert ("TS-TEL-004", words) in findings(kept, tmp_path)


@pytest.mark.parametrize("options", [{"division": "open"}, {"status": "aborted"}])
def test_a_run_that_needs_no_target(tmp_path: Path, options: dict[str, str]) -> None:
    entries = [each for each in run(**options) if each["key"] != "eval_accuracy" or each["value"] < 0.3]
    assert "TS-TEL-004" not in {requirement for requirement, _ in findings(entries, tmp_path)}


@pytest.mark.parametrize(
    ("num", "words"), [(1, "the last one has none before it"), (3, "the last 3 have none before them"), (8, "")]
)
def test_reports_that_stop_before_the_evaluations(tmp_path: Path, num: int, words: str) -> None:
    entries = run()
    gone = [each for each in entries if each["key"] == "tracked_stats"][-num:]
    found = [message for _, message in findings([each for each in entries if each not in gone], tmp_path)]
    start = f"each of {NUM_BLOCKS - num} evaluations follows a report of training (tracked_stats or train_loss), and "
    assert [message for message in found if message.startswith("each of")] == [start + words] * bool(words)


def test_a_report_that_is_absent_after_the_last_block(tmp_path: Path) -> None:
    entries = run()
    for place in [number for number, each in enumerate(entries) if each["key"] == "block_stop"]:
        entries[place - 1], entries[place] = entries[place], entries[place - 1]
    assert findings(entries, tmp_path) == []
    last = _reports(entries)[-1]
    found = findings([each for each in entries if each is not last], tmp_path)
    assert ("TS-TEL-023", "a report of training follows each of 9 block_stop, and none the last") in found


# --- steps and rates


def _reports(entries: list[Entry]) -> list[Entry]:
    return [each for each in entries if each["key"] == "tracked_stats"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda step, n: step - 50 * BATCH if n == 120 else step, "step falls from 7,680 to 4,544"),
        (
            lambda step, n: step - 50 * (n % 10 == 9),
            "step is 590, no multiple of the 64 samples of a step, as those of 180 of 200 reports are",
        ),
        (lambda step, n: 101 * BATCH if n > 99 else step, "step is 6,464 in 4 reports in a row"),
        (
            lambda step, n: 2 * step if n > 99 else step,
            "steps count samples up to report 120 at most, and then",
        ),
    ],
    ids=["falls", "no multiple", "frozen", "doubles"],
)
def test_steps_that_contradict_each_other(tmp_path: Path, change: Callable[[int, int], int], words: str) -> None:
    entries = run(detailed=True)
    for number, each in enumerate(_reports(entries)):
        each["metadata"]["step"] = change(each["metadata"]["step"], number)
    assert any(words in message for _, message in findings(entries, tmp_path)), findings(entries, tmp_path)


@pytest.mark.parametrize(("factor", "is_found"), [(2.0, True), (0.001, True), (1.2, False), (0.8, False)])
def test_rates_against_count_and_clock(tmp_path: Path, factor: float, is_found: bool) -> None:
    entries = run()
    for each in _reports(entries):
        each["value"]["throughput"] *= factor
    found = [message for requirement, message in findings(entries, tmp_path) if requirement == "TS-TEL-038"]
    assert bool(found) == is_found
    if found:
        assert found[0].startswith(f"train.sample.rate is {25.6 * factor:g}")
        assert "train.sample.count grows by 1,280" in found[0]


@pytest.mark.parametrize(("seconds", "is_found"), [(2.5, False), (2500.0, True), (0.0025, True), (-2.5, True)])
def test_rates_against_the_time_of_an_update(tmp_path: Path, seconds: float, is_found: bool) -> None:
    entries = run()
    for each in _reports(entries):
        each["value"]["train_step_time"] = seconds
    found = [message for _, message in findings(entries, tmp_path) if "where the batch has 64" in message]
    assert bool(found) == is_found


@pytest.mark.parametrize(
    ("seconds", "requirement"), [(2.5, None), (50.0, None), (2500.0, "TS-TEL-037"), (-2.5, "TS-TEL-012")]
)
def test_times_of_updates_without_a_position(tmp_path: Path, seconds: float, requirement: str | None) -> None:
    """A report comes every 57 s: an optimizer step cannot take longer than that, and many fit into it."""
    entries = run()
    for each in _reports(entries):
        each["value"], each["metadata"] = {"train_step_time": seconds}, {}
    assert {found for found, _ in findings(entries, tmp_path)} == ({requirement} if requirement else set())
