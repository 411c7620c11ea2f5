"""The only place that folds whole columns of values: series by series, each by loops over one thing at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.telemetry.kernels.fold import NUM_CADENCES, ROOM, begin, find, wrong_scope
from trainspec_validate.telemetry.kernels.layout import KEY_BITS, WRITER_BITS, Keys, State, Writers
from trainspec_validate.telemetry.kernels.passes import (
    compare,
    judge_intervals,
    judge_values,
    note_all,
    run_above,
    run_equal,
    see,
)

AT_ONCE = 1_024
"""Values of a series that are folded at once."""
_DEVICE, _NODE, _OF_DEVICE = 8, 64, 4


class Ordered(NamedTuple):
    """Records by what they are of: those of one writer and subject follow each other, in the order of writing."""

    row: np.ndarray
    """Place of the values of each record in the columns."""
    offset: np.ndarray
    time_us: np.ndarray
    step: np.ndarray
    window: np.ndarray
    """Window of the time of each record."""
    begins: np.ndarray
    """First record of each pair of a writer and a subject, and the number of records."""
    writer: np.ndarray
    """Of each pair."""
    subject: np.ndarray
    subject_bits: np.ndarray
    """What each subject names, by its number."""


class Some(NamedTuple):
    """Values of one series that follow each other, or room for them."""

    value: np.ndarray
    offset: np.ndarray
    time_us: np.ndarray
    step: np.ndarray
    window: np.ndarray
    troubles: np.ndarray
    place: np.ndarray
    """Place of each value among the records."""


def gather(rows: Any, column: Any, valid: Any, shift: int, index: int, end: int, room: Some) -> Any:
    """Take the values of the records from an index on; returns how many there are, and the index behind them.

    Bit `shift` of `valid` says whether the first row has a value; an empty `valid` says that all have.
    """
    values, places = room.value, room.place
    is_masked = len(valid) > 0
    num = 0
    while index < end and num < len(values):
        row = rows[index]
        bit = row + shift
        if not is_masked or (valid[bit >> 3] >> (bit & 7)) & 1 != 0:
            value = column[row]
            if not math.isnan(value):
                values[num], places[num] = value, index
                num += 1
        index += 1
    return num, index


def beside(records: Ordered, room: Some, num: int) -> Some:
    """The values with what their records have: as it lies there, or copied where records between have no value."""
    values, offsets, times, steps, windows, troubles, places = room
    first, last = places[0], places[num - 1] + 1
    if last - first == num:
        slices = (records.offset[first:last], records.time_us[first:last], records.step[first:last])
        return Some(values, slices[0], slices[1], slices[2], records.window[first:last], troubles, places)
    for i in range(num):
        place = places[i]
        offsets[i], times[i] = records.offset[place], records.time_us[place]
        steps[i], windows[i] = records.step[place], records.window[place]
    return room


def fold(
    state: State,
    keys: Keys,
    writers: Writers,
    records: Ordered,
    room: Some,
    file: int,
    key: int,
    column: Any,
    valid: Any,
    shift: int,
    index: int,
    pair: int,
    most: int,
) -> Any:
    """Fold the values of one key from the record `index` on, which is of `pair`; there are at most `most`.

    Returns where it stopped because an array is full, or the number of records, with the pair there, and how many
    values were folded.
    """
    rows, slots, counts, occurrences, windows, locks, ranks, frame = state
    begins, rows_of_records = records.begins, records.row
    minimum, maximum, finite, falls = keys.minimum[key], keys.maximum[key], keys.finite[key], keys.falls[key]
    cadence_number, scopes, needs = keys.cadence[key], keys.scopes[key], keys.needs[key]
    window_row, lock_row = keys.window_row[key], keys.lock_row[key]
    mixed = scopes & _DEVICE != 0 and scopes & _NODE != 0
    guess, num = 0, 0
    while pair < len(begins) - 1:
        if num == most:
            return begins[-1], pair, num
        end = begins[pair + 1]
        writer, subject = records.writer[pair], records.subject[pair]
        cadence = writers.cadence_us[NUM_CADENCES * writer + cadence_number] if cadence_number >= 0 else 0
        start = writers.start_us[writer]
        limit = writers.report_steps[writer] if keys.steps[key] else 0
        names = records.subject_bits[subject]
        misplaced = wrong_scope(scopes, needs, writers.scopes[writer], names)
        while index < end:
            if counts[0] >= len(rows) or counts[1] + ROOM * AT_ONCE > len(occurrences):
                return index, pair, num
            found, index = gather(rows_of_records, column, valid, shift, index, end, room)
            if found == 0:
                continue
            some = beside(records, room, found)
            code = (int(key) << KEY_BITS) ^ (int(writer) << WRITER_BITS) ^ int(subject)
            number = find(rows, slots, counts[0], code, guess)
            if number < 0:
                slots[-number - 1] = counts[0] + 1
                number = counts[0]
                counts[0] = number + 1
                attempt, offset, time = writers.attempt[writer], some.offset[0], some.time_us[0]
                value, step = some.value[0], some.step[0]
                begin(rows[number], code, key, subject, attempt, writer, file, offset, time, value, step, start)
            guess = number + 1
            row = rows[number]
            judge_values(row, some, found, minimum, maximum, finite, misplaced)
            judge_intervals(row, some, found, cadence, falls, limit, file, start)
            run_equal(row, some, found, file)
            run_above(row, some, found, file)
            if window_row >= 0 and not (mixed and names & _OF_DEVICE == 0):
                see(windows[window_row], some, found, file)
            if lock_row >= 0:
                compare(locks[lock_row], row, some, found, ranks[subject], frame[2], frame[3], cadence, file)
            note_all(occurrences, counts, row, some, found, writer, file, start)
            num += found
        pair += 1
    return index, pair, num
