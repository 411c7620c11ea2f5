"""Declares the state of the fold in memory: one record type for each thing that it counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

I8, I4, F8 = np.int64, np.int32, np.float64


def _place(name: str) -> list[tuple[str, type]]:
    return [(f"{name}_file", I4), (f"{name}_offset", I8)]


SERIES = np.dtype(
    [
        *[("code", I8), ("key", I4), ("subject", I4), ("attempt", I4), ("writer", I4), ("num", I4), ("num_finite", I4)],
        *[("first_time_us", I8), ("last_time_us", I8), ("first_value", F8), ("last_value", F8)],
        *_place("first"),
        *_place("last"),
        *[("first_step", I8), ("last_step", I8), ("first_start_us", I8), ("start_us", I8)],
        *[("minimum", F8), ("maximum", F8), ("total", F8)],
        *[("num_intervals", I4), ("num_late", I4), ("longest_interval_us", I8), ("longest_interval_end_us", I8)],
        *_place("longest_interval"),
        # runs of equal values: the one that ends the series, the one that begins it, and the longest
        *[("run", I4), ("run_start_us", I8), *_place("run"), ("lead", I4), ("lead_end_us", I8)],
        *[("longest_run", I4), ("longest_run_start_us", I8), ("longest_run_end_us", I8), ("longest_run_value", F8)],
        *_place("longest_run"),
        # values above 1.5 in a row: those that end the series, those that begin it, and the most
        *[("above", I4), *_place("above"), ("above_lead", I4), ("longest_above", I4), *_place("longest_above")],
        *[("num_above", I4), ("num_falls", I4), ("integral", F8), ("integral_seconds", F8)],
        # intervals above three cadences, and below a tenth of one
        ("emitter", I4),
        *[("num_gaps", I4), ("num_short", I4), ("short_us", I8), ("short_value", F8)],
        *_place("short"),
    ]
)
"""State of one series of one writer: a key of a subject in an attempt. `code` is what it is found by."""
KEY_BITS, WRITER_BITS = 50, 26
"""Bits of a code below the number of the key, and below that of the writer: what is left is the subject."""

WRITER = np.dtype(
    [
        *[("num", I8), ("first_time_us", I8), ("last_time_us", I8), ("first_seq", I8), ("last_seq", I8)],
        *[("num_missing", I8), ("num_repeated", I8), ("num_back", I8)],
        *_place("first"),
        *_place("last"),
    ]
)
"""State of one writer."""

OCCURRENCE = np.dtype(
    [
        *[("trouble", I4), ("key", I4), ("subject", I4), ("attempt", I4), ("writer", I4)],
        *_place("here"),
        *_place("before"),
        *[("time_us", I8), ("time_before_us", I8), ("value", F8), ("value_before", F8), ("step", I8)],
    ]
)

SKIP = np.dtype([("writer", I4), ("kind", I4), ("seq", I8), ("num", I8), *_place("here")])
"""Sequence numbers that are missing (kind 0) or come again (kind 1)."""

NUM_WINDOWS = 4_096
WINDOW_US = 10_000_000
"""Narrowest window of values; the width doubles until a run fits."""
INSTANT_US = 30_000_000
"""Closest instants at which ranks are compared; doubles likewise."""
STALE_US = 120_000_000
"""A value older than this, or than four cadences, says nothing about a rank any more."""


class State(NamedTuple):
    """The arrays that the loops change."""

    rows: np.ndarray
    slots: np.ndarray
    """Open addressing: number of a row plus one, by the code of the series; the length is a power of two."""
    counts: np.ndarray
    """Rows in use, occurrences in the buffer."""
    occurrences: np.ndarray
    windows: np.ndarray
    """Key, window, and count, total, minimum, maximum, file and offset of the first record."""
    locks: np.ndarray
    """Key, instant, and low, high, rank of low, rank of high, number, file and offset of low, attempt."""
    ranks: np.ndarray
    """Rank of each subject; -1 for none."""
    frame: np.ndarray
    """First window, its width in us, first instant, its width in us."""


class Keys(NamedTuple):
    """Facts of each key for the loops, by its number."""

    minimum: np.ndarray
    maximum: np.ndarray
    finite: np.ndarray
    falls: np.ndarray
    cadence: np.ndarray
    scopes: np.ndarray
    needs: np.ndarray
    steps: np.ndarray
    lock: np.ndarray
    job: np.ndarray
    window_row: np.ndarray
    """Row in `State.windows`; -1 for none."""
    lock_row: np.ndarray


class Writers(NamedTuple):
    """Facts of each writer for the loops, by its number."""

    emitter: np.ndarray
    attempt: np.ndarray
    scopes: np.ndarray
    cadence_us: np.ndarray
    """Five for each writer, one after another."""
    report_steps: np.ndarray
    start_us: np.ndarray


class Samples(NamedTuple):
    """One batch of values with what they take from their records."""

    file: np.ndarray
    offset: np.ndarray
    time_us: np.ndarray
    step: np.ndarray
    start_us: np.ndarray
    writer: np.ndarray
    subject: np.ndarray
    record: np.ndarray
    key: np.ndarray
    value: np.ndarray
    subject_bits: np.ndarray
    """Keys that each subject names, by its number."""
