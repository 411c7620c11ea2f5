"""Folds values into series, one after another in the order of writing."""

from __future__ import annotations

import math
from typing import Any

from trainspec_validate.telemetry.kernels.layout import (
    KEY_BITS,
    NUM_WINDOWS,
    WRITER_BITS,
    Keys,
    Samples,
    State,
    Writers,
)
from trainspec_validate.telemetry.kernels.pairs import judge, lockstep, note, same_run

BELOW_MINIMUM, ABOVE_MAXIMUM, SENTINEL, NOT_FINITE = 1, 2, 4, 8
WRONG_SCOPE = 1 << 12
"""Bits of the members of `view.Trouble`; a test holds them equal."""
ROOM = 16
"""Occurrences that one value can cause at most."""
NUM_CADENCES = 5
SLACK = 1e-9
ABOVE = 1.5
"""Bound for values of which the most in a row are kept."""
_JOB, _DEVICE, _NODE = 1, 8, 64
"""Bits of scopes, in the order of `names.SCOPES`."""
_RANK_OR_DEVICE, _OF_DEVICE = 5, 4
"""Bits of what a subject names."""


def is_sentinel(value: float) -> bool:
    """Whether a value is one that drivers write for 'no value'. Source: NVIDIA/DCGM dcgm_structs.h, blank values."""
    return value >= 65_535.0 and (
        2147483632.0 <= value <= 2147483647.0
        or value == 4294967295.0
        or 9.223372036854774e18 <= value <= 9.2233720368547758e18
        or value == 1.8446744073709552e19
        or 140737488355328.0 <= value <= 140737488355331.0
    )


def find(rows: Any, slots: Any, num: int, code: int, guess: int) -> int:
    """Number of the row with a code, or of the slot where it belongs as -slot - 1; `guess` is tried first."""
    if 0 <= guess < num and rows[guess]["code"] == code:
        return guess
    mask = len(slots) - 1
    place = ((((code ^ (code >> 31)) & 0x7FFFFFFF) * 0x9E3779B1) >> 15) & mask
    while slots[place] != 0:
        row: int = slots[place] - 1
        if rows[row]["code"] == code:
            return row
        place = (place + 1) & mask
    return -place - 1


def begin(
    row: Any,
    code: int,
    key: int,
    subject: int,
    attempt: int,
    writer: int,
    file: int,
    offset: int,
    time: int,
    value: float,
    step: int,
    start: int,
) -> None:
    """Make a row the one of a series with its first value."""
    row["code"], row["key"], row["subject"], row["attempt"], row["writer"] = code, key, subject, attempt, writer
    row["first_time_us"], row["first_value"], row["first_step"] = time, value, step
    row["first_file"], row["first_offset"], row["first_start_us"] = file, offset, start
    row["minimum"], row["maximum"] = math.inf, -math.inf
    row["num"] = 0
    row["longest_interval_file"], row["longest_interval_offset"] = -1, -1
    row["short_file"], row["short_offset"] = -1, -1


def set_last(row: Any, file: int, offset: int, time: int, value: float, step: int, start: int) -> None:
    """Make a value the last of its series."""
    row["last_time_us"], row["last_value"], row["last_step"] = time, value, step
    row["last_file"], row["last_offset"], row["start_us"] = file, offset, start


def end_run(row: Any, time: int, value: float) -> None:
    """Keep the run that ends the series if it is the longest, or begins the series."""
    if row["run"] > row["longest_run"]:
        row["longest_run"] = row["run"]
        row["longest_run_start_us"], row["longest_run_end_us"] = row["run_start_us"], time
        row["longest_run_value"] = value
        row["longest_run_file"], row["longest_run_offset"] = row["run_file"], row["run_offset"]
    if row["run"] == row["num"]:
        row["lead"], row["lead_end_us"] = row["run"], time


def extend_run(row: Any, file: int, offset: int, time: int, value: float, step: int) -> None:
    """Count a value, and continue with the run of equal values or begin another."""
    goes_on = row["num"] > 0 and same_run(row, value, step)
    row["num"] += 1
    if goes_on:
        row["run"] += 1
    else:
        row["run"], row["run_start_us"], row["run_file"], row["run_offset"] = 1, time, file, offset
    end_run(row, time, value)


def end_above(row: Any) -> None:
    """Keep the values above the bound that end the series if they are the most, or begin the series."""
    if row["above"] > row["longest_above"]:
        row["longest_above"] = row["above"]
        row["longest_above_file"], row["longest_above_offset"] = row["above_file"], row["above_offset"]
    if row["above"] == row["num"]:
        row["above_lead"] = row["above"]


def extend_above(row: Any, file: int, offset: int, value: float) -> None:
    """Count a value above the bound with those right before it; the value is counted already."""
    if not value > ABOVE:
        row["above"] = 0
        return
    if row["above"] == 0:
        row["above_file"], row["above_offset"] = file, offset
    row["above"] += 1
    end_above(row)


def single(row: Any, minimum: float, maximum: float, finite: int, value: float) -> int:
    """Troubles of one value by itself, as bits; it is added up."""
    if math.isfinite(value):
        row["num_finite"] += 1
        row["minimum"] = min(row["minimum"], value)
        row["maximum"] = max(row["maximum"], value)
        row["total"] += value
        if value > ABOVE:
            row["num_above"] += 1
    return verdict(value, minimum, maximum, finite)


