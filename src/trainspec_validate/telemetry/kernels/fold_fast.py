"""Folds values of a series without anomalies: all of them in one loop.

The resulting series is the same, bit by bit, as with the loops of `passes`, which fold all other values.
"""

from __future__ import annotations

import math
from typing import Any

from trainspec_validate.telemetry.kernels.chunks import Chunks
from trainspec_validate.telemetry.kernels.fold import ABOVE, SLACK
from trainspec_validate.telemetry.kernels.fold_general import run_above, run_equal
from trainspec_validate.telemetry.kernels.pairs import limit_of_integral

_LEAST_SENTINEL = 2147483632.0


def take(rows: Any, column: Any, first: int, end: int, values: Any) -> bool:
    """Take the values of some records; returns whether all of them are finite."""
    num_odd = 0
    for i in range(first, end):
        value = column[rows[i]]
        values[i - first] = value
        num_odd += 0 if math.isfinite(value) else 1
    return num_odd == 0


def is_within(low: float, high: float, minimum: float, maximum: float) -> bool:
    """Whether `verdict` has nothing to say of any value between two."""
    if low < minimum - SLACK or high > maximum * (1 + SLACK):
        return False
    return high < _LEAST_SENTINEL or not (
        (low <= 2147483647.0)
        or (low <= 4294967295.0 <= high)
        or (low <= 9.2233720368547758e18 and high >= 9.223372036854774e18)
        or low <= 1.8446744073709552e19 <= high
        or (low <= 140737488355331.0 and high >= 140737488355328.0)
    )


def regularity(shortest: int, longest: int, cadence: int) -> int:
    """0 where nothing is to be said of intervals between two, 1 where all are short, as `unusual` counts, else -1.

    Both ways the integral covers them all.
    """
    if shortest <= 0 or longest > limit_of_integral(cadence):
        return -1
    if cadence <= 0:
        return 0
    if 10 * longest < cadence:
        return 1
    return 0 if 2 * longest <= 3 * cadence and 10 * shortest >= cadence else -1


def add_quietly(row: Any, values: Any, chunks: Chunks, chunk: int, cadence: int, limits: Any, file: int) -> Any:
    """Add up finite values of a chunk, unless one is odd by itself or after the one before it: then nothing is done.

    `limits` are the least and the greatest value, how it may fall, and the most that it may rise. Returns how many are
    equal to the value before them, or -1.
    """
    minimum, maximum, falls, step_limit = limits
    first, has_before = chunks.begins[chunk], row["num"] > 0
    num, last = chunks.ends[chunk] - first, values[0]
    before = row["last_value"] if has_before else 0.0
    seam = chunks.time_us[first] - row["last_time_us"] if has_before else chunks.shortest_us[chunk]
    shortest, longest = min(chunks.shortest_us[chunk], seam), max(chunks.longest_us[chunk], seam if has_before else -1)
    regular = regularity(shortest, longest, cadence) if math.isfinite(before) else -1
    if regular < 0:
        return -1
    seam = seam if has_before else 0
    limit = float(step_limit) if step_limit > 0 else math.inf
    integral = row["integral"] + 0.5 * (last + before) * (seam * 1e-6)
    begun = (row["total"] + last, integral, row["integral_seconds"] + seam * 1e-6)
    total, integral, covered, low, high, num_equal, num_falls, num_jumps, num_above = add_along(
        values, chunks.seconds, first, num, limit, begun
    )
    num_odd = num_jumps + (1 if last - before > limit else 0)
    num_odd += num_falls + (1 if last < before else 0) if falls > 0 else 0
    if num_odd > 0 or not is_within(low, high, minimum, maximum):
        return -1
    row["minimum"], row["maximum"], row["total"] = min(row["minimum"], low), max(row["maximum"], high), total
    row["num_finite"] += num
    row["num_above"] += num_above
    row["integral"], row["integral_seconds"] = integral, covered
    start = 0 if has_before else 1
    row["num_intervals"] += num - start
    if regular == 1 and num > start:
        note_short(row, values, chunks, first, start, num - start, file)
    note_longest(row, chunks, chunk, seam, file)
    return num_equal + (1 if has_before and last == before else 0)


