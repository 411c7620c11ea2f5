"""The only place that folds values into series, one after another in the order of writing."""

from __future__ import annotations

import math
from typing import Any

from trainspec_validate.telemetry.kernels.layout import NUM_WINDOWS, Keys, Samples, State, Writers
from trainspec_validate.telemetry.kernels.pairs import judge, note, same_run

BELOW_MINIMUM, ABOVE_MAXIMUM, SENTINEL, NOT_FINITE, WRONG_SCOPE = 0, 1, 2, 3, 12
"""Numbers of `view.Trouble`; a test holds them equal."""
ROOM = 16
"""Occurrences that one value can cause at most."""
_SLACK = 1e-9
_ABOVE = 1.5


def is_sentinel(value: float) -> bool:
    """Whether a value is one that drivers write for 'no value'. Source: NVIDIA/DCGM dcgm_structs.h, blank values."""
    if value < 65_535.0:
        return False
    return (
        2147483632.0 <= value <= 2147483647.0
        or value == 4294967295.0
        or 9.223372036854774e18 <= value <= 9.2233720368547758e18
        or value == 1.8446744073709552e19
        or 140737488355328.0 <= value <= 140737488355331.0
    )


def find(state: State, code: int, guess: int) -> int:
    """Number of the row with a code, or of the slot where it belongs as -slot - 1; `guess` is tried first."""
    if 0 <= guess < state.counts[0] and state.rows[guess]["code"] == code:
        return guess
    mask = len(state.slots) - 1
    place = ((code * 0x9E3779B1) ^ (code >> 29)) & mask
    while state.slots[place] != 0:
        row = state.slots[place] - 1
        if state.rows[row]["code"] == code:
            return int(row)
        place = (place + 1) & mask
    return -int(place) - 1


def begin(state: State, place: int, code: int, key: int, subject: int, attempt: int, next_: Any) -> int:  # noqa: PLR0913
    """A new row for a series with its first value."""
    writer, file, offset, time, value, step, start = next_
    number = state.counts[0]
    state.counts[0] = number + 1
    state.slots[place] = number + 1
    row = state.rows[number]
    row["code"], row["key"], row["subject"], row["attempt"], row["writer"] = code, key, subject, attempt, writer
    row["first_time_us"], row["first_value"], row["first_step"] = time, value, step
    row["first_file"], row["first_offset"], row["first_start_us"], row["first_writer"] = file, offset, start, writer
    row["minimum"], row["maximum"] = math.inf, -math.inf
    row["num"] = 0
    row["longest_interval_file"], row["longest_interval_offset"] = -1, -1
    row["short_file"], row["short_offset"] = -1, -1
    return int(number)


def set_last(row: Any, next_: Any) -> None:
    """Make a value the last of its series."""
    writer, file, offset, time, value, step, start = next_
    row["last_time_us"], row["last_value"], row["last_step"] = time, value, step
    row["last_file"], row["last_offset"], row["start_us"], row["writer"] = file, offset, start, writer


def start_run(row: Any, next_: Any) -> None:
    """Begin a run of equal values."""
    _writer, file, offset, time, _value, _step, _start = next_
    row["run"], row["run_start_us"], row["run_file"], row["run_offset"] = 1, time, file, offset


def end_run(row: Any, time: int, value: float) -> None:
    """Keep the run that ends the series if it is the longest, or begins the series."""
    if row["run"] > row["longest_run"]:
        row["longest_run"] = row["run"]
        row["longest_run_start_us"], row["longest_run_end_us"] = row["run_start_us"], time
        row["longest_run_value"] = value
        row["longest_run_file"], row["longest_run_offset"] = row["run_file"], row["run_offset"]
    if row["run"] == row["num"]:
        row["lead"], row["lead_end_us"] = row["run"], time


