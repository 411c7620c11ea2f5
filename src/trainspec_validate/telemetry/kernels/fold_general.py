"""Folds many values of one series at once, one thing after another; the same as value by value."""

from __future__ import annotations

import math
from typing import Any

from trainspec_validate.telemetry.kernels.fold import ABOVE, set_last, verdict
from trainspec_validate.telemetry.kernels.layout import NUM_WINDOWS
from trainspec_validate.telemetry.kernels.pairs import (
    DUPLICATE_OTHER,
    DUPLICATE_SAME,
    TIME_BACK,
    is_same,
    judge_value,
    limit_of_integral,
    lockstep,
    note,
    unusual,
)


def judge_values(row: Any, some: Any, num: int, minimum: float, maximum: float, finite: int, misplaced: int) -> None:
    """Troubles of each value by itself, and their sums."""
    values, troubles = some.value, some.troubles
    low, high, total = row["minimum"], row["maximum"], row["total"]
    num_finite, num_above = 0, 0
    for i in range(num):
        value = values[i]
        troubles[i] = misplaced | verdict(value, minimum, maximum, finite)
        if math.isfinite(value):
            num_finite += 1
            low, high = min(low, value), max(high, value)
            total += value
            if value > ABOVE:
                num_above += 1
    row["minimum"], row["maximum"], row["total"] = low, high, total
    row["num_finite"] += num_finite
    row["num_above"] += num_above


def judge_intervals(
    row: Any, some: Any, num: int, cadence: int, falls: int, step_limit: int, file: int, start: int
) -> None:
    """Troubles of each value in comparison with the one before it, and the integral over time."""
    values, offsets, times, troubles = some.value, some.offset, some.time_us, some.troubles
    last_time, last, last_start = row["last_time_us"], row["last_value"], row["start_us"]
    longest, longest_at = row["longest_interval_us"], -1
    integral, seconds, num_intervals = row["integral"], row["integral_seconds"], 0
    limit = limit_of_integral(cadence)
    for i in range(num):
        value, time = values[i], times[i]
        if i > 0 or row["num"] > 0:
            interval = time - last_time
            if interval > 0:
                num_intervals += 1
                if interval > longest:
                    longest, longest_at = interval, i
                if cadence > 0 and (2 * interval > 3 * cadence or 10 * interval < cadence):
                    troubles[i] |= unusual(row, interval, cadence, file, offsets[i], time, value)
                if interval <= limit and math.isfinite(value) and math.isfinite(last):
                    integral += 0.5 * (value + last) * (interval * 1e-6)
                    seconds += interval * 1e-6
            elif interval < 0:
                troubles[i] |= TIME_BACK
            else:
                troubles[i] |= DUPLICATE_SAME if is_same(value, last) else DUPLICATE_OTHER
            troubles[i] |= judge_value(row, falls, step_limit, last, last_start, value, start)
        last_time, last, last_start = time, value, start
    row["integral"], row["integral_seconds"] = integral, seconds
    row["num_intervals"] += num_intervals
    if longest_at >= 0:
        row["longest_interval_us"], row["longest_interval_end_us"] = longest, times[longest_at]
        row["longest_interval_file"], row["longest_interval_offset"] = file, offsets[longest_at]


def run_equal(row: Any, some: Any, num: int, file: int) -> None:
    """Count the values, and follow runs of equal ones."""
    values, offsets, times, steps = some.value, some.offset, some.time_us, some.step
    last, last_step, count, run, longest = (
        row["last_value"],
        row["last_step"],
        row["num"],
        row["run"],
        row["longest_run"],
    )
    begun, ended, lead = -1, -1, -1
    for i in range(num):
        value, step = values[i], steps[i]
        if count > 0 and value == last and step > last_step >= 0:
            run += 1
        else:
            run, begun = 1, i
        count += 1
        if run > longest:
            longest, ended = run, i
            if begun >= 0:
                row["longest_run_start_us"] = times[begun]
                row["longest_run_file"], row["longest_run_offset"] = file, offsets[begun]
            else:
                row["longest_run_start_us"] = row["run_start_us"]
                row["longest_run_file"], row["longest_run_offset"] = row["run_file"], row["run_offset"]
        if run == count:
            lead = i
        last, last_step = value, step
    if ended >= 0:
        row["longest_run"], row["longest_run_end_us"], row["longest_run_value"] = longest, times[ended], values[ended]
    if lead >= 0:
        row["lead"], row["lead_end_us"] = row["num"] + lead + 1, times[lead]
    if begun >= 0:
        row["run_start_us"], row["run_file"], row["run_offset"] = times[begun], file, offsets[begun]
    row["num"], row["run"] = count, run