def add_along(values: Any, seconds: Any, first: int, num: int, limit: float, begun: Any) -> Any:
    """Add up values behind the first one, to what `begun` has of the sum, the integral and the time that it covers.

    Returns these, the smallest and the largest value, and how many values equal the one before, fall below it, rise
    above it by more than the limit, and are above the bound; the first value counts for what it is by itself.
    """
    total, integral, covered = begun
    last = low = high = values[0]
    num_equal, num_falls, num_jumps, num_above = 0, 0, 0, 1 if last > ABOVE else 0
    for i in range(1, num):
        value, interval = values[i], seconds[first + i]
        total += value
        low, high = min(low, value), max(high, value)
        integral += 0.5 * (value + last) * interval
        covered += interval
        num_equal += 1 if value == last else 0
        num_falls += 1 if value < last else 0
        num_jumps += 1 if value - last > limit else 0
        num_above += 1 if value > ABOVE else 0
        last = value
    return total, integral, covered, low, high, num_equal, num_falls, num_jumps, num_above


def note_short(row: Any, values: Any, chunks: Chunks, first: int, start: int, num: int, file: int) -> None:
    """Count so many intervals that are short, the first of which ends at the value `start`."""
    if row["num_short"] == 0:
        row["short_us"], row["short_value"] = chunks.time_us[first + start], values[start]
        row["short_file"], row["short_offset"] = file, chunks.offset[first + start]
    row["num_short"] += num


def note_longest(row: Any, chunks: Chunks, chunk: int, seam: int, file: int) -> None:
    """Keep the longest interval; `seam` is the one before the first record, 0 for none."""
    first, longest, at = chunks.begins[chunk], row["longest_interval_us"], -1
    if seam > longest:
        longest, at = seam, first
    if chunks.longest_us[chunk] > longest:
        longest, at = chunks.longest_us[chunk], first + chunks.longest_at[chunk]
    if at >= 0:
        row["longest_interval_us"], row["longest_interval_end_us"] = longest, chunks.time_us[at]
        row["longest_interval_file"], row["longest_interval_offset"] = file, chunks.offset[at]


def count_equal(row: Any, some: Any, num: int, file: int, num_equal: int, advance: int) -> None:
    """Count finite values and follow runs of equal ones, as `run_equal`, in no time where none or all continue."""
    has_before, step = row["num"] > 0, some.step[0]
    goes_on = has_before and step > row["last_step"] >= 0
    if goes_on and advance == 1 and num_equal == num:
        row["run"] += num
        row["num"] += num
        if row["run"] > row["longest_run"]:
            row["longest_run"], row["longest_run_value"] = row["run"], some.value[num - 1]
            row["longest_run_start_us"], row["longest_run_end_us"] = row["run_start_us"], some.time_us[num - 1]
            row["longest_run_file"], row["longest_run_offset"] = row["run_file"], row["run_offset"]
        if row["run"] == row["num"]:
            row["lead"], row["lead_end_us"] = row["num"], some.time_us[num - 1]
    elif has_before and (num_equal == 0 or (not goes_on and (advance == -1 or num == 1))):
        row["run"], row["run_start_us"] = 1, some.time_us[num - 1]
        row["run_file"], row["run_offset"] = file, some.offset[num - 1]
        row["num"] += num
    else:
        run_equal(row, some, num, file)


def count_above(row: Any, some: Any, num: int, file: int, num_above: int) -> None:
    """Follow runs of values above the bound, as `run_above`; so many of them are above it."""
    if num_above == 0:
        row["above"] = 0
    elif num_above == num:
        has_only = row["above"] == row["num"] - num
        if row["above"] == 0:
            row["above_file"], row["above_offset"] = file, some.offset[0]
        row["above"] += num
        if row["above"] > row["longest_above"]:
            row["longest_above"] = row["above"]
            row["longest_above_file"], row["longest_above_offset"] = row["above_file"], row["above_offset"]
        if has_only:
            row["above_lead"] = row["above"]
    else:
        run_above(row, some, num, file)
