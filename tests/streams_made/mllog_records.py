"""Damages the records and the text of logs in the MLPerf text format."""

from __future__ import annotations

import copy
import json

from .mllog import END, MARKER, POINT, START
from .mllog_damage import Log, first_of, on_entries, on_log_text, reading_places, step_places

# --- records


@on_entries(beyond="a log may tell of evaluations alone, as those of JAX do")
def all_step_values_removed(log: Log) -> Log:
    """No record of any optimizer step is there."""
    gone = set(step_places(log))
    return [entry for number, entry in enumerate(log) if number not in gone]


@on_entries("TS-TEL-020", "TS-TEL-021", "TS-TEL-031")
def nine_of_ten_step_values_removed(log: Log) -> Log:
    """Nine of ten records of steps are missing."""
    gone = {number for place, number in enumerate(step_places(log)) if place % 10}
    return [entry for number, entry in enumerate(log) if number not in gone]


@on_entries("TS-TEL-018", "TS-TEL-019", "TS-TEL-031", "TS-TEL-072")
def doubled_step_values(log: Log) -> Log:
    """Every record of a step occurs twice."""
    places = set(reading_places(log))
    return [copy.deepcopy(entry) for number, entry in enumerate(log) for _ in range(1 + (number in places))]


@on_entries("TS-TEL-018", "TS-TEL-010", "TS-TEL-031")
def other_values_at_the_same_time(log: Log) -> Log:
    """Every tenth record of a step, or of an evaluation, occurs twice, with two losses."""
    found: Log = []
    places = set(reading_places(log)[::10])
    for number, entry in enumerate(log):
        found.append(entry)
        if number in places:
            again = copy.deepcopy(entry)
            if isinstance(again["value"], dict):
                again["value"]["reduced_train_loss"] += 0.5
            else:
                again["value"] += 0.5
            found.append(again)
    return found


@on_entries(beyond="a log does not say how many processes there are, and names none of them")
def half_of_the_ranks_silent(log: Log) -> Log:
    """Every second process says nothing of its start, where several do."""
    keys = ("init_start", "cache_clear")
    starts = ([number for number, entry in enumerate(log) if entry["key"] == key] for key in keys)
    gone = {number for places in starts for number in places[1::2]}
    return [entry for number, entry in enumerate(log) if number not in gone]


@on_entries("TS-TEL-005", "TS-TEL-004")
def misspelt_key(log: Log) -> Log:
    """The loss has a space at the end of its name."""
    for number in step_places(log):
        value = log[number]["value"]
        value["reduced_train_loss "] = value.pop("reduced_train_loss")
    return log


@on_entries("TS-TEL-004", "TS-TEL-011")
def required_key_removed(log: Log) -> Log:
    """The size of the batch is not stated."""
    return [entry for entry in log if entry["key"] != "global_batch_size"]


@on_entries(beyond="the seed is part of the plan, not of the stream")
def seed_removed(log: Log) -> Log:
    """The seed is not stated."""
    return [entry for entry in log if entry["key"] != "seed"]


# --- intervals


@on_entries("TS-TEL-043")
def ends_removed(log: Log) -> Log:
    """No evaluation and no block ends."""
    return [entry for entry in log if entry["key"] not in {"eval_stop", "block_stop"}]


@on_entries("TS-TEL-043")
def starts_doubled(log: Log) -> Log:
    """Every block starts twice."""
    return [copy.deepcopy(entry) for entry in log for _ in range(1 + (entry["key"] == "block_start"))]


@on_entries("TS-TEL-043", "TS-TEL-001")
def event_types_swapped(log: Log) -> Log:
    """What starts an interval says that it ends it, and the other way round."""
    other = {START: END, END: START, POINT: POINT}
    for entry in log:
        entry["event_type"] = other[entry["event_type"]]
    return log


@on_entries("TS-TEL-044", "TS-TEL-043")
def records_after_the_end(log: Log) -> Log:
    """Optimizer steps and an evaluation follow the end of the run."""
    last = log[-1]["time_ms"]
    more = [copy.deepcopy(log[number]) for number in reading_places(log)[-5:]]
    more += [copy.deepcopy(entry) for entry in log if entry["key"] in {"eval_start", "eval_accuracy"}][-2:]
    for place, entry in enumerate(more):
        entry["time_ms"] = last + 1000 * (place + 1)
    return [*log, *more]


@on_entries("TS-TEL-043", "TS-TEL-044")
def end_removed(log: Log) -> Log:
    """The run never stops."""
    return [entry for entry in log if entry["key"] != "run_stop"]


@on_entries(beyond="a run may be given up, and says so")
def run_aborted(log: Log) -> Log:
    """The run says that it was aborted."""
    first_of(log, "run_stop")["metadata"]["status"] = "aborted"
    return log


@on_entries("TS-TEL-002", "TS-TEL-043", "TS-TEL-044")
def two_attempts_appended(log: Log) -> Log:
    """A second attempt is appended to the first one."""
    again = copy.deepcopy(log)
    shift = log[-1]["time_ms"] - log[0]["time_ms"] + 60_000
    for entry in again:
        entry["time_ms"] += shift
    return log + again


# --- text


@on_log_text("TS-TEL-001")
def merged_lines(text: str) -> str:
    """Two records stand in one line."""
    lines = text.splitlines(keepends=True)
    number = _middle(lines)
    lines[number] = lines[number].rstrip("\n")
    return "".join(lines)


@on_log_text("TS-TEL-001")
def interleaved_lines(text: str) -> str:
    """A record begins in the middle of another one, and both end."""
    lines = text.splitlines(keepends=True)
    number = _middle(lines)
    first, second = lines[number].rstrip("\n"), lines[number + 1].rstrip("\n")
    lines[number : number + 2] = [first[:60] + second + first[60:] + "\n"]
    return "".join(lines)


@on_log_text("TS-TEL-001", "TS-TEL-043", "TS-TEL-044")
def truncated(text: str) -> str:
    """The log ends in the middle of a record."""
    lines = text.splitlines(keepends=True)
    number = int(len(lines) * 0.9)
    return "".join([*lines[:number], lines[number][:70]])


@on_log_text("TS-TEL-001")
def duplicate_key(text: str) -> str:
    """One record has its time twice."""
    lines = text.splitlines(keepends=True)
    number = _middle(lines)
    body = json.loads(lines[number].split(MARKER, 1)[1])
    lines[number] = lines[number].replace('"time_ms"', f'"time_ms": {body["time_ms"] - 5}, "time_ms"', 1)
    return "".join(lines)


def _middle(lines: list[str]) -> int:
    """A marked line in the later half whose next line is marked too."""
    wanted = ("tracked_stats", "eval_accuracy")
    start = len(lines) // 2
    return next(
        n for n in range(start, len(lines) - 1) if any(w in lines[n] for w in wanted) and MARKER in lines[n + 1]
    )
