"""Turns the arrays of a digest into the tables and trails that checks see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.names import RANK
from trainspec_validate.telemetry.fold.anomaly_groups import in_order
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.view.anomaly_kinds import Occurrence, Trail, Trouble
from trainspec_validate.telemetry.view.places import NOWHERE, Location, Subject
from trainspec_validate.telemetry.view.run_records import Placement
from trainspec_validate.telemetry.view.tables import Lockstep, SeriesTable, Windows

NUM_SHORT = 3
_MAX_NAMED = 64
_MAX_PLACEMENTS = 1_000_000
_IDENTITY = ("attempt", "subject", "key")
"""What makes rows those of one series."""


def place_of(row: Any, stem: str) -> Location:
    """The place in a row whose columns begin with `stem`."""
    return Location(int(row[f"{stem}_file"]), int(row[f"{stem}_offset"]))


def series(digest: Digest) -> SeriesTable:
    """Every series of the run."""
    rows = digest.rows[: digest.num_rows]
    names = digest.names
    if len(rows):
        rows["emitter"] = names.writer_columns().emitter[rows["writer"]]
    return SeriesTable(rows, tuple(names.keys.items), tuple(names.subjects.items), tuple(names.emitters.items))


def bursts(digest: Digest) -> Iterator[Trail]:
    """Series with a gap and with values that came together: a buffer that was flushed late."""
    rows = digest.rows[: digest.num_rows]
    mine = np.flatnonzero((rows["num_gaps"] > 0) & (rows["num_short"] >= NUM_SHORT))
    names = digest.names
    for key, attempt in np.unique(np.stack([rows["key"][mine], rows["attempt"][mine]], axis=1), axis=0).tolist():
        some = rows[mine[(rows["key"][mine] == key) & (rows["attempt"][mine] == attempt)]]
        subjects = tuple(sorted((names.subjects.items[s] for s in np.unique(some["subject"]).tolist()), key=in_order))
        some = some[np.lexsort((some["short_offset"], some["short_file"]))]
        first = tuple(_burst(digest, row) for row in some[:_MAX_NAMED])
        times = (int(some["short_us"].min()), int(some["short_us"].max()))
        num = int(some["num_short"].sum())
        yield Trail(Trouble.BURST, names.keys.items[key], attempt, num, subjects, first, *times)


def _burst(digest: Digest, row: Any) -> Occurrence:
    names = digest.names
    about = (names.keys.items[row["key"]], names.subjects.items[row["subject"]], int(row["attempt"]))
    writer = names.writers.items[row["writer"]].emitter
    value, unknown = float(row["short_value"]), float("nan")
    place = place_of(row, "short")
    return Occurrence(Trouble.BURST, *about, writer, place, NOWHERE, int(row["short_us"]), -1, value, unknown, -1)


def second_writers(digest: Digest) -> Iterator[Trail]:
    """Series of several emitters in one attempt: those that begin later, each with the one that begins before it."""
    rows = digest.rows[: digest.num_rows]
    if not len(rows):
        return
    emitters = np.array(digest.names.emitters.items).argsort().argsort()
    emitter = emitters[digest.names.writer_columns().emitter[rows["writer"]]]
    order = np.lexsort([emitter, rows["first_time_us"], *(rows[name] for name in _IDENTITY)])
    same = np.ones(len(rows) - 1, bool)
    for name in _IDENTITY:
        same &= rows[name][order[1:]] == rows[name][order[:-1]]
    found: dict[tuple[int, int], list[Occurrence]] = {}
    for place in np.flatnonzero(same).tolist():
        owner, row = rows[order[place]], rows[order[place + 1]]
        if _has_other_writer(digest, owner, row):
            found.setdefault((int(row["key"]), int(row["attempt"])), []).append(_second_writer(digest, owner, row))
    for (key, attempt), some in sorted(found.items()):
        subjects = tuple(sorted({one.subject for one in some}, key=in_order))
        first = tuple(sorted(some, key=lambda one: (one.location, one.emitter))[:_MAX_NAMED])
        times = (min(one.time_us for one in some), max(one.time_us for one in some))
        yield Trail(Trouble.SECOND_WRITER, digest.names.keys.items[key], attempt, len(some), subjects, first, *times)


def _has_other_writer(digest: Digest, owner: Any, row: Any) -> bool:
    """Whether two rows of one series are of two emitters, and it is no series that each emitter has for itself."""
    metric, writers = digest.names.metrics[row["key"]], digest.names.writers.items
    is_own = metric is not None and metric.scopes == ("emitter",)
    return not is_own and writers[owner["writer"]].emitter != writers[row["writer"]].emitter


def _second_writer(digest: Digest, owner: Any, row: Any) -> Occurrence:
    names = digest.names
    about = (names.keys.items[row["key"]], names.subjects.items[row["subject"]], int(row["attempt"]))
    places = (names.writers.items[row["writer"]].emitter, place_of(row, "first"), place_of(owner, "first"))
    times = (int(row["first_time_us"]), int(owner["first_time_us"]))
    values = (float(row["first_value"]), float(owner["first_value"]))
    return Occurrence(Trouble.SECOND_WRITER, *about, *places, *times, *values, int(row["first_step"]))


def windows(digest: Digest) -> Iterator[tuple[str, Windows]]:
    """Values by time window, with the text of their key."""
    start, width, _, _ = digest.frame.numbers.tolist()
    for key, row in _by_name(digest, digest.frame.window_rows):
        cells = digest.frame.windows[row]
        used = np.flatnonzero(cells[:, 0])
        if not len(used):
            continue
        some = cells[used[0] : used[-1] + 1]
        begin = (start + int(used[0])) * width
        name = digest.names.keys.items[key]
        columns = (some[:, 0].astype(np.int64), some[:, 1], some[:, 2], some[:, 3])
        places = (np.where(some[:, 0] > 0, some[:, column], -1).astype(np.int64) for column in (4, 5))
        yield str(name), Windows(name, width, begin, *(column.copy() for column in columns), *places)


def _by_name(digest: Digest, rows: Mapping[int, int]) -> list[tuple[int, int]]:
    """Keys and their rows in the order of the names of the keys, which does not depend on what was read first."""
    return sorted(rows.items(), key=lambda item: digest.names.keys.items[item[0]])


def lockstep(digest: Digest) -> Iterator[Lockstep]:
    """Ranks against each other, by key and attempt."""
    _, _, start, width = digest.frame.numbers.tolist()
    for key, row in _by_name(digest, digest.frame.lock_rows):
        cells = digest.frame.locks[row]
        for attempt in np.unique(cells[cells[:, 4] > 0, 7]).astype(int).tolist():
            used = np.flatnonzero((cells[:, 4] > 0) & (cells[:, 7] == attempt))
            some = cells[used[0] : used[-1] + 1].copy()
            some[some[:, 7] != attempt, 4] = 0
            begin = (start + int(used[0])) * width
            low_rank, high_rank = (some[:, column].astype(np.int64) for column in (2, 3))
            num = some[:, 4].astype(np.int64)
            place = some[:, 5:7].astype(np.int64)
            name = digest.names.keys.items[key]
            yield Lockstep(name, attempt, width, begin, some[:, 0], some[:, 1], low_rank, high_rank, num, place)


def placements(digest: Digest) -> Iterator[Placement]:
    """Ranks with the host and device that they are named with, from the series they have."""
    rows = digest.rows[: digest.num_rows]
    bits = digest.names.subject_bits()
    both = bits[rows["subject"]] if len(rows) else np.zeros(0, np.int64)
    some = np.flatnonzero((both & RANK != 0) & (both > RANK))
    if not len(some):
        return
    code = rows["attempt"][some].astype(np.int64) << 32 | rows["subject"][some]
    order = np.lexsort((rows["first_offset"][some], rows["first_file"][some], code))
    _, begin = np.unique(code[order], return_index=True)
    some = some[order]
    first = np.minimum.reduceat(rows["first_time_us"][some], begin)
    last = np.maximum.reduceat(rows["last_time_us"][some], begin)
    chosen = zip(some[begin].tolist(), first.tolist(), last.tolist(), strict=True)
    for number, low, high in islice(chosen, _MAX_PLACEMENTS):
        row = rows[number]
        subject: Subject = digest.names.subjects.items[row["subject"]]
        if subject.rank is not None:
            about = (int(row["attempt"]), subject.rank, subject.host, subject.device)
            yield Placement(*about, low, high, place_of(row, "first"))