def verdict(value: float, minimum: float, maximum: float, finite: int) -> int:
    """Troubles of one value by itself, as bits."""
    if not math.isfinite(value):
        return NOT_FINITE if finite == 1 else 0
    if value < minimum - SLACK:
        return BELOW_MINIMUM
    if is_sentinel(value):
        return SENTINEL
    return ABOVE_MAXIMUM if value > maximum * (1 + SLACK) else 0


def wrong_scope(scopes: int, needs: int, written: int, bits: int) -> int:
    """Whether a record cannot hold a metric: the writer does not write its scope, or the subject is another."""
    if scopes & written == 0:
        return WRONG_SCOPE
    if scopes == _JOB:
        return WRONG_SCOPE if bits & _RANK_OR_DEVICE != 0 else 0
    return WRONG_SCOPE if needs > 0 and needs & bits != needs else 0


def window(windows: Any, number: int, value: float, file: int, offset: int) -> None:
    """Count a value in its window; `windows` are the cells of the key."""
    if 0 <= number < NUM_WINDOWS and math.isfinite(value):
        is_first = windows[number, 0] == 0
        known_file, known_offset = windows[number, 4], windows[number, 5]
        if is_first or file < known_file or (file == known_file and offset < known_offset):
            windows[number, 4], windows[number, 5] = file, offset
        windows[number, 2] = value if is_first else min(windows[number, 2], value)
        windows[number, 3] = value if is_first else max(windows[number, 3], value)
        windows[number, 0] += 1
        windows[number, 1] += value


def fold(state: State, keys: Keys, writers: Writers, samples: Samples, index: int) -> int:
    """Fold values from an index on; returns where it stopped because an array is full, or the number of values."""
    rows, slots, counts, occurrences, windows, locks, ranks, frame = state
    minimum, maximum, finite, falls, cadences, scopes, needs, steps, _lock, _job, window_rows, lock_rows = keys
    _emitters, attempts, written, cadence_us, report_steps, starts = writers
    files, offsets, times, record_steps, start_us, record_writers, subjects, records, sample_keys, values, bits = (
        samples
    )
    first_window, window_us, first_instant, instant_us = frame
    guess = 0
    for i in range(index, len(values)):
        if counts[0] >= len(rows) or counts[1] + ROOM > len(occurrences):
            return i
        record, key, value = records[i], sample_keys[i], values[i]
        writer, subject = record_writers[record], subjects[record]
        file, offset, time, step = files[record], offsets[record], times[record], record_steps[record]
        start = start_us[record] if start_us[record] >= 0 else starts[writer]
        code = (int(key) << KEY_BITS) ^ (int(writer) << WRITER_BITS) ^ int(subject)
        number = find(rows, slots, counts[0], code, guess)
        if number < 0:
            slots[-number - 1] = counts[0] + 1
            number = counts[0]
            counts[0] = number + 1
            begin(rows[number], code, key, subject, attempts[writer], writer, file, offset, time, value, step, start)
        guess = number + 1
        row = rows[number]
        cadence = cadence_us[NUM_CADENCES * writer + cadences[key]] if cadences[key] >= 0 else 0
        troubles = single(row, minimum[key], maximum[key], finite[key], value)
        troubles |= wrong_scope(scopes[key], needs[key], written[writer], bits[subject])
        if row["num"] > 0:
            limit = report_steps[writer] if steps[key] else 0
            troubles |= judge(row, cadence, falls[key], limit, file, offset, time, value, start)
            if lock_rows[key] >= 0 and row["last_time_us"] // instant_us != time // instant_us:
                cells, rank = locks[lock_rows[key]], ranks[subject]
                last, kept, attempt = row["last_time_us"], row["last_value"], row["attempt"]
                last_file, last_offset = row["last_file"], row["last_offset"]
                lockstep(
                    cells, last, kept, attempt, last_file, last_offset, rank, first_instant, instant_us, cadence, time
                )
        if troubles != 0:
            note(occurrences, counts, row, row["num"] > 0, troubles, writer, file, offset, time, value, step)
        extend_run(row, file, offset, time, value, step)
        extend_above(row, file, offset, value)
        set_last(row, file, offset, time, value, step, start)
        mixed = scopes[key] & _DEVICE != 0 and scopes[key] & _NODE != 0
        if window_rows[key] >= 0 and not (mixed and bits[subject] & _OF_DEVICE == 0):
            window(windows[window_rows[key]], time // window_us - first_window, value, file, offset)
    return len(values)


def enter(rows: Any, slots: Any, num: int, start: int) -> None:
    """Enter rows from a number on into the slots."""
    for number in range(start, num):
        place = find(rows, slots, num, rows[number]["code"], -1)
        if place < 0:
            slots[-place - 1] = number + 1


def locate(rows: Any, slots: Any, num: int, codes: Any, numbers: Any) -> None:
    """Fill in the numbers of the rows with these codes; -1 for those that have none."""
    for i in range(len(codes)):
        numbers[i] = max(find(rows, slots, num, codes[i], i), -1)
