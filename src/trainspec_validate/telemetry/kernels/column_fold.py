"""Folds whole columns of values: series by series, each by loops over one thing at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.telemetry.kernels.chunks import Chunks
from trainspec_validate.telemetry.kernels.fold import NUM_CADENCES, ROOM, begin, find, set_last, wrong_scope
from trainspec_validate.telemetry.kernels.fold_fast import add_quietly, count_above, count_equal, take
from trainspec_validate.telemetry.kernels.fold_general import (
    compare,
    judge_intervals,
    judge_values,
    note_all,
    run_above,
    run_equal,
    see,
)
from trainspec_validate.telemetry.kernels.layout import KEY_BITS, WRITER_BITS, Keys, State, Writers

AT_ONCE = 1_024
"""Values of a series that are folded at once."""
_DEVICE, _NODE, _OF_DEVICE = 8, 64, 4


class Some(NamedTuple):
    """Values of one series that follow each other, or room for them."""

    value: np.ndarray
    offset: np.ndarray
    time_us: np.ndarray
    step: np.ndarray
    window: np.ndarray
    troubles: np.ndarray


def beside(chunks: Chunks, chunk: int, room: Some) -> Some:
    """The values of a chunk with what their records have, as it is there."""
    first, end = chunks.begins[chunk], chunks.ends[chunk]
    slices = (chunks.offset[first:end], chunks.time_us[first:end], chunks.step[first:end])
    return Some(room.value, slices[0], slices[1], slices[2], chunks.window[first:end], room.troubles)


def without_gaps(chunks: Chunks, chunk: int, room: Some) -> int:
    """Move values that are numbers to the front, each with what its record has; returns how many there are."""
    first, num = chunks.begins[chunk], 0
    for i in range(chunks.ends[chunk] - first):
        if not math.isnan(room.value[i]):
            room.value[num], room.offset[num] = room.value[i], chunks.offset[first + i]
            room.time_us[num], room.step[num] = chunks.time_us[first + i], chunks.step[first + i]
            room.window[num] = chunks.window[first + i]
            num += 1
    return num


def judge_all(row: Any, some: Some, num: int, cadence: int, falls: int, limit: int, file: int, begun: int) -> None:
    """Everything that values show in comparison with the ones before them."""
    judge_intervals(row, some, num, cadence, falls, limit, file, begun)
    run_equal(row, some, num, file)
    run_above(row, some, num, file)


def series(state: State, key: int, writer: int, subject: int, guess: int) -> int:
    """Number of the row of a series, or of the slot where it belongs as -slot - 1; `guess` is tried first."""
    code = (int(key) << KEY_BITS) ^ (int(writer) << WRITER_BITS) ^ int(subject)
    return find(state.rows, state.slots, state.counts[0], code, guess)


def fold(
    state: State,
    keys: Keys,
    writers: Writers,
    chunks: Chunks,
    room: Some,
    file: int,
    key: int,
    column: Any,
    start: int,
) -> Any:
    """Fold the values of one key from the chunk `start` on; NaN means no value.

    Returns the chunk where it stopped because an array is full, or their number, and how many values were folded.
    """
    rows, slots, counts, occurrences, windows, locks, ranks, frame = state
    minimum, maximum, finite, falls = keys.minimum[key], keys.maximum[key], keys.finite[key], keys.falls[key]
    cadence_number, scopes, needs = keys.cadence[key], keys.scopes[key], keys.needs[key]
    window_row, lock_row = keys.window_row[key], keys.lock_row[key]
    mixed = scopes & _DEVICE != 0 and scopes & _NODE != 0
    guess, total = 0, 0
    for chunk in range(start, len(chunks.begins)):
        if counts[0] >= len(rows) or counts[1] + ROOM * AT_ONCE > len(occurrences):
            return chunk, total
        num = chunks.ends[chunk] - chunks.begins[chunk]
        is_finite = take(chunks.row, column, chunks.begins[chunk], chunks.ends[chunk], room.value)
        some = beside(chunks, chunk, room)
        if not is_finite:
            found = without_gaps(chunks, chunk, room)
            if found == 0:
                continue
            if found < num:
                some, num = room, found
        writer, subject = chunks.writer[chunk], chunks.subject[chunk]
        cadence = writers.cadence_us[NUM_CADENCES * writer + cadence_number] if cadence_number >= 0 else 0
        begun = writers.start_us[writer]
        limit = writers.report_steps[writer] if keys.steps[key] else 0
        names = chunks.subject_bits[subject]
        misplaced = wrong_scope(scopes, needs, writers.scopes[writer], names)
        code = (int(key) << KEY_BITS) ^ (int(writer) << WRITER_BITS) ^ int(subject)
        number = find(rows, slots, counts[0], code, guess)
        if number < 0:
            slots[-number - 1] = counts[0] + 1
            number = counts[0]
            counts[0] = number + 1
            attempt, offset, time = writers.attempt[writer], some.offset[0], some.time_us[0]
            value, step = some.value[0], some.step[0]
            begin(rows[number], code, key, subject, attempt, writer, file, offset, time, value, step, begun)
        guess = number + 1
        row = rows[number]
        above, num_equal = row["num_above"], -1
        if is_finite and misplaced == 0:
            limits = (minimum, maximum, falls, limit)
            num_equal = add_quietly(row, some.value, chunks, chunk, cadence, limits, file)
        if num_equal >= 0:
            count_equal(row, some, num, file, num_equal, chunks.advance[chunk])
            count_above(row, some, num, file, row["num_above"] - above)
        else:
            judge_values(row, some, num, minimum, maximum, finite, misplaced)
            judge_all(row, some, num, cadence, falls, limit, file, begun)
        if window_row >= 0 and not (mixed and names & _OF_DEVICE == 0):
            see(windows[window_row], some, num, file)
        if lock_row >= 0:
            compare(locks[lock_row], row, some, num, ranks[subject], frame[2], frame[3], cadence, file)
        if num_equal >= 0:
            end = num - 1
            set_last(row, file, some.offset[end], some.time_us[end], some.value[end], some.step[end], begun)
        else:
            note_all(occurrences, counts, row, some, num, writer, file, begun)
        total += num
    return len(chunks.begins), total
