"""The only place that judges a value against the one before it in its series, and folds the pair into the series."""

from __future__ import annotations

import math
from typing import Any

from trainspec_validate.telemetry.kernels.layout import NUM_WINDOWS, STALE_US, Keys, State, Writers

TIME_BACK, DUPLICATE_SAME, DUPLICATE_OTHER, GAP = 4, 5, 6, 7
COUNTER_FALL, COUNTER_RESET, SECOND_WRITER, STEP_JUMP = 9, 10, 11, 13
"""Numbers of `view.Trouble`; a test holds them equal."""
_NUM_CADENCES = 5


def note(
    state: State, row: Any, trouble: int, writer: int, file: int, offset: int, time: int, value: float, step: int
) -> None:  # noqa: E501, PLR0913
    """Put an occurrence into the buffer, with the last value of the series as the one before."""
    place = state.counts[1]
    state.counts[1] = place + 1
    found = state.occurrences[place]
    found["trouble"] = trouble
    found["key"] = row["key"]
    found["subject"] = row["subject"]
    found["attempt"] = row["attempt"]
    found["writer"] = writer
    found["here_file"] = file
    found["here_offset"] = offset
    found["time_us"] = time
    found["value"] = value
    found["step"] = step
    if row["num"] > 0:
        found["before_file"] = row["last_file"]
        found["before_offset"] = row["last_offset"]
        found["time_before_us"] = row["last_time_us"]
        found["value_before"] = row["last_value"]
    else:
        found["before_file"] = -1
        found["before_offset"] = -1
        found["time_before_us"] = -1
        found["value_before"] = math.nan


def judge_time(state: State, row: Any, cadence: int, next_: Any) -> None:
    """Order, repetition and distance of two neighbouring times."""
    writer, file, offset, time, value, step, _start = next_
    interval = time - row["last_time_us"]
    if interval < 0:
        note(state, row, TIME_BACK, writer, file, offset, time, value, step)
        return
    if interval == 0:
        same = value == row["last_value"] or (math.isnan(value) and math.isnan(row["last_value"]))
        note(state, row, DUPLICATE_SAME if same else DUPLICATE_OTHER, writer, file, offset, time, value, step)
        return
    row["num_intervals"] += 1
    if interval > row["longest_interval_us"]:
        row["longest_interval_us"] = interval
        row["longest_interval_end_us"] = time
        row["longest_interval_file"] = file
        row["longest_interval_offset"] = offset
    if cadence > 0:
        if 2 * interval > 3 * cadence:
            row["num_late"] += 1
        if interval > 3 * cadence:
            row["num_gaps"] += 1
            note(state, row, GAP, writer, file, offset, time, value, step)
        elif 10 * interval < cadence:
            row["num_short"] += 1
            if row["num_short"] == 1:
                row["short_us"], row["short_value"] = time, value
                row["short_file"], row["short_offset"] = file, offset


def judge_value(state: State, row: Any, falls: int, step_limit: int, next_: Any) -> None:
    """Falls of counters, jumps of the step, and a change of the writer."""
    writer, file, offset, time, value, step, start = next_
    if falls > 0 and value < row["last_value"]:
        row["num_falls"] += 1
        trouble = COUNTER_RESET if start > row["start_us"] and falls != 3 else COUNTER_FALL
        note(state, row, trouble, writer, file, offset, time, value, step)
    if 0 < step_limit < value - row["last_value"]:
        note(state, row, STEP_JUMP, writer, file, offset, time, value, step)


def same_run(row: Any, value: float, step: int) -> bool:
    """Whether a value goes on with the run of equal values that ends the series."""
    return bool(value == row["last_value"] and step > row["last_step"] >= 0)


def integrate(row: Any, cadence: int, time: int, value: float) -> None:
    """Add the trapezoid between the last value and the next."""
    interval = time - row["last_time_us"]
    limit = 3 * cadence if cadence > 0 else 300_000_000
    if 0 < interval <= limit and math.isfinite(value) and math.isfinite(row["last_value"]):
        seconds = interval / 1e6
        row["integral"] += 0.5 * (value + row["last_value"]) * seconds
        row["integral_seconds"] += seconds


def lockstep(state: State, row: Any, lock_row: int, cadence: int, time: int) -> None:
    """Let the last value count at every instant between it and the next one."""
    width = state.frame[3]
    stale = max(STALE_US, 4 * cadence)
    instant = row["last_time_us"] // width + 1
    last = time // width
    while instant <= last and instant * width - row["last_time_us"] <= stale:
        place = instant - state.frame[2]
        if 0 <= place < NUM_WINDOWS:
            _count(state.locks[lock_row, place], row)
        instant += 1


def _count(cell: Any, row: Any) -> None:
    value = row["last_value"]
    before = row["subject"] < cell[2]
    if cell[4] == 0 or value < cell[0] or (value == cell[0] and before):
        cell[0], cell[2] = value, row["subject"]
        cell[5], cell[6] = row["last_file"], row["last_offset"]
    if cell[4] == 0 or value > cell[1] or (value == cell[1] and row["subject"] < cell[3]):
        cell[1], cell[3] = value, row["subject"]
    cell[4] += 1
    cell[7] = row["attempt"]


def judge(state: State, row: Any, keys: Keys, writers: Writers, next_: Any) -> None:
    """Everything that two neighbouring values of one series tell; `next_` is the later one."""
    writer, file, offset, time, value, step, _start = next_
    key = row["key"]
    cadence_class = keys.cadence[key]
    cadence = writers.cadence_us[_NUM_CADENCES * writer + cadence_class] if cadence_class >= 0 else 0
    if writers.emitter[writer] != writers.emitter[row["writer"]]:
        note(state, row, SECOND_WRITER, writer, file, offset, time, value, step)
    judge_time(state, row, cadence, next_)
    judge_value(state, row, keys.falls[key], writers.report_steps[writer] if keys.steps[key] else 0, next_)
    integrate(row, cadence, time, value)
    if keys.lock_row[key] >= 0 and row["subject"] >= 0:
        lockstep(state, row, keys.lock_row[key], cadence, time)