def run_above(row: Any, some: Any, num: int, file: int) -> None:
    """Follow runs of values above the bound; the values are counted already."""
    values, offsets = some.value, some.offset
    above, longest, count = row["above"], row["longest_above"], row["num"] - num
    begun, best, lead = -1, -2, row["above_lead"]
    for i in range(num):
        count += 1
        if not values[i] > ABOVE:
            above = 0
            continue
        if above == 0:
            begun = i
        above += 1
        if above > longest:
            longest, best = above, begun
        if above == count:
            lead = above
    if best >= 0:
        row["longest_above_file"], row["longest_above_offset"] = file, offsets[best]
    elif best == -1:
        row["longest_above_file"], row["longest_above_offset"] = row["above_file"], row["above_offset"]
    if begun >= 0:
        row["above_file"], row["above_offset"] = file, offsets[begun]
    row["above"], row["longest_above"], row["above_lead"] = above, longest, lead


def see(windows: Any, some: Any, num: int, file: int) -> None:
    """Count the values in their windows; `windows` are the cells of the key.

    Those of one window follow each other, and are in the order of writing.
    """
    values, offsets, numbers = some.value, some.offset, some.window
    i = 0
    while i < num:
        number = numbers[i]
        if not 0 <= number < NUM_WINDOWS:
            i += 1
            continue
        before, first = windows[number, 0], -1
        count, total, low, high = before, windows[number, 1], math.inf, -math.inf
        while i < num and numbers[i] == number:
            value = values[i]
            if math.isfinite(value):
                count += 1
                total += value
                low, high = min(low, value), max(high, value)
                first = i if first < 0 else first
            i += 1
        if first < 0:
            continue
        if before == 0:
            windows[number, 2], windows[number, 3] = low, high
            windows[number, 4], windows[number, 5] = file, offsets[first]
        else:
            windows[number, 2], windows[number, 3] = min(windows[number, 2], low), max(windows[number, 3], high)
            known = windows[number, 4]
            if file < known or (file == known and offsets[first] < windows[number, 5]):
                windows[number, 4], windows[number, 5] = file, offsets[first]
        windows[number, 0], windows[number, 1] = count, total


def compare(
    locks: Any, row: Any, some: Any, num: int, rank: int, first: int, width: int, cadence: int, file: int
) -> None:
    """Let each value but the last count at the instants up to the next one; `locks` are the cells of the key."""
    last_time, last = row["last_time_us"], row["last_value"]
    last_file, last_offset, attempt = row["last_file"], row["last_offset"], row["attempt"]
    next_us = (last_time // width + 1) * width
    for i in range(num):
        time = some.time_us[i]
        if time >= next_us and (i > 0 or row["num"] > num):
            lockstep(locks, last_time, last, attempt, last_file, last_offset, rank, first, width, cadence, time)
        if i == 0 or time >= next_us or time < last_time:
            next_us = (time // width + 1) * width
        last_time, last, last_file, last_offset = time, some.value[i], file, some.offset[i]


def note_all(occurrences: Any, counts: Any, row: Any, some: Any, num: int, writer: int, file: int, start: int) -> None:
    """Note the troubles of the values, and make the last one the last of its series."""
    values, offsets, times, steps, _windows, troubles = some
    for i in range(num):
        if troubles[i] != 0:
            if i > 0:
                set_last(row, file, offsets[i - 1], times[i - 1], values[i - 1], steps[i - 1], start)
            had = i > 0 or row["num"] > num
            note(occurrences, counts, row, had, troubles[i], writer, file, offsets[i], times[i], values[i], steps[i])
    end = num - 1
    set_last(row, file, offsets[end], times[end], values[end], steps[end], start)
