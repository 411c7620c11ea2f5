"""Judges a value against the one before it in its series, and folds the pair into the series.

Observations are returned as bits, so that these functions touch nothing but the row of the series.
"""

from __future__ import annotations

import math
from typing import Any

from trainspec_validate.telemetry.kernels.layout import NUM_WINDOWS, STALE_US

TIME_BACK, DUPLICATE_SAME, DUPLICATE_OTHER, GAP = 1 << 4, 1 << 5, 1 << 6, 1 << 7
COUNTER_FALL, COUNTER_RESET, STEP_JUMP = 1 << 9, 1 << 10, 1 << 13
"""Bits of the members of `view.Trouble`; a test holds them equal."""
_NO_CADENCE_US = 300_000_000
"""Longest interval that an integral covers for metrics without a cadence."""


def is_same(value: float, other: float) -> bool:
    """Whether two values are equal, or both no number."""
    return value == other or (math.isnan(value) and math.isnan(other))


def judge_time(row: Any, cadence: int, file: int, offset: int, time: int, value: float) -> int:
    """Order, repetition and distance of two neighbouring times."""
    interval = time - row["last_time_us"]
    if interval < 0:
        return TIME_BACK
    if interval == 0:
        return DUPLICATE_SAME if is_same(value, row["last_value"]) else DUPLICATE_OTHER
    row["num_intervals"] += 1
    if interval > row["longest_interval_us"]:
        row["longest_interval_us"] = interval
        row["longest_interval_end_us"] = time
        row["longest_interval_file"] = file
        row["longest_interval_offset"] = offset
    return unusual(row, interval, cadence, file, offset, time, value) if cadence > 0 else 0


def unusual(row: Any, interval: int, cadence: int, file: int, offset: int, time: int, value: float) -> int:
    """Count an interval that is much longer or shorter than the cadence."""
    if interval > 3 * cadence:
        row["num_gaps"] += 1
        row["num_late"] += 1
        return GAP
    if 2 * interval > 3 * cadence:
        row["num_late"] += 1
    elif 10 * interval < cadence:
        row["num_short"] += 1
        if row["num_short"] == 1:
            row["short_us"], row["short_value"] = time, value
            row["short_file"], row["short_offset"] = file, offset
    return 0


def judge_value(
    row: Any, falls: int, step_limit: int, last_value: float, last_start: int, value: float, start: int
) -> int:
    """Falls of counters, and jumps of the step."""
    if falls > 0 and value < last_value:
        row["num_falls"] += 1
        return COUNTER_RESET if start > last_start and falls != 3 else COUNTER_FALL
    if 0 < step_limit < value - last_value:
        return STEP_JUMP
    return 0


def same_run(row: Any, value: float, step: int) -> bool:
    """Whether a value continues with the run of equal values that ends the series."""
    return bool(value == row["last_value"] and step > row["last_step"] >= 0)


def limit_of_integral(cadence: int) -> int:
    """Longest interval that an integral covers, in us."""
    return 3 * cadence if cadence > 0 else _NO_CADENCE_US


def integrate(row: Any, cadence: int, time: int, value: float) -> None:
    """Add the trapezoid between the last value and the next."""
    interval = time - row["last_time_us"]
    if 0 < interval <= limit_of_integral(cadence) and math.isfinite(value) and math.isfinite(row["last_value"]):
        seconds = interval * 1e-6
        row["integral"] += 0.5 * (value + row["last_value"]) * seconds
        row["integral_seconds"] += seconds


def judge(
    row: Any, cadence: int, falls: int, step_limit: int, file: int, offset: int, time: int, value: float, start: int
) -> int:
    """Everything that two neighbouring values of one series show, as bits of troubles."""
    integrate(row, cadence, time, value)
    told = judge_value(row, falls, step_limit, row["last_value"], row["start_us"], value, start)
    return told | judge_time(row, cadence, file, offset, time, value)


def lockstep(
    locks: Any,
    last: int,
    value: float,
    attempt: int,
    file: int,
    offset: int,
    rank: int,
    first_instant: int,
    width: int,
    cadence: int,
    time: int,
) -> None:
    """Let the last value, of the time `last`, count at every instant between it and the next one.

    `locks` are the cells of the key.
    """
    stale = max(STALE_US, 4 * cadence)
    instant = last // width + 1
    while instant * width <= time and instant * width - last <= stale:
        place = instant - first_instant
        if 0 <= place < NUM_WINDOWS:
            count(locks, place, value, attempt, file, offset, rank)
        instant += 1


def count(locks: Any, place: int, value: float, attempt: int, file: int, offset: int, rank: int) -> None:
    """Count a value at one instant; where attempts overlap, the later one counts."""
    if locks[place, 4] > 0 and locks[place, 7] != attempt:
        if locks[place, 7] > attempt:
            return
        locks[place, 4] = 0
    is_first = locks[place, 4] == 0
    if is_first or value < locks[place, 0] or (value == locks[place, 0] and rank < locks[place, 2]):
        locks[place, 0], locks[place, 2] = value, rank
        locks[place, 5], locks[place, 6] = file, offset
    if is_first or value > locks[place, 1] or (value == locks[place, 1] and rank < locks[place, 3]):
        locks[place, 1], locks[place, 3] = value, rank
    locks[place, 4] += 1
    locks[place, 7] = attempt


def note(
    occurrences: Any,
    counts: Any,
    row: Any,
    has_before: bool,
    troubles: int,
    writer: int,
    file: int,
    offset: int,
    time: int,
    value: float,
    step: int,
) -> None:
    """Put an occurrence into the buffer for each trouble, with the last value of the series as the one before."""
    for trouble in range(14):
        if (troubles >> trouble) & 1 == 0:
            continue
        place = counts[1]
        counts[1] = place + 1
        found = occurrences[place]
        found["trouble"], found["key"], found["subject"] = trouble, row["key"], row["subject"]
        found["attempt"], found["writer"], found["step"] = row["attempt"], writer, step
        found["here_file"], found["here_offset"], found["time_us"], found["value"] = file, offset, time, value
        if has_before:
            found["before_file"], found["before_offset"] = row["last_file"], row["last_offset"]
            found["time_before_us"], found["value_before"] = row["last_time_us"], row["last_value"]
        else:
            found["before_file"], found["before_offset"] = -1, -1
            found["time_before_us"], found["value_before"] = -1, math.nan
