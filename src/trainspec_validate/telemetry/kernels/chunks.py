"""Cuts records into chunks of one writer and subject, and summarises the times of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NO_INTERVAL = 1 << 58
"""Shortest interval of a chunk of one record."""


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


class Chunks(NamedTuple):
    """Records that have a value in the same columns, by what they are of, in the order of writing; and maybe others.

    The records of a chunk have a value, those between chunks have none.
    """

    row: np.ndarray
    """Place of the values of each record in the columns."""
    offset: np.ndarray
    time_us: np.ndarray
    step: np.ndarray
    window: np.ndarray
    """Window of the time of each record."""
    seconds: np.ndarray
    """Since the record before in the chunk; 0 for the first."""
    begins: np.ndarray
    """First record of each chunk."""
    ends: np.ndarray
    """First record behind each chunk."""
    writer: np.ndarray
    """Of each chunk, as all that follow."""
    subject: np.ndarray
    shortest_us: np.ndarray
    """Shortest interval between neighbours."""
    longest_us: np.ndarray
    """Longest one; -1 for a chunk of one record."""
    longest_at: np.ndarray
    """Place in the chunk of the first record that ends one so long."""
    advance: np.ndarray
    """1 where each record has a later step than the one before it, -1 where none has, 0 for some."""
    subject_bits: np.ndarray
    """Keys that each subject names, by its number."""


def room_for(records: Ordered, num: int, most: int, subject_bits: Any) -> Chunks:
    """Room for so many records in chunks of at most `most`."""
    of_records = [np.empty(num, np.int64) for _ in range(5)]
    num_chunks = num // most + len(records.writer)
    of_chunks = [np.empty(num_chunks, np.int64) for _ in range(8)]
    return Chunks._make([*of_records, np.empty(num), *of_chunks, subject_bits])


room_for.only_python = True  # type: ignore[attr-defined]


def select(records: Ordered, valid: Any, shift: int, filled: Any, most: int, room: Chunks) -> Any:
    """Fill in the records that have a value; returns how many chunks and how many records they are.

    Bit `shift` of `valid` says whether the first row has a value; an empty `valid` says that all have. `filled` are the
    values of each pair.
    """
    rows, offsets, times, steps, windows, begins, writers, subjects = records
    out_rows, out_offsets, out_times, out_steps, out_windows = room[:5]
    chunk_begins, chunk_writers, chunk_subjects = room.begins, room.writer, room.subject
    is_masked = len(valid) > 0
    num, num_chunks = 0, 0
    for pair in range(len(writers)):
        if filled[pair] == 0:
            continue
        first = num
        for i in range(begins[pair], begins[pair + 1]):
            row = rows[i]
            bit = row + shift
            if is_masked and (valid[bit >> 3] >> (bit & 7)) & 1 == 0:
                continue
            out_rows[num], out_offsets[num], out_times[num] = row, offsets[i], times[i]
            out_steps[num], out_windows[num] = steps[i], windows[i]
            num += 1
        while first < num:
            chunk_begins[num_chunks], chunk_writers[num_chunks] = first, writers[pair]
            chunk_subjects[num_chunks] = subjects[pair]
            first = room.ends[num_chunks] = min(num, first + most)
            num_chunks += 1
    return num_chunks, num


def enter_rows(chunks: Chunks, chunk_of_row: Any) -> None:
    """Fill in the chunk of each row; rows that are in none stay as they are."""
    for chunk in range(len(chunks.begins)):
        for i in range(chunks.begins[chunk], chunks.ends[chunk]):
            chunk_of_row[chunks.row[i]] = chunk


def count(chunk_of_row: Any, valid: Any, shift: int, counts: Any) -> None:
    """Add up how many rows of each chunk have a value: bit `shift` of `valid` says whether the first row has.

    Most columns have none in most rows, so that bytes without any are passed over.
    """
    end = shift + len(chunk_of_row)
    for place in range(shift >> 3, (end + 7) >> 3):
        bits = int(valid[place])
        if bits == 0:
            continue
        for bit in range(max(8 * place, shift), min(8 * place + 8, end)):
            counts[chunk_of_row[bit - shift]] += (bits >> (bit & 7)) & 1


def measure(chunks: Chunks) -> None:
    """Fill in what the times and steps of each chunk show."""
    times, steps, seconds = chunks.time_us, chunks.step, chunks.seconds
    for chunk in range(len(chunks.begins)):
        first, end = chunks.begins[chunk], chunks.ends[chunk]
        shortest, longest, longest_at, num_advances = NO_INTERVAL, -1, -1, 0
        seconds[first] = 0.0
        for i in range(first + 1, end):
            interval = times[i] - times[i - 1]
            seconds[i] = interval * 1e-6
            shortest = min(shortest, interval)
            if interval > longest:
                longest, longest_at = interval, i - first
            num_advances += 1 if steps[i] > steps[i - 1] >= 0 else 0
        chunks.shortest_us[chunk], chunks.longest_us[chunk] = shortest, longest
        chunks.longest_at[chunk] = longest_at
        is_all = num_advances == end - first - 1
        chunks.advance[chunk] = 1 if is_all else -1 if num_advances == 0 else 0