def single(state: State, row: Any, keys: Keys, next_: Any) -> None:
    """What one value tells by itself."""
    writer, file, offset, time, value, step, _start = next_
    key = row["key"]
    if not math.isfinite(value):
        if keys.finite[key] == 1:
            note(state, row, NOT_FINITE, writer, file, offset, time, value, step)
        return
    if value < keys.minimum[key] - _SLACK:
        note(state, row, BELOW_MINIMUM, writer, file, offset, time, value, step)
    elif is_sentinel(value):
        note(state, row, SENTINEL, writer, file, offset, time, value, step)
    elif value > keys.maximum[key] * (1 + _SLACK):
        note(state, row, ABOVE_MAXIMUM, writer, file, offset, time, value, step)
    row["minimum"] = min(row["minimum"], value)
    row["maximum"] = max(row["maximum"], value)
    row["total"] += value
    if value > _ABOVE:
        row["num_above"] += 1


def wrong_scope(keys: Keys, writers: Writers, key: int, writer: int, bits: int) -> bool:
    """Whether a record cannot hold a metric: the writer does not write its scope, or the subject is another."""
    scopes, needs = keys.scopes[key], keys.needs[key]
    if scopes & writers.scopes[writer] == 0:
        return True
    if scopes == 1:
        return bits & 5 != 0
    return needs > 0 and needs & bits != needs


def window(state: State, place: int, time: int, value: float) -> None:
    """Count a value in its window."""
    number = time // state.frame[1] - state.frame[0]
    if 0 <= number < NUM_WINDOWS and math.isfinite(value):
        cell = state.windows[place, number]
        cell[2] = value if cell[0] == 0 else min(cell[2], value)
        cell[3] = value if cell[0] == 0 else max(cell[3], value)
        cell[0] += 1
        cell[1] += value


def fold(state: State, keys: Keys, writers: Writers, samples: Samples, index: int) -> int:
    """Fold values from an index on; returns where it stopped because an array is full, or the number of values."""
    guess = 0
    for i in range(index, len(samples.value)):
        if state.counts[0] >= len(state.rows) or state.counts[1] + ROOM > len(state.occurrences):
            return i
        record, key, value = samples.record[i], samples.key[i], samples.value[i]
        writer, subject = samples.writer[record], samples.subject[record]
        attempt = writers.attempt[writer]
        start = samples.start_us[record]
        if start < 0:
            start = writers.start_us[writer]
        time = samples.time_us[record]
        next_ = (writer, samples.file[record], samples.offset[record], time, value, samples.step[record], start)
        code = (int(key) << 48) ^ (int(attempt) << 28) ^ int(subject)
        number = find(state, code, guess)
        if number < 0:
            number = begin(state, -number - 1, code, key, subject, attempt, next_)
        guess = number + 1
        row = state.rows[number]
        bits = samples.subject_bits[subject]
        if wrong_scope(keys, writers, key, writer, bits):
            note(state, row, WRONG_SCOPE, writer, next_[1], next_[2], time, value, next_[5])
        single(state, row, keys, next_)
        extend(state, row, keys, writers, next_)
        if keys.window_row[key] >= 0 and not (scope_is_mixed(keys, key) and bits & 4 == 0):
            window(state, keys.window_row[key], time, value)
    return len(samples.value)


def scope_is_mixed(keys: Keys, key: int) -> bool:
    """Whether values of devices and of nodes share a key: only those of devices are counted together."""
    return bool(keys.scopes[key] & 8 != 0 and keys.scopes[key] & 64 != 0)


def extend(state: State, row: Any, keys: Keys, writers: Writers, next_: Any) -> None:
    """Make a value the last one of its series, after judging it against the one before."""
    value, step, time = next_[4], next_[5], next_[3]
    if row["num"] == 0:
        row["num"] = 1
        start_run(row, next_)
    else:
        judge(state, row, keys, writers, next_)
        goes_on = same_run(row, value, step)
        row["num"] += 1
        if goes_on:
            row["run"] += 1
        else:
            start_run(row, next_)
    end_run(row, time, value)
    set_last(row, next_)


def index(state: State) -> None:
    """Enter every row into empty slots."""
    for number in range(state.counts[0]):
        place = find(state, state.rows[number]["code"], len(state.rows))
        state.slots[-place - 1] = number + 1
